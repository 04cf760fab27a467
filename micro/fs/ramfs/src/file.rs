// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open file or directory.

use crate::data::Place;
use crate::node::{FILE_LIMIT, Node};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source, Stat};
use api_mem::PageSource;
use core::any::Any;

const PAGE: u64 = PAGE_SIZE as u64;
/// Others may run after so many bytes of a long read or write.
const BETWEEN_OTHERS: usize = 1 << 20;
const FALLOC_FL_KEEP_SIZE: u32 = 1;
const FALLOC_FL_PUNCH_HOLE: u32 = 2;
const FALLOC_FL_COLLAPSE_RANGE: u32 = 8;
const FALLOC_FL_ZERO_RANGE: u32 = 16;
const FALLOC_FL_INSERT_RANGE: u32 = 32;
const FALLOC_FL_UNSHARE_RANGE: u32 = 64;

/// An open [`Node`].
pub struct RamFile {
    node: Arc<Node>,
    inode: Arc<dyn Inode>,
}

impl RamFile {
    pub(crate) fn new(node: Arc<Node>, inode: Arc<dyn Inode>) -> RamFile {
        RamFile { node, inode }
    }

    /// The inode, for seals.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Writes `from` at `offset` where the length already says so or grows with each page.
    fn store(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        let want = from.remaining();
        let mut done = 0;
        while done < want {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let n = (PAGE_SIZE - within).min(want - done);
            let stored =
                self.node.page_at(at / PAGE).and_then(|frame| frame.receive_up_to_fault(within, n, from));
            let n = match stored {
                Ok(n) => n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            };
            done += n;
            let mut data = self.node.data()?.lock();
            data.length = data.length.max(at + n as u64);
            drop(data);
            if n == 0 {
                break;
            }
            if done / BETWEEN_OTHERS != (done - n) / BETWEEN_OTHERS {
                api_sched::cond_resched();
            }
        }
        Ok(done)
    }
}

impl RamFile {
    /// Copies the bytes of a page, of which those before `end` count; holes become pages of zeros.
    fn copy_page(&self, from: u64, to: u64, end: u64) -> Result<()> {
        let mut bytes = api_fs::zeroed((end - from).min(PAGE) as usize)?;
        let n = self.read(from, &mut Sink::kernel(&mut bytes))?;
        let mut source = Source::kernel(&bytes[..n]);
        if self.store(to, &mut source)? == n { Ok(()) } else { Err(ENOSPC) }
    }

    /// FALLOC_FL_COLLAPSE_RANGE: takes whole pages out (fallocate(2), with ext4's rules).
    fn collapse(&self, offset: u64, length: u64) -> Result<()> {
        let size = self.node.length();
        if !(offset | length).is_multiple_of(PAGE) || offset + length >= size {
            return Err(EINVAL);
        }
        self.node.may_write(&self.node.data()?.lock(), 0)?;
        for from in (offset + length..size).step_by(PAGE_SIZE) {
            self.copy_page(from, from - length, size)?;
        }
        self.node.resize(size - length)
    }

    /// FALLOC_FL_INSERT_RANGE: makes room in whole pages.
    fn insert(&self, offset: u64, length: u64) -> Result<()> {
        let size = self.node.length();
        if !(offset | length).is_multiple_of(PAGE) || offset >= size {
            return Err(EINVAL);
        }
        let end = size.checked_add(length).filter(|end| *end <= FILE_LIMIT).ok_or(EFBIG)?;
        self.node.may_write(&self.node.data()?.lock(), end)?;
        self.node.may_grow_by(size.div_ceil(PAGE), end.div_ceil(PAGE))?;
        self.node.resize(end)?;
        for page in (offset / PAGE..size.div_ceil(PAGE)).rev() {
            self.copy_page(page * PAGE, page * PAGE + length, size)?;
        }
        self.node.punch(offset, length)
    }
}

