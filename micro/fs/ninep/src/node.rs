// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inodes of a volume.

use crate::client::{Client, Fid, Wanted};
use crate::file::NineFile;
use crate::known::{self, Entry, Known, KnownFile, Mark, refresh};
use crate::nameless::Nameless;
use crate::pages::NinePages;
use crate::wire::{Qid, Reply, kind};
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{DirEntry, File, FileType, Inode, NAME_MAX, SetAttr, Stat, StatFs, Timespec};
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

mod told;

use told::Listed;

/// P9_GETATTR_BASIC.
const GETATTR_BASIC: u64 = 0x7ff;
const SET_MODE: u32 = 1;
const SET_UID: u32 = 2;
const SET_GID: u32 = 4;
const SET_SIZE: u32 = 8;
/// The time, and that it is not "now".
const SET_ATIME: u32 = 0x10 | 0x80;
const SET_MTIME: u32 = 0x20 | 0x100;
const AT_REMOVEDIR: u32 = 0x200;
const RENAME_NOREPLACE: u32 = 1;
const O_DIRECTORY: u32 = 0o200000;
/// Flags of open that the server gets: access mode, O_TRUNC, O_APPEND.
const PASSED: u32 = 0o3 | O_TRUNC | O_APPEND;
const O_TRUNC: u32 = 0o1000;
pub const O_APPEND: u32 = 0o2000;
/// V9FS_MAGIC.
const MAGIC: u64 = 0x0102_1997;
/// What each execution of a file asks for (capabilities(7)).
const CAPABILITIES: &[u8] = b"security.capability";
/// Largest value of an extended attribute (Linux XATTR_SIZE_MAX).
const XATTR_LIMIT: u64 = 65536;

/// A file of the volume.
pub struct Node {
    this: Weak<Node>,
    client: Arc<Client>,
    path: u64,
    kind: FileType,
    /// Leads to it by its name. Replaced when it is found under another. `None`: it was not asked for yet.
    pub(crate) fid: SpinLock<Option<Arc<Fid>>>,
    /// The directory that it was found in last, and its name there; of no directory, and where changes are told.
    place: SpinLock<Option<Place>>,
    /// Of a file: what reads it. Those who open it only to read have it together.
    reader: SpinLock<Weak<Fid>>,
    /// Of a directory.
    pub(crate) known: SpinLock<Known>,
    is_root: bool,
    /// Open directory of a listing that goes on.
    listing: SpinLock<Option<Arc<Fid>>>,
    /// What the server said last, for files that are in use and have no name any more.
    pub(crate) last: SpinLock<Option<Stat>>,
    pub(crate) nameless: Nameless,
    write_hint: AtomicU8,
    pub open_files: AtomicUsize,
    /// Pages while it is mapped.
    pub pages: SpinLock<Weak<NinePages>>,
}

/// Weak, for the pages that are kept of a file are not to keep its file system.
type Place = (Weak<Node>, Arc<[u8]>);

/// The root of the tree that the server has under this name.
pub fn root(client: &Arc<Client>, tree: &[u8]) -> Result<Arc<dyn Inode>> {
    let (fid, qid) = client.attach(tree)?;
    if client.is_extended() {
        let strangers = refresh();
        let (fid, watch, stat) = client.look(&fid, None, Wanted::Nothing, |r| read_attributes(client, r))?;
        return Ok(found(client, fid, watch, stat, None, strangers, true));
    }
    Ok(node(client, fid, qid)?)
}

/// The inode of what a handle leads to that is no directory, or of a directory with its watch.
fn found(
    client: &Arc<Client>,
    fid: Fid,
    watch: Option<i32>,
    stat: Stat,
    listed: Option<Listed>,
    strangers: Option<u64>,
    is_root: bool,
) -> Arc<Node> {
    let node = enlist_by(client, Arc::new(fid), stat, is_root);
    if let Some(watch) = watch.filter(|_| stat.kind == FileType::Directory) {
        let mut known = node.known.lock();
        let is_new = known.watch.replace(watch) != Some(watch);
        let mark = known.mark(strangers);
        drop(known);
        // What changed before it is told of that counts as a stranger's; of one that is told already nobody can say when the answer
        // was made.
        if is_new {
            known::add(watch, &node);
            node.keep_stat(stat, mark);
            if let Some(listed) = listed {
                node.keep_listed(listed, mark);
            }
        }
    }
    node
}

