// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routes of rtnetlink(7): those there are, and the one to an address.

use super::RTM_NEWROUTE;
use super::message::{Attributes, Form, Reply};
use crate::ip::Configuration;
use crate::sockets::ioctl::interfaces;
use crate::stack::Stack;
use abi::{Errno, Result, errno::*};
use alloc::vec::Vec;
#[cfg(feature = "interfaces")]
use api_alloc::Reserve;
use core::net::{Ipv4Addr, Ipv6Addr};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Bytes of `struct nlmsghdr` and of `struct rtmsg` behind it.
const HEADERS: usize = 16 + 12;
// Attributes.
pub(super) const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_GATEWAY: u16 = 5;
#[cfg(feature = "interfaces")]
pub(super) const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_PREFSRC: u16 = 7;
const RTA_CACHEINFO: u16 = 12;
pub(super) const RTA_TABLE: u16 = 15;
const RTA_UID: u16 = 25;
const RT_TABLE_MAIN: u8 = 254;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_KERNEL: u8 = 2;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_LINK: u8 = 253;
const RT_SCOPE_HOST: u8 = 254;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTN_MULTICAST: u8 = 5;
/// The answer is about one address, not an entry of a table.
const RTM_F_CLONED: u32 = 0x200;
const RTCF_LOCAL: u32 = 0x8000_0000;
const RTCF_MULTICAST: u32 = 0x2000_0000;
const RTCF_BROADCAST: u32 = 0x1000_0000;
/// Indexes of the interfaces.
const LOOPBACK: u32 = 1;
const DEVICE: u32 = 2;

/// An entry of a table of routes.
struct Entry {
    table: u8,
    kind: u8,
    protocol: u8,
    scope: u8,
    /// With bytes of prefix.
    to: Option<(Ipv4Addr, u8)>,
    source: Option<Ipv4Addr>,
    gateway: Option<Ipv4Addr>,
    interface: u32,
}

impl Entry {
    fn message(&self, reply: Reply) -> Result<Vec<u8>> {
        let length = self.to.map_or(0, |to| to.1);
        let mut message = reply
            .message(RTM_NEWROUTE)
            .put(&[AF_INET, length, 0, 0, self.table, self.protocol, self.scope, self.kind])
            .put(&[0; 4])
            .attribute(RTA_TABLE, &u32::from(self.table).to_ne_bytes());
        for (name, address) in
            [(RTA_DST, self.to.map(|to| to.0)), (RTA_PREFSRC, self.source), (RTA_GATEWAY, self.gateway)]
        {
            if let Some(address) = address {
                message = message.attribute(name, &address.octets());
            }
        }
        message.attribute(RTA_OIF, &self.interface.to_ne_bytes()).finish()
    }
}

/// What Linux has in its table of local addresses for an interface with this one, and the broadcast of its network.
fn local(
    address: Ipv4Addr,
    network: Option<(Ipv4Addr, u8)>,
    broadcast: Ipv4Addr,
    interface: u32,
) -> [Entry; 3] {
    let entry = |kind, scope, to| Entry {
        table: RT_TABLE_LOCAL,
        kind,
        protocol: RTPROT_KERNEL,
        scope,
        to: Some(to),
        source: Some(address),
        gateway: None,
        interface,
    };
    [
        // Of the loopback all of the network is this machine.
        entry(RTN_LOCAL, RT_SCOPE_HOST, network.unwrap_or((address, 32))),
        entry(RTN_LOCAL, RT_SCOPE_HOST, (address, 32)),
        entry(RTN_BROADCAST, RT_SCOPE_LINK, (broadcast, 32)),
    ]
}

/// Of the machine's device, which no program changed, and of loopback.
fn table_of_device(
    configuration: Option<&Configuration>,
    reply: Reply,
    put: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let main = |scope, protocol, to, source, gateway| Entry {
        table: RT_TABLE_MAIN,
        kind: RTN_UNICAST,
        protocol,
        scope,
        to,
        source,
        gateway,
        interface: DEVICE,
    };
    if let Some(c) = configuration {
        if c.gateway.is_some() {
            put(main(0, RTPROT_BOOT, None, None, c.gateway).message(reply)?)?;
        }
        let network = Ipv4Addr::from_bits(c.address.to_bits() & c.netmask().to_bits());
        let to = Some((network, c.prefix));
        put(main(RT_SCOPE_LINK, RTPROT_KERNEL, to, Some(c.address), None).message(reply)?)?;
    }
    let loopback = Some((Ipv4Addr::new(127, 0, 0, 0), 8));
    for entry in local(Ipv4Addr::LOCALHOST, loopback, Ipv4Addr::new(127, 255, 255, 255), LOOPBACK) {
        put(entry.message(reply)?)?;
    }
    if let Some(c) = configuration {
        // The network is reached, and is not this machine.
        for entry in local(c.address, None, c.broadcast(), DEVICE).iter().skip(1) {
            put(entry.message(reply)?)?;
        }
    }
    Ok(())
}

