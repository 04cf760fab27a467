// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mount namespaces (mount_namespaces(7)): which file systems are mounted where. All mounts are private ones: what is mounted in one
//! place shows in no other.

use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags};
use abi::{Events, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Inode;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};
use ordered::Map;

/// Most mounts of one namespace (fs.mount-max, which is 100,000 on Linux).
pub const MAX_MOUNTS: usize = 4096;

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

#[derive(Clone)]
struct Mounted {
    mount: Arc<Mount>,
    root: Arc<Dentry>,
}

impl Mounted {
    /// The same part of the file system, to be mounted once more.
    fn again(from: &Arc<Dentry>) -> Result<Mounted> {
        check_memory()?;
        let (was, inode) = (from.mount(), from.inode());
        let start = match (&was.start[..], from.path_in_mount()) {
            (b"/", below) => below,
            (start, below) if below == b"/" => start.to_vec(),
            (start, below) => [start, &below].concat(),
        };
        let mount = Mount::new(inode, was.file_system, was.source.clone(), start, was.flags());
        if was.has_locked_flags() {
            mount.lock_flags();
        }
        // Names that it keeps would not be given up when the other one removes them.
        was.clear_cache();
        let root = Dentry::root(mount.clone(), inode.clone())?;
        Ok(Mounted { mount, root })
    }
}

/// `ENOMEM` where nothing new may be made.
fn check_memory() -> Result<()> {
    if api_alloc::is_low() { Err(ENOMEM) } else { Ok(()) }
}

/// All mounts that a process sees.
pub struct Namespace {
    mounts: SpinLock<Vec<Mounted>>,
    root: SpinLock<Arc<Dentry>>,
    number: u64,
    owner: Owner,
}

/// Whose capabilities count for a namespace: nothing to this crate.
pub type Owner = Option<Arc<dyn Any + Send + Sync>>;

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Mounts of a namespace and their copies in another one.
pub struct Copies(Vec<(Arc<Mount>, Arc<Dentry>)>);

impl Copies {
    /// The same place in the copy. What has no name any more has none there; what is mounted nowhere stays what it is.
    pub fn of(&self, place: &Arc<Dentry>) -> Result<Arc<Dentry>> {
        let Some((_, root)) = self.0.iter().find(|(mount, _)| Arc::ptr_eq(mount, place.mount())) else {
            return Ok(place.clone());
        };
        let path = place.path_in_mount();
        match descend(root, &path) {
            Ok(found) if Arc::ptr_eq(found.inode(), place.inode()) => Ok(found),
            _ => Dentry::unnamed(root.mount(), place.inode().clone(), &place.name()),
        }
    }
}

/// What is at a path below `from` in its mount, whoever may go there and whatever covers it.
fn descend(from: &Arc<Dentry>, path: &[u8]) -> Result<Arc<Dentry>> {
    let mut at = from.clone();
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        at = at.child(name)?;
    }
    Ok(at)
}

impl Namespace {
    /// A tree with the given file system as its root.
    pub fn new(root: Arc<dyn Inode>, file_system: &'static str) -> Result<Namespace> {
        let flags = MountFlags::default();
        let mount = Mount::new(&root, file_system, file_system.into(), b"/".to_vec(), flags);
        let root = Dentry::root(mount.clone(), root)?;
        Ok(Namespace::with(Mounted { mount, root }, None))
    }

    fn with(first: Mounted, owner: Owner) -> Namespace {
        let root = SpinLock::new(first.root.clone());
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Namespace { mounts: SpinLock::new(alloc::vec![first]), root, number, owner }
    }

    /// Counts from 0, the machine's own.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it was made with.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The root of the first mount.
    pub fn root(&self) -> Arc<Dentry> {
        self.root.lock().clone()
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
        check_memory()?;
        let mount = Mount::new(&inode, file_system, String::from(source), b"/".to_vec(), flags);
        let root = Dentry::root(mount.clone(), inode)?;
        self.attach(&self.point(point)?, Mounted { mount, root })
    }

    /// What a mount at a place covers. `EINVAL` where that is not of this namespace.
    fn point(&self, place: &Arc<Dentry>) -> Result<Arc<Dentry>> {
        let point = place.topmost();
        if self.has(point.mount()) { Ok(point) } else { Err(EINVAL) }
    }

    /// Shows what is below `from` at another place, too (MS_BIND), and if `all`, with what is mounted there (MS_REC).
    pub fn bind(&self, from: &Arc<Dentry>, point: &Arc<Dentry>, all: bool) -> Result<Arc<Dentry>> {
        if !self.has(from.mount()) {
            return Err(EINVAL);
        }
        let before = self.snapshot()?;
        // What a locked mount covers is to stay covered.
        let is_bared =
            |m: &Mounted| m.mount.is_locked() && m.mount.point().is_some_and(|p| from.is_ancestor_of(&p));
        if !all && before.iter().any(is_bared) {
            return Err(EINVAL);
        }
        let root = self.attach(&self.point(point)?, Mounted::again(from)?)?;
        if all && let Err(e) = self.copy_below(&before, from, &root, false) {
            // Nothing is left half done.
            self.detach(root.mount());
            return Err(e);
        }
        Ok(root)
    }

