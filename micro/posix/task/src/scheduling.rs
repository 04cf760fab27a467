// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a thread is scheduled: its policy, priority and nice value. The preemptive scheduler prefers threads as sched(7) has it; the
//! cooperative one lets whoever came first run, and what a program asks for is only remembered.

use crate::thread::Task;
use abi::{Result, errno::*};
use api_sched::policy::Rank;

pub const SCHED_OTHER: u32 = 0;
pub const SCHED_FIFO: u32 = 1;
pub const SCHED_RR: u32 = 2;
pub const SCHED_BATCH: u32 = 3;
pub const SCHED_IDLE: u32 = 5;
pub const SCHED_DEADLINE: u32 = 6;

/// What a thread asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    pub policy: u32,
    /// SCHED_RESET_ON_FORK.
    pub resets: bool,
    /// 1 to 99 for the real-time policies.
    pub priority: u32,
    /// -20 to 19.
    pub nice: i32,
    pub io_priority: u32,
    /// Of SCHED_DEADLINE: runtime, deadline and period in nanoseconds.
    pub deadline: [u64; 3],
}

impl Scheduling {
    pub fn policy(&self) -> u32 {
        self.policy
    }

    pub fn priority(&self) -> u32 {
        self.priority
    }

    pub fn nice(&self) -> i32 {
        self.nice
    }

    pub fn is_real_time(&self) -> bool {
        is_real_time(self.policy)
    }

    /// Field 18 of proc_pid_stat(5).
    pub fn kernel_priority(&self) -> i64 {
        match self.policy {
            SCHED_DEADLINE => -101,
            _ if self.is_real_time() => -1 - i64::from(self.priority),
            _ => 20 + i64::from(self.nice),
        }
    }

    /// What a new thread of this one starts with.
    pub fn inherited(&self) -> Scheduling {
        let mut child = Scheduling { resets: false, ..*self };
        if self.resets {
            if self.is_real_time() || self.policy == SCHED_DEADLINE {
                child = Scheduling { policy: SCHED_OTHER, priority: 0, nice: 0, deadline: [0; 3], ..child };
            }
            child.nice = child.nice.max(0);
        }
        child
    }

    /// SCHED_DEADLINE goes before all others, and is not held to its budget.
    pub fn rank(&self) -> Rank {
        let nice = if self.policy == SCHED_IDLE { 19 } else { self.nice as i8 };
        let priority = if self.policy == SCHED_DEADLINE { 100 } else { self.priority as u8 };
        Rank { priority, takes_turns: self.policy == SCHED_RR, nice }
    }

    /// Policy and priority fit each other.
    pub fn check(&self) -> Result<()> {
        let is_known = has_nice(self.policy) || self.is_real_time() || self.policy == SCHED_DEADLINE;
        if !is_known || self.priority > 99 || (self.policy == SCHED_DEADLINE && !self.has_deadline()) {
            return Err(EINVAL);
        }
        if self.is_real_time() == (self.priority != 0) { Ok(()) } else { Err(EINVAL) }
    }

    /// The times of SCHED_DEADLINE are possible ones (Linux' `__checkparam_dl`).
    fn has_deadline(&self) -> bool {
        const LEAST_RUNTIME: u64 = 1 << 10;
        const LEAST_PERIOD: u64 = 100_000;
        const MAX_PERIOD: u64 = (1 << 22) * 1000;
        let [runtime, deadline, period] = self.deadline;
        let length = if period == 0 { deadline } else { period };
        deadline != 0
            && runtime >= LEAST_RUNTIME
            && (deadline | period) >> 63 == 0
            && length >= deadline
            && deadline >= runtime
            && (LEAST_PERIOD..=MAX_PERIOD).contains(&length)
    }

