// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of netlink(7) and rtnetlink(7), as they are written.

use super::super::interface_flags::{IFF_RUNNING, IFF_UP};
use super::super::ioctl::Interface;
use super::{NLM_F_MULTI, RTM_NEWADDR, RTM_NEWRULE};
use abi::{Result, errno::ENOBUFS, errno::ERANGE};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Name;
use api_netdev::link::ARPHRD_ETHER;
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
        Message::empty()
            .put(&[0; 4])
            .put(&kind.to_ne_bytes())
            .put(&flags.to_ne_bytes())
            .put(&seq.to_ne_bytes())
            .put(&port.to_ne_bytes())
    }

    /// Attributes without a header, for [`Message::finish_part`].
    pub fn empty() -> Message {
        Message(Ok(Vec::new()))
    }

    pub fn finish_part(self) -> Result<Vec<u8>> {
        self.0
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
        let length = interface.name.as_bytes().len();
        self.attribute(kind, &interface.name.field()[..=length])
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        let mut bytes = self.0?;
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        // Readers go from one message to the next by NLMSG_ALIGN, and the last one is padded as well.
        append(&mut bytes, &[0; 3][..(length.next_multiple_of(4) - length) as usize])?;
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
        seen.received_dropped,
        seen.sent_dropped,
        seen.multicasts,
    ];
    for (to, number) in out.chunks_exact_mut(8).zip(counted) {
        to.copy_from_slice(&number.to_ne_bytes());
    }
    out
}

/// RTM_NEWLINK, or RTM_DELLINK of one that goes.
pub fn link(kind: u16, interface: &Interface, reply: Reply) -> Result<Vec<u8>> {
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_BROADCAST: u16 = 2;
    const IFLA_MTU: u16 = 4;
    const IFLA_LINK: u16 = 5;
    const IFLA_QDISC: u16 = 6;
    const IFLA_MASTER: u16 = 10;
    const IFLA_OPERSTATE: u16 = 16;
    const IFLA_LINKMODE: u16 = 17;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_GROUP: u16 = 27;
    const IFLA_NUM_TX_QUEUES: u16 = 31;
    const IFLA_NUM_RX_QUEUES: u16 = 32;
    const IFLA_CARRIER: u16 = 33;
    const IFLA_LINK_NETNSID: u16 = 37;
    const UNKNOWN: u8 = 0;
    const DOWN: u8 = 2;
    const LOWER_LAYER_DOWN: u8 = 3;
    const UP: u8 = 6;
    let has_ethernet = interface.hardware == ARPHRD_ETHER;
    let state = match () {
        () if interface.flags & IFF_UP == 0 && !interface.is_loopback() => DOWN,
        () if interface.flags & IFF_RUNNING == 0 && interface.kind == Some("veth") => LOWER_LAYER_DOWN,
        () if interface.flags & IFF_RUNNING == 0 => DOWN,
        () if matches!(interface.kind, Some("dummy")) || interface.is_loopback() => UNKNOWN,
        () => UP,
    };
    let state = if interface.is_loopback() { UNKNOWN } else { state };
    let mut message = reply
        .message(kind)
        .put(&[0, 0])
        .put(&interface.hardware.to_ne_bytes())
        .put(&interface.index.to_ne_bytes())
        .put(&interface.flags.to_ne_bytes())
        .put(&[0; 4])
        .name(3, interface)
        .attribute(13, &interface.queue_length.to_ne_bytes())
        .attribute(IFLA_OPERSTATE, &[state])
        .attribute(IFLA_LINKMODE, &[0])
        .attribute(IFLA_GROUP, &interface.group.to_ne_bytes())
        .attribute(IFLA_NUM_TX_QUEUES, &1u32.to_ne_bytes())
        .attribute(IFLA_NUM_RX_QUEUES, &1u32.to_ne_bytes())
        .attribute(IFLA_CARRIER, &[u8::from(interface.flags & IFF_RUNNING != 0)])
        .attribute(IFLA_MTU, &(interface.mtu as u32).to_ne_bytes());
    let discipline: &[u8] = if interface.flags & IFF_UP != 0 { b"noqueue\0" } else { b"noop\0" };
    message = message.attribute(IFLA_QDISC, discipline);
    if interface.master != 0 {
        message = message.attribute(IFLA_MASTER, &interface.master.to_ne_bytes());
    }
    if let Some((other, is_elsewhere)) = interface.other {
        message = message.attribute(IFLA_LINK, &other.to_ne_bytes());
        if is_elsewhere {
            message = message.attribute(IFLA_LINK_NETNSID, &0u32.to_ne_bytes());
        }
    }
    if has_ethernet || interface.is_loopback() {
        let broadcast = if has_ethernet { [0xff; 6] } else { [0; 6] };
        message = message.attribute(IFLA_ADDRESS, &interface.mac).attribute(IFLA_BROADCAST, &broadcast);
    }
    if let Some(kind) = interface.kind {
        let mut nested = Vec::new();
        append(&mut nested, &(4 + kind.len() as u16 + 1).to_ne_bytes())?;
        append(&mut nested, &IFLA_INFO_KIND.to_ne_bytes())?;
        append(&mut nested, kind.as_bytes())?;
        append(&mut nested, &[0])?;
        while nested.len() % 4 != 0 {
            append(&mut nested, &[0])?;
        }
        message = message.attribute(IFLA_LINKINFO, &nested);
    }
    message.attribute(23, &traffic(interface)).finish()
}

