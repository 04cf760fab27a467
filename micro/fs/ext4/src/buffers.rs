// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of metadata in memory: read with their checksums verified, changed inside an operation that is undone as a whole when it
//! fails, and written through the journal alone.

use crate::bytes::*;
use crate::checksum::crc32c;
use crate::superblock::Superblock;
use crate::{Disk, log_damage};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::zeroed;
use ordered::Map;

/// What a block holds: how its checksum is verified and made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The superblock, group descriptors, inodes and targets of links: sums are parts of their own, or there are none.
    Plain,
    /// Their sums are in the group's descriptor.
    BlockBitmap(u32),
    InodeBitmap(u32),
    /// Of a file whose sums begin with this seed.
    Extents(u32),
    Directory(u32),
    Attributes,
}

pub struct Buffer {
    pub data: Vec<u8>,
    pub kind: Kind,
    /// Changed by the running transaction.
    pub is_dirty: bool,
    /// In the journal, and not yet where it belongs.
    pub is_logged: bool,
    /// Used since the cache was last trimmed.
    is_used: bool,
}

/// What a block was before the running operation changed it.
struct Before {
    block: u64,
    /// `None`: it was not in memory.
    data: Option<Vec<u8>>,
    kind: Kind,
    was_dirty: bool,
    was_logged: bool,
}

pub struct Buffers {
    pub disk: Arc<dyn Disk>,
    block_size: usize,
    blocks: u64,
    has_checksums: bool,
    seed: u32,
    map: Map<u64, Buffer>,
    /// Blocks of the running transaction; those that were forgotten since are among them.
    pub dirty: Vec<u64>,
    undo: Vec<Before>,
    /// Blocks that the running operation has a copy of.
    is_saved: Map<u64, ()>,
    in_operation: bool,
    /// Blocks in memory beyond which those that nobody needs are dropped.
    limit: usize,
}

/// Tail of a block of a directory with checksums: an entry without a name.
pub const DIRECTORY_TAIL: usize = 12;

impl Buffers {
    pub fn new(disk: Arc<dyn Disk>, superblock: &Superblock) -> Buffers {
        // A thirty-second of the memory.
        let (pages, _) = api_mem::statistics();
        let limit = (pages / 32) as usize * abi::PAGE_SIZE / superblock.block_size;
        Buffers {
            disk,
            block_size: superblock.block_size,
            blocks: superblock.blocks,
            has_checksums: superblock.has_checksums(),
            seed: superblock.seed,
            map: Map::new(),
            dirty: Vec::new(),
            undo: Vec::new(),
            is_saved: Map::new(),
            in_operation: false,
            limit: limit.clamp(64, 8192),
        }
    }

    /// The block, read from the disk where it is not in memory.
    pub fn get(&mut self, block: u64, kind: Kind) -> Result<&[u8]> {
        self.load(block, kind, true)?;
        Ok(&self.map.get(&block).ok_or(EIO)?.data)
    }

    /// As [`Buffers::get`], of a block whose sum the caller verifies.
    pub fn get_unverified(&mut self, block: u64, kind: Kind) -> Result<&[u8]> {
        self.load(block, kind, false)?;
        Ok(&self.map.get(&block).ok_or(EIO)?.data)
    }

    pub fn is_in_memory(&self, block: u64) -> bool {
        self.map.contains_key(&block)
    }

    fn load(&mut self, block: u64, kind: Kind, verifies: bool) -> Result<()> {
        if let Some(buffer) = self.map.get_mut(&block) {
            buffer.is_used = true;
            if buffer.kind != kind {
                log_damage("a block belongs to two things", block);
                return Err(EUCLEAN);
            }
            return Ok(());
        }
        if block >= self.blocks {
            log_damage("a block is behind the end", block);
            return Err(EUCLEAN);
        }
        let mut data = zeroed(self.block_size)?;
        self.disk.read(block * self.block_size as u64, &mut data)?;
        if verifies && !self.is_valid(&data, kind) {
            log_damage("the checksum of a block is wrong", block);
            return Err(EUCLEAN);
        }
        self.trim();
        let buffer = Buffer { data, kind, is_dirty: false, is_logged: false, is_used: true };
        self.map.insert_fallibly(block, buffer).map_err(|_| ENOMEM)?;
        Ok(())
    }

    /// The block, to be changed in the running operation.
    pub fn edit(&mut self, block: u64, kind: Kind) -> Result<&mut [u8]> {
        self.load(block, kind, true)?;
        self.save(block, kind)?;
        self.make_dirty(block)
    }

