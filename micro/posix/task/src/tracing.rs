// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a traced thread keeps, and what a process keeps about the threads that it traces.

use crate::children::{CLD_TRAPPED, Ended};
use crate::pids::Pid;
use crate::process::Process;
use crate::registers::Registers;
use crate::signals::SigInfo;
use crate::thread::Task;
use crate::{processes, watch};
use abi::{Events, Result};
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

pub const O_TRACESYSGOOD: u32 = 1;
pub const O_TRACEFORK: u32 = 1 << 1;
pub const O_TRACEVFORK: u32 = 1 << 2;
pub const O_TRACECLONE: u32 = 1 << 3;
pub const O_TRACEEXEC: u32 = 1 << 4;
pub const O_TRACEVFORKDONE: u32 = 1 << 5;
pub const O_TRACEEXIT: u32 = 1 << 6;
pub const O_TRACESECCOMP: u32 = 1 << 7;
pub const O_EXITKILL: u32 = 1 << 20;
/// The tracee's filters (seccomp(2)) rest.
pub const O_SUSPEND_SECCOMP: u32 = 1 << 21;
pub const OPTIONS: u32 = 0xff | O_EXITKILL | O_SUSPEND_SECCOMP;

/// Threads that are traced. While there are any, system calls take the path on which somebody may look at them.
static TRACED: AtomicU32 = AtomicU32::new(0);

/// Some thread of the machine is traced.
pub fn is_anybody_traced() -> bool {
    TRACED.load(Relaxed) != 0
}

fn count(change: i32) {
    TRACED.fetch_add(change as u32, Relaxed);
    watch::changed();
}

/// How a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// To the next signal or event.
    Freely,
    /// To the next system call's begin or end.
    ToCall,
    /// The same, with calls that are only shown and not made (PTRACE_SYSEMU).
    ShowingCalls,
    /// For one instruction.
    Step,
}

/// Why a thread is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// What wait(2) tells: a signal's number, and the event above it.
    pub code: i32,
    /// `si_code` of the SIGCHLD and of waitid(2).
    pub why: i32,
    /// What PTRACE_GETSIGINFO shows; nothing in a group stop of a thread that was attached to.
    pub info: Option<SigInfo>,
    /// A wait has told of it.
    pub told: bool,
    /// PTRACE_LISTEN: it stays, and counts as running.
    pub listens: bool,
}
impl Stop {
    /// The signal that it was about to deliver; 0 for other stops.
    pub fn signal_of_delivery(&self) -> i32 {
        if self.why == CLD_TRAPPED
            && self.code < 0x80
            && self.info.is_some_and(|info| info.code() != self.code)
        {
            self.code
        } else {
            0
        }
    }
}

/// A thread that is traced.
pub struct Traced {
    /// The tracer's process, and the thread of it that may make requests.
    pub tracer: Pid,
    pub tracer_thread: Pid,
    /// By PTRACE_SEIZE.
    pub seized: bool,
    pub options: u32,
    pub resume: Resume,
    /// What the tracer let it go on with.
    pub signal: i32,
    /// `None` while it runs.
    pub stop: Option<Stop>,
    /// PTRACE_SETSIGINFO, for the signal that is being delivered.
    pub new_info: Option<SigInfo>,
    /// PTRACE_GETEVENTMSG.
    pub message: u64,
    /// While it is stopped.
    pub registers: Registers,
    /// PTRACE_INTERRUPT, or it was seized while its process was stopped.
    pub wants_trap: bool,
    /// A stop of the whole process began or ended (of a seized thread).
    pub notify: bool,
    /// The tracer has let it go on although its process is stopped.
    pub passes_stop: bool,
    /// It is no longer traced, and about to notice.
    pub released: bool,
}

/// What every thread has for being traced.
#[derive(Default)]
pub struct Tracing {
    on: AtomicBool,
    /// The trap flag in its registers is the tracer's wish and not the program's.
    pub steps: AtomicBool,
    traced: SpinLock<Option<Box<Traced>>>,
}

impl Tracing {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// The number of the tracing process; 0 for none.
    pub fn tracer(&self) -> Pid {
        if self.is_on() { self.with(|traced| traced.tracer).unwrap_or(Pid::NONE) } else { Pid::NONE }
    }

    /// It stands still for its tracer.
    pub fn is_stopped(&self) -> bool {
        self.is_on() && self.with(|traced| traced.stop.is_some()).unwrap_or(false)
    }

    /// `None` when it is not traced, and was not a moment ago.
    pub fn with<T>(&self, look: impl FnOnce(&mut Traced) -> T) -> Option<T> {
        self.traced.lock().as_mut().map(|traced| look(traced))
    }

    /// Ends what [`release`] began, once the thread has taken over what its tracer left.
    pub fn forget_released(&self) {
        let mut traced = self.traced.lock();
        if traced.as_ref().is_some_and(|traced| traced.released) {
            let old = traced.take();
            drop(traced);
            drop(old);
        }
    }

