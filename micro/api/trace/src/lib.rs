// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints: places of the kernel that have a name and hand over what happens there.
//!
//! A place asks [`is_on`], one load, and only then calls [`hit`] with an [`Event`]. The hook runs with interrupts off,
//! takes no lock and does not block, so a place may hold locks. Who has no tracer has no cost but the load. What
//! programs see of an event is the hook's business (`micro/overlay/trace`).
#![no_std]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Point {
    CallEntry = 0,
    CallExit = 1,
    Switch = 2,
    Wakeup = 3,
    Receive = 4,
    Send = 5,
    Sample = 6,
    Every = 7,
    PageFault = 8,
}

impl Point {
    pub const ALL: [Point; 9] = [
        Point::CallEntry,
        Point::CallExit,
        Point::Switch,
        Point::Wakeup,
        Point::Receive,
        Point::Send,
        Point::Sample,
        Point::Every,
        Point::PageFault,
    ];

    /// The name, as Linux has it where Linux has one.
    pub const fn name(self) -> &'static str {
        match self {
            Point::CallEntry => "raw_syscalls:sys_enter",
            Point::CallExit => "raw_syscalls:sys_exit",
            Point::Switch => "sched:sched_switch",
            Point::Wakeup => "sched:sched_wakeup",
            Point::Receive => "net:receive",
            Point::Send => "net:send",
            Point::Sample => "perf:sample",
            // No event of the kernel: who reads what programs write runs them.
            Point::Every => "timer:every",
            Point::PageFault => "exceptions:page_fault_user",
        }
    }
}

/// Why a thread leaves the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It could go on.
    Preempted,
    Sleeps,
    Ends,
}

/// What happens at a place. A thread is named by its local pointer (`sched::Thread::local`), which stays valid while
/// the hook runs; null for a thread of the kernel.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A system call comes in.
    CallEntry { number: u64, arguments: [u64; 6] },
    /// A system call goes out, with what it returns to the program.
    CallExit { number: u64, result: u64 },
    /// The processor goes from one thread to another; `None` for no thread, when it idles.
    Switch { previous: Option<*mut ()>, leaves: Leaves, next: Option<*mut ()> },
    /// A thread becomes runnable.
    Wakeup { thread: *mut () },
    /// An Ethernet frame was received; `length` may be more than the bytes of its first buffer.
    Receive { frame: &'a [u8], length: usize },
    /// A frame is handed to the device.
    Send { frame: &'a [u8], length: usize },
    /// The program, or the kernel in its memory, touches a page that is not there, or not with this right.
    PageFault { address: u64, access: api_plat::Access },
    /// The sampling timer hit this code, of the program or the kernel; in interrupt context.
    Sample { registers: &'a api_plat::TrapFrame },
}

impl Event<'_> {
    pub fn point(&self) -> Point {
        match self {
            Event::CallEntry { .. } => Point::CallEntry,
            Event::CallExit { .. } => Point::CallExit,
            Event::Switch { .. } => Point::Switch,
            Event::Wakeup { .. } => Point::Wakeup,
            Event::Receive { .. } => Point::Receive,
            Event::Send { .. } => Point::Send,
            Event::Sample { .. } => Point::Sample,
            Event::PageFault { .. } => Point::PageFault,
        }
    }
}

/// Runs with what happened.
pub type Hook = fn(Event<'_>);

static ON: AtomicU32 = AtomicU32::new(0);
static HOOK: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Somebody wants to know.
#[inline]
pub fn is_on(point: Point) -> bool {
    ON.load(Ordering::Relaxed) & 1 << point as u32 != 0
}

/// Hands over what happened at a point that is on.
#[cold]
pub fn hit(event: Event<'_>) {
    let hook = HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `set` stores here, and it stores such a function.
        let hook = unsafe { core::mem::transmute::<*mut (), Hook>(hook) };
        hook(event);
    }
}

/// Where a probed function goes on, given an address in what the tracer put before it.
pub type Around = fn(u64) -> Option<u64>;

static AROUND: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Says who knows the way around probes.
pub fn set_around(way: Around) {
    AROUND.store(way as *mut (), Ordering::Release);
}

/// Where code goes on that was about to run a probe and must not: a program of the overlay, which may not write what the
/// tracer keeps, called a function that is probed.
pub fn around(address: u64) -> Option<u64> {
    let way = AROUND.load(Ordering::Acquire);
    if way.is_null() {
        return None;
    }
    // SAFETY: only `set_around` stores here, and it stores such a function.
    let way = unsafe { core::mem::transmute::<*mut (), Around>(way) };
    way(address)
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
        assert!(!is_on(Point::Wakeup));
        set(1 << Point::Wakeup as u32, |event| SEEN.store(event.point() as u32 + 100, Ordering::Relaxed));
        assert!(is_on(Point::Wakeup) && !is_on(Point::Switch));
        hit(Event::Wakeup { thread: null_mut() });
        assert_eq!(SEEN.load(Ordering::Relaxed), 100 + Point::Wakeup as u32);
    }
}
