// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keyctl(2) tells of keys.

use crate::listing::shown_owners;
use crate::own::{How, find, who};
use abi::{Result, errno::*};
use alloc::format;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::UserPtr;
use keys::{Need, Ref, table};
use task::call::Call;

/// Bits of KEYCTL_CAPABILITIES: itself, persistent keyrings, `big_key`, KEYCTL_INVALIDATE, _RESTRICT_KEYRING and _MOVE; and that keyrings'
/// names are a user namespace's.
const CAPABILITIES: [u8; 2] = [0x01 | 0x02 | 0x10 | 0x20 | 0x40 | 0x80, 0x01];

/// KEYCTL_DESCRIBE: the type, the owners, the permissions and the description.
pub fn describe(call: &Call<'_>) -> Result<usize> {
    let at = find(call.int(1), How::PARTIAL, Need::View)?;
    let text = {
        let shown = shown_owners();
        let table = table();
        let key = table.get(at.serial)?;
        let (uid, gid) = shown(key.uid, key.gid);
        let mut text = format!("{};{uid};{gid};{:08x};", key.kind().name(), key.permissions).into_bytes();
        text.extend_from_slice(key.description());
        text.push(0);
        text
    };
    give(call, &text)
}

/// Writes it to the caller's buffer where there is room for all of it, and says how long it is.
fn give(call: &Call<'_>, bytes: &[u8]) -> Result<usize> {
    let (to, room) = (call.ptr::<u8>(2), call.size(3));
    if !to.is_null() && bytes.len() <= room {
        to.write_slice(bytes)?;
    }
    Ok(bytes.len())
}

/// KEYCTL_READ, of whoever may read the key or possesses it and may search it.
pub fn read(call: &Call<'_>) -> Result<usize> {
    let at = find(call.int(1), How::USABLE, Need::Later).map_err(|_| ENOKEY)?;
    let content = content(at, call.size(3))?;
    give(call, &content)
}

/// What there is to read, for a buffer with so much room: of a keyring for whole numbers.
fn content(at: Ref, room: usize) -> Result<Vec<u8>> {
    let who = who();
    let table = table();
    if let Some(error) = table.negative(at.serial) {
        return Err(error);
    }
    match table.get(at.serial)?.permits(&who, at.is_possessed, Need::Read) {
        Err(EACCES) if at.is_possessed => {}
        answer => answer?,
    }
    if !table.get(at.serial)?.kind().is_readable() {
        return Err(EOPNOTSUPP);
    }
    let mut out = Vec::new();
    if table.link_count(at.serial).is_some() {
        if !room.is_multiple_of(size_of::<i32>()) {
            return Err(EINVAL);
        }
        let serials = table.serials(at.serial)?;
        out.reserve_exact_fallibly(serials.len() * size_of::<i32>()).map_err(|_| ENOMEM)?;
        serials.iter().for_each(|serial| out.extend_from_slice(&serial.to_ne_bytes()));
    } else {
        let data = table.read(at.serial)?;
        out.reserve_exact_fallibly(data.len()).map_err(|_| ENOMEM)?;
        out.extend_from_slice(data);
    }
    Ok(out)
}

/// KEYCTL_GET_SECURITY: no security module labels keys, so it is an empty string.
pub fn security(call: &Call<'_>) -> Result<usize> {
    // Whoever may not view it is asked for the authority over a key under construction, which nobody has.
    find(call.int(1), How::PARTIAL, Need::View).map_err(|e| if e == EACCES { ENOKEY } else { e })?;
    give(call, &[0])
}

/// KEYCTL_CAPABILITIES. What a buffer has room for beyond is cleared.
pub fn capabilities(call: &Call<'_>) -> Result<usize> {
    let (to, room) = (call.arg(1), call.size(2));
    let given = room.min(CAPABILITIES.len());
    UserPtr::<u8>::new(to).write_slice(&CAPABILITIES[..given])?;
    if room > given {
        api_user::zero_bytes(to + given as u64, room - given)?;
    }
    Ok(CAPABILITIES.len())
}
