// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock: the time-stamp counter, scaled to nanoseconds. Its state is one page that the vDSO reads too. How fast the
//! counter runs is the platform's to find out.

use crate::rdtsc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the vDSO reads, in a page of its own. Times are in nanoseconds, `rate` in 2^-32 nanoseconds a tick.
#[repr(C, align(4096))]
pub struct ClockPage {
    /// Odd while the fields are being changed.
    pub sequence: AtomicU32,
    reserved: AtomicU32,
    pub base_tsc: AtomicU64,
    pub base_ns: AtomicU64,
    pub rate: AtomicU64,
    /// Wall clock at the monotonic clock's zero.
    pub wall_ns: AtomicU64,
}

fn scale(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

impl Default for ClockPage {
    fn default() -> Self {
        ClockPage::new()
    }
}

impl ClockPage {
    pub const fn new() -> ClockPage {
        ClockPage {
            sequence: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            base_tsc: AtomicU64::new(0),
            base_ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            wall_ns: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since the clock's zero. One processor: the page changes only in thread context and where no interrupt
    /// reads it, so a reader never sees half of it.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        let ticks = rdtsc().wrapping_sub(self.base_tsc.load(Ordering::Relaxed));
        self.base_ns.load(Ordering::Relaxed) + scale(ticks, self.rate.load(Ordering::Relaxed))
    }

    fn change(&self, f: impl FnOnce(&ClockPage)) {
        self.sequence.fetch_add(1, Ordering::AcqRel);
        f(self);
        self.sequence.fetch_add(1, Ordering::AcqRel);
    }

    pub fn set_wall_ns(&self, ns: u64) {
        self.change(|page| page.wall_ns.store(ns, Ordering::Relaxed));
    }

    /// Changes the rate from now on; the clock goes on from where it is.
    pub fn set_rate(&self, rate: u64) {
        self.change(|page| {
            let tsc = rdtsc();
            let ticks = tsc.wrapping_sub(page.base_tsc.load(Ordering::Relaxed));
            let now = scale(ticks, page.rate.load(Ordering::Relaxed));
            page.base_ns.fetch_add(now, Ordering::Relaxed);
            page.base_tsc.store(tsc, Ordering::Relaxed);
            page.rate.store(rate, Ordering::Relaxed);
        });
    }

    /// The time-stamp counter at `ns`.
    pub fn tsc_at(&self, ns: u64) -> u64 {
        let after = u128::from(ns.saturating_sub(self.base_ns.load(Ordering::Relaxed)));
        let ticks = (after << 32) / u128::from(self.rate.load(Ordering::Relaxed)).max(1);
        self.base_tsc.load(Ordering::Relaxed).saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }
}
