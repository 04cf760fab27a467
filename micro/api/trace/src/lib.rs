// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints: places of the kernel that have a name and hand over what happens there.
//!
//! A place asks [`is_on`], one load, and only then puts its record together and calls [`hit`]. The record is laid out
//! as programs see it (`bpf::context`). The hook runs with interrupts off, takes no lock and does not block, so a place
//! may hold locks. Who has no tracer has no cost but the load.
#![no_std]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Point {
    /// A system call comes in: `struct trace_event_raw_sys_enter`.
    CallEntry = 0,
    /// And goes out: `struct trace_event_raw_sys_exit`.
    CallExit = 1,
    /// The processor goes from one thread to another: `struct trace_event_raw_sched_switch`.
    Switch = 2,
    /// A thread becomes runnable: `struct trace_event_raw_sched_wakeup_template`.
    Wakeup = 3,
    /// A frame was received: `struct unilith_packet`.
    Receive = 4,
    /// A frame is about to be sent: `struct unilith_packet`.
    Send = 5,
}

impl Point {
    pub const ALL: [Point; 6] =
        [Point::CallEntry, Point::CallExit, Point::Switch, Point::Wakeup, Point::Receive, Point::Send];

    /// The name, as Linux has it where Linux has one.
    pub const fn name(self) -> &'static str {
        match self {
            Point::CallEntry => "raw_syscalls:sys_enter",
            Point::CallExit => "raw_syscalls:sys_exit",
            Point::Switch => "sched:sched_switch",
            Point::Wakeup => "sched:sched_wakeup",
            Point::Receive => "net:receive",
            Point::Send => "net:send",
        }
    }
}

/// Runs with the point and its record.
pub type Hook = fn(Point, &[u8]);

static ON: AtomicU32 = AtomicU32::new(0);
static HOOK: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Somebody wants to know.
#[inline]
pub fn is_on(point: Point) -> bool {
    ON.load(Ordering::Relaxed) & 1 << point as u32 != 0
}

/// Hands over the record of a point that is on.
#[cold]
pub fn hit(point: Point, record: &[u8]) {
    let hook = HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `set` stores here, and it stores such a function.
        let hook = unsafe { core::mem::transmute::<*mut (), Hook>(hook) };
        hook(point, record);
    }
}

/// Turns points on, as bits of `1 << point`, and says who is called.
pub fn set(points: u32, hook: Hook) {
    HOOK.store(hook as *mut (), Ordering::Release);
    ON.store(points, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_point_that_is_on_calls_the_hook() {
        assert!(!is_on(Point::Switch));
        set(1 << Point::Switch as u32, |point, record| {
            SEEN.store(point as u32 * 100 + record.len() as u32, Ordering::Relaxed);
        });
        assert!(is_on(Point::Switch) && !is_on(Point::Wakeup));
        hit(Point::Switch, &[0; 7]);
        assert_eq!(SEEN.load(Ordering::Relaxed), 207);
    }
}
