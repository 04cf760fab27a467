// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ioctl(2) of sockets: bytes waiting, and the interfaces as netdevice(7) describes them.

use super::interface_flags::*;
use crate::stack::{Net, Stack};
use abi::linux::ioctl as linux;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_netdev::Name;
use api_netdev::link::{ARPHRD_ETHER, ARPHRD_LOOPBACK};
use api_user::UserPtr;
use core::net::Ipv4Addr;

pub const FIONREAD: u32 = 0x541b;
pub const TIOCOUTQ: u32 = 0x5411;
pub const SIOCOUTQNSD: u32 = 0x894b;
const SIOCGIFTXQLEN: u32 = linux::SIOCGIFTXQLEN;

/// Requests to drivers: ethtool's, of the transceiver, and of bonded devices.
const SIOCETHTOOL: u32 = 0x8946;
const SIOCGMIIPHY: u32 = 0x8947;
const SIOCGMIIREG: u32 = 0x8948;
const SIOCBONDINFOQUERY: u32 = 0x8994;
/// The link is up; whose time stamps packets have (`linux/ethtool.h`).
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// `sizeof(struct ifreq)`.
pub(super) const IFREQ: usize = 40;

pub fn put_int(argument: u64, value: usize) -> Result<usize> {
    UserPtr::<i32>::new(argument).write(value.min(i32::MAX as usize) as i32)?;
    Ok(0)
}

/// One network interface as programs see it.
#[derive(Clone, Copy)]
pub struct Interface {
    pub index: i32,
    pub name: Name,
    pub address: Option<Ipv4Addr>,
    /// Of the address' network.
    pub broadcast: Option<Ipv4Addr>,
    /// The other end's address, where there is one.
    pub peer: Option<Ipv4Addr>,
    pub prefix: u8,
    pub mtu: usize,
    pub mac: [u8; 6],
    pub flags: u32,
    pub traffic: Traffic,
    /// ARPHRD_*.
    pub hardware: u16,
    /// What sort of interface it is, of those that programs make.
    pub kind: Option<&'static str>,
    /// The bridge that it is a port of; 0: none.
    pub master: u32,
    /// The other end of a pair, and whether that is another network's.
    pub other: Option<(u32, bool)>,
    pub queue_length: u32,
    pub group: u32,
}

/// What went through an interface since boot.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub sent_dropped: u64,
    pub received_dropped: u64,
    pub multicasts: u64,
}

impl Interface {
    pub fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }

    pub fn netmask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }
}

/// Of the table of interfaces, those that programs made; and what they changed of the device.
#[cfg(feature = "interfaces")]
fn made(stack: &Stack) -> impl Iterator<Item = Interface> {
    use crate::interfaces::Kind;
    let all = stack.ip.interfaces.iter().flat_map(|all| all.all.range::<u32, _>(..));
    all.filter(|(_, interface)| !matches!(interface.kind, Kind::Loopback | Kind::Device))
        .map(|(_, i)| shown(i))
}

#[cfg(not(feature = "interfaces"))]
fn made(_: &Stack) -> impl Iterator<Item = Interface> {
    core::iter::empty()
}

/// An interface of the table as programs see it.
#[cfg(feature = "interfaces")]
pub fn shown(interface: &crate::interfaces::Interface) -> Interface {
    use crate::interfaces::Kind;
    let first = interface.addresses.first();
    let seen = &interface.traffic;
    Interface {
        index: interface.index as i32,
        name: interface.name,
        address: first.map(|address| address.local),
        broadcast: first.and_then(|address| address.broadcast),
        peer: first.map(|address| address.peer),
        prefix: first.map_or(0, |address| address.prefix),
        mtu: interface.mtu,
        mac: interface.mac,
        flags: interface.shown_flags(),
        traffic: Traffic {
            received_packets: seen.received_packets,
            received_bytes: seen.received_bytes,
            sent_packets: seen.sent_packets,
            sent_bytes: seen.sent_bytes,
            sent_dropped: seen.sent_dropped,
            received_dropped: seen.received_dropped,
            multicasts: seen.multicasts,
        },
        hardware: match interface.kind {
            Kind::Loopback => ARPHRD_LOOPBACK,
            _ if interface.has_ethernet() => ARPHRD_ETHER,
            _ => api_netdev::link::ARPHRD_NONE,
        },
        kind: match interface.kind {
            Kind::Loopback | Kind::Device => None,
            Kind::Dummy => Some("dummy"),
            Kind::Veth(_) => Some("veth"),
            Kind::Bridge(_) => Some("bridge"),
            Kind::Port { .. } => Some("tun"),
        },
        master: interface.master,
        other: match &interface.kind {
            Kind::Veth(end) => end.shown(),
            _ => None,
        },
        queue_length: interface.queue_length,
        group: interface.group,
    }
}