    /// Another namespace with the same mounts, and where they are in it. `locks`: it has another owner, who must not uncover what they
    /// cover.
    pub fn copy(&self, owner: Owner, locks: bool) -> Result<(Namespace, Copies)> {
        let before = self.snapshot()?;
        let from = self.root();
        let first = Mounted::again(&from)?;
        let root = first.root.clone();
        let copy = Namespace::with(first, owner);
        if locks {
            root.mount().lock_flags();
        }
        let copies = copy.copy_below(&before, &from, &root, locks)?;
        Ok((copy, copies))
    }

    /// Mounts in this namespace, below `to`, what is mounted below `from` in a namespace that had these mounts.
    fn copy_below(
        &self,
        mounts: &[Mounted],
        from: &Arc<Dentry>,
        to: &Arc<Dentry>,
        locks: bool,
    ) -> Result<Copies> {
        let mut on: Map<u32, Vec<&Mounted>> = Map::new();
        for mounted in mounts {
            if let Some(point) = mounted.mount.point() {
                let list = on.entry(point.mount().id()).or_default();
                list.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                list.push(mounted);
            }
        }
        let mut copied: Vec<(Arc<Mount>, Arc<Dentry>)> = Vec::new();
        copied.reserve_fallibly(mounts.len() + 1).map_err(|_| ENOMEM)?;
        copied.push((from.mount().clone(), to.clone()));
        let mut next = 0;
        while let Some((mount, root)) = copied.get(next).cloned() {
            for mounted in on.get(&mount.id()).into_iter().flatten() {
                let Some(point) = mounted.mount.point() else { continue };
                let path = if next > 0 {
                    point.path_in_mount()
                } else if from.is_ancestor_of(&point) {
                    point.path_from(from).unwrap_or_default()
                } else {
                    continue;
                };
                // A volume may have lost the directory.
                let Ok(point) = descend(&root, &path) else { continue };
                let copy = self.attach(&point, Mounted::again(&mounted.root)?)?;
                copy.mount().set_locked(locks || mounted.mount.is_locked());
                if locks {
                    copy.mount().lock_flags();
                }
                copied.push((mounted.mount.clone(), copy));
            }
            next += 1;
        }
        Ok(Copies(copied))
    }

    /// The mount becomes one of this namespace, and covers a directory of it, or a file if it is one.
    fn attach(&self, point: &Arc<Dentry>, new: Mounted) -> Result<Arc<Dentry>> {
        if new.root.is_directory() != point.is_directory() {
            return Err(ENOTDIR);
        }
        if point.is_unlinked() {
            return Err(ENOENT);
        }
        let root = new.root.clone();
        {
            let mut mounts = self.mounts.lock();
            if mounts.len() >= MAX_MOUNTS {
                return Err(ENOSPC);
            }
            mounts.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            new.mount.set_point(Some(point.clone()));
            mounts.push(new);
        }
        point.set_cover(Some(root.clone()));
        mounts_changed();
        Ok(root)
    }

    /// Changes the flags of the mount a dentry belongs to (MS_REMOUNT). `EPERM` where those are locked.
    pub fn remount(&self, at: &Arc<Dentry>, flags: MountFlags) -> Result<()> {
        if !self.is_mount_root(at) {
            return Err(EINVAL);
        }
        if !at.mount().may_become(flags) {
            return Err(EPERM);
        }
        at.mount().set_flags(flags);
        mounts_changed();
        Ok(())
    }

    /// Takes the mount whose root is `at` to another place, with what is mounted below it (MS_MOVE). `EINVAL` when it is no mount
    /// root or the first mount, and between a directory and something else; `ELOOP` for a place below itself.
    pub fn move_mount(&self, at: &Arc<Dentry>, to: &Arc<Dentry>) -> Result<()> {
        let to = self.point(to)?;
        let is_free = self.is_mount_root(at) && !at.mount().is_locked();
        let point = at.mount().point().filter(|_| is_free).ok_or(EINVAL)?;
        if to.is_directory() != at.is_directory() {
            return Err(EINVAL);
        }
        if to.is_unlinked() {
            return Err(ENOENT);
        }
        if is_reachable(&to, at) {
            return Err(ELOOP);
        }
        point.set_cover(None);
        at.mount().set_point(Some(to.clone()));
        to.set_cover(Some(at.clone()));
        mounts_changed();
        Ok(())
    }

