// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block groups: their descriptors and bitmaps, and the allocation of blocks and inodes.

use crate::buffers::Kind;
use crate::bytes::*;
use crate::checksum::{crc16, crc32c};
use crate::log_damage;
use crate::mount::Core;
use crate::superblock::{Checksums, Superblock, field};
use abi::{Result, errno::*};
use api_alloc::Reserve;
use api_fs::zeroed;

const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;

mod at {
    pub const BLOCK_BITMAP: usize = 0;
    pub const INODE_BITMAP: usize = 4;
    pub const INODE_TABLE: usize = 8;
    pub const FREE_BLOCKS: usize = 0xc;
    pub const FREE_INODES: usize = 0xe;
    pub const DIRECTORIES: usize = 0x10;
    pub const FLAGS: usize = 0x12;
    pub const BLOCK_BITMAP_SUM: usize = 0x18;
    pub const INODE_BITMAP_SUM: usize = 0x1a;
    pub const UNUSED_INODES: usize = 0x1c;
    pub const SUM: usize = 0x1e;
    /// From the low half of a field to the high one, of fields of 4 bytes and of those of 2.
    pub const HIGH_4: usize = 0x20;
    pub const HIGH_2: usize = 0x20;
}

/// A group's descriptor.
pub struct Descriptor<'a> {
    raw: &'a mut [u8],
    is_large: bool,
}

impl Descriptor<'_> {
    fn wide(&self, low: usize) -> u64 {
        let high = if self.is_large { le32(self.raw, low + at::HIGH_4) } else { 0 };
        u64::from(le32(self.raw, low)) | u64::from(high) << 32
    }

    fn number(&self, low: usize) -> u32 {
        let high = if self.is_large { le16(self.raw, low + at::HIGH_2) } else { 0 };
        u32::from(le16(self.raw, low)) | u32::from(high) << 16
    }

    fn set_number(&mut self, low: usize, value: u32) {
        put16(self.raw, low, value as u16);
        if self.is_large {
            put16(self.raw, low + at::HIGH_2, (value >> 16) as u16);
        }
    }

    fn flags(&self) -> u16 {
        le16(self.raw, at::FLAGS)
    }

    fn clear_flag(&mut self, flag: u16) {
        put16(self.raw, at::FLAGS, self.flags() & !flag);
    }

    fn sum(&self, superblock: &Superblock, group: u32) -> u16 {
        let group = group.to_le_bytes();
        let behind = &self.raw[at::SUM + 2..];
        match superblock.checksums {
            Checksums::None => 0,
            Checksums::Groups => {
                let sum = crc16(crc16(!0, &superblock.uuid), &group);
                let sum = crc16(sum, &self.raw[..at::SUM]);
                if self.is_large { crc16(sum, behind) } else { sum }
            }
            Checksums::All => {
                let sum = crc32c(crc32c(superblock.seed, &group), &self.raw[..at::SUM]);
                crc32c(crc32c(sum, &[0; 2]), behind) as u16
            }
        }
    }
}

fn is_set(bitmap: &[u8], bit: u32) -> bool {
    bitmap[bit as usize / 8] & 1 << (bit % 8) != 0
}

fn set_bits(bitmap: &mut [u8], start: u32, count: u32) {
    (start..start + count).for_each(|bit| bitmap[bit as usize / 8] |= 1 << (bit % 8));
}

impl Core {
    fn descriptor_place(&self, group: u32) -> (u64, usize) {
        let in_block = (self.superblock.block_size / self.superblock.descriptor_size) as u32;
        let first = u64::from(self.superblock.first_data_block) + 1;
        (first + u64::from(group / in_block), (group % in_block) as usize * self.superblock.descriptor_size)
    }

