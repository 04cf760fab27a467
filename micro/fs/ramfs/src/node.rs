// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes.

use crate::contents::SEAL_SEAL;
use crate::data::Data;
use crate::directory::{Child, Directory};
use crate::{Archived, Fs, Initial, ROOT, RamFile};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{
    Acl, AclKind, DirEntry, File, FileType, Inode, InodeFlags, Mounts, SetAttr, Stat, StatFs, StoredFlags,
    Timespec,
};
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicU8, Ordering};
use ordered::Map;

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const O_TRUNC: u32 = 0o1000;
/// TMPFS_MAGIC.
const MAGIC: u64 = 0x0102_1994;
/// RAMFS_MAGIC.
const PLAIN_MAGIC: u64 = 0x8584_58f6;
/// Bytes of extended attributes of one inode, names included.
const XATTR_LIMIT: usize = 65536;
/// Longest file: offsets are signed.
pub const FILE_LIMIT: u64 = i64::MAX as u64;
const PAGE: u64 = PAGE_SIZE as u64;

/// Names of extended attributes that are access control lists, by [`AclKind`].
const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// What a program may do by its file (capabilities(7)).
const CAPABILITIES: &[u8] = b"security.capability";

type Xattrs = Map<Vec<u8>, Vec<u8>>;

/// `ENOMEM` when there is no memory for it.
fn copy_of(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

struct Meta {
    permissions: u32,
    uid: u32,
    gid: u32,
    links: u64,
    /// Names that count against the limit of inodes: those made by link(2).
    charged_links: u64,
    /// Without a name, it may get one (O_TMPFILE); a removed file may not.
    linkable: bool,
    accessed: Timespec,
    modified: Timespec,
    changed: Timespec,
    xattrs: Option<Box<Xattrs>>,
    /// By [`AclKind`].
    acls: [Option<Arc<Acl>>; 2],
}

enum Body {
    Directory(SpinLock<Directory>),
    Regular(SpinLock<Data>),
    Symlink(Cow<'static, [u8]>),
    /// FIFO, socket, device node: the system-call layer opens it.
    Special,
}

/// An inode of this file system.
pub struct Node {
    pub(crate) fs: Arc<Fs>,
    this: Weak<Node>,
    number: u64,
    kind: FileType,
    rdev: u64,
    flags: StoredFlags,
    write_hint: AtomicU8,
    meta: SpinLock<Meta>,
    body: Body,
    /// Counts against the limit of inodes (those of the archive do not).
    is_charged: bool,
}

struct Origin {
    number: u64,
    kind: FileType,
    permissions: u32,
    owner: (u32, u32),
    links: u64,
    time: Timespec,
    rdev: u64,
    flags: InodeFlags,
    is_charged: bool,
}

impl Origin {
    fn fresh(
        parent: &Node,
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Origin> {
        let links = if kind == FileType::Directory { 2 } else { 1 };
        let number = parent.fs.new_inode()?;
        let (time, flags) = (Timespec::now(), parent.flags.get().inherited());
        Ok(Origin { number, kind, permissions, owner, links, time, rdev, flags, is_charged: true })
    }

    fn build(self, fs: &Arc<Fs>, body: Body) -> Arc<Node> {
        Arc::new_cyclic(|this| Node {
            fs: fs.clone(),
            this: this.clone(),
            number: self.number,
            kind: self.kind,
            rdev: self.rdev,
            flags: StoredFlags::new(self.flags),
            write_hint: AtomicU8::new(0),
            meta: SpinLock::new(Meta {
                permissions: self.permissions & 0o7777,
                uid: self.owner.0,
                gid: self.owner.1,
                links: self.links,
                charged_links: 0,
                linkable: false,
                accessed: self.time,
                modified: self.time,
                changed: self.time,
                xattrs: None,
                acls: [None, None],
            }),
            body,
            is_charged: self.is_charged,
        })
    }
}

pub fn new_root(fs: Arc<Fs>, permissions: u32, owner: (u32, u32)) -> Arc<Node> {
    let initial = (!fs.initial.is_empty()).then_some(0);
    root(fs, permissions, owner, initial)
}

pub fn archive_root(fs: Arc<Fs>) -> Arc<Node> {
    root(fs, 0o755, (0, 0), Some(0))
}

fn root(fs: Arc<Fs>, permissions: u32, owner: (u32, u32), archived: Option<u32>) -> Arc<Node> {
    let (kind, time) = (FileType::Directory, Timespec::now());
    let flags = InodeFlags::default();
    let origin =
        Origin { number: ROOT, kind, permissions, owner, links: 2, time, rdev: 0, flags, is_charged: false };
    let directory = Directory::of_archive(archived, Weak::new());
    origin.build(&fs, Body::Directory(SpinLock::new(directory)))
}

/// A device number as `st_rdev` has it (`makedev` of sysmacros.h).
fn device_number((major, minor): (u32, u32)) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12
}

impl Archived {
    fn kind(&self, entry: u32) -> FileType {
        FileType::from_mode(self.archive.header(entry).mode).unwrap_or(FileType::Regular)
    }

    /// The inode of an entry, made when a path first leads to it. `sites` is the entry of its system-call sites.
    fn node(&self, parent: &Node, entry: u32, sites: Option<u32>) -> Arc<Node> {
        let fs = &parent.fs;
        let header = self.archive.header(entry);
        let shared = self.archive.data_entry(entry, &header);
        if let Some(shared) = shared
            && let Some(node) = self.linked.lock().get(&shared)
        {
            return node.clone();
        }
        let entry = shared.unwrap_or(entry);
        let kind = self.kind(entry);
        let (offset, bytes) = self.archive.data(entry);
        let body = match kind {
            FileType::Directory => {
                let archived = self.archive.directory_of(entry);
                Body::Directory(SpinLock::new(Directory::of_archive(archived, parent.this.clone())))
            }
            FileType::Regular => {
                let physical = if self.physical == 0 { 0 } else { self.physical + offset as u64 };
                let sites = sites.map(|s| self.archive.data(s).1);
                Body::Regular(SpinLock::new(Data::archived(bytes, physical, sites)))
            }
            FileType::Symlink => Body::Symlink(Cow::Borrowed(bytes)),
            _ => Body::Special,
        };
        let node = Origin {
            number: ROOT + 1 + entry as u64,
            kind,
            permissions: header.mode,
            owner: (header.uid, header.gid),
            links: if shared.is_some() {
                header.links as u64
            } else {
                1 + (kind == FileType::Directory) as u64
            },
            time: Timespec { seconds: header.modified as i64, nanoseconds: 0 },
            rdev: if kind == FileType::Regular { 0 } else { device_number(header.rdev) },
            flags: InodeFlags::default(),
            is_charged: false,
        }
        .build(fs, body);
        if let Some(capabilities) = header.capabilities() {
            let mut xattrs = Xattrs::new();
            xattrs.insert(CAPABILITIES.to_vec(), capabilities.to_vec());
            node.meta.lock().xattrs = Some(Box::new(xattrs));
        }
        if let Some(shared) = shared {
            self.linked.lock().insert(shared, node.clone());
        }
        node
    }

    /// The entry below `/.unilith/sites` for the file `name` of a directory.
    fn sites(&self, directory: u32, name: &[u8]) -> Option<u32> {
        let sites = self.archive.sites_directory(directory)?;
        self.archive.children(sites).find(|e| self.archive.name(*e) == name)
    }
}

impl Initial {
    fn node(&self, parent: &Node, index: u32) -> Arc<Node> {
        let is_directory = self.kind == FileType::Directory;
        let body = match self.kind {
            FileType::Directory => {
                Body::Directory(SpinLock::new(Directory::of_archive(None, parent.this.clone())))
            }
            FileType::Symlink => Body::Symlink(Cow::Borrowed(self.target)),
            _ => Body::Special,
        };
        Origin {
            number: ROOT + 1 + u64::from(index),
            kind: self.kind,
            permissions: self.permissions,
            owner: (0, 0),
            links: 1 + u64::from(is_directory),
            time: Timespec::now(),
            rdev: self.rdev,
            flags: InodeFlags::default(),
            is_charged: false,
        }
        .build(&parent.fs, body)
    }
}

impl Fs {
    /// The type of an entry no path has led to yet.
    fn kind(&self, entry: u32) -> FileType {
        match &self.archive {
            Some(archived) => archived.kind(entry),
            None => self.initial.get(entry as usize).map_or(FileType::Regular, |i| i.kind),
        }
    }
}

/// The first entry of the archive's root that the program does not see.
const HIDDEN: &[u8] = b".unilith";

impl Node {
    /// Other limits of its file system, in bytes and inodes. `EINVAL` where more is in use.
    pub fn set_limits(&self, bytes: Option<u64>, inodes: Option<u64>) -> Result<()> {
        self.fs.set_limits(bytes, inodes)
    }

    pub(crate) fn directory(&self) -> Result<&SpinLock<Directory>> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(ENOTDIR),
        }
    }

    pub(crate) fn data(&self) -> Result<&SpinLock<Data>> {
        match &self.body {
            Body::Regular(data) => Ok(data),
            Body::Directory(_) => Err(EISDIR),
            _ => Err(EINVAL),
        }
    }

    /// Puts the archive's names, or those there initially, into the directory, once.
    fn unpack(&self, directory: &mut Directory) -> Result<()> {
        let Some(id) = directory.archived else { return Ok(()) };
        if !directory.is_empty() {
            return Ok(());
        }
        let mut subdirectories = 0;
        if let Some(archived) = &self.fs.archive {
            // The last entry of a name comes first and counts, as when the archive is unpacked in order.
            for entry in archived.archive.children(id) {
                let name = archived.archive.name(entry);
                if (id == 0 && name == HIDDEN) || directory.get(name).is_some() {
                    continue;
                }
                directory.insert(Cow::Borrowed(name), Child::Archived(entry))?;
                subdirectories += (archived.kind(entry) == FileType::Directory) as u64;
            }
        }
        for (index, initial) in self.fs.initial.iter().enumerate() {
            directory.insert(Cow::Borrowed(initial.name), Child::Archived(index as u32))?;
            subdirectories += (initial.kind == FileType::Directory) as u64;
        }
        self.meta.lock().links += subdirectories;
        if directory.is_empty() {
            directory.archived = None;
        }
        Ok(())
    }

    /// Runs `f` on the directory with all its names in it.
    fn with_names<T>(&self, f: impl FnOnce(&mut Directory) -> Result<T>) -> Result<T> {
        let mut directory = self.directory()?.lock();
        self.unpack(&mut directory)?;
        f(&mut directory)
    }

    fn child(&self, directory: &mut Directory, name: &[u8]) -> Result<Arc<Node>> {
        let id = directory.archived;
        let child = directory.get_mut(name).ok_or(ENOENT)?;
        if let Child::Archived(entry) = *child {
            *child = Child::Node(match &self.fs.archive {
                Some(archived) => {
                    let sites = id.and_then(|id| archived.sites(id, name));
                    archived.node(self, entry, sites)
                }
                None => self.fs.initial.get(entry as usize).ok_or(ENOENT)?.node(self, entry),
            });
        }
        match child {
            Child::Node(node) => Ok(node.clone()),
            Child::Archived(_) => Err(ENOENT),
        }
    }

    fn find(&self, name: &[u8]) -> Result<Arc<Node>> {
        self.with_names(|directory| self.child(directory, name))
    }

    /// Names `node` here; the caller holds `Fs::names`.
    fn add(&self, name: &[u8], node: Arc<Node>) -> Result<()> {
        let is_directory = node.kind == FileType::Directory;
        self.with_names(|directory| {
            if directory.is_dead {
                return Err(ENOENT);
            }
            if directory.get(name).is_some() {
                return Err(EEXIST);
            }
            // An archive's directory that lost all its names must not get them back.
            directory.insert(Cow::Owned(name.to_vec()), Child::Node(node.clone()))
        })?;
        if let Body::Directory(directory) = &node.body {
            directory.lock().parent = self.this.clone();
        }
        self.touch(is_directory as i64);
        Ok(())
    }

    /// Takes a name away; the caller holds `Fs::names`.
    fn take(&self, name: &[u8]) -> Result<Arc<Node>> {
        let node = self.with_names(|directory| {
            let node = self.child(directory, name)?;
            directory.remove(name);
            if directory.is_empty() {
                directory.archived = None;
            }
            Ok(node)
        })?;
        self.touch(-((node.kind == FileType::Directory) as i64));
        Ok(node)
    }

    /// A change that the times tell of, of names also subdirectories in the link count.
    fn touch(&self, subdirectories: i64) {
        let now = Timespec::now();
        let mut meta = self.meta.lock();
        meta.modified = now;
        meta.changed = now;
        meta.links = meta.links.saturating_add_signed(subdirectories);
    }

    /// It got another name.
    fn gain_name(&self) {
        let mut meta = self.meta.lock();
        meta.links += 1;
        meta.charged_links += 1;
        meta.changed = Timespec::now();
    }

    /// It lost a name; it is no directory.
    fn lose_name(&self) {
        let mut meta = self.meta.lock();
        meta.links = meta.links.saturating_sub(1);
        meta.changed = Timespec::now();
        if let Some(rest) = meta.charged_links.checked_sub(1) {
            meta.charged_links = rest;
            self.fs.uncharge_inodes(1);
        }
    }

    /// True when it is `other` or below it. The caller holds `Fs::names`.
    fn is_below(&self, other: &Node) -> bool {
        let mut at = self.this.upgrade();
        while let Some(node) = at {
            if core::ptr::eq(&*node, other) {
                return true;
            }
            at = match &node.body {
                Body::Directory(directory) => directory.lock().parent.upgrade(),
                _ => None,
            };
        }
        false
    }

    /// Whether a directory would move into itself. Who calls has seen that it does not by the names of one mount, which may be
    /// others by now in another.
    fn check_loop(&self, node: &Node, to: &Node) -> Result<()> {
        let moves = node.kind == FileType::Directory && !core::ptr::eq(self, to);
        if moves && to.is_below(node) { Err(EINVAL) } else { Ok(()) }
    }

    fn is_empty_directory(&self) -> Result<bool> {
        self.with_names(|directory| Ok(directory.is_empty()))
    }

    fn bury(&self) {
        if let Body::Directory(directory) = &self.body {
            directory.lock().is_dead = true;
        }
        self.meta.lock().links = 0;
    }

    fn same_fs(&self, other: &Arc<dyn Inode>) -> Result<Arc<Node>> {
        let other = other.as_any().downcast_ref::<Node>().ok_or(EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &other.fs) {
            return Err(EXDEV);
        }
        other.this.upgrade().ok_or(EXDEV)
    }

    pub(crate) fn accessed(&self) {
        if self.flags.get().has(InodeFlags::NOATIME) {
            return;
        }
        // As "relatime": only when it tells something new.
        let mut meta = self.meta.lock();
        if meta.accessed <= meta.modified || meta.accessed <= meta.changed {
            meta.accessed = Timespec::now();
        }
    }

    /// A mapping is about to be written: the times alone tell of it.
    pub(crate) fn mapping_written(&self) {
        self.touch(0);
    }

    pub(crate) fn modified(&self) {
        let now = Timespec::now();
        let has_set_id = self.meta.lock().permissions & (S_ISUID | S_ISGID) != 0;
        let keeps_set_id = !has_set_id || api_fs::keeps_set_id();
        let mut meta = self.meta.lock();
        meta.modified = now;
        meta.changed = now;
        if !keeps_set_id {
            // Without S_IXGRP the group's bit means mandatory locks, and stays.
            let group = if meta.permissions & S_IXGRP != 0 { S_ISGID } else { 0 };
            meta.permissions &= !(S_ISUID | group);
        }
        // Capabilities were given to what was in the file, whoever writes (Linux' cap_inode_killpriv).
        let given = meta.xattrs.as_mut().and_then(|x| x.remove(CAPABILITIES));
        drop(meta);
        drop(given);
    }

    /// `EOPNOTSUPP` where files have no attributes and lists of rights.
    fn check_attributes(&self) -> Result<()> {
        if self.fs.is_plain { Err(EOPNOTSUPP) } else { Ok(()) }
    }

    /// Whether it has room set aside and holes made (fallocate(2)).
    pub(crate) fn allocates(&self) -> bool {
        !self.fs.is_plain
    }

    /// A regular file without a name (memfd_create, O_TMPFILE), which lives as long as it is open.
    pub fn unnamed(&self, permissions: u32, owner: (u32, u32), sealable: bool) -> Result<Arc<Node>> {
        let mut origin = Origin::fresh(self, FileType::Regular, permissions, owner, 0)?;
        origin.links = 0;
        let data = Data::new(if sealable { 0 } else { SEAL_SEAL });
        Ok(origin.build(&self.fs, Body::Regular(SpinLock::new(data))))
    }

    fn exchange(&self, name: &[u8], to: &Node, to_name: &[u8]) -> Result<()> {
        let (a, b) = (self.find(name)?, to.find(to_name)?);
        self.check_loop(&a, to)?;
        to.check_loop(&b, self)?;
        self.take(name)?;
        to.take(to_name)?;
        // The places are free now; only a collision of hashes could refuse them, and those were free a moment ago.
        self.add(name, b)?;
        to.add(to_name, a)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        match &mut self.body {
            Body::Regular(data) => self.fs.uncharge(data.get_mut().pages.count()),
            Body::Directory(directory) => directory.get_mut().free(),
            _ => {}
        }
        let own = u64::from(self.is_charged);
        self.fs.uncharge_inodes(own + self.meta.get_mut().charged_links);
    }
}

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        let meta = self.meta.lock();
        let mut stat = Stat::new(self.kind, meta.permissions);
        stat.device = self.fs.device;
        stat.inode = self.number;
        stat.links = meta.links;
        stat.uid = meta.uid;
        stat.gid = meta.gid;
        stat.rdev = self.rdev;
        stat.accessed = meta.accessed;
        stat.modified = meta.modified;
        stat.changed = meta.changed;
        stat.flags = self.flags();
        stat.has_acl = meta.acls[AclKind::Access as usize].is_some();
        drop(meta);
        match &self.body {
            Body::Regular(data) => {
                let data = data.lock();
                stat.size = data.length;
                stat.blocks = data.page_count() * (PAGE / 512);
            }
            // As tmpfs: 20 bytes an entry, `.` and `..` included.
            Body::Directory(_) => {
                stat.size = 40 + 20 * self.with_names(|d| Ok(d.len() as u64))?;
                stat.links = self.meta.lock().links;
            }
            Body::Symlink(target) => stat.size = target.len() as u64,
            Body::Special => {}
        }
        Ok(stat)
    }

    fn kind(&self) -> Result<FileType> {
        Ok(self.kind)
    }

    fn mounts(&self) -> Option<&Arc<Mounts>> {
        Some(&self.fs.mounts)
    }

    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        match &self.body {
            Body::Regular(_) if flags & O_TRUNC != 0 => self.resize(0)?,
            Body::Special | Body::Symlink(_) => return Err(ENXIO),
            _ => {}
        }
        let node = self.this.upgrade().ok_or(EIO)?;
        Ok(Arc::new(RamFile::new(node, this.clone())))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        if let Some(size) = change.size {
            self.resize(size)?;
        }
        let mut meta = self.meta.lock();
        let [access, _] = &mut meta.acls;
        if let Some(permissions) = change.permissions
            && let Some(acl) = access
        {
            *acl = Arc::new(acl.changed_to(permissions)?);
        }
        meta.permissions = change.permissions.map_or(meta.permissions, |p| p & 0o7777);
        meta.uid = change.uid.unwrap_or(meta.uid);
        meta.gid = change.gid.unwrap_or(meta.gid);
        meta.accessed = change.accessed.unwrap_or(meta.accessed);
        meta.modified = change.modified.unwrap_or(meta.modified);
        meta.changed = Timespec::now();
        Ok(())
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.body {
            Body::Symlink(target) => {
                self.accessed();
                Ok(target.to_vec())
            }
            _ => Err(EINVAL),
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self.find(name)?)
    }

    fn create(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Arc<dyn Inode>> {
        let body = match kind {
            FileType::Directory => Body::Directory(SpinLock::default()),
            FileType::Regular => Body::Regular(SpinLock::new(Data::new(SEAL_SEAL))),
            FileType::Symlink => return Err(EINVAL),
            _ => Body::Special,
        };
        let _names = self.fs.names.lock();
        if self.with_names(|d| Ok(d.get(name).is_some()))? {
            return Err(EEXIST);
        }
        let node = Origin::fresh(self, kind, permissions, owner, rdev)?.build(&self.fs, body);
        self.add(name, node.clone())?;
        Ok(node)
    }

    fn create_unnamed(&self, permissions: u32, owner: (u32, u32), linkable: bool) -> Result<Arc<dyn Inode>> {
        self.directory()?;
        let node = self.unnamed(permissions, owner, false)?;
        node.meta.lock().linkable = linkable;
        Ok(node)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: (u32, u32)) -> Result<()> {
        let _names = self.fs.names.lock();
        if self.with_names(|d| Ok(d.get(name).is_some()))? {
            return Err(EEXIST);
        }
        let origin = Origin::fresh(self, FileType::Symlink, 0o777, owner, 0)?;
        self.add(name, origin.build(&self.fs, Body::Symlink(Cow::Owned(target.to_vec()))))
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let node = self.same_fs(inode)?;
        if node.kind == FileType::Directory {
            return Err(EPERM);
        }
        let _names = self.fs.names.lock();
        {
            let meta = node.meta.lock();
            if meta.links == 0 && !meta.linkable {
                return Err(ENOENT);
            }
        }
        self.fs.charge_inode()?;
        if let Err(e) = self.add(name, node.clone()) {
            self.fs.uncharge_inodes(1);
            return Err(e);
        }
        node.gain_name();
        Ok(())
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        let _names = self.fs.names.lock();
        let node = self.find(name)?;
        match (node.kind == FileType::Directory, directory) {
            (true, false) => return Err(EISDIR),
            (false, true) => return Err(ENOTDIR),
            (true, true) if !node.is_empty_directory()? => return Err(ENOTEMPTY),
            _ => {}
        }
        self.take(name)?;
        if directory {
            node.bury();
        } else {
            node.lose_name();
        }
        Ok(())
    }

    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, to_name: &[u8], flags: u32) -> Result<()> {
        let to = self.same_fs(to)?;
        let _names = self.fs.names.lock();
        if flags & RENAME_EXCHANGE != 0 {
            return self.exchange(name, &to, to_name);
        }
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(EINVAL);
        }
        let node = self.find(name)?;
        self.check_loop(&node, &to)?;
        let is_directory = node.kind == FileType::Directory;
        let replaced = match to.find(to_name) {
            Ok(_) if flags & RENAME_NOREPLACE != 0 => return Err(EEXIST),
            Ok(there) if Arc::ptr_eq(&there, &node) => return Ok(()),
            Ok(there) => {
                let there_is_directory = there.kind == FileType::Directory;
                if is_directory && !there_is_directory {
                    return Err(ENOTDIR);
                }
                if !is_directory && there_is_directory {
                    return Err(EISDIR);
                }
                if there_is_directory && !there.is_empty_directory()? {
                    return Err(ENOTEMPTY);
                }
                Some(there)
            }
            Err(ENOENT) => None,
            Err(e) => return Err(e),
        };
        if to.directory()?.lock().is_dead {
            return Err(ENOENT);
        }
        if replaced.is_some() {
            to.take(to_name)?;
        }
        self.take(name)?;
        to.add(to_name, node.clone())?;
        node.meta.lock().changed = Timespec::now();
        match replaced {
            Some(there) if is_directory => there.bury(),
            Some(there) => there.lose_name(),
            None => {}
        }
        Ok(())
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let entries = self.with_names(|directory| {
            let mut out = Vec::new();
            out.reserve_fallibly(most.min(directory.len())).map_err(|_| ENOMEM)?;
            for (next, named) in directory.behind(from).take(most) {
                let (inode, kind) = match &named.child {
                    Child::Node(node) => (node.number, node.kind),
                    Child::Archived(entry) => (ROOT + 1 + *entry as u64, self.fs.kind(*entry)),
                };
                out.push(DirEntry { name: named.name.to_vec(), inode, kind, next });
            }
            Ok(out)
        })?;
        self.accessed();
        Ok(entries)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        if self.fs.is_plain {
            let name_max = api_fs::NAME_MAX as u64;
            return Ok(StatFs { magic: PLAIN_MAGIC, block_size: PAGE, name_max, ..StatFs::default() });
        }
        let used = self.fs.used.load(Ordering::Relaxed);
        let limit = self.fs.limit.load(Ordering::Relaxed);
        let files = self.fs.max_inodes.load(Ordering::Relaxed);
        Ok(StatFs {
            magic: MAGIC,
            block_size: PAGE,
            blocks: limit,
            blocks_free: limit.saturating_sub(used),
            files,
            files_free: files.saturating_sub(self.fs.inodes.load(Ordering::Relaxed)),
            name_max: api_fs::NAME_MAX as u64,
        })
    }

    fn flags(&self) -> Option<InodeFlags> {
        // As tmpfs: devices, FIFOs and sockets have none.
        (!matches!(self.body, Body::Special) && !self.fs.is_plain).then(|| self.flags.get())
    }

    fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        self.flags().ok_or(ENOTTY)?;
        self.flags.set(flags);
        self.meta.lock().changed = Timespec::now();
        Ok(())
    }

    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        self.check_attributes()?;
        Ok(self.meta.lock().acls[kind as usize].clone())
    }

    fn set_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, permissions: Option<u32>) -> Result<()> {
        self.check_attributes()?;
        let mut meta = self.meta.lock();
        meta.acls[kind as usize] = acl;
        meta.permissions = permissions.map_or(meta.permissions, |p| p & 0o7777);
        meta.changed = Timespec::now();
        Ok(())
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.check_attributes()?;
        let meta = self.meta.lock();
        copy_of(meta.xattrs.as_ref().and_then(|x| x.get(name)).ok_or(ENODATA)?)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.check_attributes()?;
        let mut meta = self.meta.lock();
        let xattrs = meta.xattrs.get_or_insert_default();
        let exists = xattrs.contains_key(name);
        if exists && flags & XATTR_CREATE != 0 {
            return Err(EEXIST);
        }
        if !exists && flags & XATTR_REPLACE != 0 {
            return Err(ENODATA);
        }
        let used: usize = xattrs.iter().filter(|(n, _)| *n != name).map(|(n, v)| n.len() + v.len()).sum();
        if used + name.len() + value.len() > XATTR_LIMIT {
            return Err(ENOSPC);
        }
        xattrs.insert(copy_of(name)?, copy_of(value)?);
        meta.changed = Timespec::now();
        Ok(())
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.check_attributes()?;
        let mut meta = self.meta.lock();
        let removed = meta.xattrs.as_mut().and_then(|x| x.remove(name));
        removed.ok_or(ENODATA)?;
        meta.changed = Timespec::now();
        Ok(())
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        let meta = self.meta.lock();
        let mut out = Vec::new();
        let lists = ACL_NAMES.iter().zip(&meta.acls).filter(|(_, acl)| acl.is_some());
        let names = || {
            let others = meta.xattrs.iter().flat_map(|x| x.keys()).map(Vec::as_slice);
            lists.clone().map(|(name, _)| *name).chain(others)
        };
        let length = names().map(|name| name.len() + 1).sum();
        out.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
        for name in names() {
            out.extend_from_slice(name);
            out.push(0);
        }
        Ok(out)
    }

    fn write_hint(&self) -> Option<&AtomicU8> {
        Some(&self.write_hint)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
