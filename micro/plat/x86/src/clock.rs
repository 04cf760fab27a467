// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock: the time-stamp counter, scaled to nanoseconds. Its state is one page that the vDSO reads too. How fast the
//! counter runs is the platform's to find out.

use crate::rdtsc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What the vDSO reads, in a page of its own. Times are in nanoseconds, `rate` in 2^-32 nanoseconds a tick.
#[repr(C, align(4096))]
pub struct ClockPage {
    /// Odd while the fields are being changed.
    pub sequence: AtomicU32,
    /// Not 0 in the page of time namespaces, whose sequence is odd for good: the vDSO asks the kernel.
    pub asks: AtomicU32,
    pub base_tsc: AtomicU64,
    pub base_ns: AtomicU64,
    pub rate: AtomicU64,
    /// Wall clock at the monotonic clock's zero.
    pub wall_ns: AtomicU64,
}

fn scale(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

/// The wall clock at the clock's zero when it was `wall` so many ticks after that, or before it.
pub fn wall_at_zero(wall: u64, ticks: i64, rate: u64) -> u64 {
    let ns = scale(ticks.unsigned_abs(), rate);
    if ticks < 0 { wall.saturating_add(ns) } else { wall.saturating_sub(ns) }
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
            asks: AtomicU32::new(0),
            base_tsc: AtomicU64::new(0),
            base_ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            wall_ns: AtomicU64::new(0),
        }
    }

    /// As [`ClockPage::now_ns`] where another processor may be changing the page. The reader cannot have interrupted that one.
    pub fn now_ns_undisturbed(&self) -> u64 {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let now = self.now_ns();
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before {
                return now;
            }
            core::hint::spin_loop();
        }
    }

    /// Nanoseconds since the clock's zero. The page changes only in thread context, in which one processor is at a time, and where
    /// no interrupt reads it, so a reader in thread context never sees half of it.
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

    /// The first value of the time-stamp counter at which [`ClockPage::now_ns`] is `ns` or later: a deadline that is one tick
    /// early costs a second interrupt.
    pub fn tsc_at(&self, ns: u64) -> u64 {
        let after = u128::from(ns.saturating_sub(self.base_ns.load(Ordering::Relaxed)));
        let ticks = (after << 32).div_ceil(u128::from(self.rate.load(Ordering::Relaxed)).max(1));
        self.base_tsc.load(Ordering::Relaxed).saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_has_reached_a_deadline_when_the_counter_has() {
        for rate in [1u64 << 32, (1 << 32) / 3, 1_431_655_766, 2_147_483_647, 9_876_543_210] {
            let page = ClockPage::new();
            page.rate.store(rate, Ordering::Relaxed);
            page.base_tsc.store(1_000_003, Ordering::Relaxed);
            for ns in (0..10_000).chain([1 << 33, (1 << 40) + 1, 86_400_000_000_007]) {
                let ticks = page.tsc_at(ns) - 1_000_003;
                assert!(scale(ticks, rate) >= ns, "{ns} at {rate}");
                assert!(ticks == 0 || scale(ticks - 1, rate) < ns, "{ns} at {rate} could be earlier");
            }
        }
    }

    #[test]
    fn wall_clock_is_told_of_a_moment_after_or_before_the_zero() {
        let nanosecond_a_tick = 1 << 32;
        assert_eq!(wall_at_zero(1_000, 300, nanosecond_a_tick), 700);
        assert_eq!(wall_at_zero(1_000, -300, nanosecond_a_tick), 1_300);
    }
}
