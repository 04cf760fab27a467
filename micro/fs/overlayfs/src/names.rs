// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making names and removing them.

use crate::node::Node;
use crate::{Changes, Fs, is_whiteout, lookup};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Inode};
use core::sync::atomic::Ordering;

pub(crate) const RENAME_EXCHANGE: u32 = 2;
/// Entries that are looked at in one go.
const BATCH: usize = 64;

impl Node {
    /// The name of a new file: `EEXIST` where there is one.
    fn check_free(&self, changes: &Changes, name: &[u8]) -> Result<()> {
        match self.find(changes, name) {
            Ok(_) => Err(EEXIST),
            Err(ENOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Makes something at a free name of the upper directory: in its place, or where a whiteout is there, in the work directory first.
    fn make_at(
        &self,
        changes: &mut Changes,
        name: &[u8],
        is_directory: bool,
        make: impl Fn(&Arc<dyn Inode>, &[u8]) -> Result<Arc<dyn Inode>>,
    ) -> Result<Arc<dyn Inode>> {
        let directory = self.copy_up_now(changes, true)?;
        // What is there is a whiteout: nothing else is free.
        if lookup(&directory, name)?.is_none() {
            return make(&directory, name);
        }
        self.fs.in_work(changes, |work, temporary| {
            let made = make(work, temporary)?;
            if !is_directory {
                work.rename(temporary, &directory, name, 0)?;
                return Ok(made);
            }
            self.fs.set_opaque(&made)?;
            work.rename(temporary, &directory, name, RENAME_EXCHANGE)?;
            work.unlink(temporary, false)?;
            Ok(made)
        })
    }

    pub(crate) fn make(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Arc<dyn Inode>> {
        // Nobody makes whiteouts but the file system.
        if kind == FileType::CharDevice && rdev == 0 {
            return Err(EPERM);
        }
        let mut guard = self.fs.changes.lock();
        let changes = guard.get();
        self.check_free(changes, name)?;
        let made = self.make_at(changes, name, kind == FileType::Directory, |directory, name| {
            directory.create(name, kind, permissions, owner, rdev)
        })?;
        self.forget(name);
        Ok(self.adopt(name, Some(made), Vec::new())?)
    }

    pub(crate) fn make_symlink(&self, name: &[u8], target: &[u8], owner: (u32, u32)) -> Result<()> {
        let mut guard = self.fs.changes.lock();
        let changes = guard.get();
        self.check_free(changes, name)?;
        self.make_at(changes, name, false, |directory, name| {
            directory.symlink(name, target, owner)?;
            directory.lookup(name)
        })?;
        self.forget(name);
        Ok(())
    }

    pub(crate) fn make_link(&self, name: &[u8], node: &Arc<Node>) -> Result<()> {
        if node.kind == FileType::Directory {
            return Err(EPERM);
        }
        let mut guard = self.fs.changes.lock();
        let changes = guard.get();
        self.check_free(changes, name)?;
        let upper = node.copy_up_now(changes, true)?;
        self.copy_up_now(changes, true)?;
        self.set_impure()?;
        self.make_at(changes, name, false, |directory, name| {
            directory.link(name, &upper)?;
            Ok(upper.clone())
        })?;
        self.forget(name);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &[u8], directory: bool) -> Result<()> {
        let mut guard = self.fs.changes.lock();
        let changes = guard.get();
        let node = self.find(changes, name)?;
        match (node.kind == FileType::Directory, directory) {
            (true, false) => return Err(EISDIR),
            (false, true) => return Err(ENOTDIR),
            (true, true) => node.check_empty(changes)?,
            _ => {}
        }
        let upper = self.copy_up_now(changes, true)?;
        if self.lower_has(name)? {
            self.fs.put_whiteout(changes, &upper, name)?;
        } else if directory {
            // Whiteouts in it cover nothing any more.
            if let Some(victim) = node.upper() {
                clear(&victim, 1)?;
            }
            upper.unlink(name, true)?;
        } else {
            upper.unlink(name, false)?;
        }
        if directory {
            node.is_removed.store(true, Ordering::Relaxed);
        }
        self.forget(name);
        Ok(())
    }
}

impl Fs {
    /// Covers a name of lower directories with a whiteout, in place of what the upper directory has there.
    pub(crate) fn put_whiteout(
        &self,
        changes: &mut Changes,
        directory: &Arc<dyn Inode>,
        name: &[u8],
    ) -> Result<()> {
        let is_directory = match lookup(directory, name)? {
            Some(there) => there.kind()? == FileType::Directory,
            None => false,
        };
        self.in_work(changes, |work, temporary| {
            work.create(temporary, FileType::CharDevice, 0, (0, 0), 0)?;
            if !is_directory {
                return work.rename(temporary, directory, name, 0);
            }
            work.rename(temporary, directory, name, RENAME_EXCHANGE)?;
            remove_directory(work, temporary)
        })
    }
}

/// Removes a directory that has nothing but whiteouts.
pub(crate) fn remove_directory(above: &Arc<dyn Inode>, name: &[u8]) -> Result<()> {
    clear(&above.lookup(name)?, 1)?;
    above.unlink(name, true)
}

/// Empties a directory of the upper layer that shows nothing: of whiteouts, and with `depth` above 1 of directories, too, as those are that
/// were left in the work directory.
pub(crate) fn clear(directory: &Arc<dyn Inode>, depth: u32) -> Result<()> {
    loop {
        let entries = directory.list(0, BATCH)?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            let inode = directory.lookup(&entry.name)?;
            let is_directory = inode.kind()? == FileType::Directory;
            match is_directory {
                true if depth > 1 => clear(&inode, depth - 1)?,
                false if depth == 1 && !is_whiteout(&inode)? => return Err(ENOTEMPTY),
                _ => {}
            }
            directory.unlink(&entry.name, is_directory)?;
        }
    }
}
