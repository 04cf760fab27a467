// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file as the union shows it, and how names lead to it.

use crate::attributes::Origin;
use crate::file::OverlayFile;
use crate::{Changes, Fs, is_whiteout, lookup};
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Acl, AclKind, DirEntry, File, FileType, Inode, InodeFlags, Mounts, SetAttr, Stat, StatFs};
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use ordered::Map;

const O_ACCMODE: u32 = 3;
const O_TRUNC: u32 = 0o1000;
/// `f_type` of statfs(2).
const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

/// Where a node was found.
struct Place {
    /// `None` for the root.
    parent: Option<Arc<Node>>,
    name: Box<[u8]>,
}

/// A file of a union.
pub(crate) struct Node {
    pub fs: Arc<Fs>,
    this: Weak<Node>,
    pub kind: FileType,
    /// In the upper directory, from copying up on. Without one there is a lower one.
    upper: SpinLock<Option<Arc<dyn Inode>>>,
    /// Directories that are merged, the topmost first; for anything else the lower file, if it had none in the upper directory at first.
    pub lowers: Vec<Arc<dyn Inode>>,
    place: SpinLock<Place>,
    /// Of a directory.
    number: u64,
    /// What a file of the upper directory was copied from.
    origin: SpinLock<Option<Origin>>,
    children: SpinLock<Map<Box<[u8]>, Weak<Node>>>,
    write_hint: AtomicU8,
    /// The directory was removed.
    pub is_removed: AtomicBool,
    /// Files of it were copied from lower ones or moved here: their numbers are not those of the upper directory.
    pub is_impure: AtomicBool,
    /// What a merged directory lists, until it changes.
    pub listing: SpinLock<Option<Arc<Vec<DirEntry>>>>,
}

impl Node {
    pub fn root(
        fs: &Arc<Fs>,
        upper: Option<Arc<dyn Inode>>,
        lowers: Vec<Arc<dyn Inode>>,
    ) -> Result<Arc<Node>> {
        Node::new(fs, upper, lowers, Place { parent: None, name: Box::default() })
    }

    fn new(
        fs: &Arc<Fs>,
        upper: Option<Arc<dyn Inode>>,
        lowers: Vec<Arc<dyn Inode>>,
        place: Place,
    ) -> Result<Arc<Node>> {
        let real = upper.as_ref().or(lowers.first()).ok_or(EIO)?;
        let kind = real.kind()?;
        let number = match (kind == FileType::Directory, fs.is_one) {
            (true, true) => lowers.first().unwrap_or(real).stat()?.inode,
            (true, false) => fs.next_inode.fetch_add(1, Ordering::Relaxed),
            (false, _) => 0,
        };
        let is_file = kind != FileType::Directory;
        let origin = upper.as_ref().filter(|_| is_file).and_then(|upper| fs.origin(upper));
        let is_impure =
            kind == FileType::Directory && upper.as_ref().is_some_and(|upper| fs.is_impure(upper));
        Ok(Arc::new_cyclic(|this| Node {
            fs: fs.clone(),
            this: this.clone(),
            kind,
            upper: SpinLock::new(upper),
            lowers,
            place: SpinLock::new(place),
            number,
            origin: SpinLock::new(origin),
            children: SpinLock::new(Map::new()),
            write_hint: AtomicU8::new(0),
            is_removed: AtomicBool::new(false),
            is_impure: AtomicBool::new(is_impure),
            listing: SpinLock::new(None),
        }))
    }

    pub fn upper(&self) -> Option<Arc<dyn Inode>> {
        self.upper.lock().clone()
    }

    /// What is read and shown.
    pub fn real(&self) -> Arc<dyn Inode> {
        let upper = self.upper();
        upper.unwrap_or_else(|| self.lowers[0].clone())
    }

    /// A directory of several layers: its names are theirs together, and it cannot be moved without being copied.
    pub fn is_merged(&self) -> bool {
        let upper = usize::from(self.upper.lock().is_some());
        self.kind == FileType::Directory && self.lowers.len() + upper > 1
    }

    /// It is in the upper directory from now on, with the number that it has shown so far.
    pub fn set_upper(&self, upper: Arc<dyn Inode>, origin: Option<Origin>) -> Result<()> {
        if self.kind != FileType::Directory {
            self.fs.know(&upper, &self.this)?;
            *self.origin.lock() = origin;
        }
        *self.upper.lock() = Some(upper);
        Ok(())
    }

