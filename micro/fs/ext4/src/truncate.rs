// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making files shorter and longer, holes, and blocks that are reserved: fallocate(2) and truncate(2). What may take more than one
//! transaction is on the list of orphans meanwhile, so that the next mount goes on with it.

use crate::buffers::Kind;
use crate::extents::{Extent, MAX_UNWRITTEN};
use crate::inode::{Inode, Time, flag};
use crate::mount::{CREDITS, Core};
use abi::{PAGE_SIZE, Result, errno::*};
use api_fs::Timespec;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

impl Core {
    pub(crate) fn regular(&mut self, number: u32) -> Result<Inode> {
        let inode = self.inode(number)?;
        match inode.kind() {
            Some(api_fs::FileType::Directory) => Err(EISDIR),
            _ if !inode.is_regular() => Err(EINVAL),
            _ if inode.has(flag::FOREIGN) => Err(EOPNOTSUPP),
            _ => Ok(inode),
        }
    }

    pub fn truncate(&mut self, number: u32, size: u64, now: Timespec) -> Result<()> {
        let inode = self.regular(number)?;
        self.check_size(size)?;
        self.check_writable()?;
        let old = inode.size();
        if size > old {
            self.zero_behind(number, old)?;
        } else if size < old {
            // The rest of the last block reads as zeros if the file grows again.
            self.zero_page_from(number, size)?;
        }
        self.transact(CREDITS, |core| {
            let mut inode = core.inode(number)?;
            inode.set_size(size);
            inode.set_time(Time::Modified, now);
            inode.set_time(Time::Changed, now);
            if size < old {
                core.add_orphan(&mut inode)?;
            }
            core.put(&mut inode)
        })?;
        self.set_length(number, size);
        if size < old {
            self.drop_pages(number, size.div_ceil(PAGE_SIZE as u64));
            self.finish_cut(number)?;
        }
        Ok(())
    }

    /// Frees what is behind the end of a file on the list, and takes it off.
    pub(crate) fn finish_cut(&mut self, number: u32) -> Result<()> {
        let size = self.inode(number)?.size();
        let first = size.div_ceil(self.superblock.block_size as u64);
        self.cut_blocks(number, u32::try_from(first).map_err(|_| EUCLEAN)?)?;
        self.transact(CREDITS, |core| {
            let mut inode = core.inode(number)?;
            core.remove_orphan(&mut inode)?;
            core.put(&mut inode)
        })
    }

    /// Frees all blocks from `first` on, from the end, in as many operations as it takes.
    pub(crate) fn cut_blocks(&mut self, number: u32, first: u32) -> Result<()> {
        let inode = self.inode(number)?;
        // Devices and short links have something else there.
        if !inode.has(flag::EXTENTS) {
            return Ok(());
        }
        // Blocks of directories and links are in memory as metadata.
        let kind = match inode.kind() {
            Some(api_fs::FileType::Directory) => Some(Kind::Directory(inode.seed)),
            Some(api_fs::FileType::Symlink) => Some(Kind::Plain),
            _ => None,
        };
        let limit = self.credits_of_part();
        loop {
            let is_done = self.transact(limit, |core| {
                let mut inode = core.inode(number)?;
                let begin = core.buffers.dirty_count();
                while core.buffers.dirty_count() - begin + CREDITS / 2 < limit {
                    let Some(last) = core.last_extent(&inode)? else {
                        core.put(&mut inode)?;
                        return Ok(true);
                    };
                    if last.end() <= u64::from(first) {
                        core.put(&mut inode)?;
                        return Ok(true);
                    }
                    // One extent lies in few groups.
                    let from = last.logical.max(first);
                    let Some(gone) = core.cut(&mut inode, from, last.end())? else { return Err(EUCLEAN) };
                    core.release_extent(&mut inode, gone, kind)?;
                }
                core.put(&mut inode)?;
                Ok(false)
            })?;
            if is_done {
                return Ok(());
            }
        }
    }