    /// pivot_root(2): `new` takes the place of the mount whose root is `root`, which goes to `put_old`.
    pub fn pivot(&self, root: &Arc<Dentry>, new: &Arc<Dentry>, put_old: &Arc<Dentry>) -> Result<()> {
        if ![root, new, put_old].iter().all(|place| self.has(place.mount())) {
            return Err(EINVAL);
        }
        if new.is_unlinked() || put_old.is_unlinked() {
            return Err(ENOENT);
        }
        if [new, put_old].iter().any(|place| Arc::ptr_eq(place.mount(), root.mount())) {
            return Err(EBUSY);
        }
        let is_below = is_reachable(put_old, new) && is_reachable(new, root);
        if !self.is_mount_root(root) || !self.is_mount_root(new) || !is_below || new.mount().is_locked() {
            return Err(EINVAL);
        }
        let point = new.mount().point().ok_or(EINVAL)?;
        point.set_cover(None);
        // The new root stays where the old one was to stay.
        new.mount().set_locked(root.mount().is_locked());
        root.mount().set_locked(false);
        let above = root.mount().set_point(Some(put_old.clone()));
        if let Some(above) = &above {
            above.set_cover(Some(new.clone()));
        }
        new.mount().set_point(above);
        put_old.set_cover(Some(root.clone()));
        {
            let mut first = self.root.lock();
            if Arc::ptr_eq(&first, root) {
                *first = new.clone();
            }
        }
        mounts_changed();
        Ok(())
    }

    fn has(&self, mount: &Arc<Mount>) -> bool {
        self.mounts.lock().iter().any(|m| Arc::ptr_eq(&m.mount, mount))
    }

    /// Something of this namespace is mounted here, and this is its root.
    pub fn is_mount_root(&self, dentry: &Arc<Dentry>) -> bool {
        self.mounts.lock().iter().any(|m| Arc::ptr_eq(&m.root, dentry))
    }

    /// Takes the mount whose root is `at` away. `EINVAL` when it is no mount root or the first mount, `EBUSY` when
    /// something is mounted below or a file of it is in use; if `lazy`, what is mounted below goes, too, and what is in use
    /// stays until it is not.
    pub fn unmount(&self, at: &Arc<Dentry>, lazy: bool) -> Result<()> {
        if !self.is_mount_root(at) || at.mount().point().is_none() || at.mount().is_locked() {
            return Err(EINVAL);
        }
        if lazy {
            self.detach(at.mount());
            return Ok(());
        }
        let mount = at.mount().clone();
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
        if Arc::strong_count(&mount) > 3 || Arc::strong_count(at) > 3 {
            return Err(EBUSY);
        }
        self.detach(&mount);
        Ok(())
    }

    /// Takes a mount away with all that is mounted below it. What is open of them stays, and leads nowhere else.
    fn detach(&self, mount: &Arc<Mount>) {
        let mut gone = alloc::vec![mount.clone()];
        let mut next = 0;
        while let Some(mount) = gone.get(next).cloned() {
            next += 1;
            let taken = {
                let mut mounts = self.mounts.lock();
                for on_it in mounts.iter().filter(|m| !Arc::ptr_eq(&m.mount, &mount)) {
                    if on_it.mount.point().is_some_and(|point| Arc::ptr_eq(point.mount(), &mount)) {
                        gone.push(on_it.mount.clone());
                    }
                }
                let index = mounts.iter().position(|m| Arc::ptr_eq(&m.mount, &mount));
                index.map(|index| mounts.remove(index))
            };
            mount.let_go();
            drop(taken);
        }
        mounts_changed();
    }

    /// Nobody uses the tree any more: mounts let go of each other, which would be there for ever otherwise. What is mounted is not
    /// listed from here on.
    pub fn take_apart(&self) {
        let mounts = core::mem::take(&mut *self.mounts.lock());
        for Mounted { mount, .. } in mounts.iter().rev() {
            mount.let_go();
        }
        drop(mounts);
        mounts_changed();
    }

    fn snapshot(&self) -> Result<Vec<Mounted>> {
        let mut copy = Vec::new();
        copy.reserve_exact_fallibly(self.mounts.lock().len()).map_err(|_| ENOMEM)?;
        copy.extend(self.mounts.lock().iter().cloned());
        Ok(copy)
    }

    /// Every mount with its root, in the order they were mounted.
    pub fn list(&self) -> Vec<(Arc<Mount>, Arc<Dentry>)> {
        self.mounts.lock().iter().map(|m| (m.mount.clone(), m.root.clone())).collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.take_apart();
    }
}

/// True when the way up from `place` comes to `top`, mounts included.
fn is_reachable(place: &Arc<Dentry>, top: &Arc<Dentry>) -> bool {
    let mut at = place.clone();
    loop {
        if Arc::ptr_eq(&at, top) {
            return true;
        }
        let Some(above) = at.parent().or_else(|| at.mount().point()) else { return false };
        at = above;
    }
}
