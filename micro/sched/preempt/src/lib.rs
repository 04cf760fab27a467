// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Preemptive scheduling: highest priority first, round robin with time slices among equals.
//!
//! A thread that has used up its slice while an equal one waits goes to the end of the queue. One that becomes
//! runnable takes the processor from one of lower priority at once. Threads without priority (SCHED_OTHER) get slices
//! as long as their nice values say. A thread alone on the processor is never interrupted.
#![no_std]
extern crate alloc;

use alloc::collections::VecDeque;
use api_lock::SpinLock;
use api_sched::policy::{Place, Rank, Rivals, ThreadIndex};

/// Linux' default slice is 3 ms scaled by the number of processors; software emulation makes a switch dear, so 4 ms.
const SLICE_NS: u64 = 4_000_000;
/// Linux' slice of SCHED_RR.
const TURN_NS: u64 = 100_000_000;
/// A nice value's slice is no shorter, for a switch has its price, and no longer, for others wait (with Linux'
/// weights it would be between 60 us and 350 ms).
const SHORTEST_NS: u64 = SLICE_NS / 16;
const LONGEST_NS: u64 = SLICE_NS * 10;

/// Who waits, higher priorities first.
struct Queue(VecDeque<(ThreadIndex, u8)>);

impl Queue {
    fn enter(&mut self, thread: ThreadIndex, priority: u8, place: Place) {
        // Mostly all have the same one.
        if place == Place::Back && self.0.back().is_none_or(|(_, last)| *last >= priority) {
            return self.0.push_back((thread, priority));
        }
        let goes_before = |other: u8| match place {
            Place::Front => priority >= other,
            Place::Back => priority > other,
        };
        let index = self.0.iter().position(|(_, other)| goes_before(*other)).unwrap_or(self.0.len());
        self.0.insert(index, (thread, priority));
    }

    fn change(&mut self, thread: ThreadIndex, priority: u8) {
        if let Some(index) = self.0.iter().position(|(other, _)| *other == thread) {
            self.0.remove(index);
            self.enter(thread, priority, Place::Back);
        }
    }

    fn rivals(&self, running: Rank) -> Rivals {
        match self.0.front() {
            Some((_, first)) if *first > running.priority => Rivals::Better,
            Some((_, first)) if *first == running.priority => Rivals::Equal,
            _ => Rivals::None,
        }
    }
}

static QUEUE: SpinLock<Queue> = SpinLock::new(Queue(VecDeque::new()));

/// A step of the nice value is a quarter more or less (sched(7): "approximately 1.25").
fn slice(rank: Rank) -> Option<u64> {
    if rank.priority != 0 {
        return rank.takes_turns.then_some(TURN_NS);
    }
    let mut slice = SLICE_NS;
    for _ in 0..rank.nice.unsigned_abs() {
        slice = if rank.nice < 0 { slice * 5 / 4 } else { slice * 4 / 5 };
    }
    Some(slice.clamp(SHORTEST_NS, LONGEST_NS))
}

#[unsafe(no_mangle)]
fn unilith_sched_enqueue(_cpu: u32, thread: ThreadIndex, rank: Rank, place: Place) {
    QUEUE.lock().enter(thread, rank.priority, place);
}

#[unsafe(no_mangle)]
fn unilith_sched_change(_cpu: u32, thread: ThreadIndex, rank: Rank) {
    QUEUE.lock().change(thread, rank.priority);
}

#[unsafe(no_mangle)]
fn unilith_sched_pick(_cpu: u32) -> Option<ThreadIndex> {
    QUEUE.lock().0.pop_front().map(|(thread, _)| thread)
}

#[unsafe(no_mangle)]
fn unilith_sched_slice(_cpu: u32, rank: Rank) -> Option<u64> {
    slice(rank)
}

#[unsafe(no_mangle)]
fn unilith_sched_waiting(_cpu: u32) -> bool {
    !QUEUE.lock().0.is_empty()
}

#[unsafe(no_mangle)]
fn unilith_sched_rivals(_cpu: u32, running: Rank) -> Rivals {
    QUEUE.lock().rivals(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(priority: u8) -> Rank {
        Rank { priority, ..Rank::default() }
    }

    #[test]
    fn higher_priorities_go_first_and_equals_in_the_order_they_came() {
        let mut queue = Queue(VecDeque::new());
        for (thread, priority) in [(1, 0), (2, 5), (3, 0), (4, 9), (5, 5)] {
            queue.enter(thread, priority, Place::Back);
        }
        // Preempted: first of its priority again.
        queue.enter(6, 5, Place::Front);
        let order: VecDeque<_> = queue.0.iter().map(|(thread, _)| *thread).collect();
        assert_eq!(order, [4, 6, 2, 5, 1, 3]);
        assert_eq!(queue.rivals(of(8)), Rivals::Better);
        assert_eq!(queue.rivals(of(9)), Rivals::Equal);
        assert_eq!(queue.rivals(of(10)), Rivals::None);
        queue.change(1, 10);
        queue.change(77, 10);
        assert_eq!(queue.0.front(), Some(&(1, 10)));
    }

    #[test]
    fn slices_follow_nice_values_and_policies() {
        let nice = |nice| slice(Rank { nice, ..Rank::default() }).unwrap();
        assert_eq!(nice(0), SLICE_NS);
        assert_eq!((nice(1), nice(-1)), (3_200_000, 5_000_000));
        assert_eq!((nice(19), nice(-20)), (SHORTEST_NS, LONGEST_NS));
        assert_eq!(slice(of(1)), None);
        assert_eq!(slice(Rank { takes_turns: true, ..of(1) }), Some(TURN_NS));
    }
}
