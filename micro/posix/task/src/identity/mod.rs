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

/// `EPERM` unless the caller may look into the process or change it (ptrace(2), "Ptrace access mode checking"): all of the process' ids are
/// the caller's, it is dumpable (PR_SET_DUMPABLE) and has no capability that the caller has not. Of each of the three CAP_SYS_PTRACE
/// takes the place: in the user namespace of the process, and for the second in that in which it began its program.
pub fn check_access(target: &Process, by: As) -> Result<()> {
    let own = &thread::current().process;
    if core::ptr::eq(&**own, target) {
        return Ok(());
    }
    let caller = thread::current().credentials().lock().clone();
    let (uid, gid, capabilities) = match by {
        As::Real => (caller.uid, caller.gid, caller.capabilities.permitted),
        As::Files => (caller.fsuid, caller.fsgid, caller.capabilities.effective),
    };
    let (is_seen, users, is_within) = {
        let theirs = target.credentials.lock();
        let has_no_more = theirs.users == caller.users && theirs.capabilities.permitted & !capabilities == 0;
        (caller.sees_into(&theirs), theirs.users.clone(), theirs.is_all(uid, gid) && has_no_more)
    };
    let is_within = is_within || caller.can_in(&users, CAP_SYS_PTRACE);
    let sees_secrets = || caller.can_in(&target.users_of_program(), CAP_SYS_PTRACE);
    let is_allowed = is_seen && is_within && (target.settings.lock().may_be_dumped() || sees_secrets());
    if is_allowed { Ok(()) } else { Err(EPERM) }
}
