// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multicast by ip(7): which interface a group is joined on, and which one multicasts leave by.

use super::ioctl::{Interface, interfaces};
use super::options::int_or_byte;
use crate::multicast::{Choices, Groups};
use crate::slab::Id;
use crate::stack::Stack;
use abi::linux::net as linux;
use abi::{Errno, Result, errno::*};
use alloc::vec::Vec;
use api_socket::options::from_int;
use core::net::Ipv4Addr;

/// A field of `struct ip_mreq`, `struct ip_mreqn` or `struct in_addr`.
fn address(value: &[u8], at: usize) -> Ipv4Addr {
    value.get(at..at + 4).map_or(Ipv4Addr::UNSPECIFIED, |b| Ipv4Addr::new(b[0], b[1], b[2], b[3]))
}

/// The interface of that index, or where that is 0 the one with that address; `None` when neither is given.
fn named(stack: &Stack, index: i32, address: Ipv4Addr, missing: Errno) -> Result<Option<Interface>> {
    if index == 0 && address.is_unspecified() {
        return Ok(None);
    }
    let is_wanted = |i: &Interface| match index {
        0 => i.address == Some(address) || i.is_loopback() && address.is_loopback(),
        index => i.index == index,
    };
    interfaces(stack).find(is_wanted).map(Some).ok_or(missing)
}

fn index_of(value: &[u8]) -> i32 {
    value.get(8..12).map_or(0, |b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

/// The socket that is asked.
#[derive(Clone, Copy)]
pub enum Of {
    Udp(Id),
    Raw(Id),
}

impl Of {
    /// With the groups of the machine.
    pub(super) fn choices(self, stack: &mut Stack) -> Result<(&mut Choices, &mut Groups)> {
        let choices = match self {
            Of::Udp(id) => stack.udp.sockets.get_mut(id).map(|socket| &mut socket.multicast),
            Of::Raw(id) => stack.raw.sockets.get_mut(id).map(|socket| &mut socket.multicast),
        };
        Ok((choices.ok_or(EBADF)?, &mut stack.ip.groups))
    }
}

/// setsockopt(2) of IPPROTO_IP; `ENOPROTOOPT` for what is not of multicasts.
pub fn set(stack: &mut Stack, of: Of, name: u32, value: &[u8]) -> Result<()> {
    match name {
        linux::IP_MULTICAST_TTL | linux::IP_MULTICAST_LOOP if value.is_empty() => Err(EINVAL),
        linux::IP_MULTICAST_TTL => {
            of.choices(stack)?.0.ttl = match int_or_byte(value)? {
                -1 => 1,
                n @ 0..=255 => n as u8,
                _ => return Err(EINVAL),
            };
            Ok(())
        }
        linux::IP_MULTICAST_LOOP => {
            of.choices(stack)?.0.loops = int_or_byte(value)? != 0;
            Ok(())
        }
        linux::IP_MULTICAST_IF => leave_by(stack, of, value),
        linux::IP_ADD_MEMBERSHIP | linux::IP_DROP_MEMBERSHIP => {
            change(stack, of, name == linux::IP_ADD_MEMBERSHIP, value)
        }
        linux::MCAST_JOIN_GROUP | linux::MCAST_LEAVE_GROUP => {
            change(stack, of, name == linux::MCAST_JOIN_GROUP, &from_group_request(value)?)
        }
        _ => Err(ENOPROTOOPT),
    }
}

/// getsockopt(2), likewise.
pub fn get(stack: &mut Stack, of: Of, name: u32) -> Result<Vec<u8>> {
    let (choices, _) = of.choices(stack)?;
    match name {
        linux::IP_MULTICAST_TTL => Ok(from_int(choices.ttl)),
        linux::IP_MULTICAST_LOOP => Ok(from_int(choices.loops)),
        linux::IP_MULTICAST_IF => Ok(Vec::from(choices.address.octets())),
        _ => Err(ENOPROTOOPT),
    }
}

/// IP_MULTICAST_IF: the address that multicasts leave with, and what the program gave.
fn leave_by(stack: &mut Stack, of: Of, value: &[u8]) -> Result<()> {
    // A lone address, or one behind the group, which does not count.
    let given = match value.len() {
        0..4 => return Err(EINVAL),
        4..8 => address(value, 0),
        _ => address(value, 4),
    };
    let interface = named(stack, index_of(value), given, EADDRNOTAVAIL)?;
    let (choices, _) = of.choices(stack)?;
    choices.source = interface.and_then(|i| if given.is_unspecified() { i.address } else { Some(given) });
    choices.address = given;
    Ok(())
}

/// The `struct ip_mreqn` that says what a `struct group_req` (RFC 3678 5.1) says: interface, and the group's socket address.
fn from_group_request(value: &[u8]) -> Result<[u8; 12]> {
    const SIZE: usize = 8 + 128;
    const AF_INET: u16 = 2;
    if value.len() < SIZE {
        return Err(EINVAL);
    }
    if value[8..10] != AF_INET.to_ne_bytes() {
        return Err(EADDRNOTAVAIL);
    }
    let mut request = [0; 12];
    request[..4].copy_from_slice(&value[12..16]);
    request[8..].copy_from_slice(&value[..4]);
    Ok(request)
}

/// IP_ADD_MEMBERSHIP and IP_DROP_MEMBERSHIP.
fn change(stack: &mut Stack, of: Of, join: bool, value: &[u8]) -> Result<()> {
    if value.len() < 8 {
        return Err(EINVAL);
    }
    let group = address(value, 0);
    if !group.is_multicast() {
        return Err(EINVAL);
    }
    let interface = match named(stack, index_of(value), address(value, 4), ENODEV)? {
        Some(interface) => interface.index,
        // The one that the group is reached by.
        None if stack.ip.route(group).is_ok() => interfaces(stack).last().map_or(0, |i| i.index),
        None => return Err(ENODEV),
    };
    let (choices, groups) = of.choices(stack)?;
    match join {
        true => groups.join(choices, group, interface),
        false => groups.leave(choices, group, interface),
    }
}
