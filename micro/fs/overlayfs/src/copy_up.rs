// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copying files from a lower directory to the upper one before they change.

use crate::attributes::Origin;
use crate::node::Node;
use crate::{Changes, Fs};
use abi::{Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Inode, SetAttr, Sink, Source, Stat};
use core::sync::atomic::Ordering;

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
/// Bytes that are copied at once.
const PIECE: usize = 64 << 10;

impl Node {
    /// The file in the upper directory, copied there if it is not there yet. `with_data`: with what is in it. `EROFS` of a union without
    /// an upper directory.
    pub(crate) fn copy_up(&self, with_data: bool) -> Result<Arc<dyn Inode>> {
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        let mut changes = self.fs.changes.lock();
        self.copy_up_now(changes.get(), with_data)
    }

    /// As [`Node::copy_up`] for whoever has the changes.
    pub(crate) fn copy_up_now(&self, changes: &mut Changes, with_data: bool) -> Result<Arc<dyn Inode>> {
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        // From the topmost directory that is missing down to the file.
        let mut missing: Vec<Arc<Node>> = Vec::new();
        let mut at = self.this()?;
        let mut above = loop {
            if at.is_removed.load(Ordering::Relaxed) {
                return Err(ENOENT);
            }
            let parent = at.parent().ok_or(EROFS)?;
            missing.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            missing.push(at);
            if parent.upper().is_some() {
                break parent;
            }
            at = parent;
        };
        for node in missing.into_iter().rev() {
            node.copy_one(changes, &above, with_data)?;
            above = node;
        }
        self.upper().ok_or(EIO)
    }

    fn copy_one(&self, changes: &mut Changes, above: &Arc<Node>, with_data: bool) -> Result<()> {
        let lower = self.lowers.first().ok_or(EIO)?;
        let stat = lower.stat()?;
        if self.fs.may_own.as_ref().is_some_and(|may| !may(stat.uid, stat.gid)) {
            return Err(EOVERFLOW);
        }
        let directory = above.upper().ok_or(EIO)?;
        let times = directory.stat()?;
        // One of several names is another file from now on.
        let is_alone = stat.kind == FileType::Directory || stat.links == 1;
        let origin = is_alone.then_some(Origin { device: stat.device, number: stat.inode });
        above.set_impure()?;
        let copy = self.fs.in_work(changes, |work, name| {
            let copy = make_like(work, name, lower, &stat)?;
            if with_data && stat.kind == FileType::Regular {
                copy_data(lower, &copy, stat.size)?;
            }
            self.copy_xattrs(lower, &copy)?;
            if let Some(origin) = origin {
                self.fs.set_origin(&copy, origin)?;
            }
            let is_link = stat.kind == FileType::Symlink;
            copy.set_attr(&SetAttr {
                permissions: (!is_link).then_some(stat.permissions),
                uid: Some(stat.uid),
                gid: Some(stat.gid),
                size: None,
                accessed: Some(stat.accessed),
                modified: Some(stat.modified),
            })?;
            work.rename(name, &directory, &self.name(), 0)?;
            Ok(copy)
        })?;
        // The directory shows the same as before, and so do its times.
        let (accessed, modified) = (Some(times.accessed), Some(times.modified));
        directory.set_attr(&SetAttr { accessed, modified, ..SetAttr::default() })?;
        self.set_upper(copy, origin)
    }
}

impl Fs {
    /// Makes something in the work directory, under a name that is free. What is left there after an error is removed.
    pub(crate) fn in_work<T>(
        &self,
        changes: &mut Changes,
        make: impl FnOnce(&Arc<dyn Inode>, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let work = self.work.as_ref().ok_or(EROFS)?;
        changes.next += 1;
        let name = format!("#{:x}", changes.next);
        let made = make(work, name.as_bytes());
        if made.is_err()
            && let Ok(left) = work.lookup(name.as_bytes())
        {
            let is_directory = left.kind() == Ok(FileType::Directory);
            // The error that is told is the first one.
            let _ = work.unlink(name.as_bytes(), is_directory);
        }
        made
    }
}

/// An empty file of the same kind.
fn make_like(
    work: &Arc<dyn Inode>,
    name: &[u8],
    lower: &Arc<dyn Inode>,
    stat: &Stat,
) -> Result<Arc<dyn Inode>> {
    let owner = (stat.uid, stat.gid);
    if stat.kind != FileType::Symlink {
        return work.create(name, stat.kind, stat.permissions & 0o777, owner, stat.rdev);
    }
    work.symlink(name, &lower.read_link()?, owner)?;
    work.lookup(name)
}

/// Copies the bytes of a file, and leaves holes where it has some.
fn copy_data(from: &Arc<dyn Inode>, to: &Arc<dyn Inode>, size: u64) -> Result<()> {
    let (source, target) = (from.open(from, O_RDONLY)?, to.open(to, O_WRONLY)?);
    let mut buffer: Vec<u8> = api_fs::zeroed(PIECE.min(usize::try_from(size).unwrap_or(PIECE)))?;
    let mut at = 0;
    while at < size {
        at = match source.seek_data(at, false) {
            Ok(data) => data.max(at),
            Err(ENXIO) => break,
            Err(_) => at,
        };
        let most = buffer.len().min(usize::try_from(size.saturating_sub(at)).unwrap_or(PIECE));
        let count = source.read(at, &mut Sink::kernel(&mut buffer[..most]))?;
        if count == 0 {
            break;
        }
        let mut written = 0;
        while written < count {
            let n = target.write(at + written as u64, &mut Source::kernel(&buffer[written..count]))?;
            if n == 0 {
                return Err(EIO);
            }
            written += n;
        }
        at += count as u64;
    }
    if target.size()? < size {
        target.truncate(size)?;
    }
    target.sync(true)?;
    source.close()?;
    target.close()
}