    pub fn parent(&self) -> Option<Arc<Node>> {
        self.place.lock().parent.clone()
    }

    pub fn name(&self) -> Box<[u8]> {
        self.place.lock().name.clone()
    }

    /// The name leads there from now on.
    pub fn moved(&self, parent: &Arc<Node>, name: &[u8]) {
        let before = core::mem::replace(
            &mut *self.place.lock(),
            Place { parent: Some(parent.clone()), name: name.into() },
        );
        drop(before);
        parent.remember(name, &self.this);
    }

    pub fn remember(&self, name: &[u8], node: &Weak<Node>) {
        // Without memory for it, the name is looked up again.
        let _ = self.children.lock().insert_fallibly(name.into(), node.clone());
        self.changed();
    }

    /// The name leads elsewhere, or nowhere, from now on.
    pub fn forget(&self, name: &[u8]) {
        let gone = self.children.lock().remove(name);
        drop(gone);
        self.changed();
    }

    /// What is listed changes.
    fn changed(&self) {
        let before = self.listing.lock().take();
        drop(before);
    }

    /// A lower directory has something of that name.
    pub fn lower_has(&self, name: &[u8]) -> Result<bool> {
        for lower in &self.lowers {
            if let Some(found) = lookup(lower, name)? {
                return is_whiteout(&found).map(|is| !is);
            }
        }
        Ok(false)
    }

    /// What a name leads to. The caller has the changes.
    pub fn find(&self, _: &Changes, name: &[u8]) -> Result<Arc<Node>> {
        if self.kind != FileType::Directory {
            return Err(ENOTDIR);
        }
        if let Some(known) = self.children.lock().get(name).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let (mut upper, mut lowers, mut is_all) = (None, Vec::new(), false);
        if let Some(directory) = self.upper()
            && let Some(found) = lookup(&directory, name)?
        {
            if is_whiteout(&found)? {
                return Err(ENOENT);
            }
            is_all = found.kind()? != FileType::Directory || self.fs.is_opaque(&found);
            upper = Some(found);
        }
        for directory in self.lowers.iter().take_while(|_| !is_all) {
            let Some(found) = lookup(directory, name)? else { continue };
            if is_whiteout(&found)? {
                break;
            }
            let is_directory = found.kind()? == FileType::Directory;
            // Below a directory only directories count.
            if !is_directory && (upper.is_some() || !lowers.is_empty()) {
                break;
            }
            let is_last = !is_directory || self.fs.is_opaque(&found);
            lowers.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            lowers.push(found);
            if is_last {
                break;
            }
        }
        if upper.is_none() && lowers.is_empty() {
            return Err(ENOENT);
        }
        self.adopt(name, upper, lowers)
    }

    /// The node of that name, of these inodes.
    pub fn adopt(
        &self,
        name: &[u8],
        upper: Option<Arc<dyn Inode>>,
        lowers: Vec<Arc<dyn Inode>>,
    ) -> Result<Arc<Node>> {
        let is_directory = |inode: &Arc<dyn Inode>| inode.kind().map(|kind| kind == FileType::Directory);
        let file = match &upper {
            Some(inode) if !is_directory(inode)? => Some(inode.clone()),
            _ => None,
        };
        let known = file.as_ref().and_then(|file| self.fs.known(file));
        let node = match known {
            Some(known) => known,
            None => {
                let parent = Some(self.this.upgrade().ok_or(EIO)?);
                let node = Node::new(&self.fs, upper, lowers, Place { parent, name: name.into() })?;
                if let Some(file) = &file {
                    self.fs.know(file, &node.this)?;
                }
                node
            }
        };
        let _ = self.children.lock().insert_fallibly(name.into(), node.this.clone());
        Ok(node)
    }

    pub fn this(&self) -> Result<Arc<Node>> {
        self.this.upgrade().ok_or(EIO)
    }

    /// The node behind an inode of the same union. `EXDEV`.
    pub fn same_fs(&self, other: &Arc<dyn Inode>) -> Result<Arc<Node>> {
        let other = other.as_any().downcast_ref::<Node>().ok_or(EXDEV)?;
        if Arc::ptr_eq(&self.fs, &other.fs) { other.this() } else { Err(EXDEV) }
    }
}

