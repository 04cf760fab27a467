// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cpu.max` of a container of a pod (cgroup-v2.rst, "CPU Interface Files"): the processor time that its processes may have together
//! in each period. When it is used up, a thread waits for the next period on its way back to the program, as on Linux since 6.18:
//! never inside the kernel, where it may hold what others need.
//!
//! Nothing is counted on the way in or out. A timer adds up the clocks of the group's threads, and is set for the moment at which the
//! rest can be used up at the earliest. A thread that wakes up within a call may so run a little too long; what was used too much is
//! taken from the periods that follow, so the average holds.

use crate::containers::{self, Container};
use crate::control_group::NO_LIMIT;
use crate::process::Process;
use crate::wait;
use abi::Events;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_sched::{TimerId, WaitQueue, Waiter};
use core::sync::atomic::{AtomicBool, Ordering};

const MICROSECOND: u64 = 1000;
/// What Linux takes as `cpu.max`, in microseconds: a period is within these, and a quota no less.
const PERIODS_US: core::ops::RangeInclusive<u64> = 1000..=1_000_000;
/// The clocks are looked at no oftener than this.
const LEAST_STEP_NS: u64 = 250_000;
/// While the group is throttled, threads that woke up meanwhile are looked for as often (Linux' tick).
const STRAYS_NS: u64 = 4_000_000;

/// What `cpu.stat` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which the group ran, or would have.
    pub periods: u64,
    /// Those in which its quota was used up.
    pub throttled: u64,
    pub throttled_ns: u64,
}

/// The processor time of a group against its quota. All times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Account {
    quota: u64,
    period: u64,
    /// When this period ends, on the monotonic clock.
    ends: u64,
    /// What the group had used when it began.
    began_at: u64,
    /// What the group will have used when its quota is.
    most: u64,
    throttled_since: Option<u64>,
}

impl Account {
    /// `None` for a limit that so many processors cannot reach.
    fn new((quota, period): (u64, u64), used: u64, now: u64, cpus: u64) -> Option<Account> {
        if quota == NO_LIMIT {
            return None;
        }
        let period = period.clamp(*PERIODS_US.start(), *PERIODS_US.end()) * MICROSECOND;
        let quota = quota.max(*PERIODS_US.start()).saturating_mul(MICROSECOND);
        let is_reached = quota < period.saturating_mul(cpus);
        let most = used.saturating_add(quota);
        let ends = now.saturating_add(period);
        is_reached.then_some(Account { quota, period, ends, began_at: used, most, throttled_since: None })
    }

    /// The group has used so much by now. Answers when it is to be looked again.
    fn look(&mut self, used: u64, now: u64, cpus: u64, counts: &mut Throttling) -> u64 {
        let is_new = now >= self.ends;
        if is_new {
            let passed = (now - self.ends) / self.period + 1;
            self.ends = self.ends.saturating_add(self.period.saturating_mul(passed));
            // A group that waits for its quota waits through all of them.
            let waited = if self.is_throttled() { passed } else { u64::from(used > self.began_at) };
            counts.periods += waited;
            counts.throttled += waited.saturating_sub(1);
            self.began_at = used;
            // What was used too much is still to be made up for; what was not used is lost.
            let granted = self.most.min(used).saturating_add(self.quota.saturating_mul(passed));
            self.most = granted.min(used.saturating_add(self.quota));
        }
        if used < self.most {
            if let Some(since) = self.throttled_since.take() {
                counts.throttled_ns += now.saturating_sub(since);
            }
            let earliest = ((self.most - used) / cpus.max(1)).max(LEAST_STEP_NS);
            return now.saturating_add(earliest).min(self.ends);
        }
        counts.throttled += u64::from(is_new || self.throttled_since.is_none());
        self.throttled_since.get_or_insert(now);
        now.saturating_add(STRAYS_NS).min(self.ends)
    }

    fn is_throttled(&self) -> bool {
        self.throttled_since.is_some()
    }
}

/// The limit of one group.
pub struct Bandwidth {
    account: SpinLock<Option<Account>>,
    counts: SpinLock<Throttling>,
    timer: SpinLock<Option<TimerId>>,
    is_throttled: AtomicBool,
    /// Threads that wait for the next period.
    queue: WaitQueue,
}

impl Default for Bandwidth {
    fn default() -> Bandwidth {
        Bandwidth::new()
    }
}

impl Bandwidth {
    pub const fn new() -> Bandwidth {
        Bandwidth {
            account: SpinLock::new(None),
            counts: SpinLock::new(Throttling { periods: 0, throttled: 0, throttled_ns: 0 }),
            timer: SpinLock::new(None),
            is_throttled: AtomicBool::new(false),
            queue: WaitQueue::new(),
        }
    }

    pub fn counts(&self) -> Throttling {
        *self.counts.lock()
    }

    fn is_throttled(&self) -> bool {
        self.is_throttled.load(Ordering::Relaxed)
    }

    /// The next look is at that time; never without one.
    fn set_timer(&self, next: Option<TimerId>) {
        let before = core::mem::replace(&mut *self.timer.lock(), next);
        // One that has fired is passed over.
        if let Some(before) = before {
            api_sched::cancel_timer(before);
        }
    }
}

