// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes of a mounted file system.

use crate::file::DiskFile;
use crate::volume::Volume;
use abi::{Errno, Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{DirEntry, File, FileType, Inode, InodeFlags, Mounts, SetAttr, Stat, StatFs, Timespec};
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use ext4::{Core, New};

const O_TRUNC: u32 = 0o1000;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

pub struct Node {
    this: Weak<Node>,
    volume: Arc<Volume>,
    pub number: u32,
    kind: FileType,
    write_hint: AtomicU8,
    /// Of the file, for mappings: their faults come where nobody can wait.
    length: AtomicU64,
    /// While it is mapped.
    pub pages: SpinLock<Weak<crate::pages::DiskPages>>,
}

impl Node {
    pub fn new(volume: Arc<Volume>, number: u32, kind: FileType) -> Arc<Node> {
        Arc::new_cyclic(|this| Node {
            this: this.clone(),
            volume,
            number,
            kind,
            write_hint: AtomicU8::new(0),
            length: AtomicU64::new(0),
            pages: SpinLock::new(Weak::new()),
        })
    }

    pub fn with<T>(&self, operation: impl FnOnce(&mut Core, u32) -> Result<T>) -> Result<T> {
        self.volume.with(|core| {
            let result = operation(core, self.number);
            self.length.store(core.known_length(self.number), Ordering::Relaxed);
            result
        })
    }

    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    pub fn reads_change_time(&self) -> bool {
        self.volume.keeps_access_times
    }

    pub fn attributes(&self) -> Result<Stat> {
        let stat = self.with(|core, number| {
            let flags = core.protection(number)?;
            core.stat(number).map(|stat| Stat { flags: InodeFlags::from_bits(flags), ..stat })
        })?;
        Ok(Stat { device: self.volume.number, ..stat })
    }

    fn of_this_volume(&self, other: &Arc<dyn Inode>) -> Result<u32> {
        let other = other.as_any().downcast_ref::<Node>().ok_or(EXDEV)?;
        if Arc::ptr_eq(&self.volume, &other.volume) { Ok(other.number) } else { Err(EXDEV) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.volume.forget(self.number);
    }
}

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        self.attributes()
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.volume.number, self.number.into()))
    }

    fn kind(&self) -> Result<FileType> {
        Ok(self.kind)
    }

    fn mounts(&self) -> Option<&Arc<Mounts>> {
        Some(&self.volume.mounts)
    }

    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        let node = self.this.upgrade().ok_or(EIO)?;
        match self.kind {
            FileType::Regular => {
                if flags & O_TRUNC != 0 && flags & 3 != 0 {
                    self.with(|core, number| core.truncate(number, 0, Timespec::now()))?;
                }
                Ok(Arc::new(DiskFile::new(node, this.clone())))
            }
            FileType::Directory => Ok(Arc::new(DiskFile::new(node, this.clone()))),
            _ => Err(ENXIO),
        }
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.with(|core, number| core.set_attributes(number, change, Timespec::now()))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.with(Core::read_link)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if self.kind != FileType::Directory {
            return Err(ENOTDIR);
        }
        let node = self.with(|core, number| {
            let found = core.lookup(number, name)?;
            self.volume.node(core, found)
        })?;
        Ok(node)
    }

    fn refusal(&self) -> Errno {
        ENOTDIR
    }

    fn create(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Arc<dyn Inode>> {
        let new = New { kind, permissions, owner, device: rdev, now: Timespec::now() };
        let node = self.with(|core, number| {
            let made = core.create(number, name, new)?;
            self.volume.node(core, made)
        })?;
        Ok(node)
    }

    fn create_unnamed(&self, permissions: u32, owner: (u32, u32), linkable: bool) -> Result<Arc<dyn Inode>> {
        let new = New { kind: FileType::Regular, permissions, owner, device: 0, now: Timespec::now() };
        let node = self.with(|core, number| {
            let made = core.create_unnamed(number, new, linkable)?;
            self.volume.node(core, made)
        })?;
        Ok(node)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: (u32, u32)) -> Result<()> {
        let now = Timespec::now();
        let new = New { kind: FileType::Symlink, permissions: 0o777, owner, device: 0, now };
        self.with(|core, number| core.symlink(number, name, target, new).map(|_| ()))
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let other = self.of_this_volume(inode)?;
        self.with(|core, number| core.link(number, name, other, Timespec::now()))
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        self.with(|core, number| core.unlink(number, name, directory, Timespec::now()))
    }

    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, to_name: &[u8], flags: u32) -> Result<()> {
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
            return Err(EINVAL);
        }
        let to = self.of_this_volume(to)?;
        self.with(|core, number| core.rename((number, name), (to, to_name), flags, Timespec::now()))
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        self.with(|core, number| core.list(number, from, most))
    }

    fn stat_fs(&self) -> Result<StatFs> {
        self.with(|core, _| core.stat_fs())
    }

    fn flags(&self) -> Option<InodeFlags> {
        self.with(Core::protection).ok().and_then(InodeFlags::from_bits)
    }

    fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        self.with(|core, number| core.set_protection(number, flags.bits(), Timespec::now()))
    }

    fn write_hint(&self) -> Option<&AtomicU8> {
        Some(&self.write_hint)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