impl Fs {
    fn known(&self, upper: &Arc<dyn Inode>) -> Option<Arc<Node>> {
        self.by_upper.lock().get(&address(upper)).and_then(Weak::upgrade)
    }

    fn know(&self, upper: &Arc<dyn Inode>, node: &Weak<Node>) -> Result<()> {
        let before = self.by_upper.lock().insert_fallibly(address(upper), node.clone());
        before.map(drop).map_err(|_| ENOMEM)
    }
}

fn address(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

impl Drop for Node {
    fn drop(&mut self) {
        let this: *const Node = self;
        if self.kind != FileType::Directory
            && let Some(upper) = self.upper.get_mut()
        {
            let mut by_upper = self.fs.by_upper.lock();
            if by_upper.get(&address(upper)).is_some_and(|there| there.as_ptr() == this) {
                by_upper.remove(&address(upper));
            }
        }
        // One after the other: a thousand directories in each other must not become as many drops in each other.
        let place = self.place.get_mut();
        let mut at = place.parent.take().map(|parent| (parent, core::mem::take(&mut place.name), this));
        while let Some((parent, name, child)) = at.take() {
            {
                let mut children = parent.children.lock();
                if children.get(&name).is_some_and(|there| there.as_ptr() == child) {
                    children.remove(&name);
                }
            }
            if let Some(mut parent) = Arc::into_inner(parent) {
                // Its weak handle stays what it was: nobody else has that address before it is gone.
                let this = parent.this.as_ptr();
                let place = parent.place.get_mut();
                at = place.parent.take().map(|above| (above, core::mem::take(&mut place.name), this));
            }
        }
    }
}

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        let mut stat = self.real().stat()?;
        (stat.device, stat.inode) = self.identity()?;
        if self.is_removed.load(Ordering::Relaxed) {
            stat.links = 0;
        } else if self.is_merged() {
            // The subdirectories of all layers are not counted.
            stat.links = 1;
        }
        Ok(stat)
    }

    fn identity(&self) -> Result<(u64, u64)> {
        if self.kind == FileType::Directory {
            return Ok((self.fs.device, self.number));
        }
        let origin = *self.origin.lock();
        let (device, number) = match origin {
            Some(origin) => (origin.device, origin.number),
            None => self.real().identity()?,
        };
        Ok((self.fs.shown_device(device), number))
    }

    fn kind(&self) -> Result<FileType> {
        Ok(self.kind)
    }

    fn mounts(&self) -> Option<&Arc<Mounts>> {
        Some(&self.fs.mounts)
    }

    fn takes_whiteouts(&self) -> bool {
        false
    }

    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        match self.kind {
            FileType::Regular | FileType::Directory => {}
            _ => return Err(ENXIO),
        }
        if flags & O_ACCMODE != 0 || flags & O_TRUNC != 0 {
            self.copy_up(flags & O_TRUNC == 0)?;
        }
        Ok(Arc::new(OverlayFile::open(self.this()?, this.clone(), flags)?))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.copy_up(change.size != Some(0))?.set_attr(change)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.real().read_link()
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let mut changes = self.fs.changes.lock();
        Ok(self.find(changes.get(), name)?)
    }

    fn create(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Arc<dyn Inode>> {
        self.make(name, kind, permissions, owner, rdev)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: (u32, u32)) -> Result<()> {
        self.make_symlink(name, target, owner)
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        self.make_link(name, &self.same_fs(inode)?)
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        self.remove(name, directory)
    }

    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, to_name: &[u8], flags: u32) -> Result<()> {
        self.move_to(name, &self.same_fs(to)?, to_name, flags)
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        self.entries(from, most)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        Ok(StatFs { magic: OVERLAYFS_SUPER_MAGIC, ..self.real().stat_fs()? })
    }

    fn flags(&self) -> Option<InodeFlags> {
        self.real().flags()
    }

    fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        self.copy_up(true)?.set_flags(flags)
    }

    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        self.real().acl(kind)
    }

    fn set_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, permissions: Option<u32>) -> Result<()> {
        self.copy_up(true)?.set_acl(kind, acl, permissions)
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.shown_xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.change_xattr(name, value, flags)
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.take_xattr(name)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        self.shown_xattrs()
    }

    fn write_hint(&self) -> Option<&AtomicU8> {
        Some(&self.write_hint)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
