// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets for others (RFC 1812 5.2): sent on where net.ipv4.ip_forward says so.

use crate::ip::Ip;
use crate::stack::Stack;
use crate::wire::{self, Ipv4, checksum};
use abi::errno::*;
use api_netdev::{Buffer, HEADROOM, Incoming, Outgoing};

const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
/// Codes of an unreachable destination: network, host, fragmentation needed, prohibited (RFC 792, RFC 1812 5.2.7.1).
const NETWORK: u8 = 0;
const HOST: u8 = 1;
const FRAGMENTATION: u8 = 4;
const PROHIBITED: u8 = 13;

impl Ip {
    pub(crate) fn forwards(&self) -> bool {
        self.interfaces.as_ref().is_some_and(|all| all.forwards)
    }

    /// Packets that were sent on.
    pub(crate) fn forwarded(&self) -> u64 {
        self.interfaces.as_ref().map_or(0, |all| all.forwarded)
    }
}

impl Stack {
    /// Sends a packet on that came in by an interface and is not for this machine. It begins with its header.
    pub(crate) fn forward(&mut self, now: u64, header: &Ipv4, packet: Incoming, from: u32) {
        let headroom = HEADROOM.device + HEADROOM.protocols;
        let whole = Buffer::new(headroom + header.total, headroom).and_then(|mut whole| {
            let pieces = core::iter::once(&packet.first).chain(&packet.more);
            pieces.into_iter().all(|piece| whole.append(piece.bytes())).then_some(whole)
        });
        self.ip.recycle_packet(packet);
        let Some(mut whole) = whole else { return };
        // What is for a link, or for nobody, stays there.
        let is_confined = header.destination.is_link_local()
            || header.destination.is_unspecified()
            || header.destination.is_broadcast()
            || header.destination.octets()[0] == 0;
        if is_confined {
            self.ip.counters.ip.in_address_errors += 1;
            return self.ip.recycle(whole);
        }
        if header.ttl <= 1 {
            return self.refuse_forward(now, header, &whole, TIME_EXCEEDED, 0, 0);
        }
        let Some(interfaces) = &mut self.ip.interfaces else { return };
        let route = match interfaces.route(header.source, header.destination, from, 0) {
            Ok(route) if !route.loopback => route,
            Ok(_) => return self.ip.recycle(whole),
            Err(EINVAL) => return self.ip.recycle(whole),
            Err(error) => {
                self.ip.counters.ip.in_address_errors += 1;
                let code = match error {
                    EACCES => PROHIBITED,
                    EHOSTUNREACH => HOST,
                    _ => NETWORK,
                };
                return self.refuse_forward(now, header, &whole, UNREACHABLE, code, 0);
            }
        };
        if whole.len() > route.mtu && header.dont_fragment {
            return self.refuse_forward(now, header, &whole, UNREACHABLE, FRAGMENTATION, route.mtu as u32);
        }
        interfaces.forwarded += 1;
        let bytes = whole.bytes_mut();
        bytes[8] = header.ttl - 1;
        bytes[10..12].fill(0);
        let sum = checksum(&bytes[..header.header]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        if whole.len() <= route.mtu {
            return self.ip.hand_to_route(now, &route, Outgoing::plain(whole));
        }
        self.ip.forward_in_fragments(now, &route, header, &whole);
        self.ip.recycle(whole);
    }

    fn refuse_forward(&mut self, now: u64, header: &Ipv4, packet: &Buffer, kind: u8, code: u8, extra: u32) {
        self.icmp.refuse(&mut self.ip, now, header, (kind, code, extra), packet.bytes());
    }
}

impl Ip {
    fn forward_in_fragments(&mut self, now: u64, route: &crate::ip::Route, header: &Ipv4, whole: &Buffer) {
        let room = api_netdev::BUFFER_SIZE - HEADROOM.device - HEADROOM.protocols;
        let most = (route.mtu - header.header).min(room - header.header) & !7;
        let Some(payload) = whole.bytes().get(header.header..) else { return };
        self.counters.ip.fragmented += 1;
        let count = payload.len().div_ceil(most);
        for (index, piece) in payload.chunks(most).enumerate() {
            let Some(mut buffer) = self.buffer() else { return };
            // Options are copied to each fragment, those for the first alone among them: no host minds (RFC 791 3.1).
            if !buffer.append(&whole.bytes()[..header.header]) || !buffer.append(piece) {
                return;
            }
            let offset = header.fragment_offset + index * most;
            let more = header.more_fragments || index + 1 < count;
            let total = (header.header + piece.len()) as u16;
            let bytes = buffer.bytes_mut();
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            let field = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
            bytes[6..8].copy_from_slice(&field.to_be_bytes());
            bytes[10..12].fill(0);
            let sum = checksum(&bytes[..header.header]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            self.counters.ip.fragments_created += 1;
            self.hand_to_route(now, route, Outgoing::plain(buffer));
        }
        debug_assert!(wire::IPV4 <= header.header);
    }
}
