// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image of given files looks like.

use crate::{
    BLOCK, BUCKET, ENTRIES, ENTRY, HASHES, MAX_BUCKETS, MAX_NAME, NAME, SUPERBLOCK, Superblock, TABLE,
    blocks_of, crc32c, hash, is_name,
};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A file that is to be in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// 1 to [`MAX_NAME`] bytes, none of them 0. A `/` is a byte like others.
    pub name: Vec<u8>,
    pub size: u64,
    /// SHA-256 of its bytes. Files with the same one are stored once.
    pub digest: [u8; 32],
}

/// An image without the bytes of its files.
#[derive(Clone, Debug)]
pub struct Plan {
    /// From byte 0 of the image on: superblock and table, whole blocks.
    pub head: Vec<u8>,
    /// Where each of the files begins, in their order.
    pub first_blocks: Vec<u64>,
    /// Blocks of the image.
    pub blocks: u64,
}

/// Why there is no image of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmakeable {
    /// No file may have this name.
    Name(String),
    Twice(String),
    /// More files than a table has room for.
    TooMany,
    TooLarge,
}

impl fmt::Display for Unmakeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmakeable::Name(name) => write!(f, "{name}: a name has 1 to {MAX_NAME} bytes"),
            Unmakeable::Twice(name) => write!(f, "{name} is there twice"),
            Unmakeable::TooMany => write!(f, "there are more files than an image has room for"),
            Unmakeable::TooLarge => write!(f, "the files are larger than an image can be"),
        }
    }
}

/// Seeds that are tried before the table is made larger.
const SEEDS: u64 = 16;

/// Lays out an image. The same files in the same order make the same image.
pub fn make(files: &[Content]) -> Result<Plan, Unmakeable> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let mut names = BTreeMap::new();
    for file in files {
        if !is_name(&file.name) {
            return Err(Unmakeable::Name(text(&file.name)));
        }
        if names.insert(&file.name, ()).is_some() {
            return Err(Unmakeable::Twice(text(&file.name)));
        }
    }
    let (buckets, seed) = choose(files).ok_or(Unmakeable::TooMany)?;
    let mut superblock =
        Superblock { blocks: 0, files: files.len() as u64, buckets, data: 0, seed, table: 0 };
    superblock.data = TABLE + superblock.table_bytes().div_ceil(BLOCK) as u64;
    let mut next = superblock.data;
    let mut stored: BTreeMap<([u8; 32], u64), u64> = BTreeMap::new();
    let mut first_blocks = Vec::new();
    for file in files {
        let first = *stored.entry((file.digest, file.size)).or_insert(next);
        first_blocks.push(first);
        if first == next {
            next = next.checked_add(blocks_of(file.size)).ok_or(Unmakeable::TooLarge)?;
        }
    }
    if next > u64::MAX / BLOCK as u64 {
        return Err(Unmakeable::TooLarge);
    }
    superblock.blocks = next;
    let mut head = alloc::vec![0; superblock.data as usize * BLOCK];
    let table = &mut head[TABLE as usize * BLOCK..];
    let mut used = alloc::vec![0; buckets as usize];
    for (file, first) in files.iter().zip(&first_blocks) {
        let hash = hash(seed, &file.name);
        let n = superblock.bucket_of(hash);
        let bucket = &mut table[n * BUCKET..][..BUCKET];
        bucket[used[n] * 8..][..8].copy_from_slice(&hash.to_le_bytes());
        let entry = &mut bucket[HASHES + used[n] * ENTRY..][..ENTRY];
        used[n] += 1;
        entry[..8].copy_from_slice(&file.size.to_le_bytes());
        entry[8..16].copy_from_slice(&first.to_le_bytes());
        entry[16..48].copy_from_slice(&file.digest);
        entry[48..NAME].copy_from_slice(&(file.name.len() as u16).to_le_bytes());
        entry[NAME..NAME + file.name.len()].copy_from_slice(&file.name);
    }
    superblock.table = crc32c(&table[..superblock.table_bytes()]);
    head[..SUPERBLOCK].copy_from_slice(&superblock.to_bytes());
    Ok(Plan { head, first_blocks, blocks: superblock.blocks })
}

/// A number of buckets and a seed with which no bucket has too many names.
fn choose(files: &[Content]) -> Option<(u64, u64)> {
    let mut buckets = (files.len() as u64).div_ceil(ENTRIES as u64 / 2).max(1).next_power_of_two();
    while buckets <= MAX_BUCKETS {
        for seed in 0..SEEDS {
            let mut used = alloc::vec![0u8; buckets as usize];
            let fits = files.iter().all(|file| {
                let count = &mut used[(hash(seed, &file.name) & (buckets - 1)) as usize];
                *count += 1;
                usize::from(*count) <= ENTRIES
            });
            if fits {
                return Some((buckets, seed));
            }
        }
        buckets *= 2;
    }
    None
}