    fn release_extent(&mut self, inode: &mut Inode, gone: Extent, kind: Option<Kind>) -> Result<()> {
        if let Some(kind) = kind {
            for block in gone.physical..gone.physical + u64::from(gone.count) {
                self.must_checkpoint |= self.buffers.forget(block, kind)?;
            }
        }
        self.free(gone.physical, gone.count)?;
        inode.add_blocks(-i64::from(gone.count), self.superblock.block_size);
        Ok(())
    }

    /// fallocate(2): reserves blocks, or makes a hole (FALLOC_FL_PUNCH_HOLE), or zeros (FALLOC_FL_ZERO_RANGE).
    pub fn allocate_range(
        &mut self,
        number: u32,
        mode: u32,
        offset: u64,
        length: u64,
        now: Timespec,
    ) -> Result<()> {
        let inode = self.regular(number)?;
        if inode.has(flag::IMMUTABLE) || inode.has(flag::APPEND) && mode & !KEEP_SIZE != 0 {
            return Err(EPERM);
        }
        let end = offset.checked_add(length).ok_or(EFBIG)?;
        match mode {
            0 | KEEP_SIZE => {
                self.check_size(end)?;
                self.reserve_range(number, offset, end)?;
            }
            m if m == PUNCH_HOLE | KEEP_SIZE => {
                let end = end.min(inode.size().next_multiple_of(PAGE_SIZE as u64));
                self.punch(number, offset, end)?;
            }
            ZERO_RANGE | 0x11 => {
                self.check_size(end)?;
                self.punch(number, offset, end)?;
                self.reserve_range(number, offset, end)?;
            }
            _ => return Err(EOPNOTSUPP),
        }
        let grows = mode & KEEP_SIZE == 0 && end > inode.size();
        if grows {
            self.zero_behind(number, inode.size())?;
        }
        self.transact(CREDITS, |core| {
            let mut inode = core.inode(number)?;
            if grows {
                inode.set_size(end);
            }
            if mode & !KEEP_SIZE != 0 {
                inode.set_time(Time::Modified, now);
            }
            inode.set_time(Time::Changed, now);
            core.put(&mut inode)
        })?;
        if grows {
            self.set_length(number, end);
        }
        Ok(())
    }

    /// Gives every hole of a range unwritten blocks.
    fn reserve_range(&mut self, number: u32, offset: u64, end: u64) -> Result<()> {
        let size = self.superblock.block_size as u64;
        let (mut at, last) = ((offset / size) as u32, end.div_ceil(size) as u32);
        while at < last {
            at =
                self.with_space(|core| core.transact(CREDITS, |core| core.reserve_part(number, at, last)))?;
        }
        Ok(())
    }

    /// Reserves blocks from `at` on that lie together: where they end.
    fn reserve_part(&mut self, number: u32, at: u32, last: u32) -> Result<u32> {
        let mut inode = self.inode(number)?;
        let mapping = self.map(&inode, at)?;
        let count = mapping.count.min(last - at);
        if mapping.physical.is_some() {
            return Ok(at + count);
        }
        let goal = self.goal(&inode, at)?;
        let (physical, count) = self.allocate(goal, count.min(MAX_UNWRITTEN))?;
        self.insert(&mut inode, Extent { logical: at, count, physical, is_unwritten: true })?;
        inode.add_blocks(count.into(), self.superblock.block_size);
        self.put(&mut inode)?;
        Ok(at + count)
    }

    /// Makes a hole: whole blocks are freed, parts of blocks are zeroed.
    fn punch(&mut self, number: u32, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        self.zero_range(number, offset, end)?;
        let size = self.superblock.block_size as u64;
        let (first, last) = (offset.div_ceil(size), end / size);
        if first >= last {
            return Ok(());
        }
        // Pages that are written go to their blocks before these are gone; those of the hole are zeros.
        self.write_file(number)?;
        self.drop_range(number, first * size, last * size);
        loop {
            let is_done = self.transact(CREDITS, |core| {
                let mut inode = core.inode(number)?;
                let gone = core.cut(&mut inode, first as u32, last)?;
                if let Some(gone) = gone {
                    core.release_extent(&mut inode, gone, None)?;
                }
                core.put(&mut inode)?;
                Ok(gone.is_none())
            })?;
            if is_done {
                return Ok(());
            }
        }
    }
}
