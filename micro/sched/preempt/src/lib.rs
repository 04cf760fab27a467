// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Preemptive scheduling: highest priority first, round robin with time slices among equals.
//!
//! A thread that has used up its slice while an equal one waits goes to the end of the queue. One that becomes
//! runnable takes the processor from one of lower priority at once. Threads without priority (SCHED_OTHER) get slices
//! as long as their nice values say. A thread alone on the processor is never interrupted.
#![no_std]
extern crate alloc;

use alloc::collections::VecDeque;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::policy::{Place, ROUND_ROBIN_MS, Rank, Rivals, ThreadIndex};

/// Linux' default slice is 3 ms scaled by the number of processors; software emulation makes a switch dear, so 4 ms.
const SLICE_NS: u64 = 4_000_000;
/// A nice value's slice is no shorter, for a switch has its price, and no longer, for others wait (with Linux'
/// weights it would be between 60 us and 350 ms).
const SHORTEST_NS: u64 = SLICE_NS / 16;
const LONGEST_NS: u64 = SLICE_NS * 10;

/// One that waits.
struct Waits {
    thread: ThreadIndex,
    priority: u8,
    /// Where it may run.
    cpus: u64,
}

/// Who waits, higher priorities first.
struct Queue(VecDeque<Waits>);

impl Queue {
    /// Entering takes no memory from then on, as long as no more threads wait.
    fn reserve(&mut self, threads: usize) -> bool {
        let more = threads.saturating_sub(self.0.len());
        self.0.reserve_fallibly(more).is_ok()
    }

    fn enter(&mut self, new: Waits, place: Place) {
        // Mostly all have the same one.
        if place == Place::Back && self.0.back().is_none_or(|last| last.priority >= new.priority) {
            return self.0.push_back(new);
        }
        let goes_before = |other: u8| match place {
            Place::Front => new.priority >= other,
            Place::Back => new.priority > other,
        };
        let index = self.0.iter().position(|other| goes_before(other.priority)).unwrap_or(self.0.len());
        self.0.insert(index, new);
    }

    fn change(&mut self, new: Waits) {
        if let Some(index) = self.0.iter().position(|other| other.thread == new.thread) {
            self.0.remove(index);
            self.enter(new, Place::Back);
        }
    }

    /// The first that may run on the processor.
    fn first(&self, cpu: u32) -> Option<usize> {
        self.0.iter().position(|waits| waits.cpus >> cpu & 1 != 0)
    }

    fn pick(&mut self, cpu: u32) -> Option<ThreadIndex> {
        let index = self.first(cpu)?;
        self.0.remove(index).map(|waits| waits.thread)
    }

    /// The first without priority that may run on the processor. They are the last of all.
    fn first_other(&self, cpu: u32) -> Option<usize> {
        let begin = self.0.partition_point(|waits| waits.priority != 0);
        let index = self.0.range(begin..).position(|waits| waits.cpus >> cpu & 1 != 0)?;
        Some(begin + index)
    }

    fn pick_other(&mut self, cpu: u32) -> Option<ThreadIndex> {
        let index = self.first_other(cpu)?;
        self.0.remove(index).map(|waits| waits.thread)
    }

    fn rivals(&self, cpu: u32, running: Rank) -> Rivals {
        match self.first(cpu).map(|index| self.0[index].priority) {
            Some(first) if first > running.priority => Rivals::Better,
            Some(first) if first == running.priority => Rivals::Equal,
            _ => Rivals::None,
        }
    }
}

static QUEUE: SpinLock<Queue> = SpinLock::new(Queue(VecDeque::new()));

/// A step of the nice value is a quarter more or less (sched(7): "approximately 1.25").
fn slice(rank: Rank) -> Option<u64> {
    if rank.priority != 0 {
        return rank.takes_turns.then(|| ROUND_ROBIN_MS.get() * 1_000_000);
    }
    let mut slice = SLICE_NS;
    for _ in 0..rank.nice.unsigned_abs() {
        slice = if rank.nice < 0 { slice * 5 / 4 } else { slice * 4 / 5 };
    }
    Some(slice.clamp(SHORTEST_NS, LONGEST_NS))
}

#[unsafe(no_mangle)]
fn unilith_sched_reserve(threads: usize) -> bool {
    QUEUE.lock().reserve(threads)
}

