// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ioctl(2) that changes interfaces, addresses and routes (netdevice(7), rtentry of `linux/route.h`, bridges): what ifconfig, route and
//! brctl do.

use super::ioctl::{IFREQ, interfaces};
use super::netlink::routes_of;
use crate::interfaces::bridge::Bridge;
use crate::interfaces::ports::USUAL_MTU;
use crate::interfaces::routes::{self, Manner, Route, Wanted, mask};
use crate::interfaces::{Address, Interfaces, Kind, LOOPBACK, New};
use crate::sockets::interface_flags::*;
use crate::stack::Net;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_netdev::Name;
use api_user::UserPtr;
use core::net::Ipv4Addr;

const SIOCADDRT: u32 = 0x890b;
const SIOCDELRT: u32 = 0x890c;
const SIOCSIFFLAGS: u32 = 0x8914;
const SIOCSIFADDR: u32 = 0x8916;
const SIOCSIFDSTADDR: u32 = 0x8918;
const SIOCSIFBRDADDR: u32 = 0x891a;
const SIOCSIFNETMASK: u32 = 0x891c;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCSIFNAME: u32 = 0x8923;
const SIOCSIFHWADDR: u32 = 0x8924;
const SIOCSIFTXQLEN: u32 = 0x8943;
const SIOCBRADDBR: u32 = 0x89a0;
const SIOCBRDELBR: u32 = 0x89a1;
const SIOCBRADDIF: u32 = 0x89a2;
const SIOCBRDELIF: u32 = 0x89a3;
const AF_INET: u16 = 2;

/// Does what the request asks; `ENOTTY`: it is none of these.
pub fn change(net: &Arc<Net>, command: u32, argument: u64) -> Result<usize> {
    match command {
        SIOCADDRT | SIOCDELRT => {
            check_administrator()?;
            route(net, command == SIOCADDRT, argument)?;
        }
        SIOCBRADDBR | SIOCBRDELBR => {
            check_administrator()?;
            let name = Name::parse(&UserPtr::<[u8; 16]>::new(argument).read()?)?;
            bridge(net, command == SIOCBRADDBR, &name)?;
        }
        SIOCSIFFLAGS | SIOCSIFADDR | SIOCSIFDSTADDR | SIOCSIFBRDADDR | SIOCSIFNETMASK | SIOCSIFMTU
        | SIOCSIFNAME | SIOCSIFHWADDR | SIOCSIFTXQLEN | SIOCBRADDIF | SIOCBRDELIF => {
            let request = UserPtr::<[u8; IFREQ]>::new(argument).read()?;
            check_administrator()?;
            interface(net, command, &request)?;
        }
        _ => return Err(ENOTTY),
    }
    Ok(0)
}

fn check_administrator() -> Result<()> {
    if api_socket::may_administer() { Ok(()) } else { Err(EPERM) }
}

/// The address of a `struct sockaddr_in`; `EINVAL` for other families.
fn address(bytes: &[u8]) -> Result<Ipv4Addr> {
    match bytes.first_chunk::<8>() {
        Some([f, g, _, _, a, b, c, d]) if u16::from_ne_bytes([*f, *g]) == AF_INET => {
            Ok(Ipv4Addr::new(*a, *b, *c, *d))
        }
        _ => Err(EINVAL),
    }
}

