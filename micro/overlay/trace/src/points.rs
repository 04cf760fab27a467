// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs at tracepoints, and what they see of an event: the structures of `bpf::context`.

use crate::code::{Registers, undisturbed};
use crate::environment::interrupted;
use crate::load::{self, Active};
use alloc::sync::Arc;
use api_plat::Access;
use api_trace::{Event, Leaves, Point};
use bpf::context::{Context, MAX_SIZE};
use core::ops::RangeInclusive;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use task::Task;

/// Programs of each point.
static FIRST: [AtomicPtr<Active>; Point::ALL.len()] =
    [const { AtomicPtr::new(null_mut()) }; Point::ALL.len()];

/// The point of this name.
pub fn find(name: &str) -> Option<Point> {
    Point::ALL.into_iter().find(|p| p.name() == name)
}

/// What programs of a point get.
pub fn context(point: Point) -> Context {
    match point {
        Point::CallEntry => Context::CallEntry,
        Point::CallExit => Context::CallExit,
        Point::Switch => Context::Switch,
        Point::Wakeup => Context::Wakeup,
        Point::Receive | Point::Send => Context::Packet,
        Point::Sample | Point::Every => Context::Registers,
        Point::PageFault => Context::Fault,
    }
}

/// A structure that is being filled.
struct Record([u8; MAX_SIZE]);

/// Priority of a thread with nice value 0, as Linux shows it.
const PRIORITY: u32 = 120;

impl Record {
    fn word(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn half(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Name and thread id; kernel threads have the id 0, and no thread is Linux' idle thread.
    fn thread(&mut self, name: usize, id: usize, local: Option<*mut ()>) {
        let name = &mut self.0[name..name + 16];
        let mut tid = 0;
        match local {
            None => name[..9].copy_from_slice(b"swapper/0"),
            // SAFETY: `Event` promises that it is a thread's task, or null, and valid while the hook runs.
            Some(local) => match unsafe { (local as *const Task).as_ref() } {
                Some(task) => {
                    tid = task.tid.of_machine() as u32;
                    // A name that is being changed right now is not waited for.
                    name.copy_from_slice(&task.name.try_lock().map_or([0; 16], |name| *name));
                }
                None => name[..6].copy_from_slice(b"kernel"),
            },
        }
        self.half(id, tid);
        self.half(id + 4, PRIORITY);
    }

    fn fill(&mut self, event: Event<'_>) {
        match event {
            Event::CallEntry { number, arguments } => {
                self.word(8, number);
                arguments.iter().enumerate().for_each(|(i, a)| self.word(16 + 8 * i, *a));
            }
            Event::CallExit { number, result } => {
                self.word(8, number);
                self.word(16, result);
            }
            Event::Switch { previous, leaves, next } => {
                self.thread(8, 24, previous);
                // TASK_RUNNING, TASK_INTERRUPTIBLE, EXIT_DEAD.
                let state = match leaves {
                    Leaves::Preempted => 0,
                    Leaves::Sleeps => 1,
                    Leaves::Ends => 0x10,
                };
                self.word(32, state);
                self.thread(40, 56, next);
            }
            Event::Wakeup { thread } => {
                self.thread(8, 24, Some(thread));
                self.half(32, api_plat::cpu());
            }
            Event::Sample { registers } => {
                // SAFETY: a reference is always there.
                let registers = unsafe { Registers::of(registers) };
                self.0[..registers.bytes().len()].copy_from_slice(registers.bytes());
            }
            Event::PageFault { address, access } => {
                self.word(8, address);
                self.word(16, interrupted().map_or(0, |r| r.ip));
                // Of a page fault: by the program (bit 2), a write (1), of an instruction (4).
                self.word(
                    24,
                    match access {
                        Access::Read => 4,
                        Access::Write => 4 | 2,
                        Access::Execute => 4 | 16,
                    },
                );
            }
            Event::Receive { frame, length } | Event::Send { frame, length } => {
                let start = frame.as_ptr() as u64;
                self.word(0, start);
                self.word(8, start + frame.len() as u64);
                self.half(16, length as u32);
            }
        }
    }
}

fn hook(event: Event<'_>) {
    undisturbed(|| {
        let point = event.point();
        let mut record = Record([0; MAX_SIZE]);
        record.fill(event);
        let mut at = FIRST[point as usize].load(Ordering::Relaxed);
        // SAFETY: what is linked stays until it was unlinked with interrupts off.
        while let Some(active) = unsafe { at.as_ref() } {
            active.hits.fetch_add(1, Ordering::Relaxed);
            active.run(&record.0[..context(point).size()]);
            at = active.next.load(Ordering::Relaxed);
        }
    });
}

/// Between samples unless an attachment says otherwise: 99 a second, not in step with what happens every ten
/// milliseconds.
const INTERVAL_NS: u64 = 1_000_000_000 / 99;
/// More often the machine would do little else; less often nobody needs.
const INTERVALS: RangeInclusive<u64> = 100_000..=10_000_000_000;

/// The shortest interval that somebody wants, 0 for nobody; the address of an attachment is its interval in
/// nanoseconds.
fn interval() -> u64 {
    let mut shortest = 0;
    let mut at = FIRST[Point::Sample as usize].load(Ordering::Relaxed);
    // SAFETY: what is linked is attached, and held by the list of packages.
    while let Some(active) = unsafe { at.as_ref() } {
        let own = if active.address == 0 { INTERVAL_NS } else { active.address };
        let own = own.clamp(*INTERVALS.start(), *INTERVALS.end());
        shortest = if shortest == 0 { own } else { own.min(shortest) };
        at = active.next.load(Ordering::Relaxed);
    }
    shortest
}

/// Programs there run while somebody follows them.
pub fn is_every(place: &str) -> bool {
    place == Point::Every.name()
}

/// Runs a program of [`Point::Every`] if it is time, and answers when it is the next time.
pub fn run_due(active: &Active, due: u64, least_ns: u64) -> u64 {
    let now = api_plat::now_ns();
    if now < due {
        return due;
    }
    undisturbed(|| {
        active.hits.fetch_add(1, Ordering::Relaxed);
        active.run(&[0; MAX_SIZE]);
    });
    now.saturating_add(active.address.max(least_ns))
}

fn turn_on() {
    let mut points = 0;
    for (i, first) in FIRST.iter().enumerate() {
        if !first.load(Ordering::Relaxed).is_null() {
            points |= 1 << i;
        }
    }
    api_trace::set(points, hook);
    task::watch::changed();
    api_plat::set_sampling(interval());
}

pub fn attach(active: &Arc<Active>) {
    if let Some(point) = find(&active.place) {
        load::link(&FIRST[point as usize], active);
        turn_on();
    }
}

pub fn detach(active: &Arc<Active>) {
    if let Some(point) = find(&active.place) {
        load::unlink(&FIRST[point as usize], active);
        turn_on();
    }
}
