// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing what a file is: mode, owner, times, length, extended attributes, and storing it.

use crate::io::check_file_size;
use crate::open::read_path;
use crate::stat::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, lookup_at};
use crate::{acl, leases};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Inode, InodeFlags, SetAttr, Stat, Timespec};
use api_user::UserPtr;
use descriptors::Description;
use task::call::Call;
use task::files::{self, AT_FDCWD};
use task::identity::file_capabilities::{Attribute, CAPABILITIES};
use task::users::{self, Kind};
use vfs::{Access, Capability, Dentry, OpenFile, notify, ops};

const O_WRONLY: u32 = 1;
const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;
const XATTR_NAME_MAX: usize = 255;
/// Of a socket: its protocol's name and a NUL byte. It cannot be set.
const PROTOCOL_NAME: &[u8] = b"system.sockprotoname";
const XATTR_SIZE_MAX: usize = 65536;
/// All but FALLOC_FL_NO_HIDE_STALE.
const FALLOC_KNOWN: u32 = 0x7b;
const FALLOC_FL_KEEP_SIZE: u32 = 1;
const FALLOC_FL_PUNCH_HOLE: u32 = 2;
const FALLOC_FL_COLLAPSE_RANGE: u32 = 8;
const FALLOC_FL_ZERO_RANGE: u32 = 16;
const FALLOC_FL_INSERT_RANGE: u32 = 32;
const FALLOC_FL_UNSHARE_RANGE: u32 = 64;
const SYNC_FILE_RANGE_KNOWN: u32 = 7;

/// A file whose attributes are to change, by path or by descriptor.
struct Target {
    inode: Arc<dyn Inode>,
    place: Option<Arc<Dentry>>,
}

impl Target {
    fn of(place: Arc<Dentry>) -> Target {
        Target { inode: place.inode().clone(), place: Some(place) }
    }

    fn path(dirfd: i32, path: &[u8], follow: bool) -> Result<Target> {
        Ok(Target::of(lookup_at(dirfd, path, follow)?))
    }

    fn descriptor(description: &Description) -> Result<Target> {
        let inode = match description.inode() {
            Some(inode) => inode.clone(),
            None => OpenFile::inode(description.file()),
        };
        Ok(Target { inode, place: description.place().cloned() })
    }

