// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks, and the timers of a process.
//!
//! `clock` has the clocks; `alarm` is a timer on any of them, and what the others are made of.

pub mod alarm;
pub mod clock;
pub mod cpu_limit;
pub mod duration;
mod interval;
pub mod itimers;
pub mod namespace;
pub mod posix_timers;

use alloc::sync::Arc;
use api_lock::SpinLock;
use core::sync::atomic::AtomicI32;
use ordered::Map;

pub use clock::realtime_ns;

/// The timers of a process.
#[derive(Default)]
pub struct ProcessTimers {
    pub cpu_limit: SpinLock<Option<Arc<cpu_limit::CpuLimit>>>,
    pub intervals: SpinLock<[Option<Arc<itimers::IntervalTimer>>; 3]>,
    pub posix: SpinLock<Map<i32, Arc<posix_timers::PosixTimer>>>,
    /// The id that the next one is to have, unless it is taken.
    pub next_id: AtomicI32,
}

impl ProcessTimers {
    /// Another program takes over: timers of timer_create(2) go, interval timers stay (execve(2)).
    pub fn program_ends(&self) {
        let timers = core::mem::take(&mut *self.posix.lock());
        drop(timers);
    }

    /// The process ends: all of them go.
    pub fn process_ends(&self) {
        self.program_ends();
        let intervals = core::mem::take(&mut *self.intervals.lock());
        let limit = self.cpu_limit.lock().take();
        drop((intervals, limit));
    }
}
