// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of rtnetlink(7) that change interfaces and addresses; [`routes`](super::routes), [`rules`](super::rules) and
//! [`neighbours`](super::neighbours) have theirs.

use super::super::interface_flags::*;
use super::message::{Attributes, Form, IFA_F_NOPREFIXROUTE};
use super::*;
use crate::interfaces::bridge::Bridge;
use crate::interfaces::ports::USUAL_MTU;
use crate::interfaces::veth::{self, Place};
use crate::interfaces::{Address as InterfaceAddress, Kind, LOOPBACK, New};
use crate::ip::Ip;
use api_netdev::Name;
use core::any::Any;

pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const NLM_F_APPEND: u16 = 0x800;
const RTM_NEWNEIGH: u16 = 28;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// Of `struct ifinfomsg`.
const IFINFO: usize = 16;
/// Linux' MAX_ADDR_LEN.
const MAX_ADDRESS: usize = 32;
/// Linux' `ifla_policy`.
pub(super) const LINK_POLICY: [(u16, Form); 36] = [
    (IFLA_ADDRESS, Form::AtMost(MAX_ADDRESS)),
    (2, Form::AtMost(MAX_ADDRESS)),
    (IFLA_IFNAME, Form::Text(15)),
    (IFLA_MTU, Form::AtLeast(4)),
    (5, Form::AtLeast(4)),
    (IFLA_MASTER, Form::AtLeast(4)),
    (IFLA_TXQLEN, Form::AtLeast(4)),
    (14, Form::AtLeast(28)),
    (15, Form::AtLeast(4)),
    (16, Form::AtLeast(1)),
    (17, Form::AtLeast(1)),
    (IFLA_LINKINFO, Form::Nested),
    (IFLA_NET_NS_PID, Form::AtLeast(4)),
    (20, Form::Text(255)),
    (22, Form::Nested),
    (24, Form::Nested),
    (25, Form::Nested),
    (26, Form::Nested),
    (IFLA_GROUP, Form::AtLeast(4)),
    (IFLA_NET_NS_FD, Form::AtLeast(4)),
    (29, Form::AtLeast(4)),
    (30, Form::AtLeast(4)),
    (31, Form::AtLeast(4)),
    (32, Form::AtLeast(4)),
    (33, Form::AtLeast(1)),
    (35, Form::AtLeast(4)),
    (37, Form::AtLeast(4)),
    (39, Form::AtLeast(1)),
    (40, Form::AtLeast(4)),
    (41, Form::AtLeast(4)),
    (43, Form::Nested),
    (44, Form::AtLeast(4)),
    (46, Form::AtLeast(4)),
    (50, Form::AtLeast(4)),
    (52, Form::Nested),
    (IFLA_ALT_IFNAME, Form::Text(127)),
];
/// Linux' `ifla_info_policy`.
const INFO_POLICY: [(u16, Form); 4] = [
    (IFLA_INFO_KIND, Form::Text(usize::MAX)),
    (IFLA_INFO_DATA, Form::Nested),
    (4, Form::Text(usize::MAX)),
    (5, Form::Nested),
];
/// Linux' `ifa_ipv4_policy`.
const ADDRESS_POLICY: [(u16, Form); 9] = [
    (1, Form::AtLeast(4)),
    (2, Form::AtLeast(4)),
    (3, Form::Text(15)),
    (4, Form::AtLeast(4)),
    (6, Form::AtLeast(16)),
    (8, Form::AtLeast(4)),
    (9, Form::AtLeast(4)),
    (10, Form::AtLeast(4)),
    (11, Form::AtLeast(1)),
];

/// The bytes of an attribute that is a number.
pub(super) fn number(data: &[u8]) -> Result<u32> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(ERANGE)
}

pub(super) fn v4(data: &[u8]) -> Result<Ipv4Addr> {
    data.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes)).ok_or(ERANGE)
}

/// The attributes behind a header of that many bytes, which are as the policy has them.
pub(super) fn attributes<'a>(
    request: &'a [u8],
    header: usize,
    policy: &[(u16, Form)],
) -> Result<Attributes<'a>> {
    // What is behind the header begins at a multiple of four.
    let all = request.get(16 + header..).ok_or(EINVAL)?;
    let all = Attributes(all.get(header.next_multiple_of(4) - header..).unwrap_or_default());
    all.check(policy)?;
    Ok(all)
}

