// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending signals as a process that may or may not (kill(2)).

use super::action::SIG_DFL;
use super::info::SigInfo;
use super::set::{SIGCONT, SIGKILL, SIGNALS, SIGSTOP, bit};
use super::state::send_to_process;
use crate::identity::capabilities::CAP_KILL;
use crate::pids::Pid;
use crate::process::Process;
use crate::thread;
use abi::{Result, errno::*};
use core::sync::atomic::{AtomicBool, Ordering};

/// Sends as kill(2) does, or only asks whether the caller could.
pub fn send(process: &Process, signal: i32, info: impl FnOnce(i32) -> SigInfo) -> Result<usize> {
    let signal = number(signal)?;
    check_permission(process, signal.unwrap_or(0))?;
    let is_blocked = |signal: i32| process.tasks().all(|task| task.signals.blocked() & bit(signal) != 0);
    if let Some(signal) = signal.filter(|signal| !is_spared_by_caller(process, *signal, is_blocked(*signal)))
    {
        send_to_process(process, info(signal))?;
    }
    Ok(0)
}

/// `EPERM` unless the caller may send the signal to the process (kill(2)).
pub fn check_permission(target: &Process, signal: i32) -> Result<()> {
    let sender = &thread::current().process;
    if core::ptr::eq(&**sender, target) {
        return Ok(());
    }
    if signal == SIGCONT && sender.sessions.lock().session == target.sessions.lock().session {
        return Ok(());
    }
    let users = target.credentials.lock().users.clone();
    let (uid, euid) = {
        let sender = thread::current();
        let c = sender.credentials().lock();
        if c.can_in(&users, CAP_KILL) {
            return Ok(());
        }
        (c.uid, c.euid)
    };
    if is_users(target, uid, euid) { Ok(()) } else { Err(EPERM) }
}

/// The process is that of a sender's user, so that it may be sent a signal (kill(2)).
pub fn is_users(target: &Process, uid: u32, euid: u32) -> bool {
    let theirs = target.credentials.lock();
    [uid, euid].iter().any(|id| [theirs.uid, theirs.suid].contains(id))
}

/// Another process cannot make the first one of a PID namespace do what a signal does that it has no handler for (Linux'
/// SIGNAL_UNKILLABLE): the namespace, or the machine, would go with it.
pub fn is_spared(target: &Process, signal: i32) -> bool {
    target.is_first() && target.signals.action(signal).handler == SIG_DFL
}

/// Whether the machine's first process is spared as well, as that of a container is that has a PID namespace of its own.
static SPARES_MACHINES: AtomicBool = AtomicBool::new(false);

/// From now on the machine's first process is one of a PID namespace that others are around: the engine that made the container.
pub fn spare_machines_first() {
    SPARES_MACHINES.store(true, Ordering::Relaxed);
}

/// Whether a first process has no default actions for signals: that of a machine that is no container has them, for it is asked to end by
/// them.
pub fn may_be_spared(process: &Process) -> bool {
    process.pid != Pid::FIRST || SPARES_MACHINES.load(Ordering::Relaxed)
}

/// The signal number; `None` for 0, which only asks whether there is somebody to send to.
pub fn number(signal: i32) -> Result<Option<i32>> {
    match signal {
        0 => Ok(None),
        1..=SIGNALS => Ok(Some(signal)),
        _ => Err(EINVAL),
    }
}

/// The same for a signal that the caller sends: SIGKILL and SIGSTOP come from outside of the namespace all the same, and the first process
/// of a machine that is no container may end itself.
pub fn is_spared_by_caller(target: &Process, signal: i32, is_blocked: bool) -> bool {
    let sender = &thread::current().process;
    let is_from_outside = sender.pid.seen_by(target) == 0 && [SIGKILL, SIGSTOP].contains(&signal);
    // What is blocked waits: there may be a handler when it is delivered.
    let waits = is_blocked && may_be_spared(target);
    may_be_spared(sender) && !is_from_outside && !waits && is_spared(target, signal)
}
