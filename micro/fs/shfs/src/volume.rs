// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of an image, and files by their names.

use crate::{
    BUCKET, Damage, ENTRIES, ENTRY, HASHES, MAX_NAME, NAME, Superblock, blocks_of, crc32c, hash, is_name,
    u64_at,
};

/// A file. Its bytes lie one behind the other from the beginning of a block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// Of its entry in the table: it finds the file again.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    pub first_block: u64,
    /// SHA-256 of its bytes, as whoever made the image says.
    pub digest: &'a [u8; 32],
    pub name: &'a [u8],
}

/// An image whose table was read and checked. All that it says of a file is within the image.
#[derive(Clone, Debug)]
pub struct Volume<T> {
    superblock: Superblock,
    table: T,
}

impl<T: AsRef<[u8]>> Volume<T> {
    /// Takes the table, [`Superblock::table_bytes`] from block 1 on.
    pub fn new(superblock: Superblock, table: T) -> Result<Volume<T>, Damage> {
        let out = Volume { superblock, table };
        let bytes = out.table.as_ref();
        if bytes.len() != superblock.table_bytes() || crc32c(bytes) != superblock.table {
            return Err(Damage::Table);
        }
        let mut files = 0;
        for (n, bucket) in bytes.chunks_exact(BUCKET).enumerate() {
            let mut has_ended = false;
            for m in 0..ENTRIES {
                let number = n * ENTRIES + m;
                let damaged = Damage::Entry(number as u32);
                if name_length(bucket, m) == 0 && u64_at(bucket, m * 8) == 0 {
                    // What is behind a free entry is not searched.
                    has_ended = true;
                    continue;
                }
                let (hash, file) = entry(bucket, m, number).ok_or(damaged)?;
                let is_earlier =
                    (0..m).any(|m| entry(bucket, m, 0).is_some_and(|(_, f)| f.name == file.name));
                if has_ended || is_earlier || !out.is_sound(n, hash, &file) {
                    return Err(damaged);
                }
                files += 1;
            }
        }
        if files == superblock.files { Ok(out) } else { Err(Damage::Count) }
    }

    fn is_sound(&self, bucket: usize, stored: u64, file: &File<'_>) -> bool {
        let end = file.first_block.checked_add(blocks_of(file.size));
        is_name(file.name)
            && stored == hash(self.superblock.seed, file.name)
            && bucket == self.superblock.bucket_of(stored)
            && file.first_block >= self.superblock.data
            && end.is_some_and(|end| end <= self.superblock.blocks)
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The file of this name.
    pub fn find(&self, name: &[u8]) -> Option<File<'_>> {
        let hash = hash(self.superblock.seed, name);
        let n = self.superblock.bucket_of(hash);
        let bucket = self.table.as_ref().get(n * BUCKET..)?.first_chunk::<BUCKET>()?;
        let hashes = bucket.first_chunk::<HASHES>()?.as_chunks().0;
        for (m, stored) in hashes.iter().enumerate() {
            // A free entry may have the hash as well; it has no name.
            if u64::from_le_bytes(*stored) == hash
                && let Some((_, file)) = entry(bucket, m, n * ENTRIES + m)
                && file.name == name
            {
                return Some(file);
            }
        }
        None
    }

    /// The file with this number.
    pub fn file(&self, number: u32) -> Option<File<'_>> {
        let number = number as usize;
        let bucket = self.table.as_ref().get(number / ENTRIES * BUCKET..)?.get(..BUCKET)?;
        entry(bucket, number % ENTRIES, number).map(|(_, file)| file)
    }

    /// All files, in no order.
    pub fn files(&self) -> impl Iterator<Item = File<'_>> {
        let entries = self.superblock.buckets as u32 * ENTRIES as u32;
        (0..entries).filter_map(|number| self.file(number))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u16::from_le_bytes(*half).into())
}

fn name_length(bucket: &[u8], m: usize) -> usize {
    u16_at(bucket, HASHES + m * ENTRY + NAME - 2)
}

/// Entry `m` of a bucket: the stored hash, and the file; `None` for a free one, and one whose name is too long.
fn entry(bucket: &[u8], m: usize, number: usize) -> Option<(u64, File<'_>)> {
    let bytes = bucket.get(HASHES + m * ENTRY..)?.first_chunk::<ENTRY>()?;
    let length = u16_at(bytes, NAME - 2);
    if length == 0 || length > MAX_NAME {
        return None;
    }
    let file = File {
        number: number as u32,
        size: u64_at(bytes, 0),
        first_block: u64_at(bytes, 8),
        digest: bytes[16..].first_chunk()?,
        name: &bytes[NAME..NAME + length],
    };
    Some((u64_at(bucket, m * 8), file))
}
