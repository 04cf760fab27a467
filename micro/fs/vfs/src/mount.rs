// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounted file systems.

use crate::dentry::{Dentry, NOT_CACHED};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
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
    pub const NOATIME: u32 = 1024;
    /// All of the above.
    pub const KNOWN: u32 = 1 | 2 | 4 | 8 | 1024;
    /// Those that take something away: locked ones stay.
    const RESTRICTING: u32 = 1 | 2 | 4 | 8;

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
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
    /// It came with a mount namespace of other owners (mount_namespaces(7), "Restrictions on mount namespaces"): it goes with what it
    /// is mounted on only.
    is_locked: AtomicBool,
    /// Its flags came with such a one as well: what they forbid stays forbidden.
    has_locked_flags: AtomicBool,
    /// Of the file system, if only the kernel changes its names.
    mounts: Option<Arc<Mounts>>,
    /// The directory it covers; `None` for the first mount of a namespace, and for what is mounted nowhere any more.
    point: SpinLock<Option<Arc<Dentry>>>,
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
        let mounts = inode.mounts().cloned();
        if let Some(mounts) = &mounts {
            mounts.add();
        }
        Arc::new(Mount {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            file_system,
            source,
            start,
            flags: AtomicU32::new(flags.0),
            is_locked: AtomicBool::new(false),
            has_locked_flags: AtomicBool::new(false),
            mounts,
            point: SpinLock::new(None),
            cache: SpinLock::new(Cache { ring: Vec::new(), next: 0 }),
        })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn flags(&self) -> MountFlags {
        MountFlags(self.flags.load(Ordering::Relaxed))
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
    pub(crate) fn may_become(&self, new: MountFlags) -> bool {
        let now = self.flags().0;
        let loses = now & !new.0 & MountFlags::RESTRICTING != 0;
        let changes_times = (now ^ new.0) & MountFlags::NOATIME != 0;
        !self.has_locked_flags() || !loses && !changes_times
    }

    pub(crate) fn set_flags(&self, flags: MountFlags) {
        self.flags.store(flags.0, Ordering::Relaxed);
    }

    pub fn is_read_only(&self) -> bool {
        self.flags().has(MountFlags::READ_ONLY)
    }

    /// The directory it covers.
    pub fn point(&self) -> Option<Arc<Dentry>> {
        self.point.lock().clone()
    }

    /// It covers another directory, or none. The one before.
    pub(crate) fn set_point(&self, point: Option<Arc<Dentry>>) -> Option<Arc<Dentry>> {
        core::mem::replace(&mut *self.point.lock(), point)
    }

    /// It is mounted nowhere any more.
    pub(crate) fn let_go(&self) {
        if let Some(point) = self.set_point(None) {
            point.set_cover(None);
        }
        self.clear_cache();
    }

    /// Names that were found once stay what they are until this mount changes them.
    pub(crate) fn keeps_names(&self) -> bool {
        self.mounts.as_ref().is_some_and(|mounts| !mounts.is_shared())
    }

    /// Keeps a dentry, first come first gone.
    pub(crate) fn cache(&self, dentry: &Arc<Dentry>) {
        let mut cache = self.cache.lock();
        let slot = cache.next;
        cache.next = (slot + 1) % CACHED;
        if cache.ring.len() <= slot {
            cache.ring.resize(slot + 1, None);
        }
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