    /// It goes on although its process is stopped.
    pub fn passes_stop(&self) -> bool {
        self.is_on() && self.with(|traced| traced.passes_stop).unwrap_or(false)
    }

    /// Its tracer wants it to stop.
    pub fn wants_stop(&self) -> bool {
        self.is_on() && self.with(|t| t.seized && (t.wants_trap || t.notify)).unwrap_or(false)
    }

    pub fn has_option(&self, option: u32) -> bool {
        self.is_on() && self.with(|traced| traced.options & option != 0).unwrap_or(false)
    }

    /// A stop of its process begins, or ends: a seized thread tells its tracer.
    pub fn stop_changes(&self, task: &Task, begins: bool) {
        if self.is_on() {
            self.with(|traced| {
                traced.passes_stop &= !begins;
                traced.notify |= traced.seized;
            });
            task.interrupt();
        }
    }
}

/// A thread that a process traces.
pub struct Tracee {
    pub task: Arc<Task>,
    /// It has ended, and the tracer was not told yet. (The first thread of a process ends with it.)
    pub ended: Option<Ended>,
}

/// What a new tracee begins with.
#[derive(Clone, Copy)]
pub struct Beginning {
    pub tracer: Pid,
    pub tracer_thread: Pid,
    pub seized: bool,
    pub options: u32,
}

/// Room for a new tracee, made before anything can no longer fail.
pub struct Prepared(Box<Traced>);

impl Prepared {
    pub fn new(from: Beginning) -> Result<Prepared> {
        Ok(Prepared(Box::new(Traced {
            tracer: from.tracer,
            tracer_thread: from.tracer_thread,
            seized: from.seized,
            options: from.options,
            resume: Resume::Freely,
            signal: 0,
            stop: None,
            new_info: None,
            message: 0,
            registers: Registers::new()?,
            wants_trap: false,
            notify: false,
            passes_stop: false,
            released: false,
        })))
    }

    /// The thread is traced from now on.
    pub fn begin(self, tracer: &Process, task: &Arc<Task>) {
        if task.is_first() {
            task.process.family.traced_by.set(self.0.tracer);
            task.process.family.is_seized.store(self.0.seized, Relaxed);
        }
        *task.tracing.traced.lock() = Some(self.0);
        task.tracing.on.store(true, Relaxed);
        tracer.tracees.lock().push(Tracee { task: task.clone(), ended: None });
        count(1);
    }
}

/// Takes a tracee out of its tracer's list; what is left of it goes to its own parent.
pub fn unlink(tracer: &Process, tid: Pid) -> Option<Tracee> {
    let mut tracees = tracer.tracees.lock();
    let at = tracees.iter().position(|tracee| tracee.task.tid == tid)?;
    // The order in which they were attached to is that in which a wait looks at them.
    Some(tracees.remove(at))
}

/// The thread is not traced from now on: it goes on with `signal`, if it is stopped.
pub fn release(task: &Task, signal: Option<i32>) {
    if !task.tracing.on.swap(false, Relaxed) {
        return;
    }
    if task.is_first() {
        task.process.family.traced_by.set(Pid::NONE);
    }
    let was_stopped = task.tracing.with(|traced| {
        traced.released = true;
        traced.resume = Resume::Freely;
        let code = traced.stop.map_or(0, |stop| stop.signal_of_delivery());
        traced.signal = signal.unwrap_or(code);
        traced.stop.take().is_some()
    });
    if was_stopped == Some(false) {
        task.tracing.forget_released();
    }
    count(-1);
    task.interrupt();
}

/// A traced thread ends: it is a tracee no longer, but for its end.
pub fn ends(task: &Task) {
    if task.tracing.on.swap(false, Relaxed) {
        let traced = task.tracing.traced.lock().take();
        drop(traced);
        count(-1);
    }
}

/// `new` takes the place of `old`, whose number it does not have (execve of another thread than the first).
pub fn becomes(old: &Task, new: &Arc<Task>) {
    for tracee in new.process.tracees.lock().iter() {
        tracee.task.tracing.with(|traced| {
            if traced.tracer_thread == old.tid {
                traced.tracer_thread = new.tid;
            }
        });
    }
    let leader = new.process.family.traced_by.get();
    new.process.family.traced_by.set(Pid::NONE);
    if let Some(tracer) = processes::find(leader) {
        unlink(&tracer, new.tid);
    }
    if !old.tracing.on.swap(false, Relaxed) {
        return;
    }
    let traced = old.tracing.traced.lock().take();
    let tracer = traced.as_ref().map_or(Pid::NONE, |traced| traced.tracer);
    *new.tracing.traced.lock() = traced;
    new.tracing.on.store(true, Relaxed);
    new.process.family.traced_by.set(tracer);
    if let Some(tracer) = processes::find(tracer)
        && let Some(tracee) = tracer.tracees.lock().iter_mut().find(|tracee| tracee.task.tid == old.tid)
    {
        tracee.task = new.clone();
    }
}

/// Tells whoever waits for the tracer's children and tracees.
pub fn wake(tracer: &Process) {
    tracer.family.changed.wake_all(Events::ALL);
}
