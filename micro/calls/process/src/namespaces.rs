// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Namespaces that a thread makes (clone(2), unshare(2)) and enters (setns(2)).

use abi::{Result, errno::*};
use alloc::sync::Arc;
use task::call::Call;
use task::identity::capabilities::{CAP_SETFCAP, CAP_SYS_ADMIN, CAP_SYS_CHROOT};
use task::identity::{As, check_access};
use task::nsfs::{Entered, NamespaceFile};
use task::pids::PidNamespace;
use task::process::{Credentials, NsProxy, Process};
use task::users::{Kind, UserNamespace};
use task::{Task, cgroup, files, ipc, network};

pub const CLONE_NEWTIME: u64 = 0x80;
pub const CLONE_NEWNS: u64 = 0x2_0000;
pub const CLONE_NEWCGROUP: u64 = 0x200_0000;
pub const CLONE_NEWUTS: u64 = 0x400_0000;
pub const CLONE_NEWIPC: u64 = 0x800_0000;
pub const CLONE_NEWUSER: u64 = 0x1000_0000;
pub const CLONE_NEWPID: u64 = 0x2000_0000;
pub const CLONE_NEWNET: u64 = 0x4000_0000;
pub const NAMESPACES: u64 = CLONE_NEWTIME
    | CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET;

/// Namespaces of a new process or thread, or that a thread goes on in.
pub struct New {
    /// What it can do: with CLONE_NEWUSER, everything in its new user namespace.
    pub credentials: Credentials,
    /// Where it begins, or where its children will.
    pub pids: PidNamespace,
    pub nsproxy: Arc<NsProxy>,
}

impl New {
    /// What the flags ask for; what they do not is the caller's. `EPERM` for callers that may not have any but those of users, `EINVAL` for
    /// kinds that there are not.
    pub fn of(flags: u64) -> Result<New> {
        let task = task::current();
        let process = &task.process;
        let mut credentials = task.credentials().lock().clone();
        if flags & CLONE_NEWUSER != 0 {
            let users = new_users(&credentials)?;
            credentials.enter_users(users);
        }
        let owner = || credentials.users.clone();
        if flags & NAMESPACES & !CLONE_NEWUSER != 0 && !credentials.can_here(CAP_SYS_ADMIN) {
            return Err(EPERM);
        }
        let mut pids = task.pids_for_children.lock().clone();
        if flags & CLONE_NEWPID != 0 {
            if pids != process.pids {
                return Err(EINVAL);
            }
            pids = pids.nest(owner())?;
        }
        let mut nsproxy = task.nsproxy();
        if flags & CLONE_NEWUTS != 0 {
            let uts = nsproxy.uts.copy(owner())?;
            Arc::make_mut(&mut nsproxy).uts = uts;
        }
        if flags & CLONE_NEWIPC != 0 {
            Arc::make_mut(&mut nsproxy).ipc = ipc::empty(owner())?;
        }
        if flags & CLONE_NEWCGROUP != 0 {
            Arc::make_mut(&mut nsproxy).cgroup = cgroup::another(owner())?;
        }
        if flags & CLONE_NEWNET != 0 {
            Arc::make_mut(&mut nsproxy).network = network::another(owner())?;
        }
        if flags & CLONE_NEWTIME != 0 {
            let time = nsproxy.time_for_children.copy(owner())?;
            Arc::make_mut(&mut nsproxy).time_for_children = time;
        }
        Ok(New { credentials, pids, nsproxy })
    }
}

