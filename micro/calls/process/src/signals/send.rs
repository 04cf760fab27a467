// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: kill(2), tkill(2), tgkill(2), rt_sigqueueinfo(2), rt_tgsigqueueinfo(2).

use abi::{Result, errno::*};
use alloc::sync::Arc;
use task::call::Call;
use task::pids::Pid;
use task::process::Process;
use task::signals::{
    SI_TKILL, SI_USER, SigInfo, bit, check_permission, is_spared_by_caller, number, send, send_to_task,
};
use task::{Task, processes};

/// What the target is told of a signal that the caller sends.
fn from_caller(target: &Process, signal: i32, code: i32) -> SigInfo {
    let task = task::current();
    let uid = task.credentials().lock().uid;
    SigInfo::from_process(signal, code, task.process.pid.seen_by(target), target.shown_user(uid))
}

/// A program says of its own signal what it likes, but not the number of a process that the target cannot see.
fn as_seen_by(info: SigInfo, target: &Process) -> SigInfo {
    let sender = task::current().process.pid;
    if info.has_sender() && sender.seen_by(target) == 0 { info.without_pid() } else { info }
}

/// The process with this id, which may be that of any of its threads.
fn process_by_id(pid: i32) -> Result<Arc<Process>> {
    processes::named_with_thread(pid).ok_or(ESRCH)
}

/// kill(2).
pub fn kill(call: &mut Call<'_>) -> Result<usize> {
    let (pid, signal) = (call.int(0), call.int(1));
    let own = &task::current().process;
    let chosen: &dyn Fn(&Process) -> bool = match pid {
        1.. => {
            let target = process_by_id(pid)?;
            return send(&target, signal, |signal| from_caller(&target, signal, SI_USER));
        }
        // All processes that the caller sees but the first and itself; of a container those in it.
        -1 => &|process| {
            let is_first = process.container.as_ref().is_some_and(|container| container.is_first(process));
            let is_there = ![0, 1].contains(&process.pid.seen_by(own));
            is_there && !is_first && process.pid != own.pid && process.is_beside(own)
        },
        _ => {
            let group = match pid {
                0 => own.sessions.lock().group,
                _ => pid.checked_neg().and_then(Pid::named).ok_or(ESRCH)?,
            };
            &move |process| process.sessions.lock().group == group
        }
    };
    // One that could be sent to is success; otherwise the last error counts.
    let mut result = Err(ESRCH);
    for target in processes::all().filter(|process| chosen(process)) {
        let sent = send(&target, signal, |signal| from_caller(&target, signal, SI_USER));
        if result.is_err() {
            result = sent;
        }
    }
    result
}

fn task_by_id(tgid: Option<i32>, tid: i32) -> Result<Arc<Task>> {
    if tid <= 0 || tgid.is_some_and(|tgid| tgid <= 0) {
        return Err(EINVAL);
    }
    let tid = Pid::named(tid).ok_or(ESRCH)?;
    let task = match task::current().process.task(tid) {
        Some(task) => task,
        None => processes::task(tid).ok_or(ESRCH)?,
    };
    if tgid.is_some_and(|tgid| Pid::named(tgid) != Some(task.process.pid)) { Err(ESRCH) } else { Ok(task) }
}

fn send_one(task: &Task, signal: i32, info: impl FnOnce(i32) -> SigInfo) -> Result<usize> {
    let signal = number(signal)?;
    check_permission(&task.process, signal.unwrap_or(0))?;
    let is_blocked = |signal: i32| task.signals.blocked() & bit(signal) != 0;
    if let Some(signal) =
        signal.filter(|signal| !is_spared_by_caller(&task.process, *signal, is_blocked(*signal)))
    {
        send_to_task(task, info(signal))?;
    }
    Ok(0)
}

/// Sends to a thread, and nothing to one that has ended and is waited for, which is as good.
fn send_by_id(tgid: Option<i32>, tid: i32, signal: i32) -> Result<usize> {
    match task_by_id(tgid, tid) {
        Ok(task) => send_one(&task, signal, |signal| from_caller(&task.process, signal, SI_TKILL)),
        Err(ESRCH) if tgid.is_none_or(|tgid| tgid == tid) => {
            let zombie = processes::named(tid).ok_or(ESRCH)?;
            check_permission(&zombie, number(signal)?.unwrap_or(0)).map(|()| 0)
        }
        Err(e) => Err(e),
    }
}

/// tkill(2).
pub fn tkill(call: &mut Call<'_>) -> Result<usize> {
    send_by_id(None, call.int(0), call.int(1))
}

/// tgkill(2).
pub fn tgkill(call: &mut Call<'_>) -> Result<usize> {
    send_by_id(Some(call.int(0)), call.int(1), call.int(2))
}

/// Only the process itself may say that the kernel or kill(2) sent a signal.
pub fn check_code(info: &SigInfo, target: i32) -> Result<()> {
    let claims = info.code() >= 0 || info.code() == SI_TKILL;
    if claims && target != task::current().process.number { Err(EPERM) } else { Ok(()) }
}

/// rt_sigqueueinfo(2).
pub fn rt_sigqueueinfo(call: &mut Call<'_>) -> Result<usize> {
    let (pid, signal) = (call.int(0), call.int(1));
    let info = SigInfo::read(call.ptr(2), signal)?;
    check_code(&info, pid)?;
    let target = process_by_id(pid)?;
    send(&target, signal, |_| as_seen_by(info, &target))
}

/// rt_tgsigqueueinfo(2).
pub fn rt_tgsigqueueinfo(call: &mut Call<'_>) -> Result<usize> {
    let (tgid, tid, signal) = (call.int(0), call.int(1), call.int(2));
    let info = SigInfo::read(call.ptr(3), signal)?;
    if tgid <= 0 || tid <= 0 {
        return Err(EINVAL);
    }
    check_code(&info, tid)?;
    let target = task_by_id(Some(tgid), tid)?;
    send_one(&target, signal, |_| as_seen_by(info, &target.process))
}
