// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets over the stack: streams and datagrams of AF_INET and AF_INET6, raw ones of both, AF_NETLINK's routing
//! dumps.

mod datagram;
mod domain;
pub(crate) mod fast_open;
pub mod interface_flags;
mod ioctl;
#[cfg(feature = "interfaces")]
mod ioctl_changes;
mod ipv6;
mod kept;
mod membership;
mod membership6;
mod message;
pub(crate) mod netlink;
mod options;
mod raw;
mod stream;

use crate::stack::{Net, Stack};
use crate::wire;
use abi::{Result, errno::*};
use alloc::{string::String, sync::Arc};
use api_socket::{Credentials, Family, Socket, Type};
use core::any::Any;

pub use datagram::DatagramSocket;
pub use domain::Domain;
pub use raw::RawSocket;
pub use stream::StreamSocket;

const IPPROTO_MAX: u32 = 263;
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

    fn stack(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.0.clone())
    }

    fn set_text(&self, name: &str, text: &str) -> Result<()> {
        if name != "tcp_fastopen_key" || self.1 != Domain::V4 {
            return Err(ENOENT);
        }
        let keys = fast_open::Keys::parse(text)?;
        self.0.look(|stack| stack.fast_open = Some(keys));
        Ok(())
    }

    fn set(&self, name: &str, value: i64) -> Result<()> {
        match name {
            _ if self.1 != Domain::V4 => Err(ENOENT),
            #[cfg(feature = "interfaces")]
            "ip_forward" => self.0.look(|stack| {
                stack.change_interfaces(&self.0, |all| {
                    all.forwards = value != 0;
                    Ok(())
                })
            }),
            _ => {
                let tag = Stack::tag(name).ok_or(ENOENT)?;
                let value = i32::try_from(value).map_err(|_| EINVAL)?;
                self.0.look(|stack| stack.tags[tag] = value);
                Ok(())
            }
        }
    }

    fn table(&self, name: &str) -> Option<String> {
        self.0.look(|stack| stack.table(name))
    }

    fn create(&self, creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>> {
        if protocol >= IPPROTO_MAX {
            return Err(EINVAL);
        }
        match (kind, protocol) {
            (Type::Stream, 0 | IPPROTO_TCP) => {
                StreamSocket::new(self.0.clone(), self.1, creator.uid).map(|s| s as _)
            }
            (Type::Datagram, 0 | IPPROTO_UDP) => {
                DatagramSocket::new(self.0.clone(), self.1, creator.uid).map(|s| s as _)
            }
            (Type::Datagram, IPPROTO_ICMP) if self.1 == Domain::V4 => {
                RawSocket::new(self.0.clone(), wire::PROTOCOL_ICMP, true, self.1).map(|s| s as _)
            }
            (Type::Datagram, IPPROTO_ICMPV6) if self.1 == Domain::V6 => Err(EACCES),
            (Type::Stream | Type::Datagram, _) => Err(EPROTONOSUPPORT),
            (Type::Raw, 0) => Err(EPROTONOSUPPORT),
            (Type::Raw, 1..=255) => {
                RawSocket::new(self.0.clone(), protocol as u8, false, self.1).map(|s| s as _)
            }
            (Type::Raw, _) => Err(EPROTONOSUPPORT),
            (Type::SequencedPacket, _) => Err(ESOCKTNOSUPPORT),
        }
    }

    fn interfaces(&self, command: u32, argument: u64) -> Result<usize> {
        // One of the two answers for both.
        if self.1 == Domain::V4 { ioctl::interface(&self.0, command, argument) } else { Err(ENOTTY) }
    }
}

/// AF_INET, AF_INET6 and AF_NETLINK of a stack.
pub fn families(net: &Arc<Net>) -> [Arc<dyn Family>; 3] {
    let inet = |domain| -> Arc<dyn Family> { Arc::new(Inet(net.clone(), domain)) };
    [inet(Domain::V4), inet(Domain::V6), Arc::new(netlink::Netlink::new(net.clone()))]
}

/// Makes them known to `api-socket` as the machine's.
pub fn register(net: &Arc<Net>) {
    families(net).into_iter().for_each(api_socket::register);
}
