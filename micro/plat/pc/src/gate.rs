// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one lock around the kernel, as its processors take it: who finds it taken looks again for a while, and then sleeps until
//! who gives it back sends a message.
//!
//! Lock-free, so `model.rs` runs it through every order of its accesses. The instructions that sleep and send are the caller's.

use crate::atomic::{AtomicU32, Ordering, fence};

pub const FREE: u32 = 0;
pub const HELD: u32 = 1;

pub struct Gate {
    pub word: AtomicU32,
    /// Processors that sleep or are about to, a bit each.
    pub sleepers: AtomicU32,
    /// Who was woken last, so that all get their turn.
    pub last: AtomicU32,
}

impl Gate {
    /// Takes the lock if nobody has it.
    pub fn try_enter(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) == FREE
    }

    /// Gives the lock back; answers who is to be told so, if anybody sleeps.
    pub fn leave(&self) -> Option<u32> {
        self.word.store(FREE, Ordering::Release);
        // Either the sleeper below sees that the lock is free, or this sees the sleeper.
        fence(Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        if sleepers == 0 {
            return None;
        }
        let last = self.last.load(Ordering::Relaxed);
        // Those behind the last one first. It is below 31.
        let behind = sleepers & !((2 << last) - 1);
        let next = if behind != 0 { behind } else { sleepers }.trailing_zeros();
        self.last.store(next, Ordering::Relaxed);
        Some(next)
    }

    /// Processor `cpu` is about to sleep; false when the lock is free, and it need not. A message that comes from now on has to end
    /// the sleep.
    pub fn announce(&self, cpu: u32) -> bool {
        self.sleepers.fetch_or(1 << cpu, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.is_free()
    }

    /// It no longer sleeps.
    pub fn withdraw(&self, cpu: u32) {
        self.sleepers.fetch_and(!(1 << cpu), Ordering::Relaxed);
    }
}
