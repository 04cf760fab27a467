// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way in: packets of the device, as far as the transports, which see the stack's own header with numbers for addresses.

use super::DEVICE;
use super::discovery::{self, Envelope};
use super::numbers::Scoped;
use super::wire::{self, Found, Header, IPV6, Refused, is_link_local};
use crate::families::{is_group, is_v6};
use crate::reassembly::Part;
use crate::stack::{Stack, cut, flat};
use crate::wire::{Ipv4, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, Udp};
use alloc::vec::Vec;
use api_netdev::Incoming;
use core::net::{Ipv4Addr, Ipv6Addr};

const PARAMETER_PROBLEM: u8 = 4;
const UNKNOWN_HEADER: u8 = 1;

fn length_of(packet: &Incoming) -> usize {
    packet.first.len() + packet.more.iter().map(|buffer| buffer.len()).sum::<usize>()
}

/// Addresses that no packet of a wire has: RFC 4291 2.5.2, 2.5.3 and 2.7, RFC 6890 of mapped ones.
fn is_bogus(header: &Header) -> bool {
    let Header { source, destination, .. } = header;
    let is_inside = |address: &Ipv6Addr| address.is_loopback() || address.to_ipv4_mapped().is_some();
    source.is_multicast()
        || is_inside(source)
        || is_inside(destination)
        || destination.is_unspecified()
        // Of an interface, or reserved.
        || destination.is_multicast() && destination.octets()[1] & 15 <= 1
}

impl Stack {
    /// A packet of IPv6 came in by the device, behind its header of Ethernet.
    pub(crate) fn ipv6_from(&mut self, now: u64, mut packet: Incoming) {
        let Some(v6) = &mut self.ip.v6 else { return self.ip.recycle_packet(packet) };
        v6.counters.in_receives += 1;
        let there = length_of(&packet);
        let Some(header) =
            Header::parse(packet.first.bytes()).filter(|h| IPV6 + h.payload <= there && !is_bogus(h))
        else {
            v6.counters.in_header_errors += 1;
            return self.ip.recycle_packet(packet);
        };
        let own = v6.addresses.get(&header.destination).filter(|own| own.is_assigned()).map(|own| own.number);
        let Some(destination) = own.or_else(|| v6.memberships.has(&header.destination)) else {
            v6.counters.in_address_errors += 1;
            return self.ip.recycle_packet(packet);
        };
        // Whoever says that it is this machine is not.
        let is_forged = v6.addresses.is_own(&header.source);
        let source = match header.source.is_unspecified() {
            true => Some(Ipv4Addr::UNSPECIFIED),
            false => v6.numbers.intern(Scoped::on(header.source, DEVICE)),
        };
        let Some(source) = source.filter(|_| !is_forged) else {
            v6.counters.in_address_errors += 1;
            return self.ip.recycle_packet(packet);
        };
        self.ip.statistics.received_bytes += (IPV6 + header.payload) as u64;
        cut(&mut packet, IPV6 + header.payload);
        // Extension headers are looked at in one piece.
        if !packet.more.is_empty() && ![PROTOCOL_TCP, PROTOCOL_UDP].contains(&header.next) {
            let Some(first) = flat(&packet) else { return self.ip.recycle_packet(packet) };
            let checksum_valid = packet.checksum_valid;
            self.ip.recycle_packet(packet);
            packet = Incoming { first, more: Vec::new(), checksum_valid };
        }
        self.pass_headers(now, &header, (source, destination), packet);
    }

    fn pass_headers(&mut self, now: u64, header: &Header, ends: (Ipv4Addr, Ipv4Addr), mut packet: Incoming) {
        match wire::walk(packet.first.bytes()) {
            Ok(Found::Transport { protocol, at, named_at }) => {
                // ICMP is the other version's, and its errors are the stack's own when they come by loopback.
                if protocol == PROTOCOL_ICMP {
                    let error = (PARAMETER_PROBLEM, UNKNOWN_HEADER, named_at as u32);
                    self.count_unknown();
                    self.refuse6(now, header, packet.first.bytes(), error, false);
                    return self.ip.recycle_packet(packet);
                }
                packet.first.trim_front(at);
                self.hand_up(now, header, ends, (protocol, at), packet, true);
            }
            Ok(Found::Part { fragment, at }) => {
                self.count6(|counters| counters.reassembly_requests += 1);
                let payload = &packet.first.bytes()[at..];
                // RFC 8200 4.5: all but the last part end at a multiple of eight bytes, and no packet is longer than its length says.
                if fragment.more && !payload.len().is_multiple_of(8) {
                    self.refuse6(
                        now,
                        header,
                        packet.first.bytes(),
                        (PARAMETER_PROBLEM, 0, wire::LENGTH_AT as u32),
                        false,
                    );
                    return self.ip.recycle_packet(packet);
                }
                let key = (ends.0, ends.1, 0, fragment.id);
                let part =
                    Part { key, offset: fragment.offset, more: fragment.more, protocol: fragment.next };
                let whole = self.reassembly.add_part(now, &part, payload);
                self.ip.recycle_packet(packet);
                let Some((mut first, protocol)) = whole else { return };
                self.count6(|counters| counters.reassembled += 1);
                // A part in a part, or an error in what is behind: the packet is lost.
                let Ok(Found::Transport { protocol, at, .. }) =
                    wire::walk_from(first.bytes(), protocol, 0, 0)
                else {
                    return self.ip.recycle(first);
                };
                first.trim_front(at);
                let packet = Incoming { first, more: Vec::new(), checksum_valid: false };
                if protocol != PROTOCOL_ICMP {
                    self.hand_up(now, header, ends, (protocol, at), packet, false);
                }
            }
            Err(Refused::Dropped) => {
                self.count6(|counters| counters.in_header_errors += 1);
                self.ip.recycle_packet(packet);
            }
            Err(Refused::Problem { code, at, always }) => {
                self.count6(|counters| counters.in_header_errors += 1);
                self.refuse6(now, header, packet.first.bytes(), (PARAMETER_PROBLEM, code, at as u32), always);
                self.ip.recycle_packet(packet);
            }
        }
    }

