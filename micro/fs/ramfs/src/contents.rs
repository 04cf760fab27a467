// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of a regular file: its pages, its length, holes and seals.

use crate::data::{Data, Place};
use crate::node::{FILE_LIMIT, Node};
use abi::{PAGE_SIZE, Result, errno::*};
use api_mem::{PageFrame, PageSource};
use core::sync::atomic::Ordering;

/// F_SEAL_SEAL: no more seals. What every file but a memfd with MFD_ALLOW_SEALING has.
pub const SEAL_SEAL: u32 = 1;
const SEAL_SHRINK: u32 = 2;
const SEAL_GROW: u32 = 4;
const SEAL_WRITE: u32 = 8;
const SEAL_FUTURE_WRITE: u32 = 16;
/// Either forbids new shared mappings that can be written.
pub const WRITE_SEALS: u32 = SEAL_WRITE | SEAL_FUTURE_WRITE;
const PAGE: u64 = PAGE_SIZE as u64;

impl Node {
    /// The page at `index`, made where there is none yet.
    pub(crate) fn page_at(&self, index: u64) -> Result<PageFrame> {
        let data = self.data()?;
        let bytes = match data.lock().place(index) {
            Place::Page(frame) => return Ok(frame),
            Place::Bytes(bytes) => bytes,
            Place::Hole => &[],
        };
        self.fs.charge(1)?;
        let made = PageFrame::new().and_then(|frame| {
            frame.write(0, bytes);
            let mut data = data.lock();
            let before = data.pages.count();
            let frame = data.pages.insert(index, frame)?;
            Ok((frame, data.pages.count() > before))
        });
        match made {
            Ok((frame, true)) => Ok(frame),
            Ok((frame, false)) => {
                self.fs.uncharge(1);
                Ok(frame)
            }
            Err(e) => {
                self.fs.uncharge(1);
                Err(e)
            }
        }
    }

    /// `ENOSPC` unless there is room for the pages `from..to` that are not there yet: fallocate(2) takes all or none.
    pub(crate) fn may_grow_by(&self, from: u64, to: u64) -> Result<()> {
        let data = self.data()?.lock();
        let mut there = 0;
        let mut at = from;
        while let Some(next) = data.next(at, false).filter(|next| *next < to) {
            there += 1;
            at = next + 1;
        }
        let wanted = (to - from).saturating_sub(there);
        let room = self.fs.limit.load(Ordering::Relaxed).saturating_sub(self.fs.used.load(Ordering::Relaxed));
        if wanted > room.min(api_mem::statistics().1) { Err(ENOSPC) } else { Ok(()) }
    }

    /// Sets the length; new bytes are holes.
    pub fn resize(&self, size: u64) -> Result<()> {
        if size > FILE_LIMIT {
            return Err(EFBIG);
        }
        let mut count = 0;
        {
            let mut data = self.data()?.lock();
            let forbidden = if size < data.length { SEAL_SHRINK } else { SEAL_GROW };
            if size != data.length && data.seals & forbidden != 0 {
                return Err(EPERM);
            }
            if size < data.length {
                data.cut(size, &mut |_| count += 1);
            } else {
                // A mapping may have written behind the end, in the last page.
                data.clear_tail();
            }
            data.length = size;
        }
        self.fs.uncharge(count);
        self.modified();
        Ok(())
    }

    /// Makes pages `offset..offset + length` holes; partial pages are zeroed.
    pub(crate) fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length).min(self.length());
        if offset >= end {
            return Ok(());
        }
        {
            let mut data = self.data()?.lock();
            if data.seals & WRITE_SEALS != 0 {
                return Err(EPERM);
            }
            data.sites = None;
        }
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        let zero = |from: u64, to: u64| -> Result<()> {
            let index = from / PAGE;
            if !matches!(self.data()?.lock().place(index), Place::Hole) {
                self.page_at(index)?.zero((from % PAGE) as usize, (to - from) as usize);
            }
            Ok(())
        };
        if first > last {
            return zero(offset, end);
        }
        if offset < first * PAGE {
            zero(offset, first * PAGE)?;
        }
        if last * PAGE < end {
            zero(last * PAGE, end)?;
        }
        // Archived bytes that are not pages would show again where a page is taken away: make pages of them.
        let mut at = first;
        while at < last {
            let Some(next) = self.data()?.lock().next(at, false).filter(|n| *n < last) else { break };
            let archived = matches!(self.data()?.lock().place(next), Place::Bytes(_));
            if archived {
                self.page_at(next)?.zero(0, PAGE_SIZE);
            }
            at = next + 1;
        }
        let mut count = 0;
        {
            let mut data = self.data()?.lock();
            let archived_end = data.archived_pages();
            if last > archived_end {
                data.punch(first.max(archived_end), last, &mut |_| count += 1);
            }
            for index in first..last.min(archived_end) {
                if let Place::Page(frame) = data.place(index) {
                    frame.zero(0, PAGE_SIZE);
                }
            }
        }
        self.fs.uncharge(count);
        self.modified();
        Ok(())
    }

    /// F_GET_SEALS.
    pub fn seals(&self) -> Result<u32> {
        Ok(self.data()?.lock().seals)
    }

    /// F_ADD_SEALS: `EPERM` once F_SEAL_SEAL is set.
    pub fn add_seals(&self, seals: u32) -> Result<()> {
        let mut data = self.data()?.lock();
        if data.seals & SEAL_SEAL != 0 {
            return Err(EPERM);
        }
        data.seals |= seals;
        Ok(())
    }

    pub(crate) fn may_write(&self, data: &Data, end: u64) -> Result<()> {
        if data.seals & WRITE_SEALS != 0 { Err(EPERM) } else { self.may_extend(data, end) }
    }

    /// fallocate(2) writes nothing: of the seals F_SEAL_GROW alone forbids it.
    pub(crate) fn may_extend(&self, data: &Data, end: u64) -> Result<()> {
        if end > data.length && data.seals & SEAL_GROW != 0 { Err(EPERM) } else { Ok(()) }
    }
}

impl PageSource for Node {
    fn page(&self, index: u64, for_write: bool) -> Result<PageFrame> {
        if index.checked_mul(PAGE).is_none_or(|start| start >= self.length()) {
            return Err(EIO);
        }
        if for_write {
            let mut data = self.data()?.lock();
            if data.seals & WRITE_SEALS != 0 {
                return Err(EACCES);
            }
            data.sites = None;
        }
        let page = self.page_at(index)?;
        if for_write {
            self.mapping_written();
        }
        Ok(page)
    }

    fn make_hole(&self, first: u64, count: u64) -> Result<()> {
        self.punch(first.saturating_mul(PAGE), count.saturating_mul(PAGE))
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        match self.data().ok()?.lock().place(index) {
            Place::Page(frame) => Some(frame),
            Place::Bytes(_) | Place::Hole => None,
        }
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn length(&self) -> u64 {
        self.data().map_or(0, |data| data.lock().length)
    }

    fn content(&self) -> Option<u64> {
        self.data().ok()?.lock().content()
    }

    fn sites(&self, read: &mut dyn FnMut(&[u8])) {
        if let Some(sites) = self.data().ok().and_then(|data| data.lock().sites) {
            read(sites);
        }
    }
}
