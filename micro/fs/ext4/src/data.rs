// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File data in pages: read when it is asked for, written before the transaction that refers to its blocks. A page that is mapped is the
//! page of the file, so mappings and calls see the same bytes.

use crate::buffers::Run;
use crate::extents::{Extent, MAX_WRITTEN};
use crate::inode::{Inode, Time};
use crate::mount::{CREDITS, Core};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Timespec, zeroed};
use api_mem::PageFrame;
use ordered::Map;

const PAGE: u64 = PAGE_SIZE as u64;
/// The largest file that positions can name.
pub const MAX_FILE: u64 = i64::MAX as u64;
/// Pages that are read at once where they lie together.
const AHEAD: u64 = 32;
/// Bytes that one step of a write stores.
pub const MAX_STEP: usize = 64 << 10;

struct Page {
    frame: PageFrame,
    /// A mapping may write to it without a word.
    is_shared: bool,
}

/// What is in memory of one file.
#[derive(Default)]
pub struct Pages {
    map: Map<u64, Page>,
    /// Those to be written.
    dirty: Map<u64, ()>,
    length: u64,
    /// Open files and inodes of the tree.
    pub holders: u32,
}

impl Core {
    /// The pages of a file, perhaps none yet.
    pub(crate) fn pages_of(&mut self, number: u32) -> Result<&mut Pages> {
        if !self.pages.contains_key(&number) {
            let length = self.inode(number)?.size();
            let pages = Pages { length, ..Pages::default() };
            self.pages.insert_fallibly(number, pages).map_err(|_| ENOMEM)?;
        }
        self.pages.get_mut(&number).ok_or(EIO)
    }

    /// The length of a file that is held.
    pub fn known_length(&self, number: u32) -> u64 {
        self.pages.get(&number).map_or(0, |pages| pages.length)
    }

    pub fn length(&mut self, number: u32) -> Result<u64> {
        Ok(self.pages_of(number)?.length)
    }

    pub(crate) fn set_length(&mut self, number: u32, length: u64) {
        if let Some(pages) = self.pages.get_mut(&number) {
            pages.length = length;
        }
    }

    pub(crate) fn forget_pages_of_unused(&mut self, number: u32) {
        let is_unused = |pages: &Pages| pages.holders == 0 && pages.map.is_empty();
        if self.pages.get(&number).is_some_and(is_unused) {
            self.pages.remove(&number);
        }
    }

    /// Forgets pages from `first` on, whatever was written to them.
    pub(crate) fn drop_pages(&mut self, number: u32, first: u64) {
        self.drop_range(number, first.saturating_mul(PAGE), u64::MAX);
    }

    /// Forgets the pages that lie in a range as a whole.
    pub(crate) fn drop_range(&mut self, number: u32, start: u64, end: u64) {
        let Some(pages) = self.pages.get_mut(&number) else { return };
        let (first, last) = (start.div_ceil(PAGE), end / PAGE);
        while let Some(index) = pages.map.range(first..last).next().map(|(index, _)| *index) {
            pages.map.remove(&index);
            pages.dirty.remove(&index);
            self.page_count -= 1;
        }
    }

    /// Makes room for pages: those that can be read again go, and where there are none, everything is written first.
    fn reclaim(&mut self) -> Result<()> {
        if self.page_count < self.max_pages {
            return Ok(());
        }
        self.evict();
        if self.page_count >= self.max_pages && !self.is_read_only() {
            self.write_data()?;
            self.evict();
        }
        Ok(())
    }

    fn evict(&mut self) {
        let goal = self.max_pages - self.max_pages / 4;
        let mut left = self.page_count;
        for pages in self.pages.values_mut() {
            if left <= goal {
                break;
            }
            let dirty = &pages.dirty;
            pages.map.retain(|index, page| {
                let keeps = left <= goal || dirty.contains_key(index) || !page.frame.is_unique();
                left -= usize::from(!keeps);
                keeps
            });
        }
        self.page_count = left;
        self.pages.retain(|_, pages| pages.holders > 0 || !pages.map.is_empty());
    }

    fn known(&self, number: u32, index: u64) -> Option<PageFrame> {
        self.pages.get(&number)?.map.get(&index).map(|page| page.frame.clone())
    }

    fn keep_page(&mut self, number: u32, index: u64, frame: &PageFrame) -> Result<()> {
        let pages = self.pages_of(number)?;
        let page = Page { frame: frame.clone(), is_shared: false };
        let before = pages.map.insert_fallibly(index, page).map_err(|_| ENOMEM)?;
        self.page_count += usize::from(before.is_none());
        Ok(())
    }

