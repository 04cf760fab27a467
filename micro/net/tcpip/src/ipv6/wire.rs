// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats of IPv6 (RFC 8200): the header, extension headers, and the checksum of ICMPv6 (RFC 4443 2.3).

use crate::wire::Sum;
use core::net::Ipv6Addr;

/// Bytes of the header.
pub const IPV6: usize = 40;
pub const FRAGMENT: usize = 8;
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// The smallest MTU of a link (RFC 8200 5).
pub const MIN_MTU: usize = 1280;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
pub const FRAGMENTATION: u8 = 44;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;
/// Extension headers of one packet that are looked at; no sender needs as many (RFC 8504 5.3 allows a limit).
const MAX_HEADERS: usize = 8;
const PAD1: u8 = 0;
const PADN: u8 = 1;
/// RFC 2711: routers look at the packet.
const ROUTER_ALERT: u8 = 5;
/// Where the next header and the payload length are in the header.
const NEXT_HEADER_AT: usize = 6;
pub const LENGTH_AT: usize = 4;

/// Unicast of one link, or a group of one link or one interface (RFC 4291 2.5.6 and 2.7).
pub fn is_link_local(address: &Ipv6Addr) -> bool {
    address.is_unicast_link_local() || matches!(address.segments()[0] & 0xff0f, 0xff01 | 0xff02)
}

/// The group in which owners of the address are asked for it (RFC 4291 2.7.1).
pub fn solicited_node(address: &Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | address.to_bits() & 0xff_ffff)
}

/// The interface's part of an address that is made of its MAC (RFC 4291, appendix A).
pub fn eui64(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub next: u8,
    pub hops: u8,
    pub class: u8,
    pub payload: usize,
}

impl Header {
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; IPV6] = bytes.first_chunk()?;
        if bytes[0] >> 4 != 6 {
            return None;
        }
        Some(Header {
            source: address_at(bytes, 8)?,
            destination: address_at(bytes, 24)?,
            next: bytes[6],
            hops: bytes[7],
            class: bytes[0] << 4 | bytes[1] >> 4,
            payload: usize::from(u16::from_be_bytes([bytes[4], bytes[5]])),
        })
    }

    pub fn bytes(&self) -> [u8; IPV6] {
        let mut bytes = [0; IPV6];
        bytes[0] = 6 << 4 | self.class >> 4;
        bytes[1] = self.class << 4;
        bytes[4..6].copy_from_slice(&(self.payload as u16).to_be_bytes());
        (bytes[6], bytes[7]) = (self.next, self.hops);
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..].copy_from_slice(&self.destination.octets());
        bytes
    }
}

pub fn address_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    bytes.get(at..)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

/// The sum of the pseudo header (RFC 8200 8.1).
pub fn pseudo(source: &Ipv6Addr, destination: &Ipv6Addr, protocol: u8, length: usize) -> Sum {
    let mut sum = Sum::default();
    sum.add(&source.octets()).add(&destination.octets()).add(&(length as u32).to_be_bytes());
    sum.add16(u16::from(protocol));
    sum
}

/// The fragment header (RFC 8200 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub next: u8,
    /// In bytes, a multiple of 8.
    pub offset: usize,
    pub more: bool,
    pub id: u32,
}

impl Fragment {
    pub fn bytes(&self) -> [u8; FRAGMENT] {
        let [a, b] = (self.offset as u16 | u16::from(self.more)).to_be_bytes();
        let [c, d, e, f] = self.id.to_be_bytes();
        [self.next, 0, a, b, c, d, e, f]
    }
}

/// What is behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A transport's header, at this offset; and where it was named.
    Transport { protocol: u8, at: usize, named_at: usize },
    /// A part of a packet, which begins at the offset.
    Part { fragment: Fragment, at: usize },
}

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// In silence.
    Dropped,
    /// With a message of ICMPv6 (RFC 4443 3.4): its code, and the offset of what is wrong. With `always` also for a group's packet.
    Problem { code: u8, at: usize, always: bool },
}

/// Passes the extension headers of a packet of IPv6 that begins with its header.
pub fn walk(packet: &[u8]) -> Result<Found, Refused> {
    let next = *packet.get(NEXT_HEADER_AT).ok_or(Refused::Dropped)?;
    walk_from(packet, next, NEXT_HEADER_AT, IPV6)
}

