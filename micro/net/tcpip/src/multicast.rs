// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multicasts (RFC 1112; ip(7), IP_ADD_MEMBERSHIP): the groups that sockets are in, and what each of them says of its own.

use crate::families::{are_of_one_family, is_group, is_v6};
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::Ipv4Addr;

/// Groups that one socket may be in (Linux' net.ipv4.igmp_max_memberships).
const MAX_MEMBERSHIPS: usize = 20;
/// Indices of `lo` and `eth0`.
pub const LOOPBACK: i32 = 1;
pub const ETHERNET: i32 = 2;

/// What a socket of datagrams, or a raw one, says of multicasts.
#[derive(Debug)]
pub struct Choices {
    /// IP_MULTICAST_TTL.
    pub ttl: u8,
    /// IP_MULTICAST_LOOP: this machine hears what it sends.
    pub loops: bool,
    /// The same of IPv6: IPV6_MULTICAST_HOPS and IPV6_MULTICAST_LOOP.
    pub hops: u8,
    pub loops6: bool,
    /// IP_MULTICAST_IF: where multicasts of an unbound socket leave, by the interface's address; and what the program gave.
    pub source: Option<Ipv4Addr>,
    pub address: Ipv4Addr,
    /// Groups it is in, with the interface's index.
    groups: Vec<(Ipv4Addr, i32)>,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            ttl: 1,
            loops: true,
            hops: 1,
            loops6: true,
            source: None,
            address: Ipv4Addr::UNSPECIFIED,
            groups: Vec::new(),
        }
    }
}

impl Choices {
    /// Addresses that it names.
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, look: &mut dyn FnMut(Ipv4Addr)) {
        self.source.iter().for_each(|source| look(*source));
        self.groups.iter().for_each(|(group, _)| look(*group));
    }

    /// How far a multicast to that group goes.
    pub fn hops_to(&self, group: Ipv4Addr) -> u8 {
        if is_v6(group) { self.hops } else { self.ttl }
    }

    /// Whether this machine hears what it sends to the group.
    pub fn loops_to(&self, group: Ipv4Addr) -> bool {
        if is_v6(group) { self.loops6 } else { self.loops }
    }

    /// Groups that it is in.
    #[cfg(feature = "ipv6")]
    pub(crate) fn groups(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.groups.iter().map(|(group, _)| *group)
    }

    /// The address that the program wants multicasts to leave with, if `destination` is one.
    pub fn source_to(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        self.source.filter(|source| is_group(destination) && are_of_one_family(*source, destination))
    }
}

/// Groups that sockets are in, with the interface's index and how many they are.
#[derive(Default)]
pub struct Groups(Vec<(Ipv4Addr, i32, u32)>);

impl Groups {
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, look: &mut dyn FnMut(Ipv4Addr)) {
        self.0.iter().for_each(|(group, ..)| look(*group));
    }

    /// A group is heard once any socket is in it, by every socket that is bound there (Linux' IP_MULTICAST_ALL). What comes from a
    /// loopback address came by that interface.
    pub fn hears(&self, from: Ipv4Addr, group: Ipv4Addr) -> bool {
        let is_looped = from.is_loopback();
        self.0.iter().any(|(g, i, _)| (*g, *i == LOOPBACK) == (group, is_looped))
    }

    /// IP_ADD_MEMBERSHIP.
    pub fn join(&mut self, socket: &mut Choices, group: Ipv4Addr, interface: i32) -> Result<()> {
        if socket.groups.contains(&(group, interface)) {
            return Err(EADDRINUSE);
        }
        if socket.groups.len() >= MAX_MEMBERSHIPS {
            return Err(ENOBUFS);
        }
        socket.groups.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        match self.0.iter_mut().find(|(g, i, _)| (*g, *i) == (group, interface)) {
            Some((.., members)) => *members += 1,
            None => {
                self.0.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                self.0.push((group, interface, 1));
            }
        }
        socket.groups.push((group, interface));
        Ok(())
    }

    /// IP_DROP_MEMBERSHIP.
    pub fn leave(&mut self, socket: &mut Choices, group: Ipv4Addr, interface: i32) -> Result<()> {
        let at = socket.groups.iter().position(|known| *known == (group, interface)).ok_or(EADDRNOTAVAIL)?;
        socket.groups.swap_remove(at);
        self.forget(group, interface);
        Ok(())
    }

    /// The socket goes.
    pub fn leave_all(&mut self, socket: &Choices) {
        socket.groups.iter().for_each(|(group, interface)| self.forget(*group, *interface));
    }

    fn forget(&mut self, group: Ipv4Addr, interface: i32) {
        for (.., members) in self.0.iter_mut().filter(|(g, i, _)| (*g, *i) == (group, interface)) {
            *members -= 1;
        }
        self.0.retain(|(.., members)| *members > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_heard_while_a_socket_is_in_it() {
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let (here, there) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 1));
        let (mut groups, mut first, mut second) = (Groups::default(), Choices::default(), Choices::default());
        groups.join(&mut first, group, LOOPBACK).unwrap();
        groups.join(&mut second, group, LOOPBACK).unwrap();
        assert_eq!(groups.join(&mut first, group, LOOPBACK), Err(EADDRINUSE));
        assert!(groups.hears(here, group) && !groups.hears(there, group));
        groups.leave(&mut first, group, LOOPBACK).unwrap();
        assert_eq!(groups.leave(&mut first, group, LOOPBACK), Err(EADDRNOTAVAIL));
        assert!(groups.hears(here, group));
        groups.leave_all(&second);
        assert!(!groups.hears(here, group));
    }

    #[test]
    fn a_socket_is_in_twenty_groups_at_most() {
        let (mut groups, mut socket) = (Groups::default(), Choices::default());
        let nth = |n: u8| Ipv4Addr::new(239, 0, 0, n);
        assert!((0..20).all(|n| groups.join(&mut socket, nth(n), ETHERNET).is_ok()));
        assert_eq!(groups.join(&mut socket, nth(20), ETHERNET), Err(ENOBUFS));
    }
}
