// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who wants to hear of changes: the watches of inotify(7), found by the inode they are on.
//!
//! What the program does through this tree is told; what happens to a volume behind its back is not. Without watches
//! each event costs one load.

use crate::Dentry;
use abi::{Result, errno::ENOMEM};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Inode;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use ordered::Map;

pub const ACCESS: u32 = 1;
pub const MODIFY: u32 = 2;
pub const ATTRIB: u32 = 4;
pub const CLOSE_WRITE: u32 = 8;
pub const CLOSE_NOWRITE: u32 = 0x10;
pub const OPEN: u32 = 0x20;
pub const MOVED_FROM: u32 = 0x40;
pub const MOVED_TO: u32 = 0x80;
pub const CREATE: u32 = 0x100;
pub const DELETE: u32 = 0x200;
pub const DELETE_SELF: u32 = 0x400;
pub const MOVE_SELF: u32 = 0x800;
/// Of every watch, whatever it asks for.
pub const UNMOUNT: u32 = 0x2000;
/// With the events of a move: from one name of a directory to another of the same (Linux' FS_RENAME). Not told to inotify.
pub const SAME_DIRECTORY: u32 = 0x1000_0000;
/// The event is about a directory.
pub const IS_DIR: u32 = 0x4000_0000;

/// A watch on one inode.
pub trait Watch: Send + Sync {
    /// `name` is that of a child, of a watched directory; `is_unlinked`: what was used had lost its name before. Must not
    /// block.
    fn happened(&self, mask: u32, cookie: u32, name: Option<&[u8]>, is_unlinked: bool);

    /// The inode is no more.
    fn gone(&self);
}

/// Device and number of an inode, by which one of a volume is known however often it is looked up.
pub type Key = (u64, u64);

static COUNT: AtomicUsize = AtomicUsize::new(0);
static COOKIE: AtomicU32 = AtomicU32::new(0);
static WATCHES: SpinLock<Map<Key, Vec<Weak<dyn Watch>>>> = SpinLock::new(Map::new());

pub fn key(inode: &Arc<dyn Inode>) -> Result<Key> {
    inode.identity()
}

/// Adds a watch on the inode with that key; `ENOMEM` when there is no memory for it. The caller finds its own watches.
pub fn add(key: Key, watch: Weak<dyn Watch>) -> Result<()> {
    let mut watches = WATCHES.lock();
    let list = watches.entry(key).or_default();
    list.reserve_fallibly(1).map_err(|_| ENOMEM)?;
    list.push(watch);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Forgets a watch on the inode with that key, known by its address, and those that are no more.
pub fn remove(key: Key, watch: *const ()) {
    let mut watches = WATCHES.lock();
    let Some(list) = watches.get_mut(&key) else { return };
    let before = list.len();
    list.retain(|other| other.strong_count() > 0 && other.as_ptr().cast::<()>() != watch);
    COUNT.fetch_sub(before - list.len(), Ordering::Relaxed);
    if list.is_empty() {
        watches.remove(&key);
    }
}

/// True when anything is watched.
#[inline]
pub fn is_watched() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

fn watches_of(inode: &Arc<dyn Inode>) -> Vec<Arc<dyn Watch>> {
    let Ok(key) = key(inode) else { return Vec::new() };
    let watches = WATCHES.lock();
    watches.get(&key).map_or(Vec::new(), |list| list.iter().filter_map(Weak::upgrade).collect())
}

fn tell(inode: &Arc<dyn Inode>, mask: u32, cookie: u32, name: Option<&[u8]>, is_unlinked: bool) {
    for watch in watches_of(inode) {
        watch.happened(mask, cookie, name, is_unlinked);
    }
}

/// Something happened to a file: who watches the directory it is in hears of it, and who watches it.
#[inline]
pub fn event(dentry: &Arc<Dentry>, mask: u32) {
    if is_watched() {
        tell_both(dentry, mask);
    }
}

#[cold]
fn tell_both(dentry: &Arc<Dentry>, mask: u32) {
    let mask = if dentry.is_directory() { mask | IS_DIR } else { mask };
    if let Some(parent) = dentry.parent() {
        tell(parent.inode(), mask, 0, Some(&dentry.name()), dentry.is_unlinked());
    }
    // A change of attributes is not made through a name (Linux tells no path of it), everything else here is.
    tell(dentry.inode(), mask, 0, None, mask & ATTRIB == 0 && dentry.is_unlinked());
}

/// A name appeared in `dir`, or went.
pub(crate) fn name(dir: &Arc<Dentry>, name: &[u8], mask: u32, is_directory: bool) {
    if is_watched() {
        let mask = if is_directory { mask | IS_DIR } else { mask };
        tell(dir.inode(), mask, 0, Some(name), false);
    }
}

/// A file lost a name: the number of its links is an attribute. Without any it is gone as soon as nobody has it open,
/// of which the last holder of the name tells ([`gone`]).
pub(crate) fn unlinked(victim: &Dentry) {
    if !is_watched() {
        return;
    }
    let inode = victim.inode();
    if !victim.is_directory() {
        tell(inode, ATTRIB, 0, None, false);
        if inode.stat().is_ok_and(|stat| stat.links > 0) {
            return;
        }
    }
    victim.tell_when_gone();
}

/// Nobody holds a file any more that had lost its last name.
#[cold]
pub(crate) fn gone(inode: &Arc<dyn Inode>) {
    for watch in watches_of(inode) {
        watch.happened(DELETE_SELF, 0, None, false);
        watch.gone();
    }
}

/// The last mount of a file system is gone: all its watches are told, and end.
#[cold]
pub(crate) fn unmounted(device: u64) {
    let watches: Vec<Arc<dyn Watch>> = {
        let watches = WATCHES.lock();
        let of_device = watches.range((device, 0)..=(device, u64::MAX));
        of_device.flat_map(|(_, list)| list.iter().filter_map(Weak::upgrade)).collect()
    };
    for watch in watches {
        watch.happened(UNMOUNT, 0, None, false);
        watch.gone();
    }
}

/// A file got another name.
pub(crate) fn linked(inode: &Arc<dyn Inode>) {
    if is_watched() {
        tell(inode, ATTRIB, 0, None, false);
    }
}

/// A name was moved, in place of `replaced`; both events of a move share a cookie.
pub(crate) fn moved(
    moving: &Arc<Dentry>,
    from: (&Arc<Dentry>, &[u8]),
    to: (&Arc<Dentry>, &[u8]),
    replaced: Option<&Dentry>,
) {
    if !is_watched() {
        return;
    }
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let directory = if moving.is_directory() { IS_DIR } else { 0 };
    let directory = if Arc::ptr_eq(from.0, to.0) { directory | SAME_DIRECTORY } else { directory };
    tell(from.0.inode(), MOVED_FROM | directory, cookie, Some(from.1), false);
    tell(to.0.inode(), MOVED_TO | directory, cookie, Some(to.1), false);
    if let Some(replaced) = replaced {
        unlinked(replaced);
    }
    tell(moving.inode(), MOVE_SELF, 0, None, false);
}