    /// A block that was free until now: zeros.
    pub fn fresh(&mut self, block: u64, kind: Kind) -> Result<&mut [u8]> {
        self.save(block, kind)?;
        if let Some(buffer) = self.map.get_mut(&block) {
            buffer.data.fill(0);
            buffer.kind = kind;
        } else {
            let data = zeroed(self.block_size)?;
            let buffer = Buffer { data, kind, is_dirty: false, is_logged: false, is_used: true };
            self.map.insert_fallibly(block, buffer).map_err(|_| ENOMEM)?;
        }
        self.make_dirty(block)
    }

    fn make_dirty(&mut self, block: u64) -> Result<&mut [u8]> {
        let buffer = self.map.get_mut(&block).ok_or(EIO)?;
        if !buffer.is_dirty {
            self.dirty.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            self.dirty.push(block);
            buffer.is_dirty = true;
        }
        Ok(&mut buffer.data)
    }

    fn save(&mut self, block: u64, kind: Kind) -> Result<()> {
        debug_assert!(self.in_operation);
        if self.is_saved.contains_key(&block) {
            return Ok(());
        }
        let before = match self.map.get(&block) {
            Some(buffer) => {
                let mut data = Vec::new();
                data.reserve_exact_fallibly(self.block_size).map_err(|_| ENOMEM)?;
                data.extend_from_slice(&buffer.data);
                let (was_dirty, was_logged) = (buffer.is_dirty, buffer.is_logged);
                Before { block, data: Some(data), kind: buffer.kind, was_dirty, was_logged }
            }
            None => Before { block, data: None, kind, was_dirty: false, was_logged: false },
        };
        self.undo.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        self.is_saved.insert_fallibly(block, ()).map_err(|_| ENOMEM)?;
        self.undo.push(before);
        Ok(())
    }

    /// The block is free from now on. True when the journal has it, so that it must not be used for anything else before the journal
    /// is empty.
    pub fn forget(&mut self, block: u64, kind: Kind) -> Result<bool> {
        let Some(is_logged) = self.map.get(&block).map(|buffer| buffer.is_logged) else { return Ok(false) };
        self.save(block, kind)?;
        self.map.remove(&block);
        Ok(is_logged)
    }

    /// Forgets what was read, and found to be wrong.
    pub fn drop_clean(&mut self, block: u64) {
        if self.map.get(&block).is_some_and(|buffer| !buffer.is_dirty && !buffer.is_logged) {
            self.map.remove(&block);
        }
    }

    pub fn begin(&mut self) {
        self.undo.clear();
        self.is_saved.clear();
        self.in_operation = true;
    }

    /// The operation is done, and its changes are a part of the running transaction.
    pub fn keep(&mut self) {
        self.undo.clear();
        self.is_saved.clear();
        self.in_operation = false;
    }

    /// The operation failed: every block is as before. Needs no memory but where a block was forgotten; false when there is
    /// none, and the blocks in memory are of no use any more.
    #[must_use]
    pub fn undo(&mut self) -> bool {
        self.in_operation = false;
        self.is_saved.clear();
        let mut is_undone = true;
        while let Some(Before { block, data, kind, was_dirty, was_logged }) = self.undo.pop() {
            match data {
                None => {
                    self.map.remove(&block);
                }
                Some(data) => {
                    let buffer =
                        Buffer { data, kind, is_dirty: was_dirty, is_logged: was_logged, is_used: true };
                    is_undone &= self.map.insert_fallibly(block, buffer).is_ok();
                }
            }
        }
        is_undone
    }

    /// Number of blocks that the running transaction has changed.
    pub fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// The blocks of the running transaction, in order, without those that were undone or forgotten.
    pub fn settle(&mut self) -> &[u64] {
        let map = &self.map;
        self.dirty.sort_unstable();
        self.dirty.dedup();
        self.dirty.retain(|block| map.get(block).is_some_and(|buffer| buffer.is_dirty));
        &self.dirty
    }

    pub fn known(&self, block: u64) -> Option<&Buffer> {
        self.map.get(&block)
    }

    /// Makes the sums of all changed blocks that have them in themselves.
    pub fn seal(&mut self) {
        if !self.has_checksums {
            return;
        }
        for block in &self.dirty {
            if let Some(buffer) = self.map.get_mut(block) {
                seal(&mut buffer.data, buffer.kind, self.seed, *block);
            }
        }
    }