fn interface(net: &Arc<Net>, command: u32, request: &[u8; IFREQ]) -> Result<()> {
    // Linux' `devinet_ioctl` looks at the family first.
    if matches!(command, SIOCSIFADDR | SIOCSIFBRDADDR | SIOCSIFDSTADDR | SIOCSIFNETMASK) {
        address(&request[16..])?;
    }
    // Addresses may have labels of their own: eth0:1.
    let label = request[..16].split(|byte| *byte == 0).next().unwrap_or_default();
    let name =
        Name::parse(label.split(|byte| *byte == b':').next().unwrap_or_default()).map_err(|_| ENODEV)?;
    let found = net.look(|stack| interfaces(stack).find(|interface| interface.name == name)).ok_or(ENODEV)?;
    let (index, value) = (found.index as u32, &request[16..]);
    let number = i32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
    let flags = u32::from(u16::from_ne_bytes([value[0], value[1]]));
    if command == SIOCSIFFLAGS && label.contains(&b':') {
        return net.act(|stack, _| {
            stack.change_interfaces(net, |all| {
                let labelled = Name::label(label);
                let known =
                    all.get(index)?.addresses.iter().find(|address| address.label == labelled).copied();
                let known = known.ok_or(EADDRNOTAVAIL)?;
                if flags & IFF_UP == 0 { all.remove_address(index, &known) } else { Ok(()) }
            })
        });
    }
    if index == LOOPBACK {
        return match command {
            SIOCSIFFLAGS => {
                net.act(|stack, _| stack.ip.lo.set_up(flags & IFF_UP != 0));
                Ok(())
            }
            SIOCSIFADDR if address(value)? == Ipv4Addr::LOCALHOST => Ok(()),
            SIOCSIFNETMASK if address(value)? == Ipv4Addr::new(255, 0, 0, 0) => Ok(()),
            SIOCSIFMTU => net.act(|stack, _| stack.set_loopback_mtu(number.into())),
            _ => Err(EOPNOTSUPP),
        };
    }
    net.act(|stack, now| {
        stack.change_interfaces(net, |all| match command {
            SIOCSIFFLAGS => all.set_flags(index, flags, 0xffff),
            SIOCSIFMTU => all.set_mtu(index, usize::try_from(number).map_err(|_| EINVAL)?),
            SIOCSIFNAME => all.rename(index, &Name::parse(value.first_chunk::<16>().ok_or(EINVAL)?)?),
            SIOCSIFHWADDR => {
                let hardware = u16::from_ne_bytes([value[0], value[1]]);
                if hardware != found.hardware {
                    return Err(EINVAL);
                }
                all.set_mac(index, value.get(2..8).and_then(|mac| mac.first_chunk().copied()).ok_or(EINVAL)?)
            }
            SIOCSIFTXQLEN => {
                all.get_mut(index)?.queue_length = u32::try_from(number).map_err(|_| EINVAL)?;
                Ok(())
            }
            SIOCBRADDIF => {
                let port = u32::try_from(number).map_err(|_| EINVAL)?;
                if all.get(port).map_err(|_| EINVAL)?.master != 0 {
                    return Err(EBUSY);
                }
                all.set_master(port, index)
            }
            SIOCBRDELIF => {
                let port = u32::try_from(number).map_err(|_| EINVAL)?;
                if all.get(port).map_err(|_| EINVAL)?.master != index {
                    return Err(EINVAL);
                }
                all.set_master(port, 0)
            }
            _ => set_address(all, index, command, Name::label(label), address(value)?),
        })?;
        if command == SIOCSIFADDR
            && let Ok(own) = address(value)
        {
            stack.ip.ask_neighbour(now, index, own);
        }
        Ok(())
    })
}

/// The prefix of an address' class (Linux' `inet_abc_len`).
fn class_prefix(address: Ipv4Addr) -> Result<u8> {
    match address.octets()[0] {
        _ if address.is_unspecified() => Ok(0),
        0..128 => Ok(8),
        128..192 => Ok(16),
        192..224 => Ok(24),
        _ => Err(EINVAL),
    }
}

/// Requests about the address with that label (Linux' `devinet_ioctl`).
fn set_address(all: &mut Interfaces, index: u32, command: u32, label: Name, value: Ipv4Addr) -> Result<()> {
    let known = all.get(index)?.addresses.iter().find(|address| address.label == label).copied();
    let is_line = all.get(index)?.shown_flags() & IFF_POINTOPOINT != 0;
    let broadcast = |value: Ipv4Addr, prefix: u8| {
        (prefix < 31 && !is_line).then(|| Ipv4Addr::from_bits(value.to_bits() | !mask(prefix)))
    };
    let new = match (command, known) {
        (SIOCSIFADDR, _) => {
            let prefix = class_prefix(value)?;
            if value.is_unspecified() {
                return match known {
                    Some(known) => all.remove_address(index, &known),
                    None => Ok(()),
                };
            }
            let prefix = if is_line { 32 } else { prefix };
            Address {
                local: value,
                peer: value,
                prefix,
                scope: 0,
                broadcast: broadcast(value, prefix),
                label,
                has_no_route: false,
                metric: 0,
            }
        }
        (_, None) => return Err(EADDRNOTAVAIL),
        (SIOCSIFNETMASK, Some(known)) => {
            let prefix = value.to_bits().leading_ones() as u8;
            if mask(prefix) != value.to_bits() {
                return Err(EINVAL);
            }
            // A broadcast address that was the network's stays so.
            let follows = known.broadcast == broadcast(known.local, known.prefix);
            let broadcast = if follows { broadcast(known.local, prefix) } else { known.broadcast };
            Address { prefix, broadcast, ..known }
        }
        (SIOCSIFBRDADDR, Some(known)) => Address { broadcast: Some(value), ..known },
        (SIOCSIFDSTADDR, Some(known)) => {
            if class_prefix(value).is_err() {
                return Err(EINVAL);
            }
            Address { peer: value, ..known }
        }
        _ => return Err(ENOTTY),
    };
    if known == Some(new) {
        return Ok(());
    }
    if let Some(known) = known {
        all.remove_address(index, &known)?;
    }
    all.add_address(index, new)
}

