// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names in the tree.

use crate::mount::Mount;
use crate::notify;
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{FileType, Inode, NAME_MAX};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ordered::Map;

/// Not in the cache of its mount.
pub(crate) const NOT_CACHED: u32 = u32::MAX;

struct Link {
    /// `None` for the root of a mount and for what has no name.
    parent: Option<Arc<Dentry>>,
    name: Box<[u8]>,
}

/// A name in the tree and what it stands for.
pub struct Dentry {
    mount: Arc<Mount>,
    inode: Arc<dyn Inode>,
    kind: FileType,
    link: SpinLock<Link>,
    unlinked: AtomicBool,
    /// Somebody watches the inode, which had no name left when this one was removed.
    is_watched_to_the_end: AtomicBool,
    children: SpinLock<Map<Box<[u8]>, Weak<Dentry>>>,
    /// Root of the mount that covers this directory.
    cover: SpinLock<Option<Arc<Dentry>>>,
    is_covered: AtomicBool,
    pub(crate) cache_slot: AtomicU32,
}

impl Dentry {
    fn new(
        mount: Arc<Mount>,
        inode: Arc<dyn Inode>,
        parent: Option<Arc<Dentry>>,
        name: &[u8],
    ) -> Result<Arc<Dentry>> {
        Ok(Arc::new(Dentry {
            mount,
            kind: inode.kind()?,
            inode,
            link: SpinLock::new(Link { parent, name: name.into() }),
            unlinked: AtomicBool::new(false),
            is_watched_to_the_end: AtomicBool::new(false),
            children: SpinLock::new(Map::new()),
            cover: SpinLock::new(None),
            is_covered: AtomicBool::new(false),
            cache_slot: AtomicU32::new(NOT_CACHED),
        }))
    }

    pub(crate) fn root(mount: Arc<Mount>, inode: Arc<dyn Inode>) -> Result<Arc<Dentry>> {
        Dentry::new(mount, inode, None, b"")
    }

    /// A file of the directory `dir` that has no name (O_TMPFILE): /proc shows its number.
    pub(crate) fn unnamed_in(dir: &Arc<Dentry>, inode: Arc<dyn Inode>) -> Result<Arc<Dentry>> {
        let name = alloc::format!("#{}", inode.stat()?.inode);
        let dentry = Dentry::new(dir.mount.clone(), inode, Some(dir.clone()), name.as_bytes())?;
        dentry.unlinked.store(true, Ordering::Relaxed);
        Ok(dentry)
    }