    /// The page, read from the disk where it is not in memory, and those behind it that lie together with it.
    fn load(&mut self, inode: &Inode, index: u64) -> Result<PageFrame> {
        if let Some(frame) = self.known(inode.number, index) {
            return Ok(frame);
        }
        let length = self.pages_of(inode.number)?.length;
        let size = self.superblock.block_size as u64;
        let per_page = (PAGE / size) as u32;
        let first = u32::try_from(index * PAGE / size).map_err(|_| EFBIG)?;
        let mapping = self.map(inode, first)?;
        let behind_end = length.div_ceil(PAGE).saturating_sub(index).max(1);
        let together = (u64::from(mapping.count / per_page)).min(AHEAD).min(behind_end);
        let is_read = mapping.physical.filter(|_| !mapping.is_unwritten);
        let Some(physical) = is_read.filter(|_| together > 0) else {
            return self.load_by_blocks(inode, index, length);
        };
        let mut count = 1;
        while count < together && self.known(inode.number, index + count).is_none() {
            count += 1;
        }
        let mut bytes = zeroed((count * PAGE) as usize)?;
        self.buffers.disk.read(physical * size, &mut bytes)?;
        let mut wanted = None;
        for (n, bytes) in bytes.chunks_mut(PAGE_SIZE).enumerate() {
            let page = index + n as u64;
            zero_behind_end(bytes, page, length);
            let frame = match PageFrame::new() {
                Ok(frame) => frame,
                Err(e) if n == 0 => return Err(e),
                Err(_) => break,
            };
            frame.write(0, bytes);
            self.keep_page(inode.number, page, &frame)?;
            wanted.get_or_insert(frame);
        }
        wanted.ok_or(ENOMEM)
    }

    /// A page whose blocks lie apart, or are holes.
    fn load_by_blocks(&mut self, inode: &Inode, index: u64, length: u64) -> Result<PageFrame> {
        let size = self.superblock.block_size;
        let frame = PageFrame::new()?;
        let mut bytes = zeroed(PAGE_SIZE)?;
        for (n, part) in bytes.chunks_mut(size).enumerate() {
            let logical = index * (PAGE_SIZE / size) as u64 + n as u64;
            let mapping = self.map(inode, logical as u32)?;
            if let Some(physical) = mapping.physical.filter(|_| !mapping.is_unwritten) {
                self.buffers.disk.read(physical * size as u64, part)?;
            }
        }
        zero_behind_end(&mut bytes, index, length);
        frame.write(0, &bytes);
        self.keep_page(inode.number, index, &frame)?;
        Ok(frame)
    }

    /// Pages of a file from `offset` on, up to as many as `out` has room for and the file has.
    pub fn read(&mut self, number: u32, offset: u64, out: &mut Vec<PageFrame>) -> Result<()> {
        self.reclaim()?;
        let inode = self.regular(number)?;
        let length = self.length(number)?;
        let mut index = offset / PAGE;
        while out.len() < out.capacity() && index * PAGE < length {
            match self.load(&inode, index) {
                Ok(frame) => out.push(frame),
                Err(e) if out.is_empty() => return Err(e),
                Err(_) => break,
            }
            index += 1;
        }
        Ok(())
    }

    /// Stores bytes, at most [`MAX_STEP`]: how many.
    pub fn write(&mut self, number: u32, offset: u64, bytes: &[u8], now: Timespec) -> Result<usize> {
        self.check_writable()?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(EFBIG)?;
        self.check_size(end)?;
        debug_assert!(bytes.len() <= MAX_STEP);
        if bytes.is_empty() {
            return Ok(0);
        }
        self.reclaim()?;
        match self.write_step(number, offset, bytes, now) {
            // What fits is stored.
            Err(ENOSPC) if bytes.len() > PAGE_SIZE - (offset % PAGE) as usize => {
                let part = PAGE_SIZE - (offset % PAGE) as usize;
                self.with_space(|core| core.write_step(number, offset, &bytes[..part], now))
            }
            Err(ENOSPC) => self.with_space(|core| core.write_step(number, offset, bytes, now)),
            done => done,
        }
    }

