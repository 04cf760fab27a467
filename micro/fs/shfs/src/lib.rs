// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SHFS, a hash file system: a flat table of names, read only once it is made, for programs that open files without a VFS (Unikraft,
//! EuroSys 2021, 6.3; the idea is MiniCache's).
//!
//! This crate is the format: [`Superblock`] and [`Volume`] read an image that nobody has to trust, [`make`] plans one.
//! `docs/reference/shfs-image.md` has the offsets. `micro/raw` opens files with it in the machine, `unilith shfs` makes and checks images
//! on the host. It depends on nothing, and knows no devices: whoever has one hands over bytes.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod checksum;
mod make;
mod volume;

pub use checksum::crc32c;
pub use make::{Content, Plan, Unmakeable, make};
pub use volume::{File, Volume};

use core::fmt;

#[cfg(test)]
mod tests;

/// Bytes of a block: what a file begins at.
pub const BLOCK: usize = 4096;
/// Bytes at the beginning of an image that say what is in it.
pub const SUPERBLOCK: usize = 104;
/// Bytes of a name at most: what is left of an entry.
pub const MAX_NAME: usize = ENTRY - NAME;
/// Buckets at most: a table of 64 MiB, which is read into the memory of the machine.
pub const MAX_BUCKETS: u64 = 1 << 15;

const MAGIC: [u8; 8] = *b"UNISHFS\0";
const VERSION: u32 = 1;
/// Entries of a bucket, which bound every search.
const ENTRIES: usize = 8;
/// Where in a bucket the entries begin: in front of them are their hashes, in one line of a cache.
const HASHES: usize = ENTRIES * size_of::<u64>();
/// Bytes of an entry, and where in it the name is, behind its length.
const ENTRY: usize = 248;
const NAME: usize = 50;
const BUCKET: usize = HASHES + ENTRIES * ENTRY;
/// The block at which the table begins.
const TABLE: u64 = 1;

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    NoImage,
    Version(u32),
    Superblock,
    /// The image is shorter than it says.
    Short,
    Table,
    /// An entry, by its number.
    Entry(u32),
    /// There are not as many files as the superblock says.
    Count,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NoImage => write!(f, "it is no SHFS image"),
            Damage::Version(version) => {
                write!(f, "its format has version {version}, and this is version {VERSION}")
            }
            Damage::Superblock => write!(f, "its superblock is damaged"),
            Damage::Short => write!(f, "it is shorter than its superblock says"),
            Damage::Table => write!(f, "its table has another checksum than its superblock says"),
            Damage::Entry(number) => write!(f, "entry {number} of its table is damaged"),
            Damage::Count => write!(f, "its table has another number of files than its superblock says"),
        }
    }
}

/// The first bytes of an image, checked against themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Blocks of the image.
    pub blocks: u64,
    pub files: u64,
    /// A power of two, at most [`MAX_BUCKETS`].
    buckets: u64,
    /// The block at which contents begin.
    data: u64,
    /// Of the names' hash, chosen so that no bucket is too small.
    seed: u64,
    /// CRC-32C of the table.
    table: u32,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

impl Superblock {
    /// Reads the first bytes of an image that has `available` blocks.
    pub fn parse(bytes: &[u8], available: u64) -> Result<Superblock, Damage> {
        let bytes = bytes.get(..SUPERBLOCK).ok_or(Damage::NoImage)?;
        if !bytes.starts_with(&MAGIC) {
            return Err(Damage::NoImage);
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            other => return Err(Damage::Version(other)),
        }
        if u32_at(bytes, 100) != crc32c(&bytes[..100]) {
            return Err(Damage::Superblock);
        }
        let out = Superblock {
            blocks: u64_at(bytes, 16),
            files: u64_at(bytes, 24),
            buckets: u64_at(bytes, 32),
            data: u64_at(bytes, 48),
            seed: u64_at(bytes, 56),
            table: u32_at(bytes, 96),
        };
        let is_table = out.buckets.is_power_of_two() && out.buckets <= MAX_BUCKETS;
        if u32_at(bytes, 12) != BLOCK as u32
            || u64_at(bytes, 40) != TABLE
            || !is_table
            || out.data != TABLE + out.table_bytes().div_ceil(BLOCK) as u64
            || out.blocks < out.data
            // No offset in bytes or sectors overflows.
            || out.blocks > u64::MAX / BLOCK as u64
        {
            return Err(Damage::Superblock);
        }
        if out.blocks > available {
            return Err(Damage::Short);
        }
        Ok(out)
    }

    fn to_bytes(self) -> [u8; SUPERBLOCK] {
        let mut out = [0; SUPERBLOCK];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        let words = [self.blocks, self.files, self.buckets, TABLE, self.data, self.seed];
        for (to, word) in out[16..64].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out[96..100].copy_from_slice(&self.table.to_le_bytes());
        let sum = crc32c(&out[..100]);
        out[100..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Bytes of the table, which begins at block 1.
    pub fn table_bytes(&self) -> usize {
        self.buckets as usize * BUCKET
    }

    fn bucket_of(&self, hash: u64) -> usize {
        (hash & (self.buckets - 1)) as usize
    }
}

/// FNV-1a of a name, begun with the image's seed, and MurmurHash3's finalizer, for buckets are told by the lowest bits.
fn hash(seed: u64, name: &[u8]) -> u64 {
    let mut hash = seed ^ 0xcbf2_9ce4_8422_2325;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Whether a file may be called so.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(&0)
}

/// Blocks that a file takes.
fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK as u64)
}