/// The inode of these attributes, found by this handle: the one that others use already, or a new one.
fn enlist_by(client: &Arc<Client>, fid: Arc<Fid>, stat: Stat, is_root: bool) -> Arc<Node> {
    let node = Node::new(client, stat, Some(fid.clone()), is_root);
    let first = enlist(node.clone());
    if Arc::ptr_eq(&first, &node) { node } else { first.found_by(fid) }
}

/// The inode of that number: the one that others use already, or this one.
fn enlist(node: Arc<Node>) -> Arc<Node> {
    let first = node.client.nodes.lock().get(&node.path).and_then(Weak::upgrade);
    // One that no handle holds may have gone, and its number be another file's.
    let first = first.filter(|first| first.kind == node.kind && (first.is_held() || first.has_its_place()));
    let first = first.or_else(|| {
        let mut nodes = node.client.nodes.lock();
        let meanwhile = nodes.get(&node.path).and_then(Weak::upgrade);
        let is_held = meanwhile.as_ref().is_some_and(|other| other.is_held());
        if !is_held {
            nodes.insert(node.path, Arc::downgrade(&node));
        }
        // A node that ends takes the lock.
        drop(nodes);
        meanwhile.filter(|_| is_held)
    });
    // Another thread may have found the file while this one waited for the server: locks, pages and names are one inode's.
    first.unwrap_or(node)
}

/// The inode a handle leads to: the known one of that file, or a new one.
fn node(client: &Arc<Client>, fid: Fid, qid: Qid) -> Result<Arc<Node>> {
    let fid = Arc::new(fid);
    let known = client.nodes.lock().get(&qid.path).and_then(Weak::upgrade);
    if let Some(known) = known {
        return Ok(known.found_by(fid));
    }
    let stat = Stat { inode: qid.path, ..get_attr(client, &fid)? };
    Ok(enlist_by(client, fid, stat, false))
}

fn get_attr(client: &Client, fid: &Fid) -> Result<Stat> {
    let request = client.request(kind::GETATTR).fid(fid).u64(GETATTR_BASIC);
    client.call(request, |r| read_attributes(client, r))
}

/// An entry of a listing, and where that continues behind it; `None`: the directory itself or the one above.
fn read_entry(entries: &mut Reply<'_>) -> Result<(u64, Option<DirEntry>)> {
    let (qid, next, kind) = (entries.qid()?, entries.u64()?, entries.u8()?);
    let name = entries.string()?;
    if name == b"." || name == b".." {
        return Ok((next, None));
    }
    if name.is_empty() || name.len() > NAME_MAX || name.contains(&b'/') || name.contains(&0) {
        return Err(EIO);
    }
    let kind = FileType::from_mode((kind as u32) << 12).unwrap_or(FileType::Regular);
    Ok((next, Some(DirEntry { name: name.to_vec(), inode: qid.path, kind, next })))
}

/// The body of an Rgetattr.
fn read_attributes(client: &Client, r: &mut Reply<'_>) -> Result<Stat> {
    r.u64()?;
    let qid = r.qid()?;
    let mode = r.u32()?;
    let mut stat = Stat::new(FileType::from_mode(mode).ok_or(EIO)?, mode & 0o7777);
    stat.device = client.device;
    stat.inode = qid.path;
    (stat.uid, stat.gid, stat.links) = (r.u32()?, r.u32()?, r.u64()?);
    (stat.rdev, stat.size) = (r.u64()?, r.u64()?);
    if stat.size > i64::MAX as u64 {
        return Err(EIO);
    }
    stat.block_size = u32::try_from(r.u64()?).unwrap_or(4096).max(512);
    stat.blocks = r.u64()?;
    (stat.accessed, stat.modified, stat.changed) = (time(r)?, time(r)?, time(r)?);
    // Time of birth, generation, data version.
    r.take(4 * 8)?;
    Ok(stat)
}

fn time(r: &mut Reply<'_>) -> Result<Timespec> {
    let (seconds, nanoseconds) = (r.u64()? as i64, r.u64()?);
    Ok(Timespec { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999) })
}