/// Of the table of interfaces: its routes, and the local addresses.
#[cfg(feature = "interfaces")]
fn table_of_interfaces(
    stack: &Stack,
    all: &crate::interfaces::Interfaces,
    reply: Reply,
    put: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    // By address, as Linux' trie has them.
    let mut sorted: Vec<&crate::interfaces::routes::Route> = Vec::new();
    sorted.reserve_fallibly(all.routes.count()).map_err(|_| ENOBUFS)?;
    sorted.extend(all.routes.iter());
    sorted.sort_by_key(|route| (route.table, route.to.to_bits(), 32 - route.prefix.min(32), route.metric));
    for route in sorted {
        put(super::notice::route_message(RTM_NEWROUTE, route, reply)?)?;
    }
    let given = stack.ip.local.iter();
    let usual = stack.ip.lo.has_address.then_some((Ipv4Addr::LOCALHOST, 8));
    for (address, prefix) in usual.into_iter().chain(given) {
        let mask = crate::interfaces::routes::mask(prefix);
        let network = Ipv4Addr::from_bits(address.to_bits() & mask);
        let last = Ipv4Addr::from_bits(address.to_bits() | !mask);
        let [network, own, broadcast] = local(address, Some((network, prefix)), last, LOOPBACK);
        put(own.message(reply)?)?;
        if prefix < 32 {
            put(network.message(reply)?)?;
        }
        if prefix < 31 && stack.ip.lo.is_up {
            put(broadcast.message(reply)?)?;
        }
    }
    for (index, interface) in all.all.range::<u32, _>(..) {
        for address in &interface.addresses {
            // Others of the network speak with the first one's address.
            let first = interface.addresses.iter().find(|first| interface.is_first_beside(first, address));
            let source = first.map_or(address.local, |first| first.local);
            let entry =
                |kind, scope, to| Entry { source: Some(source), ..local_entry(kind, scope, to, *index) };
            put(entry(RTN_LOCAL, RT_SCOPE_HOST, address.local).message(reply)?)?;
            // What the first one has, the others have not once more.
            let is_secondary = interface.is_secondary(address);
            let is_new = |to: &Ipv4Addr| {
                !is_secondary || first.is_none_or(|f| f.broadcasts().all(|known| known != *to))
            };
            for to in address.broadcasts().filter(|_| interface.is_up()).filter(is_new) {
                put(entry(RTN_BROADCAST, RT_SCOPE_LINK, to).message(reply)?)?;
            }
        }
    }
    Ok(())
}

/// The entry of one address in the table of local ones.
#[cfg(feature = "interfaces")]
fn local_entry(kind: u8, scope: u8, to: Ipv4Addr, interface: u32) -> Entry {
    Entry {
        table: RT_TABLE_LOCAL,
        kind,
        protocol: RTPROT_KERNEL,
        scope,
        to: Some((to, 32)),
        source: None,
        gateway: None,
        interface,
    }
}

/// The tables: the main one, and that of local addresses.
pub(super) fn table(
    stack: &Stack,
    family: u8,
    reply: Reply,
    put: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    if family != AF_INET6 {
        #[cfg(feature = "interfaces")]
        if let Some(all) = &stack.ip.interfaces {
            table_of_interfaces(stack, all, reply, put)?;
        } else {
            table_of_device(stack.ip.configuration.as_ref(), reply, put)?;
        }
        #[cfg(not(feature = "interfaces"))]
        table_of_device(stack.ip.configuration.as_ref(), reply, put)?;
    }
    if family != AF_INET {
        for (table, kind) in [(RT_TABLE_MAIN, RTN_UNICAST), (RT_TABLE_LOCAL, RTN_LOCAL)] {
            let message = reply
                .message(RTM_NEWROUTE)
                .put(&[AF_INET6, 128, 0, 0, table, RTPROT_KERNEL, 0, kind])
                .put(&[0; 4])
                .attribute(RTA_TABLE, &u32::from(table).to_ne_bytes())
                .attribute(RTA_DST, &Ipv6Addr::LOCALHOST.octets());
            put(message.attribute(RTA_OIF, &LOOPBACK.to_ne_bytes()).finish()?)?;
        }
        #[cfg(feature = "ipv6")]
        if let Some(v6) = &stack.ip.v6 {
            super::ipv6::routes(v6, reply, put)?;
        }
    }
    Ok(())
}

/// What a request for one route asks.
#[derive(Debug, PartialEq)]
struct Question {
    family: u8,
    /// Bytes of an address of the family; none: the unspecified one.
    to: Option<[u8; 16]>,
    from: Option<[u8; 16]>,
    interface: Option<u32>,
}

