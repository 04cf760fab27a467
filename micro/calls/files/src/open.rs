// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors from paths, and their copies: open, close, dup.

use crate::attributes::unmap_behind;
use crate::fcntl::has_direct;
use crate::{leases, special};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, FileType, Inode, Stat};
use api_user::UserPtr;
use core::any::Any;
use descriptors::{Description, Descriptors};
use task::call::Call;
use task::files::{self, AT_FDCWD, O_CLOEXEC};
use task::{processes, wait};
use vfs::{Access, Dentry, Resolve, Walk, notify, ops};

const O_ACCMODE: u32 = 0o3;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_NONBLOCK: u32 = 0o4000;
const O_DIRECT: u32 = 0o40000;
const O_DIRECTORY: u32 = 0o200000;

/// open(2) and openat(2) of 64 bits set it themselves, and F_GETFL says so.
pub(crate) const O_LARGEFILE: u32 = 0o100000;

const O_NOFOLLOW: u32 = 0o400000;
const O_PATH: u32 = 0o10000000;
const O_TMPFILE: u32 = 0o20200000;

/// Every flag open(2) has; openat2 refuses others.
const KNOWN: u32 = 0o37777703;

const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// What an O_PATH descriptor refers to: a place, not its contents.
struct PathFile(Arc<dyn Inode>);

