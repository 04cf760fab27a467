// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for children (wait(2)), and what parents are told of them.

use crate::ptrace::wait::News;
use crate::{pidfd, ptrace};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::UserPtr;
use core::sync::atomic::Ordering;
use task::call::Call;
use task::children::{CLD_TRAPPED, Change, Ended, Told, tell_end};
use task::cpu_time::Usage;
use task::pids::Pid;
use task::process::Process;
use task::signals::{self, SIGCHLD, SigInfo};
use task::time::duration::to_timeval;
use task::{Task, processes, tracing, wait};

const WNOHANG: u32 = 1;
const WUNTRACED: u32 = 2;
const WEXITED: u32 = 4;
const WCONTINUED: u32 = 8;
const WNOWAIT: u32 = 0x0100_0000;
const WNOTHREAD: u32 = 0x2000_0000;
const WALL: u32 = 0x4000_0000;
const WCLONE: u32 = 0x8000_0000;
const THREADS: u32 = WNOTHREAD | WALL | WCLONE;

/// Whose children a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Any,
    Pid(Pid),
    Group(Pid),
}

impl Which {
    /// The same of a thread that is traced.
    fn includes_thread(self, task: &Task) -> bool {
        match self {
            Which::Pid(pid) => task.tid == pid,
            _ => self.includes(&task.process),
        }
    }

    fn includes(self, child: &Process) -> bool {
        match self {
            Which::Any => true,
            Which::Pid(pid) => child.pid == pid,
            Which::Group(group) => child.sessions.lock().group == group,
        }
    }
}

/// A child that was made with another signal than SIGCHLD is waited for by __WCLONE or __WALL only.
fn is_for(child: &Process, options: u32) -> bool {
    let is_clone = child.family.exit_signal.load(Ordering::Relaxed) != SIGCHLD;
    options & WALL != 0 || is_clone == (options & WCLONE != 0)
}

/// What a thread that the caller traces has to tell.
fn look_at_tracee(parent: &Process, task: &Task, options: u32) -> Option<Told> {
    // One that has ended has no number behind this.
    let number = task.tid.seen_by(parent);
    Some(match ptrace::wait::news(parent, task, options & WEXITED != 0, options & WNOWAIT != 0)? {
        News::Stopped { code, why } => {
            Told::of(parent, &task.process, CLD_TRAPPED, code).of_thread(number, why)
        }
        News::Ended(ended) => {
            let told = Told::ended(parent, &task.process, &ended).of_thread(number, 0);
            if options & WNOWAIT == 0 {
                if task.is_first() && task.process.family.parent() == parent.pid {
                    reap(parent, &task.process, &ended);
                } else {
                    ptrace::wait::forget_ended(parent, task);
                }
            }
            told
        }
    })
}

/// What there is to tell now: of children in the order in which they were made, and then of those that are only traced, the
/// newest first. `EAGAIN` when nothing yet, `ECHILD` when nothing ever will be.
fn look(parent: &Process, which: Which, options: u32) -> Result<Told> {
    let mut none = true;
    let siblings = core::iter::successors(parent.family.children.lock().first(), |child| {
        parent.family.children.lock().after(child)
    });
    for child in &mut siblings.filter(|child| which.includes(child) && is_for(child, options)) {
        // Its tracer hears of its end, and only then its parent.
        let tracer = child.family.traced_by.get();
        let zombie = *child.family.zombie.lock();
        match zombie {
            Some(_) if tracer != Pid::NONE && tracer != parent.pid => {
                none = false;
                continue;
            }
            Some(ended) if options & WEXITED != 0 => {
                // Nobody has its number behind that any more.
                let told = Told::ended(parent, &child, &ended);
                if options & WNOWAIT == 0 {
                    reap(parent, &child, &ended);
                }
                return Ok(told);
            }
            // Nothing else will ever be told of it.
            Some(_) => continue,
            None => none = false,
        }
        let traces = tracer == parent.pid;
        if traces
            && let Some(task) = ptrace::wait::first_of(parent, &child)
            && let Some(told) = look_at_tracee(parent, &task, options)
        {
            return Ok(told);
        }
        let change = *child.family.change.lock();
        let wanted = match change {
            // A tracer has heard of each thread's stop.
            Some(Change::Stopped(_)) => options & WUNTRACED != 0 && !traces,
            Some(Change::Continued) => options & WCONTINUED != 0,
            None => false,
        };
        if let Some(change) = change.filter(|_| wanted) {
            if options & WNOWAIT == 0 {
                child.family.change.lock().take();
            }
            return Ok(Told::changed(parent, &child, change));
        }
    }
    for (task, has_ended) in ptrace::wait::newest_first(parent) {
        if !which.includes_thread(&task) {
            continue;
        }
        none &= has_ended && options & WEXITED == 0;
        if let Some(told) = look_at_tracee(parent, &task, options) {
            return Ok(told);
        }
    }
    Err(if none { ECHILD } else { EAGAIN })
}

