// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounted file systems.

use crate::covered;
use crate::dentry::{Dentry, NOT_CACHED};
use crate::namespace::Table;
use crate::propagation::{self, Propagation};
use crate::super_block::SuperBlock;
use crate::tree::descend;
use abi::{Result, errno::*};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Inode, Mounts};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Dentries of one mount that are kept although nobody uses them.
const CACHED: usize = 2048;

/// Flags of mount(2) that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags(pub u32);

impl MountFlags {
    pub const READ_ONLY: u32 = 1;
    pub const NOSUID: u32 = 2;
    pub const NODEV: u32 = 4;
    pub const NOEXEC: u32 = 8;
    pub const SYNCHRONOUS: u32 = 16;
    pub const DIRSYNC: u32 = 128;
    pub const NOSYMFOLLOW: u32 = 256;
    pub const NOATIME: u32 = 1024;
    pub const NODIRATIME: u32 = 2048;
    /// Without this one and `NOATIME`, times of access are those of MS_RELATIME.
    pub const STRICTATIME: u32 = 1 << 24;
    pub const LAZYTIME: u32 = 1 << 25;
    /// When times of access are written.
    pub const TIMES: u32 = Self::NOATIME | Self::NODIRATIME | Self::STRICTATIME;
    /// Those of one mount.
    pub const OF_MOUNT: u32 = Self::RESTRICTING | Self::NOSYMFOLLOW | Self::TIMES;
    /// Those of the file system, which all of its mounts have.
    pub const OF_FILE_SYSTEM: u32 = Self::READ_ONLY | Self::SYNCHRONOUS | Self::DIRSYNC | Self::LAZYTIME;
    pub const KNOWN: u32 = Self::OF_MOUNT | Self::OF_FILE_SYSTEM;
    /// Those that take something away: locked ones stay.
    const RESTRICTING: u32 = 1 | 2 | 4 | 8;

    /// The flags of mount(2) that are kept.
    pub fn of_call(flags: u64) -> MountFlags {
        let flags = flags as u32 & Self::KNOWN;
        MountFlags(if flags & Self::STRICTATIME != 0 { flags & !Self::NOATIME } else { flags })
    }

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Times of access are written as of MS_RELATIME.
    pub fn is_relatime(self) -> bool {
        !self.has(MountFlags::NOATIME | MountFlags::STRICTATIME)
    }
}

struct Cache {
    ring: Vec<Option<Arc<Dentry>>>,
    next: usize,
}

/// One mounted file system, or a part of one.
pub struct Mount {
    id: u32,
    /// As in /proc/filesystems.
    pub file_system: &'static str,
    /// What was mounted: a tag, a device, or the name of the file system.
    pub source: String,
    /// The path of its root in the file system, as /proc/self/mountinfo has it: `/`, unless it is a bind mount of something below.
    pub start: Vec<u8>,
    flags: AtomicU32,
    super_block: Arc<SuperBlock>,
    /// MNT_EXPIRE was asked for, and nobody has used it since.
    is_expiring: AtomicBool,
    /// Open descriptions that may write to regular files of it.
    writers: AtomicU32,
    /// It came with a mount namespace of other owners (mount_namespaces(7), "Restrictions on mount namespaces"): it goes with what it
    /// is mounted on only.
    is_locked: AtomicBool,
    /// Its flags came with such a one as well: what they forbid stays forbidden.
    has_locked_flags: AtomicBool,
    /// Of the file system, if only the kernel changes its names.
    mounts: Option<Arc<Mounts>>,
    /// It is, or was, known to the registry of [`propagation`].
    takes_part: AtomicBool,
    /// Of the namespace that it is in.
    table: SpinLock<Weak<Table>>,
    root: SpinLock<Weak<Dentry>>,
    /// The directory it covers; `None` for the first mount of a namespace, and for what is mounted nowhere any more.
    point: SpinLock<Option<Arc<Dentry>>>,
    mounts_on_it: AtomicU32,
    cache: SpinLock<Cache>,
}

/// Linux numbers its mounts from a small number on.
static NEXT_ID: AtomicU32 = AtomicU32::new(21);

impl Mount {
    /// A mount of the file system of `inode`, or of what is below `inode`.
    pub(crate) fn new(
        inode: &Arc<dyn Inode>,
        file_system: &'static str,
        source: String,
        start: Vec<u8>,
        flags: MountFlags,
    ) -> Arc<Mount> {
        let super_block = Arc::new(SuperBlock::new(flags, None));
        Mount::of(super_block, inode, file_system, source, start, flags)
    }

