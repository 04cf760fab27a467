// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that read and change user and group ids. All threads share them, as POSIX wants (the kernel of Linux
//! changes one thread's; the C library then does the others).

use super::capabilities::CAP_SETGID;
use super::credentials::Credentials;
use crate::call::Call;
use crate::task;
use abi::{Result, errno::*};
use api_lock::Guard;

/// Most supplementary groups (NGROUPS_MAX).
const MOST_GROUPS: u32 = 65_536;

fn credentials() -> Guard<'static, Credentials> {
    task::current().credentials().lock()
}

/// Changes who the process is, as Linux' `commit_creds` does.
fn change<R>(change: impl FnOnce(&mut Credentials) -> R) -> R {
    let (result, is_another) = {
        let mut credentials = credentials();
        let before = credentials.clone();
        let result = change(&mut credentials);
        (result, !credentials.is_within(&before))
    };
    if is_another {
        task::current().process.settings.lock().ids_change();
    }
    result
}

/// getuid(2).
pub fn getuid(_: &mut Call<'_>) -> Result<usize> {
    Ok(credentials().uid as usize)
}

/// geteuid(2).
pub fn geteuid(_: &mut Call<'_>) -> Result<usize> {
    Ok(credentials().euid as usize)
}

/// getgid(2).
pub fn getgid(_: &mut Call<'_>) -> Result<usize> {
    Ok(credentials().gid as usize)
}

/// getegid(2).
pub fn getegid(_: &mut Call<'_>) -> Result<usize> {
    Ok(credentials().egid as usize)
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
        let c = credentials();
        [c.uid, c.euid, c.suid]
    };
    write_three(call, ids)
}

/// getresgid(2).
pub fn getresgid(call: &mut Call<'_>) -> Result<usize> {
    let ids = {
        let c = credentials();
        [c.gid, c.egid, c.sgid]
    };
    write_three(call, ids)
}

/// setuid(2).
pub fn setuid(call: &mut Call<'_>) -> Result<usize> {
    change(|c| c.setuid(call.uint(0))).map(|()| 0)
}

/// setgid(2).
pub fn setgid(call: &mut Call<'_>) -> Result<usize> {
    change(|c| c.setgid(call.uint(0))).map(|()| 0)
}

/// setreuid(2).
pub fn setreuid(call: &mut Call<'_>) -> Result<usize> {
    change(|c| c.setreuid(call.uint(0), call.uint(1))).map(|()| 0)
}

/// setregid(2).
pub fn setregid(call: &mut Call<'_>) -> Result<usize> {
    change(|c| c.setregid(call.uint(0), call.uint(1))).map(|()| 0)
}

/// setresuid(2).
pub fn setresuid(call: &mut Call<'_>) -> Result<usize> {
    change(|c| c.setresuid([call.uint(0), call.uint(1), call.uint(2)])).map(|()| 0)
}

/// setresgid(2).
pub fn setresgid(call: &mut Call<'_>) -> Result<usize> {
    change(|c| c.setresgid([call.uint(0), call.uint(1), call.uint(2)])).map(|()| 0)
}

/// setfsuid(2).
pub fn setfsuid(call: &mut Call<'_>) -> Result<usize> {
    Ok(change(|c| c.setfsuid(call.uint(0))) as usize)
}

/// setfsgid(2).
pub fn setfsgid(call: &mut Call<'_>) -> Result<usize> {
    Ok(change(|c| c.setfsgid(call.uint(0))) as usize)
}

/// getgroups(2).
pub fn getgroups(call: &mut Call<'_>) -> Result<usize> {
    let room = usize::try_from(call.int(0)).map_err(|_| EINVAL)?;
    let groups = credentials().groups.clone();
    if room != 0 {
        if groups.len() > room {
            return Err(EINVAL);
        }
        call.ptr(1).write_slice(&groups)?;
    }
    Ok(groups.len())
}

/// setgroups(2).
pub fn setgroups(call: &mut Call<'_>) -> Result<usize> {
    if !credentials().can(CAP_SETGID) {
        return Err(EPERM);
    }
    let count = call.uint(0);
    if count > MOST_GROUPS {
        return Err(EINVAL);
    }
    let mut groups = call.ptr::<u32>(1).read_vec(count as usize)?;
    if groups.contains(&u32::MAX) {
        return Err(EINVAL);
    }
    // Linux keeps and shows them sorted.
    groups.sort_unstable();
    credentials().groups = groups.into();
    Ok(0)
}
