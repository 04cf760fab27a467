// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setns(2): into the namespace behind a descriptor. There are several mount and UTS namespaces; of every other kind there is one,
//! which everybody is in already.

use crate::call::Call;
use crate::calls::identity::{As, check_access};
use crate::files;
use crate::proc::NamespaceFile;
use crate::process::Process;
use crate::task;
use crate::uts::Uts;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use vfs::{Capability, Namespace};

pub const CLONE_NEWNS: u64 = 0x2_0000;
pub const CLONE_NEWUTS: u64 = 0x400_0000;
pub const CLONE_NEWUSER: u64 = 0x1000_0000;
/// CLONE_NEWTIME, _NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET.
pub const NAMESPACES: u64 = 0x80 | CLONE_NEWNS | 0x7e00_0000;

/// New namespaces can be had of mounts and names only: `EPERM` for callers that may not have any but those of users, `EINVAL` as from
/// a Linux without the others.
pub fn check_new(flags: u64) -> Result<()> {
    if flags & NAMESPACES == 0 {
        return Ok(());
    }
    let privileged = files::credentials().has(Capability::SysAdmin);
    if !privileged && flags & NAMESPACES & !CLONE_NEWUSER != 0 {
        return Err(EPERM);
    }
    if flags & NAMESPACES & !(CLONE_NEWNS | CLONE_NEWUTS) != 0 { Err(EINVAL) } else { Ok(()) }
}

/// setns(2).
pub fn setns(call: &mut Call<'_>) -> Result<usize> {
    let wanted = u64::from(call.uint(1));
    let description = files::get(call.int(0))?;
    let file = description.file().as_any();
    if let Some(namespace) = file.downcast_ref::<NamespaceFile>() {
        if wanted != 0 && wanted != namespace.flag() {
            return Err(EINVAL);
        }
        return enter(namespace.flag(), &namespace.of).map(|()| 0);
    }
    let target = super::pidfd::process(call.int(0)).map_err(|_| EINVAL)?;
    if wanted == 0 || wanted & !NAMESPACES != 0 {
        return Err(EINVAL);
    }
    if target.family.is_zombie() {
        return Err(ESRCH);
    }
    check_access(&target, As::Real)?;
    let entered = Entered {
        mounts: (wanted & CLONE_NEWNS != 0).then(|| target.files.namespace()),
        uts: (wanted & CLONE_NEWUTS != 0).then(|| target.uts()),
    };
    enter(wanted, &entered).map(|()| 0)
}

/// Namespaces of the kinds of which there are several.
#[derive(Clone, Default)]
pub struct Entered {
    pub mounts: Option<Arc<Namespace>>,
    pub uts: Option<Arc<Uts>>,
}

fn enter(kinds: u64, into: &Entered) -> Result<()> {
    let process: &Arc<Process> = &task::current().process;
    if kinds & CLONE_NEWUSER != 0 {
        // The caller is in it.
        return Err(EINVAL);
    }
    let who = files::credentials();
    if !who.has(Capability::SysAdmin) {
        return Err(EPERM);
    }
    if let Some(mounts) = &into.mounts {
        if !who.has(Capability::SysChroot) {
            return Err(EPERM);
        }
        // Root and working directory change, and must be nobody else's.
        if process.thread_count() > 1 || process.files.shares_position() {
            return Err(EINVAL);
        }
        process.files.enter_namespace(mounts.clone());
    }
    if let Some(uts) = &into.uts {
        process.set_uts(uts.clone());
    }
    Ok(())
}