/// What programs changed of the device.
#[cfg(feature = "interfaces")]
fn follow_table(stack: &Stack, device: Interface) -> Interface {
    let table = stack.ip.interfaces.as_ref().and_then(|all| all.get(crate::interfaces::DEVICE).ok());
    table.map_or(device, |known| Interface { traffic: device.traffic, ..shown(known) })
}

#[cfg(not(feature = "interfaces"))]
fn follow_table(_: &Stack, device: Interface) -> Interface {
    device
}

/// `lo`, `eth0` when there is a device, and what programs made.
pub fn interfaces(stack: &Stack) -> impl Iterator<Item = Interface> {
    let seen = &stack.ip.statistics;
    let loopback = Interface {
        index: 1,
        name: Name::new("lo"),
        broadcast: None,
        peer: None,
        hardware: ARPHRD_LOOPBACK,
        kind: None,
        master: 0,
        other: None,
        queue_length: 1000,
        group: 0,
        address: stack.ip.lo.has_address.then_some(Ipv4Addr::LOCALHOST),
        prefix: 8,
        mtu: stack.ip.lo.mtu as usize,
        mac: [0; 6],
        flags: IFF_LOOPBACK | if stack.ip.lo.is_up { IFF_UP | IFF_RUNNING | IFF_LOWER_UP } else { 0 },
        traffic: Traffic {
            received_packets: seen.looped_packets,
            received_bytes: seen.looped_bytes,
            sent_packets: seen.looped_packets,
            sent_bytes: seen.looped_bytes,
            ..Traffic::default()
        },
    };
    let configuration = stack.ip.configuration;
    let ethernet = stack.ip.info.map(|info| Interface {
        index: 2,
        name: Name::new("eth0"),
        broadcast: configuration.map(|c| c.broadcast()),
        peer: None,
        hardware: ARPHRD_ETHER,
        kind: None,
        master: 0,
        other: None,
        queue_length: 1000,
        group: 0,
        address: configuration.map(|c| c.address),
        prefix: configuration.map_or(0, |c| c.prefix),
        mtu: info.mtu,
        mac: info.mac,
        flags: IFF_UP | IFF_BROADCAST | IFF_RUNNING | IFF_MULTICAST | IFF_LOWER_UP,
        traffic: Traffic {
            received_packets: seen.received_packets,
            received_bytes: seen.received_bytes,
            sent_packets: seen.sent_packets,
            sent_bytes: seen.sent_bytes,
            sent_dropped: seen.send_drops,
            ..Traffic::default()
        },
    });
    let ethernet = ethernet.map(|device| follow_table(stack, device));
    core::iter::once(loopback).chain(ethernet).chain(made(stack))
}

fn sockaddr(address: Ipv4Addr) -> [u8; 16] {
    let mut out = [0; 16];
    out[..2].copy_from_slice(&2u16.to_ne_bytes());
    out[4..8].copy_from_slice(&address.octets());
    out
}

/// The interface that a value of SO_BINDTODEVICE names; 0: none.
pub fn device(net: &Net, value: &[u8]) -> Result<i32> {
    let name = value.get(..15).unwrap_or(value).split(|b| *b == 0).next().unwrap_or(&[]);
    if name.is_empty() {
        return Ok(0);
    }
    net.look(|s| interfaces(s).find(|i| i.name.as_bytes() == name)).map(|i| i.index).ok_or(ENODEV)
}