/// The same from the header `next` on, which begins `at` and was named at `named_at`.
pub fn walk_from(packet: &[u8], mut next: u8, mut named_at: usize, mut at: usize) -> Result<Found, Refused> {
    for count in 0..MAX_HEADERS {
        match next {
            // It comes first or not at all (RFC 8200 4.3).
            HOP_BY_HOP if count > 0 || named_at != NEXT_HEADER_AT => {
                return Err(Refused::Problem { code: 1, at: named_at, always: false });
            }
            HOP_BY_HOP | DESTINATION | ROUTING => {
                let [following, length] =
                    *packet.get(at..).and_then(<[u8]>::first_chunk).ok_or(Refused::Dropped)?;
                let length = (usize::from(length) + 1) * 8;
                let header = packet.get(at..at + length).ok_or(Refused::Dropped)?;
                match next {
                    // No type of it is known here: with nothing left of the way it does not matter (RFC 8200 4.4).
                    ROUTING if header[3] != 0 => {
                        return Err(Refused::Problem { code: 0, at: at + 2, always: false });
                    }
                    ROUTING => {}
                    _ => check_options(header, at)?,
                }
                (next, named_at, at) = (following, at, at + length);
            }
            FRAGMENTATION => {
                let header: &[u8; FRAGMENT] =
                    packet.get(at..).and_then(<[u8]>::first_chunk).ok_or(Refused::Dropped)?;
                let field = u16::from_be_bytes([header[2], header[3]]);
                let fragment = Fragment {
                    next: header[0],
                    offset: usize::from(field & !7),
                    more: field & 1 != 0,
                    id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                };
                // One that is whole all the same is no part of anything (RFC 6946).
                if fragment.offset > 0 || fragment.more {
                    return Ok(Found::Part { fragment, at: at + FRAGMENT });
                }
                (next, named_at, at) = (fragment.next, at, at + FRAGMENT);
            }
            NO_NEXT => return Err(Refused::Dropped),
            protocol => return Ok(Found::Transport { protocol, at, named_at }),
        }
    }
    Err(Refused::Dropped)
}

/// Options that are not known say themselves what becomes of the packet (RFC 8200 4.2).
fn check_options(header: &[u8], start: usize) -> Result<(), Refused> {
    let mut at = 2;
    while let Some(&kind) = header.get(at) {
        if kind == PAD1 {
            at += 1;
            continue;
        }
        let length = usize::from(*header.get(at + 1).ok_or(Refused::Dropped)?);
        if header.len() < at + 2 + length {
            return Err(Refused::Dropped);
        }
        match (kind, kind >> 6) {
            (PADN | ROUTER_ALERT, _) | (_, 0) => {}
            (_, 1) => return Err(Refused::Dropped),
            (_, action) => return Err(Refused::Problem { code: 2, at: start + at, always: action == 2 }),
        }
        at += 2 + length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn packet(next: u8, behind: &[u8]) -> Vec<u8> {
        let (source, destination) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let header = Header { source, destination, next, hops: 64, class: 0xa5, payload: behind.len() };
        assert_eq!(Header::parse(&header.bytes()), Some(header));
        [&header.bytes()[..], behind].concat()
    }

    #[test]
    fn the_addresses_that_are_made_of_others_are_those_of_rfc_4291() {
        assert_eq!(
            solicited_node(&"4037::1:800:200e:8c6c".parse().unwrap()),
            "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap()
        );
        assert_eq!(eui64([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]), 0x3656_78ff_fe9a_bcde);
        let local = |text: &str| is_link_local(&text.parse().unwrap());
        assert!(
            local("fe80::1")
                && local("ff02::1")
                && local("ff01::1")
                && !local("ff05::2")
                && !local("2001:db8::1")
        );
    }

    #[test]
    fn extension_headers_are_passed_in_their_order() {
        // Hop by hop with a router alert, destination options with padding, routing with nothing left, an atomic fragment.
        let headers = [
            [60, 0, 5, 2, 0, 0, 1, 0],
            [43, 0, 1, 4, 0, 0, 0, 0],
            [44, 0, 9, 0, 0, 0, 0, 0],
            [17, 0, 0, 0, 1, 2, 3, 4],
        ];
        let found = walk(&packet(0, headers.as_flattened()));
        assert_eq!(found, Ok(Found::Transport { protocol: 17, at: 72, named_at: 64 }));
        let part = Fragment { next: 6, offset: 1232, more: true, id: 0x0102_0304 };
        assert_eq!(walk(&packet(44, &part.bytes())), Ok(Found::Part { fragment: part, at: 48 }));
        assert_eq!(walk(&packet(6, &[])), Ok(Found::Transport { protocol: 6, at: 40, named_at: 6 }));
    }

    #[test]
    fn what_is_wrong_with_headers_is_told_as_they_ask_for_it() {
        let problem = |code, at, always| Err(Refused::Problem { code, at, always });
        assert_eq!(walk(&packet(59, &[])), Err(Refused::Dropped), "RFC 8200 4.7");
        // Hop by hop behind another one.
        assert_eq!(
            walk(&packet(60, &[0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0])),
            problem(1, 40, false)
        );
        // Routing with a segment left.
        assert_eq!(walk(&packet(43, &[17, 0, 0, 1, 0, 0, 0, 0])), problem(0, 42, false));
        // Unknown options of all four kinds (RFC 8200 4.2).
        let option = |kind: u8| walk(&packet(60, &[17, 0, kind, 4, 0, 0, 0, 0]));
        assert!(option(0x1e).is_ok());
        assert_eq!(option(0x5e), Err(Refused::Dropped));
        assert_eq!(option(0x9e), problem(2, 42, true));
        assert_eq!(option(0xde), problem(2, 42, false));
        // Cut short, longer than the packet, and more than anybody sends.
        assert_eq!(walk(&packet(60, &[17])), Err(Refused::Dropped));
        assert_eq!(walk(&packet(60, &[17, 9, 0, 0, 0, 0, 0, 0])), Err(Refused::Dropped));
        assert_eq!(walk(&packet(60, &[17, 0, 1, 9, 0, 0, 0, 0])), Err(Refused::Dropped));
        assert_eq!(walk(&packet(60, [[60, 0, 1, 4, 0, 0, 0, 0]; 9].as_flattened())), Err(Refused::Dropped));
    }
}
