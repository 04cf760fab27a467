// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Echo and errors of ICMPv6 (RFC 4443), both ways.

use super::discovery;
use super::numbers::Scoped;
use super::output::CHECKSUM;
use super::wire::{self, Found, Header, IPV6, MIN_MTU};
use super::{DEVICE, V6};
use crate::families::is_group;
use crate::hash::Tuple;
use crate::icmp::{Error, Quoted, datagram_buffer};
use crate::ip::TTL;
use crate::stack::Stack;
use crate::wire::{Ipv4, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use abi::{Errno, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

pub(super) const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const UNREACHABLE: u8 = 1;
const TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
/// An error quotes as much as fits a packet that every link takes (RFC 4443 2.4 (c)).
const QUOTE: usize = MIN_MTU - IPV6 - 8;
/// Of an error's own header.
const ERROR: usize = 8;

/// What a type and a code mean to a program (Linux' icmpv6_err_convert).
fn errno(kind: u8, code: u8) -> Errno {
    match (kind, code) {
        (UNREACHABLE, 0) => ENETUNREACH,
        (UNREACHABLE, 1 | 5 | 6) => EACCES,
        (UNREACHABLE, 4) => ECONNREFUSED,
        (UNREACHABLE | TIME_EXCEEDED, _) => EHOSTUNREACH,
        _ => EPROTO,
    }
}

impl V6 {
    /// The packet that an error quotes, if this machine may have sent it.
    fn quoted(&self, from: Ipv4Addr, bytes: &[u8]) -> Option<Quoted> {
        let inner = bytes.get(ERROR..)?;
        let header = Header::parse(inner)?;
        let Ok(found) = wire::walk(inner) else { return None };
        let (protocol, at) = match found {
            Found::Transport { protocol, at, .. } => (protocol, at),
            // Of the first part the transport's header is there.
            Found::Part { fragment, at } if fragment.offset == 0 => (fragment.next, at),
            Found::Part { .. } => return None,
        };
        let transport = *inner.get(at..)?.first_chunk()?;
        let end = (IPV6 + header.payload).min(inner.len());
        let rest = inner.get(at + transport.len()..end).unwrap_or_default();
        let mut data = Vec::new();
        data.reserve_exact_fallibly(rest.len()).ok()?;
        data.extend_from_slice(rest);
        // What was not sent by this machine has no number for its peer.
        let number = |address: Ipv6Addr| self.numbers.find(&Scoped::on(address, DEVICE));
        let source = number(header.source).filter(|source| self.addresses.has_number(*source))?;
        let mtu = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        Some(Quoted {
            error: match bytes[0] {
                // The transports count a header of IPv4.
                TOO_BIG => Error::TooBig { mtu: mtu.max(MIN_MTU) - (IPV6 - crate::wire::IPV4) },
                kind => Error::Unreachable(errno(kind, bytes[1])),
            },
            kind: bytes[0],
            code: bytes[1],
            from,
            source,
            destination: number(header.destination)?,
            protocol,
            transport,
            data,
        })
    }
}

impl Stack {
    /// RFC 4443 4.2: what was sent to a group is answered from an address of the device.
    pub(super) fn echo6(&mut self, now: u64, header: &Ipv4, bytes: &[u8]) {
        let source = match is_group(header.destination) {
            true => self.ip.route(header.source).ok().map(|route| route.source),
            false => Some(header.destination).filter(|own| self.ip.is_own(*own)),
        };
        let Some(source) = source else { return };
        let Some(mut head) = datagram_buffer(&mut self.ip, bytes.len()) else { return };
        if !head.append(bytes) {
            return;
        }
        let sum = self.ip.pseudo6(source, header.source, PROTOCOL_ICMPV6, bytes.len());
        let reply = head.bytes_mut();
        reply[0] = ECHO_REPLY;
        reply[CHECKSUM..CHECKSUM + 2].fill(0);
        let sum = sum.clone().add(reply).finish();
        reply[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        let back = crate::ip::Header {
            source,
            destination: header.source,
            protocol: PROTOCOL_ICMPV6,
            tos: header.tos,
            ttl: TTL,
        };
        self.count6(|counters| counters.icmp_out += 1);
        self.ip.send_datagram(now, &back, head, None);
    }

    /// An error about a packet of this machine (RFC 4443 3, RFC 8201 4).
    pub(super) fn error6(&mut self, now: u64, header: &Ipv4, bytes: &[u8]) {
        let Some(quoted) = self.ip.v6.as_ref().and_then(|v6| v6.quoted(header.source, bytes)) else { return };
        if let Error::TooBig { .. } = quoted.error {
            if !self.is_in_flight(&quoted) {
                return;
            }
            let mtu = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
            if let Some(v6) = &mut self.ip.v6 {
                v6.routes.narrow(now, quoted.destination, mtu);
                v6.plan();
            }
        }
        self.icmp_error(now, &quoted);
    }

    /// Whether a packet as the quoted one is on its way: whoever guesses wrongly narrows no path (RFC 8201 6).
    fn is_in_flight(&self, quoted: &Quoted) -> bool {
        let t = &quoted.transport;
        let port = |at: usize| u16::from_be_bytes([t[at], t[at + 1]]);
        let local = SocketAddrV4::new(quoted.source, port(0));
        let remote = SocketAddrV4::new(quoted.destination, port(2));
        match quoted.protocol {
            PROTOCOL_TCP => {
                let seq = u32::from_be_bytes([t[4], t[5], t[6], t[7]]);
                self.tcp.is_in_flight(&Tuple { local, remote }, seq)
            }
            PROTOCOL_UDP => self.udp.has_port(local.port()),
            _ => true,
        }
    }

    /// Tells the sender of a packet of the device, which begins with its header, what is wrong with it: type, code and the second word.
    /// With `always` also if it was for a group (RFC 4443 2.4 (e)).
    pub(crate) fn refuse6(
        &mut self,
        now: u64,
        header: &Header,
        packet: &[u8],
        (kind, code, word): (u8, u8, u32),
        always: bool,
    ) {
        let (source, to) = (header.source, header.destination);
        let is_about_error = match wire::walk(packet) {
            Ok(Found::Transport { protocol: PROTOCOL_ICMPV6, at, .. }) => {
                packet.get(at).is_none_or(|kind| *kind < 128 || *kind == discovery::REDIRECT)
            }
            _ => false,
        };
        let is_refusable =
            !source.is_unspecified() && !source.is_multicast() && (always || !to.is_multicast());
        if is_about_error || !is_refusable || !self.icmp.may_send(now) {
            return;
        }
        let Some(v6) = &self.ip.v6 else { return };
        let own = match v6.addresses.is_own(&to) {
            true => Some(to),
            false => v6.addresses.source_to(&source).map(|own| own.address),
        };
        let Some(own) = own else { return };
        let quote = &packet[..packet.len().min(QUOTE)];
        let mut message = Vec::new();
        if message.reserve_exact_fallibly(ERROR + quote.len()).is_err() {
            return;
        }
        message.extend_from_slice(&[kind, code, 0, 0]);
        message.extend_from_slice(&word.to_be_bytes());
        message.extend_from_slice(quote);
        self.ip.send_control(now, &own, &source, TTL, &message);
    }

    /// Nobody takes the packet: the code is the one that IPv4 has, of a port or of a protocol.
    pub(crate) fn unreachable6(&mut self, now: u64, code: u8, packet: &[u8]) {
        const PORT: u8 = 3;
        const PARAMETER_PROBLEM: u8 = 4;
        let Some(header) = Header::parse(packet) else { return };
        let error = match (code, wire::walk(packet)) {
            (PORT, _) => (UNREACHABLE, 4, 0),
            (_, Ok(Found::Transport { named_at, .. })) => (PARAMETER_PROBLEM, 1, named_at as u32),
            _ => return,
        };
        self.refuse6(now, &header, packet, error, false);
    }
}
