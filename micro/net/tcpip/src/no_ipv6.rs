// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the stack has of IPv6 in a kernel that was built without: `::1`, and echo requests that it sends itself.

use crate::families::LOOPBACK6;
use crate::icmp::datagram_buffer;
use crate::ip::{Header, Ip, Payload, Route, TTL};
use crate::stack::{Stack, flat};
use crate::wire::{self, Ethernet, Ipv4, Mac, Sum};
use abi::{Result, errno::ENETUNREACH};
use api_netdev::{Buffer, Incoming, Outgoing};
use core::net::{Ipv4Addr, Ipv6Addr};

/// An address with the index of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scoped {
    pub address: Ipv6Addr,
    pub scope: u32,
}

impl Ip {
    pub(crate) fn is_own6(&self, number: Ipv4Addr) -> bool {
        number == LOOPBACK6 && self.lo.has_address6()
    }

    pub(crate) fn hears6(&self, _: Ipv4Addr) -> bool {
        false
    }

    pub(crate) fn route6(&self, _: Ipv4Addr, _: Ipv4Addr) -> Result<Route> {
        Err(ENETUNREACH)
    }

    pub(crate) fn send6(&mut self, _: u64, _: &Route, _: &Header, payload: Payload) {
        self.recycle(payload.head);
    }

    pub(crate) fn send_datagram6(&mut self, _: u64, _: &Route, _: &Header, head: Buffer, _: Option<usize>) {
        self.recycle(head);
    }

    pub(crate) fn hand_to_group6(&mut self, _: Ipv4Addr, packet: Outgoing) {
        self.recycle(packet.head);
    }

    pub(crate) fn solicit(&mut self, _: u64, _: Ipv4Addr) {}

    pub(crate) fn address_of(&self, number: Ipv4Addr) -> Option<Scoped> {
        (number == LOOPBACK6).then_some(Scoped { address: Ipv6Addr::LOCALHOST, scope: 0 })
    }

    pub(crate) fn number_of(&mut self, _: Ipv6Addr, _: u32) -> Result<Ipv4Addr> {
        Err(ENETUNREACH)
    }

    pub(crate) fn pseudo6(&self, _: Ipv4Addr, _: Ipv4Addr, protocol: u8, length: usize) -> Sum {
        Sum::pseudo6(protocol, length)
    }

    pub(crate) fn join6(&mut self, _: u64, _: Ipv6Addr) -> bool {
        false
    }

    pub(crate) fn leave6(&mut self, _: u64, _: &Ipv6Addr) {}

    pub(crate) fn settle6(&mut self, _: u64) {}

    #[inline]
    pub(crate) fn deadline6(&self) -> Option<u64> {
        None
    }

    pub(crate) fn has_v6(&self) -> bool {
        false
    }

    pub(crate) fn link_header(destination: Mac, source: Mac, _: &[u8]) -> Ethernet {
        Ethernet { destination, source, ethertype: wire::ETHERTYPE_IPV4 }
    }
}

impl Stack {
    pub(crate) fn unreachable6(&mut self, _: u64, _: u8, _: &[u8]) {}

    /// A message of ICMPv6 from `::1` to itself: an echo request is answered (RFC 4443 4.2).
    pub(crate) fn icmp6_input(&mut self, now: u64, header: &Ipv4, packet: Incoming) {
        const ECHO_REQUEST: u8 = 128;
        const ECHO_REPLY: u8 = 129;
        let message = flat(&packet);
        self.ip.recycle_packet(packet);
        let Some(message) = message else { return };
        let bytes = message.bytes();
        let sum = Sum::pseudo6(wire::PROTOCOL_ICMPV6, bytes.len()).add(bytes).finish();
        if bytes.len() < 8 || !matches!(sum, 0 | 0xffff) {
            self.ip.statistics.bad_packets += 1;
            return;
        }
        let head = datagram_buffer(&mut self.ip, bytes.len()).filter(|_| bytes[0] == ECHO_REQUEST);
        let Some(mut head) = head else { return };
        if !head.append(bytes) {
            return;
        }
        let reply = head.bytes_mut();
        reply[0] = ECHO_REPLY;
        reply[2..4].fill(0);
        let sum = Sum::pseudo6(wire::PROTOCOL_ICMPV6, reply.len()).add(reply).finish();
        reply[2..4].copy_from_slice(&sum.to_be_bytes());
        let back = Header {
            source: header.destination,
            destination: header.source,
            protocol: wire::PROTOCOL_ICMPV6,
            tos: header.tos,
            ttl: TTL,
        };
        self.ip.send_datagram(now, &back, head, None);
    }
}