    /// By path, or with AT_EMPTY_PATH by descriptor.
    fn either(dirfd: i32, path: &[u8], flags: u32) -> Result<Target> {
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
            if dirfd == AT_FDCWD {
                return Ok(Target::of(files::current().working()));
            }
            return Target::descriptor(&*files::current().descriptors.get_any(dirfd)?);
        }
        Target::path(dirfd, path, flags & AT_SYMLINK_NOFOLLOW == 0)
    }

    fn may_change(&self) -> Result<()> {
        self.place.as_ref().map_or(Ok(()), ops::may_change)
    }

    /// The same, and `EPERM` for files whose attributes are to stay (ioctl_iflags(2)).
    fn may_alter(&self) -> Result<()> {
        self.may_change()?;
        ops::may_alter(&self.inode)
    }

    /// Tells who watches it.
    fn happened(&self, event: u32) {
        if let Some(place) = &self.place {
            notify::event(place, event);
        }
    }

    fn chmod(&self, mode: u32) -> Result<usize> {
        self.may_alter()?;
        let stat = self.inode.stat()?;
        if stat.kind == FileType::Symlink {
            return Err(EOPNOTSUPP);
        }
        let permissions = ops::permissions_to_set(&files::credentials(), &stat, mode)?;
        self.inode.set_attr(&SetAttr { permissions: Some(permissions), ..SetAttr::default() })?;
        self.happened(notify::ATTRIB);
        Ok(0)
    }

    /// -1 leaves an id as it is. Set-user-id bits of a file go when its owner changes.
    fn chown(&self, uid: u32, gid: u32) -> Result<usize> {
        self.may_alter()?;
        let stat = self.inode.stat()?;
        let who = files::credentials();
        // Ids that the caller's user namespace does not have are none.
        let named = |kind, id: u32| (id != u32::MAX).then(|| users::named(kind, id)).transpose();
        let (uid, gid) = (named(Kind::User, uid)?, named(Kind::Group, gid)?);
        let may_uid = uid.is_none_or(|uid| {
            who.has_over(Capability::Chown, &stat) || (who.uid == stat.uid && uid == stat.uid)
        });
        let may_gid = gid.is_none_or(|gid| {
            who.has_over(Capability::Chown, &stat)
                || (who.uid == stat.uid && (gid == stat.gid || who.is_in_group(gid)))
        });
        if !may_uid || !may_gid {
            return Err(EPERM);
        }
        let mut change = SetAttr { uid, gid, ..SetAttr::default() };
        let keeps_group = stat.permissions & 0o010 == 0
            && (who.has_over(Capability::Fsetid, &stat) || who.is_in_group(stat.gid));
        let goes = if keeps_group { 0o4000 } else { 0o6000 };
        // Whoever only names no new ids takes these bits from a file of their own alone.
        if stat.kind != FileType::Directory && stat.permissions & goes != 0 {
            change.permissions = Some(ops::permissions_to_set(&who, &stat, stat.permissions & !goes)?);
        }
        let is_changed = uid.is_some() || gid.is_some() || change.permissions.is_some();
        self.inode.set_attr(&change)?;
        if stat.kind != FileType::Directory {
            // Most files have none.
            let _ = self.inode.remove_xattr(CAPABILITIES);
        }
        if is_changed {
            self.happened(notify::ATTRIB);
        }
        Ok(0)
    }

    /// `None`: both to now, which takes only the right to write.
    fn set_times(&self, times: Option<[[i64; 2]; 2]>) -> Result<usize> {
        let now = Timespec::now();
        let mut sets_now = true;
        let mut new = [Some(now), Some(now)];
        if let Some(times) = times {
            for (slot, [seconds, nanoseconds]) in new.iter_mut().zip(times) {
                match nanoseconds {
                    UTIME_NOW => {}
                    UTIME_OMIT => {
                        *slot = None;
                        sets_now = false;
                    }
                    0..=999_999_999 => {
                        *slot = Some(Timespec { seconds, nanoseconds: nanoseconds as u32 });
                        sets_now = false;
                    }
                    _ => return Err(EINVAL),
                }
            }
        }
        let (stat, who) = (self.inode.stat()?, files::credentials());
        if !sets_now {
            self.may_alter()?;
        } else {
            self.may_change()?;
            if stat.flags.is_some_and(|flags| flags.has(InodeFlags::IMMUTABLE)) {
                return Err(EPERM);
            }
        }
        if !who.owns(&stat) {
            if !sets_now {
                return Err(EPERM);
            }
            who.check_file(&self.inode, &stat, Access::WRITE)?;
        }
        self.inode.set_attr(&SetAttr { accessed: new[0], modified: new[1], ..SetAttr::default() })?;
        // One time alone is told as what sets it (Linux' fsnotify_change).
        match new {
            [Some(_), Some(_)] => self.happened(notify::ATTRIB),
            [Some(_), None] => self.happened(notify::ACCESS),
            [None, Some(_)] => self.happened(notify::MODIFY),
            [None, None] => {}
        }
        Ok(0)
    }
}

pub fn chmod(call: &mut Call<'_>) -> Result<usize> {
    Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, true)?.chmod(call.uint(1))
}

pub fn fchmod(call: &mut Call<'_>) -> Result<usize> {
    Target::descriptor(&*files::get(call.int(0))?)?.chmod(call.uint(1))
}

pub fn fchmodat(call: &mut Call<'_>) -> Result<usize> {
    Target::path(call.int(0), &read_path(call.ptr(1), false)?, true)?.chmod(call.uint(2))
}

pub fn fchmodat2(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let path = read_path(call.ptr(1), flags & AT_EMPTY_PATH != 0)?;
    Target::either(call.int(0), &path, flags)?.chmod(call.uint(2))
}

pub fn chown(call: &mut Call<'_>) -> Result<usize> {
    Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, true)?.chown(call.uint(1), call.uint(2))
}

pub fn lchown(call: &mut Call<'_>) -> Result<usize> {
    Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, false)?.chown(call.uint(1), call.uint(2))
}

