// SPDX-License-Identifier: Apache-2.0 OR MIT
//! add_key(2), request_key(2) and keyctl(2). The keys are in the crate `keys`; which keyrings a thread has is in its credentials.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod attributes;
mod links;
pub mod listing;
mod own;
mod read;

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_user::{Source, UserPtr};
use keys::{Kind, Need, Ref, table};
pub use own::own_of_thread;
use own::{How, find};
use task::call::Call;

/// Room for the name of a type with its NUL, and for a description.
const MAX_TYPE: usize = 32;
const MAX_DESCRIPTION: usize = 4096;
/// What add_key(2) takes.
const MAX_DATA: usize = (1 << 20) - 1;

/// The name of a type; names that begin with a dot are the kernel's own.
fn read_type(pointer: UserPtr<u8>) -> Result<Vec<u8>> {
    let name = pointer.read_cstr(MAX_TYPE, EINVAL)?;
    match name.first() {
        None => Err(EINVAL),
        Some(b'.') => Err(EPERM),
        Some(_) => Ok(name),
    }
}

fn read_string(pointer: UserPtr<u8>, limit: usize) -> Result<Vec<u8>> {
    pointer.read_cstr(limit, EINVAL)
}

fn read_data(address: u64, length: usize) -> Result<Vec<u8>> {
    let data = Source::user(address, length)?.take_vec(length)?;
    if data.len() < length { Err(EFAULT) } else { Ok(data) }
}

/// add_key(2).
pub fn add_key(call: &mut Call<'_>) -> Result<usize> {
    let length = call.size(3);
    if length > MAX_DATA {
        return Err(EINVAL);
    }
    let kind = read_type(call.ptr(0))?;
    let description = match call.ptr(1).non_null() {
        Some(pointer) => Some(read_string(pointer, MAX_DESCRIPTION)?).filter(|text| !text.is_empty()),
        None => None,
    };
    if kind.starts_with(b"keyring") && description.as_ref().is_some_and(|text| text.starts_with(b".")) {
        return Err(EPERM);
    }
    let data = if length == 0 { Vec::new() } else { read_data(call.arg(2), length)? };
    let ring = find(call.int(4), How::CREATES, Need::Write)?;
    let who = own::who();
    table().add(ring, &who, Kind::of(&kind), description, data).map(|serial| serial as usize)
}

/// request_key(2). There is no upcall: a key that is not found is not made, and where somebody was to be asked for it, a negative one says
/// so for a while.
pub fn request_key(call: &mut Call<'_>) -> Result<usize> {
    let kind = read_type(call.ptr(0))?;
    let description = read_string(call.ptr(1), MAX_DESCRIPTION)?;
    let asks = call.ptr(2).non_null();
    asks.map(|pointer| read_string(pointer, abi::PAGE_SIZE)).transpose()?;
    let ring = match call.int(3) {
        0 => None,
        id => Some(find(id, How::CREATES, Need::Write)?),
    };
    let kind = Kind::of(&kind).ok_or(ENOKEY)?;
    let who = own::who();
    let found = table().request(&who, kind, &description);
    match found {
        Ok(found) => {
            let mut table = table();
            if let Some(ring) = ring {
                table.check(&who, found, true, Need::Link)?;
                table.link(ring.serial, found.serial)?;
            }
            table.check(&who, found, false, Need::Search)?;
            Ok(found.serial as usize)
        }
        Err(EAGAIN) if asks.is_some() => {
            if kind == Kind::Keyring {
                return Err(EPERM);
            }
            let ring = match ring {
                Some(ring) => ring.serial,
                None => own::for_requests()?,
            };
            table().add_negative(ring, &who, kind, description, ENOKEY)?;
            // What Linux finds of the program that it would ask.
            Err(ENOENT)
        }
        Err(EAGAIN) => Err(ENOKEY),
        Err(e) => Err(e),
    }
}

/// keyctl(2).
pub fn keyctl(call: &mut Call<'_>) -> Result<usize> {
    /// What a key under construction is given; here none is, and nobody has its authority (KEYCTL_ASSUME_AUTHORITY).
    const NO_AUTHORITY: Result<usize> = Err(EPERM);
    const MAX_ERRNO: u32 = 4095;
    /// Errors that mean that a call is to be made again, which nobody may be told: ERESTARTSYS and its like.
    const RESTARTS: [u32; 4] = [512, 513, 514, 516];
    match call.int(0) {
        0 => find(call.int(1), How { creates: call.int(2) != 0, ..How::USABLE }, Need::Search).map(number),
        1 => own::join_session(call.ptr(1)),
        2 => attributes::update(call),
        3 => attributes::revoke(call.int(1)),
        4 => attributes::chown(call.int(1), call.uint(2), call.uint(3)),
        5 => attributes::set_permissions(call.int(1), call.uint(2)),
        6 => read::describe(call),
        7 => links::clear(call.int(1)),
        8 => links::link(call.int(1), call.int(2)),
        9 => links::unlink(call.int(1), call.int(2)),
        10 => links::search(call),
        11 => read::read(call),
        12 if call.size(3) > MAX_DATA => Err(EINVAL),
        12 | 20 => NO_AUTHORITY,
        13 => NO_AUTHORITY,
        14 => own::set_for_requests(call.int(1)),
        15 => attributes::set_timeout(call.int(1), call.uint(2)),
        16 => match call.int(1) {
            0 => Ok(0),
            ..0 => Err(EINVAL),
            _ => Err(ENOKEY),
        },
        17 => read::security(call),
        18 => own::session_to_parent(),
        19 => match call.uint(3) {
            0 | MAX_ERRNO.. => Err(EINVAL),
            error if RESTARTS.contains(&error) => Err(EINVAL),
            _ => NO_AUTHORITY,
        },
        21 => attributes::invalidate(call.int(1)),
        22 => links::persistent(call.uint(1), call.int(2)),
        29 => links::restrict(call.int(1), call.ptr(2), call.ptr(3)),
        30 => links::move_key(call),
        31 => read::capabilities(call),
        // Diffie-Hellman, public keys and KEYCTL_WATCH_KEY, as from a Linux without them; and what there is not.
        _ => Err(EOPNOTSUPP),
    }
}

fn number(at: Ref) -> usize {
    at.serial as usize
}