/// SIOCBRADDBR and SIOCBRDELBR.
fn bridge(net: &Arc<Net>, adds: bool, name: &Name) -> Result<()> {
    let gone = net.act(|stack, _| {
        let (mac, key) = (stack.ip.random_mac(), stack.ip.new_key());
        stack.change_interfaces(net, |all| {
            if adds {
                if all.named(name).is_some() {
                    return Err(EEXIST);
                }
                let kind = Kind::Bridge(Bridge::new(key));
                let (mtu, flags) = (USUAL_MTU, IFF_MULTICAST);
                all.add(New { name: *name, index: 0, kind, mac, mtu, flags, has_carrier: false })?;
                return Ok(None);
            }
            let index = all.named(name).ok_or(ENXIO)?;
            let bridge = all.get(index)?;
            match bridge.kind {
                Kind::Bridge(_) if bridge.is_up() => Err(EBUSY),
                Kind::Bridge(_) => all.remove(index).map(Some),
                _ => Err(EPERM),
            }
        })
    })?;
    drop(gone);
    Ok(())
}

/// SIOCADDRT and SIOCDELRT, of a `struct rtentry` (Linux' `rtentry_to_fib_config`).
fn route(net: &Arc<Net>, adds: bool, argument: u64) -> Result<()> {
    const RTF_GATEWAY: u16 = 2;
    const RTF_HOST: u16 = 4;
    const RTF_MTU: u16 = 0x40;
    const RTF_REJECT: u16 = 0x200;
    const RT_SCOPE_NOWHERE: u8 = 255;
    let bytes = UserPtr::<[u8; 120]>::new(argument).read()?;
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b));
    let half =
        |at: usize| bytes.get(at..at + 2).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b));
    // rt_pad1; rt_dst, rt_gateway, rt_genmask of 16 bytes each; rt_flags, rt_pad2; rt_pad3, rt_tos…; rt_metric; rt_dev; rt_mtu.
    let to = match half(8) {
        AF_INET => address(&bytes[8..24])?,
        _ => return Err(EAFNOSUPPORT),
    };
    let flags = half(56);
    let (metric, device, mtu) = (half(80), word(88), word(96));
    let prefix = if flags & RTF_HOST != 0 {
        32
    } else {
        let given = match half(40) {
            AF_INET => address(&bytes[40..56])?,
            0 if bytes[44..48] == [0; 4] => Ipv4Addr::UNSPECIFIED,
            _ => return Err(EAFNOSUPPORT),
        };
        let prefix = given.to_bits().leading_ones() as u8;
        if mask(prefix) != given.to_bits() || to.to_bits() & !given.to_bits() != 0 {
            return Err(EINVAL);
        }
        prefix
    };
    let interface = match device {
        0 => 0,
        at => {
            let name = UserPtr::<u8>::new(at).read_cstr(16, ENODEV)?;
            let name = Name::parse(&name).map_err(|_| ENODEV)?;
            let found = net.look(|stack| interfaces(stack).find(|interface| interface.name == name));
            found.ok_or(ENODEV)?.index as u32
        }
    };
    let via = if half(24) == AF_INET { Some(address(&bytes[24..40])?) } else { None };
    let gateway = via.filter(|via| flags & RTF_GATEWAY != 0 && !via.is_unspecified());
    if flags & RTF_GATEWAY != 0 && gateway.is_none() {
        return Err(EINVAL);
    }
    let is_refused = flags & RTF_REJECT != 0;
    let scope = match gateway {
        _ if !adds => RT_SCOPE_NOWHERE,
        None if !is_refused => routes::SCOPE_LINK,
        None => routes::SCOPE_HOST,
        Some(_) => routes::SCOPE_UNIVERSE,
    };
    let route = Route {
        table: routes::TABLE_MAIN,
        to,
        prefix,
        tos: 0,
        // Programs count from one.
        metric: u32::from(metric.saturating_sub(1)),
        kind: if is_refused { routes::UNREACHABLE } else { routes::UNICAST },
        scope,
        protocol: routes::PROTOCOL_BOOT,
        gateway,
        interface: if is_refused { 0 } else { interface },
        source: None,
        mtu: if flags & RTF_MTU != 0 { mtu as u32 } else { 0 },
        is_onlink: false,
    };
    let wanted =
        Wanted { route, has_kind: is_refused, has_scope: false, has_protocol: false, has_metric: metric > 1 };
    let manner = Manner { creates: true, is_exclusive: false, ..Manner::default() };
    routes_of(net, adds, &wanted, manner)
}