impl Question {
    /// Reads a request with its header, as `ip route get` makes them.
    fn read(request: &[u8]) -> core::result::Result<Question, Errno> {
        let family = request.get(16).copied().ok_or(EINVAL)?;
        let length = match family {
            AF_INET => 4,
            AF_INET6 => 16,
            _ => return Err(EOPNOTSUPP),
        };
        request.get(16..HEADERS).ok_or(EINVAL)?;
        let mut question = Question { family, to: None, from: None, interface: None };
        let all = Attributes(&request[HEADERS..]);
        all.check(
            &[RTA_DST, RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY, 6, RTA_PREFSRC, 11, RTA_TABLE, 16, RTA_UID]
                .map(|kind| (kind, Form::AtLeast(4))),
        )?;
        for (kind, data) in all {
            let address = || -> core::result::Result<Option<[u8; 16]>, Errno> {
                let mut out = [0; 16];
                out[..length].copy_from_slice(data.get(..length).ok_or(ERANGE)?);
                Ok(Some(out))
            };
            match kind {
                RTA_DST => question.to = address()?,
                RTA_SRC => question.from = address()?,
                RTA_OIF => {
                    let index = data.get(..4).and_then(|b| b.try_into().ok()).ok_or(ERANGE)?;
                    question.interface = Some(u32::from_ne_bytes(index)).filter(|index| *index != 0);
                }
                // Where a packet that came in would go: this machine forwards none.
                RTA_IIF => return Err(EOPNOTSUPP),
                _ => {}
            }
        }
        Ok(question)
    }
}

/// The route to one address (RTM_GETROUTE without NLM_F_DUMP). The inner error is for the asker.
pub(super) fn look_up(
    stack: &Stack,
    request: &[u8],
    reply: Reply,
) -> Result<core::result::Result<Vec<u8>, Errno>> {
    match Question::read(request).and_then(|question| Ok((found(stack, &question)?, question))) {
        Ok((way, question)) => way.message(&question, reply).map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

/// The way to an address.
#[derive(Debug, PartialEq)]
struct Way {
    interface: u32,
    kind: u8,
    source: [u8; 16],
    gateway: Option<[u8; 16]>,
}

fn found(stack: &Stack, question: &Question) -> core::result::Result<Way, Errno> {
    let four = |bytes: [u8; 16]| Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
    let from = question.from.filter(|_| question.family == AF_INET).map(four);
    let from = from.filter(|from| !from.is_unspecified());
    // The sender's address has to be this machine's (Linux' `ip_route_output_key_hash_rcu`).
    if let Some(from) = from.filter(|from| !stack.ip.is_own(*from)) {
        return Err(if from.is_multicast() || from.is_broadcast() { EINVAL } else { ENETUNREACH });
    }
    let is_there = |index| interfaces(stack).any(|interface| interface.index as u32 == index);
    if question.interface.is_some_and(|index| !is_there(index)) {
        return Err(ENODEV);
    }
    let goes = |interface| question.interface.is_none_or(|wanted| wanted == interface);
    if question.family == AF_INET6 {
        let to = Ipv6Addr::from(question.to.unwrap_or_default());
        let own = to.is_loopback() || to.is_unspecified();
        let source = Ipv6Addr::LOCALHOST.octets();
        let way = Way { interface: LOOPBACK, kind: RTN_LOCAL, source, gateway: None };
        return match own {
            true if goes(LOOPBACK) => Ok(way),
            false => found6(stack, &to).filter(|way| goes(way.interface)).ok_or(ENETUNREACH),
            true => Err(ENETUNREACH),
        };
    }
    let to = question.to.map_or(Ipv4Addr::UNSPECIFIED, four);
    if to.is_unspecified() {
        // This machine, whatever there is of interfaces.
        let source = sixteen(from.unwrap_or(Ipv4Addr::LOCALHOST));
        return Ok(Way { interface: LOOPBACK, kind: RTN_LOCAL, source, gateway: None });
    }
    let route = stack.ip.route_by(from, to, question.interface.unwrap_or(0))?;
    let interface = route.interface;
    // What is sent to an address of the interface's own leaves by the loopback.
    #[cfg(feature = "interfaces")]
    let is_its = |own| stack.ip.interfaces.as_ref().is_some_and(|all| all.interface_of(to) == Some(own));
    #[cfg(not(feature = "interfaces"))]
    let is_its = |_| false;
    if !(goes(interface) || route.loopback && question.interface.is_some_and(is_its)) {
        return Err(ENETUNREACH);
    }
    let kind = match () {
        () if stack.ip.is_broadcast(to) => RTN_BROADCAST,
        () if to.is_multicast() => RTN_MULTICAST,
        () if route.loopback => RTN_LOCAL,
        () => RTN_UNICAST,
    };
    let source = sixteen(from.unwrap_or(route.source));
    let direct = route.loopback || route.next_hop == to;
    Ok(Way { interface, kind, source, gateway: (!direct).then(|| sixteen(route.next_hop)) })
}

/// The way to an address of IPv6 that is not `::1`.
#[cfg(feature = "ipv6")]
fn found6(stack: &Stack, to: &Ipv6Addr) -> Option<Way> {
    let v6 = stack.ip.v6.as_ref()?;
    if let Some(own) = v6.addresses.get(to).filter(|own| own.is_assigned()) {
        return Some(Way {
            interface: LOOPBACK,
            kind: RTN_LOCAL,
            source: own.address.octets(),
            gateway: None,
        });
    }
    let is_known = |hop| stack.ip.neighbours.known((DEVICE, hop)).is_some();
    let (source, hop) = v6.way(to, is_known).ok()?;
    let kind = if to.is_multicast() { RTN_MULTICAST } else { RTN_UNICAST };
    let gateway = hop.map(|hop| hop.octets());
    Some(Way { interface: DEVICE, kind, source: source.octets(), gateway })
}

#[cfg(not(feature = "ipv6"))]
fn found6(_: &Stack, _: &Ipv6Addr) -> Option<Way> {
    None
}

/// An address of IPv4 as the first four of sixteen bytes.
fn sixteen(address: Ipv4Addr) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&address.octets());
    out
}