    /// Needs CAP_SYS_NICE to become `new` (Linux' `user_check_sched_setscheduler`).
    pub fn is_raised_by(&self, new: &Scheduling, most_priority: u64, nice_limit: u64) -> bool {
        let nice_allowed = |nice: i32| nice_rank(nice) <= nice_limit;
        let fair = is_fair(new.policy) && new.nice < self.nice && !nice_allowed(new.nice);
        let other_policy = new.is_real_time() && new.policy != self.policy && most_priority == 0;
        let raised = new.priority > self.priority && u64::from(new.priority) > most_priority;
        let leaves_idle = self.policy == SCHED_IDLE && new.policy != SCHED_IDLE && !nice_allowed(self.nice);
        fair || other_policy
            || (new.is_real_time() && raised)
            || new.policy == SCHED_DEADLINE
            || leaves_idle
            || (self.resets && !new.resets)
    }
}

pub fn is_real_time(policy: u32) -> bool {
    matches!(policy, SCHED_FIFO | SCHED_RR)
}

/// It runs by its nice value, which a change of policy may change as well.
pub fn is_fair(policy: u32) -> bool {
    matches!(policy, SCHED_OTHER | SCHED_BATCH)
}

/// Its nice value is told.
pub fn has_nice(policy: u32) -> bool {
    is_fair(policy) || policy == SCHED_IDLE
}

/// RLIMIT_NICE counts the other way round (getrlimit(2)).
pub fn nice_rank(nice: i32) -> u64 {
    (20 - nice) as u64
}

impl Task {
    /// What it asks for from now on, and what the scheduler makes of it.
    pub fn set_scheduling(&self, new: Scheduling) {
        *self.scheduling.lock() = new;
        if let Some(thread) = self.thread() {
            thread.set_rank(new.rank());
        }
        if new.is_real_time() {
            crate::time::cpu_limit::limit_changes(&self.process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policy: u32, priority: u32) -> Scheduling {
        Scheduling { policy, priority, ..Scheduling::default() }
    }

    #[test]
    fn policies_have_their_priorities() {
        assert_eq!(of(SCHED_FIFO, 1).check(), Ok(()));
        assert_eq!(of(SCHED_RR, 0).check(), Err(EINVAL));
        assert_eq!(of(SCHED_RR, 100).check(), Err(EINVAL));
        assert_eq!(of(SCHED_OTHER, 1).check(), Err(EINVAL));
        assert_eq!(of(4, 0).check(), Err(EINVAL));
        assert_eq!(of(SCHED_DEADLINE, 0).check(), Err(EINVAL));
        let deadline = Scheduling { deadline: [1_000_000, 2_000_000, 0], ..of(SCHED_DEADLINE, 0) };
        assert_eq!(deadline.check(), Ok(()));
        assert_eq!(Scheduling { deadline: [3_000_000, 2_000_000, 0], ..deadline }.check(), Err(EINVAL));
    }

    #[test]
    fn who_may_change_what_follows_the_limits() {
        let other = of(SCHED_OTHER, 0);
        assert!(other.is_raised_by(&of(SCHED_FIFO, 1), 0, 0));
        assert!(!other.is_raised_by(&of(SCHED_FIFO, 10), 10, 0));
        assert!(other.is_raised_by(&of(SCHED_FIFO, 11), 10, 0));
        // Down is free, and so is out of the real-time policies.
        assert!(!of(SCHED_FIFO, 50).is_raised_by(&of(SCHED_FIFO, 20), 0, 0));
        assert!(!of(SCHED_FIFO, 50).is_raised_by(&other, 0, 0));
        assert!(of(SCHED_IDLE, 0).is_raised_by(&other, 0, 19));
        assert!(!of(SCHED_IDLE, 0).is_raised_by(&other, 0, 20));
        let nicer = Scheduling { nice: -1, ..other };
        assert!(other.is_raised_by(&nicer, 0, 20) && !other.is_raised_by(&nicer, 0, 21));
        assert!(Scheduling { resets: true, ..other }.is_raised_by(&other, 0, 0));
    }

    #[test]
    fn a_new_thread_inherits_or_is_reset() {
        let fifo = of(SCHED_FIFO, 7);
        assert_eq!(fifo.inherited(), fifo);
        assert_eq!(Scheduling { resets: true, ..fifo }.inherited(), of(SCHED_OTHER, 0));
        let nice = Scheduling { nice: -5, resets: true, ..of(SCHED_OTHER, 0) };
        assert_eq!(nice.inherited(), of(SCHED_OTHER, 0));
    }
}