pub fn fchown(call: &mut Call<'_>) -> Result<usize> {
    Target::descriptor(&*files::get(call.int(0))?)?.chown(call.uint(1), call.uint(2))
}

pub fn fchownat(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(4, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let path = read_path(call.ptr(1), flags & AT_EMPTY_PATH != 0)?;
    Target::either(call.int(0), &path, flags)?.chown(call.uint(2), call.uint(3))
}

pub fn utimensat(call: &mut Call<'_>) -> Result<usize> {
    let times = match call.ptr::<[i64; 4]>(2).non_null() {
        Some(times) => {
            let [a, a_ns, m, m_ns] = times.read()?;
            if a_ns == UTIME_OMIT && m_ns == UTIME_OMIT {
                // Nothing to do: not even the path is looked at.
                return Ok(0);
            }
            Some([[a, a_ns], [m, m_ns]])
        }
        None => None,
    };
    let flags = call.flags(3, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let target = match call.ptr::<u8>(1).non_null() {
        Some(path) => Target::either(call.int(0), &read_path(path, flags & AT_EMPTY_PATH != 0)?, flags)?,
        // futimens: the descriptor itself.
        None if flags != 0 => return Err(EINVAL),
        None if call.int(0) == AT_FDCWD => return Err(EFAULT),
        None => Target::descriptor(&*files::get(call.int(0))?)?,
    };
    target.set_times(times)
}

/// Microseconds of utimes and futimesat.
fn read_timevals(times: UserPtr<[i64; 4]>) -> Result<Option<[[i64; 2]; 2]>> {
    let Some(times) = times.non_null() else { return Ok(None) };
    let [a, a_us, m, m_us] = times.read()?;
    let valid = 0..1_000_000;
    if !valid.contains(&a_us) || !valid.contains(&m_us) {
        return Err(EINVAL);
    }
    Ok(Some([[a, a_us * 1000], [m, m_us * 1000]]))
}

pub fn utimes(call: &mut Call<'_>) -> Result<usize> {
    let times = read_timevals(call.ptr(1))?;
    Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, true)?.set_times(times)
}

pub fn futimesat(call: &mut Call<'_>) -> Result<usize> {
    let times = read_timevals(call.ptr(2))?;
    match call.ptr::<u8>(1).non_null() {
        Some(path) => Target::path(call.int(0), &read_path(path, false)?, true)?.set_times(times),
        None => Target::descriptor(&*files::get(call.int(0))?)?.set_times(times),
    }
}

pub fn utime(call: &mut Call<'_>) -> Result<usize> {
    let times = match call.ptr::<[i64; 2]>(1).non_null() {
        Some(times) => {
            let [a, m] = times.read()?;
            Some([[a, 0], [m, 0]])
        }
        None => None,
    };
    Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, true)?.set_times(times)
}

pub fn truncate(call: &mut Call<'_>) -> Result<usize> {
    let size = u64::try_from(call.long(1)).map_err(|_| EINVAL)?;
    let target = Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, true)?;
    let stat = target.inode.stat()?;
    match stat.kind {
        FileType::Directory => return Err(EISDIR),
        FileType::Regular => {}
        _ => return Err(EINVAL),
    }
    files::credentials().check_file(&target.inode, &stat, Access::WRITE)?;
    target.may_alter()?;
    if task::processes::run_file(&target.inode) {
        return Err(ETXTBSY);
    }
    leases::break_for(&target.inode, O_WRONLY)?;
    if size > stat.size {
        check_file_size(size)?;
    }
    target.inode.set_attr(&SetAttr { size: Some(size), ..SetAttr::default() })?;
    unmap_behind(&stat, size);
    target.happened(notify::MODIFY);
    Ok(0)
}

/// A file that was as `before` says became `size` bytes long: mappings of what is behind that are SIGBUS from now on.
pub fn unmap_behind(before: &Stat, size: u64) {
    if before.kind == FileType::Regular && size < before.size {
        file_lost(before.device, before.inode, size, u64::MAX, true);
    }
}