    fn write_step(&mut self, number: u32, offset: u64, bytes: &[u8], now: Timespec) -> Result<usize> {
        let inode = self.regular(number)?;
        let length = self.length(number)?;
        let end = offset + bytes.len() as u64;
        if end > length {
            self.zero_behind(number, length)?;
        }
        // Everything that can fail comes before anything is changed.
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        let mut frames = Vec::new();
        frames.reserve_exact_fallibly((last - first + 1) as usize).map_err(|_| ENOMEM)?;
        let mut made = Vec::new();
        made.reserve_exact_fallibly((last - first + 1) as usize).map_err(|_| ENOMEM)?;
        for index in first..=last {
            let is_whole = index * PAGE >= offset && (index + 1) * PAGE <= end || index * PAGE >= length;
            let frame = match self.known(number, index) {
                Some(frame) => frame,
                None if is_whole => {
                    let frame = PageFrame::new()?;
                    self.keep_page(number, index, &frame)?;
                    made.push(index);
                    frame
                }
                None => self.load(&inode, index)?,
            };
            self.note_dirty(number, index)?;
            frames.push(frame);
        }
        let result = self.reserve_for_write(number, offset, end, end.max(length), now);
        if let Err(e) = result {
            // A new page that was not written has nothing of the file's.
            made.into_iter().for_each(|index| self.drop_range(number, index * PAGE, (index + 1) * PAGE));
            return Err(e);
        }
        self.set_length(number, end.max(length));
        let mut at = offset;
        for (index, frame) in (first..).zip(&frames) {
            let n = ((index + 1) * PAGE).min(end) - at;
            let start = (at - offset) as usize;
            frame.write((at % PAGE) as usize, &bytes[start..start + n as usize]);
            at += n;
        }
        Ok(bytes.len())
    }

    fn note_dirty(&mut self, number: u32, index: u64) -> Result<()> {
        self.pages_of(number)?.dirty.insert_fallibly(index, ()).map_err(|_| ENOMEM)?;
        self.dirty_files.insert_fallibly(number, ()).map_err(|_| ENOMEM)?;
        Ok(())
    }

    /// Gives a range blocks that hold data, and the file its length and times.
    fn reserve_for_write(
        &mut self,
        number: u32,
        offset: u64,
        end: u64,
        length: u64,
        now: Timespec,
    ) -> Result<()> {
        let size = self.superblock.block_size as u64;
        let (first, last) = ((offset / size) as u32, end.div_ceil(size) as u32);
        let credits = CREDITS + 2 * (last - first) as usize;
        self.transact(credits, |core| {
            let mut inode = core.inode(number)?;
            let mut at = first;
            while at < last {
                let mapping = core.map(&inode, at)?;
                let count = mapping.count.min(last - at);
                if mapping.physical.is_none() {
                    let goal = core.goal(&inode, at)?;
                    let (physical, count) = core.allocate(goal, count.min(MAX_WRITTEN))?;
                    core.insert(&mut inode, Extent { logical: at, count, physical, is_unwritten: false })?;
                    inode.add_blocks(count.into(), size as usize);
                    at += count;
                    continue;
                }
                if mapping.is_unwritten {
                    core.mark_written(&mut inode, at, u64::from(at) + u64::from(count))?;
                }
                at += count;
            }
            if length > inode.size() {
                inode.set_size(length);
            }
            inode.set_time(Time::Modified, now);
            inode.set_time(Time::Changed, now);
            core.put(&mut inode)
        })
    }

    /// Where a new block of a file should lie: behind the one before.
    pub(crate) fn goal(&mut self, inode: &Inode, logical: u32) -> Result<u64> {
        let before = match logical.checked_sub(1) {
            Some(before) => self.map(inode, before)?.physical,
            None => None,
        };
        Ok(before.map_or(self.next_block, |before| before + 1))
    }

    /// The file is to grow over its end: what a mapping wrote behind it, or the disk has there, becomes zeros.
    pub(crate) fn zero_behind(&mut self, number: u32, length: u64) -> Result<()> {
        if length.is_multiple_of(PAGE) { Ok(()) } else { self.zero_page_from(number, length) }
    }

    /// Zeroes the rest of the page with this place.
    pub(crate) fn zero_page_from(&mut self, number: u32, place: u64) -> Result<()> {
        if place.is_multiple_of(PAGE) {
            Ok(())
        } else {
            self.zero_in_page(number, place, (place / PAGE + 1) * PAGE)
        }
    }

    fn zero_in_page(&mut self, number: u32, start: u64, end: u64) -> Result<()> {
        let inode = self.regular(number)?;
        let frame = self.load(&inode, start / PAGE)?;
        self.note_dirty(number, start / PAGE)?;
        frame.zero((start % PAGE) as usize, (end - start) as usize);
        Ok(())
    }

    /// Zeroes the parts of pages at both ends of a range.
    pub(crate) fn zero_range(&mut self, number: u32, start: u64, end: u64) -> Result<()> {
        let length = self.length(number)?;
        let (start, end) = (start.min(length), end.min(length.next_multiple_of(PAGE)));
        if start >= end {
            return Ok(());
        }
        if start / PAGE == (end - 1) / PAGE {
            let is_whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
            return if is_whole { Ok(()) } else { self.zero_in_page(number, start, end) };
        }
        self.zero_page_from(number, start)?;
        if !end.is_multiple_of(PAGE) {
            self.zero_in_page(number, end / PAGE * PAGE, end)?;
        }
        Ok(())
    }

