// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pending timers, in the order they expire.
//!
//! An ordered map: adding and cancelling take logarithmic time in the number of timers, and there are few of them:
//! sleeping threads, interval timers, one for the whole TCP stack (which has a wheel of its own). `alloc`'s, not
//! `ordered`'s: a server adds and cancels several for each request, and there an allocation for each counts.
//! Depends on the scheduler's API only; the scheduler core owns the one instance.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_sched::{TimerId, Waiter};

struct Pending {
    next: u64,
    timers: BTreeMap<TimerId, Arc<dyn Waiter>>,
}

/// A set of one-shot timers.
pub struct Timers(SpinLock<Pending>);

impl Default for Timers {
    fn default() -> Self {
        Timers::new()
    }
}

impl Timers {
    pub const fn new() -> Timers {
        Timers(SpinLock::new(Pending { next: 0, timers: BTreeMap::new() }))
    }

    /// Adds a timer; the second value is true when it is now the earliest.
    pub fn add(&self, deadline_ns: u64, callback: Arc<dyn Waiter>) -> (TimerId, bool) {
        let mut pending = self.0.lock();
        let id = TimerId { deadline_ns, sequence: pending.next };
        pending.next += 1;
        pending.timers.insert(id, callback);
        let earliest = pending.timers.first_key_value().is_some_and(|(first, _)| *first == id);
        (id, earliest)
    }

    /// No effect when it has fired already.
    pub fn cancel(&self, id: TimerId) {
        let removed = self.0.lock().timers.remove(&id);
        // Dropping the callback may run code of its owner: not under the lock.
        drop(removed);
    }

    /// The earliest deadline.
    pub fn earliest(&self) -> Option<u64> {
        self.0.lock().timers.first_key_value().map(|(id, _)| id.deadline_ns)
    }

    /// Calls back everything that is due at `now_ns`, earliest first. Timers added meanwhile wait for the next call
    /// unless they are due as well.
    pub fn expire(&self, now_ns: u64) {
        loop {
            let due = {
                let mut pending = self.0.lock();
                match pending.timers.first_entry() {
                    Some(first) if first.key().deadline_ns <= now_ns => first.remove(),
                    _ => return,
                }
            };
            due.wake(abi::Events::NONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    struct Note<'a>(u64, &'a SpinLock<Vec<u64>>);
    impl Waiter for Note<'static> {
        fn wake(&self, _: abi::Events) {
            self.1.lock().push(self.0);
        }
    }

    #[test]
    fn timers_expire_in_order_and_cancelled_ones_never() {
        static FIRED: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());
        let timers = Timers::new();
        let add = |at, name| timers.add(at, Arc::new(Note(name, &FIRED)));
        assert!(add(30, 3).1);
        assert!(add(10, 1).1);
        assert!(!add(10, 2).1);
        let (cancelled, _) = add(20, 9);
        timers.cancel(cancelled);
        assert_eq!(timers.earliest(), Some(10));
        timers.expire(9);
        assert!(FIRED.lock().is_empty());
        timers.expire(30);
        assert_eq!(*FIRED.lock(), [1, 2, 3]);
        assert_eq!(timers.earliest(), None);
    }
}