pub fn ftruncate(call: &mut Call<'_>) -> Result<usize> {
    let size = u64::try_from(call.long(1)).map_err(|_| EINVAL)?;
    let description = files::get(call.int(0))?;
    if !description.may_write() {
        return Err(EINVAL);
    }
    let stat = description.file().stat()?;
    if description.inode().is_some_and(ops::is_append_only) {
        return Err(EPERM);
    }
    if stat.kind == FileType::Regular && size > stat.size {
        check_file_size(size)?;
    }
    description.file().truncate(size)?;
    unmap_behind(&stat, size);
    description.happened(notify::MODIFY);
    Ok(0)
}

/// Which modes of fallocate(2) go together, as Linux' `vfs_fallocate` has it.
fn check_allocation(mode: u32) -> Result<()> {
    let has = |flags: u32| mode & flags == flags;
    let rest = |allowed: u32| mode & !allowed != 0;
    if has(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)
        || has(FALLOC_FL_PUNCH_HOLE) && !has(FALLOC_FL_KEEP_SIZE)
    {
        return Err(EOPNOTSUPP);
    }
    if has(FALLOC_FL_COLLAPSE_RANGE) && rest(FALLOC_FL_COLLAPSE_RANGE)
        || has(FALLOC_FL_INSERT_RANGE) && rest(FALLOC_FL_INSERT_RANGE)
        || has(FALLOC_FL_UNSHARE_RANGE) && rest(FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_KEEP_SIZE)
    {
        return Err(EINVAL);
    }
    Ok(())
}

pub fn fallocate(call: &mut Call<'_>) -> Result<usize> {
    allocate(&*files::get(call.int(0))?, call.uint(1), call.long(2), call.long(3))
}

/// What fallocate(2) says of a range before it looks at anything else.
pub fn check_range(offset: i64, length: i64) -> Result<()> {
    if offset < 0 || length <= 0 { Err(EINVAL) } else { Ok(()) }
}

/// As fallocate(2), with a description.
pub fn allocate(description: &Description, mode: u32, offset: i64, length: i64) -> Result<usize> {
    check_range(offset, length)?;
    if mode & !FALLOC_KNOWN != 0 {
        return Err(EOPNOTSUPP);
    }
    check_allocation(mode)?;
    if !description.may_write() {
        return Err(EBADF);
    }
    let stat = description.file().stat()?;
    let is = |flag| stat.flags.is_some_and(|flags| flags.has(flag));
    if is(InodeFlags::IMMUTABLE) || mode & !FALLOC_FL_KEEP_SIZE != 0 && is(InodeFlags::APPEND) {
        return Err(EPERM);
    }
    match stat.kind {
        FileType::Fifo => return Err(ESPIPE),
        FileType::Directory => return Err(EISDIR),
        FileType::Regular if description.inode().is_some() => {}
        // Devices, sockets, and the anonymous: eventfd, epoll, timerfd, signalfd and their like.
        _ => return Err(ENODEV),
    }
    let end = offset.checked_add(length).ok_or(EFBIG)? as u64;
    if mode & FALLOC_FL_KEEP_SIZE == 0 && end > stat.size {
        check_file_size(end)?;
    }
    description.file().allocate(mode, offset as u64, length as u64)?;
    description.happened(notify::MODIFY);
    if mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE) != 0 {
        // Everything behind has moved.
        file_lost(stat.device, stat.inode, offset as u64, u64::MAX, false);
    } else if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0 {
        file_lost(stat.device, stat.inode, offset as u64, end, false);
    }
    Ok(0)
}

pub fn fsync(call: &mut Call<'_>) -> Result<usize> {
    files::get(call.int(0))?.file().sync(false).map(|()| 0)
}

pub fn fdatasync(call: &mut Call<'_>) -> Result<usize> {
    files::get(call.int(0))?.file().sync(true).map(|()| 0)
}

/// sync(2): what was written to disks; volumes store each write at once, the rest lives in memory. Linux tells nobody of errors.
pub fn sync(_: &mut Call<'_>) -> Result<usize> {
    if let Err(e) = crate::disks::sync_all() {
        log::error!("sync: {e:?}");
    }
    Ok(0)
}

pub fn syncfs(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    crate::disks::sync_one(description.file().stat()?.device).map(|_| 0)
}

pub fn sync_file_range(call: &mut Call<'_>) -> Result<usize> {
    sync_range(&*files::get(call.int(0))?, call.long(1), call.long(2), call.uint(3))
}