    /// The transaction is in the journal.
    pub fn committed(&mut self) {
        for block in self.dirty.drain(..) {
            if let Some(buffer) = self.map.get_mut(&block) {
                (buffer.is_dirty, buffer.is_logged) = (false, true);
            }
        }
        // What was needed for a large transaction is not kept.
        self.dirty.shrink_to(1024);
    }

    /// Writes what is in the journal to where it belongs. The running transaction is empty.
    pub fn write_home(&mut self) -> Result<()> {
        let mut run = Run::new(self.disk.clone(), self.block_size);
        for (block, buffer) in self.map.iter() {
            if buffer.is_logged {
                run.add(*block, &buffer.data)?;
            }
        }
        run.finish()?;
        self.disk.flush()?;
        for buffer in self.map.values_mut() {
            buffer.is_logged = false;
        }
        Ok(())
    }

    /// Drops blocks that were not used lately and can be read again.
    fn trim(&mut self) {
        if self.map.len() < self.limit || self.in_operation && self.map.len() < 2 * self.limit {
            return;
        }
        let is_needed = |buffer: &Buffer| buffer.is_dirty || buffer.is_logged;
        let mut left = self.map.len();
        let goal = self.limit / 2;
        self.map.retain(|_, buffer| {
            let keeps = is_needed(buffer) || (buffer.is_used && left <= self.limit) || left <= goal;
            buffer.is_used = false;
            left -= usize::from(!keeps);
            keeps
        });
        // Where all that is left is in the journal the next trim comes later.
        self.limit = self.limit.max(self.map.len() + self.map.len() / 8);
    }

    fn is_valid(&self, data: &[u8], kind: Kind) -> bool {
        if !self.has_checksums {
            return true;
        }
        match kind {
            Kind::Plain | Kind::BlockBitmap(_) | Kind::InodeBitmap(_) => true,
            Kind::Extents(seed) => {
                extents_tail(data).is_some_and(|tail| crc32c(seed, &data[..tail]) == le32(data, tail))
            }
            Kind::Directory(seed) => match directory_tail(data) {
                Some(tail) => crc32c(seed, &data[..tail]) == le32(data, tail + 8),
                // An index: verified by whoever reads it.
                None => true,
            },
            Kind::Attributes => true,
        }
    }
}

/// Where the sum of a block of extents is: behind the room for entries.
fn extents_tail(data: &[u8]) -> Option<usize> {
    let tail = 12 + usize::from(le16(data, 4)) * 12;
    (tail + 4 <= data.len()).then_some(tail)
}

/// The tail of a block of a directory that has one.
pub fn directory_tail(data: &[u8]) -> Option<usize> {
    let tail = data.len() - DIRECTORY_TAIL;
    (le32(data, tail) == 0 && le16(data, tail + 4) == DIRECTORY_TAIL as u16 && le16(data, tail + 6) == 0xde00)
        .then_some(tail)
}

fn seal(data: &mut [u8], kind: Kind, seed: u32, block: u64) {
    match kind {
        Kind::Plain | Kind::BlockBitmap(_) | Kind::InodeBitmap(_) => {}
        Kind::Extents(seed) => {
            if let Some(tail) = extents_tail(data) {
                let sum = crc32c(seed, &data[..tail]);
                put32(data, tail, sum);
            }
        }
        Kind::Directory(seed) => {
            if let Some(tail) = directory_tail(data) {
                let sum = crc32c(seed, &data[..tail]);
                put32(data, tail + 8, sum);
            }
        }
        Kind::Attributes => {
            put32(data, 16, 0);
            let sum = crc32c(crc32c(seed, &block.to_le_bytes()), data);
            put32(data, 16, sum);
        }
    }
}

/// Blocks that are written one behind the other, in requests as large as they can be.
pub struct Run {
    disk: Arc<dyn Disk>,
    block_size: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl Run {
    const MAX: usize = 128 << 10;

    pub fn new(disk: Arc<dyn Disk>, block_size: usize) -> Run {
        Run { disk, block_size, start: 0, bytes: Vec::new() }
    }

    pub fn add(&mut self, block: u64, data: &[u8]) -> Result<()> {
        let next = self.start + (self.bytes.len() / self.block_size) as u64;
        if self.bytes.is_empty() || next != block || self.bytes.len() >= Run::MAX {
            self.finish()?;
            self.start = block;
        }
        if self.bytes.reserve_fallibly(data.len()).is_err() {
            // One by one, then.
            self.finish()?;
            return self.disk.write(block * self.block_size as u64, data);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    pub fn finish(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.disk.write(self.start * self.block_size as u64, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}
