// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of rtnetlink(7) that change interfaces and addresses; [`routes`](super::routes), [`rules`](super::rules) and
//! [`neighbours`](super::neighbours) have theirs.

use super::super::interface_flags::*;
use super::message::Attributes;
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
const RTM_SETLINK: u16 = 19;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_DELRULE: u16 = 33;
/// Bits of an attribute's number that say how it is written (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const NUMBER: u16 = 0x3fff;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// Of `struct ifinfomsg`.
const IFINFO: usize = 16;

/// The bytes of an attribute that is a number.
pub(super) fn number(data: &[u8]) -> Result<u32> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(ERANGE)
}

pub(super) fn v4(data: &[u8]) -> Result<Ipv4Addr> {
    data.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes)).ok_or(ERANGE)
}

/// The attributes behind a header of that many bytes.
pub(super) fn attributes(request: &[u8], header: usize) -> Result<Attributes<'_>> {
    Ok(Attributes(request.get(16 + header..).ok_or(EINVAL)?))
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
            let index = link.find(net)?;
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
    name: Option<Name>,
    mac: Option<[u8; 6]>,
    mtu: Option<u32>,
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
        if link.index > i32::MAX as u32 {
            return Err(EINVAL);
        }
        for attribute in Attributes(&bytes[IFINFO..]) {
            let (kind, data) = attribute?;
            match kind & NUMBER {
                IFLA_IFNAME => link.name = Some(Name::parse(data)?),
                // Names beside the name are not kept.
                IFLA_ALT_IFNAME if link.name.is_none() => link.name = Name::parse(data).ok(),
                IFLA_ADDRESS => link.mac = Some(data.first_chunk().copied().ok_or(EINVAL)?),
                IFLA_MTU => link.mtu = Some(number(data)?),
                IFLA_MASTER => link.master = Some(number(data)?),
                IFLA_TXQLEN => link.queue_length = Some(number(data)?),
                IFLA_NET_NS_PID => link.namespace_pid = Some(number(data)?),
                IFLA_NET_NS_FD => link.namespace_fd = Some(number(data)?),
                IFLA_LINKINFO => {
                    for attribute in Attributes(data) {
                        let (kind, data) = attribute?;
                        match kind & NUMBER {
                            IFLA_INFO_KIND => link.sort = data.split(|byte| *byte == 0).next(),
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

    /// The interface that is meant: `ENODEV` where it is not there, `EINVAL` where none is named.
    fn find(&self, net: &Net) -> Result<u32> {
        if self.index == 0 && self.name.is_none() {
            return Err(EINVAL);
        }
        let is_it = |interface: &Interface| match self.index {
            0 => Some(interface.name) == self.name,
            index => interface.index as u32 == index,
        };
        let found = net.look(|stack| interfaces(stack).find(is_it));
        found.map(|interface| interface.index as u32).ok_or(ENODEV)
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
    match link.find(net) {
        Ok(_) if flags & NLM_F_EXCL != 0 => Err(EEXIST),
        Ok(_) if flags & NLM_F_REPLACE != 0 => Err(EOPNOTSUPP),
        Ok(index) => {
            let sort = net.look(|s| interfaces(s).find(|i| i.index as u32 == index)).and_then(|i| i.kind);
            if link.sort.is_some_and(|asked| Some(asked) != sort.map(str::as_bytes)) {
                return Err(EOPNOTSUPP);
            }
            set_link(net, caller, index, &link)
        }
        Err(_) if flags & NLM_F_CREATE == 0 => Err(ENODEV),
        Err(_) => make_link(net, caller, &link),
    }
}

/// The name of a new interface: what is asked for, or its sort with a number.
fn name_of(link: &Link<'_>, pattern: &'static str) -> Name {
    link.name.unwrap_or(Name::new(pattern))
}

fn check_new(link: &Link<'_>) -> Result<usize> {
    let mtu = link.mtu.map_or(USUAL_MTU, |mtu| mtu as usize);
    if !(crate::interfaces::MIN_MTU..=crate::interfaces::MAX_MTU).contains(&mtu) {
        return Err(EINVAL);
    }
    if link.mac.is_some_and(|mac| mac[0] & 1 == 1 || mac == [0; 6]) {
        return Err(EADDRNOTAVAIL);
    }
    Ok(mtu)
}

fn add(
    net: &Arc<Net>,
    link: &Link<'_>,
    pattern: &'static str,
    kind: impl FnOnce(&mut Ip) -> Kind,
) -> Result<u32> {
    let mtu = check_new(link)?;
    net.act(|stack, _| {
        let mac = link.mac.unwrap_or_else(|| stack.ip.random_mac());
        let kind = kind(&mut stack.ip);
        let (has_carrier, has_arp) = match &kind {
            Kind::Veth(_) | Kind::Bridge(_) => (false, true),
            Kind::Dummy => (true, false),
            _ => (true, true),
        };
        let flags = if has_arp { IFF_MULTICAST } else { IFF_NOARP };
        let (name, index) = (name_of(link, pattern), link.index);
        stack.change_interfaces(net, |all| {
            let index = all.add(New { name, index, kind, mac, mtu, flags, has_carrier })?;
            if let Some(length) = link.queue_length {
                all.get_mut(index)?.queue_length = length;
            }
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
            let peer = link.data.map(|data| attribute_of(data, VETH_INFO_PEER)).transpose()?.flatten();
            let peer = peer.map(Link::read).transpose()?.unwrap_or_default();
            let peer_home = peer.target(net, caller)?;
            let peer_home = peer_home.as_ref().unwrap_or(home);
            let [own_end, peer_end] = veth::pair();
            let peer = Link { mtu: peer.mtu.or(link.mtu), ..peer };
            check_new(link)?;
            let peer_index = add(peer_home, &peer, "veth%d", |_| Kind::Veth(peer_end))?;
            let index = add(home, link, "veth%d", |_| Kind::Veth(own_end));
            if index.is_err() {
                // Its end is gone already, and the other interface would follow with the next packet.
                remove(peer_home, peer_index);
                return index.map(drop);
            }
            let rest =
                Link { change: peer.change, flags: peer.flags, master: peer.master, ..Link::default() };
            set_link(peer_home, caller, peer_index, &rest)?;
            settled(index)
        }
        // Sorts of interfaces that there are not, or none.
        _ => Err(EOPNOTSUPP),
    }
}

/// The first attribute of that number.
fn attribute_of(bytes: &[u8], wanted: u16) -> Result<Option<&[u8]>> {
    for attribute in Attributes(bytes) {
        let (kind, data) = attribute?;
        if kind & NUMBER == wanted {
            return Ok(Some(data));
        }
    }
    Ok(None)
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
    let index = link.find(net)?;
    let can_go = net.look(|stack| {
        let all = stack.ip.interfaces.as_ref();
        all.and_then(|all| all.get(index).ok())
            .is_some_and(|i| !matches!(i.kind, Kind::Loopback | Kind::Device))
    });
    if !can_go {
        return Err(EOPNOTSUPP);
    }
    remove(net, index);
    Ok(())
}

/// RTM_SETLINK, and RTM_NEWLINK of an interface that is there.
fn set_link(net: &Arc<Net>, caller: &Caller<'_>, index: u32, link: &Link<'_>) -> Result<()> {
    if index == LOOPBACK {
        return net.act(|stack, _| set_loopback(stack, link));
    }
    let mut home = net.clone();
    let mut index = index;
    if let Some(target) = link.target(net, caller)? {
        index = move_to(net, &target, index, link.name)?;
        home = target;
    }
    let other = other_stack(&home, index);
    let done = home.act(|stack, _| {
        stack.change_interfaces(&home, |all| {
            if let Some(mac) = link.mac {
                all.set_mac(index, mac)?;
            }
            if let Some(mtu) = link.mtu {
                all.set_mtu(index, mtu as usize)?;
            }
            // A name beside the index is a new one.
            if let Some(name) = link.name.filter(|_| link.index != 0) {
                all.rename(index, &name)?;
            }
            if let Some(length) = link.queue_length {
                all.get_mut(index)?.queue_length = length;
            }
            if let Some(master) = link.master {
                all.set_master(index, master)?;
            }
            if link.change != 0 {
                all.set_flags(index, link.flags, link.change)?;
            }
            Ok(())
        })
    });
    settle(&home, other);
    done
}

/// The loopback interface may go down and up, and have another MTU.
fn set_loopback(stack: &mut Stack, link: &Link<'_>) -> Result<()> {
    let is_same_name = link.name.is_none_or(|name| name == Name::new("lo"));
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
    // struct ifaddrmsg: family, prefix, flags, scope, index.
    let &[family, prefix, _, scope, ref index @ ..] = request.get(16..24).ok_or(EINVAL)? else {
        return Err(EINVAL);
    };
    let index = number(index)?;
    let (mut local, mut peer, mut broadcast, mut label) = (None, None, None, None);
    for attribute in attributes(request, 8)? {
        let (kind, data) = attribute?;
        match (kind & NUMBER, family) {
            (IFA_LOCAL, AF_INET) => local = Some(v4(data)?),
            (IFA_ADDRESS, AF_INET) => peer = Some(v4(data)?),
            (IFA_BROADCAST, AF_INET) => broadcast = Some(v4(data)?),
            (IFA_LABEL, _) => label = Some(Name::parse(data)?),
            _ => {}
        }
    }
    let known = net.look(|s| interfaces(s).find(|i| i.index as u32 == index)).ok_or(ENODEV)?;
    match family {
        AF_INET => {}
        // As on a Linux whose devices have IPv6 disabled.
        AF_INET6 => return Err(EACCES),
        _ => return Err(EOPNOTSUPP),
    }
    let local = local.or(peer).ok_or(EINVAL)?;
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
    };
    let asked = Asked { address, has_peer: peer.is_some(), has_label: label.is_some() };
    net.act(|stack, now| {
        stack.change_interfaces(net, |all| {
            if !adds {
                let found = all.get(index)?.addresses.iter().find(|known| asked.names(known)).copied();
                return all.remove_address(index, &found.ok_or(EADDRNOTAVAIL)?);
            }
            match all.add_address(index, address) {
                Err(EEXIST) if replaces => Ok(()),
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
    has_peer: bool,
    has_label: bool,
}

impl Asked {
    fn names(&self, known: &InterfaceAddress) -> bool {
        let asked = &self.address;
        known.local == asked.local
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