impl Way {
    fn message(&self, question: &Question, reply: Reply) -> Result<Vec<u8>> {
        let length = if question.family == AF_INET { 4 } else { 16 };
        let flags = match self.kind {
            RTN_LOCAL => RTCF_LOCAL,
            RTN_BROADCAST => RTCF_BROADCAST | RTCF_LOCAL,
            RTN_MULTICAST => RTCF_MULTICAST,
            _ => 0,
        };
        let from_length = question.from.map_or(0, |_| length as u8 * 8);
        let mut message = reply
            .message(RTM_NEWROUTE)
            .put(&[question.family, length as u8 * 8, from_length, 0, RT_TABLE_MAIN, 0, 0, self.kind])
            .put(&(RTM_F_CLONED | flags).to_ne_bytes())
            .attribute(RTA_DST, &question.to.unwrap_or_default()[..length])
            .attribute(RTA_TABLE, &u32::from(RT_TABLE_MAIN).to_ne_bytes());
        if let Some(from) = &question.from {
            message = message.attribute(RTA_SRC, &from[..length]);
        }
        message = message.attribute(RTA_OIF, &self.interface.to_ne_bytes());
        if question.from != Some(self.source) {
            message = message.attribute(RTA_PREFSRC, &self.source[..length]);
        }
        if let Some(gateway) = self.gateway {
            message = message.attribute(RTA_GATEWAY, &gateway[..length]);
        }
        // Nobody's route, and nothing in `struct rta_cacheinfo`: no route has an end here. Linux ends with these two, and nmap
        // does not read the last attribute.
        message.attribute(RTA_UID, &[0; 4]).attribute(RTA_CACHEINFO, &[0; 32]).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Message;
    use super::*;

    fn request(family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = Message::new(26, 1, 7, 0).put(&[family]).put(&[0; 11]);
        for (kind, data) in attributes {
            message = message.attribute(*kind, data);
        }
        message.finish().unwrap()
    }

    #[test]
    fn questions_are_read_with_their_addresses_or_refused() {
        let question = Question::read(&request(2, &[(1, &[10, 0, 0, 1]), (4, &2u32.to_ne_bytes())])).unwrap();
        assert_eq!(question.to.unwrap()[..4], [10, 0, 0, 1]);
        assert_eq!((question.family, question.interface, question.from), (2, Some(2), None));
        assert_eq!(Question::read(&request(0, &[])), Err(EOPNOTSUPP));
        assert_eq!(Question::read(&request(10, &[(1, &[10, 0, 0, 1])])), Err(ERANGE));
        assert_eq!(Question::read(&request(2, &[(3, &1u32.to_ne_bytes())])), Err(EOPNOTSUPP));
        assert_eq!(Question::read(&request(2, &[])[..20]), Err(EINVAL));
        // Lengths that are too short, and that go behind the end: there is no such attribute, as on Linux.
        for length in [0u16, 3, 9, 500] {
            let mut bytes = request(2, &[(1, &[10, 0, 0, 1])]);
            bytes[HEADERS..HEADERS + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Question::read(&bytes).unwrap().to, None);
        }
        assert_eq!(Question::read(&request(2, &[(1, &[10, 0, 0])])), Err(ERANGE));
    }
}
