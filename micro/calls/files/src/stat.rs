// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file is: stat, statx, access, statfs, readlink.

use crate::open::read_path;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_fs::{FileType, Stat, Timespec};
use api_user::UserPtr;
use task::call::Call;
use task::files::{self, AT_FDCWD};
use task::users::{self, UserNamespace};
use vfs::{Access, Credentials, Dentry, Walk};

pub const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EACCESS: u32 = 0x200;
const AT_NO_AUTOMOUNT: u32 = 0x800;
pub const AT_EMPTY_PATH: u32 = 0x1000;
const AT_STATX_SYNC_TYPE: u32 = 0x6000;
/// STATX_BASIC_STATS.
const STATX_BASIC: u32 = 0x7ff;
const STATX_MNT_ID: u32 = 0x1000;
const STATX_RESERVED: u32 = 0x8000_0000;
/// STATX_ATTR_IMMUTABLE, APPEND and NODUMP, the same bits as the flags of the inode.
const STATX_ATTR_FLAGS: u64 = 0x70;
/// STATX_ATTR_MOUNT_ROOT.
const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;
const ST_VALID: u64 = 0x20;

/// Resolves a path for one of the `*at` calls on behalf of `who`.
pub fn lookup_as(who: &Credentials, dirfd: i32, path: &[u8], follow: bool) -> Result<Arc<Dentry>> {
    let files = files::current();
    let (root, start) = (files.root(), files.start(dirfd, path)?);
    Walk::new(&root, &start, who).lookup(path, follow)
}

/// Resolves a path for one of the `*at` calls.
pub fn lookup_at(dirfd: i32, path: &[u8], follow: bool) -> Result<Arc<Dentry>> {
    lookup_as(&files::credentials(), dirfd, path, follow)
}

/// Attributes and mount number; an empty path (where allowed) means the descriptor itself.
fn stat_at(dirfd: i32, path: &[u8], flags: u32) -> Result<(Stat, u32, bool)> {
    if path.is_empty() {
        if flags & AT_EMPTY_PATH == 0 {
            return Err(ENOENT);
        }
        if dirfd != AT_FDCWD {
            let description = files::current().descriptors.get_any(dirfd)?;
            let place = description.place();
            let mount = place.map_or(0, |place| place.mount().id());
            return Ok((description.file().stat()?, mount, place.is_some_and(is_mount_root)));
        }
    }
    let dentry = if path.is_empty() {
        files::current().working()
    } else {
        lookup_at(dirfd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?
    };
    Ok((dentry.inode().stat()?, dentry.mount().id(), is_mount_root(&dentry)))
}

fn is_mount_root(place: &Arc<Dentry>) -> bool {
    place.parent().is_none() && !place.is_unlinked()
}

/// `struct stat` of x86-64, as 18 words.
fn encode(stat: &Stat, users: &UserNamespace) -> [u64; 18] {
    let seconds = |t: Timespec| t.seconds as u64;
    let nanoseconds = |t: Timespec| t.nanoseconds as u64;
    [
        stat.device,
        stat.inode,
        stat.links,
        stat.mode() as u64 | u64::from(users.shown_user(stat.uid)) << 32,
        u64::from(users.shown_group(stat.gid)),
        stat.rdev,
        stat.size,
        stat.block_size as u64,
        stat.blocks,
        seconds(stat.accessed),
        nanoseconds(stat.accessed),
        seconds(stat.modified),
        nanoseconds(stat.modified),
        seconds(stat.changed),
        nanoseconds(stat.changed),
        0,
        0,
        0,
    ]
}

fn answer(stat: &Stat, to: UserPtr<[u64; 18]>) -> Result<usize> {
    to.write(encode(stat, &users::here()))?;
    Ok(0)
}

pub fn stat(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    answer(&stat_at(AT_FDCWD, &path, 0)?.0, call.ptr(1))
}

pub fn lstat(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    answer(&stat_at(AT_FDCWD, &path, AT_SYMLINK_NOFOLLOW)?.0, call.ptr(1))
}

pub fn fstat(call: &mut Call<'_>) -> Result<usize> {
    let description = files::current().descriptors.get_any(call.int(0))?;
    answer(&description.file().stat()?, call.ptr(1))
}

pub fn newfstatat(call: &mut Call<'_>) -> Result<usize> {
    /// How fresh the answer is to be, as of statx(2).
    const AT_STATX_SYNC_TYPE: u32 = 0x6000;
    let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    let flags = call.flags(3, known)?;
    let path = read_path(call.ptr(1), true)?;
    answer(&stat_at(call.int(0), &path, flags)?.0, call.ptr(2))
}

fn major(device: u64) -> u64 {
    (device >> 8 & 0xfff) | (device >> 32 & !0xfff)
}

fn minor(device: u64) -> u64 {
    (device & 0xff) | (device >> 12 & 0xffff_ff00)
}

pub fn statx(call: &mut Call<'_>) -> Result<usize> {
    let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    let flags = call.flags(2, known)?;
    if call.uint(3) & STATX_RESERVED != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(EINVAL);
    }
    let path = read_path(call.ptr(1), true)?;
    let (s, mount, is_root) = stat_at(call.int(0), &path, flags)?;
    let time = |t: Timespec| [t.seconds as u64, t.nanoseconds as u64];
    let [accessed, changed, modified] = [time(s.accessed), time(s.changed), time(s.modified)];
    let pair = |low: u64, high: u64| low & 0xffff_ffff | high << 32;
    let mut out = [0u64; 32];
    out[0] = pair((STATX_BASIC | STATX_MNT_ID) as u64, s.block_size as u64);
    let shown = STATX_ATTR_MOUNT_ROOT | if s.flags.is_some() { STATX_ATTR_FLAGS } else { 0 };
    let flags = s.flags.map_or(0, |flags| u64::from(flags.bits()) & STATX_ATTR_FLAGS);
    out[1] = flags | if is_root { STATX_ATTR_MOUNT_ROOT } else { 0 };
    let users = users::here();
    out[2] = pair(s.links, u64::from(users.shown_user(s.uid)));
    out[3] = pair(u64::from(users.shown_group(s.gid)), s.mode() as u64);
    (out[4], out[5], out[6], out[7]) = (s.inode, s.size, s.blocks, shown);
    [out[8], out[9]] = accessed;
    [out[12], out[13]] = changed;
    [out[14], out[15]] = modified;
    out[16] = pair(major(s.rdev), minor(s.rdev));
    out[17] = pair(major(s.device), minor(s.device));
    out[18] = mount as u64;
    call.ptr::<[u64; 32]>(4).write(out)?;
    Ok(0)
}

