// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounted file systems.

use crate::dentry::{Dentry, NOT_CACHED};
use abi::{Events, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Inode;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

struct Cache {
    ring: Vec<Option<Arc<Dentry>>>,
    next: usize,
}

/// One mounted file system.
pub struct Mount {
    id: u32,
    /// As in /proc/filesystems.
    pub file_system: &'static str,
    /// What was mounted: a tag, a device, or the name of the file system.
    pub source: String,
    flags: AtomicU32,
    pub(crate) names_change: bool,
    /// The directory it covers; `None` for the first mount.
    point: SpinLock<Option<Arc<Dentry>>>,
    cache: SpinLock<Cache>,
}

impl Mount {
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn flags(&self) -> MountFlags {
        MountFlags(self.flags.load(Ordering::Relaxed))
    }

    pub fn is_read_only(&self) -> bool {
        self.flags().has(MountFlags::READ_ONLY)
    }

    /// The directory it covers.
    pub fn point(&self) -> Option<Arc<Dentry>> {
        self.point.lock().clone()
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

    fn clear_cache(&self) {
        let ring = core::mem::take(&mut self.cache.lock().ring);
        for dentry in ring.iter().flatten() {
            dentry.cache_slot.store(NOT_CACHED, Ordering::Relaxed);
        }
    }
}

/// How often the mounts changed, and who wants to hear of the next time.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static WATCHERS: WaitQueue = WaitQueue::new();

/// How often the mounts changed, and the queue that is woken when they change again.
pub fn mount_changes() -> (u64, &'static WaitQueue) {
    (CHANGES.load(Ordering::Relaxed), &WATCHERS)
}

fn mounts_changed() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
    WATCHERS.wake_all(Events::ERR | Events::PRI);
}

struct Mounted {
    mount: Arc<Mount>,
    root: Arc<Dentry>,
}

/// All mounts.
pub struct Namespace {
    mounts: SpinLock<Vec<Mounted>>,
    next_id: AtomicU32,
    root: Arc<Dentry>,
}

fn new_mount(
    id: u32,
    inode: &Arc<dyn Inode>,
    file_system: &'static str,
    source: &str,
    flags: MountFlags,
    point: Option<Arc<Dentry>>,
) -> Arc<Mount> {
    Arc::new(Mount {
        id,
        file_system,
        source: source.into(),
        flags: AtomicU32::new(flags.0),
        names_change: inode.names_change(),
        point: SpinLock::new(point),
        cache: SpinLock::new(Cache { ring: Vec::new(), next: 0 }),
    })
}

/// Linux numbers its mounts from a small number on.
const FIRST_ID: u32 = 21;

impl Namespace {
    /// A tree with the given file system as its root.
    pub fn new(root: Arc<dyn Inode>, file_system: &'static str) -> Result<Namespace> {
        let mount = new_mount(FIRST_ID, &root, file_system, file_system, MountFlags::default(), None);
        let root = Dentry::root(mount.clone(), root)?;
        let mounts = SpinLock::new(alloc::vec![Mounted { mount, root: root.clone() }]);
        Ok(Namespace { mounts, next_id: AtomicU32::new(FIRST_ID + 1), root })
    }

    pub fn root(&self) -> &Arc<Dentry> {
        &self.root
    }

    /// Mounts a file system on a directory (on top of what is mounted there already).
    pub fn mount(
        &self,
        point: &Arc<Dentry>,
        inode: Arc<dyn Inode>,
        file_system: &'static str,
        source: &str,
        flags: MountFlags,
    ) -> Result<Arc<Dentry>> {
        let point = point.topmost();
        let kind = inode.kind()?;
        if (kind == api_fs::FileType::Directory) != point.is_directory() {
            return Err(ENOTDIR);
        }
        if point.is_unlinked() {
            return Err(ENOENT);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mount = new_mount(id, &inode, file_system, source, flags, Some(point.clone()));
        let root = Dentry::root(mount.clone(), inode)?;
        self.mounts.lock().push(Mounted { mount, root: root.clone() });
        point.set_cover(Some(root.clone()));
        mounts_changed();
        Ok(root)
    }

    /// Changes the flags of the mount a dentry belongs to (MS_REMOUNT).
    pub fn remount(&self, at: &Arc<Dentry>, flags: MountFlags) -> Result<()> {
        if !self.is_mount_root(at) {
            return Err(EINVAL);
        }
        at.mount().flags.store(flags.0, Ordering::Relaxed);
        mounts_changed();
        Ok(())
    }

    fn is_mount_root(&self, dentry: &Arc<Dentry>) -> bool {
        self.mounts.lock().iter().any(|m| Arc::ptr_eq(&m.root, dentry))
    }

    /// Takes the mount whose root is `at` away. `EINVAL` when it is no mount root or the first mount, `EBUSY` when
    /// something is mounted below or a file of it is in use (unless `lazy`).
    pub fn unmount(&self, at: &Arc<Dentry>, lazy: bool) -> Result<()> {
        if !self.is_mount_root(at) {
            return Err(EINVAL);
        }
        let mount = at.mount().clone();
        let point = mount.point().ok_or(EINVAL)?;
        let has_mounts_below = self
            .mounts
            .lock()
            .iter()
            .any(|m| m.mount.point().is_some_and(|p| Arc::ptr_eq(p.mount(), &mount)));
        if has_mounts_below {
            return Err(EBUSY);
        }
        mount.clear_cache();
        // Handles to the mount: the table's, the root dentry's, ours. Each dentry in use has one more. The root
        // dentry itself: the table's, the cover's, the caller's.
        if !lazy && (Arc::strong_count(&mount) > 3 || Arc::strong_count(at) > 3) {
            return Err(EBUSY);
        }
        point.set_cover(None);
        let gone = {
            let mut mounts = self.mounts.lock();
            let index = mounts.iter().position(|m| Arc::ptr_eq(&m.root, at));
            index.map(|i| mounts.remove(i))
        };
        drop(gone);
        mounts_changed();
        Ok(())
    }

    /// Nobody uses the tree any more: mounts let go of each other, which would be there for ever otherwise. What is mounted is not
    /// listed from here on.
    pub fn take_apart(&self) {
        let mounts = core::mem::take(&mut *self.mounts.lock());
        for Mounted { mount, .. } in mounts.iter().rev() {
            let point = mount.point.lock().take();
            if let Some(point) = point {
                point.set_cover(None);
            }
            mount.clear_cache();
        }
        drop(mounts);
        mounts_changed();
    }

    /// Every mount with its root, in the order they were mounted.
    pub fn list(&self) -> Vec<(Arc<Mount>, Arc<Dentry>)> {
        self.mounts.lock().iter().map(|m| (m.mount.clone(), m.root.clone())).collect()
    }
}