    /// As [`Mount::new`], one more of a file system that is mounted already.
    pub(crate) fn another(of: &Mount, inode: &Arc<dyn Inode>, start: Vec<u8>) -> Arc<Mount> {
        Mount::of(of.super_block.clone(), inode, of.file_system, of.source.clone(), start, of.flags())
    }

    pub(crate) fn of(
        super_block: Arc<SuperBlock>,
        inode: &Arc<dyn Inode>,
        file_system: &'static str,
        source: String,
        start: Vec<u8>,
        flags: MountFlags,
    ) -> Arc<Mount> {
        let mounts = inode.mounts().cloned();
        if let Some(mounts) = &mounts {
            mounts.add();
        }
        Arc::new(Mount {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            file_system,
            source,
            start,
            flags: AtomicU32::new(flags.0 & MountFlags::OF_MOUNT),
            super_block,
            is_expiring: AtomicBool::new(false),
            writers: AtomicU32::new(0),
            is_locked: AtomicBool::new(false),
            has_locked_flags: AtomicBool::new(false),
            mounts,
            takes_part: AtomicBool::new(false),
            table: SpinLock::default(),
            root: SpinLock::default(),
            point: SpinLock::new(None),
            mounts_on_it: AtomicU32::new(0),
            cache: SpinLock::new(Cache { ring: Vec::new(), next: 0 }),
        })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn flags(&self) -> MountFlags {
        MountFlags(self.flags.load(Ordering::Relaxed))
    }

    /// What it shares with the other mounts of its file system.
    pub fn super_block(&self) -> &Arc<SuperBlock> {
        &self.super_block
    }

    /// `f_flags` of statfs(2), without ST_VALID.
    pub fn statfs_flags(&self) -> u64 {
        const ST_RELATIME: u32 = 4096;
        const ST_NOSYMFOLLOW: u32 = 8192;
        let (own, shared) = (self.flags(), self.super_block.flags());
        let same = MountFlags::RESTRICTING | MountFlags::NOATIME | MountFlags::NODIRATIME;
        let mut shown = own.0 & same | shared.0 & (MountFlags::READ_ONLY | MountFlags::SYNCHRONOUS);
        if own.is_relatime() {
            shown |= ST_RELATIME;
        }
        if own.has(MountFlags::NOSYMFOLLOW) {
            shown |= ST_NOSYMFOLLOW;
        }
        u64::from(shown)
    }

    /// Whether MNT_EXPIRE was asked for before and nobody has used the mount since; it was asked for from now on.
    pub(crate) fn expire(&self) -> bool {
        self.is_expiring.swap(true, Ordering::Relaxed)
    }

    /// Somebody uses it.
    pub fn note_use(&self) {
        if self.is_expiring.load(Ordering::Relaxed) {
            self.is_expiring.store(false, Ordering::Relaxed);
        }
    }

    /// Another description may write to a regular file of it.
    pub fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
        self.super_block.add_writer();
    }

