// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system in memory: the root, made from the initial RAM disk, and tmpfs.
//!
//! - The archive's files are used in place: data that starts at a page boundary is mapped, read and written where
//!   the boot loader put it; other data is copied when it is first mapped or written. Names become inodes when a
//!   path first leads to them, so booting touches the archive's headers only ([`cpio`]).
//! - Everything is writable. New pages count against a limit (`ENOSPC`); pages of the archive do not.
//! - `/.unilith` of the archive is hidden; the tables below `/.unilith/sites` belong to the files of the same path
//!   ([`api_mem::PageSource::sites`]).
//! - [`Inode`](api_fs::Inode) is implemented by [`Node`]; [`RamFile`] is an open one.
//!
//! Locks: `Fs::names` for every change of names, above each directory's own lock, above each node's. No page is
//! allocated and no user memory touched under any of them.
//!
//! The only unsafe code hands out the archive's pages as frames ([`node`]): they are permanent by the contract of
//! [`api_mem`].
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod contents;
pub mod cpio;
mod data;
mod directory;
mod file;
mod node;
mod pages;

pub use contents::WRITE_SEALS;
pub use file::RamFile;
pub use node::Node;

use abi::{
    PAGE_SIZE, Result,
    errno::{EINVAL, ENOSPC},
};
use alloc::sync::Arc;
use api_fs::{FileType, Mounts};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};
use cpio::{Archive, BadArchive};
use ordered::Map;

/// One file system.
pub struct Fs {
    device: u64,
    /// Pages that may be allocated.
    limit: AtomicU64,
    used: AtomicU64,
    /// Inodes that exist, the root directory among them as on Linux, and how many may: one for each page of the limit beside the root,
    /// unless `nr_inodes` says otherwise.
    inodes: AtomicU64,
    max_inodes: AtomicU64,
    next_inode: AtomicU64,
    /// Held by every change of names.
    names: SpinLock<()>,
    archive: Option<Archived>,
    initial: &'static [Initial],
    mounts: Arc<Mounts>,
    /// What Linux calls ramfs: nothing but names and contents.
    is_plain: bool,
}

/// What is in the root directory of a file system from its beginning. An inode is made when a path first leads to it.
pub struct Initial {
    pub name: &'static [u8],
    /// Anything but a regular file.
    pub kind: FileType,
    pub permissions: u32,
    /// Of a device node.
    pub rdev: u64,
    /// Of a symbolic link.
    pub target: &'static [u8],
}

struct Archived {
    archive: Archive,
    /// Physical address of the archive's first byte, and where the kernel sees it.
    physical: u64,
    /// Nodes of files with several names, by the entry that holds their data.
    linked: SpinLock<Map<u32, Arc<Node>>>,
}

/// Inode number of the root; entries of the archive, or what was there initially, follow it.
const ROOT: u64 = 1;

impl Fs {
    fn new(device: u64, limit: u64, archive: Option<Archived>, initial: &'static [Initial]) -> Arc<Fs> {
        Arc::new(Fs::build(device, limit, archive, initial))
    }

    fn build(device: u64, limit: u64, archive: Option<Archived>, initial: &'static [Initial]) -> Fs {
        let count = archive.as_ref().map_or(initial.len() as u64, |a| a.archive.count() as u64);
        let first_free = ROOT + 1 + count;
        Fs {
            device,
            limit: AtomicU64::new(limit / PAGE_SIZE as u64),
            used: AtomicU64::new(0),
            inodes: AtomicU64::new(1),
            max_inodes: AtomicU64::new(1 + limit / PAGE_SIZE as u64),
            next_inode: AtomicU64::new(first_free),
            names: SpinLock::new(()),
            archive,
            initial,
            mounts: Arc::default(),
            is_plain: false,
        }
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let before = self.used.fetch_add(pages, Ordering::Relaxed);
        if before + pages > self.limit.load(Ordering::Relaxed) {
            self.used.fetch_sub(pages, Ordering::Relaxed);
            return Err(ENOSPC);
        }
        Ok(())
    }

    /// Other limits, in bytes and inodes; `EINVAL` where more is in use (shmem_reconfigure of Linux).
    fn set_limits(&self, bytes: Option<u64>, inodes: Option<u64>) -> Result<()> {
        let pages = bytes.map(|bytes| bytes / PAGE_SIZE as u64);
        let is_too_small =
            |limit: Option<u64>, used: &AtomicU64| limit.is_some_and(|n| n < used.load(Ordering::Relaxed));
        if is_too_small(pages, &self.used) || is_too_small(inodes, &self.inodes) {
            return Err(EINVAL);
        }
        if let Some(pages) = pages {
            self.limit.store(pages, Ordering::Relaxed);
        }
        if let Some(inodes) = inodes {
            self.max_inodes.store(inodes, Ordering::Relaxed);
        }
        Ok(())
    }

    fn uncharge(&self, pages: u64) {
        self.used.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Counts an inode, or as tmpfs of Linux does, one more name of an inode.
    fn charge_inode(&self) -> Result<()> {
        if self.inodes.fetch_add(1, Ordering::Relaxed) >= self.max_inodes.load(Ordering::Relaxed) {
            self.inodes.fetch_sub(1, Ordering::Relaxed);
            return Err(ENOSPC);
        }
        Ok(())
    }

    fn uncharge_inodes(&self, count: u64) {
        self.inodes.fetch_sub(count, Ordering::Relaxed);
    }

    fn new_inode(&self) -> Result<u64> {
        self.charge_inode()?;
        Ok(self.next_inode.fetch_add(1, Ordering::Relaxed))
    }
}

/// An empty file system of at most `limit` bytes; its root directory.
pub fn tmpfs(device: u64, limit: u64, permissions: u32, owner: (u32, u32)) -> Arc<Node> {
    tmpfs_with(device, limit, permissions, owner, &[])
}

/// As [`tmpfs`], with something in it.
pub fn tmpfs_with(
    device: u64,
    limit: u64,
    permissions: u32,
    owner: (u32, u32),
    initial: &'static [Initial],
) -> Arc<Node> {
    node::new_root(Fs::new(device, limit, None, initial), permissions, owner)
}

/// A ramfs: of all memory, `limit` bytes, it tells no limit, and it has neither attributes nor lists of rights nor fallocate(2).
pub fn ramfs(device: u64, limit: u64, permissions: u32, owner: (u32, u32)) -> Arc<Node> {
    let fs = Fs { is_plain: true, ..Fs::build(device, limit, None, &[]) };
    fs.max_inodes.store(u64::MAX, Ordering::Relaxed);
    node::new_root(Arc::new(fs), permissions, owner)
}

/// The file system of an archive, with `limit` bytes more for what is written; its root directory. `physical` is
/// the physical address of the archive, a multiple of the page size for its pages to be used in place.
pub fn from_archive(
    bytes: &'static [u8],
    physical: u64,
    device: u64,
    limit: u64,
) -> core::result::Result<Arc<Node>, BadArchive> {
    let archive = Archive::parse(bytes)?;
    let archived = Archived { archive, physical, linked: SpinLock::new(Map::new()) };
    Ok(node::archive_root(Fs::new(device, limit, Some(archived), &[])))
}

#[cfg(test)]
mod tests;
