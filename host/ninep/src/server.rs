// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One client's requests, one function each.

use crate::{
    Limits, MAX_MESSAGE,
    export::{Export, MAX_ATTRIBUTE, SITES},
    fids::{Fid, Fids, Opened},
    watches::{Watched, Watches, is_of_this_host},
    wire::{Answer, HEADER, IO_HEADER, Qid, Request, kind},
};
use rustix::{
    fs::{self, FileType, OFlags, RawDir, SeekFrom, Timespec, Timestamps},
    io::{Errno, Result},
};
use std::{
    collections::HashMap,
    ffi::CStr,
    fs::File,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

const VERSION: &[u8] = b"9P2000.L";
/// Smallest message size a client may ask for: a path and its headers (Linux's is 4096).
const LEAST_MESSAGE: u32 = 4096;
/// Names in one Twalk (`P9_MAXWELEM`).
const MAX_NAMES: u16 = 16;
/// P9_GETATTR_BASIC.
const GETATTR_BASIC: u64 = 0x7ff;
/// Bits of Tsetattr.
const SET_MODE: u32 = 1;
const SET_UID: u32 = 2;
const SET_GID: u32 = 4;
const SET_SIZE: u32 = 8;
const SET_ATIME: u32 = 0x10;
const SET_MTIME: u32 = 0x20;
/// The time is the client's, not "now".
const SET_ATIME_TO: u32 = 0x80;
const SET_MTIME_TO: u32 = 0x100;
/// Most bytes of a listing that comes with the attributes of its directory.
const MAX_LISTED: usize = 16 << 10;
/// P9_LOCK_SUCCESS and F_UNLCK: one machine has the volume's files to itself, its kernel keeps the locks.
const LOCK_SUCCESS: u8 = 0;
const UNLOCKED: u8 = 2;

/// A file that goes with an answer.
pub struct Gift {
    pub file: OwnedFd,
    /// The client's handle of it.
    fid: u32,
}

/// One client and its handles.
pub struct Server {
    /// By the names that a client attaches to them by.
    trees: HashMap<Vec<u8>, Arc<Export>>,
    fids: Fids,
    /// Largest message, as agreed.
    most: u32,
    pub(crate) watches: Option<Arc<Watches>>,
}

impl Server {
    pub fn new(limits: Limits) -> Server {
        Server { trees: HashMap::new(), fids: Fids::new(limits), most: LEAST_MESSAGE, watches: None }
    }

    /// Lets the client hear of changes in the directories that it looks at.
    pub fn watch(&mut self, watches: Option<Arc<Watches>>) {
        self.watches = watches;
    }

    /// Lets the client attach to a tree. False: there is one of that name.
    pub fn add(&mut self, name: &[u8], export: Arc<Export>) -> bool {
        let is_new = !self.trees.contains_key(name);
        if is_new {
            self.trees.insert(name.to_vec(), export);
        }
        is_new
    }

    /// Takes a tree away, with all that the client has open in it.
    pub fn remove(&mut self, name: &[u8]) {
        if let Some(export) = self.trees.remove(name) {
            self.fids.clear_tree(&export);
        }
    }

    /// Another client begins.
    pub fn begin(&mut self, limits: Limits) {
        self.fids = Fids::new(limits);
    }

    /// The client is gone.
    pub fn close(&mut self) {
        self.fids.clear();
    }

    /// Answers a message, given without its size; what is to go with the answer.
    pub fn answer(&mut self, message: &[u8], out: &mut Vec<u8>) -> Option<Gift> {
        let mut request = Request(message);
        let (kind, tag) = (request.u8().unwrap_or(0), request.u16().unwrap_or(0));
        let mut answer = Answer::begin(out, kind, tag);
        let gift = match kind {
            kind::OPEN => self.open_by_name(&mut request, &mut answer),
            _ => self.dispatch(kind, &mut request, &mut answer).map(|()| None),
        };
        match gift {
            Ok(gift) => {
                answer.end();
                gift
            }
            Err(error) => {
                let mut answer = Answer::begin(out, kind::LERROR, tag);
                answer.u32(error.raw_os_error() as u32);
                answer.end();
                None
            }
        }
    }

    fn dispatch(&mut self, kind: u8, r: &mut Request, out: &mut Answer) -> Result<()> {
        match kind {
            kind::VERSION => self.version(r, out),
            kind::ATTACH => self.attach(r, out),
            kind::WALK => self.walk(r, out),
            kind::CLUNK => self.clunk(r),
            kind::GETATTR => self.get_attr(r, out),
            kind::SETATTR => self.set_attr(r),
            kind::STATFS => self.stat_fs(r, out),
            kind::LOPEN => self.open(r, out),
            kind::LCREATE => self.create(r, out),
            kind::READ => self.read(r, out),
            kind::WRITE => self.write(r, out),
            kind::FSYNC => self.sync(r),
            kind::READDIR => self.read_dir(r, out),
            kind::READLINK => self.read_link(r, out),
            kind::SYMLINK => self.symlink(r, out),
            kind::MKNOD => self.make_node(r, out),
            kind::MKDIR => self.make_dir(r, out),
            kind::LINK => self.link(r),
            kind::RENAMEAT => self.rename(r),
            kind::UNLINKAT => self.unlink(r),
            kind::XATTRWALK => self.xattr_walk(r, out),
            kind::XATTRCREATE => self.xattr_create(r),
            // Requests are answered in their order: what is to be flushed has been answered.
            kind::FLUSH => Ok(()),
            kind::LOCK => {
                self.fids.get(r.u32()?)?.file()?;
                out.u8(LOCK_SUCCESS);
                Ok(())
            }
            kind::GETLOCK => self.get_lock(r, out),
            kind::LOOK => self.look(r, out),
            kind::LIST => self.list(r, out),
            kind::CLUNKS => {
                for _ in 0..r.u16()? {
                    // As with Tclunk: whatever the answer, the handle is gone.
                    let _ = self.clunk(r);
                }
                Ok(())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn version(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (size, version) = (r.u32()?, r.string()?);
        if size < LEAST_MESSAGE {
            return Err(Errno::INVAL);
        }
        // A new session (version(5)): what was open is closed.
        self.fids.clear();
        self.most = size.min(MAX_MESSAGE);
        out.u32(self.most).string(if version == VERSION { VERSION } else { b"unknown" });
        Ok(())
    }

    fn attach(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (fid, _authentication, _user, name) = (r.u32()?, r.u32()?, r.string()?, r.string()?);
        let export = self.trees.get(name).ok_or(Errno::NOENT)?.clone();
        let root = export.root()?;
        out.qid(export.qid_of(&root)?);
        self.fids.add(fid, Fid::new(export, root))
    }

    /// Copies a handle, or follows names from it. Where not all of them are there the new handle is not made.
    fn walk(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (from, to, count) = (r.u32()?, r.u32()?, r.u16()?);
        if count > MAX_NAMES {
            return Err(Errno::INVAL);
        }
        let start = self.fids.get(from)?;
        let export = start.export.clone();
        let mut at = rustix::io::fcntl_dupfd_cloexec(&start.path, 0)?;
        let mut qids: Vec<Qid> = Vec::new();
        for _ in 0..count {
            match step(&export, &at, r) {
                Ok((next, qid)) => {
                    at = next;
                    qids.push(qid);
                }
                Err(error) if qids.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        if qids.len() == usize::from(count) {
            if from == to {
                self.fids.remove(from)?;
            }
            self.fids.add(to, Fid::new(export, at))?;
        }
        out.u16(qids.len() as u16);
        qids.into_iter().for_each(|qid| {
            out.qid(qid);
        });
        Ok(())
    }

    fn clunk(&mut self, r: &mut Request) -> Result<()> {
        let fid = self.fids.remove(r.u32()?)?;
        let Opened::NewAttribute { name, value, size, flags } = &fid.opened else { return Ok(()) };
        if value.len() != *size {
            return Err(Errno::INVAL);
        }
        fid.export.set_attribute(fid.fd(), name, value, *flags)
    }

    fn get_attr(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let fid = self.fids.get(r.u32()?)?;
        // The open file first: it is there even when the descriptor's name is not.
        put_attributes(&fid.export, &fid.export.stat(&fid.path)?, out);
        Ok(())
    }

    fn set_attr(&mut self, r: &mut Request) -> Result<()> {
        let (fid, valid, mode) = (r.u32()?, r.u32()?, r.u32()?);
        let (user, group, size) = (r.u32()?, r.u32()?, r.u64()?);
        let mut time = |set: u32, to: u32| -> Result<Timespec> {
            let (tv_sec, tv_nsec) = (r.u64()? as i64, r.u64()? as i64);
            Ok(match (valid & set != 0, valid & to != 0) {
                (false, _) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
                (true, false) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
                (true, true) if (0..1_000_000_000).contains(&tv_nsec) => Timespec { tv_sec, tv_nsec },
                (true, true) => return Err(Errno::INVAL),
            })
        };
        let times = Timestamps {
            last_access: time(SET_ATIME, SET_ATIME_TO)?,
            last_modification: time(SET_MTIME, SET_MTIME_TO)?,
        };
        let fid = self.fids.get(fid)?;
        fid.export.writable(fid.fd())?;
        if valid & (SET_UID | SET_GID) != 0 {
            let pick = |bit: u32, value: u32| (valid & bit != 0).then_some(value);
            fid.export.own(fid.fd(), pick(SET_UID, user), pick(SET_GID, group))?;
        }
        // After the owner: a change of that clears the set-user-ID bit.
        if valid & SET_MODE != 0 {
            fid.export.set_mode(fid.fd(), mode)?;
        }
        if valid & SET_SIZE != 0 {
            fid.export.set_size(fid.fd(), size)?;
        }
        if valid & (SET_ATIME | SET_MTIME) != 0 {
            fid.export.set_times(fid.fd(), &times)?;
        }
        Ok(())
    }

    fn stat_fs(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let s = fs::fstatfs(&self.fids.get(r.u32()?)?.path)?;
        out.u32(s.f_type as u32).u32(s.f_bsize as u32);
        out.u64(s.f_blocks).u64(s.f_bfree).u64(s.f_bavail).u64(s.f_files).u64(s.f_ffree);
        // The file system's own number says nothing in the machine.
        out.u64(0).u32(s.f_namelen as u32);
        Ok(())
    }

    /// The handle's file, or what has a name in it.
    fn at(&self, from: u32, count: u16, r: &mut Request) -> Result<Fid> {
        let start = self.fids.get(from)?;
        let path = match count {
            0 => rustix::io::fcntl_dupfd_cloexec(&start.path, 0)?,
            1 => start.export.child(&start.path, r.name()?)?,
            _ => return Err(Errno::INVAL),
        };
        Ok(Fid::new(start.export.clone(), path))
    }

    /// A handle of what has a name, with its attributes; of a directory also the number by which its changes are told (inotify(7)),
    /// -1: they are not; of a symbolic link where it leads. Whatever changes after the attributes were read is told. The request's last
    /// byte says whether what is in a directory is wanted as well (1), with attributes (2): as the answer to [`kind::LIST`], where all of it
    /// fits a little message.
    fn look(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (from, to, count) = (r.u32()?, r.u32()?, r.u16()?);
        let mut fid = self.at(from, count, r)?;
        let mut stat = fid.export.stat(&fid.path)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && let Some(watches) = &self.watches
        {
            fid.watched = watches.add(&fid.path);
            stat = fid.export.stat(&fid.path)?;
        }
        out.u32(fid.watched.as_ref().map_or(-1, Watched::number) as u32);
        put_attributes(&fid.export, &stat, out);
        match (FileType::from_raw_mode(stat.st_mode), r.u8().unwrap_or(0)) {
            (FileType::Symlink, _) => drop(out.string(&fid.export.target(fid.fd())?)),
            (FileType::Directory, wanted @ 1..) => self.list_with(&fid, wanted > 1, out),
            _ => {}
        }
        self.fids.add(to, fid)
    }

    /// What is in a directory, behind its attributes.
    fn list_with(&self, fid: &Fid, with_attributes: bool, out: &mut Answer) {
        let mut entries = Vec::new();
        let most = MAX_LISTED.min(self.io_unit() as usize / 2);
        let is_all = fid.export.open_again(fid.fd(), OFlags::DIRECTORY.bits()).and_then(|directory| {
            read_entries(&fid.export, &directory, 0, most, with_attributes, &mut entries)
        });
        // Whoever needs more asks for it, and learns what is wrong.
        if is_all != Ok(true) {
            entries.clear();
        }
        out.u8((is_all == Ok(true)).into()).u32(entries.len() as u32).bytes(&entries);
    }

    /// The gift that [`Server::answer`] answered last did not go. Corrects the answer that is to go without it.
    pub fn keeps(&mut self, gift: &Gift, answer: &mut [u8]) {
        self.fids.is_not_given(gift.fid);
        // The last byte of an Ropen.
        answer.last_mut().into_iter().for_each(|is_given| *is_given = 0);
    }

    /// Opens a file, or what has a name in a directory, by a new handle. Behind the qid a byte says whether the file goes with it, for the
    /// client to read and write by itself: where all of it is this host's, so that no call waits for anybody but a disk.
    fn open_by_name(&mut self, r: &mut Request, out: &mut Answer) -> Result<Option<Gift>> {
        let (from, to, flags, count) = (r.u32()?, r.u32()?, r.u32()?, r.u16()?);
        let mut fid = self.at(from, count, r)?;
        let stat = fid.export.stat(&fid.path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NXIO);
        }
        let file = fid.export.open_again(fid.fd(), flags)?;
        let mut gift = None;
        if self.fids.can_give() && is_of_this_host(&file) {
            gift = file.try_clone().ok().map(|file| Gift { file, fid: to });
        }
        fid.is_given = gift.is_some();
        fid.opened = Opened::File(File::from(file));
        out.qid(fid.export.qid(&stat)).u8(gift.is_some().into());
        self.fids.add(to, fid)?;
        Ok(gift)
    }

    /// As Treaddir, of a directory that need not be open, and with a byte in front that says whether nothing is left. With attributes
    /// each entry is followed by a byte, where that is not 0 by the body of an Rgetattr, and where it is 2 by the target of a link.
    fn list(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, offset, count, with_attributes) = (r.u32()?, r.u64()?, r.u32()?, r.u8()? != 0);
        let most = count.min(self.io_unit() - 1) as usize;
        let fid = self.fids.get(number)?;
        let directory = fid.export.open_again(fid.fd(), OFlags::DIRECTORY.bits())?;
        let mut entries = Vec::new();
        let is_last = read_entries(&fid.export, &directory, offset, most, with_attributes, &mut entries)?;
        out.u8(is_last.into()).u32(entries.len() as u32).bytes(&entries);
        Ok(())
    }

    /// How much of a file fits one message.
    fn io_unit(&self) -> u32 {
        self.most - IO_HEADER
    }

    fn open(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, flags) = (r.u32()?, r.u32()?);
        let fid = self.fids.get(number)?;
        if !matches!(fid.opened, Opened::No) {
            return Err(Errno::BADF);
        }
        let export = fid.export.clone();
        let stat = export.stat(&fid.path)?;
        let fd = export.open_again(fid.fd(), flags)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let opened = if is_directory { Opened::Directory(fd) } else { Opened::File(File::from(fd)) };
        self.fids.open(number, opened)?;
        out.qid(export.qid(&stat)).u32(self.io_unit());
        Ok(())
    }

    /// Makes a file and opens it; the handle of the directory becomes the file's.
    fn create(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, name, flags, mode, group) = (r.u32()?, r.name()?, r.u32()?, r.u32()?, r.u32()?);
        let Fid { export, path: directory, .. } = self.fids.get(number)?;
        let (export, mode) = (export.clone(), mode & 0o7777);
        export.make_node(directory, name, FileType::RegularFile.as_raw_mode() | mode)?;
        let file = export.child(directory, name)?;
        export.settle(file.as_fd(), mode, group)?;
        let open = export.open_again(file.as_fd(), flags)?;
        let qid = export.qid_of(&file)?;
        self.fids
            .replace(number, Fid { opened: Opened::File(File::from(open)), ..Fid::new(export, file) })?;
        out.qid(qid).u32(self.io_unit());
        Ok(())
    }

    fn read(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (fid, offset, count) = (self.fids.get(r.u32()?)?, r.u64()?, r.u32()?);
        let most = count.min(self.io_unit());
        if let Opened::Attribute(value) = &fid.opened {
            let rest = usize::try_from(offset).ok().and_then(|at| value.get(at..)).unwrap_or_default();
            let part = &rest[..rest.len().min(most as usize)];
            out.u32(part.len() as u32).bytes(part);
            return Ok(());
        }
        let file = fid.file()?;
        out.counted(most, |buffer| file.read_at(buffer, offset).map_err(errno))
    }

    fn write(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, offset, count) = (r.u32()?, r.u64()?, r.u32()?);
        let data = r.take(count as usize)?;
        let fid = self.fids.get(number)?;
        if matches!(fid.opened, Opened::NewAttribute { .. }) {
            self.fids.extend_attribute(number, offset, data)?;
            out.u32(count);
        } else {
            let written = fid.file()?.write_at(data, offset).map_err(errno)?;
            out.u32(written as u32);
        }
        Ok(())
    }

    fn sync(&mut self, r: &mut Request) -> Result<()> {
        let (fid, data_only) = (self.fids.get(r.u32()?)?, r.u32().unwrap_or(0));
        match &fid.opened {
            Opened::File(file) if data_only != 0 => fs::fdatasync(file),
            Opened::File(file) => fs::fsync(file),
            Opened::Directory(directory) => fs::fsync(directory),
            _ => Err(Errno::BADF),
        }
    }

    fn read_dir(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, offset, count) = (r.u32()?, r.u64()?, r.u32()?);
        let most = count.min(self.io_unit()) as usize;
        let fid = self.fids.get(number)?;
        let Opened::Directory(directory) = &fid.opened else { return Err(Errno::NOTDIR) };
        let mut entries = Vec::new();
        read_entries(&fid.export, directory, offset, most, false, &mut entries)?;
        out.u32(entries.len() as u32).bytes(&entries);
        Ok(())
    }

    fn read_link(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let fid = self.fids.get(r.u32()?)?;
        out.string(&fid.export.target(fid.fd())?);
        Ok(())
    }

    /// Answers what was just made in a directory, with its mode and group set.
    fn made(&mut self, directory: u32, name: &[u8], mode: u32, group: u32, out: &mut Answer) -> Result<()> {
        let Fid { export, path, .. } = self.fids.get(directory)?;
        let made = export.child(path, name)?;
        export.settle(made.as_fd(), mode, group)?;
        out.qid(export.qid_of(&made)?);
        Ok(())
    }

    fn symlink(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, name, target, group) = (r.u32()?, r.name()?, r.string()?, r.u32()?);
        let Fid { export, path: directory, .. } = self.fids.get(number)?;
        export.make_symlink(directory, name, target)?;
        let made = export.child(directory, name)?;
        // As in `settle`; a link has no mode.
        export.give(made.as_fd(), group);
        out.qid(export.qid_of(&made)?);
        Ok(())
    }

    fn make_node(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, name, mode) = (r.u32()?, r.name()?, r.u32()?);
        let (_major, _minor, group) = (r.u32()?, r.u32()?, r.u32()?);
        let fid = self.fids.get(number)?;
        fid.export.make_node(&fid.path, name, mode)?;
        self.made(number, name, mode, group, out)
    }

    fn make_dir(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (number, name, mode, group) = (r.u32()?, r.name()?, r.u32()?, r.u32()?);
        let fid = self.fids.get(number)?;
        fid.export.make_directory(&fid.path, name, mode)?;
        self.made(number, name, mode, group, out)
    }

    fn link(&mut self, r: &mut Request) -> Result<()> {
        let (directory, target, name) = (r.u32()?, r.u32()?, r.name()?);
        let (target, directory) = (self.fids.get(target)?, self.fids.get(directory)?);
        same(target, directory)?;
        directory.export.make_link(target.fd(), &directory.path, name)
    }

    fn rename(&mut self, r: &mut Request) -> Result<()> {
        let (from, name, to, to_name) = (r.u32()?, r.name()?, r.u32()?, r.name()?);
        let (from, to) = (self.fids.get(from)?, self.fids.get(to)?);
        same(from, to)?;
        from.export.rename(&from.path, name, &to.path, to_name)
    }

    fn unlink(&mut self, r: &mut Request) -> Result<()> {
        let (directory, name, flags) = (r.u32()?, r.name()?, r.u32()?);
        let directory = self.fids.get(directory)?;
        directory.export.remove(&directory.path, name, flags)
    }

    fn xattr_walk(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        let (from, to, name) = (r.u32()?, r.u32()?, r.string()?);
        let fid = self.fids.get(from)?;
        let value = match name {
            b"" => fid.export.attributes(fid.fd())?,
            SITES => fid.export.site_table(fid.fd())?,
            name => fid.export.attribute(fid.fd(), name)?,
        };
        let (export, path) = (fid.export.clone(), rustix::io::fcntl_dupfd_cloexec(&fid.path, 0)?);
        out.u64(value.len() as u64);
        self.fids.add(to, Fid { opened: Opened::Attribute(value), ..Fid::new(export, path) })
    }

    fn xattr_create(&mut self, r: &mut Request) -> Result<()> {
        let (number, name, size, flags) = (r.u32()?, r.string()?, r.u64()?, r.u32()?);
        let fid = self.fids.get(number)?;
        fid.export.writable(fid.fd())?;
        let size = usize::try_from(size).ok().filter(|s| *s <= MAX_ATTRIBUTE).ok_or(Errno::TOOBIG)?;
        if !matches!(fid.opened, Opened::No) {
            return Err(Errno::BADF);
        }
        self.fids.open(number, Opened::NewAttribute { name: name.into(), value: Vec::new(), size, flags })
    }

    fn get_lock(&mut self, r: &mut Request, out: &mut Answer) -> Result<()> {
        self.fids.get(r.u32()?)?.file()?;
        let (_kind, start, length, process, client) = (r.u8()?, r.u64()?, r.u64()?, r.u32()?, r.string()?);
        out.u8(UNLOCKED).u64(start).u64(length).u32(process).string(client);
        Ok(())
    }
}