/// The text of an attribute, without a zero behind it.
fn text(data: &[u8]) -> &[u8] {
    data.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Does what a request of an administrator asks.
pub(super) fn change(
    net: &Arc<Net>,
    caller: &Caller<'_>,
    kind: u16,
    flags: u16,
    request: &[u8],
) -> Result<()> {
    match kind {
        RTM_NEWLINK => new_link(net, caller, flags, request),
        RTM_SETLINK => {
            let link = Link::read(request.get(16..).ok_or(EINVAL)?)?;
            let index = link.find(net)?.ok_or(EINVAL)?;
            set_link(net, caller, index, &link)
        }
        RTM_DELLINK => delete_link(net, request),
        RTM_NEWADDR | RTM_DELADDR => change_address(net, kind == RTM_NEWADDR, flags, request),
        RTM_NEWROUTE | RTM_DELROUTE => super::routes::change(net, kind == RTM_NEWROUTE, flags, request),
        RTM_NEWRULE | RTM_DELRULE => super::rules::change(net, kind == RTM_NEWRULE, flags, request),
        RTM_NEWNEIGH | RTM_DELNEIGH => super::neighbours::change(net, kind == RTM_NEWNEIGH, flags, request),
        _ => Err(EOPNOTSUPP),
    }
}

/// What a request says of an interface.
#[derive(Clone, Copy, Default)]
struct Link<'a> {
    index: u32,
    flags: u32,
    change: u32,
    /// Any text: what is no name of an interface is the name of none.
    name: Option<&'a [u8]>,
    mac: Option<&'a [u8]>,
    mtu: Option<u32>,
    group: Option<u32>,
    master: Option<u32>,
    queue_length: Option<u32>,
    namespace_pid: Option<u32>,
    namespace_fd: Option<u32>,
    sort: Option<&'a [u8]>,
    /// What the sort of interface is told beside.
    data: Option<&'a [u8]>,
}

