// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes as they are on the disk.

use crate::buffers::Kind;
use crate::bytes::*;
use crate::checksum::crc32c;
use crate::log_damage;
use crate::mount::Core;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_fs::{FileType, Stat, Timespec, zeroed};

pub mod flag {
    pub const INDEX: u32 = 0x1000;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const ENCRYPTED: u32 = 0x800;
    pub const VERITY: u32 = 0x10_0000;
    pub const EA_INODE: u32 = 0x20_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
    pub const CASEFOLD: u32 = 0x4000_0000;
    /// Data that this kernel cannot read.
    pub const FOREIGN: u32 = ENCRYPTED | VERITY | EA_INODE | INLINE_DATA | CASEFOLD;
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const NOATIME: u32 = 0x80;
    /// Those two, NODUMP and NOATIME.
    pub const PROTECTION: u32 = 0xf0;
}

mod at {
    pub const MODE: usize = 0;
    pub const UID: usize = 2;
    pub const SIZE: usize = 4;
    pub const ATIME: usize = 8;
    pub const CTIME: usize = 0xc;
    pub const MTIME: usize = 0x10;
    pub const DTIME: usize = 0x14;
    pub const GID: usize = 0x18;
    pub const LINKS: usize = 0x1a;
    pub const BLOCKS: usize = 0x1c;
    pub const FLAGS: usize = 0x20;
    pub const BLOCK: usize = 0x28;
    pub const GENERATION: usize = 0x64;
    pub const ACL: usize = 0x68;
    pub const SIZE_HIGH: usize = 0x6c;
    pub const BLOCKS_HIGH: usize = 0x74;
    pub const ACL_HIGH: usize = 0x76;
    pub const UID_HIGH: usize = 0x78;
    pub const GID_HIGH: usize = 0x7a;
    pub const SUM: usize = 0x7c;
    pub const EXTRA_ISIZE: usize = 0x80;
    pub const SUM_HIGH: usize = 0x82;
    pub const CTIME_EXTRA: usize = 0x84;
    pub const MTIME_EXTRA: usize = 0x88;
    pub const ATIME_EXTRA: usize = 0x8c;
    pub const CRTIME: usize = 0x90;
}

/// Bytes of an inode of old.
pub const OLD_SIZE: usize = 128;
/// Bytes of the root of the extents, or of a short link's target.
pub const BLOCK_BYTES: usize = 60;

#[derive(Clone, Copy, Debug)]
pub enum Time {
    Accessed,
    Modified,
    Changed,
}

/// A copy of an inode.
#[derive(Clone, Debug)]
pub struct Inode {
    pub number: u32,
    pub raw: Vec<u8>,
    /// The start of its sums, and of those of its blocks.
    pub seed: u32,
}

impl Inode {
    pub fn mode(&self) -> u32 {
        le16(&self.raw, at::MODE).into()
    }

    pub fn set_permissions(&mut self, permissions: u32) {
        let mode = self.mode() & 0o170000 | permissions & 0o7777;
        put16(&mut self.raw, at::MODE, mode as u16);
    }

