// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Union mounts: a directory that is written to over others that stay as they are (Linux' overlayfs, Documentation/filesystems/
//! overlayfs.rst).
//!
//! - A [`node::Node`] is a file as the union shows it: of the upper directory, of a lower one, or a directory merged of several. It stays
//!   the same when it is copied up, and so does what is open.
//! - What is changed is copied up before: first the directories above it, each made in the work directory and moved to its place.
//! - A name that is removed and that lower directories have is covered by a whiteout, a character device 0:0. A directory that
//!   must not show what is below it is opaque, which an extended attribute says.
//!
//! Layers are inodes of other file systems, and are used without regard to what is mounted on them. Changes, and looking names up, take
//! turns by a lock that may be held while other file systems sleep. Checks of permissions are the caller's (`vfs`), against what the union
//! shows.
#![no_std]
// Tests have two symbols of a scheduler.
#![cfg_attr(not(test), forbid(unsafe_code))]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod attributes;
mod copy_up;
mod file;
mod list;
mod names;
mod node;
mod rename;

#[cfg(test)]
mod tests;

use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Inode, Mounts};
use api_lock::SpinLock;
use api_sched::SleepLock;
use core::sync::atomic::AtomicU64;
use node::Node;
use ordered::Map;

/// Lower directories of one mount (Linux' OVL_MAX_STACK).
pub const MAX_LOWERS: usize = 500;
/// How many of these file systems may be on each other (Linux' FILESYSTEM_MAX_STACK_DEPTH): each takes room on the kernel's stack.
const MAX_DEPTH: u32 = 2;
/// Where files are made before they are moved to their place, in the directory that `workdir=` names.
const WORK: &[u8] = b"work";

/// Who may own a copied file: nobody copies files of users that a user namespace does not have.
pub type MayOwn = Box<dyn Fn(u32, u32) -> bool + Send + Sync>;

/// What a union is made of.
pub struct Layers {
    /// The directory that is written to, and one of the same file system for what is not finished.
    pub upper: Option<(Arc<dyn Inode>, Arc<dyn Inode>)>,
    /// The topmost first.
    pub lowers: Vec<Arc<dyn Inode>>,
    /// The file system's own attributes begin with `user.overlay.` and not with `trusted.overlay.`.
    pub user_xattrs: bool,
    /// They may be kept at all: not those of `trusted.` in a user namespace.
    pub may_keep_xattrs: bool,
    pub may_own: Option<MayOwn>,
}

/// One union.
pub(crate) struct Fs {
    device: u64,
    /// All layers are of one file system: inode numbers are those of the layers, and the device is the union's.
    is_one: bool,
    /// Devices of the layers, and those that their files show otherwise.
    devices: Vec<(u64, u64)>,
    /// The directory for what is not finished.
    work: Option<Arc<dyn Inode>>,
    prefix: &'static [u8],
    has_xattrs: bool,
    may_own: Option<MayOwn>,
    depth: u32,
    /// Names change, or are looked up, one at a time.
    changes: SleepLock<Changes>,
    /// Files of the upper directory that are in use, by the address of their inode: they may have several names.
    by_upper: SpinLock<Map<usize, Weak<Node>>>,
    next_inode: AtomicU64,
    mounts: Arc<Mounts>,
}

/// Whoever has it changes names.
pub(crate) struct Changes {
    /// Of the next file in the work directory.
    next: u64,
}