impl<'a> Link<'a> {
    /// Of a `struct ifinfomsg` and the attributes behind it.
    fn read(bytes: &'a [u8]) -> Result<Link<'a>> {
        let header = bytes.get(..IFINFO).ok_or(EINVAL)?;
        let mut link = Link {
            index: number(&header[4..])?,
            flags: number(&header[8..])?,
            change: number(&header[12..])?,
            ..Link::default()
        };
        Attributes(&bytes[IFINFO..]).check(&LINK_POLICY)?;
        for (kind, data) in Attributes(&bytes[IFINFO..]) {
            match kind {
                IFLA_IFNAME => link.name = Some(text(data)),
                // Names beside the name are not kept.
                IFLA_ALT_IFNAME if link.name.is_none() => link.name = Some(text(data)),
                IFLA_ADDRESS => link.mac = Some(data),
                IFLA_MTU => link.mtu = Some(number(data)?),
                IFLA_MASTER => link.master = Some(number(data)?),
                IFLA_GROUP => link.group = Some(number(data)?),
                IFLA_TXQLEN => link.queue_length = Some(number(data)?),
                IFLA_NET_NS_PID => link.namespace_pid = Some(number(data)?),
                IFLA_NET_NS_FD => link.namespace_fd = Some(number(data)?),
                IFLA_LINKINFO => {
                    Attributes(data).check(&INFO_POLICY)?;
                    for (kind, data) in Attributes(data) {
                        match kind {
                            IFLA_INFO_KIND => link.sort = Some(text(data)),
                            IFLA_INFO_DATA => link.data = Some(data),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        // Old programs set flags without saying which (rtnetlink(7)).
        if link.change == 0 && link.flags != 0 {
            link.change = u32::MAX;
        }
        Ok(link)
    }

    /// The index, unless it is no number that an interface has.
    fn valid_index(&self) -> Option<u32> {
        Some(self.index).filter(|index| (1..=i32::MAX as u32).contains(index))
    }

    /// The interface that is meant: `ENODEV` where it is not there, `None` where none is named.
    fn find(&self, net: &Net) -> Result<Option<u32>> {
        let index = self.valid_index();
        if index.is_none() && self.name.is_none() {
            return Ok(None);
        }
        let is_it = |interface: &Interface| match index {
            None => Some(interface.name.as_bytes()) == self.name,
            Some(index) => interface.index as u32 == index,
        };
        let found = net.look(|stack| interfaces(stack).find(is_it));
        found.map(|interface| Some(interface.index as u32)).ok_or(ENODEV)
    }

    /// What Linux' `validate_linkmsg` looks at, of an interface whose addresses have that length.
    fn check_address(&self, length: usize) -> Result<()> {
        if self.mac.is_some_and(|mac| mac.len() < length) { Err(EINVAL) } else { Ok(()) }
    }

    /// What is said of the other end of a pair.
    fn peer(&self) -> Option<&'a [u8]> {
        let data = self.data?;
        Attributes(data).find(|(kind, _)| *kind == VETH_INFO_PEER).map(|(_, peer)| peer)
    }

    /// What pairs and bridges look at, of new ones and of those that are there (`veth_validate`, `br_validate`).
    fn check_kind(&self) -> Result<()> {
        let is_veth = self.sort == Some(b"veth");
        if let Some(mac) = self.mac.filter(|_| is_veth || self.sort == Some(b"bridge")) {
            let mac: &[u8; 6] = mac.as_array().ok_or(EINVAL)?;
            check_mac(mac)?;
        }
        if is_veth && let Some(mtu) = self.mtu {
            check_mtu(mtu as usize)?;
        }
        match self.peer().filter(|_| is_veth) {
            Some(peer) => Link { sort: self.sort, ..Link::read(peer).map_err(|_| ERANGE)? }.check_kind(),
            None => Ok(()),
        }
    }

    /// The network that the interface is to be in; `None`: where it is.
    fn target(&self, net: &Arc<Net>, caller: &Caller<'_>) -> Result<Option<Arc<Net>>> {
        let network = match (self.namespace_pid, self.namespace_fd) {
            (None, None) => return Ok(None),
            (Some(pid), _) => caller.names.network_of_process(pid as i32)?,
            (_, Some(fd)) => caller.names.network_of_descriptor(fd as i32)?,
        };
        let stack: Arc<dyn Any + Send + Sync> = network.stack().ok_or(EINVAL)?;
        let target = stack.downcast::<Net>().map_err(|_| EINVAL)?;
        Ok(Some(target).filter(|target| !Arc::ptr_eq(target, net)))
    }
}

/// RTM_NEWLINK: changes an interface that is there, or makes one.
fn new_link(net: &Arc<Net>, caller: &Caller<'_>, flags: u16, request: &[u8]) -> Result<()> {
    let link = Link::read(request.get(16..).ok_or(EINVAL)?)?;
    link.check_kind()?;
    if link.index > i32::MAX as u32 {
        return Err(EINVAL);
    }
    match link.find(net) {
        Ok(Some(_)) if flags & NLM_F_EXCL != 0 => Err(EEXIST),
        Ok(Some(_)) if flags & NLM_F_REPLACE != 0 => Err(EOPNOTSUPP),
        Ok(Some(index)) => {
            let sort = net.look(|s| interfaces(s).find(|i| i.index as u32 == index)).and_then(|i| i.kind);
            // Of the sorts, bridges alone take other data than at first.
            let is_its = link.sort == Some(b"bridge") && sort == Some("bridge");
            if link.data.is_some() && !is_its {
                return Err(EOPNOTSUPP);
            }
            set_link(net, caller, index, &link)
        }
        Err(_) if flags & NLM_F_CREATE == 0 => Err(ENODEV),
        Ok(None) if flags & NLM_F_CREATE == 0 => match link.group {
            None => Err(ENODEV),
            Some(group) => indexes_of_group(net, group)?
                .into_iter()
                .try_for_each(|index| set_link(net, caller, index, &Link { index, name: None, ..link })),
        },
        _ => make_link(net, caller, &link),
    }
}

/// The interfaces of a group, of which there need not be any.
fn indexes_of_group(net: &Net, group: u32) -> Result<Vec<u32>> {
    net.look(|stack| {
        let mut all = Vec::new();
        for interface in interfaces(stack).filter(|interface| interface.group == group) {
            all.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            all.push(interface.index as u32);
        }
        Ok(all)
    })
}

/// The name of a new interface: what is asked for, or its sort with a number.
fn name_of(link: &Link<'_>, pattern: &'static str) -> Result<Name> {
    link.name.map_or(Ok(Name::new(pattern)), Name::parse)
}

fn check_mtu(mtu: usize) -> Result<()> {
    let range = crate::interfaces::MIN_MTU..=crate::interfaces::MAX_MTU;
    if range.contains(&mtu) { Ok(()) } else { Err(EINVAL) }
}

fn check_mac(mac: &[u8; 6]) -> Result<()> {
    if mac[0] & 1 == 1 || *mac == [0; 6] { Err(EADDRNOTAVAIL) } else { Ok(()) }
}

/// The largest packet and, where it is said, the address of a new interface.
fn check_new(link: &Link<'_>) -> Result<(usize, Option<[u8; 6]>)> {
    link.check_address(6)?;
    let mtu = link.mtu.map_or(USUAL_MTU, |mtu| mtu as usize);
    check_mtu(mtu)?;
    let mac = link.mac.and_then(|mac| mac.first_chunk().copied());
    mac.as_ref().map_or(Ok(()), check_mac)?;
    Ok((mtu, mac))
}

fn add(
    net: &Arc<Net>,
    link: &Link<'_>,
    pattern: &'static str,
    kind: impl FnOnce(&mut Ip) -> Kind,
) -> Result<u32> {
    let (mtu, mac) = check_new(link)?;
    let name = name_of(link, pattern)?;
    net.act(|stack, _| {
        let mac = mac.unwrap_or_else(|| stack.ip.random_mac());
        let kind = kind(&mut stack.ip);
        let (has_carrier, has_arp) = match &kind {
            Kind::Veth(_) | Kind::Bridge(_) => (false, true),
            Kind::Dummy => (true, false),
            _ => (true, true),
        };
        let flags = if has_arp { IFF_MULTICAST } else { IFF_NOARP };
        let index = link.index;
        stack.change_interfaces(net, |all| {
            let index = all.add(New { name, index, kind, mac, mtu, flags, has_carrier })?;
            let new = all.get_mut(index)?;
            new.queue_length = link.queue_length.unwrap_or(new.queue_length);
            new.group = link.group.unwrap_or(new.group);
            let place = all.place.clone();
            if let Kind::Veth(end) = &all.get(index)?.kind {
                end.settle_at(&place, index, false);
            }
            Ok(index)
        })
    })
}

fn make_link(net: &Arc<Net>, caller: &Caller<'_>, link: &Link<'_>) -> Result<()> {
    let target = link.target(net, caller)?;
    let home = target.as_ref().unwrap_or(net);
    let settled = |index: Result<u32>| -> Result<()> {
        let index = index?;
        let rest = Link { change: link.change, flags: link.flags, master: link.master, ..Link::default() };
        let done = set_link(home, caller, index, &rest);
        if done.is_err() {
            remove(home, index);
        }
        done
    };
    match link.sort {
        Some(b"dummy") => settled(add(home, link, "dummy%d", |_| Kind::Dummy)),
        Some(b"bridge") => settled(add(home, link, "bridge%d", |ip| Kind::Bridge(Bridge::new(ip.new_key())))),
        Some(b"veth") => {
            let peer = link.peer().map(|peer| Link::read(peer).map_err(|_| ERANGE)).transpose()?;
            // An end that nothing is said of is as the other one, but for its name.
            let peer = peer.unwrap_or(Link {
                mac: link.mac,
                mtu: link.mtu,
                queue_length: link.queue_length,
                group: link.group,
                ..Link::default()
            });
            let peer_home = peer.target(net, caller)?;
            let peer_home = peer_home.as_ref().unwrap_or(home);
            let [own_end, peer_end] = veth::pair();
            check_new(link)?;
            let peer_index = add(peer_home, &peer, "veth%d", |_| Kind::Veth(peer_end))?;
            let index = add(home, link, "veth%d", |_| Kind::Veth(own_end));
            if index.is_err() {
                // Its end is gone already, and the other interface would follow with the next packet.
                remove(peer_home, peer_index);
                return index.map(drop);
            }
            let rest = Link { change: peer.change, flags: peer.flags, ..Link::default() };
            set_link(peer_home, caller, peer_index, &rest)?;
            settled(index)
        }
        // Sorts of interfaces that there are not, or none.
        _ => Err(EOPNOTSUPP),
    }
}

/// Takes an interface out. What it held goes without the stack's lock, and the other end of its pair at once.
fn remove(net: &Arc<Net>, index: u32) {
    let other = other_stack(net, index);
    let gone = net.act(|stack, _| stack.change_interfaces(net, |all| all.remove(index)));
    if let Ok(crate::interfaces::Interface { kind: Kind::Port { port, .. }, .. }) = &gone {
        port.detached();
        port.settle();
    }
    drop(gone);
    settle(net, other);
}

/// The stack of the other end of a pair.
fn other_stack(net: &Net, index: u32) -> Option<Place> {
    net.look(|stack| match &stack.ip.interfaces.as_ref()?.get(index).ok()?.kind {
        Kind::Veth(end) => end.other().map(|(place, _)| place),
        _ => None,
    })
}

/// Both ends of a pair are as they are now.
fn settle(net: &Arc<Net>, other: Option<Place>) {
    let Some(other) = other.and_then(|place| place.net.upgrade()) else { return };
    other.act(|_, _| ());
    if !Arc::ptr_eq(&other, net) {
        net.act(|_, _| ());
    }
}

/// RTM_DELLINK.
fn delete_link(net: &Arc<Net>, request: &[u8]) -> Result<()> {
    let link = Link::read(request.get(16..).ok_or(EINVAL)?)?;
    let can_go = |index: u32| {
        net.look(|stack| {
            let all = stack.ip.interfaces.as_ref();
            all.and_then(|all| all.get(index).ok())
                .is_some_and(|i| !matches!(i.kind, Kind::Loopback | Kind::Device))
        })
    };
    let gone = match (link.find(net)?, link.group) {
        (Some(index), _) => Vec::from([index]),
        (None, None) => return Err(EINVAL),
        // The one that all are in from the beginning.
        (None, Some(0)) => return Err(EPERM),
        (None, Some(group)) => indexes_of_group(net, group)?,
    };
    if gone.is_empty() {
        return Err(ENODEV);
    }
    if !gone.iter().all(|index| can_go(*index)) {
        return Err(EOPNOTSUPP);
    }
    gone.into_iter().for_each(|index| remove(net, index));
    Ok(())
}

/// RTM_SETLINK, and RTM_NEWLINK of an interface that is there.
fn set_link(net: &Arc<Net>, caller: &Caller<'_>, index: u32, link: &Link<'_>) -> Result<()> {
    if index == LOOPBACK {
        return net.act(|stack, _| set_loopback(stack, link));
    }
    let mut home = net.clone();
    let mut index = index;
    link.check_address(net.look(|stack| {
        let known = stack.ip.interfaces.as_ref().and_then(|all| all.get(index).ok());
        if known.is_none_or(|known| known.has_ethernet()) { 6 } else { 0 }
    }))?;
    let mac = link.mac.and_then(|mac| mac.first_chunk().copied());
    // A name beside the index is a new one.
    let name = link.name.filter(|name| link.index != 0 && !name.is_empty());
    if let Some(target) = link.target(net, caller)? {
        index = move_to(net, &target, index, link.name.map(Name::parse).transpose()?)?;
        home = target;
    }
    let other = other_stack(&home, index);
    let done = home.act(|stack, _| {
        stack.change_interfaces(&home, |all| {
            if let Some(mac) = mac {
                all.set_mac(index, mac)?;
            }
            if let Some(mtu) = link.mtu {
                all.set_mtu(index, mtu as usize)?;
            }
            if let Some(group) = link.group {
                all.get_mut(index)?.group = group;
            }
            if let Some(name) = name {
                all.rename(index, &Name::parse(name)?)?;
            }
            if link.change != 0 {
                all.set_flags(index, link.flags, link.change)?;
            }
            if let Some(master) = link.master {
                all.set_master(index, master)?;
            }
            if let Some(length) = link.queue_length {
                all.get_mut(index)?.queue_length = length;
            }
            Ok(())
        })
    });
    settle(&home, other);
    done
}

/// The loopback interface may go down and up, and have another MTU.
fn set_loopback(stack: &mut Stack, link: &Link<'_>) -> Result<()> {
    let is_same_name = link.name.is_none_or(|name| name == b"lo");
    if !is_same_name || link.mac.is_some() || link.master.is_some_and(|master| master != 0) {
        return Err(EOPNOTSUPP);
    }
    if link.namespace_fd.is_some() || link.namespace_pid.is_some() {
        return Err(EINVAL);
    }
    if let Some(mtu) = link.mtu {
        stack.set_loopback_mtu(mtu.into())?;
    }
    if link.change & IFF_UP != 0 {
        stack.ip.lo.set_up(link.flags & IFF_UP != 0);
    }
    Ok(())
}

/// An interface goes into another network, where it has no addresses and is down.
fn move_to(net: &Arc<Net>, target: &Arc<Net>, index: u32, name: Option<Name>) -> Result<u32> {
    let wanted = net.look(|stack| {
        let interface = stack.ip.interfaces.as_ref().ok_or(EINVAL)?.get(index)?;
        match interface.kind {
            // Linux' NETIF_F_NETNS_LOCAL; the device is the machine's.
            Kind::Loopback | Kind::Device | Kind::Bridge(_) => Err(EINVAL),
            _ => Ok(name.unwrap_or(interface.name)),
        }
    })?;
    target.act(|stack, _| stack.change_interfaces(target, |all| all.free_name(&wanted).map(drop)))?;
    let moving = net.act(|stack, _| {
        stack.change_interfaces(net, |all| {
            all.set_flags(index, 0, IFF_UP)?;
            all.remove(index)
        })
    })?;
    let placed = target.act(|stack, _| {
        stack.change_interfaces(target, |all| {
            Ok(all.take_in(moving, Some(wanted)).map(|i| (i, all.place.clone())))
        })
    })?;
    let (home, index, place) = match placed {
        Ok((index, place)) => (target, Ok(index), place),
        Err(back) => {
            // Where it came from, its place is free.
            let back = net.act(|stack, _| {
                stack.change_interfaces(net, |all| {
                    all.take_in(back, None).map(|index| (index, all.place.clone())).map_err(|_| ENOMEM)
                })
            })?;
            (net, Err((back.0, ENOMEM)), back.1)
        }
    };
    let at = match index {
        Ok(index) | Err((index, _)) => index,
    };
    let port = home.look(|stack| {
        let interface = stack.ip.interfaces.as_ref()?.get(at).ok()?;
        match &interface.kind {
            Kind::Veth(end) => {
                end.settle_at(&place, at, false);
                None
            }
            Kind::Port { port, .. } => Some(port.clone()),
            _ => None,
        }
    });
    if let Some(port) = port {
        port.moved(crate::interfaces::ports::of(home), at);
    }
    index.map_err(|(_, error)| error)
}

/// RTM_NEWADDR and RTM_DELADDR.
fn change_address(net: &Arc<Net>, adds: bool, flags: u16, request: &[u8]) -> Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_LABEL: u16 = 3;
    const IFA_BROADCAST: u16 = 4;
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    const IFA_CACHEINFO: u16 = 6;
    const IFA_FLAGS: u16 = 8;
    const IFA_RT_PRIORITY: u16 = 9;
    match request.get(16) {
        Some(&AF_INET) => {}
        // As on a Linux whose devices have IPv6 disabled.
        Some(&AF_INET6) => return Err(EACCES),
        _ => return Err(EOPNOTSUPP),
    }
    // struct ifaddrmsg: family, prefix, flags, scope, index.
    let &[_, prefix, short_flags, scope, ref index @ ..] = request.get(16..24).ok_or(EINVAL)? else {
        return Err(EINVAL);
    };
    let index = number(index)?;
    let (mut local, mut peer, mut broadcast, mut label) = (None, None, None, None);
    let (mut lives, mut asked_flags, mut metric) = (true, u32::from(short_flags), 0);
    for (kind, data) in attributes(request, 8, &ADDRESS_POLICY)? {
        match kind {
            IFA_LOCAL => local = Some(v4(data)?),
            IFA_ADDRESS => peer = Some(v4(data)?),
            IFA_BROADCAST => broadcast = Some(v4(data)?).filter(|broadcast| !broadcast.is_unspecified()),
            IFA_LABEL => label = Some(Name::label(data)),
            // Those that have no room in the header's byte.
            IFA_FLAGS => asked_flags = number(data)?,
            IFA_RT_PRIORITY => metric = number(data)?,
            IFA_CACHEINFO => {
                // struct ifa_cacheinfo: preferred, valid.
                let (preferred, valid) = (number(data)?, number(&data[4..])?);
                lives = valid != 0 && preferred <= valid;
            }
            _ => {}
        }
    }
    // Linux' `inet_validate_rtm`.
    if adds && (prefix > 32 || local.is_none() || !lives) {
        return Err(EINVAL);
    }
    if adds && local.is_some_and(|local| local.is_unspecified()) {
        return Ok(());
    }
    let known = net.look(|s| interfaces(s).find(|i| i.index as u32 == index)).ok_or(ENODEV)?;
    // What a deletion does not say may be anything.
    let (has_local, local) = (local.is_some(), local.or(peer).unwrap_or(Ipv4Addr::UNSPECIFIED));
    let replaces = flags & (NLM_F_REPLACE | NLM_F_EXCL) == NLM_F_REPLACE;
    if index == LOOPBACK {
        return match net.act(|stack, _| address_of_loopback(stack, adds, local, prefix)) {
            Err(EEXIST) if replaces => Ok(()),
            done => done,
        };
    }
    let address = InterfaceAddress {
        local,
        peer: peer.unwrap_or(local),
        prefix,
        scope,
        broadcast,
        label: label.unwrap_or(known.name),
        has_no_route: asked_flags & IFA_F_NOPREFIXROUTE != 0,
        metric,
    };
    let asked = Asked { address, has_local, has_peer: peer.is_some(), has_label: label.is_some() };
    net.act(|stack, now| {
        stack.change_interfaces(net, |all| {
            if !adds {
                let found = all.get(index)?.addresses.iter().find(|known| asked.names(known)).copied();
                return all.remove_address(index, &found.ok_or(EADDRNOTAVAIL)?);
            }
            match all.add_address(index, address) {
                Err(EEXIST) if replaces => all.set_metric(index, &address),
                done => done,
            }
        })?;
        if adds {
            // Others learn of it (RFC 5227 2.3).
            stack.ip.ask_neighbour(now, index, local);
        }
        Ok(())
    })
}

/// An address that is to go, as far as it is said.
struct Asked {
    address: InterfaceAddress,
    has_local: bool,
    has_peer: bool,
    has_label: bool,
}

impl Asked {
    fn names(&self, known: &InterfaceAddress) -> bool {
        let asked = &self.address;
        (!self.has_local || known.local == asked.local)
            && (!self.has_label || known.label == asked.label)
            && (!self.has_peer || known.prefix == asked.prefix && known.network() == asked.network())
    }
}

/// What is no address of the table: those of loopback.
fn address_of_loopback(stack: &mut Stack, adds: bool, address: Ipv4Addr, prefix: u8) -> Result<()> {
    // A network whose loopback is all it has begins without the address that it gets with going up.
    let is_usual = (address, prefix) == (Ipv4Addr::LOCALHOST, 8);
    match adds {
        true if is_usual && !stack.ip.lo.has_address => {
            stack.ip.lo.has_address = true;
            Ok(())
        }
        true => stack.ip.local.add(address, prefix),
        false => stack.ip.local.remove(address, prefix),
    }
}
