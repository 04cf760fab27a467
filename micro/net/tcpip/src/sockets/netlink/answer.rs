// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers to requests of rtnetlink(7): dumps, one interface, the route to one address, acknowledgements and errors.

#[cfg(feature = "interfaces")]
use super::change::change;
#[cfg(not(feature = "interfaces"))]
use super::limited::change;
use super::message::{self, AddressOf, Attributes, Message, Reply, append};
use super::*;
use core::net::Ipv4Addr;

const AF_BRIDGE: u8 = 7;
/// Bytes of a part of a dump at most: readers have a page for it.
const PART: usize = 3500;

/// Whether RTM_GETLINK asks for the interface, by its number or its name.
pub(super) fn is_asked_for(request: &[u8], interface: &Interface) -> bool {
    const IFLA_IFNAME: u16 = 3;
    const IFLA_ALT_IFNAME: u16 = 53;
    // struct ifinfomsg behind the header.
    let index = request.get(20..24).and_then(|b| b.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if index != 0 {
        return index == interface.index;
    }
    let name = attribute(request, 32, &[IFLA_IFNAME, IFLA_ALT_IFNAME]);
    name.is_some_and(|name| name.split(|byte| *byte == 0).next() == Some(interface.name.as_bytes()))
}

/// Whether RTM_GETLINK names an interface, by its number or its name.
fn names_interface(request: &[u8]) -> bool {
    const IFLA_IFNAME: u16 = 3;
    const IFLA_ALT_IFNAME: u16 = 53;
    let index = request.get(20..24).and_then(|b| b.try_into().ok()).map_or(0, i32::from_ne_bytes);
    index > 0 || attribute(request, 32, &[IFLA_IFNAME, IFLA_ALT_IFNAME]).is_some()
}

/// Whether a dump of RTM_GETLINK is to have the interface: it may ask for the ports of one bridge (`u32::MAX`: for those without one)
/// and for one sort alone.
fn is_in_dump(request: &[u8], interface: &Interface) -> bool {
    const IFLA_MASTER: u16 = 10;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    let master = attribute(request, 32, &[IFLA_MASTER]).and_then(|data| data.first_chunk());
    let has_master = match master.map_or(0, |bytes| u32::from_ne_bytes(*bytes)) {
        0 => true,
        u32::MAX => interface.master == 0,
        master => interface.master == master,
    };
    let info = attribute(request, 32, &[IFLA_LINKINFO]);
    let sort = info.and_then(|info| Attributes(info).find(|(kind, _)| *kind == IFLA_INFO_KIND));
    let sort = sort.and_then(|(_, text)| text.split(|byte| *byte == 0).next());
    // A sort that there is none of is none to ask for.
    let is_known = sort.is_some_and(|sort| matches!(sort, b"veth" | b"bridge" | b"dummy" | b"tun"));
    has_master && (!is_known || sort == interface.kind.map(str::as_bytes))
}

/// The first attribute with one of these numbers, behind the header that ends at `start`.
pub(super) fn attribute<'a>(request: &'a [u8], start: usize, wanted: &[u16]) -> Option<&'a [u8]> {
    let mut all = Attributes(request.get(start..)?);
    all.find(|(kind, _)| wanted.contains(kind)).map(|(_, data)| data)
}

/// Parts of a dump, each in a message of its own.
struct Parts<'a> {
    socket: &'a NetlinkSocket,
    part: Vec<u8>,
}

impl Parts<'_> {
    fn put(&mut self, message: &[u8]) -> Result<()> {
        if !self.part.is_empty() && self.part.len() + message.len() > PART {
            self.socket.push(core::mem::take(&mut self.part))?;
        }
        append(&mut self.part, message)
    }

    fn finish(self, reply: Reply) -> Result<()> {
        if !self.part.is_empty() {
            self.socket.push(self.part)?;
        }
        self.socket.push(reply.message(NLMSG_DONE).put(&[0; 4]).finish()?)
    }
}

/// The addresses of an interface that is not in the table of interfaces: `lo`, and a device that no program changed.
fn addresses(
    stack: &Stack,
    interface: &Interface,
    put: &mut dyn FnMut(&AddressOf) -> Result<()>,
) -> Result<()> {
    let with = |local: Ipv4Addr, prefix| AddressOf {
        index: interface.index as u32,
        local,
        peer: local,
        prefix,
        // Host or universe: what `ip address add` says where nothing is said.
        scope: if local.is_loopback() { 254 } else { 0 },
        broadcast: interface.broadcast,
        label: interface.name,
        is_secondary: false,
        has_no_route: false,
        metric: 0,
    };
    if let Some(address) = interface.address {
        put(&with(address, interface.prefix))?;
    }
    if interface.is_loopback() {
        stack.ip.local.iter().try_for_each(|(address, prefix)| put(&with(address, prefix)))?;
    }
    Ok(())
}