/// An address as RTM_NEWADDR and RTM_DELADDR tell it.
#[derive(Clone, Copy)]
pub struct AddressOf {
    pub index: u32,
    pub local: Ipv4Addr,
    pub peer: Ipv4Addr,
    pub prefix: u8,
    pub scope: u8,
    pub broadcast: Option<Ipv4Addr>,
    pub label: Name,
    /// Another one of its network came first.
    pub is_secondary: bool,
    pub has_no_route: bool,
    pub metric: u32,
}

/// No route to the network comes with the address.
pub const IFA_F_NOPREFIXROUTE: u32 = 0x200;

pub fn address(kind: u16, address: &AddressOf, reply: Reply) -> Result<Vec<u8>> {
    const IFA_F_PERMANENT: u32 = 0x80;
    const IFA_CACHEINFO: u16 = 6;
    const IFA_RT_PRIORITY: u16 = 9;
    let no_route = if address.has_no_route { IFA_F_NOPREFIXROUTE } else { 0 };
    let flags = IFA_F_PERMANENT | u32::from(address.is_secondary) | no_route;
    let mut message = reply
        .message(kind)
        .put(&[2, address.prefix, flags as u8, address.scope])
        .put(&address.index.to_ne_bytes())
        .attribute(1, &address.peer.octets())
        .attribute(2, &address.local.octets());
    if let Some(broadcast) = address.broadcast {
        message = message.attribute(4, &broadcast.octets());
    }
    let label = address.label.field();
    let length = address.label.as_bytes().len() + 1;
    // It is valid and preferred for ever.
    let mut cache = [0; 16];
    cache[..8].fill(0xff);
    message = message.attribute(3, &label[..length]).attribute(8, &flags.to_ne_bytes());
    if address.metric != 0 {
        message = message.attribute(IFA_RT_PRIORITY, &address.metric.to_ne_bytes());
    }
    message.attribute(IFA_CACHEINFO, &cache).finish()
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

/// Attributes of a request, by number. One whose length cannot be ends them: Linux takes what is behind the last one for padding
/// (`nlmsg_parse_deprecated`).
#[derive(Clone, Copy)]
pub struct Attributes<'a>(pub &'a [u8]);

/// What an attribute's data has to be (Linux' `struct nla_policy`).
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "interfaces"), allow(dead_code))] // without changes there are numbers alone
pub enum Form {
    /// A number or a structure of at least so many bytes.
    AtLeast(usize),
    /// At most so many bytes.
    AtMost(usize),
    /// A text of at most so many bytes, with or without a zero behind it.
    Text(usize),
    /// Nothing, or attributes.
    Nested,
}

impl Attributes<'_> {
    /// `ERANGE` where an attribute is not of its form (Linux' `validate_nla`, as liberal as it is with old messages).
    pub fn check(self, policy: &[(u16, Form)]) -> Result<()> {
        let is_well = |(kind, data): (u16, &[u8])| {
            let Some((_, form)) = policy.iter().find(|(known, _)| *known == kind) else { return true };
            match *form {
                Form::AtLeast(least) => data.len() >= least,
                Form::AtMost(most) => data.len() <= most,
                Form::Text(most) => {
                    !data.is_empty() && data.len() - usize::from(data.ends_with(&[0])) <= most
                }
                Form::Nested => data.is_empty() || data.len() >= 4,
            }
        };
        if self.into_iter().all(is_well) { Ok(()) } else { Err(ERANGE) }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [l0, l1, k0, k1, behind @ ..] = self.0 else { return None };
        self.0 = &[];
        let size = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let data = size.checked_sub(4).and_then(|size| behind.get(..size))?;
        self.0 = behind.get(data.len().next_multiple_of(4)..).unwrap_or_default();
        // Without the bits that say how it is written (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
        Some((u16::from_ne_bytes([*k0, *k1]) & 0x3fff, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_of_their_forms_and_what_is_malformed_ends_them() {
        let policy = [(1, Form::AtLeast(4)), (2, Form::AtMost(6)), (3, Form::Text(4)), (4, Form::Nested)];
        let check = |kind: u16, data: &[u8]| {
            let message = Message(Ok(Vec::new())).attribute(kind, data).0.unwrap();
            Attributes(&message).check(&policy)
        };
        assert_eq!((check(1, &[0; 4]), check(1, &[0; 3])), (Ok(()), Err(ERANGE)));
        assert_eq!((check(2, &[0; 6]), check(2, &[0; 7])), (Ok(()), Err(ERANGE)));
        assert_eq!(
            (check(3, b"abcd\0"), check(3, b"abcde"), check(3, b"")),
            (Ok(()), Err(ERANGE), Err(ERANGE))
        );
        assert_eq!((check(4, b""), check(4, &[1])), (Ok(()), Err(ERANGE)));
        // A number that is in no policy, and one with a bit that says how it is written.
        assert_eq!((check(9, b""), check(0x8001, &[0; 3])), (Ok(()), Err(ERANGE)));
        // A length that cannot be: there is no attribute.
        assert_eq!(Attributes(&[3, 0, 1, 0]).count() + Attributes(&[9, 0, 1, 0]).count(), 0);
    }

    #[test]
    fn messages_are_padded_behind_their_length() {
        let bytes = Message::new(2, 0, 1, 0).put(&[7]).finish().unwrap();
        assert_eq!((bytes.len(), bytes[0]), (20, 17));
    }
}
