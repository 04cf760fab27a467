// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A timer on any clock that calls its owner: what interval timers, timer_create(2) and timerfd have in common.
//!
//! A periodic timer is not set again when it expires but when its expiry is fetched (the signal is delivered, the
//! file read), as in Linux: a period shorter than it takes to handle one expiry would otherwise keep the machine busy.
//! What passes meanwhile is counted.

use super::clock::Clock;
use super::interval::Interval;
use crate::process::Process;
use abi::{Events, Result};
use alloc::sync::{Arc, Weak};
use api_lock::SpinLock;
use api_sched::{TimerId, Waiter};

/// Processor time is looked at no oftener than this.
const CPU_CLOCK_STEP_NS: u64 = 1_000_000;

/// The owner of an [`Alarm`].
pub trait Expires: Send + Sync + 'static {
    /// The timer was due; thread context, must not block. [`Alarm::has_expired`] says whether the time has come.
    fn expired(&self);
}

struct Callback<T>(Weak<T>);

impl<T: Expires> Waiter for Callback<T> {
    fn wake(&self, _: Events) {
        if let Some(owner) = self.0.upgrade() {
            owner.expired();
        }
    }
}

struct State {
    interval: Interval,
    timer: Option<TimerId>,
}

/// A timer.
pub struct Alarm {
    clock: Clock,
    process: Arc<Process>,
    callback: Arc<dyn Waiter>,
    state: SpinLock<State>,
}

impl Alarm {
    /// Disarmed.
    pub fn new<T: Expires>(clock: Clock, process: Arc<Process>, owner: Weak<T>) -> Alarm {
        let state = SpinLock::new(State { interval: Interval::default(), timer: None });
        Alarm { clock, process, callback: Arc::new(Callback(owner)), state }
    }

    fn now(&self) -> u64 {
        // A clock that is no more stands still.
        self.clock.now(&self.process).unwrap_or(0)
    }

    /// Sets it, or disarms it with `time` 0; returns what was left and the period before. `time` is relative unless
    /// `absolute`. `EINVAL` for the clock of a thread that is no more.
    pub fn set(&self, time: u64, period: u64, absolute: bool) -> Result<(u64, u64)> {
        let now = self.clock.now(&self.process)?;
        let next = match time {
            0 => None,
            time if absolute => Some(time),
            time => Some(now.saturating_add(time)),
        };
        let before = self.replace(Interval { next, period });
        self.arm();
        Ok((before.remaining_of_next(now), before.period))
    }

    /// What is left and the period.
    pub fn get(&self) -> (u64, u64) {
        let interval = self.state.lock().interval;
        (interval.remaining_of_next(self.now()), interval.period)
    }

    fn replace(&self, interval: Interval) -> Interval {
        let mut state = self.state.lock();
        let before = core::mem::replace(&mut state.interval, interval);
        let timer = state.timer.take();
        drop(state);
        if let Some(timer) = timer {
            api_sched::cancel_timer(timer);
        }
        before
    }

    fn arm(&self) {
        let next = self.state.lock().interval.next;
        if let Some(next) = next {
            let mut at = self.clock.to_monotonic(next, &self.process);
            if self.clock.is_cpu() {
                at = at.max(api_plat::now_ns() + CPU_CLOCK_STEP_NS);
            }
            let timer = api_sched::add_timer(at, self.callback.clone());
            self.state.lock().timer = Some(timer);
        }
    }

    /// In [`Expires::expired`]: true when the time has come. (A clock of processor time may have stood still; then
    /// the timer is set again.)
    pub fn has_expired(&self) -> bool {
        let next = {
            let mut state = self.state.lock();
            state.timer = None;
            state.interval.next
        };
        let due = next.is_some_and(|next| next <= self.now());
        if !due {
            self.arm();
        }
        due
    }

    /// True when an expiry waits to be fetched.
    pub fn is_due(&self) -> bool {
        let next = self.state.lock().interval.next;
        next.is_some_and(|next| next <= self.now())
    }

    /// Fetches the expiries up to now and sets a periodic timer again; 0 when there were none.
    pub fn fetch(&self) -> u64 {
        let now = self.now();
        let (count, again) = {
            let mut state = self.state.lock();
            let count = state.interval.expire(now);
            (count, count != 0 && state.timer.is_none())
        };
        if again {
            self.arm();
        }
        count
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.replace(Interval::default());
    }
}
