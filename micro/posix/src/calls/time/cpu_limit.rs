// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RLIMIT_CPU (getrlimit(2)): SIGXCPU at the soft limit and every second from then on, SIGKILL at the hard one.

use super::alarm::{Alarm, Expires};
use super::clock::Clock;
use super::duration::SECOND;
use crate::calls::limits::{RLIM_INFINITY, RLIMIT_CPU};
use crate::calls::signals::{SIGKILL, SIGXCPU, SigInfo, send_to_process};
use crate::process::Process;
use alloc::sync::Arc;

/// Watches the processor time of a process.
pub struct CpuLimit {
    process: Arc<Process>,
    alarm: Alarm,
}

impl CpuLimit {
    fn new(process: &Arc<Process>) -> Arc<CpuLimit> {
        Arc::new_cyclic(|owner| CpuLimit {
            process: process.clone(),
            alarm: Alarm::new(Clock::Process, process.clone(), owner.clone()),
        })
    }

    /// Sets the alarm to `seconds` of processor time; a limit of 0 is taken for 1, as in Linux.
    fn arm(&self, seconds: u64) {
        let at = if seconds == RLIM_INFINITY { 0 } else { seconds.max(1).saturating_mul(SECOND) };
        // The clock of the own process does not fail.
        let _ = self.alarm.set(at, 0, true);
    }
}

impl Expires for CpuLimit {
    fn expired(&self) {
        if !self.alarm.has_expired() {
            return;
        }
        let used = self.process.cpu_ns() / SECOND;
        let signal = if used >= self.process.limits.both(RLIMIT_CPU).hard { SIGKILL } else { SIGXCPU };
        // A standard signal is never refused.
        let _ = send_to_process(&self.process, SigInfo::from_kernel(signal));
        self.arm(used + 1);
    }
}

/// The limit has a new value.
pub fn limit_changes(process: &Arc<Process>, soft: u64) {
    let limit = process.timers.cpu_limit.lock().get_or_insert_with(|| CpuLimit::new(process)).clone();
    limit.arm(soft);
}