/// As sync_file_range(2), with a description.
pub fn sync_range(description: &Description, offset: i64, length: i64, flags: u32) -> Result<usize> {
    if offset < 0 || length < 0 || flags & !SYNC_FILE_RANGE_KNOWN != 0 {
        return Err(EINVAL);
    }
    match description.file().stat()?.kind {
        // Directories have no pages to write.
        FileType::Directory => Ok(0),
        FileType::Regular if flags == 0 => Ok(0),
        FileType::Regular => description.file().sync(true).map(|()| 0),
        _ => Err(ESPIPE),
    }
}

/// Advice changes nothing; its arguments are checked all the same.
pub fn fadvise64(call: &mut Call<'_>) -> Result<usize> {
    advise(&*files::get(call.int(0))?, call.long(2), call.uint(3))
}

/// As fadvise64(2), with a description.
pub fn advise(description: &Description, length: i64, advice: u32) -> Result<usize> {
    if !description.is_seekable() && description.file().stat()?.kind == FileType::Fifo {
        return Err(ESPIPE);
    }
    if length < 0 || advice > 5 {
        return Err(EINVAL);
    }
    Ok(0)
}

pub fn readahead(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    if !description.may_read() {
        return Err(EBADF);
    }
    if description.file().stat()?.kind != FileType::Regular {
        return Err(EINVAL);
    }
    Ok(0)
}

fn xattr_name(pointer: UserPtr<u8>) -> Result<Vec<u8>> {
    let name = pointer.read_cstr(XATTR_NAME_MAX + 1, ERANGE)?;
    if name.is_empty() { Err(ERANGE) } else { Ok(name) }
}

/// The rules of xattr(7) for each name space.
fn check_xattr(target: &Target, name: &[u8], access: Access) -> Result<()> {
    let (stat, who) = (target.inode.stat()?, files::credentials());
    let writes = access == Access::WRITE;
    if writes {
        target.may_alter()?;
    }
    let Some(space) = [&b"user."[..], b"trusted.", b"security."].into_iter().find(|it| name.starts_with(it))
    else {
        return who.check_file(&target.inode, &stat, access).and(Err(EOPNOTSUPP));
    };
    let refused = if writes { EPERM } else { ENODATA };
    let may_secure = |who: &vfs::Credentials| match name == CAPABILITIES {
        true => who.has_over(Capability::Setfcap, &stat),
        false => who.has(Capability::SysAdmin),
    };
    match space {
        b"user." if !matches!(stat.kind, FileType::Regular | FileType::Directory) => return Err(refused),
        b"user." => who.check_file(&target.inode, &stat, access)?,
        b"trusted." if !who.has(Capability::SysAdmin) => return Err(refused),
        b"security." if writes && !may_secure(&who) => return Err(EPERM),
        _ => {}
    }
    if name == space { Err(EINVAL) } else { Ok(()) }
}

fn xattr_target(call: &Call<'_>, how: How) -> Result<Target> {
    match how {
        How::Follow => Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, true),
        How::NoFollow => Target::path(AT_FDCWD, &read_path(call.ptr(0), false)?, false),
        How::Descriptor => Target::descriptor(&*files::get(call.int(0))?),
    }
}

/// How a file is named by the three forms of each xattr call.
#[derive(Clone, Copy)]
enum How {
    Follow,
    NoFollow,
    Descriptor,
}

fn set(call: &Call<'_>, how: How) -> Result<usize> {
    set_of(call, || xattr_target(call, how))
}

fn set_of(call: &Call<'_>, target: impl FnOnce() -> Result<Target>) -> Result<usize> {
    let flags = call.flags(4, 3)?;
    let name = xattr_name(call.ptr(1))?;
    let size = call.size(3);
    if size > XATTR_SIZE_MAX {
        return Err(E2BIG);
    }
    let value = call.ptr::<u8>(2).read_vec(size)?;
    let target = target()?;
    let capabilities = match name == CAPABILITIES && !value.is_empty() {
        true => Some(Attribute::read(&value).ok_or(EINVAL)?),
        false => None,
    };
    match acl::kind(&name) {
        Some(kind) => {
            target.may_alter()?;
            acl::set(&target.inode, kind, &value)?;
        }
        None => {
            check_xattr(&target, &name, Access::WRITE)?;
            let kept =
                capabilities.map(|capabilities| capabilities.to_keep(&files::credentials())).transpose()?;
            target.inode.set_xattr(&name, kept.as_ref().unwrap_or(&value), flags)?;
        }
    }
    target.happened(notify::ATTRIB);
    Ok(0)
}

