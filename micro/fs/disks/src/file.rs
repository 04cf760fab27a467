// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files of a mounted file system.

use crate::node::Node;
use crate::pages::DiskPages;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source, Stat, Timespec, keeps_set_id, zeroed};
use api_mem::PageSource;
use core::any::Any;
use ext4::MAX_STEP;

/// Pages that one step of a read takes.
const PAGES: usize = 16;
const SET_ID: u32 = 0o6000;
const GROUP_EXECUTE: u32 = 0o10;

pub struct DiskFile {
    node: Arc<Node>,
    inode: Arc<dyn Inode>,
}

impl DiskFile {
    pub fn new(node: Arc<Node>, inode: Arc<dyn Inode>) -> DiskFile {
        DiskFile { node, inode }
    }

    /// Writes from `offset` on, or with `None` at the end, each step in one with finding the end: where it ended.
    fn store(&self, offset: Option<u64>, from: &mut Source<'_>) -> Result<(usize, u64)> {
        let mut done = 0;
        let mut at = offset.unwrap_or(0);
        let mut bytes: Vec<u8> = Vec::new();
        let keeps = keeps_set_id();
        while from.remaining() > 0 || done == 0 {
            let within = (at % PAGE_SIZE as u64) as usize;
            // Whole pages behind the first step.
            let room = if offset.is_some() { MAX_STEP - within } else { MAX_STEP };
            let length = room.min(from.remaining());
            if bytes.len() < length {
                bytes = zeroed(length)?;
            }
            let taken = match from.take_up_to_fault(&mut bytes[..length]) {
                Ok(taken) => taken,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            };
            let stored = self.node.with(|core, number| {
                let now = Timespec::now();
                let start = if offset.is_some() { at } else { core.length(number)? };
                let n = core.write(number, start, &bytes[..taken], now)?;
                if !keeps && n > 0 {
                    let permissions = core.stat(number)?.permissions;
                    // A group that may not execute makes S_ISGID something else.
                    let gone = if permissions & GROUP_EXECUTE != 0 { SET_ID } else { SET_ID & !0o2000 };
                    if permissions & gone != 0 {
                        let left = SetAttr { permissions: Some(permissions & !gone), ..SetAttr::default() };
                        core.set_attributes(number, &left, now)?;
                    }
                }
                Ok((n, start))
            });
            match stored {
                Ok((n, start)) => {
                    done += n;
                    at = start + n as u64;
                    if n < length || n == 0 {
                        break;
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok((done, at))
    }
}

impl File for DiskFile {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        while to.remaining() > 0 {
            let at = offset.saturating_add(done as u64);
            let within = (at % PAGE_SIZE as u64) as usize;
            let mut frames = Vec::new();
            let pages = (within + to.remaining().min(PAGES * PAGE_SIZE)).div_ceil(PAGE_SIZE).min(PAGES);
            frames.reserve_exact_fallibly(pages).map_err(|_| ENOMEM)?;
            let step = self.node.with(|core, number| {
                core.read(number, at, &mut frames)?;
                core.length(number)
            });
            let length = match step {
                Ok(length) => length,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            };
            let mut left =
                usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX).min(to.remaining());
            let mut start = within;
            let before = done;
            for frame in &frames {
                let n = (PAGE_SIZE - start).min(left);
                if n == 0 {
                    break;
                }
                match frame.send_up_to_fault(start, n, to) {
                    Ok(sent) => {
                        done += sent;
                        left -= sent;
                        if sent < n {
                            return Ok(done);
                        }
                    }
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => return Ok(done),
                }
                start = 0;
            }
            if done == before {
                break;
            }
        }
        if done > 0 && self.node.reads_change_time() {
            // A time that cannot be noted is no reason not to have read.
            let _ = self.node.with(|core, number| core.accessed(number, Timespec::now()));
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        if from.remaining() == 0 {
            return Ok(0);
        }
        self.store(Some(offset), from).map(|(n, _)| n)
    }

    /// In one step against other appends as far as 64 KiB go.
    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        if from.remaining() == 0 {
            return Ok((0, self.size()?));
        }
        self.store(None, from)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn size(&self) -> Result<u64> {
        self.node.with(|core, number| core.length(number))
    }

    fn stat(&self) -> Result<Stat> {
        self.node.attributes()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        if self.inode.kind()? != FileType::Regular {
            return Err(ENODEV);
        }
        // What mappings are told of it is known from here on.
        self.size()?;
        let mut known = self.node.pages.lock();
        if let Some(pages) = known.upgrade() {
            return Ok(pages);
        }
        let pages = Arc::new(DiskPages::new(self.node.clone()));
        *known = Arc::downgrade(&pages);
        Ok(pages)
    }

    /// Everything that was done in the file system is one transaction, so all of it is stored.
    fn sync(&self, _: bool) -> Result<()> {
        self.node.with(|core, _| core.sync())
    }

    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64> {
        if self.inode.kind()? == FileType::Directory {
            return Err(EINVAL);
        }
        self.node.with(|core, number| core.seek_data(number, offset, hole))
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        if self.inode.kind()? == FileType::Directory {
            return Err(EISDIR);
        }
        self.node.with(|core, number| core.allocate_range(number, mode, offset, length, Timespec::now()))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.inode.set_attr(&SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
