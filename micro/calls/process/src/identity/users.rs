// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that read and change user and group ids. All threads share them, as POSIX wants (the kernel of Linux
//! changes one thread's; the C library then does the others).

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use task::call::Call;
use task::identity::capabilities::CAP_SETGID;
use task::identity::credentials::Credentials;
use task::users::{self, Kind};

/// Most supplementary groups (NGROUPS_MAX).
const MAX_GROUPS: u32 = 65_536;

/// Changes who the process is, as Linux' `commit_creds` does.
fn change<R>(change: impl FnOnce(&mut Credentials) -> R) -> R {
    let (result, is_another) = {
        let caller = task::current();
        let mut credentials = caller.credentials().lock();
        let before = credentials.clone();
        let result = change(&mut credentials);
        credentials.ids_changed_from(&before);
        (result, !credentials.is_within(&before))
    };
    if is_another {
        task::current().ids_change();
    }
    result
}

/// getuid(2).
pub fn getuid(_: &mut Call<'_>) -> Result<usize> {
    let caller = task::current();
    let c = caller.credentials().lock();
    Ok(c.users.shown_user(c.uid) as usize)
}

/// geteuid(2).
pub fn geteuid(_: &mut Call<'_>) -> Result<usize> {
    let caller = task::current();
    let c = caller.credentials().lock();
    Ok(c.users.shown_user(c.euid) as usize)
}

/// getgid(2).
pub fn getgid(_: &mut Call<'_>) -> Result<usize> {
    let caller = task::current();
    let c = caller.credentials().lock();
    Ok(c.users.shown_group(c.gid) as usize)
}

/// getegid(2).
pub fn getegid(_: &mut Call<'_>) -> Result<usize> {
    let caller = task::current();
    let c = caller.credentials().lock();
    Ok(c.users.shown_group(c.egid) as usize)
}

/// The machine's id of one that a program names; the one that means to leave it is none.
fn named(kind: Kind, id: u32) -> Result<u32> {
    if id == u32::MAX { Ok(id) } else { users::named(kind, id) }
}

fn user(uid: u32) -> Result<u32> {
    named(Kind::User, uid)
}

fn group(gid: u32) -> Result<u32> {
    named(Kind::Group, gid)
}

fn write_three(call: &Call<'_>, ids: [u32; 3]) -> Result<usize> {
    for (i, id) in ids.into_iter().enumerate() {
        call.ptr(i).write(id)?;
    }
    Ok(0)
}

/// getresuid(2).
pub fn getresuid(call: &mut Call<'_>) -> Result<usize> {
    let ids = {
        let caller = task::current();
        let c = caller.credentials().lock();
        [c.uid, c.euid, c.suid].map(|uid| c.users.shown_user(uid))
    };
    write_three(call, ids)
}

/// getresgid(2).
pub fn getresgid(call: &mut Call<'_>) -> Result<usize> {
    let ids = {
        let caller = task::current();
        let c = caller.credentials().lock();
        [c.gid, c.egid, c.sgid].map(|gid| c.users.shown_group(gid))
    };
    write_three(call, ids)
}

/// setuid(2).
pub fn setuid(call: &mut Call<'_>) -> Result<usize> {
    let id = user(call.uint(0))?;
    change(|c| c.setuid(id)).map(|()| 0)
}

/// setgid(2).
pub fn setgid(call: &mut Call<'_>) -> Result<usize> {
    let id = group(call.uint(0))?;
    change(|c| c.setgid(id)).map(|()| 0)
}

/// setreuid(2).
pub fn setreuid(call: &mut Call<'_>) -> Result<usize> {
    let (real, effective) = (user(call.uint(0))?, user(call.uint(1))?);
    change(|c| c.setreuid(real, effective)).map(|()| 0)
}

/// setregid(2).
pub fn setregid(call: &mut Call<'_>) -> Result<usize> {
    let (real, effective) = (group(call.uint(0))?, group(call.uint(1))?);
    change(|c| c.setregid(real, effective)).map(|()| 0)
}

/// setresuid(2).
pub fn setresuid(call: &mut Call<'_>) -> Result<usize> {
    let ids = [user(call.uint(0))?, user(call.uint(1))?, user(call.uint(2))?];
    change(|c| c.setresuid(ids)).map(|()| 0)
}

/// setresgid(2).
pub fn setresgid(call: &mut Call<'_>) -> Result<usize> {
    let ids = [group(call.uint(0))?, group(call.uint(1))?, group(call.uint(2))?];
    change(|c| c.setresgid(ids)).map(|()| 0)
}

/// setfsuid(2).
pub fn setfsuid(call: &mut Call<'_>) -> Result<usize> {
    // An id that there is not changes nothing.
    let id = user(call.uint(0)).unwrap_or(u32::MAX);
    Ok(change(|c| {
        let before = c.setfsuid(id);
        c.users.shown_user(before)
    }) as usize)
}

/// setfsgid(2).
pub fn setfsgid(call: &mut Call<'_>) -> Result<usize> {
    // An id that there is not changes nothing.
    let id = group(call.uint(0)).unwrap_or(u32::MAX);
    Ok(change(|c| {
        let before = c.setfsgid(id);
        c.users.shown_group(before)
    }) as usize)
}

/// getgroups(2).
pub fn getgroups(call: &mut Call<'_>) -> Result<usize> {
    let room = usize::try_from(call.int(0)).map_err(|_| EINVAL)?;
    let (groups, users) = {
        let caller = task::current();
        let c = caller.credentials().lock();
        (c.groups.clone(), c.users.clone())
    };
    if room != 0 {
        if groups.len() > room {
            return Err(EINVAL);
        }
        for (i, gid) in groups.iter().enumerate() {
            call.ptr(1).add(i as u64).write(users.shown_group(*gid))?;
        }
    }
    Ok(groups.len())
}

/// setgroups(2).
pub fn setgroups(call: &mut Call<'_>) -> Result<usize> {
    let (users, may) = {
        let caller = task::current();
        let c = caller.credentials().lock();
        (c.users.clone(), c.can_here(CAP_SETGID))
    };
    // Who gives up a group that is refused something must not win by it.
    if !may || !users.allows_setgroups() || !users.is_mapped(Kind::Group) {
        return Err(EPERM);
    }
    let count = call.uint(0);
    if count > MAX_GROUPS {
        return Err(EINVAL);
    }
    let list = call.ptr::<u32>(1);
    let mut groups = Vec::new();
    groups.reserve_exact_fallibly(count as usize).map_err(|_| ENOMEM)?;
    for i in 0..count.into() {
        // One that is none comes before the end of the program's memory.
        groups.push(users.to_machine(Kind::Group, list.add(i).read()?).ok_or(EINVAL)?);
    }
    task::current().credentials().lock().groups = groups.into();
    Ok(0)
}