/// All addresses of IPv4.
fn each_address(stack: &Stack, put: &mut dyn FnMut(&AddressOf) -> Result<()>) -> Result<()> {
    for interface in interfaces(stack) {
        #[cfg(feature = "interfaces")]
        if !interface.is_loopback()
            && let Some(Ok(known)) = stack.ip.interfaces.as_ref().map(|all| all.get(interface.index as u32))
        {
            known.addresses.iter().try_for_each(|address| {
                let is_secondary = known.is_secondary(address);
                put(&AddressOf { is_secondary, ..super::notice::shown(known.index, address) })
            })?;
            continue;
        }
        addresses(stack, &interface, put)?;
    }
    Ok(())
}

/// RTM_GETNSID: NETNSA_NSID_NOT_ASSIGNED, for the namespace of a process or a descriptor. `EINVAL` for a request that names neither.
fn number_of_namespace(request: &[u8], reply: Reply) -> core::result::Result<Result<Vec<u8>>, Errno> {
    const NETNSA_NSID: u16 = 1;
    const NETNSA_PID: u16 = 2;
    const NETNSA_FD: u16 = 3;
    // struct rtgenmsg behind the header.
    attribute(request, 20, &[NETNSA_PID, NETNSA_FD]).ok_or(EINVAL)?;
    Ok(reply.message(RTM_NEWNSID).put(&[0; 4]).attribute(NETNSA_NSID, &(-1i32).to_ne_bytes()).finish())
}