    /// A page for a mapping. With `for_write` it has blocks, and is written whenever files are.
    pub fn page(&mut self, number: u32, index: u64, for_write: bool, now: Timespec) -> Result<PageFrame> {
        self.reclaim()?;
        let inode = self.regular(number)?;
        let length = self.length(number)?;
        let start = index.checked_mul(PAGE).filter(|start| *start < length).ok_or(EIO)?;
        if !for_write {
            return self.load(&inode, index);
        }
        self.check_writable()?;
        let frame = self.load(&inode, index)?;
        self.note_dirty(number, index)?;
        self.reserve_for_write(number, start, (start + PAGE).min(length), length, now)?;
        if let Some(page) = self.pages_of(number)?.map.get_mut(&index) {
            page.is_shared = true;
        }
        Ok(frame)
    }

    /// Writes all pages that were written to.
    pub(crate) fn write_data(&mut self) -> Result<()> {
        let mut next = 0;
        while let Some(number) = self.dirty_files.range(next..).next().map(|(number, ())| *number) {
            self.write_file(number)?;
            next = number + 1;
        }
        Ok(())
    }

    /// Writes the pages of one file that were written to.
    pub(crate) fn write_file(&mut self, number: u32) -> Result<()> {
        let Some(length) = self.pages.get(&number).map(|pages| pages.length) else { return Ok(()) };
        let inode = self.inode(number)?;
        let size = self.superblock.block_size;
        let per_page = (PAGE_SIZE / size) as u64;
        let mut run = Run::new(self.buffers.disk.clone(), size);
        let mut bytes = zeroed(PAGE_SIZE)?;
        let mut next = 0;
        // Of the block that is next.
        let mut known: Option<(u64, crate::extents::Mapping)> = None;
        while let Some(index) = self.dirty_page(number, next) {
            next = index + 1;
            let Some(frame) = self.known(number, index) else { continue };
            if index * PAGE >= length {
                continue;
            }
            frame.read(0, &mut bytes);
            zero_behind_end(&mut bytes, index, length);
            for (n, part) in bytes.chunks(size).enumerate() {
                let logical = index * per_page + n as u64;
                let mapping = match known {
                    Some((of, mapping)) if logical >= of && logical - of < u64::from(mapping.count) => {
                        let physical = mapping.physical.map(|start| start + (logical - of));
                        crate::extents::Mapping { physical, ..mapping }
                    }
                    _ => {
                        let mapping = self.map(&inode, logical as u32)?;
                        known = Some((logical, mapping));
                        mapping
                    }
                };
                if let Some(physical) = mapping.physical.filter(|_| !mapping.is_unwritten) {
                    run.add(physical, part)?;
                    self.is_unflushed = true;
                }
            }
        }
        run.finish()?;
        let Some(pages) = self.pages.get_mut(&number) else { return Ok(()) };
        let Pages { map, dirty, .. } = pages;
        dirty.retain(|index, ()| {
            let Some(page) = map.get_mut(index) else { return false };
            page.is_shared &= !page.frame.is_unique();
            page.is_shared
        });
        if dirty.is_empty() {
            self.dirty_files.remove(&number);
        }
        Ok(())
    }

    fn dirty_page(&self, number: u32, from: u64) -> Option<u64> {
        self.pages.get(&number)?.dirty.range(from..).next().map(|(index, ())| *index)
    }

    /// The next place at or behind `offset` that holds data, or with `hole` a hole.
    pub fn seek_data(&mut self, number: u32, offset: u64, hole: bool) -> Result<u64> {
        let inode = self.regular(number)?;
        let length = self.length(number)?;
        let size = self.superblock.block_size as u64;
        let mut at = offset;
        while at < length {
            let mapping = self.map(&inode, (at / size) as u32)?;
            // What is reserved reads as zeros, as holes do.
            let is_hole = mapping.physical.is_none() || mapping.is_unwritten;
            if is_hole == hole {
                return Ok(at);
            }
            at = (at / size + u64::from(mapping.count)) * size;
        }
        if hole && offset < length { Ok(length) } else { Err(ENXIO) }
    }
}

fn zero_behind_end(bytes: &mut [u8], index: u64, length: u64) {
    let left = length.saturating_sub(index * PAGE).min(PAGE) as usize;
    bytes[left..].fill(0);
}
