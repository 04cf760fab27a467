// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet formats: Ethernet II, ARP (RFC 826), IPv4 (RFC 791), ICMP (RFC 792), UDP (RFC 768), TCP (RFC 9293), and
//! the Internet checksum (RFC 1071). Parsers answer `None` for anything malformed and never panic.

use crate::families::LOOPBACK6;
use core::net::Ipv4Addr;

pub const ETHERNET: usize = 14;
pub const IPV4: usize = 20;
pub const UDP: usize = 8;
pub const TCP: usize = 20;

pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_ARP: u16 = 0x0806;

pub const PROTOCOL_ICMP: u8 = 1;
pub const PROTOCOL_TCP: u8 = 6;
pub const PROTOCOL_UDP: u8 = 17;
pub const PROTOCOL_ICMPV6: u8 = 58;

pub type Mac = [u8; 6];
pub const BROADCAST: Mac = [0xff; 6];

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn address_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from_bits(u32_at(bytes, at)?))
}

fn put16(to: &mut [u8], at: usize, value: u16) {
    to[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put32(to: &mut [u8], at: usize, value: u32) {
    to[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The ones' complement sum of RFC 1071 over pieces of any length, in the machine's byte order until the end.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    total: u64,
    odd: bool,
}

impl Sum {
    pub fn add(&mut self, bytes: &[u8]) -> &mut Sum {
        let mut sum = 0u64;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let (low, high) = word.split_at(4);
            // Two 32-bit halves cannot overflow 64 bits for any packet.
            sum += u64::from(u32::from_ne_bytes([low[0], low[1], low[2], low[3]]));
            sum += u64::from(u32::from_ne_bytes([high[0], high[1], high[2], high[3]]));
        }
        for pair in words.remainder().chunks(2) {
            sum += u64::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        // A piece that begins at an odd offset has its bytes swapped (RFC 1071 2.B).
        let folded = fold(sum);
        self.total += u64::from(if self.odd { folded.swap_bytes() } else { folded });
        self.odd ^= bytes.len() % 2 == 1;
        self
    }

    pub fn add16(&mut self, value: u16) -> &mut Sum {
        self.add(&value.to_be_bytes())
    }

    /// The sum, big-endian value, not complemented: what goes into a header whose checksum a device completes.
    pub fn partial(&self) -> u16 {
        u16::from_be_bytes(fold(self.total).to_ne_bytes())
    }

    /// The checksum; 0xffff or 0 of a whole packet mean it is right.
    pub fn finish(&self) -> u16 {
        !self.partial()
    }

    /// Of the pseudo header of a packet of IPv6 from `::1` to itself (RFC 8200 8.1): of these addresses two bytes are not zero.
    pub fn pseudo6(protocol: u8, length: usize) -> Sum {
        let mut sum = Sum::default();
        sum.add16(1).add16(1).add16(u16::from(protocol)).add16(length as u16);
        sum
    }

    /// Of the pseudo header of TCP and UDP, of IPv4 and from `::1` to itself.
    pub fn pseudo(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: usize) -> Sum {
        if destination == LOOPBACK6 {
            return Sum::pseudo6(protocol, length);
        }
        let mut sum = Sum::default();
        sum.add(&source.octets()).add(&destination.octets());
        sum.add16(u16::from(protocol)).add16(length as u16);
        sum
    }
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of one piece.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().add(bytes).finish()
}

pub struct Ethernet {
    pub destination: Mac,
    pub source: Mac,
    pub ethertype: u16,
}

impl Ethernet {
    pub fn parse(bytes: &[u8]) -> Option<Ethernet> {
        Some(Ethernet {
            destination: bytes.get(..6)?.try_into().ok()?,
            source: bytes.get(6..12)?.try_into().ok()?,
            ethertype: u16_at(bytes, 12)?,
        })
    }

    /// Writes [`ETHERNET`] bytes.
    pub fn put(&self, to: &mut [u8]) {
        to[..6].copy_from_slice(&self.destination);
        to[6..12].copy_from_slice(&self.source);
        put16(to, 12, self.ethertype);
    }
}

/// ARP for IPv4 over Ethernet.
pub struct Arp {
    /// 1 request, 2 reply.
    pub operation: u16,
    pub sender_mac: Mac,
    pub sender: Ipv4Addr,
    pub target_mac: Mac,
    pub target: Ipv4Addr,
}

impl Arp {
    pub const LENGTH: usize = 28;

    pub fn parse(bytes: &[u8]) -> Option<Arp> {
        if bytes.get(..6)? != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        Some(Arp {
            operation: u16_at(bytes, 6)?,
            sender_mac: bytes.get(8..14)?.try_into().ok()?,
            sender: address_at(bytes, 14)?,
            target_mac: bytes.get(18..24)?.try_into().ok()?,
            target: address_at(bytes, 24)?,
        })
    }

    pub fn put(&self, to: &mut [u8]) {
        to[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        put16(to, 6, self.operation);
        to[8..14].copy_from_slice(&self.sender_mac);
        to[14..18].copy_from_slice(&self.sender.octets());
        to[18..24].copy_from_slice(&self.target_mac);
        to[24..28].copy_from_slice(&self.target.octets());
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Ipv4 {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub ttl: u8,
    pub tos: u8,
    pub id: u16,
    pub dont_fragment: bool,
    pub more_fragments: bool,
    /// In bytes, a multiple of 8.
    pub fragment_offset: usize,
    /// Header length with options.
    pub header: usize,
    /// Header and payload.
    pub total: usize,
}

impl Ipv4 {
    /// Of a packet whose first bytes are given; the total length is not compared with what is there.
    pub fn parse(bytes: &[u8]) -> Option<Ipv4> {
        let first = *bytes.first()?;
        let header = usize::from(first & 15) * 4;
        if first >> 4 != 4 || header < IPV4 || bytes.len() < header {
            return None;
        }
        let total = usize::from(u16_at(bytes, 2)?);
        if total < header || !matches!(checksum(&bytes[..header]), 0 | 0xffff) {
            return None;
        }
        let fragment = u16_at(bytes, 6)?;
        Some(Ipv4 {
            source: address_at(bytes, 12)?,
            destination: address_at(bytes, 16)?,
            protocol: bytes[9],
            ttl: bytes[8],
            tos: bytes[1],
            id: u16_at(bytes, 4)?,
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: usize::from(fragment & 0x1fff) * 8,
            header,
            total,
        })
    }

    /// Writes [`IPV4`] bytes, checksum included.
    pub fn put(&self, to: &mut [u8]) {
        to[0] = 0x45;
        to[1] = self.tos;
        put16(to, 2, self.total as u16);
        put16(to, 4, self.id);
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        put16(to, 6, flags | (self.fragment_offset / 8) as u16);
        to[8] = self.ttl;
        to[9] = self.protocol;
        put16(to, 10, 0);
        to[12..16].copy_from_slice(&self.source.octets());
        to[16..20].copy_from_slice(&self.destination.octets());
        let sum = checksum(&to[..IPV4]);
        put16(to, 10, sum);
    }
}

pub struct Udp {
    pub source: u16,
    pub destination: u16,
    pub length: usize,
    /// 0: the sender computed none.
    pub checksum: u16,
}

impl Udp {
    pub fn parse(bytes: &[u8]) -> Option<Udp> {
        let length = usize::from(u16_at(bytes, 4)?);
        (length >= UDP).then_some(Udp {
            source: u16_at(bytes, 0)?,
            destination: u16_at(bytes, 2)?,
            length,
            checksum: u16_at(bytes, 6)?,
        })
    }

    pub fn put(&self, to: &mut [u8]) {
        put16(to, 0, self.source);
        put16(to, 2, self.destination);
        put16(to, 4, self.length as u16);
        put16(to, 6, self.checksum);
    }
}

/// Flags of a TCP segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    pub const FIN: Flags = Flags(1);
    pub const SYN: Flags = Flags(2);
    pub const RST: Flags = Flags(4);
    pub const PSH: Flags = Flags(8);
    pub const ACK: Flags = Flags(16);
    pub const URG: Flags = Flags(32);

    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl core::fmt::Debug for Flags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (bit, letter) in "FSRPAU".chars().enumerate() {
            if self.0 >> bit & 1 == 1 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// Most SACK blocks a segment can carry (without timestamps; RFC 2018 3).
pub const SACK_MAX: usize = 4;

/// Options of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    /// Value and echo reply (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// Left and right edges.
    pub sack: [(u32, u32); SACK_MAX],
    pub sack_count: usize,
}

impl Options {
    /// Unknown options are skipped; a malformed one ends the list.
    fn parse(mut bytes: &[u8]) -> Options {
        let mut options = Options::default();
        while let Some(&kind) = bytes.first() {
            match kind {
                0 => break,
                1 => {
                    bytes = &bytes[1..];
                    continue;
                }
                _ => {}
            }
            let Some(length) = bytes.get(1).map(|n| usize::from(*n)).filter(|n| *n >= 2) else { break };
            let Some(body) = bytes.get(2..length) else { break };
            match (kind, body.len()) {
                (2, 2) => options.mss = u16_at(body, 0),
                (3, 1) => options.window_scale = Some(body[0].min(14)),
                (4, 0) => options.sack_permitted = true,
                (5, n) if n % 8 == 0 => {
                    for block in body.chunks_exact(8).take(SACK_MAX) {
                        if let (Some(left), Some(right)) = (u32_at(block, 0), u32_at(block, 4)) {
                            options.sack[options.sack_count] = (left, right);
                            options.sack_count += 1;
                        }
                    }
                }
                (8, 8) => options.timestamps = u32_at(body, 0).zip(u32_at(body, 4)),
                _ => {}
            }
            bytes = &bytes[length..];
        }
        options
    }

    /// Bytes in a header, a multiple of 4.
    pub fn length(&self) -> usize {
        let mut n = 0;
        n += if self.mss.is_some() { 4 } else { 0 };
        n += if self.window_scale.is_some() { 4 } else { 0 };
        n += if self.timestamps.is_some() { 12 } else { 0 };
        // SACK-permitted takes the place of the timestamps' padding when there are any.
        n += if self.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
        n + if self.sack_count > 0 { 4 + 8 * self.sack_count } else { 0 }
    }

    fn put(&self, to: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            to[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            put(&[2, 4]);
            put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, _) => put(if self.timestamps.is_some() { &[4, 2] } else { &[1, 1, 4, 2] }),
            (false, true) => put(&[1, 1]),
            (false, false) => {}
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[8, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            put(&[1, 3, 3, scale]);
        }
        if self.sack_count > 0 {
            put(&[1, 1, 5, (2 + 8 * self.sack_count) as u8]);
            for (left, right) in &self.sack[..self.sack_count] {
                put(&left.to_be_bytes());
                put(&right.to_be_bytes());
            }
        }
    }
}

/// The header of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    pub source: u16,
    pub destination: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub window: u16,
    pub urgent: u16,
    pub options: Options,
}

impl Tcp {
    /// The header and its length.
    pub fn parse(bytes: &[u8]) -> Option<(Tcp, usize)> {
        let length = usize::from(*bytes.get(12)? >> 4) * 4;
        if length < TCP || bytes.len() < length {
            return None;
        }
        let header = Tcp {
            source: u16_at(bytes, 0)?,
            destination: u16_at(bytes, 2)?,
            seq: u32_at(bytes, 4)?,
            ack: u32_at(bytes, 8)?,
            flags: Flags(bytes[13] & 0x3f),
            window: u16_at(bytes, 14)?,
            urgent: u16_at(bytes, 18)?,
            options: Options::parse(&bytes[TCP..length]),
        };
        Some((header, length))
    }

    pub fn length(&self) -> usize {
        TCP + self.options.length()
    }

    /// Writes [`Tcp::length`] bytes with `checksum` as it is.
    pub fn put(&self, to: &mut [u8], checksum: u16) {
        put16(to, 0, self.source);
        put16(to, 2, self.destination);
        put32(to, 4, self.seq);
        put32(to, 8, self.ack);
        to[12] = (self.length() / 4 * 16) as u8;
        to[13] = self.flags.0;
        put16(to, 14, self.window);
        put16(to, 16, checksum);
        put16(to, 18, self.urgent);
        self.options.put(&mut to[TCP..]);
    }
}

/// Where the checksum field of a transport header lies.
pub const TCP_CHECKSUM: usize = 16;
pub const UDP_CHECKSUM: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_rfc_1071_3_comes_out() {
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.partial(), 0xddf2);
    }

    #[test]
    fn a_sum_does_not_depend_on_how_the_bytes_are_cut() {
        let bytes: std::vec::Vec<u8> = (0..201u32).map(|i| (i * 37 + 11) as u8).collect();
        let whole = checksum(&bytes);
        for cut in 0..bytes.len() {
            let mut sum = Sum::default();
            sum.add(&bytes[..cut]).add(&bytes[cut..]);
            assert_eq!(sum.finish(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_tcp_header_with_every_option_survives_the_round_trip() {
        for timestamps in [None, Some((7, 9))] {
            for sack_permitted in [false, true] {
                let mut options = Options { mss: Some(1460), window_scale: Some(7), ..Options::default() };
                options.timestamps = timestamps;
                options.sack_permitted = sack_permitted;
                options.sack[0] = (1, 2);
                options.sack_count = 1;
                let header = Tcp {
                    source: 1,
                    destination: 2,
                    seq: 3,
                    ack: 4,
                    flags: Flags::SYN.with(Flags::ACK),
                    window: 5,
                    urgent: 6,
                    options,
                };
                let mut bytes = [0; 60];
                header.put(&mut bytes, 0);
                let (back, length) = Tcp::parse(&bytes).unwrap();
                assert_eq!(length, header.length());
                assert_eq!(back.options, options);
                assert_eq!((back.seq, back.ack, back.window), (3, 4, 5));
            }
        }
    }

    #[test]
    fn malformed_options_end_the_list_without_harm() {
        for options in [[2, 0, 0, 0], [2, 40, 1, 1], [8, 10, 0, 0], [5, 3, 0, 1], [255, 1, 1, 1]] {
            assert_eq!(Options::parse(&options), Options::default());
        }
    }
}
