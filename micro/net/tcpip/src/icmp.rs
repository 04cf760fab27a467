// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ICMP (RFC 792, RFC 1122 3.2.2): echo, and errors in both directions.

use crate::families::is_v6;
use crate::ip::{Header, Ip, TTL};
use crate::wire::{self, Ipv4, checksum};
use abi::{Errno, errno::*};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Errors sent a second at most (Linux: icmp_msgs_per_sec is 1000; a unikernel has no router's duties).
const ERRORS_PER_SECOND: u32 = 100;
/// Of the offending packet an error quotes as much as fits a packet that every host takes (RFC 1812 4.3.2.3).
const QUOTE: usize = 576 - wire::IPV4 - 8;

/// What an ICMP error means to a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    TooBig { mtu: usize },
    Unreachable(Errno),
}

/// An error message with the packet it quotes.
pub struct Quoted {
    pub error: Error,
    /// Type, code: what IP_RECVERR reports.
    pub kind: u8,
    pub code: u8,
    pub from: Ipv4Addr,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    /// The first eight bytes of the transport header.
    pub transport: [u8; 8],
    /// What is behind those eight bytes.
    pub data: Vec<u8>,
}

impl Quoted {
    /// Trying again is of no use (Linux' icmp_err_convert, and tab_unreach of ICMPv6).
    pub(crate) fn is_final(&self) -> bool {
        match (is_v6(self.destination), self.kind, self.code) {
            (false, 3, code) => matches!(code, 2 | 3 | 6..=10 | 13..=15),
            (false, 12, _) | (true, 4, _) => true,
            (true, 1, code) => matches!(code, 1 | 4..=6),
            _ => false,
        }
    }

    /// What was sent to an address of IPv6 of this machine went as IPv4 inside: its errors are told as ICMPv6 has them (RFC 4443 3.1
    /// and 3.4).
    pub(crate) fn told_as(mut self, destination: Ipv4Addr) -> Quoted {
        if is_v6(destination) {
            (self.kind, self.code) = if self.code == 2 { (4, 1) } else { (1, 4) };
        }
        self
    }
}

#[derive(Default)]
pub struct Icmp {
    /// Errors sent in the present second.
    sent: u32,
    second: u64,
}

impl Icmp {
    /// A message came in; an error is returned for the transport it concerns.
    pub fn input(&mut self, ip: &mut Ip, now: u64, header: &Ipv4, bytes: &[u8]) -> Option<Quoted> {
        let seen = &mut ip.counters.icmp;
        seen.in_messages += 1;
        if bytes.len() < 8 || !matches!(checksum(bytes), 0 | 0xffff) {
            seen.in_errors += 1;
            ip.statistics.bad_packets += 1;
            return None;
        }
        match bytes[0] {
            0 => seen.in_echo_replies += 1,
            3 => seen.in_unreachable += 1,
            8 => seen.in_echos += 1,
            11 => seen.in_time_exceeded += 1,
            12 => seen.in_parameter_problems += 1,
            _ => {}
        }
        match bytes[0] {
            8 if ip.is_own(header.destination) => {
                self.echo(ip, now, header, bytes);
                None
            }
            3 | 11 | 12 => parse_error(header, bytes),
            _ => None,
        }
    }

    fn echo(&mut self, ip: &mut Ip, now: u64, header: &Ipv4, bytes: &[u8]) {
        let Some(mut head) = datagram_buffer(ip, bytes.len()) else { return };
        if !head.append(bytes) {
            return;
        }
        let reply = head.bytes_mut();
        reply[0] = 0;
        reply[2..4].fill(0);
        let sum = checksum(reply);
        reply[2..4].copy_from_slice(&sum.to_be_bytes());
        let back = Header {
            source: header.destination,
            destination: header.source,
            protocol: wire::PROTOCOL_ICMP,
            tos: header.tos,
            ttl: TTL,
        };
        ip.counters.icmp.out_messages += 1;
        ip.counters.icmp.out_echo_replies += 1;
        ip.send_datagram(now, &back, head, None);
    }

