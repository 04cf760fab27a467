// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/mem: a process' memory by its addresses, as its tracer sees it (proc_pid_mem(5)).

use crate::process::Process;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{File, Inode, Sink, Source, Stat};
use core::any::Any;
use mem::Space;

/// The memory that the process had when the file was opened: another program's is not read through it, and memory that the
/// process has left is not kept.
struct Memory {
    space: Weak<Space>,
    inode: Arc<dyn Inode>,
}

/// Opens the memory of a process that the caller may trace.
pub fn open(process: &Process, inode: &Arc<dyn Inode>) -> Result<Arc<dyn File>> {
    let space = process.space().map_or_else(Weak::new, |space| Arc::downgrade(&space));
    Ok(Arc::new(Memory { space, inode: inode.clone() }))
}

fn page() -> Result<Vec<u8>> {
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE_SIZE).map_err(|_| ENOMEM)?;
    page.resize(PAGE_SIZE, 0);
    Ok(page)
}

/// Bytes from `address` to the end of its page, `most` at most.
fn piece(address: u64, most: usize) -> usize {
    (PAGE_SIZE - address as usize % PAGE_SIZE).min(most)
}

impl File for Memory {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut page = page()?;
        let mut done = 0;
        while to.remaining() > 0 {
            let address = offset.checked_add(done as u64).ok_or(EIO)?;
            let n = piece(address, to.remaining());
            let copied = space.peek(address, &mut page[..n]).and_then(|()| to.put(&page[..n]));
            match copied {
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut page = page()?;
        let mut done = 0;
        while from.remaining() > 0 {
            let address = offset.checked_add(done as u64).ok_or(EIO)?;
            let n = piece(address, from.remaining());
            let taken = from.take(&mut page[..n])?;
            match space.poke(address, &page[..taken]) {
                Ok(()) => done += taken,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek_end(&self) -> Result<u64> {
        Err(EINVAL)
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