/// The interface's name with its NUL, as SO_BINDTODEVICE answers it: `ENODEV` where SO_BINDTOIFINDEX was told one that is not there.
pub fn device_name(net: &Net, index: i32) -> Result<Vec<u8>> {
    let found = net.look(|s| interfaces(s).find(|i| i.index == index)).ok_or(ENODEV)?;
    Ok([found.name.as_bytes(), &[0]].concat())
}

/// netdevice(7)'s requests about interfaces.
pub fn interface(net: &Arc<Net>, command: u32, argument: u64) -> Result<usize> {
    #[cfg(feature = "interfaces")]
    match super::ioctl_changes::change(net, command, argument) {
        Err(ENOTTY) => {}
        answer => return answer,
    }
    match command {
        linux::SIOCGIFCONF => return list(net, argument),
        linux::SIOCGIFNAME
        | linux::SIOCGIFINDEX
        | linux::SIOCGIFFLAGS
        | linux::SIOCGIFADDR
        | linux::SIOCGIFDSTADDR
        | linux::SIOCGIFBRDADDR
        | linux::SIOCGIFNETMASK
        | linux::SIOCGIFMTU
        | linux::SIOCGIFMETRIC
        | linux::SIOCGIFHWADDR
        | SIOCGIFTXQLEN => {}
        linux::SIOCSIFADDR | linux::SIOCSIFNETMASK => {
            return UserPtr::<[u8; IFREQ]>::new(argument).read().and(Err(EPERM));
        }
        linux::SIOCSIFFLAGS | linux::SIOCSIFMTU => {
            let request = UserPtr::<[u8; IFREQ]>::new(argument).read()?;
            let is_loopback = request[..16].split(|byte| *byte == 0).next() == Some(b"lo");
            if !is_loopback || !api_socket::may_administer() {
                return Err(EPERM);
            }
            if command == linux::SIOCSIFFLAGS {
                let flags = u32::from(u16::from_ne_bytes([request[16], request[17]]));
                net.act(|stack, _| stack.ip.lo.set_up(flags & IFF_UP != 0));
                return Ok(0);
            }
            let mtu = i32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
            return net.act(|stack, _| stack.set_loopback_mtu(mtu.into())).map(|()| 0);
        }
        SIOCETHTOOL | SIOCGMIIPHY | SIOCGMIIREG | SIOCBONDINFOQUERY => {
            return device_request(net, command, argument);
        }
        _ => return Err(ENOTTY),
    }
    let pointer = UserPtr::<[u8; IFREQ]>::new(argument);
    let mut request = pointer.read()?;
    let index = i32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
    let label = request[..16].split(|b| *b == 0).next().unwrap_or(&[]);
    // What is behind a colon names an address, and is of no account to questions of the interface.
    let name = label.split(|b| *b == b':').next().unwrap_or(&[]);
    let by_index = command == linux::SIOCGIFNAME;
    let found = net.look(|s| {
        interfaces(s).find(|i| if by_index { i.index == index } else { i.name.as_bytes() == name })
    });
    #[allow(unused_mut)] // without interfaces that have several addresses
    let mut interface = found.ok_or(ENODEV)?;
    if label.len() > name.len()
        && matches!(
            command,
            linux::SIOCGIFADDR | linux::SIOCGIFDSTADDR | linux::SIOCGIFBRDADDR | linux::SIOCGIFNETMASK
        )
    {
        #[cfg(not(feature = "interfaces"))]
        return Err(EADDRNOTAVAIL);
        #[cfg(feature = "interfaces")]
        net.look(|stack| {
            let all = stack.ip.interfaces.as_ref().ok_or(EADDRNOTAVAIL)?;
            let known = &all.get(interface.index as u32).map_err(|_| EADDRNOTAVAIL)?.addresses;
            let known = known.iter().find(|known| known.label.as_bytes() == label).ok_or(EADDRNOTAVAIL)?;
            (interface.address, interface.peer) = (Some(known.local), Some(known.peer));
            (interface.broadcast, interface.prefix) = (known.broadcast, known.prefix);
            Ok(())
        })?;
    }
    let address = || interface.address.ok_or(EADDRNOTAVAIL);
    let value: [u8; 16] = match command {
        linux::SIOCGIFNAME => {
            request[..16].copy_from_slice(&interface.name.field());
            pointer.write(request)?;
            return Ok(0);
        }
        linux::SIOCGIFINDEX => number(interface.index),
        linux::SIOCGIFFLAGS => number((interface.flags & 0xffff) as i32),
        linux::SIOCGIFADDR => sockaddr(address()?),
        linux::SIOCGIFDSTADDR => address().map(|own| sockaddr(interface.peer.unwrap_or(own)))?,
        linux::SIOCGIFBRDADDR if interface.is_loopback() => sockaddr(Ipv4Addr::UNSPECIFIED),
        linux::SIOCGIFBRDADDR => {
            address().map(|_| sockaddr(interface.broadcast.unwrap_or(Ipv4Addr::UNSPECIFIED)))?
        }
        linux::SIOCGIFNETMASK => address().map(|_| sockaddr(interface.netmask()))?,
        linux::SIOCGIFMTU => number(interface.mtu as i32),
        SIOCGIFTXQLEN => number(interface.queue_length as i32),
        linux::SIOCGIFHWADDR => {
            let mut out = [0; 16];
            out[..2].copy_from_slice(&interface.hardware.to_ne_bytes());
            out[2..8].copy_from_slice(&interface.mac);
            out
        }
        _ => number(0),
    };
    request[16..32].copy_from_slice(&value);
    pointer.write(request)?;
    Ok(0)
}