    /// Tells a sender that its packet is not sent on: type, code and the second word of the message. `packet` begins with the IP header.
    #[cfg(feature = "interfaces")]
    pub(crate) fn refuse(
        &mut self,
        ip: &mut Ip,
        now: u64,
        header: &Ipv4,
        (kind, code, extra): (u8, u8, u32),
        packet: &[u8],
    ) {
        // No error is about an error (RFC 1122 3.2.2).
        let quoted = packet.get(header.header).copied();
        let is_error = header.protocol == wire::PROTOCOL_ICMP && !matches!(quoted, Some(0 | 8 | 13..=18));
        let sound = !is_error
            && !header.source.is_unspecified()
            && !header.source.is_multicast()
            && !header.destination.is_multicast()
            && !ip.is_broadcast(header.source)
            && header.fragment_offset == 0;
        if !sound || !self.may_send(now) {
            return;
        }
        let Ok(route) = ip.route(header.source) else { return };
        let Some(mut head) = ip.buffer() else { return };
        let quote = &packet[..packet.len().min(QUOTE)];
        let [a, b, c, d] = extra.to_be_bytes();
        if !head.append(&[kind, code, 0, 0, a, b, c, d]) || !head.append(quote) {
            return;
        }
        let sum = checksum(head.bytes());
        head.bytes_mut()[2..4].copy_from_slice(&sum.to_be_bytes());
        let back = Header {
            source: route.source,
            destination: header.source,
            protocol: wire::PROTOCOL_ICMP,
            tos: 0xc0,
            ttl: TTL,
        };
        ip.counters.icmp.out_messages += 1;
        ip.counters.icmp.out_unreachable += u64::from(kind == 3);
        ip.send_datagram(now, &back, head, None);
    }

    /// Whether one more error may be sent in this second.
    pub(crate) fn may_send(&mut self, now: u64) -> bool {
        let second = now / 1_000_000_000;
        if second != self.second {
            (self.second, self.sent) = (second, 0);
        }
        if self.sent >= ERRORS_PER_SECOND {
            return false;
        }
        self.sent += 1;
        true
    }

    /// Tells the sender that nobody listens on the port, or that the protocol is unknown. `packet` begins with the
    /// IP header.
    pub fn unreachable(&mut self, ip: &mut Ip, now: u64, header: &Ipv4, code: u8, packet: &[u8]) {
        // RFC 1122 3.2.2: never about broadcasts, multicasts or fragments but the first.
        let sound = ip.is_own(header.destination)
            && !header.source.is_unspecified()
            && !header.source.is_multicast()
            && !ip.is_broadcast(header.source)
            && header.fragment_offset == 0;
        if !sound || !self.may_send(now) {
            return;
        }
        let Some(mut head) = ip.buffer() else { return };
        let quote = &packet[..packet.len().min(QUOTE)];
        if !head.append(&[3, code, 0, 0, 0, 0, 0, 0]) || !head.append(quote) {
            return;
        }
        let sum = checksum(head.bytes());
        head.bytes_mut()[2..4].copy_from_slice(&sum.to_be_bytes());
        let back = Header {
            source: header.destination,
            destination: header.source,
            protocol: wire::PROTOCOL_ICMP,
            tos: 0xc0,
            ttl: TTL,
        };
        ip.counters.icmp.out_messages += 1;
        ip.counters.icmp.out_unreachable += 1;
        ip.send_datagram(now, &back, head, None);
    }
}

/// A buffer with headroom for a datagram of any size.
pub fn datagram_buffer(ip: &mut Ip, length: usize) -> Option<api_netdev::Buffer> {
    let headroom = api_netdev::HEADROOM.device + api_netdev::HEADROOM.protocols;
    if length + headroom <= api_netdev::BUFFER_SIZE {
        ip.buffer()
    } else {
        api_netdev::Buffer::new(length + headroom, headroom)
    }
}

fn parse_error(header: &Ipv4, bytes: &[u8]) -> Option<Quoted> {
    let inner_bytes = &bytes[8..];
    let inner = Ipv4::parse(inner_bytes)?;
    let transport = inner_bytes.get(inner.header..inner.header + 8)?.try_into().ok()?;
    let length = inner.total.min(inner_bytes.len());
    let data = inner_bytes.get(inner.header + 8..length).unwrap_or(&[]).into();
    let mtu = usize::from(u16::from_be_bytes([bytes[6], bytes[7]]));
    let error = match (bytes[0], bytes[1]) {
        (3, 4) => Error::TooBig { mtu: if mtu == 0 { 576 } else { mtu } },
        // Linux' icmp_err_convert.
        (3, 0 | 6 | 9 | 11) => Error::Unreachable(ENETUNREACH),
        (3, 7) => Error::Unreachable(EHOSTDOWN),
        (3, 8) => Error::Unreachable(ENONET),
        (3, 2) => Error::Unreachable(ENOPROTOOPT),
        (3, 3) => Error::Unreachable(ECONNREFUSED),
        (3, 5) => Error::Unreachable(EOPNOTSUPP),
        (3, _) | (11, _) => Error::Unreachable(EHOSTUNREACH),
        _ => Error::Unreachable(EPROTO),
    };
    Some(Quoted {
        error,
        kind: bytes[0],
        code: bytes[1],
        from: header.source,
        source: inner.source,
        destination: inner.destination,
        protocol: inner.protocol,
        transport,
        data,
    })
}
