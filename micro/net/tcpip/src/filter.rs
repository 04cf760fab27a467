// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets as the filters of sockets see them (`api_socket::filter`): in one piece, with the headers in front of them.
//!
//! Only packets for sockets that have a filter are put together so; those of others are looked at nowhere here.

use crate::families::{is_group, is_v6};
use crate::ip::Ip;
use crate::wire::{self, Ipv4};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Incoming;
use api_socket::filter::{Filter, environment};
use classic_bpf::packet::{Interface, Packet};

const ETHERTYPE_IPV6: u16 = 0x86dd;
const IPV6: usize = 40;
/// ARPHRD_LOOPBACK and ARPHRD_ETHER.
const LOOPBACK_HARDWARE: u32 = 772;
const ETHERNET_HARDWARE: u32 = 1;
const PACKET_HOST: u8 = 0;
const PACKET_BROADCAST: u8 = 1;
const PACKET_MULTICAST: u8 = 2;
const ICMP: usize = 8;

/// What filters are told of a packet beside its bytes.
struct Facts {
    protocol: u16,
    kind: u8,
    interface: Interface,
}

fn facts(ip: &Ip, header: &Ipv4) -> Facts {
    let is_inside = ip.is_own(header.source);
    let kind = match header.destination {
        _ if is_inside => PACKET_HOST,
        to if is_group(to) => PACKET_MULTICAST,
        to if ip.is_broadcast(to) => PACKET_BROADCAST,
        _ => PACKET_HOST,
    };
    let (index, hardware) = if is_inside {
        (crate::multicast::LOOPBACK, LOOPBACK_HARDWARE)
    } else {
        (crate::multicast::ETHERNET, ETHERNET_HARDWARE)
    };
    Facts {
        protocol: if is_v6(header.destination) { ETHERTYPE_IPV6 } else { wire::ETHERTYPE_IPV4 },
        kind,
        interface: Interface { index: index as u32, hardware },
    }
}

/// The IP header of a packet of `length` bytes behind it, as it would be on the wire, and how long it is.
pub(crate) fn network_header(ip: &Ip, header: &Ipv4, length: usize) -> ([u8; IPV6], usize) {
    let mut bytes = [0; IPV6];
    if is_v6(header.destination) {
        // RFC 8200 3.
        bytes[0] = 6 << 4 | header.tos >> 4;
        bytes[1] = header.tos << 4;
        bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        (bytes[6], bytes[7]) = (header.protocol, header.ttl);
        let octets = |number| ip.address_of(number).map_or([0; 16], |of| of.address.octets());
        bytes[8..24].copy_from_slice(&octets(header.source));
        bytes[24..].copy_from_slice(&octets(header.destination));
        return (bytes, IPV6);
    }
    Ipv4 { header: wire::IPV4, total: wire::IPV4 + length, ..*header }.put(&mut bytes[..wire::IPV4]);
    (bytes, wire::IPV4)
}

/// Where the payload begins behind the transport's header (Linux' skb_get_poff).
fn payload(header: &Ipv4, transport: &[u8]) -> usize {
    match header.protocol {
        wire::PROTOCOL_TCP => transport.get(12).map_or(0, |b| usize::from(b >> 4) * 4).max(wire::TCP),
        wire::PROTOCOL_UDP => wire::UDP,
        wire::PROTOCOL_ICMP | wire::PROTOCOL_ICMPV6 => ICMP,
        _ => 0,
    }
}

/// The link's header that Linux puts in front of what goes through loopback.
fn loopback_link(facts: &Facts) -> [u8; wire::ETHERNET] {
    let mut link = [0; wire::ETHERNET];
    link[12..].copy_from_slice(&facts.protocol.to_be_bytes());
    link
}

fn ask<R>(ip: &Ip, header: &Ipv4, data: &[u8], offset: usize, ask: impl FnOnce(&Packet<'_>) -> R) -> R {
    let facts = facts(ip, header);
    let link = loopback_link(&facts);
    // Of what a device received, the link's header is gone.
    let link = (facts.interface.hardware == LOOPBACK_HARDWARE).then_some(&link[..]);
    let (network, length) = network_header(ip, header, data.len());
    ask(&Packet {
        data: &data[offset..],
        link_length: 0,
        network: &network[..length],
        link,
        protocol: facts.protocol,
        kind: facts.kind,
        interface: Some(facts.interface),
        payload: payload(header, data).saturating_sub(offset) as u32,
        environment: environment(),
    })
}

/// Bytes of a transport's packet that its socket gets, `least` at least; `None`: none, which is also where there is no memory to
/// look at it. `front` is what was taken off the packet's front already.
pub fn keeps(
    filter: &Filter,
    ip: &Ip,
    header: &Ipv4,
    front: &[u8],
    packet: &Incoming,
    least: usize,
) -> Option<usize> {
    let whole = flat(front, packet)?;
    ask(ip, header, &whole, 0, |packet| filter.keeps(packet)).map(|kept| kept.max(least.min(whole.len())))
}

/// What the program of a group of sockets answers, which sees what is behind the transport's header.
pub fn answer(filter: &Filter, ip: &Ip, header: &Ipv4, front: &[u8], packet: &Incoming) -> Option<u32> {
    let whole = flat(front, packet)?;
    let offset = payload(header, &whole).min(whole.len());
    Some(ask(ip, header, &whole, offset, |packet| filter.answer(packet)))
}

/// Bytes of a raw packet, which begins with its IP header unless that is taken off (`is_bare`).
pub fn keeps_raw(filter: &Filter, ip: &Ip, header: &Ipv4, bytes: &[u8], is_bare: bool) -> Option<usize> {
    if is_bare {
        return ask(ip, header, bytes, 0, |packet| filter.keeps(packet));
    }
    let facts = facts(ip, header);
    let link = loopback_link(&facts);
    let transport = bytes.get(wire::IPV4..)?;
    filter.keeps(&Packet {
        data: bytes,
        link_length: 0,
        network: &[],
        link: (facts.interface.hardware == LOOPBACK_HARDWARE).then_some(&link[..]),
        protocol: facts.protocol,
        kind: facts.kind,
        interface: Some(facts.interface),
        payload: (wire::IPV4 + payload(header, transport)) as u32,
        environment: environment(),
    })
}

fn flat(front: &[u8], packet: &Incoming) -> Option<Vec<u8>> {
    let buffers = || core::iter::once(&packet.first).chain(&packet.more);
    let mut whole = Vec::new();
    whole.reserve_exact_fallibly(front.len() + buffers().map(|b| b.len()).sum::<usize>()).ok()?;
    whole.extend_from_slice(front);
    buffers().for_each(|buffer| whole.extend_from_slice(buffer.bytes()));
    Some(whole)
}
