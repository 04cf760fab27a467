// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RLIMIT_CPU and RLIMIT_RTTIME (getrlimit(2)): SIGXCPU at the soft limit and every second from then on, SIGKILL at
//! the hard one. As in Linux the soft limit itself moves on by the second.

use super::alarm::{Alarm, Expires};
use super::clock::Clock;
use super::duration::SECOND;
use crate::limits::{RLIM_INFINITY, RLIMIT_CPU, RLIMIT_RTTIME};
use crate::process::Process;
use crate::signals::{SIGKILL, SIGXCPU, SigInfo, send_to_process};
use alloc::sync::Arc;

/// RLIMIT_RTTIME counts microseconds.
const MICROSECOND: u64 = 1000;

/// Watches the processor time of a process, and that of its real-time threads.
pub struct CpuLimit {
    process: Arc<Process>,
    alarm: Alarm,
}

/// A limit and how much a second is of it.
struct Watched {
    resource: usize,
    unit: u64,
}

const CPU: Watched = Watched { resource: RLIMIT_CPU, unit: SECOND };
const REAL_TIME: Watched = Watched { resource: RLIMIT_RTTIME, unit: MICROSECOND };

impl CpuLimit {
    fn new(process: &Arc<Process>) -> Arc<CpuLimit> {
        Arc::new_cyclic(|owner| CpuLimit {
            process: process.clone(),
            alarm: Alarm::new(Clock::Process, process.clone(), owner.clone()),
        })
    }

    /// What counts against the limit, in nanoseconds; of real-time threads the one that went longest without waiting.
    fn used(&self, watched: &Watched) -> Option<u64> {
        if watched.resource == RLIMIT_CPU {
            return Some(self.process.cpu_ns());
        }
        let real_time = self.process.tasks().filter(|task| task.scheduling.lock().is_real_time());
        // One that waits starts from nothing when it is woken.
        let used = real_time.filter_map(|task| {
            let thread = task.thread()?;
            Some(if thread.is_runnable() { thread.ns_since_woken() } else { 0 })
        });
        used.max()
    }

    fn left(&self, watched: &Watched) -> Option<u64> {
        match self.process.limits.soft(watched.resource) {
            RLIM_INFINITY => None,
            soft => Some(soft.saturating_mul(watched.unit).saturating_sub(self.used(watched)?)),
        }
    }

    /// Sets the alarm for the limit that is reached first.
    fn arm(&self) {
        let left = [CPU, REAL_TIME].iter().filter_map(|watched| self.left(watched)).min();
        // A time of 0 disarms.
        let at = left.map_or(0, |left| self.process.cpu_ns().saturating_add(left).max(1));
        // The clock of the own process does not fail.
        let _ = self.alarm.set(at, 0, true);
    }

    fn check(&self, watched: &Watched) {
        let limit = self.process.limits.both(watched.resource);
        let Some(used) = self.used(watched) else { return };
        let reached = |limit: u64| limit != RLIM_INFINITY && used >= limit.saturating_mul(watched.unit);
        let signal = match () {
            () if reached(limit.hard) => SIGKILL,
            () if reached(limit.soft) => SIGXCPU,
            () => return,
        };
        if signal == SIGXCPU {
            self.process.limits.move_soft(watched.resource, limit.soft + SECOND / watched.unit);
        }
        // A standard signal is never refused.
        let _ = send_to_process(&self.process, SigInfo::from_kernel(signal));
    }
}

impl Expires for CpuLimit {
    fn expired(&self) {
        if self.alarm.has_expired() {
            self.check(&CPU);
            self.check(&REAL_TIME);
            self.arm();
        }
    }
}

/// A limit has a new value, or a thread became one of those it is for, or the process is a new one, which has its parent's
/// limits and has used nothing of them. A limit that is reached already is told of at once, not when the caller waits next.
pub fn limit_changes(process: &Arc<Process>) {
    let limited = [RLIMIT_CPU, RLIMIT_RTTIME].iter().any(|r| process.limits.soft(*r) != RLIM_INFINITY);
    let limit = {
        let mut limit = process.timers.cpu_limit.lock();
        if !limited && limit.is_none() {
            return;
        }
        limit.get_or_insert_with(|| CpuLimit::new(process)).clone()
    };
    limit.check(&CPU);
    limit.arm();
}
