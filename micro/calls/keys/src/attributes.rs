// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keyctl(2) changes of one key.

use crate::own::{How, find, who};
use crate::read_data;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use keys::{Need, Serial, permission, table};
use task::call::Call;
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::users::Kind;

fn is_admin() -> bool {
    task::current().credentials().lock().can(CAP_SYS_ADMIN)
}

/// KEYCTL_UPDATE.
pub fn update(call: &Call<'_>) -> Result<usize> {
    let length = call.size(3);
    if length > abi::PAGE_SIZE {
        return Err(EINVAL);
    }
    let data = if length == 0 { Vec::new() } else { read_data(call.arg(2), length)? };
    let at = find(call.int(1), How::USABLE, Need::Write)?;
    table().update(at, &who(), data)?;
    Ok(0)
}

/// KEYCTL_REVOKE.
pub fn revoke(id: Serial) -> Result<usize> {
    let at = match find(id, How::USABLE, Need::Write) {
        Err(EACCES) => find(id, How::USABLE, Need::SetAttributes),
        found => found,
    }?;
    table().revoke(at.serial)?;
    Ok(0)
}

/// KEYCTL_INVALIDATE.
pub fn invalidate(id: Serial) -> Result<usize> {
    let at = find(id, How::USABLE, Need::Search)?;
    table().invalidate(at.serial)?;
    Ok(0)
}

/// KEYCTL_CHOWN. Another user, or a group that the caller is not in, takes CAP_SYS_ADMIN.
pub fn chown(id: Serial, uid: u32, gid: u32) -> Result<usize> {
    const KEEP: u32 = u32::MAX;
    let users = task::users::here();
    let named = |kind, id: u32| match id {
        KEEP => Ok(None),
        _ => users.to_machine(kind, id).map(Some).ok_or(EINVAL),
    };
    let (uid, gid) = (named(Kind::User, uid)?, named(Kind::Group, gid)?);
    if uid.is_none() && gid.is_none() {
        return Ok(0);
    }
    let at = find(id, How::ANY, Need::SetAttributes)?;
    let (owner, group) = {
        let table = table();
        let key = table.get(at.serial)?;
        (key.uid, key.gid)
    };
    let is_member = |gid: u32| task::current().credentials().lock().in_group(gid);
    let takes_admin =
        uid.is_some_and(|uid| uid != owner) || gid.is_some_and(|gid| gid != group && !is_member(gid));
    if takes_admin && !is_admin() {
        return Err(EACCES);
    }
    table().chown(at.serial, uid, gid)?;
    Ok(0)
}

/// KEYCTL_SETPERM, of the key's user or with CAP_SYS_ADMIN.
pub fn set_permissions(id: Serial, permissions: u32) -> Result<usize> {
    if permissions & !permission::ALL != 0 {
        return Err(EINVAL);
    }
    let at = find(id, How::ANY, Need::SetAttributes)?;
    let owner = table().get(at.serial)?.uid;
    if owner != who().fsuid && !is_admin() {
        return Err(EACCES);
    }
    table().set_permissions(at.serial, permissions)?;
    Ok(0)
}

/// KEYCTL_SET_TIMEOUT.
pub fn set_timeout(id: Serial, seconds: u32) -> Result<usize> {
    let at = find(id, How::ANY, Need::SetAttributes)?;
    table().set_timeout(at.serial, seconds.into())?;
    Ok(0)
}
