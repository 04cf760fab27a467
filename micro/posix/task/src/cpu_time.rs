// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processor time told apart: what a thread used in the program (user) and in the kernel for it (system).
//!
//! Reading the clock on every way in and out would cost a short call a good part of its time, and few programs ask.
//! So nothing is measured until one asks for the first time ([`start`]); from then on times are exact, and what was
//! used before counts as the program's. Calls that only read a number (`fast`) count as the program's always.

use crate::processes;
use crate::thread::{self, Task};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);

/// Not in the kernel, or not known to be.
const OUTSIDE: u64 = u64::MAX;

/// What a thread used in the kernel.
pub struct SystemTime {
    ended_ns: AtomicU64,
    /// Its processor time when it came into the kernel.
    since: AtomicU64,
    /// Page faults that were resolved.
    faults: AtomicU64,
}

/// What getrusage(2) tells of a thread, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    pub faults: u64,
    /// The thread waited for something, or somebody else was let run.
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub transferred: Bytes,
}

/// Bytes and calls of read(2), write(2) and their like, sockets' own calls left out (proc_pid_io(5): rchar, wchar, syscr, syscw).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    pub read: u64,
    pub written: u64,
    pub reads: u64,
    pub writes: u64,
}

/// Those of a thread, which alone counts: no locked instructions.
#[derive(Default)]
pub struct Transferred {
    read: AtomicU64,
    written: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

fn add(counter: &AtomicU64, count: usize) {
    counter.store(counter.load(Relaxed).wrapping_add(count as u64), Relaxed);
}

impl Transferred {
    #[inline]
    pub fn reads(&self, bytes: usize) {
        add(&self.read, bytes);
        add(&self.reads, 1);
    }

    #[inline]
    pub fn writes(&self, bytes: usize) {
        add(&self.written, bytes);
        add(&self.writes, 1);
    }

    pub fn sum(&self) -> Bytes {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Bytes {
            read: get(&self.read),
            written: get(&self.written),
            reads: get(&self.reads),
            writes: get(&self.writes),
        }
    }
}

impl core::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.faults += other.faults;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.transferred += other.transferred;
    }
}

impl core::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.read = self.read.wrapping_add(other.read);
        self.written = self.written.wrapping_add(other.written);
        self.reads = self.reads.wrapping_add(other.reads);
        self.writes = self.writes.wrapping_add(other.writes);
    }
}

impl Usage {
    pub const ZERO: Usage = Usage {
        user_ns: 0,
        system_ns: 0,
        faults: 0,
        voluntary_switches: 0,
        involuntary_switches: 0,
        transferred: Bytes { read: 0, written: 0, reads: 0, writes: 0 },
    };

    pub fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}

impl Default for SystemTime {
    fn default() -> SystemTime {
        SystemTime { ended_ns: AtomicU64::new(0), since: AtomicU64::new(OUTSIDE), faults: AtomicU64::new(0) }
    }
}

impl SystemTime {
    /// `now` is the thread's processor time, here and below.
    fn enters(&self, now: u64) {
        self.since.store(now, Relaxed);
    }

    fn leaves(&self, now: u64) {
        let since = self.since.swap(OUTSIDE, Relaxed);
        self.ended_ns.fetch_add(now.saturating_sub(since), Relaxed);
    }

    fn is_inside(&self) -> bool {
        self.since.load(Relaxed) != OUTSIDE
    }

    fn ns(&self, now: u64) -> u64 {
        // `OUTSIDE` is later than any time.
        self.ended_ns.load(Relaxed) + now.saturating_sub(self.since.load(Relaxed))
    }

    /// A page fault was resolved. (Only the thread itself counts, so it needs no locked instruction.)
    pub fn faulted(&self) {
        self.faults.store(self.faults.load(Relaxed) + 1, Relaxed);
    }
}

impl Task {
    /// What the thread has used.
    pub fn usage(&self) -> Usage {
        let Some(thread) = self.thread() else { return Usage::default() };
        let total = thread.cpu_ns();
        let system_ns = self.system_time.ns(total).min(total);
        let (voluntary_switches, involuntary_switches) = thread.switches();
        Usage {
            user_ns: total - system_ns,
            system_ns,
            faults: self.system_time.faults.load(Relaxed),
            voluntary_switches,
            involuntary_switches,
            transferred: self.transferred.sum(),
        }
    }
}

/// True from the first question on.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Somebody asks: times are told apart from now on.
pub fn start() {
    if ON.swap(true, Relaxed) {
        return;
    }
    // Every thread that has run is in the kernel now, but for those on other processors.
    for process in processes::all() {
        for task in process.tasks() {
            if task.thread().is_some_and(|thread| thread.runs_elsewhere()) {
                continue;
            }
            match task.cpu_ns() {
                0 => {}
                now => task.system_time.enters(now),
            }
        }
    }
    crate::watch::changed();
}

/// The time from here to the drop is the kernel's.
pub struct InKernel {
    /// It was there already: a page fault in a call.
    is_inner: bool,
}

impl InKernel {
    #[inline]
    pub fn enter() -> InKernel {
        InKernel { is_inner: is_on() && !entered() }
    }
}

impl Drop for InKernel {
    #[inline]
    fn drop(&mut self) {
        if is_on() && !self.is_inner {
            left();
        }
    }
}

/// The running thread comes into the kernel; false when it was there already, or is none of the program's.
#[cold]
pub fn entered() -> bool {
    match thread::running() {
        Some(task) if is_on() && !task.system_time.is_inside() => {
            task.system_time.enters(task.cpu_ns());
            true
        }
        _ => false,
    }
}

/// The running thread goes back to the program.
#[cold]
pub fn left() {
    if let Some(task) = thread::running()
        && task.system_time.is_inside()
    {
        task.system_time.leaves(task.cpu_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_coming_and_going_is_the_kernels() {
        let time = SystemTime::default();
        assert_eq!((time.ns(500), time.is_inside()), (0, false));
        time.enters(1000);
        assert_eq!((time.ns(1300), time.is_inside()), (300, true));
        time.leaves(1400);
        assert_eq!((time.ns(9000), time.is_inside()), (400, false));
        time.enters(9000);
        time.leaves(9001);
        assert_eq!(time.ns(9001), 401);
    }

    #[test]
    fn usage_of_threads_adds_up() {
        let mut sum = Usage {
            user_ns: 1,
            system_ns: 2,
            faults: 3,
            voluntary_switches: 4,
            involuntary_switches: 5,
            transferred: Bytes { read: 6, written: 7, reads: 8, writes: 9 },
        };
        sum += sum;
        assert_eq!((sum.total_ns(), sum.faults), (6, 6));
        assert_eq!((sum.voluntary_switches, sum.involuntary_switches), (8, 10));
    }
}