/// With a NUL byte behind it.
fn ended(text: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.reserve_exact_fallibly(text.len() + 1).map_err(|_| ENOMEM)?;
    out.extend(text.iter().chain(&[0]));
    Ok(out)
}

fn answer(value: &[u8], to: UserPtr<u8>, size: usize) -> Result<usize> {
    if size != 0 {
        if size < value.len() {
            return Err(ERANGE);
        }
        to.write_slice(value)?;
    }
    Ok(value.len())
}

/// As fsetxattr(2) and fgetxattr(2), with a description in place of the first argument (io_uring).
#[cfg(feature = "io_uring")]
pub fn xattr_of(call: &Call<'_>, description: &Description, sets: bool) -> Result<usize> {
    let target = || Target::descriptor(description);
    if sets { set_of(call, target) } else { get_of(call, target) }
}

fn get(call: &Call<'_>, how: How) -> Result<usize> {
    get_of(call, || xattr_target(call, how))
}

fn get_of(call: &Call<'_>, target: impl FnOnce() -> Result<Target>) -> Result<usize> {
    let name = xattr_name(call.ptr(1))?;
    let target = target()?;
    if let Some(kind) = acl::kind(&name) {
        return answer(&acl::get(&target.inode, kind)?, call.ptr(2), call.size(3));
    }
    if name == PROTOCOL_NAME
        && let Some(protocol) = OpenFile::protocol_name(&*target.inode)
    {
        return answer(&ended(protocol.as_bytes())?, call.ptr(2), call.size(3));
    }
    check_xattr(&target, &name, Access::READ)?;
    let mut value = target.inode.get_xattr(&name)?;
    if name == CAPABILITIES
        && let Some(capabilities) = Attribute::read(&value)
    {
        value = capabilities.to_show()?;
    }
    answer(&value, call.ptr(2), call.size(3))
}

fn list(call: &Call<'_>, how: How) -> Result<usize> {
    let inode = xattr_target(call, how)?.inode;
    let names = match inode.list_xattr() {
        _ if OpenFile::protocol_name(&*inode).is_some() => ended(PROTOCOL_NAME)?,
        // A file system without extended attributes has none to list.
        Err(EOPNOTSUPP) => Vec::new(),
        names => names?,
    };
    answer(&names, call.ptr(1), call.size(2))
}

fn remove(call: &Call<'_>, how: How) -> Result<usize> {
    let name = xattr_name(call.ptr(1))?;
    let target = xattr_target(call, how)?;
    match acl::kind(&name) {
        Some(kind) => {
            target.may_alter()?;
            acl::set(&target.inode, kind, &[])?;
        }
        None => {
            check_xattr(&target, &name, Access::WRITE)?;
            target.inode.remove_xattr(&name)?;
        }
    }
    target.happened(notify::ATTRIB);
    Ok(0)
}

macro_rules! xattr_calls {
    ($($name:ident $operation:ident $how:ident;)*) => { $(
        pub fn $name(call: &mut Call<'_>) -> Result<usize> {
            $operation(call, How::$how)
        }
    )* };
}

xattr_calls! {
    setxattr set Follow;
    lsetxattr set NoFollow;
    fsetxattr set Descriptor;
    getxattr get Follow;
    lgetxattr get NoFollow;
    fgetxattr get Descriptor;
    listxattr list Follow;
    llistxattr list NoFollow;
    flistxattr list Descriptor;
    removexattr remove Follow;
    lremovexattr remove NoFollow;
    fremovexattr remove Descriptor;
}

/// A file lost pages: whoever has them mapped loses them as well ([`mem::Space::file_lost`]).
fn file_lost(device: u64, inode: u64, from: u64, to: u64, copies: bool) {
    for space in task::processes::spaces() {
        space.file_lost(device, inode, from, to, copies);
    }
}