/// What access(2) is asked about: `EINVAL` for what there is none of, whatever the path.
fn access_mode(mode: u32) -> Result<u32> {
    if mode & !7 != 0 { Err(EINVAL) } else { Ok(mode) }
}

fn check_access(dirfd: i32, path: &[u8], mode: u32, flags: u32) -> Result<usize> {
    let who = if flags & AT_EACCESS != 0 { files::credentials() } else { files::real_credentials() };
    let (stat, inode, read_only) = if path.is_empty() && dirfd != AT_FDCWD {
        let description = files::current().descriptors.get_any(dirfd)?;
        let inode = description.inode().cloned();
        (description.file().stat()?, inode, description.place().is_some_and(|p| p.mount().is_read_only()))
    } else {
        let dentry = match path {
            [] => files::current().working(),
            path => lookup_as(&who, dirfd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?,
        };
        (dentry.inode().stat()?, Some(dentry.inode().clone()), dentry.mount().is_read_only())
    };
    let access = Access(mode);
    let is_stored = matches!(stat.kind, FileType::Regular | FileType::Directory | FileType::Symlink);
    if access.contains(Access::WRITE) && read_only && is_stored {
        return Err(EROFS);
    }
    match inode {
        Some(inode) => who.check_file(&inode, &stat, access).map(|()| 0),
        None => who.check(&stat, access).map(|()| 0),
    }
}

pub fn access(call: &mut Call<'_>) -> Result<usize> {
    let mode = access_mode(call.uint(1))?;
    check_access(AT_FDCWD, &read_path(call.ptr(0), false)?, mode, 0)
}

pub fn faccessat(call: &mut Call<'_>) -> Result<usize> {
    let mode = access_mode(call.uint(2))?;
    check_access(call.int(0), &read_path(call.ptr(1), false)?, mode, 0)
}

pub fn faccessat2(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let mode = access_mode(call.uint(2))?;
    let path = read_path(call.ptr(1), flags & AT_EMPTY_PATH != 0)?;
    check_access(call.int(0), &path, mode, flags)
}

fn answer_fs(dentry: &Arc<Dentry>, to: UserPtr<[u64; 15]>) -> Result<usize> {
    let fs = dentry.inode().stat_fs()?;
    let mut out = [0; 15];
    out[0] = fs.magic;
    out[1] = fs.block_size;
    out[2] = fs.blocks;
    out[3] = fs.blocks_free;
    out[4] = fs.blocks_free;
    out[5] = fs.files;
    out[6] = fs.files_free;
    // f_fsid
    out[7] = dentry.mount().id() as u64;
    out[8] = fs.name_max;
    out[9] = fs.block_size;
    out[10] = dentry.mount().statfs_flags() | ST_VALID;
    to.write(out)?;
    Ok(0)
}

pub fn statfs(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    answer_fs(&lookup_at(AT_FDCWD, &path, true)?, call.ptr(1))
}

pub fn fstatfs(call: &mut Call<'_>) -> Result<usize> {
    let description = files::current().descriptors.get_any(call.int(0))?;
    match description.place() {
        Some(place) => answer_fs(place, call.ptr(1)),
        None => {
            let mut out = [0; 15];
            (out[0], out[1], out[8], out[9]) = (description.file().file_system()?, 4096, 255, 4096);
            out[10] = ST_VALID;
            call.ptr::<[u64; 15]>(1).write(out)?;
            Ok(0)
        }
    }
}

fn read_link_at(
    dirfd: i32,
    path: UserPtr<u8>,
    may_be_empty: bool,
    (to, size): (UserPtr<u8>, i32),
) -> Result<usize> {
    if size <= 0 {
        return Err(EINVAL);
    }
    let path = read_path(path, may_be_empty)?;
    let inode = if path.is_empty() {
        if dirfd == AT_FDCWD {
            return Err(ENOENT);
        }
        let description = files::current().descriptors.get_any(dirfd)?;
        let place = description.place().ok_or(ENOENT)?;
        place.inode().clone()
    } else {
        lookup_at(dirfd, &path, false)?.inode().clone()
    };
    if inode.kind()? != FileType::Symlink {
        return Err(if path.is_empty() { ENOENT } else { EINVAL });
    }
    let target = inode.read_link()?;
    let n = target.len().min(size as usize);
    to.write_slice(&target[..n])?;
    Ok(n)
}

pub fn readlink(call: &mut Call<'_>) -> Result<usize> {
    read_link_at(AT_FDCWD, call.ptr(0), false, (call.ptr(1), call.int(2)))
}

pub fn readlinkat(call: &mut Call<'_>) -> Result<usize> {
    read_link_at(call.int(0), call.ptr(1), true, (call.ptr(2), call.int(3)))
}
