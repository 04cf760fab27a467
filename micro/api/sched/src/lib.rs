// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting, and the policy a scheduler implements.
//!
//! # Contract
//!
//! - **Nothing below the system-call layer blocks.** A file, socket or pipe that cannot go on answers `EAGAIN`, and
//!   wakes its [`WaitQueue`] when that changes. The system-call layer parks the thread on that queue and tries
//!   again; epoll and poll register on the same queue. (Disk-like waits, a 9p request for one, are the exception:
//!   they use [`park`].)
//! - Wake first registers, then checks: `add` before testing the condition, so that no wake-up is lost.
//! - [`WaitQueue::wake`] may be called from any thread context, never from an interrupt handler. Interrupt handlers
//!   call [`raise`], and the deferred work runs soon after in thread context.
//! - The run queue of a policy micro-library (`sched-coop`, `sched-preempt`) is reached through the `extern`
//!   functions in [`policy`]; exactly one policy is linked.
#![no_std]
extern crate alloc;

mod sleep_lock;

pub use sleep_lock::{SleepGuard, SleepLock};

use abi::{Events, Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Somebody who waits: a thread, an epoll registration.
pub trait Waiter: Send + Sync {
    /// Called with the events that became possible. Must not block; may take its own locks.
    fn wake(&self, events: Events);

    /// As [`Waiter::wake`], of a waiter that is woken alone: true when the wake-up is used, that is when somebody slept
    /// for it. When it is not, the next exclusive waiter gets it too.
    fn wake_exclusive(&self, events: Events) -> bool {
        self.wake(events);
        true
    }
}

/// Names a registration so that it can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitKey(u64);

struct Entry {
    key: u64,
    interest: Events,
    /// Woken alone, first come first served (`accept` of several threads, EPOLLEXCLUSIVE).
    exclusive: bool,
    /// `None` of one that was removed.
    waiter: Option<Arc<dyn Waiter>>,
}

struct Entries {
    next_key: u64,
    /// In the order of their keys. Less than half of them are removed ones, so that thousands of waiters come and go in a time
    /// each that hardly depends on how many they are.
    list: Vec<Entry>,
    /// How many are not removed.
    live: usize,
}

impl Entries {
    fn add(&mut self, waiter: Arc<dyn Waiter>, interest: Events, exclusive: bool) -> WaitKey {
        let key = self.next_key;
        self.next_key += 1;
        let interest = interest | Events::ERR | Events::HUP;
        self.list.push(Entry { key, interest, exclusive, waiter: Some(waiter) });
        self.live += 1;
        WaitKey(key)
    }
}

/// The waiters of one object, in the order they came.
pub struct WaitQueue {
    entries: SpinLock<Entries>,
}

impl Default for WaitQueue {
    fn default() -> Self {
        WaitQueue::new()
    }
}

impl WaitQueue {
    pub const fn new() -> Self {
        WaitQueue { entries: SpinLock::new(Entries { next_key: 0, list: Vec::new(), live: 0 }) }
    }

    /// Registers for `interest` (ERR and HUP are always included). For threads, each of which waits once: whoever may
    /// register as often as a program likes uses [`WaitQueue::try_add`].
    pub fn add(&self, waiter: Arc<dyn Waiter>, interest: Events, exclusive: bool) -> WaitKey {
        self.entries.lock().add(waiter, interest, exclusive)
    }

    /// As [`WaitQueue::add`]; `ENOMEM` when there is no memory for another registration.
    pub fn try_add(&self, waiter: Arc<dyn Waiter>, interest: Events, exclusive: bool) -> Result<WaitKey> {
        let mut entries = self.entries.lock();
        entries.list.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        Ok(entries.add(waiter, interest, exclusive))
    }

    pub fn remove(&self, key: WaitKey) {
        let mut entries = self.entries.lock();
        let Ok(index) = entries.list.binary_search_by_key(&key.0, |e| e.key) else { return };
        let waiter = entries.list[index].waiter.take();
        entries.live -= usize::from(waiter.is_some());
        if entries.live * 2 <= entries.list.len() {
            // The order stays: exclusive waiters are served first come first served.
            entries.list.retain(|e| e.waiter.is_some());
        }
        drop(entries);
        // Its end may take locks of its own.
        drop(waiter);
    }

    /// Wakes everybody interested in one of `events`, but of the exclusive waiters only as many as it takes until one
    /// has a use for it. True when anybody had.
    pub fn wake(&self, events: Events) -> bool {
        self.wake_until(events, true)
    }

    /// Wakes everybody interested, exclusive or not.
    pub fn wake_all(&self, events: Events) -> bool {
        self.wake_until(events, false)
    }

    fn wake_until(&self, events: Events, one_exclusive: bool) -> bool {
        // The waiters run without the lock, for they may register or remove themselves: take a few at a time, in
        // order, without allocating. Who registers meanwhile has a later key than `end` and is left out.
        let mut next = 0;
        let mut end = None;
        let mut used = false;
        let mut used_alone = false;
        loop {
            let mut woken: [Option<(Arc<dyn Waiter>, bool)>; 8] = [const { None }; 8];
            let mut count = 0;
            {
                let entries = self.entries.lock();
                if entries.live == 0 {
                    return used;
                }
                let from = match next {
                    0 => 0,
                    next => entries.list.partition_point(|e| e.key < next),
                };
                let end = *end.get_or_insert(entries.next_key);
                let rest = entries.list[from..].iter().take_while(|e| e.key < end);
                for entry in rest.filter(|e| e.interest.intersects(events)) {
                    let Some(waiter) = &entry.waiter else { continue };
                    if count == woken.len() {
                        break;
                    }
                    next = entry.key + 1;
                    if entry.exclusive && used_alone {
                        continue;
                    }
                    woken[count] = Some((waiter.clone(), entry.exclusive));
                    count += 1;
                }
            }
            for (waiter, exclusive) in woken.iter_mut().filter_map(Option::take) {
                if exclusive && one_exclusive {
                    used_alone = used_alone || waiter.wake_exclusive(events);
                } else {
                    used |= waiter.wake_exclusive(events);
                }
            }
            if count < woken.len() {
                return used || used_alone;
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.lock().live == 0
    }
}

/// What a policy micro-library provides. Threads are named by their index in the table of the scheduler core.
///
/// All functions run with kernel preemption impossible and on one processor at a time; none may block, and none but
/// `unilith_sched_reserve` may allocate: threads become runnable when there is no memory, too. Where a thread may run is a set of processors, a bit each: `cpu` is one of them.
pub mod policy {
    use abi::setting::Setting;

    /// A turn of SCHED_RR, in milliseconds (kernel.sched_rr_timeslice_ms).
    pub static ROUND_ROBIN_MS: Setting = Setting::new(100, 1, i32::MAX as u64);
    /// Of so many microseconds threads with a priority have so many before others (kernel.sched_rt_period_us and sched_rt_runtime_us);
    /// `MAX`: all.
    pub static SHARE_PERIOD_US: Setting = Setting::new(1_000_000, 1, i32::MAX as u64);
    pub static SHARE_RUNTIME_US: Setting = Setting::new(950_000, 0, u64::MAX);

    /// Index of a thread in the scheduler core's table.
    pub type ThreadIndex = u32;

    /// What a thread is to be preferred to, as sched(7) has it. A policy may look at it or not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Rank {
        /// 0: shares the processor with its like; from 1 on it goes before every thread of a lower one.
        pub priority: u8,
        /// Of a thread with a priority: takes turns with its like (SCHED_RR), or runs until it waits (SCHED_FIFO).
        pub takes_turns: bool,
        /// Of a thread without priority, -20 (most of the processor) to 19.
        pub nice: i8,
    }

    /// Where a thread enters among those of its priority.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Place {
        /// It was taken off the processor before its turn was over.
        Front,
        Back,
    }

    /// Who waits for the processor, seen from the thread that runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Rivals {
        /// Nobody it has to make room for.
        None,
        /// It takes turns with somebody.
        Equal,
        /// Somebody goes before it.
        Better,
    }

    unsafe extern "Rust" {
        /// Makes room for so many threads to wait at once; false without memory. Asked before there are so many.
        pub safe fn unilith_sched_reserve(threads: usize) -> bool;
        /// The thread became runnable on these processors.
        pub safe fn unilith_sched_enqueue(cpus: u64, thread: ThreadIndex, rank: Rank, place: Place);
        /// The rank of a thread that may wait in the queue has changed, or where it may run.
        pub safe fn unilith_sched_change(cpus: u64, thread: ThreadIndex, rank: Rank);
        /// The next thread to run on the processor, taken off the queue.
        pub safe fn unilith_sched_pick(cpu: u32) -> Option<ThreadIndex>;
        /// As the one before, but only a thread without priority.
        pub safe fn unilith_sched_pick_other(cpu: u32) -> Option<ThreadIndex>;
        /// A thread without priority waits for the processor.
        pub safe fn unilith_sched_other_waits(cpu: u32) -> bool;
        /// How long a thread may run before it is preempted, in nanoseconds; `None`: until it blocks.
        pub safe fn unilith_sched_slice(rank: Rank) -> Option<u64>;
        /// True when another thread waits for the processor.
        pub safe fn unilith_sched_waiting(cpu: u32) -> bool;
        /// Who waits for the processor while a thread of this rank runs there.
        pub safe fn unilith_sched_rivals(cpu: u32, running: Rank) -> Rivals;
    }
}