/// `EPERM` for a caller with another root directory than its mount namespace has, or whose ids its user namespace does not map.
fn new_users(maker: &Credentials) -> Result<UserNamespace> {
    let files = files::current();
    let is_chrooted = !Arc::ptr_eq(&files.root(), &files.namespace().root().topmost());
    let is_mapped = maker.users.from_machine(Kind::User, maker.euid).is_some()
        && maker.users.from_machine(Kind::Group, maker.egid).is_some();
    if is_chrooted || !is_mapped {
        return Err(EPERM);
    }
    task::fast::leave_ids_out();
    maker.users.nest(maker.euid, maker.can_here(CAP_SETFCAP))
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
        return enter(&namespace.of).map(|()| 0);
    }
    let target = crate::pidfd::process(call.int(0)).map_err(|_| EINVAL)?;
    if wanted == 0 || wanted & !NAMESPACES != 0 {
        return Err(EINVAL);
    }
    if target.family.is_zombie() {
        return Err(ESRCH);
    }
    check_access(&target, As::Real)?;
    let has = |flag| wanted & flag != 0;
    let nsproxy = target.nsproxy.lock().clone();
    let entered = Entered {
        users: has(CLONE_NEWUSER).then(|| target.credentials.lock().users.clone()),
        mounts: has(CLONE_NEWNS).then(|| target.files.namespace()),
        pids: has(CLONE_NEWPID).then(|| target.pids.clone()),
        uts: has(CLONE_NEWUTS).then(|| nsproxy.uts.clone()),
        ipc: has(CLONE_NEWIPC).then(|| nsproxy.ipc.clone()),
        cgroup: has(CLONE_NEWCGROUP).then(|| nsproxy.cgroup.clone()),
        network: has(CLONE_NEWNET).then(|| nsproxy.network.clone()),
        time: has(CLONE_NEWTIME).then(|| nsproxy.time.clone()),
    };
    enter(&entered).map(|()| 0)
}

/// Everything is checked before anything changes.
fn enter(into: &Entered) -> Result<()> {
    let task: &Task = &task::current();
    let process: &Arc<Process> = &task.process;
    // What it may now decides on all: whoever enters namespaces of users and others at once may not have anything to say about those
    // from within.
    let who = task.credentials().lock().clone();
    // Root and working directory change with users and mounts, and must be nobody else's.
    let has_own_position = !task.files().shares_position();
    if let Some(users) = &into.users {
        if *users == who.users || process.thread_count() > 1 || !has_own_position {
            return Err(EINVAL);
        }
        if !who.can_in(users, CAP_SYS_ADMIN) {
            return Err(EPERM);
        }
    }
    let users = into.users.as_ref().unwrap_or(&who.users);
    let is_privileged =
        |owner: &UserNamespace| who.can_in(owner, CAP_SYS_ADMIN) && who.can_in(users, CAP_SYS_ADMIN);
    if let Some(mounts) = &into.mounts {
        let owner = UserNamespace::of_owner(mounts.owner());
        if !is_privileged(&owner) || !who.can_in(users, CAP_SYS_CHROOT) {
            return Err(EPERM);
        }
        if !has_own_position {
            return Err(EINVAL);
        }
    }
    if let Some(pids) = &into.pids {
        if !is_privileged(&pids.owner()) {
            return Err(EPERM);
        }
        // Nobody leaves a namespace for one around it.
        if !process.pids.includes(pids) {
            return Err(EINVAL);
        }
    }
    let owners = [
        into.uts.as_ref().map(|uts| &uts.owner),
        into.ipc.as_ref().map(|ipc| &ipc.owner),
        into.cgroup.as_ref().map(|cgroup| &cgroup.owner),
        into.network.as_ref().map(|network| &network.owner),
    ];
    if !owners.into_iter().flatten().all(is_privileged) {
        return Err(EPERM);
    }
    if let Some(time) = &into.time {
        // Their clocks would jump.
        if process.thread_count() > 1 {
            return Err(EUSERS);
        }
        if !is_privileged(&time.owner) {
            return Err(EPERM);
        }
    }
    if let Some(users) = &into.users {
        let mut credentials = who.clone();
        credentials.enter_users(users.clone());
        task.set_credentials(credentials);
    }
    if let Some(mounts) = &into.mounts {
        task.files().enter_namespace(mounts.clone());
    }
    if let Some(pids) = &into.pids {
        task.set_pids_for_children(pids.clone());
    }
    #[cfg(feature = "sysv-ipc")]
    if into.ipc.is_some() {
        calls_ipc::sysv::semaphores::process_ends(process.pid.of_machine());
    }
    let now = task.nsproxy();
    task.set_nsproxy(Arc::new(NsProxy {
        uts: into.uts.as_ref().unwrap_or(&now.uts).clone(),
        ipc: into.ipc.as_ref().unwrap_or(&now.ipc).clone(),
        cgroup: into.cgroup.as_ref().unwrap_or(&now.cgroup).clone(),
        network: into.network.as_ref().unwrap_or(&now.network).clone(),
        time: into.time.as_ref().unwrap_or(&now.time).clone(),
        time_for_children: into.time.as_ref().unwrap_or(&now.time_for_children).clone(),
    }));
    if let Some(time) = &into.time {
        time.is_entered(&mem::current());
    }
    Ok(())
}
