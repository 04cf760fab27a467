// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keyed hashing: quick for tables ([`crate::table`]), cryptographic for what a stranger must not predict.

use core::hash::{BuildHasher, Hasher};
use core::net::SocketAddrV4;

/// A connection's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    pub local: SocketAddrV4,
    pub remote: SocketAddrV4,
}

#[derive(Clone, Copy, Debug)]
pub struct Keyed(u64);

impl Keyed {
    pub fn new(key: u64) -> Keyed {
        Keyed(key)
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;
    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

/// Folded multiplication, as wyhash and its kin use it.
pub struct Folded(u64);

impl Folded {
    #[inline]
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(0xa076_1d64_78bd_642f);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_ne_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

/// Random keys, made once.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    pub table: u64,
    prf: (u64, u64),
}

impl Secrets {
    pub fn from_bytes(bytes: [u8; 24]) -> Secrets {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        // An odd multiplier-like key never becomes the fixed point 0.
        Secrets { table: word(0) | 1, prf: (word(8), word(16)) }
    }

    /// A pseudo-random function of the connection (SipHash): RFC 6528's F, RFC 6056's offset, SYN cookies.
    pub fn prf(&self, purpose: u32, tuple: &Tuple, extra: u64) -> u64 {
        #[allow(deprecated)] // deprecated for hash maps' sake; `core` has no other SipHash
        let mut hasher = core::hash::SipHasher::new_with_keys(self.prf.0, self.prf.1);
        hasher.write_u32(purpose);
        hasher.write_u32(tuple.local.ip().to_bits());
        hasher.write_u32(tuple.remote.ip().to_bits());
        hasher.write_u32(u32::from(tuple.local.port()) << 16 | u32::from(tuple.remote.port()));
        hasher.write_u64(extra);
        hasher.finish()
    }
}
