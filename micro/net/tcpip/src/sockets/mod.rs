// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets over the stack: AF_INET streams and datagrams, AF_NETLINK's routing dumps.

mod datagram;
mod ioctl;
mod netlink;
mod options;
mod stream;

use crate::stack::Net;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_socket::{Address, Credentials, Family, Socket, SocketAddressV4, Type};
use core::net::{Ipv4Addr, SocketAddrV4};

pub use datagram::DatagramSocket;
pub use stream::StreamSocket;

const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_ICMP: u32 = 1;

/// AF_INET.
pub struct Inet(Arc<Net>);

impl Family for Inet {
    fn number(&self) -> u16 {
        Address::INET
    }

    fn create(&self, _creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>> {
        match (kind, protocol) {
            (Type::Stream, 0 | IPPROTO_TCP) => Ok(StreamSocket::new(self.0.clone())),
            (Type::Datagram, 0 | IPPROTO_UDP) => Ok(DatagramSocket::new(self.0.clone())),
            // Linux refuses ICMP sockets to groups outside ping_group_range, which is empty by default.
            (Type::Datagram, IPPROTO_ICMP) => Err(EACCES),
            (Type::Stream | Type::Datagram, _) => Err(EPROTONOSUPPORT),
            (Type::Raw | Type::SequencedPacket, _) => Err(ESOCKTNOSUPPORT),
        }
    }
}

/// Makes AF_INET and AF_NETLINK known to `api-socket`.
pub fn register(net: &Arc<Net>) {
    api_socket::register(Arc::new(Inet(net.clone())));
    api_socket::register(Arc::new(netlink::Netlink::new(net.clone())));
}

fn to_core(address: SocketAddressV4) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(address.address), address.port)
}

fn from_core(address: SocketAddrV4) -> Address {
    Address::v4(SocketAddressV4 { address: address.ip().octets(), port: address.port() })
}

/// The address for bind(2): ours, any, or a group's.
fn bindable(net: &Net, address: &Address) -> Result<SocketAddrV4> {
    // Linux accepts AF_UNSPEC with the any address, for old programs' sake.
    let v4 = match address.family() {
        Some(Address::UNSPEC) if address.bytes().len() >= 16 && address.rest()[2..6] == [0; 4] => {
            SocketAddressV4 {
                address: [0; 4],
                port: u16::from_be_bytes([address.rest()[0], address.rest()[1]]),
            }
        }
        _ => address.as_v4()?,
    };
    let v4 = to_core(v4);
    let ok = v4.ip().is_unspecified()
        || v4.ip().is_multicast()
        || net.look(|s| s.ip.is_own(*v4.ip()) || s.ip.is_broadcast(*v4.ip()));
    if ok { Ok(v4) } else { Err(EADDRNOTAVAIL) }
}
