// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads with a priority (SCHED_FIFO, SCHED_RR) leave a share of the processor to those without: after 950 ms in which one of
//! these waited in vain, they go first for 50 ms, unless other times were set, as on Linux (sched(7), "Limiting the CPU usage of real-time and deadline
//! processes"; since 6.12 as here, only where somebody waits). Without it one endless loop would stop the machine: the shell
//! that is to end it, and the kernel's own threads.

use api_sched::policy::{SHARE_PERIOD_US, SHARE_RUNTIME_US};
use core::sync::atomic::{AtomicU64, Ordering};

/// When threads with a priority have had theirs, if they begin now: `MAX` where they leave nothing.
fn preferred_until(now: u64) -> u64 {
    SHARE_RUNTIME_US.get().checked_mul(1000).map_or(u64::MAX, |ns| now + ns)
}

/// So long the others go first then, in nanoseconds.
fn others_ns() -> u64 {
    SHARE_PERIOD_US.get().saturating_sub(SHARE_RUNTIME_US.get()) * 1000
}

/// Of one processor, which alone writes it.
pub(crate) struct Share {
    /// When threads with a priority have had theirs; `MAX` where none has run since another one did.
    preferred_until: AtomicU64,
    /// Until when the others go first; 0 where they do not.
    others_until: AtomicU64,
}

impl Share {
    pub(crate) const fn new() -> Share {
        Share { preferred_until: AtomicU64::new(u64::MAX), others_until: AtomicU64::new(0) }
    }

    /// When the running thread with a priority has to make room, if somebody waits.
    pub(crate) fn preferred_until(&self) -> u64 {
        self.preferred_until.load(Ordering::Relaxed)
    }

    /// When those without one no longer go first; 0 where they do not now. The clock is read only if they may.
    pub(crate) fn others_until(&self, now: impl FnOnce() -> u64) -> u64 {
        let until = self.others_until.load(Ordering::Relaxed);
        if until != 0 && until <= now() {
            self.others_until.store(0, Ordering::Relaxed);
            return 0;
        }
        until
    }

    /// A thread gets the processor, or another priority while it has it.
    pub(crate) fn begins(&self, priority: u8, now: impl FnOnce() -> u64) {
        if priority == 0 {
            self.preferred_until.store(u64::MAX, Ordering::Relaxed);
        } else {
            self.others_until.store(0, Ordering::Relaxed);
            if self.preferred_until() == u64::MAX {
                self.preferred_until.store(preferred_until(now()), Ordering::Relaxed);
            }
        }
    }

    /// Threads with a priority have had their share: the others go first, if there are any; else it begins anew.
    pub(crate) fn is_used_up(&self, others_wait: bool, now: u64) -> bool {
        if now < self.preferred_until() {
            return false;
        }
        match others_wait {
            true => self.others_until.store(now + others_ns(), Ordering::Relaxed),
            false => self.preferred_until.store(preferred_until(now), Ordering::Relaxed),
        }
        others_wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFERRED_NS: u64 = 950_000_000;
    const OTHERS_NS: u64 = 50_000_000;

    #[test]
    fn others_get_a_twentieth_and_only_when_they_wait() {
        let share = Share::new();
        share.begins(0, || 5);
        assert_eq!((share.preferred_until(), share.others_until(|| 5)), (u64::MAX, 0));
        share.begins(9, || 10);
        share.begins(3, || 500);
        assert_eq!(share.preferred_until(), 10 + PREFERRED_NS);
        assert!(!share.is_used_up(true, 9 + PREFERRED_NS));
        let end = 10 + PREFERRED_NS;
        assert!(!share.is_used_up(false, end) && share.preferred_until() == end + PREFERRED_NS);
        let end = end + PREFERRED_NS;
        assert!(share.is_used_up(true, end));
        assert_eq!(share.others_until(|| end), end + OTHERS_NS);
        share.begins(0, || end);
        assert_eq!(share.others_until(|| end + OTHERS_NS), 0);
        share.begins(1, || end + OTHERS_NS);
        assert_eq!(share.preferred_until(), end + OTHERS_NS + PREFERRED_NS);
    }
}
