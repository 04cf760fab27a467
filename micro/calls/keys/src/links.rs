// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keyctl(2) does with keyrings.

use crate::own::{How, find, name_of_user, who};
use crate::{MAX_DESCRIPTION, number, read_string, read_type};
use abi::{Result, errno::*};
use api_user::UserPtr;
use keys::{Kind, Move, Need, Serial, table};
use task::call::Call;
use task::identity::capabilities::CAP_SETUID;
use task::users;

/// KEYCTL_CLEAR.
pub fn clear(ring: Serial) -> Result<usize> {
    let at = find(ring, How::CREATES, Need::Write)?;
    table().clear(at.serial)?;
    Ok(0)
}

/// KEYCTL_LINK.
pub fn link(id: Serial, ring: Serial) -> Result<usize> {
    let ring = find(ring, How::CREATES, Need::Write)?;
    let key = find(id, How::CREATES, Need::Link)?;
    table().link(ring.serial, key.serial)?;
    Ok(0)
}

/// KEYCTL_UNLINK.
pub fn unlink(id: Serial, ring: Serial) -> Result<usize> {
    let ring = find(ring, How::USABLE, Need::Write)?;
    let key = find(id, How::PARTIAL, Need::Unlink)?;
    table().unlink(ring.serial, key.serial)?;
    Ok(0)
}

/// KEYCTL_MOVE.
pub fn move_key(call: &Call<'_>) -> Result<usize> {
    const EXCLUSIVE: u32 = 1;
    let how = match call.uint(4) {
        0 => Move::Replaces,
        EXCLUSIVE => Move::Exclusive,
        _ => return Err(EINVAL),
    };
    let key = find(call.int(1), How::CREATES, Need::Link)?;
    let from = find(call.int(2), How::USABLE, Need::Write)?;
    let to = find(call.int(3), How::CREATES, Need::Write)?;
    table().move_key(from.serial, to.serial, key.serial, how)?;
    Ok(0)
}

/// KEYCTL_SEARCH.
pub fn search(call: &Call<'_>) -> Result<usize> {
    let kind = read_type(call.ptr(2))?;
    let description = read_string(call.ptr(3), MAX_DESCRIPTION)?;
    let root = find(call.int(1), How::USABLE, Need::Search)?;
    let to = match call.int(4) {
        0 => None,
        id => Some(find(id, How::CREATES, Need::Write)?),
    };
    let kind = Kind::of(&kind).ok_or(ENOKEY)?;
    let who = who();
    let mut table = table();
    let found = table.search(&who, root, kind, &description)?;
    if let Some(to) = to {
        table.check(&who, found, true, Need::Link)?;
        table.link(to.serial, found.serial)?;
    }
    Ok(number(found))
}

/// KEYCTL_RESTRICT_KEYRING. No type of ours knows what a keyring may be restricted to; without a type it is to nothing.
pub fn restrict(ring: Serial, kind: UserPtr<u8>, restriction: UserPtr<u8>) -> Result<usize> {
    let at = find(ring, How::USABLE, Need::SetAttributes)?;
    if kind.is_null() != restriction.is_null() {
        return Err(EINVAL);
    }
    if kind.is_null() {
        table().restrict(at.serial)?;
        return Ok(0);
    }
    let kind = read_type(kind)?;
    read_string(restriction, abi::PAGE_SIZE)?;
    if table().link_count(at.serial).is_none() {
        return Err(ENOTDIR);
    }
    Err(if Kind::of(&kind).is_some() { ENOENT } else { ENOKEY })
}

/// KEYCTL_GET_PERSISTENT: another user's takes CAP_SETUID.
pub fn persistent(uid: u32, ring: Serial) -> Result<usize> {
    const OWN: u32 = u32::MAX;
    let (own, namespace, may_take_any) = {
        let caller = task::current();
        let credentials = caller.credentials().lock();
        ([credentials.uid, credentials.euid], credentials.users.clone(), credentials.can_here(CAP_SETUID))
    };
    let uid = match uid {
        OWN => own[0],
        _ => {
            let uid = namespace.to_machine(users::Kind::User, uid).ok_or(EINVAL)?;
            if !own.contains(&uid) && !may_take_any {
                return Err(EPERM);
            }
            uid
        }
    };
    let at = find(ring, How::CREATES, Need::Write)?;
    let (who, shown) = (who(), name_of_user(uid));
    let mut table = table();
    if table.link_count(at.serial).is_none() {
        return Err(ENOTDIR);
    }
    table.persistent(&who, uid, shown, at.serial).map(|serial| serial as usize)
}