/// The parent does not want to be told of the end: nothing is left of the process, and what it used is nobody's
/// (getrusage(2), RUSAGE_CHILDREN).
pub fn forget(parent: &Process, child: &Arc<Process>) {
    if child.family.traced_by.replace(parent.pid, Pid::NONE).is_ok() {
        tracing::unlink(parent, child.pid);
    }
    parent.family.children.lock().remove(child);
    processes::remove(child);
}

/// Nobody will wait for the children that have ended, but for those whose tracer has yet to hear of it.
pub fn forget_zombies(parent: &Process) {
    let is_ready = |child: &Process| child.family.is_zombie() && child.family.traced_by.get() == Pid::NONE;
    loop {
        let found = parent.family.children.lock().iter().find(|child| is_ready(child));
        let Some(child) = found else { return };
        forget(parent, &child);
    }
}

/// The parent was told of the end: what the process used is counted with it.
fn reap(parent: &Process, child: &Arc<Process>, ended: &Ended) {
    *parent.family.children_used.lock() += ended.used;
    *parent.family.children_used.lock() += *child.family.children_used.lock();
    let peak = ended.peak.max(child.family.children_peak.load(Ordering::Relaxed));
    parent.family.children_peak.fetch_max(peak, Ordering::Relaxed);
    forget(parent, child);
}

/// The process has ended: its parent is told, or nothing is left of it.
pub fn tell_or_reap(process: &Arc<Process>, ended: &Ended) {
    match processes::find(process.family.parent()) {
        Some(parent) => {
            if !tell_end(&parent, process, ended) {
                forget(&parent, process);
                // A wait that has nobody left to wait for.
                parent.family.changed.wake_all(Events::ALL);
            }
        }
        // Nobody in the machine waits for it (`outside`).
        None => processes::remove(process),
    }
}

/// Waits; `None` with WNOHANG when there is nothing yet.
fn wait_for(which: Which, options: u32) -> Result<Option<Told>> {
    let parent = &task::current().process;
    match look(parent, which, options) {
        Err(EAGAIN) if options & WNOHANG != 0 => Ok(None),
        Err(EAGAIN) => {
            let told = wait::on_queue(&parent.family.changed, Events::ALL, wait::FOREVER, || {
                look(parent, which, options)
            })?;
            Ok(Some(told))
        }
        told => told.map(Some),
    }
}

/// `struct rusage` of what was used, with its largest memory in bytes.
pub fn rusage(used: &Usage, peak: u64) -> [i64; 18] {
    let mut usage = [0i64; 18];
    usage[..2].copy_from_slice(&to_timeval(used.user_ns));
    usage[2..4].copy_from_slice(&to_timeval(used.system_ns));
    // ru_maxrss, in KiB.
    usage[4] = (peak >> 10) as i64;
    usage[8] = used.faults as i64;
    usage[16] = used.voluntary_switches as i64;
    usage[17] = used.involuntary_switches as i64;
    usage
}

/// Whoever asks for times gets exact ones from then on.
fn usage_pointer(call: &Call<'_>, index: usize) -> Option<UserPtr<[i64; 18]>> {
    let pointer = call.ptr(index).non_null();
    if pointer.is_some() {
        task::cpu_time::start();
    }
    pointer
}

/// wait4(2).
pub fn wait4(call: &mut Call<'_>) -> Result<usize> {
    let options = call.flags(2, WNOHANG | WUNTRACED | WCONTINUED | THREADS)?;
    let which = match call.int(0) {
        // The negation of no group: Linux answers ESRCH.
        i32::MIN => return Err(ESRCH),
        -1 => Which::Any,
        0 => Which::Group(task::current().process.sessions.lock().group),
        // A number that nobody has is no child's.
        pid @ 1.. => Which::Pid(Pid::named(pid).ok_or(ECHILD)?),
        group => Which::Group(Pid::named(-group).ok_or(ECHILD)?),
    };
    let usage = usage_pointer(call, 3);
    let Some(told) = wait_for(which, options | WEXITED)? else { return Ok(0) };
    if let Some(status) = call.ptr::<i32>(1).non_null() {
        status.write(told.wait_status())?;
    }
    if let Some(pointer) = usage {
        pointer.write(rusage(&told.used, told.peak))?;
    }
    Ok(told.pid as usize)
}

/// waitid(2). What became of whom is written whatever the answer: that nothing happened, where it is an error.
pub fn waitid(call: &mut Call<'_>) -> Result<usize> {
    let told = wait_by_id(call);
    if let (Ok(Some(told)), Some(pointer)) = (&told, usage_pointer(call, 4)) {
        pointer.write(rusage(&told.used, told.peak))?;
    }
    if let Some(pointer) = call.ptr(2).non_null() {
        pointer.write(match &told {
            Ok(Some(told)) => told.info(SIGCHLD).without_times().to_user(),
            // The fields that say that nothing happened.
            _ => SigInfo::nothing().to_user(),
        })?;
    }
    told.map(|_| 0)
}

