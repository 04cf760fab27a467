// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of neighbour discovery (RFC 4861 4): read with the checks that it demands, and made.

use super::wire::address_at;
use crate::wire::Mac;
use core::net::Ipv6Addr;

pub const ROUTER_SOLICITATION: u8 = 133;
pub const ROUTER_ADVERTISEMENT: u8 = 134;
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
pub const REDIRECT: u8 = 137;
/// What no router has sent on.
pub const HOPS: u8 = 255;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
/// Prefixes of one advertisement that are heeded.
pub const MAX_PREFIXES: usize = 16;

/// What came with a message.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hops: u8,
}

/// Options, each with its type; an error for one without a length, which spoils the message (RFC 4861 4.6).
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u8, &'a [u8]), ()>;

    fn next(&mut self) -> Option<Self::Item> {
        let &[kind, length, ..] = self.0 else {
            let is_over = self.0.is_empty();
            self.0 = &[];
            return if is_over { None } else { Some(Err(())) };
        };
        match self.0.split_at_checked(usize::from(length) * 8) {
            Some((option, rest)) if length > 0 => {
                self.0 = rest;
                Some(Ok((kind, option)))
            }
            _ => {
                self.0 = &[];
                Some(Err(()))
            }
        }
    }
}

fn link_address(option: &[u8]) -> Option<Mac> {
    let mac: Mac = *option.get(2..)?.first_chunk()?;
    // A group is nobody's address.
    (mac[0] & 1 == 0).then_some(mac)
}

/// The link address in an option of the kind, where all options are sound.
fn link_option(options: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut found = None;
    for option in Options(options) {
        let (kind, option) = option.ok()?;
        if kind == wanted {
            found = link_address(option);
        }
    }
    Some(found)
}

fn is_sound(message: &[u8], envelope: &Envelope, least: usize) -> bool {
    message.len() >= least && message[1] == 0 && envelope.hops == HOPS
}

/// Who has the address?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    pub target: Ipv6Addr,
    pub link: Option<Mac>,
}

impl Solicitation {
    /// RFC 4861 7.1.1.
    pub fn parse(message: &[u8], envelope: &Envelope) -> Option<Solicitation> {
        let target = address_at(message, 8).filter(|target| !target.is_multicast())?;
        let link = link_option(message.get(24..)?, SOURCE_LINK)?;
        let is_from_nobody = envelope.source.is_unspecified();
        let is_asked_in_group = envelope.destination == super::wire::solicited_node(&target);
        let is_fit = !is_from_nobody || is_asked_in_group && link.is_none();
        (is_sound(message, envelope, 24) && is_fit).then_some(Solicitation { target, link })
    }

    pub fn bytes(&self) -> Message {
        let mut message = Message::new(NEIGHBOUR_SOLICITATION, [0; 4]);
        message.put(&self.target.octets());
        message.link(SOURCE_LINK, self.link);
        message
    }
}

/// I have the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    pub target: Ipv6Addr,
    pub link: Option<Mac>,
    pub is_router: bool,
    pub is_solicited: bool,
    pub overrides: bool,
}

impl Advertisement {
    /// RFC 4861 7.1.2.
    pub fn parse(message: &[u8], envelope: &Envelope) -> Option<Advertisement> {
        let target = address_at(message, 8).filter(|target| !target.is_multicast())?;
        let link = link_option(message.get(24..)?, TARGET_LINK)?;
        let flags = message[4];
        let is_solicited = flags & 0x40 != 0;
        let is_fit = !envelope.destination.is_multicast() || !is_solicited;
        (is_sound(message, envelope, 24) && is_fit).then_some(Advertisement {
            target,
            link,
            is_router: flags & 0x80 != 0,
            is_solicited,
            overrides: flags & 0x20 != 0,
        })
    }