    /// An inode without a place in the tree, as of memfd_create. `name` is what /proc shows.
    pub fn unnamed(mount: &Arc<Mount>, inode: Arc<dyn Inode>, name: &[u8]) -> Result<Arc<Dentry>> {
        let dentry = Dentry::new(mount.clone(), inode, None, name)?;
        dentry.unlinked.store(true, Ordering::Relaxed);
        Ok(dentry)
    }

    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.inode
    }

    pub fn kind(&self) -> FileType {
        self.kind
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// True when the name was removed, or never was.
    pub fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Relaxed)
    }

    /// Watches of the inode hear when this dentry, its last, goes.
    pub(crate) fn tell_when_gone(&self) {
        self.is_watched_to_the_end.store(true, Ordering::Relaxed);
    }

    /// Last component of the path; empty for the root of a mount.
    pub fn name(&self) -> Vec<u8> {
        self.link.lock().name.to_vec()
    }

    /// The directory it is in, inside the same mount.
    pub fn parent(&self) -> Option<Arc<Dentry>> {
        self.link.lock().parent.clone()
    }

    /// The child of that name that is already known.
    pub(crate) fn known_child(&self, name: &[u8]) -> Option<Arc<Dentry>> {
        self.children.lock().get(name).and_then(Weak::upgrade)
    }

    /// The child of that name: cached, or asked from the file system. Not what is mounted on it. `ENAMETOOLONG` for what
    /// cannot be the name of anything.
    pub fn child(self: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>> {
        if name.len() > NAME_MAX {
            return Err(ENAMETOOLONG);
        }
        let known = self.known_child(name);
        if self.mount.keeps_names() {
            if let Some(known) = known {
                return Ok(known);
            }
            let child = self.adopt(name, self.inode.lookup(name)?)?;
            self.mount.cache(&child);
            return Ok(child);
        }
        // Whatever became of the name, what is mounted there covers it.
        if let Some(known) = known.as_ref().filter(|known| known.is_mount_point()) {
            return Ok(known.clone());
        }
        match self.inode.lookup(name) {
            Ok(inode) => match known {
                Some(known) if Arc::ptr_eq(&known.inode, &inode) => Ok(known),
                _ => self.adopt(name, inode),
            },
            Err(e) => {
                if e == ENOENT
                    && let Some(known) = known
                {
                    known.unlinked();
                }
                Err(e)
            }
        }
    }

    /// Makes `inode` the child of that name. Another dentry of that name that appeared meanwhile wins when it is of
    /// the same inode.
    pub(crate) fn adopt(self: &Arc<Dentry>, name: &[u8], inode: Arc<dyn Inode>) -> Result<Arc<Dentry>> {
        let child = Dentry::new(self.mount.clone(), inode, Some(self.clone()), name)?;
        let mut children = self.children.lock();
        let there = children.get(name).and_then(Weak::upgrade);
        if let Some(there) = &there
            && Arc::ptr_eq(&there.inode, &child.inode)
        {
            let there = there.clone();
            drop(children);
            return Ok(there);
        }
        children.insert(name.into(), Arc::downgrade(&child));
        drop(children);
        if let Some(there) = there {
            there.unlinked.store(true, Ordering::Relaxed);
        }
        Ok(child)
    }

    /// The name was removed.
    pub(crate) fn unlinked(self: &Arc<Dentry>) {
        self.unlinked.store(true, Ordering::Relaxed);
        let (parent, name) = {
            let link = self.link.lock();
            (link.parent.clone(), link.name.clone())
        };
        if let Some(parent) = parent {
            parent.forget(&name, Arc::as_ptr(self));
        }
        self.mount.uncache(self);
    }

    fn forget(&self, name: &[u8], child: *const Dentry) {
        let mut children = self.children.lock();
        if children.get(name).is_some_and(|there| there.as_ptr() == child) {
            children.remove(name);
        }
    }

    /// The name was changed: the dentry moves along, with what is open and mounted below it.
    pub(crate) fn moved(self: &Arc<Dentry>, to: &Arc<Dentry>, to_name: &[u8]) {
        let old = {
            let mut link = self.link.lock();
            (link.parent.replace(to.clone()), core::mem::replace(&mut link.name, to_name.into()))
        };
        if let Some(parent) = old.0 {
            parent.forget(&old.1, Arc::as_ptr(self));
        }
        to.children.lock().insert(to_name.into(), Arc::downgrade(self));
    }

    /// True when `other` is this dentry or below it, in the same mount.
    pub(crate) fn is_ancestor_of(self: &Arc<Dentry>, other: &Arc<Dentry>) -> bool {
        let mut at = Some(other.clone());
        while let Some(dentry) = at {
            if Arc::ptr_eq(self, &dentry) {
                return true;
            }
            at = dentry.parent();
        }
        false
    }

    /// The path from the root of its mount, whatever became of the name.
    pub(crate) fn path_in_mount(self: &Arc<Dentry>) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = self.clone();
        while let Some(parent) = at.parent() {
            names.push(at.link.lock().name.clone());
            at = parent;
        }
        path_down(&names)
    }

    /// The path from the root of its file system, which its mount may be a part of.
    pub(crate) fn path_in_file_system(self: &Arc<Dentry>) -> Vec<u8> {
        match (&self.mount.start[..], self.path_in_mount()) {
            (b"/", below) => below,
            (start, below) if below == b"/" => start.to_vec(),
            (start, below) => [start, &below].concat(),
        }
    }

    /// Something is mounted on it.
    pub fn is_mount_point(&self) -> bool {
        self.is_covered.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cover(&self, root: Option<Arc<Dentry>>) -> Option<Arc<Dentry>> {
        self.is_covered.store(root.is_some(), Ordering::Relaxed);
        core::mem::replace(&mut *self.cover.lock(), root)
    }

    /// The root of what is mounted right on it.
    pub(crate) fn cover(&self) -> Option<Arc<Dentry>> {
        self.cover.lock().clone()
    }

    /// What is seen here: the root of the topmost mount on it, or the dentry itself.
    pub fn topmost(self: &Arc<Dentry>) -> Arc<Dentry> {
        let mut at = self.clone();
        while at.is_mount_point() {
            let Some(root) = at.cover.lock().clone() else { break };
            at = root;
        }
        at
    }

    /// The directory above, across mounts, but not above `root`.
    pub fn above(self: &Arc<Dentry>, root: &Arc<Dentry>) -> Arc<Dentry> {
        let mut at = self.clone();
        loop {
            if Arc::ptr_eq(&at, root) {
                return at;
            }
            if let Some(parent) = at.parent() {
                return parent.topmost();
            }
            match at.mount.point() {
                Some(point) => at = point,
                None => return at,
            }
        }
    }

    /// The path as seen from `root`; `None` when it cannot be reached from there. A removed name is followed by
    /// ` (deleted)` as in /proc.
    pub fn path_from(self: &Arc<Dentry>, root: &Arc<Dentry>) -> Option<Vec<u8>> {
        let (path, is_reached) = self.path_up(Some(root));
        is_reached.then_some(path)
    }

    /// The path as seen from `root`, or from the top of its tree where it cannot be reached from there, as links below /proc show it.
    pub fn path_seen_from(self: &Arc<Dentry>, root: &Arc<Dentry>) -> Vec<u8> {
        self.path_from(root).unwrap_or_else(|| self.path_from_top())
    }

    /// The path from wherever the way up ends, as getcwd(2) shows it for what cannot be reached.
    pub fn path_from_top(self: &Arc<Dentry>) -> Vec<u8> {
        self.path_up(None).0
    }

    /// The path from `root`, or from where the way up ends, and whether that is `root` or the name of something that is in no
    /// tree.
    fn path_up(self: &Arc<Dentry>, root: Option<&Arc<Dentry>>) -> (Vec<u8>, bool) {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut at = self.clone();
        let is_reached = loop {
            if root.is_some_and(|root| Arc::ptr_eq(&at, root)) {
                break true;
            }
            let (parent, name) = {
                let link = at.link.lock();
                (link.parent.clone(), link.name.clone())
            };
            match parent {
                Some(parent) => {
                    names.push(name);
                    at = parent;
                }
                None => match at.mount.point() {
                    Some(point) => at = point,
                    None if !name.is_empty() => {
                        names.push(name);
                        break true;
                    }
                    // The root of the first mount, while `root` is below it, or of one that is mounted nowhere.
                    None => break false,
                },
            }
        };
        let mut path = path_down(&names);
        if self.is_unlinked() {
            path.extend_from_slice(b" (deleted)");
        }
        (path, is_reached)
    }
}

/// The absolute path of names that were found on the way up.
fn path_down(names: &[Box<[u8]>]) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

impl Drop for Dentry {
    fn drop(&mut self) {
        // Iteratively: a chain of a thousand parents must not become a thousand nested drops.
        let this: *const Dentry = self;
        if *self.is_watched_to_the_end.get_mut() {
            notify::gone(&self.inode);
        }
        let link = self.link.get_mut();
        let Some(mut parent) = link.parent.take() else { return };
        parent.forget(&core::mem::take(&mut link.name), this);
        while let Some(mut dentry) = Arc::into_inner(parent) {
            let this = dentry.children.get_mut();
            this.clear();
            let link = dentry.link.get_mut();
            let Some(next) = link.parent.take() else { return };
            let name = core::mem::take(&mut link.name);
            {
                let mut children = next.children.lock();
                if children.get(&name).is_some_and(|there| there.strong_count() == 0) {
                    children.remove(&name);
                }
            }
            drop(dentry);
            parent = next;
        }
    }
}
