// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who a process is, and what that permits.

pub mod capabilities;
pub mod credentials;
pub mod file_capabilities;
pub mod sessions;

use crate::pids::Pid;
use crate::process::Process;
use crate::{processes, thread};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use capabilities::CAP_SYS_PTRACE;

// SPDX-License-Identifier: Apache-2.0 OR MIT
/// The process of that id, which may be that of any of its threads; 0 is the caller's. `ESRCH` when there is none.
pub fn process_of(id: i32) -> Result<Arc<Process>> {
    let own = &thread::current().process;
    if id == 0 || id == own.number {
        return Ok(own.clone());
    }
    let pid = Pid::named(id).ok_or(ESRCH)?;
    if own.task(pid).is_some() { Ok(own.clone()) } else { processes::with_thread(pid).ok_or(ESRCH) }
}

/// Which of the caller's ids and capabilities count (ptrace(2), "Ptrace access mode checking").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// Of a system call: PTRACE_MODE_REALCREDS.
    Real,
    /// Of a file below /proc: PTRACE_MODE_FSCREDS.
    Files,
}

/// `EPERM` unless the caller may look into the process or change it: it has CAP_SYS_PTRACE, or all of the process' ids are
/// the caller's, it is dumpable (PR_SET_DUMPABLE) and has no capability that the caller has not.
pub fn check_access(target: &Process, by: As) -> Result<()> {
    let own = &thread::current().process;
    if core::ptr::eq(&**own, target) {
        return Ok(());
    }
    let caller = thread::current().credentials().lock().clone();
    let users = {
        let theirs = target.credentials.lock();
        if !caller.sees_into(&theirs) {
            return Err(EPERM);
        }
        theirs.users.clone()
    };
    if caller.can_in(&users, CAP_SYS_PTRACE) {
        return Ok(());
    }
    let (uid, gid, capabilities) = match by {
        As::Real => (caller.uid, caller.gid, caller.capabilities.permitted),
        As::Files => (caller.fsuid, caller.fsgid, caller.capabilities.effective),
    };
    let is_within = {
        let theirs = target.credentials.lock();
        users == caller.users && theirs.is_all(uid, gid) && theirs.capabilities.permitted & !capabilities == 0
    };
    if is_within && target.settings.lock().may_be_dumped() { Ok(()) } else { Err(EPERM) }
}
