// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_UNIX: streams, datagrams and sequenced packets between threads of the machine, under path names, abstract names
//! or none, with descriptors and credentials travelling along (unix(7)).
//!
//! - [`queue`] is what a socket receives into;
//! - [`names`] is who is bound to what;
//! - [`send`] and [`receive`] move messages;
//! - [`garbage`] finds sockets that only each other's queues hold, and `collector` says when;
//! - [`socket`] implements `api-socket`.
//!
//! A message is queued in the receiver, and the sender's buffer is what of its messages is queued anywhere. Locks are
//! taken one at a time, so two sockets connected to each other cannot wait for each other.
//!
//! May depend on the API crates; the kernel image picks it.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod collector;
pub mod garbage;
pub mod names;
pub mod queue;
mod receive;
mod send;
pub mod socket;

use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_socket::{Address, Credentials, Family, Socket, Type};
use socket::UnixSocket;

/// AF_UNIX.
struct Unix;

fn check(kind: Type, protocol: u32) -> Result<Type> {
    // PF_UNIX is accepted as a protocol number too (Linux).
    if protocol > 1 {
        return Err(EPROTONOSUPPORT);
    }
    // A raw socket is a datagram socket here (Linux, for BSD's sake).
    Ok(if kind == Type::Raw { Type::Datagram } else { kind })
}

impl Family for Unix {
    fn number(&self) -> u16 {
        Address::UNIX
    }

    fn create(&self, creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>> {
        Ok(UnixSocket::new(check(kind, protocol)?, creator))
    }

    fn pair(
        &self,
        creator: Credentials,
        kind: Type,
        protocol: u32,
    ) -> Result<(Arc<dyn Socket>, Arc<dyn Socket>)> {
        let kind = check(kind, protocol)?;
        let (a, b) = (UnixSocket::new(kind, creator), UnixSocket::new(kind, creator));
        UnixSocket::join(&a, &b);
        Ok((a, b))
    }
}

/// Makes AF_UNIX known to `api-socket`.
pub fn register() {
    api_socket::register(Arc::new(Unix));
    collector::register();
}
