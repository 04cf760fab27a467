// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending: kill(2), tkill(2), tgkill(2), rt_sigqueueinfo(2), rt_tgsigqueueinfo(2).

use super::info::{SI_TKILL, SI_USER, SigInfo};
use super::set::SIGNALS;
use super::state::{send_to_process, send_to_task};
use crate::call::Call;
use crate::process::Process;
use crate::task::{self, Task};
use abi::{Result, errno::*};
use alloc::sync::Arc;

/// The signal number; `None` for 0, which only asks whether there is somebody to send to.
fn number(signal: i32) -> Result<Option<i32>> {
    match signal {
        0 => Ok(None),
        1..=SIGNALS => Ok(Some(signal)),
        _ => Err(EINVAL),
    }
}

fn from_caller(signal: i32, code: i32) -> SigInfo {
    let process = &task::current().process;
    SigInfo::from_process(signal, code, process.pid, process.credentials.lock().uid)
}

fn send(process: &Process, signal: i32, info: impl FnOnce(i32) -> SigInfo) -> Result<usize> {
    if let Some(signal) = number(signal)? {
        send_to_process(process, info(signal))?;
    }
    Ok(0)
}

/// The process with this id, which may be that of any of its threads.
fn process_by_id(pid: i32) -> Result<&'static Arc<Process>> {
    let process = &task::current().process;
    let is_ours = pid == process.pid || process.task(pid).is_some();
    if is_ours { Ok(process) } else { Err(ESRCH) }
}

/// kill(2).
pub fn kill(call: &mut Call<'_>) -> Result<usize> {
    let (pid, signal) = (call.int(0), call.int(1));
    let process = &task::current().process;
    let group = process.sessions.lock().group;
    let target = match pid {
        1.. => process_by_id(pid)?,
        0 => process,
        // All processes but the first and the caller, and here there are no others.
        -1 => return Err(ESRCH),
        _ if pid.checked_neg() == Some(group) => process,
        _ => return Err(ESRCH),
    };
    send(target, signal, |signal| from_caller(signal, SI_USER))
}

fn task_by_id(tgid: Option<i32>, tid: i32) -> Result<Arc<Task>> {
    if tid <= 0 || tgid.is_some_and(|tgid| tgid <= 0) {
        return Err(EINVAL);
    }
    let process = &task::current().process;
    if tgid.is_some_and(|tgid| tgid != process.pid) {
        return Err(ESRCH);
    }
    process.task(tid).ok_or(ESRCH)
}

fn send_one(task: &Task, signal: i32, info: impl FnOnce(i32) -> SigInfo) -> Result<usize> {
    if let Some(signal) = number(signal)? {
        send_to_task(task, info(signal))?;
    }
    Ok(0)
}

/// tkill(2).
pub fn tkill(call: &mut Call<'_>) -> Result<usize> {
    let task = task_by_id(None, call.int(0))?;
    send_one(&task, call.int(1), |signal| from_caller(signal, SI_TKILL))
}

/// tgkill(2).
pub fn tgkill(call: &mut Call<'_>) -> Result<usize> {
    let task = task_by_id(Some(call.int(0)), call.int(1))?;
    send_one(&task, call.int(2), |signal| from_caller(signal, SI_TKILL))
}

/// Only the process itself may say that the kernel or kill(2) sent a signal.
fn check_code(info: &SigInfo, target: i32) -> Result<()> {
    let claims = info.code() >= 0 || info.code() == SI_TKILL;
    if claims && target != task::current().process.pid { Err(EPERM) } else { Ok(()) }
}

/// rt_sigqueueinfo(2).
pub fn rt_sigqueueinfo(call: &mut Call<'_>) -> Result<usize> {
    let (pid, signal) = (call.int(0), call.int(1));
    let info = SigInfo::read(call.ptr(2), signal)?;
    check_code(&info, pid)?;
    send(process_by_id(pid)?, signal, |_| info)
}

/// rt_tgsigqueueinfo(2).
pub fn rt_tgsigqueueinfo(call: &mut Call<'_>) -> Result<usize> {
    let (tgid, tid, signal) = (call.int(0), call.int(1), call.int(2));
    let info = SigInfo::read(call.ptr(3), signal)?;
    if tgid <= 0 || tid <= 0 {
        return Err(EINVAL);
    }
    check_code(&info, tid)?;
    send_one(&*task_by_id(Some(tgid), tid)?, signal, |_| info)
}