/// Requests that a driver answers; most say that the device has no such thing.
fn device_request(net: &Net, command: u32, argument: u64) -> Result<usize> {
    let request = UserPtr::<[u8; IFREQ]>::new(argument).read()?;
    let name = request[..15].split(|b| *b == 0).next().unwrap_or(&[]);
    net.look(|s| interfaces(s).find(|i| i.name.as_bytes() == name)).ok_or(ENODEV)?;
    if command != SIOCETHTOOL {
        return Err(EOPNOTSUPP);
    }
    let at = request[16..].first_chunk().map_or(0, |at| u64::from_ne_bytes(*at));
    match UserPtr::<u32>::new(at).read()? {
        ETHTOOL_GLINK => UserPtr::<[u32; 2]>::new(at).write([ETHTOOL_GLINK, 1])?,
        ETHTOOL_GET_TS_INFO => {
            // SOF_TIMESTAMPING_RX_SOFTWARE and SOF_TIMESTAMPING_SOFTWARE, and no clock of the device's.
            let mut info = [0; 11];
            info[..3].copy_from_slice(&[ETHTOOL_GET_TS_INFO, 1 << 3 | 1 << 4, u32::MAX]);
            UserPtr::<[u32; 11]>::new(at).write(info)?;
        }
        _ => return Err(EOPNOTSUPP),
    }
    Ok(0)
}

fn number(value: i32) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&value.to_ne_bytes());
    out
}

/// SIOCGIFCONF: interfaces with an address, as many as fit; without a buffer, the size it would take.
fn list(net: &Net, argument: u64) -> Result<usize> {
    let [length, _, low, high] = UserPtr::<[u32; 4]>::new(argument).read()?;
    let buffer = u64::from(low) | u64::from(high) << 32;
    let mut done = 0;
    let found: Vec<Interface> = net.look(|s| interfaces(s).collect());
    for interface in found {
        let Some(address) = interface.address else { continue };
        if buffer != 0 {
            if done + IFREQ > length as usize {
                break;
            }
            let mut request = [0; IFREQ];
            request[..16].copy_from_slice(&interface.name.field());
            request[16..32].copy_from_slice(&sockaddr(address));
            UserPtr::<[u8; IFREQ]>::new(buffer + done as u64).write(request)?;
        }
        done += IFREQ;
    }
    UserPtr::<u32>::new(argument).write(done as u32)?;
    Ok(0)
}