impl File for RamFile {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let data = self.node.data()?;
        let want = to.remaining();
        let mut done = 0;
        while done < want {
            let at = offset.saturating_add(done as u64);
            let within = (at % PAGE) as usize;
            let (n, place) = {
                let data = data.lock();
                let left = usize::try_from(data.length.saturating_sub(at)).unwrap_or(usize::MAX);
                let n = (PAGE_SIZE - within).min(want - done).min(left);
                if n == 0 {
                    break;
                }
                (n, data.place(at / PAGE))
            };
            let moved = match place {
                Place::Page(frame) => frame.send_up_to_fault(within, n, to),
                Place::Bytes(bytes) if within < bytes.len() => {
                    to.put_up_to_fault(&bytes[within..bytes.len().min(within + n)])
                }
                Place::Bytes(_) | Place::Hole => to.put_zeros(n),
            };
            match moved {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
            if done / BETWEEN_OTHERS != done.saturating_sub(PAGE_SIZE) / BETWEEN_OTHERS {
                api_sched::cond_resched();
            }
        }
        self.node.accessed();
        Ok(done)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        // Nothing to write is nothing to refuse, and changes no times.
        if from.remaining() == 0 {
            return Ok(0);
        }
        let end =
            offset.checked_add(from.remaining() as u64).filter(|end| *end <= FILE_LIMIT).ok_or(EFBIG)?;
        {
            let mut data = self.node.data()?.lock();
            self.node.may_write(&data, end)?;
            data.sites = None;
        }
        let done = self.store(offset, from)?;
        self.node.modified();
        Ok(done)
    }

    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        let want = from.remaining() as u64;
        if want == 0 {
            return Ok((0, self.node.length()));
        }
        // Reserve the range first, so that appends of several threads never overlap.
        let (start, end) = {
            let mut data = self.node.data()?.lock();
            let start = data.length;
            let end = start.checked_add(want).filter(|end| *end <= FILE_LIMIT).ok_or(EFBIG)?;
            self.node.may_write(&data, end)?;
            data.sites = None;
            data.length = end;
            (start, end)
        };
        let stored = self.store(start, from);
        let done = *stored.as_ref().unwrap_or(&0);
        if (done as u64) < want {
            let mut data = self.node.data()?.lock();
            if data.length == end {
                data.length = start + done as u64;
            }
        }
        stored?;
        self.node.modified();
        Ok((done, start + done as u64))
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn size(&self) -> Result<u64> {
        Ok(self.node.length())
    }

    fn seek_end(&self) -> Result<u64> {
        // A directory's end is not counted in bytes (Linux' dcache_dir_lseek).
        if self.node.kind()? == FileType::Directory { Err(EINVAL) } else { self.size() }
    }

    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64> {
        let data = self.node.data().map_err(|_| EINVAL)?.lock();
        if offset >= data.length {
            return Err(ENXIO);
        }
        match data.next(offset / PAGE, hole) {
            Some(page) if page * PAGE >= data.length => {
                if hole {
                    Ok(data.length)
                } else {
                    Err(ENXIO)
                }
            }
            Some(page) => Ok((page * PAGE).max(offset)),
            None => Err(ENXIO),
        }
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        if !self.node.allocates() {
            return Err(EOPNOTSUPP);
        }
        let end = offset.checked_add(length).filter(|end| *end <= FILE_LIMIT).ok_or(EFBIG)?;
        let keep_size = mode & FALLOC_FL_KEEP_SIZE != 0;
        match mode & !FALLOC_FL_KEEP_SIZE {
            FALLOC_FL_PUNCH_HOLE if keep_size => return self.node.punch(offset, length),
            FALLOC_FL_ZERO_RANGE => self.node.punch(offset, length)?,
            FALLOC_FL_COLLAPSE_RANGE => return self.collapse(offset, length),
            FALLOC_FL_INSERT_RANGE => return self.insert(offset, length),
            // Nothing is shared with another file.
            0 | FALLOC_FL_UNSHARE_RANGE => {}
            _ => return Err(EOPNOTSUPP),
        }
        let before = self.node.length();
        self.node.may_extend(&self.node.data()?.lock(), if keep_size { 0 } else { end })?;
        self.node.may_grow_by(offset / PAGE, end.div_ceil(PAGE))?;
        for index in offset / PAGE..end.div_ceil(PAGE) {
            self.node.page_at(index)?;
        }
        if !keep_size && end > before {
            self.node.resize(end)?;
        }
        Ok(())
    }

    fn stat(&self) -> Result<Stat> {
        self.node.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        self.node.data().map_err(|_| ENODEV)?;
        // Who maps the file, or runs it, reads it.
        self.node.accessed();
        Ok(self.node.clone())
    }

    fn sync(&self, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.node.set_attr(&SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
