// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that is committed to programs (vm.overcommit_memory; Linux' Documentation/mm/overcommit-accounting.rst).
//!
//! Each page of a private writable mapping and of shared anonymous memory is committed, whether the page exists or not. Files on
//! tmpfs are not counted.

use abi::setting::Setting;
use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use core::sync::atomic::{AtomicU64, Ordering};

/// vm.overcommit_memory: [`GUESS`], [`ALWAYS`] or [`NEVER`]. The default is `ALWAYS`: a machine runs one application, and applications map
/// more memory than they use.
pub static OVERCOMMIT: [Setting; 1] = [Setting::new(ALWAYS, GUESS, NEVER)];
/// A single request above the machine's memory is refused.
const GUESS: u64 = 0;
const ALWAYS: u64 = 1;
/// The sum of all commitments stays below [`limit`].
const NEVER: u64 = 2;

/// vm.overcommit_ratio, in percent of the machine's memory. It applies while vm.overcommit_kbytes is 0.
static RATIO: AtomicU64 = AtomicU64::new(50);
/// vm.overcommit_kbytes, in KiB.
static KBYTES: AtomicU64 = AtomicU64::new(0);

/// Committed pages.
static COMMITTED: AtomicU64 = AtomicU64::new(0);

/// vm.overcommit_ratio and vm.overcommit_kbytes; one of them is 0.
pub fn overcommit_limits() -> (u64, u64) {
    (RATIO.load(Ordering::Relaxed), KBYTES.load(Ordering::Relaxed))
}

/// Sets vm.overcommit_ratio, and vm.overcommit_kbytes to 0.
pub fn set_overcommit_ratio(percent: u32) {
    RATIO.store(percent.into(), Ordering::Relaxed);
    KBYTES.store(0, Ordering::Relaxed);
}

/// Sets vm.overcommit_kbytes, and vm.overcommit_ratio to 0.
pub fn set_overcommit_kbytes(kbytes: u64) {
    KBYTES.store(kbytes, Ordering::Relaxed);
    RATIO.store(0, Ordering::Relaxed);
}

/// Committed_AS and CommitLimit of /proc/meminfo, in bytes.
pub fn commitment() -> (u64, u64) {
    let page = PAGE_SIZE as u64;
    (
        COMMITTED.load(Ordering::Relaxed).saturating_mul(page),
        limit(api_mem::statistics().0).saturating_mul(page),
    )
}

/// The commit limit of a machine with `total` pages, in pages.
fn limit(total: u64) -> u64 {
    match overcommit_limits() {
        (ratio, 0) => total.saturating_mul(ratio) / 100,
        (_, kbytes) => kbytes / (PAGE_SIZE as u64 / 1024),
    }
}

/// Checks whether `pages` more may be committed; `ENOMEM` if not. By default nothing is counted, for every request is granted.
pub(crate) fn check(pages: impl FnOnce() -> u64) -> Result<()> {
    let mode = OVERCOMMIT[0].get();
    if mode == ALWAYS {
        return Ok(());
    }
    let total = api_mem::statistics().0;
    match allows(mode, pages(), COMMITTED.load(Ordering::Relaxed), total, limit(total)) {
        true => Ok(()),
        false => Err(ENOMEM),
    }
}

fn allows(mode: u64, pages: u64, committed: u64, total: u64, limit: u64) -> bool {
    match mode {
        GUESS => pages <= total,
        NEVER => committed.saturating_add(pages) < limit,
        _ => true,
    }
}

/// Linux ignores MAP_NORESERVE in mode [`NEVER`].
pub(crate) fn allows_no_reserve() -> bool {
    OVERCOMMIT[0].get() != NEVER
}

/// The commitment of one owner, an address space or an object of shared memory, in pages. Dropping it releases the pages.
#[derive(Default)]
pub(crate) struct Commitment(u64);

impl Commitment {
    pub fn of(pages: u64) -> Commitment {
        let mut commitment = Commitment::default();
        commitment.change(pages as i64);
        commitment
    }

    pub fn change(&mut self, pages: i64) {
        if pages != 0 {
            self.0 = self.0.wrapping_add_signed(pages);
            // Two's complement: adding a negative number subtracts.
            COMMITTED.fetch_add(pages as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Commitment {
    fn drop(&mut self) {
        self.change(-(self.0 as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_decides_what_may_be_committed() {
        let (total, limit) = (1000, 500);
        assert!(allows(GUESS, 1000, 5000, total, limit) && !allows(GUESS, 1001, 0, total, limit));
        assert!(allows(ALWAYS, u64::MAX, u64::MAX, total, limit));
        assert!(allows(NEVER, 99, 400, total, limit) && !allows(NEVER, 100, 400, total, limit));
        assert!(!allows(NEVER, 1, u64::MAX, total, limit));
    }

    #[test]
    fn dropping_a_commitment_releases_its_pages() {
        // Other tests commit pages at the same time, fewer than these.
        let many = 1 << 50;
        let mut commitment = Commitment::of(many);
        assert!(COMMITTED.load(Ordering::Relaxed) >= many);
        commitment.change(many as i64);
        commitment.change(-(many as i64));
        drop(commitment);
        assert!(COMMITTED.load(Ordering::Relaxed) < many);
    }
}