    /// Reads from a group's descriptor. It was verified when the file system was mounted.
    fn with_group<T>(&mut self, group: u32, read: impl FnOnce(&Descriptor<'_>) -> T) -> Result<T> {
        let (block, at) = self.descriptor_place(group);
        let (size, is_large) = (self.superblock.descriptor_size, self.superblock.has_large_groups);
        let mut raw = [0; 64];
        let length = size.min(64);
        raw[..length].copy_from_slice(&self.buffers.get(block, Kind::Plain)?[at..at + length]);
        Ok(read(&Descriptor { raw: &mut raw[..length], is_large }))
    }

    fn edit_group(&mut self, group: u32, change: impl FnOnce(&mut Descriptor<'_>)) -> Result<()> {
        let (block, at) = self.descriptor_place(group);
        let (size, is_large) = (self.superblock.descriptor_size, self.superblock.has_large_groups);
        let raw = &mut self.buffers.edit(block, Kind::Plain)?[at..at + size];
        let mut descriptor = Descriptor { raw, is_large };
        change(&mut descriptor);
        let sum = descriptor.sum(&self.superblock, group);
        if self.superblock.checksums != Checksums::None {
            put16(descriptor.raw, at::SUM, sum);
        }
        Ok(())
    }

    /// Verifies all descriptors, and notes which blocks belong to no file.
    pub(crate) fn check_groups(&mut self) -> Result<()> {
        let superblock = self.superblock.clone();
        let count = superblock.groups as usize * 4;
        self.system.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
        for group in 0..superblock.groups {
            let (block, at) = self.descriptor_place(group);
            let size = superblock.descriptor_size;
            let mut copy = zeroed(size)?;
            copy.copy_from_slice(&self.buffers.get(block, Kind::Plain)?[at..at + size]);
            let descriptor = Descriptor { raw: &mut copy, is_large: superblock.has_large_groups };
            let sum = descriptor.sum(&superblock, group);
            if superblock.checksums != Checksums::None && sum != le16(descriptor.raw, at::SUM) {
                log_damage("the checksum of a group is wrong", group.into());
                return Err(EUCLEAN);
            }
            let table = superblock.inode_table_blocks();
            let places = [(at::BLOCK_BITMAP, 1), (at::INODE_BITMAP, 1), (at::INODE_TABLE, table)];
            for (place, blocks) in places {
                let start = descriptor.wide(place);
                let end = start.checked_add(blocks).filter(|end| *end <= superblock.blocks).ok_or(EUCLEAN)?;
                if start <= u64::from(superblock.first_data_block) {
                    log_damage("a group's tables are in the wrong place", group.into());
                    return Err(EUCLEAN);
                }
                self.system.push((start, end));
            }
            let start = superblock.group_start(group);
            let taken = superblock.blocks_of_super(group);
            if taken > u64::from(superblock.blocks_of(group)) {
                return Err(EUCLEAN);
            }
            if taken > 0 {
                self.system.push((start, start + taken));
            }
        }
        // Nothing may lie over something else, or allocation would give it away.
        self.system.sort_unstable();
        if self.system.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            log_damage("tables of groups overlap", 0);
            return Err(EUCLEAN);
        }
        Ok(())
    }

    /// `EUCLEAN` unless these blocks may be a file's.
    pub(crate) fn check_blocks(&self, start: u64, count: u64) -> Result<()> {
        let end = start.checked_add(count).filter(|end| *end <= self.superblock.blocks);
        let end = end.filter(|_| start > u64::from(self.superblock.first_data_block)).ok_or(EUCLEAN)?;
        let next = self.system.partition_point(|(_, system_end)| *system_end <= start);
        if self.system.get(next).is_some_and(|(system_start, _)| *system_start < end) {
            log_damage("a file has a block of the file system's", start);
            return Err(EUCLEAN);
        }
        Ok(())
    }

    /// Loads the bitmap of a group's blocks: its place and what it is.
    fn block_bitmap(&mut self, group: u32) -> Result<(u64, Kind)> {
        let (block, sum, flags) = self.with_group(group, |descriptor| {
            (descriptor.wide(at::BLOCK_BITMAP), descriptor.number(at::BLOCK_BITMAP_SUM), descriptor.flags())
        })?;
        let kind = Kind::BlockBitmap(group);
        if self.buffers.is_in_memory(block) {
            self.buffers.get_unverified(block, kind)?;
            return Ok((block, kind));
        }
        if flags & BLOCK_UNINIT != 0 && self.superblock.checksums != Checksums::None {
            self.make_block_bitmap(group, block)?;
            return Ok((block, kind));
        }
        let bytes = self.superblock.blocks_per_group as usize / 8;
        self.verify_bitmap(block, kind, bytes, sum)?;
        Ok((block, kind))
    }

    fn verify_bitmap(&mut self, block: u64, kind: Kind, bytes: usize, expected: u32) -> Result<()> {
        let (seed, has) = (self.superblock.seed, self.superblock.has_checksums());
        let mask = if self.superblock.has_large_groups { u32::MAX } else { 0xffff };
        let sum = crc32c(seed, &self.buffers.get_unverified(block, kind)?[..bytes]);
        if has && sum & mask != expected & mask {
            self.buffers.drop_clean(block);
            log_damage("the checksum of a bitmap is wrong", block);
            return Err(EUCLEAN);
        }
        Ok(())
    }

    /// The bitmap of a group that mkfs left out: what the group's tables take is taken.
    fn make_block_bitmap(&mut self, group: u32, block: u64) -> Result<()> {
        let (start, blocks) = (self.superblock.group_start(group), self.superblock.blocks_of(group));
        let end = start + u64::from(blocks);
        let bits = (self.superblock.block_size * 8) as u32;
        let first = self.system.partition_point(|(_, system_end)| *system_end <= start);
        let bitmap = self.buffers.fresh(block, Kind::BlockBitmap(group))?;
        for (from, to) in self.system[first..].iter().take_while(|(from, _)| *from < end) {
            let (from, to) = (from.max(&start) - start, to.min(&end) - start);
            set_bits(bitmap, from as u32, (to - from) as u32);
        }
        set_bits(bitmap, blocks, bits - blocks);
        self.edit_group(group, |descriptor| descriptor.clear_flag(BLOCK_UNINIT))
    }

    /// Takes up to `wanted` free blocks that lie together, near `goal`.
    pub(crate) fn allocate(&mut self, goal: u64, wanted: u32) -> Result<(u64, u32)> {
        let groups = self.superblock.groups;
        let goal = if (u64::from(self.superblock.first_data_block)..self.superblock.blocks).contains(&goal) {
            goal
        } else {
            u64::from(self.superblock.first_data_block)
        };
        let first = self.superblock.group_of(goal);
        // The first group is looked through twice: from the goal on, and from its start.
        for step in 0..=groups {
            let group = (first + step) % groups;
            let from = if step == 0 { (goal - self.superblock.group_start(group)) as u32 } else { 0 };
            if let Some(found) = self.allocate_in(group, from, wanted)? {
                return Ok(found);
            }
        }
        Err(ENOSPC)
    }

    fn allocate_in(&mut self, group: u32, from: u32, wanted: u32) -> Result<Option<(u64, u32)>> {
        if self.with_group(group, |descriptor| descriptor.number(at::FREE_BLOCKS))? == 0 {
            return Ok(None);
        }
        let (block, kind) = self.block_bitmap(group)?;
        let blocks = self.superblock.blocks_of(group);
        let bitmap = self.buffers.get_unverified(block, kind)?;
        let freed = self.freed.get(&group);
        let byte = |at: usize| bitmap[at] | freed.map_or(0, |freed| freed[at]);
        let is_free = |bit: u32| byte(bit as usize / 8) & 1 << (bit % 8) == 0;
        let mut start = from;
        while start < blocks && !is_free(start) {
            let is_full = start.is_multiple_of(8) && byte(start as usize / 8) == 0xff;
            start += if is_full { 8 } else { 1 };
        }
        if start >= blocks {
            return Ok(None);
        }
        let end = blocks.min(start.saturating_add(wanted));
        let count = (start..end).take_while(|bit| is_free(*bit)).count() as u32;
        let first = self.superblock.group_start(group) + u64::from(start);
        // What a wrong bitmap gives away may be the file system's own.
        self.check_blocks(first, count.into())?;
        self.change_blocks(group, start, count, true)?;
        self.next_block = first + u64::from(count);
        Ok(Some((first, count)))
    }

    fn change_blocks(&mut self, group: u32, start: u32, count: u32, takes: bool) -> Result<()> {
        let (block, kind) = self.block_bitmap(group)?;
        let bitmap = self.buffers.edit(block, kind)?;
        for bit in start..start + count {
            if is_set(bitmap, bit) == takes {
                log_damage("a block was freed twice, or is used twice, in group", group.into());
                return Err(EUCLEAN);
            }
            bitmap[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let free = self.with_group(group, |descriptor| descriptor.number(at::FREE_BLOCKS))?;
        let free = if takes { free.checked_sub(count).ok_or(EUCLEAN)? } else { free + count };
        if free > self.superblock.blocks_of(group) {
            return Err(EUCLEAN);
        }
        self.edit_group(group, |descriptor| {
            descriptor.set_number(at::FREE_BLOCKS, free);
            descriptor.clear_flag(BLOCK_UNINIT);
        })?;
        let raw = self.edit_superblock()?;
        let (low, high) = (le32(raw, field::FREE_BLOCKS), le32(raw, field::FREE_BLOCKS_HIGH));
        let all = u64::from(low) | u64::from(high) << 32;
        let all = if takes { all.saturating_sub(count.into()) } else { all.saturating_add(count.into()) };
        put32(raw, field::FREE_BLOCKS, all as u32);
        if self.superblock.is_64bit {
            put32(self.edit_superblock()?, field::FREE_BLOCKS_HIGH, (all >> 32) as u32);
        }
        Ok(())
    }

    /// Frees blocks, which nobody uses before the transaction is committed.
    pub(crate) fn free(&mut self, start: u64, count: u32) -> Result<()> {
        self.check_blocks(start, count.into())?;
        let (mut at, end) = (start, start + u64::from(count));
        while at < end {
            let group = self.superblock.group_of(at);
            let first = (at - self.superblock.group_start(group)) as u32;
            let here = (self.superblock.blocks_of(group) - first).min((end - at) as u32);
            if !self.freed.contains_key(&group) {
                let bitmap = zeroed(self.superblock.block_size)?;
                self.freed.insert_fallibly(group, bitmap).map_err(|_| ENOMEM)?;
            }
            if let Some(bitmap) = self.freed.get_mut(&group) {
                set_bits(bitmap, first, here);
            }
            self.change_blocks(group, first, here, false)?;
            at += u64::from(here);
        }
        Ok(())
    }

    /// Frees a block of metadata.
    pub(crate) fn free_metadata(&mut self, block: u64, kind: Kind) -> Result<()> {
        self.must_checkpoint |= self.buffers.forget(block, kind)?;
        self.free(block, 1)
    }

    fn inode_bitmap(&mut self, group: u32) -> Result<(u64, Kind)> {
        let (block, sum, flags) = self.with_group(group, |descriptor| {
            (descriptor.wide(at::INODE_BITMAP), descriptor.number(at::INODE_BITMAP_SUM), descriptor.flags())
        })?;
        let kind = Kind::InodeBitmap(group);
        if self.buffers.is_in_memory(block) {
            self.buffers.get_unverified(block, kind)?;
            return Ok((block, kind));
        }
        let inodes = self.superblock.inodes_per_group;
        if flags & INODE_UNINIT != 0 && self.superblock.checksums != Checksums::None {
            let bits = (self.superblock.block_size * 8) as u32;
            set_bits(self.buffers.fresh(block, kind)?, inodes, bits - inodes);
            self.edit_group(group, |descriptor| descriptor.clear_flag(INODE_UNINIT))?;
            return Ok((block, kind));
        }
        self.verify_bitmap(block, kind, inodes as usize / 8, sum)?;
        Ok((block, kind))
    }

    /// Takes a free inode: for a directory in a group with room, for other files in their directory's.
    pub(crate) fn allocate_inode(&mut self, parent: u32, is_directory: bool) -> Result<u32> {
        let (groups, per_group) = (self.superblock.groups, self.superblock.inodes_per_group);
        let first = (parent - 1) / per_group;
        for step in 0..groups {
            let group = (first + step) % groups;
            if self.with_group(group, |descriptor| descriptor.number(at::FREE_INODES))? == 0 {
                continue;
            }
            let (block, kind) = self.inode_bitmap(group)?;
            let reserved = if group == 0 { self.superblock.first_inode - 1 } else { 0 };
            let bitmap = self.buffers.get_unverified(block, kind)?;
            let Some(bit) = (reserved..per_group).find(|bit| !is_set(bitmap, *bit)) else { continue };
            set_bits(self.buffers.edit(block, kind)?, bit, 1);
            self.count_inode(group, is_directory, true)?;
            let checksums = self.superblock.checksums;
            self.edit_group(group, |descriptor| {
                let unused = descriptor.number(at::UNUSED_INODES).min(per_group - bit - 1);
                if checksums != Checksums::None {
                    descriptor.set_number(at::UNUSED_INODES, unused);
                }
            })?;
            return Ok(group * per_group + bit + 1);
        }
        Err(ENOSPC)
    }

    fn count_inode(&mut self, group: u32, is_directory: bool, takes: bool) -> Result<()> {
        let change = |number: u32, takes: bool| if takes { number.checked_sub(1) } else { Some(number + 1) };
        let (free, directories) = self.with_group(group, |descriptor| {
            (descriptor.number(at::FREE_INODES), descriptor.number(at::DIRECTORIES))
        })?;
        let free =
            change(free, takes).filter(|free| *free <= self.superblock.inodes_per_group).ok_or(EUCLEAN)?;
        let directories =
            if is_directory { change(directories, !takes).ok_or(EUCLEAN)? } else { directories };
        self.edit_group(group, |descriptor| {
            descriptor.set_number(at::FREE_INODES, free);
            descriptor.set_number(at::DIRECTORIES, directories);
            descriptor.clear_flag(INODE_UNINIT);
        })?;
        let raw = self.edit_superblock()?;
        let all = le32(raw, field::FREE_INODES);
        put32(raw, field::FREE_INODES, if takes { all.saturating_sub(1) } else { all.saturating_add(1) });
        Ok(())
    }

    pub(crate) fn free_inode(&mut self, inode: u32, is_directory: bool) -> Result<()> {
        let (group, bit) = self.inode_group(inode)?;
        let (block, kind) = self.inode_bitmap(group)?;
        let bitmap = self.buffers.edit(block, kind)?;
        if !is_set(bitmap, bit) {
            log_damage("an inode was freed twice", inode.into());
            return Err(EUCLEAN);
        }
        bitmap[bit as usize / 8] &= !(1 << (bit % 8));
        self.count_inode(group, is_directory, false)
    }

    fn inode_group(&self, inode: u32) -> Result<(u32, u32)> {
        if inode == 0 || inode > self.superblock.inodes {
            return Err(EUCLEAN);
        }
        let per_group = self.superblock.inodes_per_group;
        Ok(((inode - 1) / per_group, (inode - 1) % per_group))
    }

    /// Whether an inode is in use, by its bitmap.
    pub(crate) fn is_inode_used(&mut self, inode: u32) -> Result<bool> {
        let (group, bit) = self.inode_group(inode)?;
        if self.with_group(group, |descriptor| descriptor.flags())? & INODE_UNINIT != 0 {
            return Ok(false);
        }
        let (block, kind) = self.inode_bitmap(group)?;
        Ok(is_set(self.buffers.get_unverified(block, kind)?, bit))
    }

    /// The block with an inode, and where it is in it.
    pub(crate) fn inode_place(&mut self, inode: u32) -> Result<(u64, usize)> {
        let (group, index) = self.inode_group(inode)?;
        let table = self.with_group(group, |descriptor| descriptor.wide(at::INODE_TABLE))?;
        let size = self.superblock.inode_size;
        let offset = index as usize * size;
        let block = table + (offset / self.superblock.block_size) as u64;
        Ok((block, offset % self.superblock.block_size))
    }

    /// Puts the sum of a bitmap that was changed into its group's descriptor.
    pub(crate) fn seal_bitmap(&mut self, block: u64, kind: Kind) -> Result<()> {
        if !self.superblock.has_checksums() {
            return Ok(());
        }
        let (group, place, bits) = match kind {
            Kind::BlockBitmap(group) => (group, at::BLOCK_BITMAP_SUM, self.superblock.blocks_per_group),
            Kind::InodeBitmap(group) => (group, at::INODE_BITMAP_SUM, self.superblock.inodes_per_group),
            _ => return Ok(()),
        };
        let bytes = bits as usize / 8;
        let sum = crc32c(self.superblock.seed, &self.buffers.get_unverified(block, kind)?[..bytes]);
        self.edit_group(group, |descriptor| descriptor.set_number(place, sum))
    }
}
