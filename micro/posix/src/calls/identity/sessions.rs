// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process groups and sessions (setpgid(2), credentials(7)). The first process leads both, as that of a container does.

use super::process_of;
use crate::call::Call;
use crate::calls::signals::{self, SIGCONT, SIGHUP, SigInfo};
use crate::pids::Pid;
use crate::process::Process;
use crate::{processes, task};
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::sync::atomic::Ordering;

/// What a process belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Sessions {
    pub group: Pid,
    pub session: Pid,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { group: Pid::FIRST, session: Pid::FIRST }
    }
}

impl Process {
    /// Puts it into a group and session; their numbers stay in use as long as somebody is in them.
    fn join(&self, new: Sessions) {
        let old = core::mem::replace(&mut *self.sessions.lock(), new);
        [new.group, new.session].into_iter().for_each(processes::retain);
        [old.group, old.session].into_iter().for_each(processes::release);
    }

    /// It began its session.
    pub fn leads_session(&self) -> bool {
        self.sessions.lock().session == self.pid
    }
}

/// getpgrp(2).
pub fn getpgrp(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.sessions.lock().group.here() as usize)
}

/// getpgid(2).
pub fn getpgid(call: &mut Call<'_>) -> Result<usize> {
    Ok(process_of(call.int(0))?.sessions.lock().group.here() as usize)
}

/// getsid(2).
pub fn getsid(call: &mut Call<'_>) -> Result<usize> {
    Ok(process_of(call.int(0))?.sessions.lock().session.here() as usize)
}

/// setpgid(2).
pub fn setpgid(call: &mut Call<'_>) -> Result<usize> {
    let (pid, group) = (call.int(0), call.int(1));
    if group < 0 || (group == 0 && pid < 0) {
        return Err(EINVAL);
    }
    let own = &task::current().process;
    let target = match pid {
        0 => own.clone(),
        pid if pid == own.number => own.clone(),
        pid => processes::named(pid).ok_or(ESRCH)?,
    };
    // A number that nobody has is no group of the session.
    let group = if group == 0 { target.pid } else { Pid::named(group).ok_or(EPERM)? };
    let before = *target.sessions.lock();
    if target.pid != own.pid {
        if target.family.parent() != own.pid {
            return Err(ESRCH);
        }
        if before.session != own.sessions.lock().session {
            return Err(EPERM);
        }
        if target.family.has_run_program.load(Ordering::Relaxed) {
            return Err(EACCES);
        }
    }
    if before.session == target.pid {
        return Err(EPERM);
    }
    let is_there = |member: &Process| member.sessions.lock().session == before.session;
    if group != target.pid && !processes::of_group(group).any(|member| is_there(&member)) {
        return Err(EPERM);
    }
    target.join(Sessions { group, ..before });
    Ok(0)
}

/// setsid(2).
pub fn setsid(_: &mut Call<'_>) -> Result<usize> {
    let process = &task::current().process;
    let pid = process.pid;
    // A group of that number may outlast whoever led it.
    if processes::of_group(pid).next().is_some() {
        return Err(EPERM);
    }
    process.join(Sessions { group: pid, session: pid });
    Ok(process.number as usize)
}

/// The leader of a session ends: its terminal hangs up.
pub fn leader_ends(process: &Process) {
    if process.leads_session()
        && let Some((_, control)) = devfs::terminal_of(process.pid.of_machine())
    {
        devfs::session_ends(process.pid.of_machine());
        control.signal(SIGHUP);
        control.signal(SIGCONT);
    }
}

/// The groups that somebody could continue so far and that may lose this process as the last who could: its own and its
/// children's. To be asked before the children have another parent.
pub fn groups_at_risk(process: &Process) -> Vec<Pid> {
    let own = *process.sessions.lock();
    let mut groups = Vec::new();
    // A group that there is no memory to note is told nothing.
    let add = |groups: &mut Vec<Pid>, group| {
        if groups.reserve_fallibly(1).is_ok() {
            groups.push(group);
        }
    };
    add(&mut groups, own.group);
    for child in process.family.children.lock().iter() {
        let theirs = *child.sessions.lock();
        if theirs.session == own.session && !groups.contains(&theirs.group) {
            add(&mut groups, theirs.group);
        }
    }
    groups.retain(|group| !processes::is_orphaned(*group, None));
    groups
}

/// The process has ended and its children have their new parent, who may be one that can continue them: groups that nobody
/// is left to continue hear of it when one of their processes is stopped (POSIX, _exit(), "Consequences of Process
/// Termination").
pub fn tell_orphaned(process: &Process, groups: &[Pid]) {
    for group in groups.iter().copied() {
        let stopped = processes::of_group(group).any(|m| m.pid != process.pid && m.signals.is_stopped());
        if stopped && processes::is_orphaned(group, Some(process.pid)) {
            for member in processes::of_group(group).filter(|member| member.pid != process.pid) {
                for signal in [SIGHUP, SIGCONT] {
                    // A standard signal is never refused.
                    let _ = signals::send_to_process(&member, SigInfo::from_kernel(signal));
                }
            }
        }
    }
}
