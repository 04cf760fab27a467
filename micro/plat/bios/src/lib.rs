// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Booting by BIOS: a loader of our own on the disk, which reads the file that UEFI firmware would start (`efi`) and starts the kernel in
//! it. The host writes where that file is (`unilith build --disk`), the loader reads it; this is what both know, and what of the loader
//! needs no firmware.
//!
//! | where on the disk | what |
//! | --- | --- |
//! | the first sector's code | reads the loader, [`BLOCKS`] long, from block [`FIRST_BLOCK`] on |
//! | a partition for BIOS loaders, from block [`FIRST_BLOCK`] on | the loader, with a [`Place`] at [`PLACE`] |
//! | the EFI system partition | the file, in one piece |
#![no_std]
#![forbid(unsafe_code)]
#[cfg(test)]
extern crate std;

pub mod drive;
pub mod memory;
pub mod vbe;

/// Bytes of a block as the BIOS counts on hard disks.
pub const BLOCK: usize = 512;
/// Where the loader begins on the disk: behind the partition table.
pub const FIRST_BLOCK: u64 = 40;
/// Where it begins in memory.
pub const ADDRESS: u64 = 0x8000;
/// Where in the first sector it is said how many blocks it has, a half word.
pub const BLOCKS: usize = 438;
/// Bytes of the first sector that are code.
pub const CODE: usize = 440;
/// Most bytes of the loader.
pub const MAX_BYTES: usize = 0x70000;
/// Where in the loader its [`Place`] is.
pub const PLACE: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"unilithb");
const HAS_SCREEN: u64 = 1;

/// What the host tells the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's first block.
    pub block: u64,
    /// The file's bytes.
    pub bytes: u64,
    /// Whether the kernel draws: the screen is put into a mode for that.
    pub has_screen: bool,
}

impl Place {
    pub fn encode(&self) -> [u8; 32] {
        let mut out = [0; 32];
        let flags = if self.has_screen { HAS_SCREEN } else { 0 };
        for (to, number) in out.chunks_exact_mut(8).zip([MAGIC, self.block, self.bytes, flags]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// `None`: nobody has written it.
    pub fn decode(bytes: &[u8; 32]) -> Option<Place> {
        let mut numbers = [0; 4];
        for (number, from) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = u64::from_le_bytes(*from);
        }
        let [magic, block, bytes, flags] = numbers;
        (magic == MAGIC).then_some(Place { block, bytes, has_screen: flags & HAS_SCREEN != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for has_screen in [false, true] {
            let place = Place { block: 2148, bytes: 5_000_000_000, has_screen };
            assert_eq!(Place::decode(&place.encode()), Some(place));
        }
        assert_eq!(Place::decode(&[0; 32]), None);
    }
}