/// The entries of a directory from an offset on that take this many bytes at most; whether they are the last.
fn read_entries(
    export: &Export,
    directory: &OwnedFd,
    offset: u64,
    most: usize,
    with_attributes: bool,
    entries: &mut Vec<u8>,
) -> Result<bool> {
    let mut stat = fs::fstat(directory)?;
    fs::seek(directory, SeekFrom::Start(offset))?;
    // More than one entry of getdents64 with the longest name.
    let mut buffer = vec![MaybeUninit::uninit(); most.clamp(1024, 32 << 10)];
    let mut reader = RawDir::new(directory, &mut buffer);
    while let Some(entry) = reader.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let kind = export.kind(directory, name, entry.file_type());
        // What is mounted here has another number once walked to; listings say the directory's, as on Linux.
        (stat.st_ino, stat.st_mode) = (entry.ino(), kind.as_raw_mode());
        let qid = export.qid(&stat);
        let mut one = Vec::new();
        let mut record = Answer::begin(&mut one, 0, 0);
        record.qid(qid).u64(entry.next_entry_cookie()).u8((kind.as_raw_mode() >> 12) as u8).string(name);
        if with_attributes {
            let is_own = name != b"." && name != b"..";
            match is_own.then(|| export.stat_of(directory, entry.file_name())) {
                Some(Ok(stat)) => put_entry(export, directory, entry.file_name(), &stat, &mut record),
                // It has gone meanwhile.
                _ => drop(record.u8(0)),
            }
        }
        let record = &one[HEADER..];
        if entries.len() + record.len() > most {
            return if entries.is_empty() { Err(Errno::INVAL) } else { Ok(false) };
        }
        entries.extend(record);
    }
    Ok(true)
}