unsafe extern "Rust" {
    safe fn unilith_sched_park(deadline_ns: u64);
    safe fn unilith_sched_current() -> Arc<dyn Waiter>;
    safe fn unilith_sched_raise(work: usize);
    safe fn unilith_sched_defer(work: usize);
    safe fn unilith_sched_run_deferred();
    #[cfg(not(panic = "unwind"))]
    safe fn unilith_sched_work();
    safe fn unilith_sched_add_deferred_work(run: fn()) -> usize;
    safe fn unilith_sched_add_timer(deadline_ns: u64, callback: Arc<dyn Waiter>) -> TimerId;
    safe fn unilith_sched_cancel_timer(id: TimerId);
}

/// Sleeps until woken or until `deadline_ns` on the monotonic clock (`u64::MAX`: no deadline). May return early:
/// callers loop over their condition.
pub fn park(deadline_ns: u64) {
    unilith_sched_park(deadline_ns);
}

/// Lets others run whose turn it is: for the middle of a call that takes long, since the kernel is never preempted. As with [`park`],
/// nothing is locked. On the host, where tests run, it does nothing.
pub fn cond_resched() {
    #[cfg(not(panic = "unwind"))]
    unilith_sched_work();
}

/// The running thread as a [`Waiter`].
pub fn current() -> Arc<dyn Waiter> {
    unilith_sched_current()
}