/// The root of a union. `new_device` hands out numbers of devices. `EINVAL` for layers that cannot be one.
pub fn mount(layers: Layers, new_device: impl Fn() -> u64) -> Result<Arc<dyn Inode>> {
    let Layers { upper, lowers, user_xattrs, may_keep_xattrs, may_own } = layers;
    if lowers.is_empty() || lowers.len() > MAX_LOWERS || upper.is_none() && lowers.len() < 2 {
        return Err(EINVAL);
    }
    let depth = lowers.iter().map(depth_of).max().unwrap_or(0) + 1;
    if depth > MAX_DEPTH || upper.as_ref().is_some_and(|(upper, _)| depth_of(upper) > 0) {
        return Err(EINVAL);
    }
    let mut devices: Vec<(u64, u64)> = Vec::new();
    devices.reserve_exact_fallibly(lowers.len() + 1).map_err(|_| ENOMEM)?;
    for layer in upper.iter().map(|(upper, _)| upper).chain(&lowers) {
        let device = layer.stat()?.device;
        if devices.iter().all(|(known, _)| *known != device) {
            devices.push((device, new_device()));
        }
        // What changes through the union, mounts of the layer do not hear of: they are to keep no names.
        if let Some(mounts) = layer.mounts() {
            mounts.add();
            mounts.add();
        }
    }
    let prefix: &[u8] = if user_xattrs { b"user.overlay." } else { b"trusted.overlay." };
    let (mut work, mut has_xattrs) = (None, false);
    if let Some((upper, directory)) = &upper {
        if upper.stat()?.device != directory.stat()?.device {
            return Err(EINVAL);
        }
        let made = make_work(directory)?;
        has_xattrs = may_keep_xattrs && keeps_xattrs(&made, prefix);
        work = Some(made);
    }
    let fs = Arc::new(Fs {
        device: new_device(),
        is_one: devices.len() == 1,
        devices,
        work,
        prefix,
        has_xattrs,
        may_own,
        depth,
        changes: SleepLock::new(Box::new(Changes { next: 0 })),
        by_upper: SpinLock::new(Map::new()),
        next_inode: AtomicU64::new(1),
        mounts: Arc::default(),
    });
    Ok(Node::root(&fs, upper.map(|(upper, _)| upper), lowers)?)
}

/// How many unions are below an inode, its own included.
fn depth_of(inode: &Arc<dyn Inode>) -> u32 {
    inode.as_any().downcast_ref::<Node>().map_or(0, |node| node.fs.depth)
}

/// An empty directory for what is not finished; what an earlier mount left there goes.
fn make_work(directory: &Arc<dyn Inode>) -> Result<Arc<dyn Inode>> {
    match directory.lookup(WORK) {
        Ok(there) if there.kind()? == FileType::Directory => {
            names::clear(&there, 2)?;
            directory.unlink(WORK, true)?;
        }
        Ok(_) => directory.unlink(WORK, false)?,
        Err(ENOENT) => {}
        Err(e) => return Err(e),
    }
    directory.create(WORK, FileType::Directory, 0, (0, 0), 0)
}

/// Whether a file system keeps attributes of that kind.
fn keeps_xattrs(directory: &Arc<dyn Inode>, prefix: &[u8]) -> bool {
    let name = [prefix, b"opaque"].concat();
    directory.set_xattr(&name, b"0", 0).and_then(|()| directory.remove_xattr(&name)).is_ok()
}

/// A whiteout covers the name in all layers below.
pub(crate) fn is_whiteout(inode: &Arc<dyn Inode>) -> Result<bool> {
    Ok(inode.kind()? == FileType::CharDevice && inode.stat()?.rdev == 0)
}

/// `None` where the name is not there.
pub(crate) fn lookup(directory: &Arc<dyn Inode>, name: &[u8]) -> Result<Option<Arc<dyn Inode>>> {
    match directory.lookup(name) {
        Ok(found) => Ok(Some(found)),
        Err(ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Fs {
    fn xattr(&self, name: &[u8]) -> Vec<u8> {
        [self.prefix, name].concat()
    }

    /// The directory shows nothing of the layers below.
    fn is_opaque(&self, directory: &Arc<dyn Inode>) -> bool {
        directory.get_xattr(&self.xattr(b"opaque")).is_ok_and(|value| value == b"y")
    }

    /// `EIO` where the upper file system cannot say so, as on Linux.
    fn set_opaque(&self, directory: &Arc<dyn Inode>) -> Result<()> {
        if !self.has_xattrs {
            return Err(EIO);
        }
        directory.set_xattr(&self.xattr(b"opaque"), b"y", 0)
    }

    /// The device that a file of a layer shows.
    fn shown_device(&self, device: u64) -> u64 {
        match self.is_one {
            true => self.device,
            false => {
                self.devices.iter().find(|(real, _)| *real == device).map_or(device, |(_, shown)| *shown)
            }
        }
    }
}
