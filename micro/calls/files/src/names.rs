// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names: making, removing and renaming them, listing directories, the working directory.

use crate::open::read_path;
use crate::stat::{AT_EMPTY_PATH, lookup_at};
use abi::{PATH_MAX, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::FileType;
use api_user::UserPtr;
use descriptors::Description;
use task::call::Call;
use task::files::{self, AT_FDCWD};
use vfs::notify;
use vfs::{Access, Capability, Dentry, Walk, ops};

const AT_REMOVEDIR: u32 = 0x200;
const AT_SYMLINK_FOLLOW: u32 = 0x400;

/// Runs `f` with a walk that starts where `dirfd` and the path say.
fn with_walk<T>(dirfd: i32, path: &[u8], f: impl FnOnce(&Walk<'_>) -> Result<T>) -> Result<T> {
    let files = files::current();
    let (root, start, who) = (files.root(), files.start(dirfd, path)?, files::credentials());
    f(&Walk::new(&root, &start, &who))
}

fn make(dirfd: i32, path: UserPtr<u8>, kind: FileType, mode: u32, rdev: u64) -> Result<usize> {
    let path = read_path(path, false)?;
    with_walk(dirfd, &path, |walk| ops::create(walk, &path, kind, mode & 0o7777, rdev)).map(|_| 0)
}

pub fn mkdir(call: &mut Call<'_>) -> Result<usize> {
    make(AT_FDCWD, call.ptr(0), FileType::Directory, call.uint(1), 0)
}

pub fn mkdirat(call: &mut Call<'_>) -> Result<usize> {
    make(call.int(0), call.ptr(1), FileType::Directory, call.uint(2), 0)
}

fn make_node(dirfd: i32, path: UserPtr<u8>, mode: u32, device: u64) -> Result<usize> {
    let kind = match mode & 0o170000 {
        0 => FileType::Regular,
        0o040000 => return Err(EPERM),
        0o120000 => return Err(EINVAL),
        kind => FileType::from_mode(kind).ok_or(EINVAL)?,
    };
    let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
    // The argument is an `unsigned int` on x86-64 in the kernel's own encoding.
    let device = if is_device { device & 0xffff_ffff } else { 0 };
    make(dirfd, path, kind, mode, device)
}

pub fn mknod(call: &mut Call<'_>) -> Result<usize> {
    make_node(AT_FDCWD, call.ptr(0), call.uint(1), call.arg(2))
}

pub fn mknodat(call: &mut Call<'_>) -> Result<usize> {
    make_node(call.int(0), call.ptr(1), call.uint(2), call.arg(3))
}

fn remove(dirfd: i32, path: UserPtr<u8>, directory: bool) -> Result<usize> {
    let path = read_path(path, false)?;
    with_walk(dirfd, &path, |walk| ops::unlink(walk, &path, directory)).map(|()| 0)
}

pub fn rmdir(call: &mut Call<'_>) -> Result<usize> {
    remove(AT_FDCWD, call.ptr(0), true)
}

pub fn unlink(call: &mut Call<'_>) -> Result<usize> {
    remove(AT_FDCWD, call.ptr(0), false)
}

pub fn unlinkat(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(2, AT_REMOVEDIR)?;
    remove(call.int(0), call.ptr(1), flags & AT_REMOVEDIR != 0)
}

fn rename_at(old: (i32, UserPtr<u8>), new: (i32, UserPtr<u8>), flags: u32) -> Result<usize> {
    let old_path = read_path(old.1, false)?;
    with_walk(old.0, &old_path, |from| {
        // Linux looks at the new name when it has walked to the old one.
        let renamed = read_path(new.1, false).and_then(|new_path| {
            with_walk(new.0, &new_path, |to| ops::rename(from, &old_path, to, &new_path, flags))
        });
        renamed.or_else(|e| from.parent(&old_path).and(Err(e)))
    })
    .map(|()| 0)
}

pub fn rename(call: &mut Call<'_>) -> Result<usize> {
    rename_at((AT_FDCWD, call.ptr(0)), (AT_FDCWD, call.ptr(1)), 0)
}

pub fn renameat(call: &mut Call<'_>) -> Result<usize> {
    rename_at((call.int(0), call.ptr(1)), (call.int(2), call.ptr(3)), 0)
}

pub fn renameat2(call: &mut Call<'_>) -> Result<usize> {
    ops::check_rename_flags(call.uint(4))?;
    rename_at((call.int(0), call.ptr(1)), (call.int(2), call.ptr(3)), call.uint(4))
}

fn link_at(old: (i32, UserPtr<u8>), new: (i32, UserPtr<u8>), flags: u32) -> Result<usize> {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(EINVAL);
    }
    let old_path = read_path(old.1, flags & AT_EMPTY_PATH != 0)?;
    let from = if old_path.is_empty() {
        if !files::credentials().has(Capability::DacReadSearch) {
            return Err(ENOENT);
        }
        match old.0 {
            AT_FDCWD => files::current().working(),
            descriptor => files::current().descriptors.get_any(descriptor)?.place().cloned().ok_or(EXDEV)?,
        }
    } else {
        lookup_at(old.0, &old_path, flags & AT_SYMLINK_FOLLOW != 0)?
    };
    // Linux looks at the new name when it has found the old one.
    let new_path = read_path(new.1, false)?;
    with_walk(new.0, &new_path, |walk| ops::link(walk, &from, &new_path)).map(|()| 0)
}

pub fn link(call: &mut Call<'_>) -> Result<usize> {
    link_at((AT_FDCWD, call.ptr(0)), (AT_FDCWD, call.ptr(1)), 0)
}

pub fn linkat(call: &mut Call<'_>) -> Result<usize> {
    link_at((call.int(0), call.ptr(1)), (call.int(2), call.ptr(3)), call.uint(4))
}

fn symlink_at(target: UserPtr<u8>, dirfd: i32, path: UserPtr<u8>) -> Result<usize> {
    let target = read_path(target, false)?;
    let path = read_path(path, false)?;
    with_walk(dirfd, &path, |walk| ops::symlink(walk, &target, &path)).map(|()| 0)
}

pub fn symlink(call: &mut Call<'_>) -> Result<usize> {
    symlink_at(call.ptr(0), AT_FDCWD, call.ptr(1))
}

pub fn symlinkat(call: &mut Call<'_>) -> Result<usize> {
    symlink_at(call.ptr(0), call.int(1), call.ptr(2))
}

/// One entry of a listing; `.` and `..` come first and are not the file system's business.
struct Listed {
    name: Vec<u8>,
    inode: u64,
    kind: FileType,
    next: u64,
}

/// Positions 0 and 1 are `.` and `..`; the file system's cookies follow, moved by two.
const DOTS: u64 = 2;
/// Entries asked from a file system at once.
const BATCH: usize = 64;

fn listed(description: &Description, root: &Arc<Dentry>) -> Result<Vec<Listed>> {
    let place = description.place().ok_or(ENOTDIR)?;
    let at = description.position();
    let directory = |name: &[u8], dentry: &Arc<Dentry>, next| -> Result<Vec<Listed>> {
        let inode = dentry.inode().stat()?.inode;
        Ok(Vec::from([Listed { name: name.to_vec(), inode, kind: FileType::Directory, next }]))
    };
    match at {
        0 => directory(b".", place, 1),
        1 => directory(b"..", &place.above(root), DOTS),
        _ => {
            let entries = place.inode().list(at - DOTS, BATCH)?;
            let listed = |e: api_fs::DirEntry| Listed {
                name: e.name,
                inode: e.inode,
                kind: e.kind,
                next: e.next + DOTS,
            };
            Ok(entries.into_iter().map(listed).collect())
        }
    }
}

/// Fills the buffer with entries that `encode` writes; `EINVAL` when not even the first fits.
fn list(call: &Call<'_>, encode: fn(&Listed, &mut Vec<u8>)) -> Result<usize> {
    let description = files::get(call.int(0))?;
    let done = list_from(&description, call, encode)?;
    description.happened(notify::ACCESS);
    Ok(done)
}

fn list_from(description: &Description, call: &Call<'_>, encode: fn(&Listed, &mut Vec<u8>)) -> Result<usize> {
    let is_directory = description.place().is_some_and(|place| place.is_directory());
    if !is_directory {
        return Err(ENOTDIR);
    }
    if description.place().is_some_and(|place| place.is_unlinked()) {
        return Err(ENOENT);
    }
    // Linux takes the size for an int: nothing fits into a negative one.
    let size = usize::try_from(call.int(2)).unwrap_or(0);
    let to = call.ptr::<u8>(1);
    let root = files::current().root();
    let mut done = 0;
    let mut record = Vec::new();
    loop {
        let entries = listed(description, &root)?;
        if entries.is_empty() {
            return Ok(done);
        }
        for entry in entries {
            record.clear();
            encode(&entry, &mut record);
            if done + record.len() > size {
                return if done == 0 { Err(EINVAL) } else { Ok(done) };
            }
            match to.add(done as u64).write_slice(&record) {
                Ok(()) => done += record.len(),
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
            description.set_position(entry.next);
        }
    }
}

/// struct linux_dirent64: d_ino, d_off, d_reclen, d_type, d_name with its NUL, padded to eight bytes.
fn encode_64(entry: &Listed, record: &mut Vec<u8>) {
    let length = (19 + entry.name.len() + 1).next_multiple_of(8);
    record.extend_from_slice(&entry.inode.to_ne_bytes());
    record.extend_from_slice(&entry.next.to_ne_bytes());
    record.extend_from_slice(&(length as u16).to_ne_bytes());
    record.push(entry.kind.dirent_type());
    record.extend_from_slice(&entry.name);
    record.resize(length, 0);
}

/// struct linux_dirent: the type is in the last byte.
fn encode_old(entry: &Listed, record: &mut Vec<u8>) {
    let length = (18 + entry.name.len() + 2).next_multiple_of(8);
    record.extend_from_slice(&entry.inode.to_ne_bytes());
    record.extend_from_slice(&entry.next.to_ne_bytes());
    record.extend_from_slice(&(length as u16).to_ne_bytes());
    record.extend_from_slice(&entry.name);
    record.resize(length - 1, 0);
    record.push(entry.kind.dirent_type());
}

pub fn getdents64(call: &mut Call<'_>) -> Result<usize> {
    list(call, encode_64)
}

pub fn getdents(call: &mut Call<'_>) -> Result<usize> {
    list(call, encode_old)
}

pub fn getcwd(call: &mut Call<'_>) -> Result<usize> {
    let files = files::current();
    let working = files.working();
    if working.is_unlinked() {
        return Err(ENOENT);
    }
    let mut path = match working.path_from(&files.root()) {
        Some(path) => path,
        None => {
            let mut path = b"(unreachable)".to_vec();
            path.extend(working.path_from_top());
            path
        }
    };
    path.push(0);
    // libc goes up from directory to directory then.
    if path.len() > PATH_MAX {
        return Err(ENAMETOOLONG);
    }
    if path.len() > call.size(1) {
        return Err(ERANGE);
    }
    call.ptr::<u8>(0).write_slice(&path)?;
    Ok(path.len())
}

/// A directory that may be entered.
fn directory(dentry: Arc<Dentry>) -> Result<Arc<Dentry>> {
    if !dentry.is_directory() {
        return Err(ENOTDIR);
    }
    files::credentials().check_file(dentry.inode(), &dentry.inode().stat()?, Access::EXECUTE)?;
    Ok(dentry)
}

pub fn chdir(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    files::current().set_working(directory(lookup_at(AT_FDCWD, &path, true)?)?);
    Ok(0)
}

pub fn fchdir(call: &mut Call<'_>) -> Result<usize> {
    let description = files::current().descriptors.get_any(call.int(0))?;
    files::current().set_working(directory(description.place().cloned().ok_or(ENOTDIR)?)?);
    Ok(0)
}

pub fn chroot(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    let dir = directory(lookup_at(AT_FDCWD, &path, true)?)?;
    if !files::credentials().has_here(Capability::SysChroot) {
        return Err(EPERM);
    }
    files::current().set_root(dir);
    Ok(0)
}

pub fn umask(call: &mut Call<'_>) -> Result<usize> {
    Ok(files::current().set_umask(call.uint(0)) as usize)
}
