// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files: those of the layer that the file is in, and of the upper directory once it is copied there.

use crate::node::Node;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source, Stat};
use api_lock::SpinLock;
use api_mem::PageSource;
use api_sched::WaitQueue;
use core::any::Any;

const O_TRUNC: u32 = 0o1000;

/// The file of a layer, and whose it is.
#[derive(Clone)]
struct Real {
    inode: Arc<dyn Inode>,
    file: Arc<dyn File>,
}

pub(crate) struct OverlayFile {
    node: Arc<Node>,
    inode: Arc<dyn Inode>,
    /// open(2)'s, for opening it once more.
    flags: u32,
    /// `None` for a directory, which is listed by its node.
    real: Option<SpinLock<Real>>,
}

impl OverlayFile {
    pub fn open(node: Arc<Node>, inode: Arc<dyn Inode>, flags: u32) -> Result<OverlayFile> {
        let real = match node.kind {
            FileType::Directory => None,
            _ => Some(SpinLock::new(open_real(&node.real(), flags)?)),
        };
        Ok(OverlayFile { node, inode, flags: flags & !O_TRUNC, real })
    }

    /// The file to read and write. One that was opened before it was copied up is opened again.
    fn real(&self) -> Result<Arc<dyn File>> {
        let slot = self.real.as_ref().ok_or(EISDIR)?;
        let now = self.node.real();
        let known = slot.lock().clone();
        if Arc::ptr_eq(&known.inode, &now) {
            return Ok(known.file);
        }
        let opened = open_real(&now, self.flags)?;
        let before = core::mem::replace(&mut *slot.lock(), opened.clone());
        let _ = before.file.close();
        Ok(opened.file)
    }
}

fn open_real(inode: &Arc<dyn Inode>, flags: u32) -> Result<Real> {
    Ok(Real { inode: inode.clone(), file: inode.open(inode, flags)? })
}

impl File for OverlayFile {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        self.real()?.read(offset, to)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        self.real()?.write(offset, from)
    }

    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        self.real()?.append(from)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn seek_end(&self) -> Result<u64> {
        if self.real.is_some() { self.real()?.seek_end() } else { Err(EINVAL) }
    }

    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64> {
        if self.real.is_some() { self.real()?.seek_data(offset, hole) } else { Err(EINVAL) }
    }

    fn stat(&self) -> Result<Stat> {
        self.node.stat()
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.inode.set_attr(change)
    }

    fn poll(&self) -> Events {
        self.real().map_or(Events::ERR, |real| real.poll())
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        None
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        if self.real.is_some() { self.real()?.ioctl(command, argument) } else { Err(ENOTTY) }
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        if self.real.is_some() { self.real()?.page_source() } else { Err(ENODEV) }
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        if self.real.is_some() {
            return self.real()?.sync(data_only);
        }
        // Of a directory the upper one is what changes.
        let Some(upper) = self.node.upper() else { return Ok(()) };
        let file = upper.open(&upper, 0)?;
        let synced = file.sync(data_only);
        file.close().and(synced)
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.real()?.allocate(mode, offset, length)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.real()?.truncate(size)
    }

    fn close(&self) -> Result<()> {
        match &self.real {
            Some(real) => {
                let file = real.lock().file.clone();
                file.close()
            }
            None => Ok(()),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
