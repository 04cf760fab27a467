// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal (jbd2, on-disk format as in the kernel's "Journal" chapter): where it is, its own superblock, and the writing of
//! transactions. A transaction is in the log before any of its blocks is written where it belongs.
//!
//! No revoke records are written: a transaction that frees a block that the log has is followed by a checkpoint at once, and freed blocks
//! are not used before their transaction is committed. So the log never has a block that is something else by now.

use crate::buffers::{Buffers, Run};
use crate::bytes::*;
use crate::checksum::crc32c;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_fs::zeroed;

pub const MAGIC: u32 = 0xc03b_3998;
pub const HEADER: usize = 12;

pub mod block_type {
    pub const DESCRIPTOR: u32 = 1;
    pub const COMMIT: u32 = 2;
    pub const SUPER_V2: u32 = 4;
    pub const REVOKE: u32 = 5;
}

pub mod feature {
    pub const REVOKE: u32 = 1;
    pub const BITS_64: u32 = 2;
    pub const ASYNC_COMMIT: u32 = 4;
    pub const CSUM_V2: u32 = 8;
    pub const CSUM_V3: u32 = 0x10;
    pub const KNOWN: u32 = REVOKE | BITS_64 | ASYNC_COMMIT | CSUM_V2 | CSUM_V3;
}

pub mod tag {
    pub const ESCAPED: u32 = 1;
    pub const SAME_UUID: u32 = 2;
    pub const LAST: u32 = 8;
}

/// Bytes of the journal's superblock.
const SUPER: usize = 1024;

/// A piece of the journal that lies on the disk in one: `count` blocks from `start` on.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub logical: u32,
    pub start: u64,
    pub count: u32,
}

pub struct Journal {
    pub pieces: Vec<Piece>,
    pub block_size: usize,
    /// The journal's superblock, in a block of its own.
    pub raw: Vec<u8>,
    pub first: u32,
    pub length: u32,
    pub features: u32,
    pub seed: u32,
    /// Of the next transaction.
    pub sequence: u32,
    /// Where the next transaction goes. [`Journal::first`] with an empty log.
    pub head: u32,
    /// The log has transactions, and its superblock says so.
    pub is_started: bool,
}

impl Journal {
    /// Reads the journal's superblock out of its first block.
    pub fn parse(raw: Vec<u8>, pieces: Vec<Piece>, blocks: u32) -> Result<Journal> {
        if raw.len() < SUPER || be32(&raw, 0) != MAGIC || be32(&raw, 4) != block_type::SUPER_V2 {
            return Err(EUCLEAN);
        }
        let (length, first, features) = (be32(&raw, 16), be32(&raw, 20), be32(&raw, 40));
        let block_size = raw.len();
        let is_sane = be32(&raw, 12) as usize == block_size
            && length <= blocks
            && (1..length).contains(&first)
            && length - first >= 256
            && be32(&raw, 28) < length;
        if !is_sane {
            return Err(EUCLEAN);
        }
        if features & !feature::KNOWN != 0 {
            log::error!("ext4: the journal has unknown features {:#x}", features & !feature::KNOWN);
            return Err(EINVAL);
        }
        let mut journal = Journal {
            pieces,
            block_size,
            first,
            length,
            features,
            seed: crc32c(!0, &raw[48..64]),
            sequence: be32(&raw, 24),
            head: first,
            is_started: be32(&raw, 28) != 0,
            raw,
        };
        if journal.has_checksums() {
            let (kind, sum) = (journal.raw[80], be32(&journal.raw, 252));
            if kind != 4 || journal.sum_of_super() != sum {
                return Err(EUCLEAN);
            }
        }
        Ok(journal)
    }

    pub fn has_checksums(&self) -> bool {
        self.features & (feature::CSUM_V2 | feature::CSUM_V3) != 0
    }

    fn sum_of_super(&mut self) -> u32 {
        put_be32(&mut self.raw, 252, 0);
        crc32c(!0, &self.raw[..SUPER])
    }

    /// Where a block of the journal is on the disk.
    pub fn place(&self, logical: u32) -> Result<u64> {
        let at = self.pieces.partition_point(|piece| piece.logical <= logical);
        let piece = at.checked_sub(1).map(|at| self.pieces[at]).ok_or(EUCLEAN)?;
        let within = logical - piece.logical;
        if within < piece.count { Ok(piece.start + u64::from(within)) } else { Err(EUCLEAN) }
    }

    /// Bytes of one block's tag.
    pub fn tag_size(&self) -> usize {
        if self.features & feature::CSUM_V3 != 0 {
            return 16;
        }
        let wide = if self.features & feature::CSUM_V2 != 0 { 14 } else { 12 };
        if self.features & feature::BITS_64 != 0 { wide } else { wide - 4 }
    }

    /// Bytes at the end of descriptors that their sum takes.
    pub fn tail(&self) -> usize {
        if self.has_checksums() { 4 } else { 0 }
    }

    /// Sets the format of what is written from now on. The log is empty.
    pub fn set_features(&mut self, has_checksums: bool, is_64bit: bool) {
        self.features &= feature::REVOKE | feature::BITS_64;
        if has_checksums {
            self.features |= feature::CSUM_V3;
        }
        if is_64bit {
            self.features |= feature::BITS_64;
        }
        put_be32(&mut self.raw, 40, self.features);
        self.raw[80] = if has_checksums { 4 } else { 0 };
    }

