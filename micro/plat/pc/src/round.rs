// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One processor asks others to forget translations, and waits until they have. One at a time asks: who holds the kernel's lock.
//!
//! Lock-free, so `model.rs` runs it through every order of its accesses.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

pub struct Round {
    /// Processors that have yet to do it, a bit each.
    pub pending: AtomicU32,
    pub start: AtomicU64,
    pub end: AtomicU64,
}

impl Round {
    /// Asks the processors for `start..end`; each is to be sent a message then. All that this processor wrote before is seen by
    /// them first.
    pub fn ask(&self, processors: u32, start: u64, end: u64) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.pending.store(processors, Ordering::Release);
    }

    /// All that were asked have done it.
    pub fn is_over(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// What this processor is asked for; `None` when the message is an old one.
    pub fn asked(&self, cpu: u32) -> Option<(u64, u64)> {
        (self.pending.load(Ordering::Acquire) & 1 << cpu != 0)
            .then(|| (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed)))
    }

    /// It has done so.
    pub fn done(&self, cpu: u32) {
        self.pending.fetch_and(!(1 << cpu), Ordering::Release);
    }
}
