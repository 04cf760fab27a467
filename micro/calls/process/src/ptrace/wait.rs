// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a wait finds among the threads that the caller's process traces, and the ends of tracers and tracees.

use crate::children;
use alloc::sync::Arc;
use alloc::vec::Vec;
use task::children::Ended;
use task::pids::Pid;
use task::process::Process;
use task::signals::{self, SIGKILL, SigInfo};
use task::tracing::{self, O_EXITKILL, unlink};
use task::{Task, processes};

/// What a tracee has to tell.
pub enum News {
    /// It is stopped: the whole code, and `si_code`.
    Stopped {
        code: i32,
        why: i32,
    },
    Ended(Ended),
}

/// All threads that the process traces and whether they have ended, from the newest tracee on. The list may change meanwhile.
pub fn newest_first(tracer: &Process) -> impl Iterator<Item = (Arc<Task>, bool)> {
    let count = tracer.tracees.lock().len();
    (0..count).rev().filter_map(|at| {
        tracer.tracees.lock().get(at).map(|tracee| (tracee.task.clone(), tracee.ended.is_some()))
    })
}

/// The child's first thread, where the process traces it.
pub fn first_of(tracer: &Process, child: &Process) -> Option<Arc<Task>> {
    let tracees = tracer.tracees.lock();
    tracees.iter().find(|tracee| tracee.task.tid == child.pid).map(|tracee| tracee.task.clone())
}

/// What the tracee has to tell now. `ends` are wanted as well; unless it only looks, a stop is told once. Of an end the caller
/// says that it was told ([`forget_ended`]).
pub fn news(tracer: &Process, task: &Task, ends: bool, only_looks: bool) -> Option<News> {
    let ended = {
        let tracees = tracer.tracees.lock();
        tracees.iter().find(|tracee| tracee.task.tid == task.tid)?.ended
    };
    if let Some(ended) = ended {
        return ends.then_some(News::Ended(ended));
    }
    task.tracing
        .with(|traced| {
            let stop = traced.stop.as_mut().filter(|stop| !stop.told && !stop.listens)?;
            stop.told = !only_looks;
            Some(News::Stopped { code: stop.code, why: stop.why })
        })
        .flatten()
}

/// A tracee that has ended is a tracee no longer: a process is its parent's again, a thread is gone.
pub fn forget_ended(tracer: &Process, task: &Task) {
    unlink(tracer, task.tid);
    if !task.is_first() {
        processes::release(task.tid);
        return;
    }
    let process = &task.process;
    process.family.traced_by.set(Pid::NONE);
    let zombie = *process.family.zombie.lock();
    // A parent has heard of it already.
    if let Some(ended) = zombie
        && process.family.parent() != tracer.pid
    {
        children::tell_or_reap(process, &ended);
    }
}

/// A thread ends: whom it traced goes on, and its own tracer hears of it. The first thread's end is that of its process.
pub fn thread_ends(task: &Task, ended: Ended) {
    let last = task.process.thread_count() == 1;
    let mine: Vec<Arc<Task>> = {
        let tracees = task.process.tracees.lock();
        let mine = |task_of: &Task| {
            last || task_of.tracing.with(|traced| traced.tracer_thread == task.tid).unwrap_or(false)
        };
        tracees.iter().filter(|tracee| mine(&tracee.task)).map(|tracee| tracee.task.clone()).collect()
    };
    for tracee in mine {
        leave(&task.process, &tracee);
    }
    let tracer = task.tracing.tracer();
    tracing::ends(task);
    if tracer == Pid::NONE || task.is_first() {
        return;
    }
    let Some(tracer) = processes::find(tracer) else { return };
    if !tracer.signals.wants_zombies() {
        unlink(&tracer, task.tid);
        return;
    }
    if let Some(tracee) = tracer.tracees.lock().iter_mut().find(|tracee| tracee.task.tid == task.tid) {
        tracee.ended = Some(ended);
        // The number stays taken until the tracer has heard of the end.
        processes::retain(task.tid);
    }
    tell_end(&tracer, task, &ended);
}

fn tell_end(tracer: &Process, task: &Task, ended: &Ended) {
    let uid = task.process.credentials.lock().uid;
    let (code, status) = ended.code_and_status();
    let info = SigInfo::child(
        signals::SIGCHLD,
        code,
        task.tid.seen_by(tracer),
        tracer.shown_user(uid),
        status,
        [0, 0],
    );
    // A standard signal is never refused.
    let _ = signals::send_to_process(tracer, info);
    tracing::wake(tracer);
}

/// The tracer ends, or the thread of it does that traced this one.
fn leave(tracer: &Process, tracee: &Arc<Task>) {
    let kills = tracee.tracing.has_option(O_EXITKILL);
    let ended = {
        let tracees = tracer.tracees.lock();
        tracees.iter().find(|other| Arc::ptr_eq(&other.task, tracee)).and_then(|other| other.ended)
    };
    if ended.is_some() {
        return forget_ended(tracer, tracee);
    }
    unlink(tracer, tracee.tid);
    if tracee.is_first() {
        tracee.process.family.traced_by.set(Pid::NONE);
    }
    if kills {
        // A standard signal is never refused.
        let _ = signals::send_to_process(&tracee.process, SigInfo::from_kernel(SIGKILL));
    }
    tracing::release(tracee, None);
}

/// A process has ended, and its first thread was traced: the tracer hears of it first, if that is another one than the parent.
/// False when nobody else is to hear.
pub fn process_ends(process: &Arc<Process>, ended: &Ended) -> bool {
    let family = &process.family;
    let tracer = family.traced_by.get();
    if tracer == Pid::NONE {
        return false;
    }
    let Some(tracer) = processes::find(tracer) else {
        family.traced_by.set(Pid::NONE);
        return false;
    };
    let is_parent = tracer.pid == family.parent();
    if !tracer.signals.wants_zombies() {
        unlink(&tracer, process.pid);
        if !is_parent {
            family.traced_by.set(Pid::NONE);
        }
        return false;
    }
    let first = {
        let mut tracees = tracer.tracees.lock();
        let found = tracees.iter_mut().find(|tracee| tracee.task.tid == process.pid);
        found.map(|tracee| {
            tracee.ended = Some(*ended);
            tracee.task.clone()
        })
    };
    match first {
        Some(_) if is_parent => {}
        Some(task) => tell_end(&tracer, &task, ended),
        None => family.traced_by.set(Pid::NONE),
    }
    !is_parent && family.traced_by.get() != Pid::NONE
}