impl Node {
    fn new(client: &Arc<Client>, stat: Stat, fid: Option<Arc<Fid>>, is_root: bool) -> Arc<Node> {
        Arc::new_cyclic(|this| Node {
            this: this.clone(),
            client: client.clone(),
            path: stat.inode,
            kind: stat.kind,
            fid: SpinLock::new(fid),
            place: SpinLock::new(None),
            reader: SpinLock::new(Weak::new()),
            known: SpinLock::default(),
            is_root,
            listing: SpinLock::new(None),
            last: SpinLock::new(Some(stat)),
            nameless: Nameless::default(),
            write_hint: AtomicU8::new(0),
            open_files: AtomicUsize::new(0),
            pages: SpinLock::new(Weak::new()),
        })
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The name by which this handle came is known to exist; the one by which the old handle came may be gone.
    fn found_by(self: Arc<Node>, fid: Arc<Fid>) -> Arc<Node> {
        let old = self.fid.lock().replace(fid);
        self.nameless.is_found();
        drop(old);
        self
    }

    /// A handle that leads to this file. `ENOENT`: its name is gone, and what the server found by its handle would be another file.
    pub fn fid(&self) -> Result<Arc<Fid>> {
        if self.nameless.is_told() {
            return Err(ENOENT);
        }
        if let Some(fid) = self.fid.lock().clone() {
            return Ok(fid);
        }
        let (directory, name) = self.place().ok_or(ENOENT)?;
        let (fid, qid) = self.client.walk(&*directory.fid()?, Some(&name))?;
        if qid.ok_or(EIO)?.path != self.path {
            return Err(ENOENT);
        }
        let fid = Arc::new(fid);
        Ok(self.fid.lock().get_or_insert(fid).clone())
    }

    /// A handle opened with `flags`.
    pub fn open_fid(&self, flags: u32) -> Result<Arc<Fid>> {
        let only_reads = flags == 0 && self.client.is_extended() && self.kind == FileType::Regular;
        if !only_reads {
            return self.open_new_fid(flags);
        }
        if let Some(reader) = self.reader.lock().upgrade() {
            return Ok(reader);
        }
        let reader = self.open_new_fid(flags)?;
        *self.reader.lock() = Arc::downgrade(&reader);
        Ok(reader)
    }

    fn open_new_fid(&self, flags: u32) -> Result<Arc<Fid>> {
        if self.client.is_extended() && self.kind == FileType::Regular {
            let (own, place) = (self.fid.lock().clone(), self.place());
            let (fid, qid) = match (own, place) {
                (None, Some((directory, name))) => {
                    self.client.open(&*directory.fid()?, Some(&name), flags)?
                }
                _ => self.client.open(&*self.fid()?, None, flags)?,
            };
            return if qid.path == self.path { Ok(Arc::new(fid)) } else { Err(ENOENT) };
        }
        let (fid, _) = self.client.walk(&*self.fid()?, None)?;
        let request = self.client.request(kind::LOPEN).fid(&fid).u32(flags);
        self.client.call(request, |r| r.qid())?;
        Ok(Arc::new(fid))
    }

    /// The server's answer, or for a file without a name what it said before.
    pub fn attributes(&self) -> Result<Stat> {
        if let Some(stat) = self.sure_attributes() {
            return Ok(stat);
        }
        let place = self.place();
        let teller = match &place {
            Some((directory, _)) => Some(&**directory),
            None if self.kind == FileType::Directory => Some(self),
            None => None,
        };
        let mark = teller.map(Node::mark);
        match self.asked() {
            Ok(stat) if stat.inode == self.path => {
                *self.last.lock() = Some(stat);
                match (place, mark) {
                    (Some((directory, name)), Some(mark)) => directory.keep_attributes(&name, stat, mark),
                    (None, Some(mark)) => self.keep_stat(stat, mark),
                    _ => {}
                }
                Ok(stat)
            }
            // The name is gone, or another file's by now.
            Ok(_) | Err(ENOENT) => self.without_name(),
            Err(e) => Err(e),
        }
    }

    /// What the server says of the file that its handle leads to.
    fn asked(&self) -> Result<Stat> {
        get_attr(&self.client, &*self.fid()?)
    }

    /// Whoever has its number is another file.
    pub(crate) fn leaves_its_number(&self) {
        let mut nodes = self.client.nodes.lock();
        if nodes.get(&self.path).is_some_and(|known| Weak::ptr_eq(known, &self.this)) {
            nodes.remove(&self.path);
        }
    }

    /// A name of it was removed. Where that was the last one, and nobody has the file open, the host gets its bytes back.
    fn is_removed(&self) {
        self.may_be_lost();
        self.lets_go(0);
    }

    /// Drops its handle where it has no name any more, and no more than so many have it open.
    pub(crate) fn lets_go(&self, users: usize) {
        let is_used = self.open_files.load(Ordering::Relaxed) > users || self.any_pages().is_some();
        if self.nameless.is_told() && !is_used {
            drop(self.fid.lock().take());
        }
    }

    /// The server is known to find this file no more, or another one in its place.
    pub(crate) fn is_lost(&self) -> Result<bool> {
        match self.asked() {
            Ok(stat) => Ok(stat.inode != self.path),
            Err(ENOENT) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn without_name(&self) -> Result<Stat> {
        // Who asks came by its name, unless that is known to be gone.
        if self.open_files.load(Ordering::Relaxed) == 0 && !self.nameless.is_told() {
            return Err(ENOENT);
        }
        let mut last = self.last.lock();
        let last = last.as_mut().ok_or(ENOENT)?;
        last.links = 0;
        Ok(*last)
    }

    /// The file has at least this length now.
    pub fn grew(&self, end: u64) {
        if let Some(last) = self.last.lock().as_mut() {
            last.size = last.size.max(end);
        }
        if let Some(pages) = self.pages.lock().upgrade() {
            pages.grew(end);
        }
    }

    fn set(&self, change: &SetAttr) -> Result<()> {
        if self.has_lost_its_name()? {
            return self.set_nameless(change);
        }
        let mut valid = 0;
        let mut pick = |bit: u32, wanted: bool| valid |= if wanted { bit } else { 0 };
        pick(SET_MODE, change.permissions.is_some());
        pick(SET_UID, change.uid.is_some());
        pick(SET_GID, change.gid.is_some());
        pick(SET_SIZE, change.size.is_some());
        pick(SET_ATIME, change.accessed.is_some());
        pick(SET_MTIME, change.modified.is_some());
        let times = |t: Option<Timespec>| t.map_or((0, 0), |t| (t.seconds as u64, t.nanoseconds as u64));
        let (accessed, modified) = (times(change.accessed), times(change.modified));
        let own = self.fid()?;
        let request = self
            .client
            .request(kind::SETATTR)
            .fid(&own)
            .u32(valid)
            .u32(change.permissions.unwrap_or(0))
            .u32(change.uid.unwrap_or(0))
            .u32(change.gid.unwrap_or(0))
            .u64(change.size.unwrap_or(0))
            .u64(accessed.0)
            .u64(accessed.1)
            .u64(modified.0)
            .u64(modified.1);
        self.client.call(request, |_| Ok(()))
    }

    /// The file has this length now.
    pub(crate) fn is_cut_to(&self, size: u64) {
        if let Some(pages) = self.pages.lock().upgrade() {
            pages.cut(size);
        }
        if let Some(last) = self.last.lock().as_mut() {
            last.size = size;
        }
    }

    fn of_this_volume(&self, other: &Arc<dyn Inode>) -> Result<Arc<Node>> {
        let other = other.as_any().downcast_ref::<Node>().ok_or(EXDEV)?;
        if !Arc::ptr_eq(&self.client, &other.client) {
            return Err(EXDEV);
        }
        other.this.upgrade().ok_or(EIO)
    }

    fn child(&self, name: &[u8]) -> Result<Arc<Node>> {
        if self.client.is_extended() {
            let known = self.known_child(name).or_else(|| self.read_ahead(name));
            return known.unwrap_or_else(|| self.look(name));
        }
        let (fid, qid) = self.client.walk(&*self.fid()?, Some(name))?;
        node(&self.client, fid, qid.ok_or(EIO)?)
    }

    /// The value of an attribute, or with an empty name the list of names.
    pub fn read_xattr(&self, name: &[u8], limit: u64) -> Result<Vec<u8>> {
        let (own, fid) = (self.fid()?, self.client.new_fid());
        let request = self.client.request(kind::XATTRWALK).fid(&own).fid(&fid).string(name);
        let size = self.client.call(request, |r| r.u64())?;
        // The server knows the handle now: a copy of its number that is given back.
        fid.now_live();
        if size > limit {
            return Err(E2BIG);
        }
        let mut out = Vec::new();
        while (out.len() as u64) < size {
            let count = (size - out.len() as u64).min(self.client.io_limit() as u64) as u32;
            let offset = out.len() as u64;
            let request = self.client.request(kind::READ).fid(&fid).u64(offset).u32(count);
            let before = out.len();
            self.client.call_for_data(request, count, |r| {
                let n = r.u32()?;
                if n > count {
                    return Err(EIO);
                }
                out.extend_from_slice(r.take(n as usize)?);
                Ok(())
            })?;
            if out.len() == before {
                return Err(EIO);
            }
        }
        Ok(out)
    }

    fn write_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let (fid, _) = self.client.walk(&*self.fid()?, None)?;
        let request =
            self.client.request(kind::XATTRCREATE).fid(&fid).string(name).u64(value.len() as u64).u32(flags);
        self.client.call(request, |_| Ok(()))?;
        let mut done = 0;
        while done < value.len() {
            let n = (value.len() - done).min(self.client.io_limit() as usize);
            let mut request = self.client.request(kind::WRITE).fid(&fid).u64(done as u64).u32(n as u32);
            request.bytes().extend_from_slice(&value[done..done + n]);
            let written = self.client.call(request, |r| r.u32())? as usize;
            if written == 0 || written > n {
                return Err(EIO);
            }
            done += written;
        }
        // The attribute is set when the handle is given back, and an error shows only then.
        fid.clunk()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.is_root {
            self.client.forget_recent();
            self.client.kept.forget_all();
        }
        if let Some(watch) = self.known.get_mut().watch {
            known::remove(watch);
        }
        let mut nodes = self.client.nodes.lock();
        if nodes.get(&self.path).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&self.path);
        }
    }
}

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        self.attributes()
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.client.device, self.path))
    }

    fn kind(&self) -> Result<FileType> {
        Ok(self.kind)
    }

    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        let node = self.this.upgrade().ok_or(EIO)?;
        match self.kind {
            FileType::Directory => Ok(Arc::new(NineFile::new(node, this.clone(), None, flags))),
            FileType::Regular => {
                let fid = self.open_fid(flags & PASSED)?;
                if flags & O_TRUNC != 0
                    && let Some(pages) = self.live_pages()
                {
                    pages.cut(0);
                }
                Ok(Arc::new(NineFile::new(node, this.clone(), Some(fid), flags)))
            }
            _ => Err(ENXIO),
        }
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.set(change)?;
        if let Some(size) = change.size {
            self.is_cut_to(size);
        }
        Ok(())
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileType::Symlink {
            return Err(EINVAL);
        }
        if let Some(target) = self.known_target() {
            return Ok(target.to_vec());
        }
        self.ask_for_target()
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if self.kind != FileType::Directory {
            return Err(ENOTDIR);
        }
        Ok(self.child(name)?)
    }

    fn create(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        owner: (u32, u32),
        rdev: u64,
    ) -> Result<Arc<dyn Inode>> {
        let mode = permissions & 0o7777;
        let directory = self.fid()?;
        let request = if kind == FileType::Directory {
            self.client.request(kind::MKDIR).fid(&directory).string(name).u32(mode).u32(owner.1)
        } else {
            let (major, minor) = ((rdev >> 8 & 0xfff) as u32, (rdev & 0xff | rdev >> 12 & 0xfff00) as u32);
            let request = self.client.request(kind::MKNOD).fid(&directory).string(name);
            request.u32(mode | kind as u32).u32(major).u32(minor).u32(owner.1)
        };
        self.client.call(request, |r| r.qid())?;
        let node = self.child(name)?;
        if owner.0 != 0 {
            // A server that maps everything to one user may refuse; the file is there all the same.
            let _ = node.set(&SetAttr { uid: Some(owner.0), ..SetAttr::default() });
        }
        Ok(node)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: (u32, u32)) -> Result<()> {
        let own = self.fid()?;
        let request = self.client.request(kind::SYMLINK).fid(&own);
        self.client.call(request.string(name).string(target).u32(owner.1), |_| Ok(()))
    }

    fn link(&self, name: &[u8], inode: &Arc<dyn Inode>) -> Result<()> {
        let other = self.of_this_volume(inode)?;
        let (directory, file) = (self.fid()?, other.fid()?);
        let request = self.client.request(kind::LINK).fid(&directory).fid(&file).string(name);
        self.client.call(request, |_| Ok(()))?;
        // That it has one more name is told where that is, and not where it was found.
        if let Some((directory, name)) = other.place() {
            directory.known.lock().file_changes(&name);
        }
        Ok(())
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        let flags = if directory { AT_REMOVEDIR } else { 0 };
        let gone = self.about_to_go(name);
        self.settle(name);
        let own = self.fid()?;
        let request = self.client.request(kind::UNLINKAT).fid(&own).string(name).u32(flags);
        self.client.call(request, |_| Ok(()))?;
        gone.inspect(|gone| gone.is_removed());
        self.client.give_back_at_once();
        Ok(())
    }

    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, to_name: &[u8], flags: u32) -> Result<()> {
        let to = self.of_this_volume(to)?;
        match flags {
            0 => {}
            // The protocol has no flags: the best there is against what the host does meanwhile.
            RENAME_NOREPLACE => match to.child(to_name) {
                Ok(_) => return Err(EEXIST),
                Err(ENOENT) => {}
                Err(e) => return Err(e),
            },
            _ => return Err(EINVAL),
        }
        let replaced = to.about_to_go(to_name);
        self.settle(name);
        to.settle(to_name);
        let (from, target) = (self.fid()?, to.fid()?);
        let request = self.client.request(kind::RENAMEAT).fid(&from).string(name);
        self.client.call(request.fid(&target).string(to_name), |_| Ok(()))?;
        replaced.inspect(|replaced| replaced.is_removed());
        self.client.give_back_at_once();
        Ok(())
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        if self.kind != FileType::Directory {
            return Err(ENOTDIR);
        }
        if self.client.is_extended() {
            return self.list_at_once(from, most);
        }
        let kept = self.listing.lock().take().filter(|_| from != 0);
        let fid = match kept {
            Some(fid) => fid,
            None => self.open_fid(O_DIRECTORY)?,
        };
        let mut out = Vec::new();
        let mut offset = from;
        loop {
            // About what `most` entries take; at least one name of full length fits.
            let count = self.client.io_limit().min((most as u32).saturating_mul(64).max(1024));
            let request = self.client.request(kind::READDIR).fid(&fid).u64(offset).u32(count);
            let before = offset;
            let any = self.client.call_for_data(request, count, |r| {
                let length = r.u32()?;
                if length > count {
                    return Err(EIO);
                }
                let mut entries = Reply(r.take(length as usize)?);
                let any = !entries.0.is_empty();
                while !entries.0.is_empty() && out.len() < most {
                    let (next, entry) = read_entry(&mut entries)?;
                    offset = next;
                    out.extend(entry);
                }
                Ok(any)
            })?;
            if !any {
                return Ok(out);
            }
            if !out.is_empty() {
                *self.listing.lock() = Some(fid);
                return Ok(out);
            }
            // Only dots so far. A server that does not move on would be asked for ever.
            if offset == before {
                return Err(EIO);
            }
        }
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let own = self.fid()?;
        let request = self.client.request(kind::STATFS).fid(&own);
        self.client.call(request, |r| {
            r.u32()?;
            let block_size = r.u32()? as u64;
            let (blocks, _, blocks_free) = (r.u64()?, r.u64()?, r.u64()?);
            let (files, files_free, _) = (r.u64()?, r.u64()?, r.u64()?);
            let name_max = r.u32()? as u64;
            Ok(StatFs { magic: MAGIC, block_size, blocks, blocks_free, files, files_free, name_max })
        })
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name == CAPABILITIES { self.capabilities() } else { self.read_xattr(name, XATTR_LIMIT) }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.write_xattr(name, value, flags)
    }

    /// As Linux' client: an attribute without a value, to be replaced, is one removed.
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        const XATTR_REPLACE: u32 = 2;
        self.write_xattr(name, b"", XATTR_REPLACE)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        self.read_xattr(b"", XATTR_LIMIT)
    }

    fn write_hint(&self) -> Option<&AtomicU8> {
        Some(&self.write_hint)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
