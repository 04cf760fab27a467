// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A timer on any clock that calls its owner: what interval timers, timer_create(2) and timerfd have in common.
//!
//! A periodic timer is not set again when it expires but when its expiry is fetched (the signal is delivered, the
//! file read), as in Linux: a period shorter than it takes to handle one expiry would otherwise keep the machine busy.
//! What passes meanwhile is counted. One whose expiries nobody fetches, because its signal is ignored, goes on after a tick at
//! the earliest ([`Alarm::pass`]), for the same reason.

use super::clock::Clock;
use super::interval::Interval;
use crate::process::Process;
use abi::{Events, Result};
use alloc::sync::{Arc, Weak};
use api_lock::SpinLock;
use api_sched::{TimerId, Waiter};
use ordered::Map;

/// Processor time is looked at no oftener than this.
const CPU_CLOCK_STEP_NS: u64 = 1_000_000;

/// As long as nobody fetches its expiries a timer expires no oftener than this (Linux' tick).
const UNSEEN_STEP_NS: u64 = 4_000_000;

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

/// Timers that wait for a time of the wall clock, which may be set, by the address of each.
static OF_DAY: SpinLock<Map<usize, Weak<dyn Waiter>>> = SpinLock::new(Map::new());

/// The wall clock was set: timers that wait for one of its times are set again.
pub fn clock_was_set() {
    let timers = core::mem::take(&mut *OF_DAY.lock());
    for timer in timers.values().filter_map(Weak::upgrade) {
        timer.wake(Events::NONE);
    }
}

struct State {
    /// The clock of the timer, or for a relative time the one that counts it.
    clock: Clock,
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
        let state = SpinLock::new(State { clock, interval: Interval::default(), timer: None });
        Alarm { clock, process, callback: Arc::new(Callback(owner)), state }
    }

    fn now(&self) -> u64 {
        let clock = self.state.lock().clock;
        // A clock that is no more stands still.
        clock.now(&self.process).unwrap_or(0)
    }

    /// Sets it, or disarms it with `time` 0; returns what was left and the period before. `time` is relative unless
    /// `absolute`. `EINVAL` for the clock of a thread that is no more.
    pub fn set(&self, time: u64, period: u64, absolute: bool) -> Result<(u64, u64)> {
        let before_now = self.now();
        let clock = if absolute { self.clock } else { self.clock.for_relative() };
        let now = clock.now(&self.process)?;
        let next = match time {
            0 => None,
            // A time that is long gone expires at once, and 0 would be none.
            time if absolute => Some(clock.from_shown(time, &self.process).max(1)),
            time => Some(now.saturating_add(time)),
        };
        let before = self.replace(Interval { next, period });
        self.state.lock().clock = clock;
        self.arm(0);
        Ok((before.remaining_of_next(before_now), before.period))
    }

    /// What is left and the period.
    pub fn get(&self) -> (u64, u64) {
        let now = self.now();
        let interval = self.state.lock().interval;
        (interval.remaining_of_next(now), interval.period)
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

    /// Sets the timer of the scheduler, to no time before `earliest` (of the monotonic clock).
    fn arm(&self, earliest: u64) {
        let (next, clock) = {
            let state = self.state.lock();
            (state.interval.next, state.clock)
        };
        if let Some(next) = next {
            let mut at = clock.to_monotonic(next, &self.process).max(earliest);
            if clock.is_cpu() {
                at = at.max(api_plat::now_ns() + CPU_CLOCK_STEP_NS);
            } else if clock != clock.for_relative() {
                self.note_of_day();
            }
            let timer = api_sched::add_timer(at, self.callback.clone());
            self.state.lock().timer = Some(timer);
        }
    }

    fn note_of_day(&self) {
        OF_DAY.lock().insert(self.key_of_day(), Arc::downgrade(&self.callback));
    }

    fn key_of_day(&self) -> usize {
        Arc::as_ptr(&self.callback).cast::<()>() as usize
    }

    /// In [`Expires::expired`]: true when the time has come. (A clock of processor time may have stood still; then
    /// the timer is set again.)
    pub fn has_expired(&self) -> bool {
        let (next, timer) = {
            let mut state = self.state.lock();
            (state.interval.next, state.timer.take())
        };
        if let Some(timer) = timer {
            api_sched::cancel_timer(timer);
        }
        let due = next.is_some_and(|next| next <= self.now());
        if !due {
            self.arm(0);
        }
        due
    }

    /// True when an expiry waits to be fetched.
    pub fn is_due(&self) -> bool {
        let now = self.now();
        self.state.lock().interval.next.is_some_and(|next| next <= now)
    }

    /// Fetches the expiries up to now and sets a periodic timer again; 0 when there were none. For whoever took what the timer
    /// had to tell.
    pub fn fetch(&self) -> u64 {
        self.fetch_and_arm(0)
    }

    /// The same where nobody takes anything, in [`Expires::expired`].
    pub fn pass(&self) {
        self.fetch_and_arm(api_plat::now_ns() + UNSEEN_STEP_NS);
    }

    fn fetch_and_arm(&self, earliest: u64) -> u64 {
        let now = self.now();
        let (count, again) = {
            let mut state = self.state.lock();
            let count = state.interval.expire(now);
            (count, count != 0 && state.timer.is_none())
        };
        if again {
            self.arm(earliest);
        }
        count
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.replace(Interval::default());
        OF_DAY.lock().remove(&self.key_of_day());
    }
}