#[unsafe(no_mangle)]
fn unilith_sched_enqueue(cpus: u64, thread: ThreadIndex, rank: Rank, place: Place) {
    QUEUE.lock().enter(Waits { thread, priority: rank.priority, cpus }, place);
}

#[unsafe(no_mangle)]
fn unilith_sched_change(cpus: u64, thread: ThreadIndex, rank: Rank) {
    QUEUE.lock().change(Waits { thread, priority: rank.priority, cpus });
}

#[unsafe(no_mangle)]
fn unilith_sched_pick(cpu: u32) -> Option<ThreadIndex> {
    QUEUE.lock().pick(cpu)
}

#[unsafe(no_mangle)]
fn unilith_sched_pick_other(cpu: u32) -> Option<ThreadIndex> {
    QUEUE.lock().pick_other(cpu)
}

#[unsafe(no_mangle)]
fn unilith_sched_other_waits(cpu: u32) -> bool {
    QUEUE.lock().first_other(cpu).is_some()
}

#[unsafe(no_mangle)]
fn unilith_sched_slice(rank: Rank) -> Option<u64> {
    slice(rank)
}

#[unsafe(no_mangle)]
fn unilith_sched_waiting(cpu: u32) -> bool {
    QUEUE.lock().first(cpu).is_some()
}

#[unsafe(no_mangle)]
fn unilith_sched_rivals(cpu: u32, running: Rank) -> Rivals {
    QUEUE.lock().rivals(cpu, running)
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
            queue.enter(Waits { thread, priority, cpus: 1 }, Place::Back);
        }
        // Preempted: first of its priority again.
        queue.enter(Waits { thread: 6, priority: 5, cpus: 1 }, Place::Front);
        let order: VecDeque<_> = queue.0.iter().map(|waits| waits.thread).collect();
        assert_eq!(order, [4, 6, 2, 5, 1, 3]);
        assert_eq!(queue.rivals(0, of(8)), Rivals::Better);
        assert_eq!(queue.rivals(0, of(9)), Rivals::Equal);
        assert_eq!(queue.rivals(0, of(10)), Rivals::None);
        assert_eq!((queue.pick_other(0), queue.pick_other(1)), (Some(1), None));
        queue.enter(Waits { thread: 1, priority: 0, cpus: 1 }, Place::Front);
        queue.change(Waits { thread: 1, priority: 10, cpus: 1 });
        queue.change(Waits { thread: 77, priority: 10, cpus: 1 });
        assert_eq!(queue.pick(0), Some(1));
    }

    #[test]
    fn threads_that_room_was_made_for_wait_without_more() {
        let mut queue = Queue(VecDeque::new());
        for threads in 1..300 {
            assert!(queue.reserve(threads));
            let before = queue.0.capacity();
            while queue.0.len() < threads {
                let thread = queue.0.len() as ThreadIndex;
                let place = if thread.is_multiple_of(3) { Place::Front } else { Place::Back };
                queue.enter(Waits { thread, priority: thread as u8 % 5, cpus: 1 }, place);
            }
            assert_eq!(queue.0.capacity(), before);
            if threads.is_multiple_of(7) {
                queue.pick(0);
            }
        }
    }

    #[test]
    fn a_thread_runs_only_where_it_may() {
        let mut queue = Queue(VecDeque::new());
        queue.enter(Waits { thread: 1, priority: 3, cpus: 0b10 }, Place::Back);
        queue.enter(Waits { thread: 2, priority: 0, cpus: 0b11 }, Place::Back);
        assert_eq!((queue.rivals(0, of(0)), queue.rivals(1, of(0))), (Rivals::Equal, Rivals::Better));
        assert_eq!((queue.pick(0), queue.pick(0)), (Some(2), None));
        queue.change(Waits { thread: 1, priority: 3, cpus: 0b01 });
        assert_eq!((queue.pick(1), queue.pick(0)), (None, Some(1)));
    }

    #[test]
    fn slices_follow_nice_values_and_policies() {
        let nice = |nice| slice(Rank { nice, ..Rank::default() }).unwrap();
        assert_eq!(nice(0), SLICE_NS);
        assert_eq!((nice(1), nice(-1)), (3_200_000, 5_000_000));
        assert_eq!((nice(19), nice(-20)), (SHORTEST_NS, LONGEST_NS));
        assert_eq!(slice(of(1)), None);
        assert_eq!(slice(Rank { takes_turns: true, ..of(1) }), Some(100_000_000));
    }
}