    pub(super) fn count6(&mut self, count: impl FnOnce(&mut super::Counters)) {
        if let Some(v6) = &mut self.ip.v6 {
            count(&mut v6.counters);
        }
    }

    fn count_unknown(&mut self) {
        self.count6(|counters| counters.in_unknown_protocols += 1);
    }

    /// The packet begins with its transport's header, `at` bytes behind where it began, and goes to the transport if its checksum is right:
    /// there is none without (RFC 8200 8.1).
    fn hand_up(
        &mut self,
        now: u64,
        header: &Header,
        (source, destination): (Ipv4Addr, Ipv4Addr),
        (protocol, at): (u8, usize),
        mut packet: Incoming,
        is_whole: bool,
    ) {
        let has_checksum = [PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_ICMPV6].contains(&protocol);
        // The device may vouch for it, but not for one that is missing.
        let is_missing =
            protocol == PROTOCOL_UDP && Udp::parse(packet.first.bytes()).is_some_and(|udp| udp.checksum == 0);
        if has_checksum && (is_missing || !packet.checksum_valid && !is_intact(header, protocol, &packet)) {
            self.ip.statistics.bad_packets += 1;
            match protocol {
                PROTOCOL_TCP => self.ip.counters.tcp.in_errors += 1,
                PROTOCOL_UDP => self.ip.counters.udp.in_errors += 1,
                _ => self.count6(|counters| counters.icmp_in_errors += 1),
            }
            return self.ip.recycle_packet(packet);
        }
        // From nobody come questions alone (RFC 4861 4.3, RFC 3810 5.2.13).
        if source.is_unspecified() && protocol != PROTOCOL_ICMPV6 {
            self.count6(|counters| counters.in_address_errors += 1);
            return self.ip.recycle_packet(packet);
        }
        packet.checksum_valid |= has_checksum;
        self.count6(|counters| counters.in_delivers += 1);
        let inside = Ipv4 {
            source,
            destination,
            protocol,
            ttl: header.hops,
            tos: header.class,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            header: at,
            total: IPV6 + header.payload,
        };
        self.transport(now, &inside, packet, is_whole);
    }

    /// A message of ICMPv6, which begins with its header, of the device or of loopback (RFC 4443).
    pub(crate) fn icmp6_input(&mut self, now: u64, header: &Ipv4, packet: Incoming) {
        let message = flat(&packet);
        let is_trusted = packet.checksum_valid;
        self.ip.recycle_packet(packet);
        let Some(message) = message else { return };
        let bytes = message.bytes();
        let mut sum = self.ip.pseudo6(header.source, header.destination, PROTOCOL_ICMPV6, bytes.len());
        self.count6(|counters| counters.icmp_in += 1);
        if bytes.len() < 8 || !is_trusted && !matches!(sum.add(bytes).finish(), 0 | 0xffff) {
            self.ip.statistics.bad_packets += 1;
            return self.count6(|counters| counters.icmp_in_errors += 1);
        }
        match bytes[0] {
            super::errors::ECHO_REQUEST => self.echo6(now, header, bytes),
            1..=4 => self.error6(now, header, bytes),
            _ if self.ip.is_own(header.source) => {}
            _ => self.discovered(now, header, bytes),
        }
    }

    /// Of the link's own messages.
    fn discovered(&mut self, now: u64, header: &Ipv4, bytes: &[u8]) {
        let address = |number| match is_v6(number) {
            true => self.ip.address_of(number).map(|of| of.address),
            false => Some(Ipv6Addr::UNSPECIFIED),
        };
        let (Some(source), Some(destination)) = (address(header.source), address(header.destination)) else {
            return;
        };
        let envelope = Envelope { source, destination, hops: header.ttl };
        match bytes[0] {
            discovery::NEIGHBOUR_SOLICITATION => self.ip.solicited(now, bytes, &envelope),
            discovery::NEIGHBOUR_ADVERTISEMENT => self.ip.advertised(now, bytes, &envelope),
            discovery::ROUTER_ADVERTISEMENT => self.ip.router_advertised(now, bytes, &envelope),
            super::groups::QUERY if is_link_local(&source) && header.ttl == 1 => {
                if let Some(v6) = &mut self.ip.v6 {
                    v6.queried(now, bytes);
                }
            }
            // Redirects are for hosts with several routers, and the favourite of whoever is between.
            _ => {}
        }
        debug_assert!(is_v6(header.destination) || is_group(header.destination));
    }
}

/// Whether the checksum is right, of UDP over the length that its header names.
fn is_intact(header: &Header, protocol: u8, packet: &Incoming) -> bool {
    let there = length_of(packet);
    let length = match Udp::parse(packet.first.bytes()) {
        Some(udp) if protocol == PROTOCOL_UDP => udp.length.min(there),
        _ => there,
    };
    let mut sum = wire::pseudo(&header.source, &header.destination, protocol, length);
    let mut left = length;
    for buffer in core::iter::once(&packet.first).chain(&packet.more) {
        let n = buffer.len().min(left);
        sum.add(&buffer.bytes()[..n]);
        left -= n;
    }
    matches!(sum.finish(), 0 | 0xffff)
}
