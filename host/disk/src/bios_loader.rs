// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loader of `micro/plat/bios`, which the linker made an ELF file, as it is on the disk.

use crate::{DiskError, Result};
use bios::{ADDRESS, BLOCK, BLOCKS, CODE, MAX_BYTES, PLACE, Place};
use object::{Object as _, ObjectSegment as _, read::elf::ElfFile64};

/// Where a BIOS loads the first sector to.
const SECTOR_ADDRESS: u64 = 0x7c00;

/// The first sector's code, and what it reads: whole blocks.
pub struct Loader {
    pub code: [u8; CODE],
    bytes: Vec<u8>,
    /// Whether the kernel draws on the screen.
    has_screen: bool,
}

impl Loader {
    /// Reads the ELF file.
    pub fn read(elf: &[u8], has_screen: bool) -> Result<Loader> {
        let wrong = |why: &str| DiskError::Loader(why.into());
        let file = ElfFile64::<object::Endianness>::parse(elf).map_err(|e| wrong(&e.to_string()))?;
        let (mut code, mut bytes) = (None, Vec::new());
        for segment in file.segments() {
            let data = segment.data().map_err(|e| wrong(&e.to_string()))?;
            if segment.address() == SECTOR_ADDRESS {
                code = data.try_into().ok();
                continue;
            }
            let start = segment.address().checked_sub(ADDRESS).and_then(|start| usize::try_from(start).ok());
            let start = start.filter(|start| start + data.len() <= MAX_BYTES);
            let start = start.ok_or_else(|| wrong("a segment is where none belongs"))?;
            bytes.resize(bytes.len().max(start + data.len()), 0);
            bytes[start..start + data.len()].copy_from_slice(data);
        }
        let mut code: [u8; CODE] = code.ok_or_else(|| wrong("it has no code for the first sector"))?;
        bytes.resize(bytes.len().max(PLACE + 32).next_multiple_of(BLOCK), 0);
        let blocks = (bytes.len() / BLOCK) as u16;
        code[BLOCKS..BLOCKS + 2].copy_from_slice(&blocks.to_le_bytes());
        Ok(Loader { code, bytes, has_screen })
    }

    /// Its bytes on a disk that has the file from this block on.
    pub fn on_disk(&self, block: u64, bytes: u64) -> Vec<u8> {
        let place = Place { block, bytes, has_screen: self.has_screen };
        let mut out = self.bytes.clone();
        out[PLACE..PLACE + 32].copy_from_slice(&place.encode());
        out
    }

    /// Bytes it takes on a disk.
    pub fn room(&self) -> u64 {
        self.bytes.len() as u64
    }

    #[cfg(test)]
    pub fn for_tests() -> Loader {
        Loader { code: [0x90; CODE], bytes: vec![0x55; 5 * BLOCK], has_screen: true }
    }
}
