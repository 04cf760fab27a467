// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replay of the journal at mount: the transactions that were committed and not written where they belong, as jbd2's three passes
//! do it (where the log ends; which blocks are revoked; writing).

use crate::Disk;
use crate::bytes::*;
use crate::checksum::crc32c;
use crate::journal::{HEADER, Journal, MAGIC, block_type, feature, tag};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::zeroed;
use ordered::Map;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Scan,
    Revoke,
    Write,
}

struct Replay<'a> {
    disk: &'a Arc<dyn Disk>,
    journal: &'a Journal,
    blocks: u64,
    /// The first transaction that is not in the log.
    end: u32,
    /// The last transaction that revoked a block.
    revoked: Map<u64, u32>,
    /// Where the log begins.
    start: u32,
}

/// Writes what the log has, and returns the sequence number behind it. The file system has `blocks` blocks. Of an empty log this is the
/// transaction that nobody was told of ([`Journal::shadow`]), if it is there.
pub fn replay(disk: &Arc<dyn Disk>, journal: &Journal, blocks: u64) -> Result<u32> {
    let start = if journal.is_started { be32(&journal.raw, 28) } else { journal.first };
    let mut replay = Replay { disk, journal, blocks, end: 0, revoked: Map::new(), start };
    replay.pass(Pass::Scan)?;
    replay.pass(Pass::Revoke)?;
    replay.pass(Pass::Write)?;
    disk.flush()?;
    Ok(replay.end.wrapping_add(1))
}

/// Sequence numbers wrap.
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Replay<'_> {
    fn read(&self, logical: u32, block: &mut [u8]) -> Result<()> {
        self.disk.read(self.journal.place(logical)? * self.journal.block_size as u64, block)
    }

    fn next(&self, at: u32) -> u32 {
        if at + 1 >= self.journal.length { self.journal.first } else { at + 1 }
    }

    /// Of a descriptor or a list of revoked blocks.
    fn has_valid_tail(&self, block: &mut [u8]) -> bool {
        if !self.journal.has_checksums() {
            return true;
        }
        let tail = block.len() - 4;
        let sum = be32(block, tail);
        put_be32(block, tail, 0);
        crc32c(self.journal.seed, block) == sum
    }

    fn is_valid_commit(&self, block: &mut [u8]) -> bool {
        if !self.journal.has_checksums() {
            return true;
        }
        let sum = be32(block, 16);
        put_be32(block, 16, 0);
        crc32c(self.journal.seed, block) == sum
    }

    fn pass(&mut self, pass: Pass) -> Result<()> {
        let mut at = self.start;
        let mut sequence = be32(&self.journal.raw, 24);
        let mut block = zeroed(self.journal.block_size)?;
        // Every block of the log is looked at once.
        let mut left = self.journal.length - self.journal.first;
        loop {
            if pass != Pass::Scan && sequence == self.end || left == 0 {
                break;
            }
            self.read(at, &mut block)?;
            if be32(&block, 0) != MAGIC || be32(&block, 8) != sequence {
                break;
            }
            at = self.next(at);
            left -= 1;
            match be32(&block, 4) {
                block_type::DESCRIPTOR => {
                    if !self.has_valid_tail(&mut block) {
                        break;
                    }
                    let tags = self.tags(&block)?;
                    if tags.len() as u32 > left {
                        break;
                    }
                    left -= tags.len() as u32;
                    for tag in tags {
                        if pass == Pass::Write {
                            self.write(at, sequence, &tag)?;
                        }
                        at = self.next(at);
                    }
                }
                block_type::COMMIT => {
                    if !self.is_valid_commit(&mut block) {
                        break;
                    }
                    sequence = sequence.wrapping_add(1);
                }
                block_type::REVOKE => {
                    if !self.has_valid_tail(&mut block) {
                        break;
                    }
                    if pass == Pass::Revoke {
                        self.revoke(&block, sequence)?;
                    }
                }
                _ => break,
            }
        }
        match pass {
            Pass::Scan => self.end = sequence,
            // A log that cannot be read again as it was.
            _ if sequence != self.end => return Err(EIO),
            _ => {}
        }
        Ok(())
    }

    fn tags(&self, block: &[u8]) -> Result<Vec<Tag>> {
        let (size, features) = (self.journal.tag_size(), self.journal.features);
        let end = block.len() - self.journal.tail();
        let mut tags = zeroed::<Tag>((end - HEADER) / size)?;
        let (mut count, mut position) = (0, HEADER);
        while position + size <= end {
            let entry = &block[position..position + size];
            let is_v3 = features & feature::CSUM_V3 != 0;
            let flags = if is_v3 { be32(entry, 4) } else { u32::from(be16(entry, 6)) };
            let mut number = u64::from(be32(entry, 0));
            if features & feature::BITS_64 != 0 {
                number |= u64::from(be32(entry, 8)) << 32;
            }
            let sum = match () {
                () if is_v3 => Some(Sum::Whole(be32(entry, 12))),
                () if features & feature::CSUM_V2 != 0 => Some(Sum::Half(be16(entry, 4))),
                () => None,
            };
            tags[count] = Tag { number, flags, sum };
            count += 1;
            position += size + if flags & tag::SAME_UUID == 0 { 16 } else { 0 };
            if flags & tag::LAST != 0 {
                break;
            }
        }
        tags.truncate(count);
        Ok(tags)
    }

    fn revoke(&mut self, block: &[u8], sequence: u32) -> Result<()> {
        let size = if self.journal.features & feature::BITS_64 != 0 { 8 } else { 4 };
        let end = (be32(block, 12) as usize).min(block.len() - self.journal.tail());
        let mut position = HEADER + 4;
        while position + size <= end {
            let number = match size {
                8 => u64::from(be32(block, position)) << 32 | u64::from(be32(block, position + 4)),
                _ => u64::from(be32(block, position)),
            };
            self.revoked.insert_fallibly(number, sequence).map_err(|_| ENOMEM)?;
            position += size;
        }
        Ok(())
    }

    fn write(&self, at: u32, sequence: u32, tag: &Tag) -> Result<()> {
        if self.revoked.get(&tag.number).is_some_and(|by| !is_after(sequence, *by)) {
            return Ok(());
        }
        if tag.number >= self.blocks {
            return Err(EUCLEAN);
        }
        let mut data = zeroed(self.journal.block_size)?;
        self.read(at, &mut data)?;
        let sum = self.journal.sum_of(sequence, &data);
        let is_valid = match tag.sum {
            None => true,
            Some(Sum::Whole(expected)) => sum == expected,
            Some(Sum::Half(expected)) => sum as u16 == expected,
        };
        if !is_valid {
            crate::log_damage("the checksum of a block in the journal is wrong", tag.number);
            return Err(EUCLEAN);
        }
        if tag.flags & tag::ESCAPED != 0 {
            put_be32(&mut data, 0, MAGIC);
        }
        self.disk.write(tag.number * self.journal.block_size as u64, &data)
    }
}

#[derive(Clone, Copy)]
enum Sum {
    Whole(u32),
    Half(u16),
}

/// A block of a transaction.
#[derive(Clone, Copy, Default)]
struct Tag {
    number: u64,
    flags: u32,
    sum: Option<Sum>,
}