    /// Writes the journal's superblock: the log begins at `start`, or is empty with 0.
    pub fn write_super(&mut self, buffers: &Buffers, start: u32) -> Result<()> {
        put_be32(&mut self.raw, 24, self.sequence);
        put_be32(&mut self.raw, 28, start);
        put_be32(&mut self.raw, 252, 0);
        if self.has_checksums() {
            let sum = self.sum_of_super();
            put_be32(&mut self.raw, 252, sum);
        }
        buffers.disk.write(self.place(0)? * self.block_size as u64, &self.raw)
    }

    /// Blocks that one transaction may change.
    pub fn max_transaction(&self) -> usize {
        (self.length - self.first) as usize / 4
    }

    /// Blocks of the log that a transaction of so many blocks takes.
    fn space(&self, blocks: usize) -> usize {
        blocks + blocks.div_ceil(self.tags_in_block()) + 1
    }

    fn tags_in_block(&self) -> usize {
        (self.block_size - HEADER - 16 - self.tail()) / self.tag_size()
    }

    pub fn has_room(&self, blocks: usize) -> bool {
        self.space(blocks) <= (self.length - self.head) as usize
    }

    fn header(&self, kind: u32) -> Result<Vec<u8>> {
        let mut block = zeroed(self.block_size)?;
        put_be32(&mut block, 0, MAGIC);
        put_be32(&mut block, 4, kind);
        put_be32(&mut block, 8, self.sequence);
        Ok(block)
    }

    fn sealed(&self, mut block: Vec<u8>) -> Vec<u8> {
        if self.has_checksums() {
            let tail = block.len() - 4;
            let sum = crc32c(self.seed, &block);
            put_be32(&mut block, tail, sum);
        }
        block
    }

    /// The sum of a block of this transaction in the log.
    pub fn sum_of(&self, sequence: u32, data: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.to_be_bytes()), data)
    }

    /// Writes a transaction, and returns when it is on stable storage. What it refers to was written before, and not flushed.
    /// `seconds` is the time.
    pub fn commit(&mut self, buffers: &mut Buffers, seconds: u64) -> Result<()> {
        if !self.is_started {
            self.write_super(buffers, self.head)?;
        }
        self.head = self.log(buffers, seconds)?;
        self.is_started = true;
        Ok(())
    }

    /// Writes a transaction into the log without saying that it is there: whoever finds what it has torn on the disk, and an empty log,
    /// looks for it ([`crate::replay`]). The log stays empty.
    pub fn shadow(&mut self, buffers: &mut Buffers, seconds: u64) -> Result<()> {
        debug_assert!(!self.is_started && self.head == self.first);
        // It is known by its number.
        self.write_super(buffers, 0)?;
        self.log(buffers, seconds).map(|_| ())
    }

    /// Writes a transaction at the head, and returns the place behind it when it is on stable storage.
    fn log(&mut self, buffers: &mut Buffers, seconds: u64) -> Result<u32> {
        let mut run = Run::new(buffers.disk.clone(), self.block_size);
        let mut at = self.head;
        buffers.settle();
        let known = &*buffers;
        let blocks = &known.dirty;
        let size = self.tag_size();
        for part in blocks.chunks(self.tags_in_block()) {
            let mut descriptor = self.header(block_type::DESCRIPTOR)?;
            let mut position = HEADER;
            let place = self.place(at)?;
            at += 1;
            let mut copies = Run::new(known.disk.clone(), self.block_size);
            for (n, block) in part.iter().enumerate() {
                let data = &known.known(*block).ok_or(EIO)?.data;
                let mut flags = if n == 0 { 0 } else { tag::SAME_UUID };
                flags |= if n + 1 == part.len() { tag::LAST } else { 0 };
                let mut escaped;
                let mut shown: &[u8] = data;
                if be32(data, 0) == MAGIC {
                    flags |= tag::ESCAPED;
                    escaped = zeroed(self.block_size)?;
                    escaped[4..].copy_from_slice(&data[4..]);
                    shown = &escaped;
                }
                let entry = &mut descriptor[position..];
                put_be32(entry, 0, *block as u32);
                if self.features & feature::CSUM_V3 != 0 {
                    put_be32(entry, 4, flags);
                    put_be32(entry, 8, (*block >> 32) as u32);
                    put_be32(entry, 12, self.sum_of(self.sequence, shown));
                } else {
                    put_be16(entry, 6, flags as u16);
                    if self.features & feature::BITS_64 != 0 {
                        put_be32(entry, 8, (*block >> 32) as u32);
                    }
                }
                // The first tag is followed by the journal's UUID.
                position += size + if n == 0 { 16 } else { 0 };
                copies.add(self.place(at)?, shown)?;
                at += 1;
            }
            run.add(place, &self.sealed(descriptor))?;
            run.finish()?;
            copies.finish()?;
        }
        buffers.disk.flush()?;
        let mut commit = self.header(block_type::COMMIT)?;
        commit[48..56].copy_from_slice(&seconds.to_be_bytes());
        if self.has_checksums() {
            let sum = crc32c(self.seed, &commit);
            put_be32(&mut commit, 16, sum);
        }
        buffers.disk.write(self.place(at)? * self.block_size as u64, &commit)?;
        buffers.disk.flush()?;
        self.sequence = self.sequence.wrapping_add(1);
        buffers.committed();
        Ok(at + 1)
    }

    /// Writes everything that the log has to where it belongs: the log is empty then.
    pub fn checkpoint(&mut self, buffers: &mut Buffers) -> Result<()> {
        if !self.is_started {
            return Ok(());
        }
        buffers.write_home()?;
        self.write_super(buffers, 0)?;
        buffers.disk.flush()?;
        self.head = self.first;
        self.is_started = false;
        Ok(())
    }
}
