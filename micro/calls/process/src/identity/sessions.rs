// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process groups and sessions (setpgid(2), credentials(7)). The first process leads both, as that of a container does.

use abi::{Result, errno::*};
use core::sync::atomic::Ordering;
use task::call::Call;
use task::identity::process_of;
use task::identity::sessions::Sessions;
use task::pids::Pid;
use task::process::Process;
use task::processes;
use task::signals::{SIGCONT, SIGHUP};

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