impl NetlinkSocket {
    pub(super) fn answer(&self, request: &[u8], caller: Option<&Caller<'_>>) -> Result<()> {
        let caller = caller.filter(|caller| caller.names.may_administer());
        let word =
            |at: usize| request.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let (kind, flags) = (word(4) as u16, (word(4) >> 16) as u16);
        let family = request.get(16).copied().unwrap_or(0);
        if flags & NLM_F_REQUEST == 0 || kind < RTM_NEWLINK || request.len() == 16 && kind <= RTM_MAX {
            // Linux' `netlink_rcv_skb` and `rtnetlink_rcv_msg`: there is nothing to do.
            return self.acknowledge(flags, request);
        }
        let is_get = kind % 4 == 2;
        let dump = is_get && flags & NLM_F_DUMP != 0;
        let reply = Reply { seq: word(8), port: self.port(), is_part: dump };
        let is_v4 = family != 10;
        let is_v6 = family != 2;
        let mut parts = Parts { socket: self, part: Vec::new() };
        if matches!(kind, RTM_DELLINK | RTM_DELADDR | RTM_DELROUTE | RTM_DELRULE | RTM_DELNEIGH)
            && caller.is_some()
            && flags & NLM_F_BULK != 0
        {
            return self.push(self.error(EOPNOTSUPP, request)?);
        }
        #[cfg(feature = "interfaces")]
        if kind == RTM_GETLINK
            && !dump
            && Attributes(request.get(32..).unwrap_or_default()).check(&super::change::LINK_POLICY).is_err()
        {
            return self.push(self.error(ERANGE, request)?);
        }
        match kind {
            RTM_GETLINK if dump => self.net.look(|stack| {
                interfaces(stack)
                    .filter(|interface| is_in_dump(request, interface))
                    // Of a bridge it is its ports that are asked for.
                    .filter(|interface| family != AF_BRIDGE || interface.master != 0)
                    .try_for_each(|interface| parts.put(&message::link(RTM_NEWLINK, &interface, reply)?))
            })?,
            RTM_GETLINK if request.get(16..32).is_none() || !names_interface(request) => {
                return self.push(self.error(EINVAL, request)?);
            }
            RTM_GETLINK => {
                let named =
                    self.net.look(|s| interfaces(s).find(|interface| is_asked_for(request, interface)));
                let answer =
                    named.ok_or(ENODEV).map(|interface| message::link(RTM_NEWLINK, &interface, reply));
                return self.answer_one(answer, request);
            }
            RTM_GETADDR if dump => self.net.look(|stack| {
                if is_v4 {
                    each_address(stack, &mut |address| {
                        parts.put(&message::address(RTM_NEWADDR, address, reply)?)
                    })?;
                }
                for interface in
                    interfaces(stack).filter(|i| i.is_loopback() && i.flags & IFF_UP != 0 && is_v6)
                {
                    parts.put(&message::loopback6(&interface, reply)?)?;
                }
                #[cfg(feature = "ipv6")]
                if let Some(v6) = stack.ip.v6.as_ref().filter(|_| is_v6) {
                    super::ipv6::addresses(v6, reply, &mut |message| parts.put(&message))?;
                }
                Ok(())
            })?,
            RTM_GETROUTE if !dump => {
                let found = self.net.look(|s| route::look_up(s, request, reply))?;
                return self.answer_one(found.map(Ok), request);
            }
            RTM_GETROUTE => {
                self.net.look(|stack| route::table(stack, family, reply, &mut |entry| parts.put(&entry)))?
            }
            // Of a family that has none.
            RTM_GETRULE if dump && !matches!(family, 0 | 2 | 10) => {}
            RTM_GETRULE if dump && matches!(family, 0 | 2 | 10) => self.net.look(|stack| {
                #[cfg(feature = "interfaces")]
                if is_v4 && let Some(all) = &stack.ip.interfaces {
                    for rule in all.rules.iter() {
                        parts.put(&super::notice::rule_message(&all.shown_rule(rule), true, reply)?)?;
                    }
                    return v6_rules(is_v6, reply, &mut parts);
                }
                let _ = stack;
                // Of IPv6 there is no default table.
                for (priority, table) in [(0, 255), (32_766, 254), (32_767, 253)] {
                    if is_v4 {
                        parts.put(&message::rule(2, priority, table, reply)?)?;
                    }
                }
                v6_rules(is_v6, reply, &mut parts)
            })?,
            // Linux' `neigh_get` is asked for one by its address.
            RTM_GETNEIGH if !dump && attribute(request, 28, &[1]).is_none() => {
                return self.push(self.error(EINVAL, request)?);
            }
            RTM_GETNEIGH if dump => self.net.look(|stack| {
                #[cfg(feature = "interfaces")]
                neighbours::table(stack, request, reply, &mut |entry| parts.put(&entry))?;
                #[cfg(feature = "ipv6")]
                if let Some(v6) = stack.ip.v6.as_ref().filter(|_| is_v6) {
                    super::ipv6::neighbours(v6, &stack.ip.neighbours, reply, &mut |entry| parts.put(&entry))?;
                }
                let _ = stack;
                Ok(())
            })?,
            // Namespaces have no numbers for each other, and nobody can give them some.
            RTM_GETNSID if dump => {}
            RTM_GETNSID => return self.answer_one(number_of_namespace(request, reply), request),
            _ if is_get => return self.push(self.error(EOPNOTSUPP, request)?),
            // New, delete, set.
            _ => {
                let done = match caller {
                    Some(caller) => change(&self.net, caller, kind, flags, request),
                    None => Err(EPERM),
                };
                return match done {
                    Ok(()) => self.acknowledge(flags, request),
                    Err(errno) => self.push(self.error(errno, request)?),
                };
            }
        }
        parts.finish(reply)
    }

    /// What one message is answered, and that it was, if that is asked for; or the error.
    fn answer_one(&self, answer: core::result::Result<Result<Vec<u8>>, Errno>, request: &[u8]) -> Result<()> {
        match answer {
            Ok(answer) => {
                self.push(answer?)?;
                let flags = request.get(6..8).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]));
                self.acknowledge(flags, request)
            }
            Err(errno) => self.push(self.error(errno, request)?),
        }
    }

    pub(super) fn acknowledge(&self, flags: u16, request: &[u8]) -> Result<()> {
        if flags & NLM_F_ACK != 0 { self.push(self.error(Errno(0), request)?) } else { Ok(()) }
    }

    pub(super) fn error(&self, errno: Errno, request: &[u8]) -> Result<Vec<u8>> {
        let seq = request.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        // An error tells which request it is about, wholly where nobody has asked for less.
        let is_short = errno.0 == 0 || self.flags.load(Ordering::Relaxed) & 1 << NETLINK_CAP_ACK != 0;
        let shown = if is_short { 16 } else { request.len() };
        let flags = if is_short { NLM_F_CAPPED } else { 0 };
        Message::new(NLMSG_ERROR, flags, seq, self.port())
            .put(&(-i32::from(errno.0)).to_ne_bytes())
            .put(&request[..request.len().min(shown)])
            .finish()
    }
}

fn v6_rules(is_wanted: bool, reply: Reply, parts: &mut Parts<'_>) -> Result<()> {
    for (priority, table) in [(0, 255), (32_766, 254)] {
        if is_wanted {
            parts.put(&message::rule(10, priority, table, reply)?)?;
        }
    }
    Ok(())
}
