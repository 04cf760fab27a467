// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process groups and sessions. The program leads both, as the first process of a container does.

use super::check_own;
use crate::call::Call;
use crate::process::FIRST_PID;
use crate::task;
use abi::{Result, errno::*};

/// What a process belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Sessions {
    pub group: i32,
    pub session: i32,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { group: FIRST_PID, session: FIRST_PID }
    }
}

/// getpgrp(2).
pub fn getpgrp(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.sessions.lock().group as usize)
}

/// getpgid(2).
pub fn getpgid(call: &mut Call<'_>) -> Result<usize> {
    check_own(call.int(0))?;
    getpgrp(call)
}

/// getsid(2).
pub fn getsid(call: &mut Call<'_>) -> Result<usize> {
    check_own(call.int(0))?;
    Ok(task::current().process.sessions.lock().session as usize)
}

/// setpgid(2).
pub fn setpgid(call: &mut Call<'_>) -> Result<usize> {
    let (pid, group) = (call.int(0), call.int(1));
    let group = if group == 0 { pid } else { group };
    if group < 0 {
        return Err(EINVAL);
    }
    let process = &task::current().process;
    if pid != 0 && pid != process.pid {
        return Err(ESRCH);
    }
    let mut sessions = process.sessions.lock();
    if sessions.session == process.pid {
        return Err(EPERM);
    }
    let group = if group == 0 { process.pid } else { group };
    if group != process.pid && group != sessions.group {
        return Err(EPERM);
    }
    sessions.group = group;
    Ok(0)
}

/// setsid(2).
pub fn setsid(_: &mut Call<'_>) -> Result<usize> {
    let process = &task::current().process;
    let mut sessions = process.sessions.lock();
    if sessions.group == process.pid {
        return Err(EPERM);
    }
    *sessions = Sessions { group: process.pid, session: process.pid };
    Ok(process.pid as usize)
}