/// A function run in thread context after [`raise`] (from an interrupt handler), and before the processor idles.
pub fn add_deferred_work(run: fn()) -> DeferredWork {
    DeferredWork(unilith_sched_add_deferred_work(run))
}

/// Names deferred work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredWork(usize);

/// A place for deferred work, for interrupt handlers that are given no data. Empty at first.
pub struct DeferredWorkSlot(AtomicUsize);

impl Default for DeferredWorkSlot {
    fn default() -> Self {
        DeferredWorkSlot::new()
    }
}

impl DeferredWorkSlot {
    const EMPTY: usize = usize::MAX;

    pub const fn new() -> DeferredWorkSlot {
        DeferredWorkSlot(AtomicUsize::new(DeferredWorkSlot::EMPTY))
    }

    pub fn set(&self, work: DeferredWork) {
        self.0.store(work.0, Ordering::Release);
    }

    /// Raises the deferred work, if there is one. Safe in interrupt handlers.
    pub fn raise(&self) {
        let index = self.0.load(Ordering::Acquire);
        if index != DeferredWorkSlot::EMPTY {
            raise(DeferredWork(index));
        }
    }
}

/// Asks for the deferred work to run soon. Safe in interrupt handlers.
pub fn raise(work: DeferredWork) {
    unilith_sched_raise(work.0);
}

/// Asks for the deferred work to run when a thread waits next, or asks what it could wait for (epoll, poll): work that is
/// cheaper done in one go, such as a doorbell. It may never come to that: back it with a timer.
pub fn defer(work: DeferredWork) {
    unilith_sched_defer(work.0);
}

/// Runs what was put off by [`defer`]: called by whoever is about to look whether there is something to wait for.
pub fn run_deferred() {
    unilith_sched_run_deferred();
}

/// One pending timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId {
    /// On the monotonic clock.
    pub deadline_ns: u64,
    /// Tells timers of one deadline apart.
    pub sequence: u64,
}

/// Calls `callback.wake(Events::NONE)` in thread context at or after `deadline_ns` on the monotonic clock, once.
pub fn add_timer(deadline_ns: u64, callback: Arc<dyn Waiter>) -> TimerId {
    unilith_sched_add_timer(deadline_ns, callback)
}

/// No effect when it has fired already.
pub fn cancel_timer(id: TimerId) {
    unilith_sched_cancel_timer(id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Count(AtomicU32);
    impl Waiter for Count {
        fn wake(&self, _: Events) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_interested_waiters_are_woken_and_one_exclusive_one() {
        let queue = WaitQueue::new();
        let waiters: Vec<Arc<Count>> = (0..4).map(|_| Arc::default()).collect();
        queue.add(waiters[0].clone(), Events::IN, false);
        queue.add(waiters[1].clone(), Events::OUT, false);
        let third = queue.add(waiters[2].clone(), Events::IN, true);
        queue.add(waiters[3].clone(), Events::IN, true);
        queue.wake(Events::IN);
        let counts = || waiters.iter().map(|w| w.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(counts(), [1, 0, 1, 0]);
        queue.remove(third);
        queue.wake(Events::IN);
        assert_eq!(counts(), [2, 0, 1, 1]);
        queue.wake_all(Events::HUP);
        assert_eq!(counts(), [3, 1, 1, 2]);
    }

    /// A waiter that has a use for so many wake-ups.
    struct Sleepy(AtomicU32, AtomicU32);
    impl Waiter for Sleepy {
        fn wake(&self, events: Events) {
            self.wake_exclusive(events);
        }
        fn wake_exclusive(&self, _: Events) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        }
    }

    #[test]
    fn an_exclusive_wake_up_that_nobody_used_goes_to_the_next() {
        let queue = WaitQueue::new();
        let waiters: Vec<Arc<Sleepy>> =
            (0..20).map(|i| Arc::new(Sleepy(AtomicU32::new(0), AtomicU32::new(i % 2)))).collect();
        for waiter in &waiters {
            queue.add(waiter.clone(), Events::IN, true);
        }
        let told = || waiters.iter().map(|w| w.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert!(queue.wake(Events::IN));
        assert_eq!(told()[..4], [1, 1, 0, 0]);
        assert!(queue.wake(Events::IN));
        assert_eq!(told()[..5], [2, 2, 1, 1, 0]);
        for _ in 0..8 {
            assert!(queue.wake(Events::IN));
        }
        assert!(!queue.wake(Events::IN), "nobody sleeps any more");
        assert_eq!(told()[19], 2, "everybody was asked");
    }
}
