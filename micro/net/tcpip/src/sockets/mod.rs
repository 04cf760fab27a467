// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets over the stack: streams and datagrams of AF_INET and AF_INET6, AF_NETLINK's routing dumps.

mod datagram;
mod domain;
mod ioctl;
mod ipv6;
mod kept;
mod message;
mod netlink;
mod options;
mod stream;

use crate::stack::Net;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_socket::{Credentials, Family, Socket, Type};

pub use datagram::DatagramSocket;
pub use domain::Domain;
pub use stream::StreamSocket;

const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_ICMP: u32 = 1;
const IPPROTO_ICMPV6: u32 = 58;

/// AF_INET, AF_INET6.
pub struct Inet(Arc<Net>, Domain);

impl Family for Inet {
    fn number(&self) -> u16 {
        self.1.number()
    }

    fn create(&self, _creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>> {
        match (kind, protocol) {
            (Type::Stream, 0 | IPPROTO_TCP) => Ok(StreamSocket::new(self.0.clone(), self.1)),
            (Type::Datagram, 0 | IPPROTO_UDP) => Ok(DatagramSocket::new(self.0.clone(), self.1)),
            // Linux refuses ICMP sockets to groups outside ping_group_range, which is empty by default.
            (Type::Datagram, IPPROTO_ICMP | IPPROTO_ICMPV6) => Err(EACCES),
            (Type::Stream | Type::Datagram, _) => Err(EPROTONOSUPPORT),
            (Type::Raw | Type::SequencedPacket, _) => Err(ESOCKTNOSUPPORT),
        }
    }

    fn interfaces(&self, command: u32, argument: u64) -> Result<usize> {
        // One of the two answers for both.
        if self.1 == Domain::V4 { ioctl::interface(&self.0, command, argument) } else { Err(ENOTTY) }
    }
}

/// Makes AF_INET, AF_INET6 and AF_NETLINK known to `api-socket`.
pub fn register(net: &Arc<Net>) {
    for domain in [Domain::V4, Domain::V6] {
        api_socket::register(Arc::new(Inet(net.clone(), domain)));
    }
    api_socket::register(Arc::new(netlink::Netlink::new(net.clone())));
}
