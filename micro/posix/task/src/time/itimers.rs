// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interval timers (setitimer(2)).

use super::alarm::{Alarm, Expires};
use super::clock::Clock;
use crate::process::Process;
use crate::signals::{SIGALRM, SIGPROF, SIGVTALRM, SigInfo, send_to_process};
use crate::thread;
use alloc::sync::Arc;

/// ITIMER_REAL, ITIMER_VIRTUAL and ITIMER_PROF: clock and signal.
pub const KINDS: [(Clock, i32); 3] =
    [(Clock::Monotonic, SIGALRM), (Clock::ProcessUser, SIGVTALRM), (Clock::Process, SIGPROF)];

/// One interval timer.
pub struct IntervalTimer {
    pub signal: i32,
    pub process: Arc<Process>,
    pub alarm: Alarm,
}

impl IntervalTimer {
    fn new(process: &Arc<Process>, which: usize) -> Arc<IntervalTimer> {
        let (clock, signal) = KINDS[which];
        Arc::new_cyclic(|owner| IntervalTimer {
            signal,
            process: process.clone(),
            alarm: Alarm::new(clock, process.clone(), owner.clone()),
        })
    }
}

impl Expires for IntervalTimer {
    fn expired(&self) {
        if self.alarm.has_expired() {
            // A standard signal is never refused.
            let _ = send_to_process(&self.process, SigInfo::from_kernel(self.signal));
            // ITIMER_REAL goes on when its signal is taken; the others have a clock that limits them.
            if self.signal != SIGALRM {
                self.alarm.fetch();
            }
        }
    }
}

/// SIGALRM is being delivered: the timer behind it goes on.
pub fn alarm_taken(process: &Process) {
    let timer = process.timers.intervals.lock()[0].clone();
    if let Some(timer) = timer {
        timer.alarm.fetch();
    }
}

/// The process' timer, which is made when it is first set.
pub fn timer(which: usize) -> Arc<IntervalTimer> {
    let process = &thread::current().process;
    let mut timers = process.timers.intervals.lock();
    timers[which].get_or_insert_with(|| IntervalTimer::new(process, which)).clone()
}