    pub fn bytes(&self) -> Message {
        let flags =
            u8::from(self.is_router) << 7 | u8::from(self.is_solicited) << 6 | u8::from(self.overrides) << 5;
        let mut message = Message::new(NEIGHBOUR_ADVERTISEMENT, [flags, 0, 0, 0]);
        message.put(&self.target.octets());
        message.link(TARGET_LINK, self.link);
        message
    }
}

/// A prefix that a router advertises (RFC 4861 4.6.2), times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    pub prefix: Ipv6Addr,
    pub length: u8,
    pub is_on_link: bool,
    /// Addresses are made of it.
    pub is_autonomous: bool,
    pub valid: u32,
    pub preferred: u32,
}

impl PrefixInformation {
    fn parse(option: &[u8]) -> Option<PrefixInformation> {
        let option: &[u8; 32] = option.try_into().ok()?;
        let word =
            |at: usize| u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]]);
        Some(PrefixInformation {
            prefix: address_at(option, 16)?,
            length: option[2],
            is_on_link: option[3] & 0x80 != 0,
            is_autonomous: option[3] & 0x40 != 0,
            valid: word(4),
            preferred: word(8),
        })
    }
}

/// What a router says of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// In seconds; 0: it is no default router.
    pub lifetime: u16,
    pub link: Option<Mac>,
    pub mtu: Option<u32>,
    pub prefixes: [Option<PrefixInformation>; MAX_PREFIXES],
}

impl RouterAdvertisement {
    /// RFC 4861 6.1.2.
    pub fn parse(message: &[u8], envelope: &Envelope) -> Option<RouterAdvertisement> {
        let options = message.get(16..)?;
        if !is_sound(message, envelope, 16) || !envelope.source.is_unicast_link_local() {
            return None;
        }
        let lifetime = u16::from_be_bytes([message[6], message[7]]);
        let mut out = RouterAdvertisement { lifetime, link: None, mtu: None, prefixes: [None; MAX_PREFIXES] };
        let mut count = 0;
        for option in Options(options) {
            let (kind, option) = option.ok()?;
            match kind {
                SOURCE_LINK => out.link = link_address(option),
                MTU if option.len() == 8 => {
                    out.mtu = Some(u32::from_be_bytes([option[4], option[5], option[6], option[7]]));
                }
                PREFIX if count < MAX_PREFIXES => {
                    out.prefixes[count] = PrefixInformation::parse(option);
                    count += usize::from(out.prefixes[count].is_some());
                }
                _ => {}
            }
        }
        Some(out)
    }
}

/// Whoever is a router should say so.
pub fn router_solicitation(link: Option<Mac>) -> Message {
    let mut message = Message::new(ROUTER_SOLICITATION, [0; 4]);
    message.link(SOURCE_LINK, link);
    message
}

/// A message of ICMPv6 under construction, whose checksum is 0; the longest one here has 32 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    bytes: [u8; 32],
    length: usize,
}