fn wait_by_id(call: &Call<'_>) -> Result<Option<Told>> {
    const P_ALL: u32 = 0;
    const P_PID: u32 = 1;
    const P_PGID: u32 = 2;
    const P_PIDFD: u32 = 3;
    let mut options = call.flags(3, WNOHANG | WNOWAIT | WEXITED | WUNTRACED | WCONTINUED | THREADS)?;
    if options & (WEXITED | WUNTRACED | WCONTINUED) == 0 {
        return Err(EINVAL);
    }
    let mut nonblocking = false;
    let which = match (call.uint(0), call.int(1)) {
        (P_ALL, _) => Which::Any,
        (P_PID, pid @ 1..) => Which::Pid(Pid::named(pid).ok_or(ECHILD)?),
        (P_PGID, 0) => Which::Group(task::current().process.sessions.lock().group),
        (P_PGID, group @ 1..) => Which::Group(Pid::named(group).ok_or(ECHILD)?),
        (P_PIDFD, fd @ 0..) => {
            let (process, is_nonblocking) = pidfd::waited(fd)?;
            nonblocking = is_nonblocking && options & WNOHANG == 0;
            if nonblocking {
                options |= WNOHANG;
            }
            Which::Pid(process.pid)
        }
        _ => return Err(EINVAL),
    };
    let told = wait_for(which, options)?;
    if told.is_none() && nonblocking { Err(EAGAIN) } else { Ok(told) }
}

/// The process ends: its children get another parent, the nearest ancestor that asked for them (PR_SET_CHILD_SUBREAPER) or
/// the first process; those of a process that was started from outside have none any more, and the kernel reaps them.
pub fn give_away(process: &Process) {
    let mut children = core::mem::take(&mut *process.family.children.lock());
    if children.is_empty() {
        return;
    }
    let reaper = reaper_above(process);
    while let Some(child) = children.pop() {
        child.set_parent(reaper.as_ref().map_or(Pid::NONE, |reaper| reaper.pid));
        // Whatever it was to send its parent: the new one knows SIGCHLD.
        child.family.exit_signal.store(SIGCHLD, Ordering::Relaxed);
        if let Some(reaper) = &reaper {
            reaper.family.children.lock().push(child.clone());
        }
        tell_of_parents_end(process, &child);
        // A zombie that its parent traced has that one's mark still: the new parent would take it for another tracer's.
        let own = child.family.traced_by.replace(process.pid, Pid::NONE);
        // One that its tracer has yet to hear of is not the new parent's before.
        let zombie = if matches!(own, Ok(()) | Err(Pid::NONE)) { *child.family.zombie.lock() } else { None };
        match (zombie, &reaper) {
            (Some(ended), Some(reaper)) if !tell_end(reaper, &child, &ended) => {
                reap(reaper, &child, &ended);
            }
            (Some(_), None) => processes::remove(&child),
            _ => {}
        }
    }
}

/// A thread of a process that goes on ends: the children that it made are another thread's, and get what they asked for by
/// PR_SET_PDEATHSIG, which is about the thread.
pub fn maker_ends(process: &Process, tid: Pid) {
    let next = process.tasks().map(|task| task.tid).find(|other| *other != tid).unwrap_or(process.pid);
    let mut told = Vec::new();
    for child in process.family.children.lock().iter() {
        let maker = &child.family.maker;
        if maker.replace(tid, next).is_ok() && told.reserve_fallibly(1).is_ok() {
            told.push(child.clone());
        }
    }
    told.iter().for_each(|child| tell_of_parents_end(process, child));
}

/// PR_SET_PDEATHSIG, which each thread sets and the process gets.
fn tell_of_parents_end(process: &Process, child: &Arc<Process>) {
    let uid = process.credentials.lock().uid;
    for signal in child.tasks().map(|task| task.settings.parent_death_signal()).filter(|signal| *signal != 0)
    {
        let (from, user) = (process.pid.seen_by(child), child.shown_user(uid));
        // A real-time signal may be refused for want of room.
        let _ = signals::send_to_process(child, SigInfo::from_process(signal, signals::SI_USER, from, user));
    }
}

/// The nearest above in the same PID namespace that asked for it, or the namespace's first process. `None` below a process that was
/// started from outside.
fn reaper_above(process: &Process) -> Option<Arc<Process>> {
    let mut at = processes::find(process.family.parent());
    while let Some(above) = at {
        // What somebody left behind in another container is not this one's.
        if !above.is_beside(process) {
            return None;
        }
        if above.pids != process.pids {
            break;
        }
        let reaps = above.settings.lock().is_subreaper() && !above.is_ending();
        if reaps || above.pid == Pid::FIRST {
            return Some(above);
        }
        if let Some(container) = above.container.as_ref().filter(|container| container.is_first(&above)) {
            return Some(container).filter(|container| !container.is_ending()).map(|_| above.clone());
        }
        at = processes::find(above.family.parent());
    }
    process.pids.first().filter(|first| *first != process.pid).and_then(processes::find)
}