    pub fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
        self.super_block.remove_writer();
    }

    /// `EPERM` where these flags would lift what is locked; `EBUSY` where the mount becomes one for reading only and has files that are
    /// open for writing.
    pub(crate) fn check_change(&self, new: MountFlags) -> Result<()> {
        if !self.may_become(new) {
            return Err(EPERM);
        }
        let becomes_read_only = new.has(MountFlags::READ_ONLY) && !self.flags().has(MountFlags::READ_ONLY);
        if becomes_read_only && self.writers.load(Ordering::Relaxed) > 0 { Err(EBUSY) } else { Ok(()) }
    }

    /// It keeps a mount namespace, and is copied into no other: that could come to keep itself.
    pub(crate) fn keeps_mounts(&self) -> bool {
        self.file_system == "nsfs" && self.start.starts_with(b"mnt:")
    }

    /// How it takes part in what others show.
    pub fn propagation(&self) -> Propagation {
        if self.takes_part.load(Ordering::Relaxed) {
            propagation::of(self.id)
        } else {
            Propagation::default()
        }
    }

    /// The nearest group above its master, or this, one of whose members `is_seen`, by number (mountinfo's propagate_from).
    pub fn nearest_sender(&self, is_seen: impl Fn(u32) -> bool) -> Option<u32> {
        propagation::nearest_seen(self, is_seen)
    }

    pub(crate) fn takes_part(&self) {
        self.takes_part.store(true, Ordering::Relaxed);
    }

    fn leave_groups(&self) {
        if self.takes_part.load(Ordering::Relaxed) {
            propagation::leave(self.id);
        }
    }

    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        self.table.lock().upgrade()
    }

    pub(crate) fn set_table(&self, table: &Arc<Table>) {
        *self.table.lock() = Arc::downgrade(table);
    }

    pub(crate) fn root(&self) -> Option<Arc<Dentry>> {
        self.root.lock().upgrade()
    }

    pub(crate) fn set_root(&self, root: &Arc<Dentry>) {
        *self.root.lock() = Arc::downgrade(root);
    }

    /// Where a path of its file system is in it, if that is this inode.
    pub(crate) fn place_of(&self, path: &[u8], inode: &Arc<dyn Inode>) -> Option<Arc<Dentry>> {
        let start = self.start.strip_suffix(b"/").unwrap_or(&self.start);
        let below = path.strip_prefix(start).filter(|below| below.is_empty() || below[0] == b'/')?;
        let place = descend(&self.root()?, below).ok()?;
        Arc::ptr_eq(place.inode(), inode).then_some(place)
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Ordering::Relaxed);
    }

    pub(crate) fn has_locked_flags(&self) -> bool {
        self.has_locked_flags.load(Ordering::Relaxed)
    }

    pub(crate) fn lock_flags(&self) {
        self.has_locked_flags.store(true, Ordering::Relaxed);
    }

    /// Whether the flags may become these.
    fn may_become(&self, new: MountFlags) -> bool {
        let now = self.flags().0;
        let loses = now & !new.0 & MountFlags::RESTRICTING != 0;
        let changes_times = (now ^ new.0) & MountFlags::TIMES != 0;
        !self.has_locked_flags() || !loses && !changes_times
    }

    pub(crate) fn set_flags(&self, flags: MountFlags) {
        self.flags.store(flags.0 & MountFlags::OF_MOUNT, Ordering::Relaxed);
    }

    pub fn is_read_only(&self) -> bool {
        self.flags().has(MountFlags::READ_ONLY) || self.super_block.flags().has(MountFlags::READ_ONLY)
    }

    /// The directory it covers.
    pub fn point(&self) -> Option<Arc<Dentry>> {
        self.point.lock().clone()
    }

    /// It covers another directory, or none. The one before.
    pub(crate) fn set_point(self: &Arc<Mount>, point: Option<Arc<Dentry>>) -> Option<Arc<Dentry>> {
        let before = self.point.lock().take();
        if let Some(before) = &before {
            covered::remove(before, self);
            before.mount().mounts_on_it.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(point) = &point {
            covered::add(point, self);
            point.mount().mounts_on_it.fetch_add(1, Ordering::Relaxed);
        }
        *self.point.lock() = point;
        before
    }

    /// How many mounts cover something of it.
    pub(crate) fn mounts_on_it(&self) -> u32 {
        self.mounts_on_it.load(Ordering::Relaxed)
    }

    /// It is mounted nowhere any more, and of no namespace.
    pub(crate) fn let_go(self: &Arc<Mount>) {
        if let Some(point) = self.set_point(None) {
            point.set_cover(None);
        }
        *self.table.lock() = Weak::new();
        self.leave_groups();
        self.clear_cache();
    }

    /// Names that were found once stay what they are until this mount changes them.
    pub(crate) fn keeps_names(&self) -> bool {
        self.mounts.as_ref().is_some_and(|mounts| !mounts.is_shared())
    }

    /// Keeps a dentry, first come first gone.
    pub(crate) fn cache(&self, dentry: &Arc<Dentry>) {
        let mut cache = self.cache.lock();
        let mut slot = cache.next;
        if cache.ring.len() <= slot {
            if cache.ring.reserve_fallibly(1).is_ok() {
                cache.ring.push(None);
            } else if cache.ring.is_empty() {
                return;
            }
            // As many as there is memory for: the oldest goes.
            slot = slot.min(cache.ring.len() - 1);
        }
        cache.next = (slot + 1) % CACHED;
        dentry.cache_slot.store(slot as u32, Ordering::Relaxed);
        let old = cache.ring[slot].replace(dentry.clone());
        if let Some(old) = &old {
            old.cache_slot.store(NOT_CACHED, Ordering::Relaxed);
        }
        drop(cache);
        drop(old);
    }

    pub(crate) fn uncache(&self, dentry: &Dentry) {
        let slot = dentry.cache_slot.swap(NOT_CACHED, Ordering::Relaxed);
        if slot != NOT_CACHED {
            let old = self.cache.lock().ring.get_mut(slot as usize).and_then(Option::take);
            drop(old);
        }
    }

    pub(crate) fn clear_cache(&self) {
        let ring = core::mem::take(&mut self.cache.lock().ring);
        for dentry in ring.iter().flatten() {
            dentry.cache_slot.store(NOT_CACHED, Ordering::Relaxed);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.leave_groups();
    }
}