impl Message {
    fn new(kind: u8, word: [u8; 4]) -> Message {
        let mut message = Message { bytes: [0; 32], length: 8 };
        message.bytes[0] = kind;
        message.bytes[4..8].copy_from_slice(&word);
        message
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn link(&mut self, kind: u8, link: Option<Mac>) {
        if let Some([a, b, c, d, e, f]) = link {
            self.put(&[kind, 1, a, b, c, d, e, f]);
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    fn from(source: &str, destination: &str) -> Envelope {
        Envelope { source: source.parse().unwrap(), destination: destination.parse().unwrap(), hops: HOPS }
    }

    #[test]
    fn solicitations_are_taken_by_the_rules_of_rfc_4861_7_1_1() {
        let target = "fe80::2".parse().unwrap();
        let asked = Solicitation { target, link: Some(MAC) };
        let (near, group) = (from("fe80::1", "fe80::2"), from("::", "ff02::1:ff00:2"));
        assert_eq!(Solicitation::parse(asked.bytes().bytes(), &near), Some(asked));
        assert_eq!(Solicitation::parse(asked.bytes().bytes(), &Envelope { hops: 254, ..near }), None);
        assert_eq!(Solicitation::parse(&asked.bytes().bytes()[..23], &near), None);
        // From nobody: to the group alone, and without an address of the link.
        assert_eq!(Solicitation::parse(asked.bytes().bytes(), &group), None);
        let probe = Solicitation { link: None, ..asked };
        assert_eq!(Solicitation::parse(probe.bytes().bytes(), &group), Some(probe));
        assert_eq!(Solicitation::parse(probe.bytes().bytes(), &from("::", "fe80::2")), None);
        let mut bytes = Vec::from(asked.bytes().bytes());
        bytes[1] = 1;
        assert_eq!(Solicitation::parse(&bytes, &near), None, "another code");
        (bytes[1], bytes[25]) = (0, 0);
        assert_eq!(Solicitation::parse(&bytes, &near), None, "an option without a length");
        bytes[25] = 2;
        assert_eq!(Solicitation::parse(&bytes, &near), None, "one that is longer than the message");
        let many = Solicitation { target: "ff02::1".parse().unwrap(), link: None };
        assert_eq!(Solicitation::parse(many.bytes().bytes(), &near), None);
    }

    #[test]
    fn advertisements_are_taken_by_the_rules_of_rfc_4861_7_1_2() {
        let target = "fe80::2".parse().unwrap();
        let said =
            Advertisement { target, link: Some(MAC), is_router: true, is_solicited: true, overrides: true };
        assert_eq!(Advertisement::parse(said.bytes().bytes(), &from("fe80::2", "fe80::1")), Some(said));
        assert_eq!(
            Advertisement::parse(said.bytes().bytes(), &from("fe80::2", "ff02::1")),
            None,
            "solicited, and to all"
        );
        let unasked = Advertisement { is_solicited: false, ..said };
        assert_eq!(Advertisement::parse(unasked.bytes().bytes(), &from("fe80::2", "ff02::1")), Some(unasked));
        let group = Advertisement { link: Some([1, 0, 0, 0, 0, 9]), ..said };
        let read = Advertisement::parse(group.bytes().bytes(), &from("fe80::2", "fe80::1")).unwrap();
        assert_eq!(read.link, None, "a group has no say");
    }

    #[test]
    fn router_advertisements_are_taken_by_the_rules_of_rfc_4861_6_1_2() {
        let mut bytes = Vec::from([134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[1, 1, 2, 0, 0, 0, 0, 9, 5, 1, 0, 0, 0, 0, 5, 0]);
        let mut prefix = [0; 32];
        (prefix[0], prefix[1], prefix[2], prefix[3]) = (3, 4, 64, 0xc0);
        prefix[7] = 10;
        prefix[11] = 5;
        prefix[16..20].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        bytes.extend_from_slice(&prefix);
        let near = from("fe80::1", "ff02::1");
        let read = RouterAdvertisement::parse(&bytes, &near).unwrap();
        assert_eq!((read.lifetime, read.link, read.mtu), (0x0708, Some(MAC), Some(1280)));
        let wanted = PrefixInformation {
            prefix: "2001:db8::".parse().unwrap(),
            length: 64,
            is_on_link: true,
            is_autonomous: true,
            valid: 10,
            preferred: 5,
        };
        assert_eq!((read.prefixes[0], read.prefixes[1]), (Some(wanted), None));
        assert_eq!(
            RouterAdvertisement::parse(&bytes, &from("2001:db8::1", "ff02::1")),
            None,
            "not of the link"
        );
        assert_eq!(RouterAdvertisement::parse(&bytes, &Envelope { hops: 64, ..near }), None);
        assert_eq!(RouterAdvertisement::parse(&bytes[..15], &near), None);
        assert_eq!(RouterAdvertisement::parse(&bytes[..40], &near), None, "an option that is cut short");
        for _ in 0..100 {
            bytes.extend_from_slice(&prefix);
        }
        assert!(RouterAdvertisement::parse(&bytes, &near).unwrap().prefixes.iter().all(Option::is_some));
    }
}
