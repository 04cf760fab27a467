// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the names of a large directory are, in memory: made when the directory is first looked through, so that a lookup reads one
//! block, and a new name finds room without a search. The disk has no such thing: directories are written as lists of blocks.

use crate::checksum::crc32c;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use ordered::Map;

/// Names in a bucket beyond which there are twice as many buckets.
const MAX_FILL: usize = 8;

pub struct Index {
    seed: u32,
    /// Sum of a name and the block that has it, by the sum's last bits.
    buckets: Vec<Vec<(u32, u32)>>,
    names: usize,
    /// Blocks by the room for one more entry.
    by_room: Map<(u16, u32), ()>,
    room: Vec<u16>,
}

impl Index {
    /// Of a directory without blocks. The seed is not for others to know: names of one sum take long to tell apart.
    pub fn new(seed: u32) -> Result<Index> {
        let mut buckets = Vec::new();
        buckets.reserve_exact_fallibly(16).map_err(|_| ENOMEM)?;
        buckets.resize_with(16, Vec::new);
        Ok(Index { seed, buckets, names: 0, by_room: Map::new(), room: Vec::new() })
    }

    pub fn names(&self) -> usize {
        self.names
    }

    fn sum(&self, name: &[u8]) -> u32 {
        // Mixed, since a CRC of names that differ in little differs in few bits.
        let sum = crc32c(self.seed, name);
        (sum ^ sum >> 15).wrapping_mul(0x2c1b_3c6d) ^ self.seed.rotate_left(9)
    }

    /// Blocks that may have the name.
    pub fn blocks<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = u32> + 'a {
        let sum = self.sum(name);
        let bucket = &self.buckets[sum as usize & (self.buckets.len() - 1)];
        bucket.iter().filter(move |(of, _)| *of == sum).map(|(_, block)| *block)
    }

    pub fn add(&mut self, name: &[u8], block: u32) -> Result<()> {
        if self.names >= self.buckets.len() * MAX_FILL {
            self.grow()?;
        }
        let sum = self.sum(name);
        let mask = self.buckets.len() - 1;
        let bucket = &mut self.buckets[sum as usize & mask];
        bucket.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        bucket.push((sum, block));
        self.names += 1;
        Ok(())
    }

    fn grow(&mut self) -> Result<()> {
        let count = self.buckets.len() * 2;
        let mut buckets: Vec<Vec<(u32, u32)>> = Vec::new();
        buckets.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
        buckets.resize_with(count, Vec::new);
        for (sum, block) in self.buckets.iter().flatten() {
            let bucket = &mut buckets[*sum as usize & (count - 1)];
            bucket.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            bucket.push((*sum, *block));
        }
        self.buckets = buckets;
        Ok(())
    }

    pub fn remove(&mut self, name: &[u8], block: u32) {
        let sum = self.sum(name);
        let mask = self.buckets.len() - 1;
        let bucket = &mut self.buckets[sum as usize & mask];
        if let Some(at) = bucket.iter().position(|entry| *entry == (sum, block)) {
            bucket.swap_remove(at);
            self.names -= 1;
        }
    }

    /// The block has room for an entry of so many bytes, and not for a larger one. Blocks come in order.
    pub fn set_room(&mut self, block: u32, room: u16) -> Result<()> {
        let at = block as usize;
        if at >= self.room.len() {
            self.room.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            self.room.push(0);
        } else if self.room[at] == room {
            return Ok(());
        } else {
            self.by_room.remove(&(self.room[at], block));
        }
        if room > 0 {
            self.by_room.insert_fallibly((room, block), ()).map_err(|_| ENOMEM)?;
        }
        self.room[at] = room;
        Ok(())
    }

    /// A block with room for an entry of so many bytes.
    pub fn with_room(&self, bytes: u16) -> Option<u32> {
        self.by_room.range((bytes, 0)..).next().map(|((_, block), ())| *block)
    }
}
