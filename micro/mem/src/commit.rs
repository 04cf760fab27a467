// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory is promised to programs (vm.overcommit_memory; Linux' Documentation/mm/overcommit-accounting.rst).
//!
//! A mapping is a promise while its pages are the program's alone and may be written, and as long as it is there where they are shared and of no
//! file. Files of memory (tmpfs) are no promises: their pages are there or not.

use abi::setting::Setting;
use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use core::sync::atomic::{AtomicU64, Ordering};

/// [`GUESS`], [`ALWAYS`] or [`NEVER`]. A machine has one purpose, and most programs ask for more than they use: all is promised.
pub static OVERCOMMIT: [Setting; 1] = [Setting::new(ALWAYS, GUESS, NEVER)];
/// What is more than the machine has at once is refused, everything else promised.
const GUESS: u64 = 0;
const ALWAYS: u64 = 1;
/// No more is promised than [`limit`].
const NEVER: u64 = 2;

/// vm.overcommit_ratio, in percent of the machine's memory. It counts where vm.overcommit_kbytes is 0.
static RATIO: AtomicU64 = AtomicU64::new(50);
/// vm.overcommit_kbytes, in KiB.
static KBYTES: AtomicU64 = AtomicU64::new(0);

/// Pages that are promised.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// vm.overcommit_ratio and vm.overcommit_kbytes, of which one is 0.
pub fn overcommit_limits() -> (u64, u64) {
    (RATIO.load(Ordering::Relaxed), KBYTES.load(Ordering::Relaxed))
}

/// The other one is 0 from then on.
pub fn set_overcommit_ratio(percent: u32) {
    RATIO.store(percent.into(), Ordering::Relaxed);
    KBYTES.store(0, Ordering::Relaxed);
}

/// The other one is 0 from then on.
pub fn set_overcommit_kbytes(kbytes: u64) {
    KBYTES.store(kbytes, Ordering::Relaxed);
    RATIO.store(0, Ordering::Relaxed);
}

/// Bytes that are promised, and that may be where nothing is overcommitted: Committed_AS and CommitLimit of /proc/meminfo.
pub fn commitment() -> (u64, u64) {
    let page = PAGE_SIZE as u64;
    (
        PROMISED.load(Ordering::Relaxed).saturating_mul(page),
        limit(api_mem::statistics().0).saturating_mul(page),
    )
}

/// In pages, of a machine with `total`.
fn limit(total: u64) -> u64 {
    match overcommit_limits() {
        (ratio, 0) => total.saturating_mul(ratio) / 100,
        (_, kbytes) => kbytes / (PAGE_SIZE as u64 / 1024),
    }
}

/// Whether so many pages more may be promised at once; `ENOMEM` if not.
pub(crate) fn check(pages: u64) -> Result<()> {
    let total = api_mem::statistics().0;
    match allows(OVERCOMMIT[0].get(), pages, PROMISED.load(Ordering::Relaxed), total, limit(total)) {
        true => Ok(()),
        false => Err(ENOMEM),
    }
}

fn allows(mode: u64, pages: u64, promised: u64, total: u64, limit: u64) -> bool {
    match mode {
        GUESS => pages <= total,
        NEVER => promised.saturating_add(pages) < limit,
        _ => true,
    }
}

/// MAP_NORESERVE means something.
pub(crate) fn heeds_no_reserve() -> bool {
    OVERCOMMIT[0].get() != NEVER
}

/// The pages that an address space or an object of shared memory was promised. They are for others when it goes.
#[derive(Default)]
pub(crate) struct Promise(u64);

impl Promise {
    pub fn of(pages: u64) -> Promise {
        let mut promise = Promise::default();
        promise.change(pages as i64);
        promise
    }

    pub fn change(&mut self, pages: i64) {
        if pages != 0 {
            self.0 = self.0.wrapping_add_signed(pages);
            // Less is a large number more.
            PROMISED.fetch_add(pages as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.change(-(self.0 as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_depends_on_the_mode() {
        let (total, limit) = (1000, 500);
        assert!(allows(GUESS, 1000, 5000, total, limit) && !allows(GUESS, 1001, 0, total, limit));
        assert!(allows(ALWAYS, u64::MAX, u64::MAX, total, limit));
        assert!(allows(NEVER, 99, 400, total, limit) && !allows(NEVER, 100, 400, total, limit));
        assert!(!allows(NEVER, 1, u64::MAX, total, limit));
    }

    #[test]
    fn a_promise_ends_with_who_has_it() {
        // Other tests promise meanwhile: more than all of them.
        let many = 1 << 50;
        let mut promise = Promise::of(many);
        assert!(PROMISED.load(Ordering::Relaxed) >= many);
        promise.change(many as i64);
        promise.change(-(many as i64));
        drop(promise);
        assert!(PROMISED.load(Ordering::Relaxed) < many);
    }
}