/// Attributes of an entry, and of a symbolic link where it leads.
fn put_entry(export: &Export, directory: &OwnedFd, name: &CStr, stat: &fs::Stat, out: &mut Answer) {
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let target = if is_link { fs::readlinkat(directory, name, Vec::new()).ok() } else { None };
    put_attributes(export, stat, out.u8(if target.is_some() { 2 } else { 1 }));
    if let Some(target) = target {
        out.string(target.as_bytes());
    }
}

/// The body of an Rgetattr.
fn put_attributes(export: &Export, stat: &fs::Stat, out: &mut Answer) {
    out.u64(GETATTR_BASIC).qid(export.qid(stat)).u32(stat.st_mode).u32(stat.st_uid).u32(stat.st_gid);
    out.u64(stat.st_nlink).u64(stat.st_rdev).u64(stat.st_size as u64);
    out.u64(stat.st_blksize as u64).u64(stat.st_blocks as u64);
    let times = [
        (stat.st_atime, stat.st_atime_nsec),
        (stat.st_mtime, stat.st_mtime_nsec),
        (stat.st_ctime, stat.st_ctime_nsec),
    ];
    for (seconds, nanoseconds) in times {
        out.u64(seconds as u64).u64(nanoseconds);
    }
    // Time of birth, generation, data version: not asked for by anybody.
    (0..4).for_each(|_| {
        out.u64(0);
    });
}

fn step(export: &Export, at: &OwnedFd, r: &mut Request) -> Result<(OwnedFd, Qid)> {
    let next = export.child(at, r.name()?)?;
    let qid = export.qid_of(&next)?;
    Ok((next, qid))
}

/// Two handles of an operation are in one tree.
fn same(one: &Fid, other: &Fid) -> Result<()> {
    if Arc::ptr_eq(&one.export, &other.export) { Ok(()) } else { Err(Errno::XDEV) }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
