// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reassembly of fragments of IPv4 (RFC 791 3.2) and IPv6 (RFC 8200 4.5), bounded in memory and time. Datagrams whose fragments overlap are
//! thrown away (RFC 5722 for IPv6, and as good an idea here: only attacks overlap).

use crate::wire::Ipv4;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Buffer;
use core::net::Ipv4Addr;
use ordered::Map;

/// Datagrams being put together at once: more are an attack, and the oldest goes.
const MAX_DATAGRAMS: usize = 32;
/// Bytes kept for all of them (Linux: ipfrag_high_thresh, 4 MiB on machines with far more memory).
const MAX_BYTES: usize = 256 * 1024;
/// RFC 1122 3.3.2 asks for 60 to 120 s; Linux uses 30 s.
const TIMEOUT_NS: u64 = 30_000_000_000;
const MAX_DATAGRAM: usize = 65_535;

type Key = (Ipv4Addr, Ipv4Addr, u8, u32);

/// A part of a datagram of either family: of IPv6 the protocol is no part of the key, and is what the first part says.
pub struct Part {
    pub key: Key,
    /// In bytes.
    pub offset: usize,
    pub more: bool,
    pub protocol: u8,
}

struct Datagram {
    key: Key,
    expires: u64,
    /// By offset; they do not overlap.
    parts: Map<usize, Vec<u8>>,
    bytes: usize,
    /// Known from the last fragment.
    length: Option<usize>,
    /// Known from the first.
    protocol: u8,
}

#[derive(Default)]
pub struct Reassembly {
    /// Oldest first.
    datagrams: VecDeque<Datagram>,
    bytes: usize,
    failures: u64,
}

impl Reassembly {
    /// Datagrams that were given up, and fragments that fit none.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Takes a fragment's payload; the payload of the whole datagram when it was the last one missing.
    pub fn add(&mut self, now: u64, header: &Ipv4, payload: &[u8]) -> Option<Buffer> {
        let part = Part {
            key: (header.source, header.destination, header.protocol, header.id.into()),
            offset: header.fragment_offset,
            more: header.more_fragments,
            protocol: header.protocol,
        };
        self.add_part(now, &part, payload).map(|(whole, _)| whole)
    }

    /// Addresses of datagrams that are not complete.
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, look: &mut dyn FnMut(Ipv4Addr)) {
        self.datagrams.iter().for_each(|datagram| {
            look(datagram.key.0);
            look(datagram.key.1);
        });
    }

    /// The same with the protocol of the whole.
    pub fn add_part(&mut self, now: u64, part: &Part, payload: &[u8]) -> Option<(Buffer, u8)> {
        while self.datagrams.front().is_some_and(|d| d.expires <= now)
            || self.datagrams.len() >= MAX_DATAGRAMS
            || self.bytes + payload.len() > MAX_BYTES
        {
            let gone = self.datagrams.pop_front()?;
            self.bytes -= gone.bytes;
            self.failures += 1;
        }
        let end = part.offset + payload.len();
        // All but the last are multiples of 8 bytes long.
        if end > MAX_DATAGRAM || payload.is_empty() || (part.more && !payload.len().is_multiple_of(8)) {
            self.failures += 1;
            return None;
        }
        let key = part.key;
        let index = match self.datagrams.iter().position(|d| d.key == key) {
            Some(index) => index,
            None => {
                self.datagrams.reserve_fallibly(1).ok()?;
                let expires = now + TIMEOUT_NS;
                let parts = Map::new();
                self.datagrams.push_back(Datagram {
                    key,
                    expires,
                    parts,
                    bytes: 0,
                    length: None,
                    protocol: part.protocol,
                });
                self.datagrams.len() - 1
            }
        };
        let datagram = &mut self.datagrams[index];
        match datagram.insert(part, payload) {
            Ok(false) => {
                self.bytes += payload.len();
                None
            }
            complete => {
                let kept = datagram.bytes - if complete.is_ok() { payload.len() } else { 0 };
                let datagram = self.datagrams.remove(index)?;
                self.bytes -= kept;
                self.failures += u64::from(complete.is_err());
                let protocol = datagram.protocol;
                complete.ok().and_then(|_| datagram.join()).map(|whole| (whole, protocol))
            }
        }
    }
}

impl Datagram {
    /// Whether it is complete now; an error for fragments that contradict each other, and where there is no memory.
    fn insert(&mut self, part: &Part, payload: &[u8]) -> Result<bool, ()> {
        let (start, end) = (part.offset, part.offset + payload.len());
        if start == 0 {
            self.protocol = part.protocol;
        }
        let before = self.parts.range(..=start).next_back().map(|(at, part)| at + part.len());
        let after = self.parts.range(start..).next().map(|(at, _)| *at);
        if before.is_some_and(|b| b > start) || after.is_some_and(|a| a < end) {
            return Err(());
        }
        if !part.more && self.length.replace(end).is_some_and(|known| known != end) {
            return Err(());
        }
        if self.length.is_some_and(|length| end > length) {
            return Err(());
        }
        let mut part = Vec::new();
        // Without memory for a fragment the datagram is lost.
        part.reserve_exact_fallibly(payload.len()).map_err(|_| ())?;
        part.extend_from_slice(payload);
        self.parts.insert_fallibly(start, part).map_err(|_| ())?;
        self.bytes += payload.len();
        Ok(self.length == Some(self.bytes))
    }

    fn join(self) -> Option<Buffer> {
        let mut buffer = Buffer::new(self.bytes, 0)?;
        self.parts.values().all(|part| buffer.append(part)).then_some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(id: u16, offset: usize, more: bool) -> Ipv4 {
        Ipv4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            protocol: 17,
            ttl: 64,
            tos: 0,
            id,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            header: 20,
            total: 0,
        }
    }

    #[test]
    fn fragments_in_any_order_make_the_datagram() {
        let mut reassembly = Reassembly::default();
        assert!(reassembly.add(0, &fragment(1, 16, false), b"tail").is_none());
        assert!(reassembly.add(0, &fragment(1, 8, true), b"middle..").is_none());
        let whole = reassembly.add(0, &fragment(1, 0, true), b"beginnin").unwrap();
        assert_eq!(whole.bytes(), b"beginninmiddle..tail");
        assert_eq!(reassembly.bytes, 0);
    }

    #[test]
    fn overlapping_fragments_throw_the_datagram_away() {
        let mut reassembly = Reassembly::default();
        assert!(reassembly.add(0, &fragment(1, 0, true), &[0; 16]).is_none());
        assert!(reassembly.add(0, &fragment(1, 8, false), &[0; 8]).is_none());
        assert!(reassembly.datagrams.is_empty());
        assert_eq!(reassembly.bytes, 0);
    }

    #[test]
    fn a_flood_of_fragments_stays_within_bounds() {
        let mut reassembly = Reassembly::default();
        for id in 0..1000 {
            assert!(reassembly.add(0, &fragment(id, 8, true), &[0; 1024]).is_none());
            assert!(reassembly.datagrams.len() <= MAX_DATAGRAMS && reassembly.bytes <= MAX_BYTES);
        }
        assert!(reassembly.add(TIMEOUT_NS, &fragment(7, 0, true), &[0; 8]).is_none());
        assert_eq!(reassembly.datagrams.len(), 1, "old fragments are forgotten");
    }
}
