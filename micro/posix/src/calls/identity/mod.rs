// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who the program is: process and thread ids, sessions, users and groups, capabilities.

pub mod capabilities;
pub mod credentials;
pub mod sessions;
pub mod users;

use crate::call::Call;
use crate::process::Process;
use crate::{processes, task};
use abi::{Result, errno::*};
use alloc::sync::Arc;

/// getpid(2).
pub fn getpid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.pid as usize)
}

/// getppid(2): 0 for process 1, which has no parent.
pub fn getppid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.family.parent() as usize)
}

/// gettid(2).
pub fn gettid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().tid as usize)
}

/// The process of that id, which may be that of any of its threads; 0 is the caller's. `ESRCH` when there is none.
pub fn process_of(id: i32) -> Result<Arc<Process>> {
    let own = &task::current().process;
    if id == 0 || id == own.pid || own.task(id).is_some() {
        return Ok(own.clone());
    }
    processes::with_thread(id).ok_or(ESRCH)
}

/// `EPERM` unless the caller may look into the process or change it: all of its ids are the caller's real ones and it is
/// dumpable (PR_SET_DUMPABLE), or the caller may with `capability` (ptrace(2), "Ptrace access mode checking", with real ids).
pub fn check_access(target: &Process, capability: u32) -> Result<()> {
    let own = &task::current().process;
    if core::ptr::eq(&**own, target) {
        return Ok(());
    }
    let (uid, gid, may) = {
        let c = task::current().credentials().lock();
        (c.uid, c.gid, c.can(capability))
    };
    let c = target.credentials.lock();
    let same = [c.uid, c.euid, c.suid] == [uid; 3] && [c.gid, c.egid, c.sgid] == [gid; 3];
    let dumpable = target.settings.lock().may_be_dumped();
    if (same && dumpable) || may { Ok(()) } else { Err(EPERM) }
}
