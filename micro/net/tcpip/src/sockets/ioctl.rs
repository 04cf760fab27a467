// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ioctl(2) of sockets: bytes waiting, and the interfaces as netdevice(7) describes them.

use crate::stack::{Net, Stack};
use abi::linux::ioctl as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
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
const IFREQ: usize = 40;

/// Flags of net_device_flags.
pub const IFF_UP: u32 = 1;
pub const IFF_BROADCAST: u32 = 2;
pub const IFF_LOOPBACK: u32 = 8;
pub const IFF_RUNNING: u32 = 0x40;
pub const IFF_MULTICAST: u32 = 0x1000;
pub const IFF_LOWER_UP: u32 = 0x10000;

pub fn put_int(argument: u64, value: usize) -> Result<usize> {
    UserPtr::<i32>::new(argument).write(value.min(i32::MAX as usize) as i32)?;
    Ok(0)
}

/// One network interface as programs see it.
#[derive(Clone, Copy)]
pub struct Interface {
    pub index: i32,
    pub name: &'static str,
    pub address: Option<Ipv4Addr>,
    pub prefix: u8,
    pub mtu: usize,
    pub mac: [u8; 6],
    pub flags: u32,
    pub traffic: Traffic,
}

/// What went through an interface since boot.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub sent_dropped: u64,
}

impl Interface {
    pub fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }

    pub fn netmask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    pub fn broadcast(&self) -> Ipv4Addr {
        let address = self.address.unwrap_or(Ipv4Addr::UNSPECIFIED);
        Ipv4Addr::from_bits(address.to_bits() | !self.netmask().to_bits())
    }
}

/// `lo`, and `eth0` when there is a device.
pub fn interfaces(stack: &Stack) -> impl Iterator<Item = Interface> + use<> {
    let seen = &stack.ip.statistics;
    let loopback = Interface {
        index: 1,
        name: "lo",
        address: stack.ip.lo.has_address.then_some(Ipv4Addr::LOCALHOST),
        prefix: 8,
        mtu: crate::ip::LOOPBACK_MTU + 1,
        mac: [0; 6],
        flags: IFF_LOOPBACK | if stack.ip.lo.is_up { IFF_UP | IFF_RUNNING | IFF_LOWER_UP } else { 0 },
        traffic: Traffic {
            received_packets: seen.looped_packets,
            received_bytes: seen.looped_bytes,
            sent_packets: seen.looped_packets,
            sent_bytes: seen.looped_bytes,
            sent_dropped: 0,
        },
    };
    let configuration = stack.ip.configuration;
    let ethernet = stack.ip.info.map(|info| Interface {
        index: 2,
        name: "eth0",
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
        },
    });
    core::iter::once(loopback).chain(ethernet)
}

fn name_field(name: &str) -> [u8; 16] {
    let mut field = [0; 16];
    field[..name.len()].copy_from_slice(name.as_bytes());
    field
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

/// netdevice(7)'s requests about interfaces; setting anything is refused.
pub fn interface(net: &Net, command: u32, argument: u64) -> Result<usize> {
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
        linux::SIOCSIFFLAGS | linux::SIOCSIFADDR | linux::SIOCSIFNETMASK | linux::SIOCSIFMTU => {
            return UserPtr::<[u8; IFREQ]>::new(argument).read().and(Err(EPERM));
        }
        SIOCETHTOOL | SIOCGMIIPHY | SIOCGMIIREG | SIOCBONDINFOQUERY => {
            return device_request(net, command, argument);
        }
        _ => return Err(ENOTTY),
    }
    let pointer = UserPtr::<[u8; IFREQ]>::new(argument);
    let mut request = pointer.read()?;
    let index = i32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
    let name = request[..16].split(|b| *b == 0).next().unwrap_or(&[]);
    let by_index = command == linux::SIOCGIFNAME;
    let found = net.look(|s| {
        interfaces(s).find(|i| if by_index { i.index == index } else { i.name.as_bytes() == name })
    });
    let interface = found.ok_or(ENODEV)?;
    let address = || interface.address.ok_or(EADDRNOTAVAIL);
    let value: [u8; 16] = match command {
        linux::SIOCGIFNAME => {
            request[..16].copy_from_slice(&name_field(interface.name));
            pointer.write(request)?;
            return Ok(0);
        }
        linux::SIOCGIFINDEX => number(interface.index),
        linux::SIOCGIFFLAGS => number((interface.flags & 0xffff) as i32),
        linux::SIOCGIFADDR | linux::SIOCGIFDSTADDR => sockaddr(address()?),
        linux::SIOCGIFBRDADDR if interface.is_loopback() => sockaddr(Ipv4Addr::UNSPECIFIED),
        linux::SIOCGIFBRDADDR => address().map(|_| sockaddr(interface.broadcast()))?,
        linux::SIOCGIFNETMASK => address().map(|_| sockaddr(interface.netmask()))?,
        linux::SIOCGIFMTU => number(interface.mtu as i32),
        SIOCGIFTXQLEN => number(1000),
        linux::SIOCGIFHWADDR => {
            let mut out = [0; 16];
            // ARPHRD_LOOPBACK, ARPHRD_ETHER.
            out[..2].copy_from_slice(&(if interface.is_loopback() { 772u16 } else { 1 }).to_ne_bytes());
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
            request[..16].copy_from_slice(&name_field(interface.name));
            request[16..32].copy_from_slice(&sockaddr(address));
            UserPtr::<[u8; IFREQ]>::new(buffer + done as u64).write(request)?;
        }
        done += IFREQ;
    }
    UserPtr::<u32>::new(argument).write(done as u32)?;
    Ok(0)
}
