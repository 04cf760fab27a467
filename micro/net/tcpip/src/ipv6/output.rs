// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out: headers of IPv6, checksums and their offload, fragments (RFC 8200 4.5), and messages of the stack's own.

use super::numbers::Scoped;
use super::wire::{self, ETHERTYPE_IPV6, FRAGMENT, Fragment, IPV6};
use super::{DEVICE, V6};
use crate::ip::{Header, Ip, Payload, Route};
use crate::wire::{ETHERNET, Ethernet, IPV4, Mac, PROTOCOL_ICMPV6};
use alloc::vec::Vec;
use api_netdev::{BUFFER_SIZE, Buffer, Checksum, HEADROOM, Outgoing, Segmentation};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Of ICMPv6.
pub(super) const CHECKSUM: usize = 2;
/// A router looks at the packet (RFC 2711), which only travels so far (RFC 3810 5).
const ROUTER_ALERT: [u8; 8] = [PROTOCOL_ICMPV6, 0, 5, 2, 0, 0, 1, 0];

/// The group's address of Ethernet (RFC 2464 7).
pub fn mac_of_group(group: &Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

impl V6 {
    /// The header of IPv6 for what the stack's header says; `None` where it names nobody.
    fn header(&self, header: &Header, payload: usize) -> Option<wire::Header> {
        Some(wire::Header {
            source: self.numbers.get(header.source)?.address,
            destination: self.numbers.get(header.destination)?.address,
            next: header.protocol,
            hops: header.ttl,
            class: header.tos,
            payload,
        })
    }
}

impl Ip {
    fn header6(&mut self, header: &Header, payload: usize) -> Option<wire::Header> {
        let v6 = self.v6.as_mut()?;
        v6.counters.out_requests += 1;
        let made = v6.header(header, payload);
        v6.counters.out_no_routes += u64::from(made.is_none());
        made
    }

    /// [`Ip::send`] of IPv6 by a way that leaves the machine.
    pub(crate) fn send6(&mut self, now: u64, route: &Route, header: &Header, mut payload: Payload) {
        let length = payload.head.len() + payload.fragments.iter().map(|f| f.bytes().len()).sum::<usize>();
        let Some(front) = self.header6(header, length) else { return self.recycle(payload.head) };
        let offload = self.info.is_some_and(|info| info.transmit_checksum);
        if let Some(at) = payload.checksum {
            let mut sum = wire::pseudo(&front.source, &front.destination, header.protocol, length);
            let value = if offload {
                sum.partial()
            } else {
                sum.add(payload.head.bytes());
                payload.fragments.iter().for_each(|fragment| {
                    sum.add(fragment.bytes());
                });
                // There is no packet without a checksum (RFC 8200 8.1).
                if sum.finish() == 0 { 0xffff } else { sum.finish() }
            };
            payload.head.bytes_mut()[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        let Some(to) = payload.head.prepend(IPV6) else { return };
        to.copy_from_slice(&front.bytes());
        let offset = ETHERNET + IPV6;
        let checksum = payload
            .checksum
            .filter(|_| offload)
            .map(|at| Checksum { start: offset as u16, offset: at as u16 });
        let segmentation = payload.segment.map(|(header_length, segment_size)| Segmentation {
            header_length: (offset + header_length) as u16,
            segment_size: segment_size as u16,
        });
        let packet = Outgoing { head: payload.head, fragments: payload.fragments, checksum, segmentation };
        self.hand_to_route(now, route, packet);
    }

    /// [`Ip::send_datagram`] likewise: in fragments where the path asks for it.
    pub(crate) fn send_datagram6(
        &mut self,
        now: u64,
        route: &Route,
        header: &Header,
        mut head: Buffer,
        checksum: Option<usize>,
    ) {
        if head.len() + IPV4 <= route.mtu {
            return self.send6(
                now,
                route,
                header,
                Payload { head, fragments: Vec::new(), checksum, segment: None },
            );
        }
        let Some(front) = self.header6(header, 0) else { return };
        if let Some(at) = checksum {
            let mut sum = wire::pseudo(&front.source, &front.destination, header.protocol, head.len());
            let value = match sum.add(head.bytes()).finish() {
                0 => 0xffff,
                value => value,
            };
            head.bytes_mut()[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        let Some(v6) = &mut self.v6 else { return };
        let id = v6.random() as u32;
        v6.counters.fragmented += 1;
        let room = BUFFER_SIZE - HEADROOM.device - HEADROOM.protocols;
        let most = (route.mtu - IPV4 - FRAGMENT).min(room) & !7;
        let total = head.len();
        for (index, piece) in head.bytes().chunks(most).enumerate() {
            let Some(mut buffer) = self.buffer() else { return };
            let more = (index + 1) * most < total;
            let part = Fragment { next: header.protocol, offset: index * most, more, id };
            let payload = FRAGMENT + piece.len();
            let front = wire::Header { next: wire::FRAGMENTATION, payload, ..front };
            if !buffer.append(&front.bytes()) || !buffer.append(&part.bytes()) || !buffer.append(piece) {
                return;
            }
            if let Some(v6) = &mut self.v6 {
                v6.counters.fragments_created += 1;
            }
            self.hand_to_route(now, route, Outgoing::plain(buffer));
        }
        self.recycle(head);
    }

    /// A message of ICMPv6 that the stack itself sends on its link, with its checksum to be made.
    pub(super) fn send_control(
        &mut self,
        now: u64,
        source: &Ipv6Addr,
        to: &Ipv6Addr,
        hops: u8,
        message: &[u8],
    ) {
        let Some(packet) = self.control_packet(source, to, hops, &[], message) else { return };
        if to.is_multicast() {
            return self.hand_to_device(mac_of_group(to), packet);
        }
        let number = self.v6.as_mut().and_then(|v6| v6.numbers.intern(Scoped::on(*to, DEVICE)));
        let Some(number) = number else { return self.recycle(packet.head) };
        // What is not on the link goes by a router: errors alone do.
        let hop = self.route6(Ipv4Addr::UNSPECIFIED, number).map_or(number, |route| route.next_hop);
        self.hand_to_link(now, hop, packet);
    }

    /// To the group's members on the link.
    pub(crate) fn hand_to_group6(&mut self, group: Ipv4Addr, packet: Outgoing) {
        match self.address_of(group) {
            Some(of) => self.hand_to_device(mac_of_group(&of.address), packet),
            None => self.recycle(packet.head),
        }
    }

    /// The same to a neighbour whose address is known.
    pub(super) fn send_to_mac(&mut self, mac: Mac, source: &Ipv6Addr, to: &Ipv6Addr, message: &[u8]) {
        if let Some(packet) = self.control_packet(source, to, super::discovery::HOPS, &[], message) {
            self.hand_to_device(mac, packet);
        }
    }

    /// The same with a router alert, to a group (RFC 3810 5).
    pub(super) fn send_with_alert(&mut self, _: u64, source: &Ipv6Addr, to: &Ipv6Addr, message: &[u8]) {
        if let Some(packet) = self.control_packet(source, to, 1, &ROUTER_ALERT, message) {
            self.hand_to_device(mac_of_group(to), packet);
        }
    }

    fn control_packet(
        &mut self,
        source: &Ipv6Addr,
        to: &Ipv6Addr,
        hops: u8,
        options: &[u8],
        message: &[u8],
    ) -> Option<Outgoing> {
        let mut buffer = crate::icmp::datagram_buffer(self, IPV6 + options.len() + message.len())?;
        let front = wire::Header {
            source: *source,
            destination: *to,
            next: if options.is_empty() { PROTOCOL_ICMPV6 } else { 0 },
            hops,
            class: 0,
            payload: options.len() + message.len(),
        };
        let sum = wire::pseudo(source, to, PROTOCOL_ICMPV6, message.len()).add(message).finish();
        let whole = buffer.append(&front.bytes()) && buffer.append(options) && buffer.append(message);
        if !whole {
            return None;
        }
        let at = IPV6 + options.len() + CHECKSUM;
        buffer.bytes_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let v6 = self.v6.as_mut()?;
        v6.counters.out_requests += 1;
        v6.counters.icmp_out += 1;
        Some(Outgoing::plain(buffer))
    }

    /// The header of Ethernet for a packet of either family.
    pub(crate) fn link_header(destination: Mac, source: Mac, packet: &[u8]) -> Ethernet {
        let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ethertype = if is_v6 { ETHERTYPE_IPV6 } else { crate::wire::ETHERTYPE_IPV4 };
        Ethernet { destination, source, ethertype }
    }
}
