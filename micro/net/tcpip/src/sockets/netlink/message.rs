// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of netlink(7) and rtnetlink(7), as they are written.

use super::super::ioctl::Interface;
use super::{NLM_F_MULTI, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWRULE};
use abi::{Result, errno::EINVAL, errno::ENOBUFS};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Who is answered, and how.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub seq: u32,
    pub port: u32,
    /// It is one of several, of a dump.
    pub is_part: bool,
}

impl Reply {
    pub fn message(self, kind: u16) -> Message {
        Message::new(kind, if self.is_part { NLM_F_MULTI } else { 0 }, self.seq, self.port)
    }
}

/// A message under construction, or that there is no memory for it.
pub struct Message(Result<Vec<u8>>);

impl Message {
    pub fn new(kind: u16, flags: u16, seq: u32, port: u32) -> Message {
        Message(Ok(Vec::new()))
            .put(&[0; 4])
            .put(&kind.to_ne_bytes())
            .put(&flags.to_ne_bytes())
            .put(&seq.to_ne_bytes())
            .put(&port.to_ne_bytes())
    }

    pub fn put(mut self, bytes: &[u8]) -> Message {
        if let Ok(so_far) = &mut self.0
            && let Err(error) = append(so_far, bytes)
        {
            self.0 = Err(error);
        }
        self
    }

    /// A route attribute, padded to 4 bytes.
    pub fn attribute(self, kind: u16, data: &[u8]) -> Message {
        let padding = data.len().next_multiple_of(4) - data.len();
        self.put(&(4 + data.len() as u16).to_ne_bytes())
            .put(&kind.to_ne_bytes())
            .put(data)
            .put(&[0; 3][..padding])
    }

    /// The name of an interface, ended by a zero.
    fn name(self, kind: u16, interface: &Interface) -> Message {
        let mut name = [0; 16];
        let length = interface.name.len().min(name.len() - 1);
        name[..length].copy_from_slice(&interface.name.as_bytes()[..length]);
        self.attribute(kind, &name[..=length])
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        let mut bytes = self.0?;
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        Ok(bytes)
    }
}

pub fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    to.reserve_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
    to.extend_from_slice(bytes);
    Ok(())
}

/// `struct rtnl_link_stats64`: packets, bytes, errors, drops of both ways, and counters that no device here has.
fn traffic(interface: &Interface) -> [u8; 200] {
    let seen = &interface.traffic;
    let mut out = [0; 200];
    let counted = [
        seen.received_packets,
        seen.sent_packets,
        seen.received_bytes,
        seen.sent_bytes,
        0,
        0,
        0,
        seen.sent_dropped,
    ];
    for (to, number) in out.chunks_exact_mut(8).zip(counted) {
        to.copy_from_slice(&number.to_ne_bytes());
    }
    out
}

pub fn link(interface: &Interface, reply: Reply) -> Result<Vec<u8>> {
    let kind: u16 = if interface.is_loopback() { 772 } else { 1 };
    let broadcast = if interface.is_loopback() { [0; 6] } else { [0xff; 6] };
    reply
        .message(RTM_NEWLINK)
        .put(&[0, 0])
        .put(&kind.to_ne_bytes())
        .put(&interface.index.to_ne_bytes())
        .put(&interface.flags.to_ne_bytes())
        .put(&[0; 4])
        .name(3, interface)
        .attribute(13, &1000u32.to_ne_bytes())
        .attribute(16, &[if interface.is_loopback() { 0 } else { 6 }])
        .attribute(4, &(interface.mtu as u32).to_ne_bytes())
        .attribute(1, &interface.mac)
        .attribute(2, &broadcast)
        .attribute(23, &traffic(interface))
        .finish()
}

pub fn address(interface: &Interface, address: Ipv4Addr, reply: Reply) -> Result<Vec<u8>> {
    // Scope: 254 host, 0 universe; IFA_F_PERMANENT.
    let scope = if interface.is_loopback() { 254 } else { 0 };
    let message = reply
        .message(RTM_NEWADDR)
        .put(&[2, interface.prefix, 0x80, scope])
        .put(&interface.index.to_ne_bytes())
        .attribute(1, &address.octets())
        .attribute(2, &address.octets());
    let message =
        if interface.is_loopback() { message } else { message.attribute(4, &interface.broadcast().octets()) };
    message.name(3, interface).attribute(8, &0x80u32.to_ne_bytes()).finish()
}

/// `::1`, the only address of AF_INET6.
pub fn loopback6(interface: &Interface, reply: Reply) -> Result<Vec<u8>> {
    reply
        .message(RTM_NEWADDR)
        .put(&[10, 128, 0x80, 254])
        .put(&interface.index.to_ne_bytes())
        .attribute(1, &Ipv6Addr::LOCALHOST.octets())
        .attribute(8, &0x80u32.to_ne_bytes())
        .finish()
}

/// The rules that every Linux has (`ip rule`): look into the table of local addresses, the main one, the default one.
pub fn rule(family: u8, priority: u32, table: u8, reply: Reply) -> Result<Vec<u8>> {
    const FRA_PRIORITY: u16 = 6;
    const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
    const FRA_TABLE: u16 = 15;
    const FR_ACT_TO_TBL: u8 = 1;
    // struct fib_rule_hdr: family, lengths of both addresses, type of service, table, two reserved, action, flags.
    let message = reply
        .message(RTM_NEWRULE)
        .put(&[family, 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL])
        .put(&[0; 4])
        .attribute(FRA_TABLE, &u32::from(table).to_ne_bytes())
        .attribute(FRA_SUPPRESS_PREFIXLEN, &u32::MAX.to_ne_bytes());
    // The first one has none.
    if priority > 0 { message.attribute(FRA_PRIORITY, &priority.to_ne_bytes()) } else { message }.finish()
}

/// Attributes of a request, by number; `EINVAL` ends them where a length is none.
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let [l0, l1, k0, k1, behind @ ..] = self.0 else { return None };
        self.0 = &[];
        let size = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let Some(data) = size.checked_sub(4).and_then(|size| behind.get(..size)) else {
            return Some(Err(EINVAL));
        };
        self.0 = behind.get(data.len().next_multiple_of(4)..).unwrap_or_default();
        Some(Ok((u16::from_ne_bytes([*k0, *k1]), data)))
    }
}