impl File for PathFile {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Reads a path argument; empty ones are `ENOENT` unless `allow_empty`.
pub fn read_path(pointer: UserPtr<u8>, allow_empty: bool) -> Result<Vec<u8>> {
    let path = pointer.read_path()?;
    if path.is_empty() && !allow_empty { Err(ENOENT) } else { Ok(path) }
}

/// Opens what was found: a FIFO waits for its other side, a device node finds its driver.
pub fn open_inode(dentry: &Arc<Dentry>, flags: u32) -> Result<Arc<dyn File>> {
    let inode = dentry.inode();
    match dentry.kind() {
        FileType::Fifo => open_fifo(inode, flags),
        FileType::Socket => Err(ENXIO),
        FileType::CharDevice => match inode.open(inode, flags) {
            // A node on a file system that has no devices of its own.
            Err(ENXIO) => devfs::open(inode.stat()?.rdev, inode),
            opened => opened,
        },
        FileType::BlockDevice => crate::disks::open(inode, flags),
        _ => inode.open(inode, flags),
    }
}

fn open_fifo(inode: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
    // The links of /proc lead to pipes without a name: those open as themselves.
    if let Ok(file) = inode.open(inode, flags) {
        return Ok(file);
    }
    if flags & O_ACCMODE == O_ACCMODE {
        return Err(EINVAL);
    }
    let (reads, writes) = (flags & O_ACCMODE != 1, flags & O_ACCMODE != 0);
    let fifo = pipe::fifo(inode, reads, writes, &special::pipe_user())?;
    if !(reads && writes) {
        let nonblocking = flags & O_NONBLOCK != 0;
        match fifo.partner() {
            Err(EAGAIN) if nonblocking && writes => return Err(ENXIO),
            Err(EAGAIN) if !nonblocking => {
                wait::on_queue(fifo.queue(), Events::ALL, wait::FOREVER, || fifo.partner())?;
            }
            _ => {}
        }
    }
    Ok(fifo.end)
}

/// open(2) as everything else has it: the path from `dirfd`, flags, mode before the umask, openat2's restrictions.
pub fn open_at(dirfd: i32, path: &[u8], flags: u32, mode: u32, resolve: Resolve) -> Result<i32> {
    let files = files::current();
    let (root, start, who) = (files.root(), files.start(dirfd, path)?, files::credentials());
    let walk = Walk { root: &root, start: &start, who: &who, resolve };
    let permissions = mode & 0o7777;
    let mut flags = flags;
    if flags & O_PATH != 0 {
        flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        return install(ops::open(&walk, path, flags, 0)?.dentry, flags);
    }
    if flags & O_TMPFILE == O_TMPFILE {
        if flags & O_ACCMODE == 0 || flags & O_CREAT != 0 {
            return Err(EINVAL);
        }
        let dir = walk.lookup(path, true)?;
        let dentry = ops::create_unnamed(&who, &dir, permissions, flags & O_EXCL == 0)?;
        ops::is_open_to(&who, &dentry, flags)?;
        return install(dentry, flags);
    }
    if flags & (O_CREAT | O_DIRECTORY) == O_CREAT | O_DIRECTORY {
        return Err(EINVAL);
    }
    let opened = ops::open(&walk, path, flags, permissions)?;
    // A new file has nothing to cut off, and O_EXCL is served.
    let flags = if opened.created { flags & !(O_TRUNC | O_EXCL) } else { flags };
    install(opened.dentry, flags)
}

/// A descriptor for what was found and may be opened.
pub fn install(dentry: Arc<Dentry>, flags: u32) -> Result<i32> {
    if flags & O_PATH != 0 {
        let flags = flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        let file = Arc::new(PathFile(dentry.inode().clone()));
        let description = Description::new(file, flags, Some(dentry));
        return files::current().descriptors.insert(description, flags & O_CLOEXEC != 0);
    }
    let writes = ops::wanted(flags).contains(Access::WRITE) && dentry.kind() == FileType::Regular;
    if writes && processes::run_file(dentry.inode()) {
        return Err(ETXTBSY);
    }
    leases::break_for(dentry.inode(), flags)?;
    let before = if flags & O_TRUNC != 0 { Some(dentry.inode().stat()?) } else { None };
    let file = open_inode(&dentry, flags)?;
    if flags & O_DIRECT != 0 && !has_direct(&*file, dentry.kind()) {
        return Err(EINVAL);
    }
    if let Some(before) = &before {
        unmap_behind(before, 0);
    }
    let description = Description::new(file, flags, Some(dentry).filter(|dentry| !dentry.is_open_file()));
    if writes && flags & O_ACCMODE != 0 {
        description.note_writer();
    }
    description.happened(notify::OPEN);
    if before.is_some_and(|before| before.kind == FileType::Regular) {
        description.happened(notify::MODIFY);
    }
    files::current().descriptors.insert(description, flags & O_CLOEXEC != 0)
}

/// Flags that go together, which is looked at before the path (Linux' build_open_flags).
fn open_flags(flags: u32) -> Result<u32> {
    let is_unnamed = flags & O_TMPFILE & !O_DIRECTORY != 0 && flags & O_PATH == 0;
    if is_unnamed && flags & O_DIRECTORY == 0 { Err(EINVAL) } else { Ok(flags | O_LARGEFILE) }
}

pub fn open(call: &mut Call<'_>) -> Result<usize> {
    let flags = open_flags(call.uint(1))?;
    let path = read_path(call.ptr(0), false)?;
    open_at(AT_FDCWD, &path, flags, call.uint(2), Resolve::default()).map(|fd| fd as usize)
}

pub fn openat(call: &mut Call<'_>) -> Result<usize> {
    let flags = open_flags(call.uint(2))?;
    let path = read_path(call.ptr(1), false)?;
    open_at(call.int(0), &path, flags, call.uint(3), Resolve::default()).map(|fd| fd as usize)
}

pub fn creat(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    let flags = O_CREAT | O_TRUNC | O_LARGEFILE | 1;
    open_at(AT_FDCWD, &path, flags, call.uint(1), Resolve::default()).map(|fd| fd as usize)
}

/// openat2(2): struct open_how { flags, mode, resolve } of at least 24 bytes; longer ones must be zero behind that.
pub fn openat2(call: &mut Call<'_>) -> Result<usize> {
    let size = call.size(3);
    if size < 24 {
        return Err(EINVAL);
    }
    let [flags, mode, resolve] = call.ptr(2).read_extensible(size)?;
    if flags & !(KNOWN as u64) != 0 || resolve & !(Resolve::KNOWN as u64) != 0 || mode & !0o7777 != 0 {
        return Err(EINVAL);
    }
    let (flags, resolve) = (flags as u32, Resolve(resolve as u32));
    let creates = flags & O_CREAT != 0 || flags & O_TMPFILE == O_TMPFILE;
    if mode != 0 && !creates {
        return Err(EINVAL);
    }
    if flags & O_PATH != 0 && flags & !(O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) != 0 {
        return Err(EINVAL);
    }
    if resolve.has(Resolve::BENEATH) && resolve.has(Resolve::IN_ROOT) {
        return Err(EINVAL);
    }
    if resolve.has(Resolve::CACHED) && flags & (O_TRUNC | O_CREAT | O_TMPFILE) != 0 {
        // Those would have to wait for a disk (Linux, whose O_TMPFILE includes O_DIRECTORY here as well).
        return Err(EAGAIN);
    }
    let flags = if flags & O_PATH == 0 { flags | O_LARGEFILE } else { flags };
    let path = read_path(call.ptr(1), false)?;
    let dirfd = call.int(0);
    // With RESOLVE_IN_ROOT even `/x` starts at the directory, so the descriptor counts.
    let scoped = resolve.has(Resolve::BENEATH | Resolve::IN_ROOT);
    if scoped && dirfd != AT_FDCWD && path.first() == Some(&b'/') {
        return open_scoped(dirfd, &path, flags, mode as u32, resolve);
    }
    open_at(dirfd, &path, flags, mode as u32, resolve).map(|fd| fd as usize)
}

fn open_scoped(dirfd: i32, path: &[u8], flags: u32, mode: u32, resolve: Resolve) -> Result<usize> {
    if resolve.has(Resolve::BENEATH) {
        return Err(EXDEV);
    }
    let first = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    let inside = &path[first..];
    let inside = if inside.is_empty() { &b"."[..] } else { inside };
    open_at(dirfd, inside, flags, mode, resolve).map(|fd| fd as usize)
}

pub fn close(call: &mut Call<'_>) -> Result<usize> {
    let description = files::current().descriptors.remove(call.int(0))?;
    files::end(description).map(|()| 0)
}

pub fn close_range(call: &mut Call<'_>) -> Result<usize> {
    let (first, last) = (call.uint(0), call.uint(1));
    let flags = call.flags(2, CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)?;
    if first > last {
        return Err(EINVAL);
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        files::current().own_descriptors()?;
    }
    let descriptors = &files::current().descriptors;
    let mut next = first;
    while let Some(fd) = descriptors.next_open(next).filter(|fd| *fd as u32 <= last) {
        if flags & CLOSE_RANGE_CLOEXEC != 0 {
            descriptors.set_close_on_exec(fd, true)?;
        } else if let Ok(description) = descriptors.remove(fd) {
            // close_range(2) reports no errors of the files.
            let _ = files::end(description);
        }
        next = fd as u32 + 1;
    }
    Ok(0)
}

pub fn dup(call: &mut Call<'_>) -> Result<usize> {
    let descriptors = &files::current().descriptors;
    let description = descriptors.get_any(call.int(0))?;
    descriptors.insert(description, false).map(|fd| fd as usize)
}

fn replace(from: i32, to: i32, close_on_exec: bool) -> Result<usize> {
    let descriptors = &files::current().descriptors;
    let description = descriptors.get_any(from)?;
    if let Some(old) = Descriptors::replace(descriptors, to, description, close_on_exec)? {
        // dup2(2): errors of the closed file are lost.
        let _ = files::end(old);
    }
    Ok(to as usize)
}

pub fn dup2(call: &mut Call<'_>) -> Result<usize> {
    let (from, to) = (call.int(0), call.int(1));
    if from == to {
        return files::current().descriptors.get_any(from).map(|_| to as usize);
    }
    replace(from, to, false)
}

pub fn dup3(call: &mut Call<'_>) -> Result<usize> {
    let (from, to) = (call.int(0), call.int(1));
    let flags = call.flags(2, O_CLOEXEC)?;
    if from == to {
        return Err(EINVAL);
    }
    replace(from, to, flags & O_CLOEXEC != 0)
}
