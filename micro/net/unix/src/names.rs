// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is bound to which name: inodes of the file system, and the abstract name space (unix(7)).

use crate::socket::UnixSocket;
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_socket::{Address, Caller, Type, network_number};
use core::sync::atomic::{AtomicU32, Ordering};
use ordered::Map;

/// Longest path in a `sockaddr_un`.
const PATH_MAX: usize = 108;
/// Names that autobind chooses from.
const NAMES: u32 = 0x10_0000;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Device and inode number of the socket's inode.
    Inode(u64, u64),
    /// Each network has names of its own, and in it each type of socket (Linux).
    Abstract(u64, u32, Vec<u8>),
}

/// What a socket is called now. Whoever is connected to it and what it has sent refer to this: it may be bound later, and is
/// called so when it is closed.
#[derive(Default)]
pub struct Called(SpinLock<Option<Address>>);

impl Called {
    pub fn get(&self) -> Option<Address> {
        self.0.lock().clone()
    }

    /// As getsockname(2) has it: of two bytes where it is unnamed.
    pub fn shown(&self) -> Address {
        self.get().unwrap_or(Address::new(Address::UNIX, &[]))
    }

    pub fn set(&self, name: Option<Address>) {
        *self.0.lock() = name;
    }
}

static BOUND: SpinLock<Map<Key, Weak<UnixSocket>>> = SpinLock::new(Map::new());

/// A name as the program gave it.
pub enum Name<'a> {
    Unnamed,
    Abstract(&'a [u8]),
    Path(&'a [u8]),
}

/// Reads a `sockaddr_un`; `EINVAL` for one that is none.
pub fn parse(address: &Address) -> Result<Name<'_>> {
    if address.family() != Some(Address::UNIX) || address.rest().len() > PATH_MAX {
        return Err(EINVAL);
    }
    Ok(match address.rest() {
        [] => Name::Unnamed,
        [0, name @ ..] => Name::Abstract(name),
        // A path ends at its NUL, or at the end of the address.
        path => Name::Path(path.split(|b| *b == 0).next().unwrap_or(path)),
    })
}

/// Ties a name to a socket: the key, and the address that getsockname(2) shows.
pub fn bind(caller: &Caller<'_>, address: &Address, socket: &Arc<UnixSocket>) -> Result<(Key, Address)> {
    let (key, shown) = match parse(address)? {
        Name::Unnamed => return autobind(socket),
        Name::Abstract(name) => {
            (Key::Abstract(network_number(), socket.kind as u32, name.into()), address.clone())
        }
        Name::Path(path) => {
            let stat = caller.names.create(path)?.stat()?;
            let mut shown = Vec::from(path);
            shown.push(0);
            (Key::Inode(stat.device, stat.inode), Address::new(Address::UNIX, &shown))
        }
    };
    insert(key.clone(), socket)?;
    Ok((key, shown))
}

/// `EINVAL` for what is no address of anybody.
pub fn check(address: &Address) -> Result<()> {
    if matches!(parse(address)?, Name::Unnamed) { Err(EINVAL) } else { Ok(()) }
}

/// What a second bind(2) says. A path is looked at before the socket is, and the wish for any name is granted already.
pub fn bind_again(caller: &Caller<'_>, address: &Address) -> Result<()> {
    match parse(address)? {
        Name::Unnamed => Ok(()),
        Name::Path(path) if matches!(caller.names.find(path), Ok(_) | Err(ECONNREFUSED)) => Err(EADDRINUSE),
        _ => Err(EINVAL),
    }
}

/// An abstract name of five hexadecimal digits that nobody has (unix(7), "Autobind feature").
pub fn autobind(socket: &Arc<UnixSocket>) -> Result<(Key, Address)> {
    // Where the last search ended: a name that was used lately is found taken by none of the next.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..NAMES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % NAMES;
        let name = alloc::format!("{number:05x}").into_bytes();
        let key = Key::Abstract(network_number(), socket.kind as u32, name.clone());
        if insert(key.clone(), socket).is_ok() {
            let mut rest = Vec::from([0]);
            rest.extend_from_slice(&name);
            return Ok((key, Address::new(Address::UNIX, &rest)));
        }
    }
    Err(ENOSPC)
}

fn insert(key: Key, socket: &Arc<UnixSocket>) -> Result<()> {
    let mut bound = BOUND.lock();
    // A file was just made for this: who is known by its number was bound to one that is gone, whose number the host has given again.
    let is_exclusive = matches!(key, Key::Abstract(..));
    if is_exclusive && bound.get(&key).is_some_and(|other| other.strong_count() > 0) {
        return Err(EADDRINUSE);
    }
    bound.insert(key, Arc::downgrade(socket));
    Ok(())
}

/// The socket that a name leads to; `EINVAL` for an address without a name, `ECONNREFUSED` when nobody is bound to it (any more).
pub fn find(caller: &Caller<'_>, address: &Address, kind: Type) -> Result<Arc<UnixSocket>> {
    let key = match parse(address)? {
        Name::Unnamed => return Err(EINVAL),
        Name::Abstract(name) => Key::Abstract(network_number(), kind as u32, name.into()),
        Name::Path(path) => {
            let stat = caller.names.find(path)?.stat()?;
            Key::Inode(stat.device, stat.inode)
        }
    };
    let found = BOUND.lock().get(&key).and_then(Weak::upgrade);
    found.ok_or(ECONNREFUSED)
}

/// The socket's name is free again.
pub fn release(key: &Key, socket: &Weak<UnixSocket>) {
    let mut bound = BOUND.lock();
    if bound.get(key).is_some_and(|other| other.ptr_eq(socket)) {
        bound.remove(key);
    }
}