    pub fn kind(&self) -> Option<FileType> {
        FileType::from_mode(self.mode())
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    pub fn is_regular(&self) -> bool {
        self.kind() == Some(FileType::Regular)
    }

    pub fn owner(&self) -> (u32, u32) {
        let id = |low, high| u32::from(le16(&self.raw, low)) | u32::from(le16(&self.raw, high)) << 16;
        (id(at::UID, at::UID_HIGH), id(at::GID, at::GID_HIGH))
    }

    pub fn set_owner(&mut self, (uid, gid): (u32, u32)) {
        for (id, low, high) in [(uid, at::UID, at::UID_HIGH), (gid, at::GID, at::GID_HIGH)] {
            put16(&mut self.raw, low, id as u16);
            put16(&mut self.raw, high, (id >> 16) as u16);
        }
    }

    pub fn size(&self) -> u64 {
        u64::from(le32(&self.raw, at::SIZE)) | u64::from(le32(&self.raw, at::SIZE_HIGH)) << 32
    }

    pub fn set_size(&mut self, size: u64) {
        put32(&mut self.raw, at::SIZE, size as u32);
        put32(&mut self.raw, at::SIZE_HIGH, (size >> 32) as u32);
    }

    pub fn links(&self) -> u16 {
        le16(&self.raw, at::LINKS)
    }

    pub fn set_links(&mut self, links: u16) {
        put16(&mut self.raw, at::LINKS, links);
    }

    pub fn flags(&self) -> u32 {
        le32(&self.raw, at::FLAGS)
    }

    pub fn set_flags(&mut self, flags: u32) {
        put32(&mut self.raw, at::FLAGS, flags);
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    /// The root of its extents, or the target of a short link.
    pub fn block(&self) -> &[u8] {
        &self.raw[at::BLOCK..at::BLOCK + BLOCK_BYTES]
    }

    pub fn block_mut(&mut self) -> &mut [u8] {
        &mut self.raw[at::BLOCK..at::BLOCK + BLOCK_BYTES]
    }

    /// Of an inode to be freed: the next one, in the place of the time of its end.
    pub fn next_orphan(&self) -> u32 {
        le32(&self.raw, at::DTIME)
    }

    pub fn set_next_orphan(&mut self, next: u32) {
        put32(&mut self.raw, at::DTIME, next);
    }

    /// The block of its extended attributes, or 0.
    pub fn attributes(&self) -> u64 {
        le48(&self.raw, at::ACL, at::ACL_HIGH)
    }

    pub fn set_attributes(&mut self, block: u64) {
        put32(&mut self.raw, at::ACL, block as u32);
        put16(&mut self.raw, at::ACL_HIGH, (block >> 32) as u16);
    }

    /// Blocks of 512 bytes, of an inode on a file system with blocks of `block_size`.
    fn sectors(&self, block_size: usize) -> u64 {
        let blocks = le48(&self.raw, at::BLOCKS, at::BLOCKS_HIGH);
        if self.has(flag::HUGE_FILE) { blocks * (block_size / 512) as u64 } else { blocks }
    }

    /// Adds to its blocks of the file system, or takes away.
    pub fn add_blocks(&mut self, blocks: i64, block_size: usize) {
        let unit = if self.has(flag::HUGE_FILE) { 1 } else { (block_size / 512) as i64 };
        let all = le48(&self.raw, at::BLOCKS, at::BLOCKS_HIGH);
        let all = all.saturating_add_signed(blocks * unit);
        put32(&mut self.raw, at::BLOCKS, all as u32);
        put16(&mut self.raw, at::BLOCKS_HIGH, (all >> 32) as u16);
    }

    /// Bytes behind the 128 of old that have fields.
    pub fn extra(&self) -> usize {
        if self.raw.len() == OLD_SIZE { 0 } else { le16(&self.raw, at::EXTRA_ISIZE).into() }
    }

    fn has_field(&self, at: usize) -> bool {
        at + 4 <= OLD_SIZE + self.extra()
    }

    pub fn time(&self, which: Time) -> Timespec {
        let (low, extra) = places(which);
        let mut time = Timespec { seconds: i64::from(le32(&self.raw, low) as i32), nanoseconds: 0 };
        if self.has_field(extra) {
            let extra = le32(&self.raw, extra);
            time.seconds += i64::from(extra & 3) << 32;
            time.nanoseconds = (extra >> 2).min(999_999_999);
        }
        time
    }

    pub fn set_time(&mut self, which: Time, time: Timespec) {
        let (low, extra) = places(which);
        if self.has_field(extra) {
            // What two more bits of seconds can say.
            let seconds = time.seconds.clamp(i64::from(i32::MIN), (3 << 32) + i64::from(i32::MAX));
            put32(&mut self.raw, low, seconds as u32);
            let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
            put32(&mut self.raw, extra, time.nanoseconds << 2 | epoch);
        } else {
            let seconds = time.seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            put32(&mut self.raw, low, seconds as u32);
        }
    }

    /// The number of a device node.
    pub fn device(&self) -> u64 {
        let (old, new) = (le32(self.block(), 0), le32(self.block(), 4));
        if old != 0 {
            return u64::from(old & 0xffff);
        }
        // Linux' encoding of 32 bits and that of a stat are one for numbers that small.
        u64::from(new)
    }

    fn set_device(&mut self, device: u64) {
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        if major < 256 && minor < 256 {
            put32(self.block_mut(), 0, (major << 8 | minor) as u32);
        } else {
            put32(self.block_mut(), 4, device as u32);
        }
    }

    pub fn stat(&self, block_size: usize) -> Result<Stat> {
        let mut stat = Stat::new(self.kind().ok_or(EUCLEAN)?, self.mode() & 0o7777);
        stat.inode = self.number.into();
        (stat.uid, stat.gid) = self.owner();
        stat.links = self.links().into();
        if matches!(stat.kind, FileType::CharDevice | FileType::BlockDevice) {
            stat.rdev = self.device();
        }
        stat.size = self.size();
        stat.block_size = block_size as u32;
        stat.blocks = self.sectors(block_size);
        stat.accessed = self.time(Time::Accessed);
        stat.modified = self.time(Time::Modified);
        stat.changed = self.time(Time::Changed);
        Ok(stat)
    }

    fn sum(&self) -> u32 {
        let has_high = self.extra() >= 4;
        let mut sum = crc32c(self.seed, &self.raw[..at::SUM]);
        sum = crc32c(sum, &[0; 2]);
        let rest = at::SUM + 2;
        if has_high {
            sum = crc32c(sum, &self.raw[rest..at::SUM_HIGH]);
            sum = crc32c(sum, &[0; 2]);
            crc32c(sum, &self.raw[at::SUM_HIGH + 2..])
        } else {
            crc32c(sum, &self.raw[rest..])
        }
    }

    fn is_valid(&self) -> bool {
        let sum = self.sum();
        let has_high = self.extra() >= 4;
        sum as u16 == le16(&self.raw, at::SUM)
            && (!has_high || (sum >> 16) as u16 == le16(&self.raw, at::SUM_HIGH))
    }

    fn seal(&mut self) {
        let sum = self.sum();
        put16(&mut self.raw, at::SUM, sum as u16);
        if self.extra() >= 4 {
            put16(&mut self.raw, at::SUM_HIGH, (sum >> 16) as u16);
        }
    }
}

fn places(which: Time) -> (usize, usize) {
    match which {
        Time::Accessed => (at::ATIME, at::ATIME_EXTRA),
        Time::Modified => (at::MTIME, at::MTIME_EXTRA),
        Time::Changed => (at::CTIME, at::CTIME_EXTRA),
    }
}

/// What a new inode is made with.
#[derive(Clone, Copy, Debug)]
pub struct New {
    pub kind: FileType,
    pub permissions: u32,
    pub owner: (u32, u32),
    pub device: u64,
    pub now: Timespec,
}

impl Core {
    fn seed_of(&self, number: u32, generation: u32) -> u32 {
        crc32c(crc32c(self.superblock.seed, &number.to_le_bytes()), &generation.to_le_bytes())
    }

    /// An inode that names may lead to.
    pub(crate) fn inode(&mut self, number: u32) -> Result<Inode> {
        if number != crate::ROOT && number < self.superblock.first_inode {
            log_damage("a name leads to a reserved inode", number.into());
            return Err(EUCLEAN);
        }
        self.inode_or_reserved(number)
    }

    /// An inode in use: `EUCLEAN` for one that is free, or makes no sense.
    pub(crate) fn inode_or_reserved(&mut self, number: u32) -> Result<Inode> {
        let (block, at) = self.inode_place(number)?;
        let size = self.superblock.inode_size;
        let mut raw = zeroed(size)?;
        raw.copy_from_slice(&self.buffers.get(block, Kind::Plain)?[at..at + size]);
        let seed = self.seed_of(number, le32(&raw, at::GENERATION));
        let inode = Inode { number, raw, seed };
        let extra = inode.extra();
        let is_sane = extra.is_multiple_of(4)
            && extra <= size - OLD_SIZE
            && inode.kind().is_some()
            && inode.size() <= self.superblock.max_size()
            && (!self.superblock.has_checksums() || inode.is_valid());
        if !is_sane {
            log_damage("an inode is damaged", number.into());
            return Err(EUCLEAN);
        }
        Ok(inode)
    }

    /// Writes an inode back, in the running operation.
    pub(crate) fn put(&mut self, inode: &mut Inode) -> Result<()> {
        let (block, at) = self.inode_place(inode.number)?;
        if self.superblock.has_checksums() {
            inode.seal();
        }
        let size = self.superblock.inode_size;
        self.buffers.edit(block, Kind::Plain)?[at..at + size].copy_from_slice(&inode.raw);
        Ok(())
    }

    /// A new inode beside `parent`, which nobody knows yet: not written.
    pub(crate) fn new_inode(&mut self, parent: u32, new: &New) -> Result<Inode> {
        let is_directory = new.kind == FileType::Directory;
        let number = self.allocate_inode(parent, is_directory)?;
        let (block, at) = self.inode_place(number)?;
        let size = self.superblock.inode_size;
        // Another generation than the inode before it had: handles and sums of that one are of no use.
        let old = le32(&self.buffers.get(block, Kind::Plain)?[at..at + size], at::GENERATION);
        let generation = old.wrapping_add(1) ^ new.now.nanoseconds & 0xffff_0000;
        let mut inode = Inode { number, raw: zeroed(size)?, seed: self.seed_of(number, generation) };
        put32(&mut inode.raw, at::GENERATION, generation);
        if size > OLD_SIZE {
            put16(
                &mut inode.raw,
                at::EXTRA_ISIZE,
                self.superblock.extra_isize.max(32).min((size - OLD_SIZE) as u16),
            );
        }
        put16(&mut inode.raw, at::MODE, (new.kind as u32 | new.permissions & 0o7777) as u16);
        inode.set_owner(new.owner);
        inode.set_links(1);
        for which in [Time::Accessed, Time::Modified, Time::Changed] {
            inode.set_time(which, new.now);
        }
        if inode.has_field(at::CRTIME + 4) {
            put32(&mut inode.raw, at::CRTIME, new.now.seconds as u32);
            put32(
                &mut inode.raw,
                at::CRTIME + 4,
                new.now.nanoseconds << 2 | (new.now.seconds >> 32) as u32 & 3,
            );
        }
        match new.kind {
            FileType::Directory | FileType::Regular => {
                inode.set_flags(flag::EXTENTS);
                crate::extents::make_root(inode.block_mut());
            }
            FileType::CharDevice | FileType::BlockDevice => inode.set_device(new.device),
            _ => {}
        }
        Ok(inode)
    }
}
