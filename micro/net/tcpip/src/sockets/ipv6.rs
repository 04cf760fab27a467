// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of IPPROTO_IPV6 (ipv6(7), RFC 3493, RFC 3542) that mean the same for streams and datagrams.

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_socket::options::{Takes, from_int, int};

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

/// What RFC 2292 called them, which RFC 3542 replaced.
pub const IPV6_2292PKTINFO: u32 = 2;
const IPV6_2292HOPOPTS: u32 = 3;
const IPV6_2292DSTOPTS: u32 = 4;
const IPV6_2292RTHDR: u32 = 5;
pub const IPV6_2292HOPLIMIT: u32 = 8;
const IPV6_FLOWINFO: u32 = 11;
pub const IPV6_MULTICAST_IF: u32 = 17;
pub const IPV6_MULTICAST_HOPS: u32 = 18;
pub const IPV6_MULTICAST_LOOP: u32 = 19;
pub const IPV6_ADD_MEMBERSHIP: u32 = 20;
pub const IPV6_DROP_MEMBERSHIP: u32 = 21;
const IPV6_MTU_DISCOVER: u32 = 23;
pub const IPV6_MTU: u32 = 24;
pub const IPV6_RECVERR: u32 = 25;
const IPV6_MULTICAST_ALL: u32 = 29;
const IPV6_ROUTER_ALERT_ISOLATE: u32 = 30;
const IPV6_RECVERR_RFC4884: u32 = 31;
const IPV6_FLOWINFO_SEND: u32 = 33;
const IPV6_RECVHOPOPTS: u32 = 53;
const IPV6_RECVRTHDR: u32 = 56;
const IPV6_RECVDSTOPTS: u32 = 58;
const IPV6_RECVPATHMTU: u32 = 60;
const IPV6_DONTFRAG: u32 = 62;
const IPV6_AUTOFLOWLABEL: u32 = 70;
const IPV6_MINHOPCOUNT: u32 = 73;
pub const IPV6_ORIGDSTADDR: u32 = 74;
const IPV6_TRANSPARENT: u32 = 75;
const IPV6_RECVFRAGSIZE: u32 = 77;
const IPV6_FREEBIND: u32 = 78;

/// RFC 8200 5: the smallest MTU of a link.
const MIN_MTU: i32 = 1280;

/// Options that are kept as they were set, with what they are before. No packet of loopback has extension headers, so those that ask for
/// them never bring a message.
const KEPT: [(u32, i32, Takes); 29] = [
    (IPV6_2292PKTINFO, 0, Takes::Flag),
    (IPV6_2292HOPOPTS, 0, Takes::Flag),
    (IPV6_2292DSTOPTS, 0, Takes::Flag),
    (IPV6_2292RTHDR, 0, Takes::Flag),
    (IPV6_2292HOPLIMIT, 0, Takes::Flag),
    (IPV6_FLOWINFO, 0, Takes::Flag),
    (IPV6_MULTICAST_IF, 0, Takes::Range(0, i32::MAX)),
    (IPV6_MULTICAST_HOPS, 1, Takes::Range(-1, 255)),
    (IPV6_MULTICAST_LOOP, 1, Takes::BOOL),
    (IPV6_MTU_DISCOVER, 1, Takes::Range(0, 5)),
    (IPV6_RECVERR, 0, Takes::Flag),
    (IPV6_MULTICAST_ALL, 1, Takes::Flag),
    (IPV6_ROUTER_ALERT_ISOLATE, 0, Takes::Flag),
    (IPV6_RECVERR_RFC4884, 0, Takes::BOOL),
    (IPV6_FLOWINFO_SEND, 0, Takes::Flag),
    (IPV6_RECVPKTINFO, 0, Takes::Flag),
    (IPV6_RECVHOPLIMIT, 0, Takes::Flag),
    (IPV6_RECVHOPOPTS, 0, Takes::Flag),
    (IPV6_RECVRTHDR, 0, Takes::Flag),
    (IPV6_RECVDSTOPTS, 0, Takes::Flag),
    (IPV6_RECVPATHMTU, 0, Takes::Flag),
    (IPV6_RECVTCLASS, 0, Takes::Flag),
    (IPV6_DONTFRAG, 0, Takes::Flag),
    (IPV6_AUTOFLOWLABEL, 1, Takes::Flag),
    (IPV6_MINHOPCOUNT, 0, Takes::Range(0, 255)),
    (IPV6_ORIGDSTADDR, 0, Takes::Flag),
    (IPV6_TRANSPARENT, 0, Takes::Flag),
    (IPV6_RECVFRAGSIZE, 0, Takes::Flag),
    (IPV6_FREEBIND, 0, Takes::Flag),
];
/// Those of them that take a value of any length, which is 0 where it is no int (ipv6_setsockopt).
const OF_ANY_LENGTH: [u32; 3] = [IPV6_DONTFRAG, IPV6_AUTOFLOWLABEL, IPV6_RECVFRAGSIZE];

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
        let (_, before, takes) = KEPT.iter().find(|(kept, ..)| *kept == name).ok_or(ENOPROTOOPT)?;
        let asked = match int(value) {
            Err(_) if OF_ANY_LENGTH.contains(&name) => 0,
            asked => asked?,
        };
        let kept = match takes.keep(asked) {
            // What the system takes.
            Ok(-1) if name == IPV6_MULTICAST_HOPS => *before,
            // There is no such interface.
            Err(_) if name == IPV6_MULTICAST_IF => return Err(ENODEV),
            kept => kept?,
        };
        self.set.retain(|(other, _)| *other != name);
        self.set.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        self.set.push((name, kept));
        Ok(())
    }

    pub fn get(&self, name: u32) -> Result<i32> {
        let known = KEPT.iter().find(|(kept, ..)| *kept == name).ok_or(ENOPROTOOPT)?;
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

/// Whether getsockopt(2) is told it.
pub fn is_kept(name: u32) -> bool {
    KEPT.iter().any(|(kept, ..)| *kept == name)
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
