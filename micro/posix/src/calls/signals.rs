// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals.

use crate::dispatch::{RESTART, RESTART_NO_HANDLER};
use crate::task;
use abi::Result;
use api_plat::{Exception, Frame, Status};
use core::sync::atomic::{AtomicU64, Ordering};

pub const SIGILL: i32 = 4;
pub const SIGTRAP: i32 = 5;
pub const SIGFPE: i32 = 8;
pub const SIGSEGV: i32 = 11;
pub const SIGPIPE: i32 = 13;

/// Signals as a set of bits: signal n is bit n - 1.
pub type SignalSet = u64;

/// The part of signal handling that a process has.
pub struct ProcessSignals {
    pending: AtomicU64,
}

impl ProcessSignals {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        ProcessSignals { pending: AtomicU64::new(0) }
    }
}

/// The part of signal handling that a thread has.
pub struct TaskSignals {
    blocked: AtomicU64,
    pending: AtomicU64,
}

impl TaskSignals {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        TaskSignals { blocked: AtomicU64::new(0), pending: AtomicU64::new(0) }
    }

    /// A new thread starts with its maker's mask and nothing pending.
    pub fn inherit(&self, parent: &TaskSignals) {
        self.blocked.store(parent.blocked.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// True when a signal is to be delivered to this thread.
    pub fn is_pending(&self, process: &ProcessSignals) -> bool {
        let pending = self.pending.load(Ordering::Relaxed) | process.pending.load(Ordering::Relaxed);
        pending & !self.blocked.load(Ordering::Relaxed) != 0
    }
}

/// Sends a signal to the running thread (SIGPIPE of a write, for one).
pub fn send_to_current(signal: i32) {
    let task = task::current();
    task.signals.pending.fetch_or(1 << (signal - 1), Ordering::Relaxed);
    api_plat::request_work();
}

/// Delivers what is pending before the program goes on. `call` is the call being left: its number and result. The
/// returned number is to be called again.
pub fn deliver(frame: &mut Frame, call: Option<(u64, Result<usize>)>) -> Option<u64> {
    let _ = frame;
    let task = task::current();
    if task.has_signal() {
        let pending = task.signals.pending.load(Ordering::Relaxed);
        task.process.end(Status::Signal { number: pending.trailing_zeros() as u8 + 1 });
    }
    match call {
        Some((number, Err(RESTART | RESTART_NO_HANDLER))) => Some(number),
        _ => None,
    }
}

/// An exception of the program becomes a signal.
pub fn exception(frame: &mut Frame, exception: Exception) {
    let number = match exception.vector {
        0 | 16 | 19 => SIGFPE,
        1 | 3 => SIGTRAP,
        6 => SIGILL,
        _ => SIGSEGV,
    };
    log::error!("signal {number} at {:#x}: {exception:x?}", frame.rip);
    task::current().process.end(Status::Signal { number: number as u8 })
}
