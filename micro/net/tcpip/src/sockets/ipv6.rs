// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of IPPROTO_IPV6 (ipv6(7), RFC 3493, RFC 3542) that mean the same for streams and datagrams.

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_socket::options::{from_int, int};

pub const IPPROTO_IPV6: u32 = 41;
/// The socket becomes one of AF_INET.
pub const IPV6_ADDRFORM: u32 = 1;
pub const IPV6_UNICAST_HOPS: u32 = 16;
pub const IPV6_V6ONLY: u32 = 26;
pub const IPV6_RECVPKTINFO: u32 = 49;
pub const IPV6_PKTINFO: u32 = 50;
pub const IPV6_RECVHOPLIMIT: u32 = 51;
pub const IPV6_HOPLIMIT: u32 = 52;
pub const IPV6_RECVTCLASS: u32 = 66;
pub const IPV6_TCLASS: u32 = 67;

const IPV6_MULTICAST_IF: u32 = 17;
const IPV6_MULTICAST_HOPS: u32 = 18;
const IPV6_MULTICAST_LOOP: u32 = 19;
const IPV6_MTU_DISCOVER: u32 = 23;
pub const IPV6_MTU: u32 = 24;
pub const IPV6_RECVERR: u32 = 25;
const IPV6_MULTICAST_ALL: u32 = 29;
const IPV6_DONTFRAG: u32 = 62;
const IPV6_AUTOFLOWLABEL: u32 = 70;
pub const IPV6_ORIGDSTADDR: u32 = 74;
const IPV6_TRANSPARENT: u32 = 75;
const IPV6_FREEBIND: u32 = 78;

/// RFC 8200 5: the smallest MTU of a link.
const MIN_MTU: i32 = 1280;

/// Options that are kept as they were set, with what they are before.
const KEPT: [(u32, i32); 14] = [
    (IPV6_MULTICAST_IF, 0),
    (IPV6_MULTICAST_HOPS, 1),
    (IPV6_MULTICAST_LOOP, 1),
    (IPV6_MTU_DISCOVER, 1),
    (IPV6_RECVERR, 0),
    (IPV6_MULTICAST_ALL, 1),
    (IPV6_RECVPKTINFO, 0),
    (IPV6_RECVHOPLIMIT, 0),
    (IPV6_RECVTCLASS, 0),
    (IPV6_DONTFRAG, 0),
    (IPV6_AUTOFLOWLABEL, 1),
    (IPV6_ORIGDSTADDR, 0),
    (IPV6_TRANSPARENT, 0),
    (IPV6_FREEBIND, 0),
];

/// What was set.
#[derive(Clone, Debug, Default)]
pub struct Options {
    set: Vec<(u32, i32)>,
}

impl Options {
    /// `ENOPROTOOPT` for options that are not kept.
    pub fn keep(&mut self, name: u32, value: &[u8]) -> Result<()> {
        if name == IPV6_MTU {
            // It bounds fragments of IPv6, which loopback alone speaks here: none is ever made.
            let known = int(value).is_ok_and(|n| n == 0 || n >= MIN_MTU);
            return if known { Ok(()) } else { Err(EINVAL) };
        }
        if !KEPT.iter().any(|(kept, _)| *kept == name) {
            return Err(ENOPROTOOPT);
        }
        let value = int(value)?;
        self.set.retain(|(other, _)| *other != name);
        self.set.push((name, value));
        Ok(())
    }

    pub fn get(&self, name: u32) -> Result<i32> {
        let known = KEPT.iter().find(|(kept, _)| *kept == name).ok_or(ENOPROTOOPT)?;
        Ok(self.set.iter().find(|(other, _)| *other == name).map_or(known.1, |(_, value)| *value))
    }

    /// IPV6_FREEBIND or IPV6_TRANSPARENT: bind(2) takes IPv4-mapped addresses that are not this machine's.
    pub fn binds_anywhere(&self) -> bool {
        self.wants(IPV6_FREEBIND) || self.wants(IPV6_TRANSPARENT)
    }

    /// Whether recvmsg(2) is to say it.
    pub fn wants(&self, name: u32) -> bool {
        self.set.iter().any(|(other, value)| *other == name && *value != 0)
    }

    pub fn value(&self, name: u32) -> Result<Vec<u8>> {
        self.get(name).map(from_int)
    }
}

/// Hops of a packet: -1 is the default.
pub fn hops(value: &[u8]) -> Result<u8> {
    match int(value)? {
        -1 => Ok(crate::ip::TTL),
        n @ 0..=255 => Ok(n as u8),
        _ => Err(EINVAL),
    }
}

/// The traffic class: -1 is the default.
pub fn traffic_class(value: &[u8]) -> Result<u8> {
    match int(value)? {
        -1 => Ok(0),
        n @ 0..=255 => Ok(n as u8),
        _ => Err(EINVAL),
    }
}