impl Waiter for Container {
    /// Its timer is due. A container that is known no more needs none.
    fn wake(&self, _: Events) {
        if let Some(container) = containers::by_number(self.number) {
            look(&container);
        }
    }
}

/// The container has the limit that its group says from now on.
pub fn limit_changes(container: &Arc<Container>) {
    let group = &container.group;
    let (used, now) = (group.usage().total_ns(), api_plat::now_ns());
    *group.bandwidth.account.lock() =
        Account::new(group.limits().cpu, used, now, u64::from(api_plat::cpus()));
    look(container);
}

fn look(container: &Arc<Container>) {
    let bandwidth = &container.group.bandwidth;
    let (used, now) = (container.group.usage().total_ns(), api_plat::now_ns());
    let next = bandwidth.account.lock().as_mut().map(|account| {
        let next = account.look(used, now, u64::from(api_plat::cpus()), &mut bandwidth.counts.lock());
        (next, account.is_throttled())
    });
    let is_throttled = next.is_some_and(|(_, is_throttled)| is_throttled);
    let was_throttled = bandwidth.is_throttled.swap(is_throttled, Ordering::Relaxed);
    if is_throttled {
        for process in container.processes() {
            let threads = process.tasks().filter_map(|task| task.thread());
            threads.filter(|thread| thread.is_runnable()).for_each(|thread| thread.interrupt());
        }
    } else if was_throttled {
        bandwidth.queue.wake_all(Events::ALL);
    }
    bandwidth.set_timer(next.map(|(next, _)| api_sched::add_timer(next, container.clone())));
}

/// Called by a thread of the process on its way back to the program. One that is to end does not wait.
pub fn wait_while_throttled(process: &Process) {
    let Some(container) = &process.container else { return };
    let bandwidth = &container.group.bandwidth;
    if bandwidth.is_throttled() {
        wait::for_good(&bandwidth.queue, || !bandwidth.is_throttled() || process.is_ending());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn account() -> Account {
        Account::new((20_000, 100_000), 7 * MS, 1000 * MS, 1).expect("a limit")
    }

    #[test]
    fn a_group_that_has_used_its_quota_is_throttled_until_the_next_period() {
        let (mut account, mut counts) = (account(), Throttling::default());
        assert_eq!(
            account.look(7 * MS, 1000 * MS, 1, &mut counts),
            1020 * MS,
            "no earlier can it be used up"
        );
        assert_eq!(account.look(17 * MS, 1020 * MS, 1, &mut counts), 1030 * MS);
        assert!(!account.is_throttled());
        assert_eq!(account.look(27 * MS, 1035 * MS, 1, &mut counts), 1039 * MS);
        assert!(account.is_throttled());
        assert_eq!(account.look(27 * MS, 1098 * MS, 1, &mut counts), 1100 * MS);
        assert_eq!(account.look(27 * MS, 1100 * MS, 1, &mut counts), 1120 * MS);
        assert!(!account.is_throttled());
        assert_eq!(counts, Throttling { periods: 1, throttled: 1, throttled_ns: 65 * MS });
    }

    #[test]
    fn what_was_used_too_much_is_made_up_for_and_what_was_not_used_is_lost() {
        let (mut account, mut counts) = (account(), Throttling::default());
        // 50 ms instead of 20: 30 are missing, which is the whole next period and half of the one after.
        account.look(57 * MS, 1050 * MS, 1, &mut counts);
        account.look(57 * MS, 1100 * MS, 1, &mut counts);
        assert!(account.is_throttled());
        account.look(57 * MS, 1200 * MS, 1, &mut counts);
        assert_eq!((account.is_throttled(), account.most - 57 * MS), (false, 10 * MS));
        assert_eq!((counts.periods, counts.throttled), (2, 2));
        // Ten periods of nothing are worth one.
        account.look(57 * MS, 2200 * MS, 1, &mut counts);
        assert_eq!(account.most - 57 * MS, 20 * MS);
        assert_eq!((counts.periods, counts.throttled), (2, 2));
    }

    #[test]
    fn periods_in_which_a_group_only_waits_are_counted_whoever_looks_late() {
        let (mut account, mut counts) = (account(), Throttling::default());
        // 90 ms instead of 20, and nobody looks for three periods.
        account.look(97 * MS, 1090 * MS, 1, &mut counts);
        account.look(97 * MS, 1310 * MS, 1, &mut counts);
        assert!(account.is_throttled());
        assert_eq!((counts.periods, counts.throttled), (3, 4));
        account.look(97 * MS, 1500 * MS, 1, &mut counts);
        assert!(!account.is_throttled());
        assert_eq!((counts.periods, counts.throttled, counts.throttled_ns), (5, 5, 410 * MS));
    }

    #[test]
    fn limits_that_cannot_be_reached_need_no_timer_and_odd_ones_are_those_that_linux_has() {
        let new =
            |limit, cpus| Account::new(limit, 0, 0, cpus).map(|account| (account.quota, account.period));
        assert_eq!(new((NO_LIMIT, 100_000), 1), None);
        assert_eq!(new((100_000, 100_000), 1), None);
        assert_eq!(new((100_000, 100_000), 2), Some((100 * MS, 100 * MS)));
        assert_eq!(new((0, 0), 2), Some((MS, MS)));
        assert_eq!(new((5, u64::MAX), 1), Some((MS, 1000 * MS)));
    }
}
