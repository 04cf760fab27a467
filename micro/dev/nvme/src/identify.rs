// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller says of itself and of its namespaces (NVMe 5.15.2). Untrusted.

use abi::PAGE_SIZE;

/// Bytes of an Identify structure.
pub const BYTES: usize = 4096;

/// Where the numbers are in the structure of a controller.
const MDTS: usize = 77;
const NN: usize = 516;
const VWC: usize = 525;

/// And in that of a namespace.
const NSZE: usize = 0;
const NLBAF: usize = 25;
const FLBAS: usize = 26;
const NSATTR: usize = 99;
const LBAF: usize = 128;
/// Formats that the structure has room for. (Version 2.0 says more than 16 of them by further bits of FLBAS.)
const FORMATS: u8 = 16;

fn u32_at(bytes: &[u8; BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at + 4)) << 32 | u64::from(u32_at(bytes, at))
}

/// What is wanted of Identify Controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Bytes of one transfer at most.
    pub largest: u64,
    /// Namespaces have numbers up to this one.
    pub namespaces: u32,
    /// What is completed may be in a cache that loses it with the power.
    pub has_cache: bool,
}

impl Controller {
    pub fn parse(bytes: &[u8; BYTES]) -> Controller {
        let largest = match bytes[MDTS] {
            0 => u64::MAX,
            // Pages, as a power of two.
            power => {
                (PAGE_SIZE as u64).checked_shl(power.into()).filter(|size| *size != 0).unwrap_or(u64::MAX)
            }
        };
        Controller { largest, namespaces: u32_at(bytes, NN), has_cache: bytes[VWC] & 1 != 0 }
    }
}

/// What is wanted of Identify Namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub blocks: u64,
    /// Bytes of a block: 512 to 4,096.
    pub block: usize,
    pub read_only: bool,
}

impl Namespace {
    /// The error says why the namespace cannot be used.
    pub fn parse(bytes: &[u8; BYTES]) -> core::result::Result<Namespace, &'static str> {
        let blocks = u64_at(bytes, NSZE);
        if blocks == 0 {
            return Err("it has no blocks");
        }
        let format = bytes[FLBAS] & 15;
        if format > bytes[NLBAF] || bytes[NLBAF] >= FORMATS {
            return Err("its format is none of those that it has");
        }
        let format = u32_at(bytes, LBAF + 4 * usize::from(format));
        if format & 0xffff != 0 {
            return Err("its blocks have metadata; format it without");
        }
        let power = format >> 16 & 0xff;
        if !(9..=12).contains(&power) {
            return Err(
                "its blocks have fewer than 512 or more than 4,096 bytes; format it with one of these",
            );
        }
        if blocks.checked_mul(1 << power).is_none() {
            return Err("it claims to have more bytes than 64 bits count");
        }
        Ok(Namespace { blocks, block: 1 << power, read_only: bytes[NSATTR] & 1 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn namespace(blocks: u64, formats: u8, chosen: u8, format: u32) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&blocks.to_le_bytes());
        (bytes[NLBAF], bytes[FLBAS]) = (formats - 1, chosen);
        bytes[LBAF + 4 * usize::from(chosen)..][..4].copy_from_slice(&format.to_le_bytes());
        bytes
    }

    #[test]
    fn a_namespace_is_as_large_as_its_format_says() {
        let small = Namespace { blocks: 100, block: 512, read_only: false };
        assert_eq!(Namespace::parse(&namespace(100, 1, 0, 9 << 16)), Ok(small));
        let mut bytes = namespace(u64::MAX >> 12, 16, 15, 12 << 16 | 2 << 24);
        bytes[NSATTR] = 1;
        let large = Namespace { blocks: u64::MAX >> 12, block: 4096, read_only: true };
        assert_eq!(Namespace::parse(&bytes), Ok(large));
    }

    #[test]
    fn a_namespace_that_cannot_be_used_is_refused_with_the_reason() {
        for (bytes, why) in [
            (namespace(0, 1, 0, 9 << 16), "no blocks"),
            (namespace(1, 1, 1, 9 << 16), "none of those"),
            (namespace(1, 17, 0, 9 << 16), "none of those"),
            (namespace(1, 1, 0, 9 << 16 | 8), "metadata"),
            (namespace(1, 1, 0, 0), "fewer than 512"),
            (namespace(1, 1, 0, 8 << 16), "fewer than 512"),
            (namespace(1, 1, 0, 13 << 16), "fewer than 512"),
            (namespace(1, 1, 0, 255 << 16), "fewer than 512"),
            (namespace(1 << 55, 1, 0, 9 << 16), "64 bits"),
        ] {
            assert!(Namespace::parse(&bytes).unwrap_err().contains(why), "{why}");
        }
    }

    #[test]
    fn a_transfer_is_limited_by_a_power_of_two_of_pages_or_not_at_all() {
        let mut bytes = [0; BYTES];
        for (power, largest) in
            [(0, u64::MAX), (1, 8192), (7, 1 << 19), (51, 1 << 63), (52, u64::MAX), (255, u64::MAX)]
        {
            bytes[MDTS] = power;
            assert_eq!(Controller::parse(&bytes).largest, largest);
        }
        bytes[VWC] = 0xff;
        bytes[NN..NN + 4].copy_from_slice(&7u32.to_le_bytes());
        let controller = Controller::parse(&bytes);
        assert!(controller.has_cache && controller.namespaces == 7);
    }
}
