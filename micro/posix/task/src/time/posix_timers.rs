// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timers of timer_create(2).

use super::alarm::{Alarm, Expires};
use super::itimers;
use crate::pids::Pid;
use crate::process::Process;
use crate::signals::{SI_TIMER, SIGALRM, SigInfo, send_to_process, send_to_task};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Largest overrun that is reported (POSIX: DELAYTIMER_MAX).
const MAX_OVERRUN: u64 = i32::MAX as u64;

/// What happens when a timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    Nothing,
    Process(i32),
    Thread(i32, Pid),
}

/// A timer made by timer_create(2).
pub struct PosixTimer {
    pub id: i32,
    pub notify: Notify,
    pub value: u64,
    /// Of the signal delivered last.
    pub overrun: AtomicI32,
    pub process: Arc<Process>,
    pub alarm: Alarm,
}

impl Expires for PosixTimer {
    fn expired(&self) {
        if !self.alarm.has_expired() {
            return;
        }
        let info = |signal| SigInfo::timer(signal, self.id, 0, self.value);
        let queued = match self.notify {
            Notify::Nothing => return,
            Notify::Process(signal) => send_to_process(&self.process, info(signal)),
            Notify::Thread(signal, tid) => match self.process.task(tid) {
                Some(task) => send_to_task(&task, info(signal)),
                None => Ok(false),
            },
        };
        if queued != Ok(true) {
            // Ignored, or nobody to tell: the timer goes on without anybody fetching it.
            self.alarm.pass();
        }
    }
}

/// A signal is being delivered: the timer behind it goes on, and says how often it expired unseen.
pub fn signal_taken(process: &Process, mut info: SigInfo) -> SigInfo {
    if info.signal() == SIGALRM {
        itimers::alarm_taken(process);
    }
    if info.code() == SI_TIMER {
        let timer = process.timers.posix.lock().get(&info.pid()).cloned();
        if let Some(timer) = timer {
            let overrun = timer.alarm.fetch().saturating_sub(1).min(MAX_OVERRUN) as i32;
            timer.overrun.store(overrun, Relaxed);
            info.set_overrun(overrun);
        }
    }
    info
}
