// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the tree, with their permission checks in Linux' order.

use crate::access::{Access, Capability, Credentials};
use crate::covered::{is_covered_here, name_is_gone};
use crate::dentry::Dentry;
#[cfg(feature = "landlock")]
use crate::landlock;
use crate::mount::MountFlags;
use crate::namespace::Namespace;
use crate::notify;
use crate::protection;
use crate::walk::{Jump, Last, Parent, Walk};
use abi::{Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{Acl, AclKind, FileType, Inode, InodeFlags, Stat};

const O_ACCMODE: u32 = 0o3;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_DIRECTORY: u32 = 0o200000;
const O_APPEND: u32 = 0o2000;
const O_NOFOLLOW: u32 = 0o400000;
const O_NOATIME: u32 = 0o1000000;
const O_PATH: u32 = 0o10000000;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
const S_ISVTX: u32 = 0o1000;

/// What open(2) found or made; the caller opens the inode.
pub struct Opened {
    pub dentry: Arc<Dentry>,
    pub created: bool,
}

/// Rights that the access mode of open(2) asks for.
pub fn wanted(flags: u32) -> Access {
    let access = match flags & O_ACCMODE {
        0 => Access::READ,
        1 => Access::WRITE,
        _ => Access::READ | Access::WRITE,
    };
    if flags & O_TRUNC != 0 { access | Access::WRITE } else { access }
}

/// `EACCES` where the caller has given away the right to open such a file.
#[cfg_attr(not(feature = "landlock"), allow(unused_variables, clippy::unnecessary_wraps))]
#[inline]
pub fn is_open_to(who: &Credentials, dentry: &Arc<Dentry>, flags: u32) -> Result<()> {
    #[cfg(feature = "landlock")]
    if let Some(domain) = &who.domain {
        domain.check(dentry, landlock::to_open(dentry.kind(), flags))?;
    }
    Ok(())
}

/// The same of running it as a program.
#[cfg_attr(not(feature = "landlock"), allow(unused_variables, clippy::unnecessary_wraps))]
#[inline]
pub fn is_program_of(who: &Credentials, dentry: &Arc<Dentry>) -> Result<()> {
    #[cfg(feature = "landlock")]
    if let Some(domain) = &who.domain {
        domain.check(dentry, landlock::EXECUTE | landlock::READ_FILE)?;
    }
    Ok(())
}

/// The same of making a file of that type in a directory.
#[cfg_attr(not(feature = "landlock"), allow(unused_variables, clippy::unnecessary_wraps))]
#[inline]
fn is_making_left(who: &Credentials, dir: &Arc<Dentry>, kind: FileType, rdev: u64) -> Result<()> {
    #[cfg(feature = "landlock")]
    if let Some(domain) = &who.domain {
        may_change(dir)?;
        domain.check(dir, landlock::to_make(kind, rdev))?;
    }
    Ok(())
}

/// The part of open(2) that is about the tree: the walk, O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW and permissions.
/// `permissions` are those of a new file, before the umask.
pub fn open(walk: &Walk<'_>, path: &[u8], flags: u32, permissions: u32) -> Result<Opened> {
    if flags & O_CREAT != 0 && flags & O_PATH == 0 {
        return open_or_create(walk, path, flags, permissions);
    }
    let dentry = walk.lookup(path, flags & O_NOFOLLOW == 0)?;
    check_open(walk.who, &dentry, flags)?;
    Ok(Opened { dentry, created: false })
}

fn open_or_create(walk: &Walk<'_>, path: &[u8], flags: u32, permissions: u32) -> Result<Opened> {
    let mut links = 0;
    let mut at = walk.start.clone();
    let mut path: Vec<u8> = path.to_vec();
    loop {
        let Parent { dir, last, slash } = walk.parent_from(at, &path, &mut links)?;
        let name = match last {
            Last::Name(name) if !slash => name,
            // A directory, or what could only be made as one.
            Last::Name(_) => return Err(EISDIR),
            _ if flags & O_EXCL != 0 => return Err(EEXIST),
            _ => return Err(EISDIR),
        };
        let dentry = match walk.child(&dir, &name) {
            Ok(_) if flags & O_EXCL != 0 => return Err(EEXIST),
            Ok(dentry) => dentry,
            Err(ENOENT) => {
                if flags & O_DIRECTORY != 0 {
                    return Err(EINVAL);
                }
                if dir.inode().has_fixed_names() {
                    return Err(ENOENT);
                }
                is_making_left(walk.who, &dir, FileType::Regular, 0)?;
                let owner = may_create(walk.who, &dir)?;
                let new = New::of(walk.who, &dir, permissions & 0o7777, false)?;
                match dir.inode().create(&name, FileType::Regular, new.permissions, owner, 0) {
                    Ok(inode) => {
                        new.finish(&inode)?;
                        let dentry = dir.adopt(&name, inode)?;
                        notify::name(&dir, &name, notify::CREATE, false);
                        // The file stays if not (Linux looks when it has made it).
                        is_open_to(walk.who, &dentry, flags)?;
                        return Ok(Opened { dentry, created: true });
                    }
                    // Somebody else on a shared volume was faster.
                    Err(EEXIST) => dir.child(&name)?,
                    // open(2) says it by another word than mkdir(2) where no file system makes names (Linux' lookup_open).
                    Err(EPERM) if dir.inode().refusal() == EPERM => return Err(EACCES),
                    Err(e) => return Err(e),
                }
            }
            Err(e) => return Err(e),
        };
        if dentry.kind() == FileType::Symlink && flags & O_NOFOLLOW == 0 {
            protection::check_link(walk.who, &dir, &dentry)?;
            match walk.follow(&dentry, &mut links)? {
                Jump::Path(target) => {
                    path = target;
                    at = dir;
                    continue;
                }
                Jump::Place(place) => {
                    check_open(walk.who, &place, flags)?;
                    return Ok(Opened { dentry: place, created: false });
                }
            }
        }
        if dentry.is_directory() {
            return Err(EISDIR);
        }
        protection::check_existing(walk.who, &dir, &dentry)?;
        check_open(walk.who, &dentry, flags)?;
        return Ok(Opened { dentry, created: false });
    }
}

/// May an existing file be opened with these flags?
pub fn check_open(who: &Credentials, dentry: &Arc<Dentry>, flags: u32) -> Result<()> {
    if flags & O_DIRECTORY != 0 && !dentry.is_directory() {
        // O_DIRECTORY comes before the link at the end is found not to be followed.
        return Err(ENOTDIR);
    }
    if flags & O_PATH != 0 {
        return Ok(());
    }
    let access = wanted(flags);
    let writes = access.contains(Access::WRITE);
    let mount = dentry.mount().flags();
    match dentry.kind() {
        FileType::Symlink => return Err(ELOOP),
        FileType::Directory if writes => return Err(EISDIR),
        FileType::CharDevice | FileType::BlockDevice if mount.has(MountFlags::NODEV) => return Err(EACCES),
        _ => {}
    }
    // The superuser is held to it as well.
    dentry.inode().own_rule(access.0).unwrap_or(Ok(()))?;
    let protection = dentry.inode().flags().filter(|flags| flags.is_protected());
    if !who.has(Capability::DacOverride) || flags & O_NOATIME != 0 || protection.is_some() {
        let stat = dentry.inode().stat()?;
        who.check_file(dentry.inode(), &stat, access)?;
        if flags & O_NOATIME != 0 && !who.owns(&stat) {
            return Err(EPERM);
        }
    }
    if writes
        && is_append_only(dentry.inode())
        && (flags & O_APPEND == 0 || flags & O_TRUNC != 0 || flags & O_ACCMODE == 0)
    {
        return Err(EPERM);
    }
    if writes && dentry.mount().is_read_only() && is_stored(dentry.kind()) {
        return Err(EROFS);
    }
    is_open_to(who, dentry, flags)
}

/// Writing to it changes the file system, unlike writing to a device or pipe.
fn is_stored(kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink)
}

/// `EROFS` on a mount for reading only.
pub fn may_change(dentry: &Arc<Dentry>) -> Result<()> {
    if dentry.mount().is_read_only() { Err(EROFS) } else { Ok(()) }
}

/// Whether what is in the file stays and more may only be added.
pub fn is_append_only(inode: &Arc<dyn Inode>) -> bool {
    inode.flags().is_some_and(|flags| flags.has(InodeFlags::APPEND))
}

/// `EPERM` for an immutable or append-only file, whose attributes and names stay.
pub fn may_alter(inode: &Arc<dyn Inode>) -> Result<()> {
    if inode.flags().is_some_and(InodeFlags::is_protected) { Err(EPERM) } else { Ok(()) }
}

/// May names be made in `dir`? The owner of what is made.
fn may_create(who: &Credentials, dir: &Arc<Dentry>) -> Result<(u32, u32)> {
    may_change(dir)?;
    if dir.is_unlinked() {
        return Err(ENOENT);
    }
    let stat = dir.inode().stat()?;
    who.check_file(dir.inode(), &stat, Access::CHANGE)?;
    let gid = if stat.permissions & S_ISGID != 0 { stat.gid } else { who.gid };
    Ok((who.uid, gid))
}

/// What a new file is to be like: its permission bits are cut by the umask, or by the default access control list of its
/// directory, from which it then gets its own.
struct New {
    permissions: u32,
    access: Option<Arc<Acl>>,
    default: Option<Arc<Acl>>,
}

impl New {
    fn of(who: &Credentials, dir: &Arc<Dentry>, permissions: u32, is_directory: bool) -> Result<New> {
        let mut permissions = permissions;
        if !is_directory && permissions & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP {
            // The directory gives its group, which the caller may not be one of (Linux' mode_strip_sgid).
            let stat = dir.inode().stat()?;
            let may_keep = who.is_in_group(stat.gid) || who.has_over(Capability::Fsetid, &stat);
            if stat.permissions & S_ISGID != 0 && !may_keep {
                permissions &= !S_ISGID;
            }
        }
        let inherited = match dir.inode().acl(AclKind::Default) {
            Err(EOPNOTSUPP) => None,
            inherited => inherited?,
        };
        let Some(inherited) = inherited else {
            return Ok(New { permissions: permissions & !who.umask, access: None, default: None });
        };
        let (permissions, access) = inherited.for_new_file(permissions)?;
        Ok(New { permissions, access: access.map(Arc::new), default: is_directory.then_some(inherited) })
    }

    fn finish(self, inode: &Arc<dyn Inode>) -> Result<()> {
        if self.access.is_some() {
            inode.set_acl(AclKind::Access, self.access, None)?;
        }
        if self.default.is_some() {
            inode.set_acl(AclKind::Default, self.default, None)?;
        }
        Ok(())
    }
}

/// May `victim` be taken out of `dir`, as a directory or as something else?
fn may_delete(who: &Credentials, dir: &Arc<Dentry>, victim: &Arc<Dentry>, directory: bool) -> Result<()> {
    may_change(dir)?;
    let stat = dir.inode().stat()?;
    who.check_file(dir.inode(), &stat, Access::CHANGE)?;
    if is_append_only(dir.inode()) {
        return Err(EPERM);
    }
    may_alter(victim.inode())?;
    if stat.permissions & S_ISVTX != 0 && !who.owns(&stat) && !who.owns(&victim.inode().stat()?) {
        return Err(EPERM);
    }
    if directory && !victim.is_directory() {
        return Err(ENOTDIR);
    }
    if !directory && victim.is_directory() {
        return Err(EISDIR);
    }
    Ok(())
}

/// The place for a new name: `EEXIST` when it is taken. With `directory` a slash at the end is allowed.
fn new_name(walk: &Walk<'_>, path: &[u8], directory: bool) -> Result<(Arc<Dentry>, Vec<u8>)> {
    let Parent { dir, last, slash } = walk.parent(path)?;
    let Last::Name(name) = last else { return Err(EEXIST) };
    match walk.child(&dir, &name) {
        Ok(_) => Err(EEXIST),
        Err(ENOENT) if slash && !directory || dir.inode().has_fixed_names() => Err(ENOENT),
        Err(ENOENT) => Ok((dir, name)),
        Err(e) => Err(e),
    }
}

/// mkdir(2), mknod(2); `permissions` before the umask.
pub fn create(
    walk: &Walk<'_>,
    path: &[u8],
    kind: FileType,
    permissions: u32,
    rdev: u64,
) -> Result<Arc<Dentry>> {
    let (dir, name) = new_name(walk, path, kind == FileType::Directory)?;
    is_making_left(walk.who, &dir, kind, rdev)?;
    let owner = may_create(walk.who, &dir)?;
    // What overlay file systems take for a deleted name is no device (device 0, 0), and anybody's to make.
    let is_device = kind == FileType::BlockDevice || (kind == FileType::CharDevice && rdev != 0);
    if is_device && !walk.who.has(Capability::Mknod) {
        return Err(EPERM);
    }
    let mut permissions = permissions & 0o7777;
    if kind == FileType::Directory {
        permissions &= 0o1777;
        permissions |= dir.inode().stat()?.permissions & S_ISGID;
    }
    let new = New::of(walk.who, &dir, permissions, kind == FileType::Directory)?;
    let inode = dir.inode().create(&name, kind, new.permissions, owner, rdev)?;
    new.finish(&inode)?;
    let dentry = dir.adopt(&name, inode)?;
    notify::name(&dir, &name, notify::CREATE, kind == FileType::Directory);
    Ok(dentry)
}

pub fn symlink(walk: &Walk<'_>, target: &[u8], path: &[u8]) -> Result<()> {
    if target.is_empty() {
        return Err(ENOENT);
    }
    let (dir, name) = new_name(walk, path, false)?;
    is_making_left(walk.who, &dir, FileType::Symlink, 0)?;
    let owner = may_create(walk.who, &dir)?;
    dir.inode().symlink(&name, target, owner)?;
    notify::name(&dir, &name, notify::CREATE, false);
    Ok(())
}

/// link(2): a new name at `path` for what `from` names.
pub fn link(walk: &Walk<'_>, from: &Arc<Dentry>, path: &[u8]) -> Result<()> {
    let (dir, name) = new_name(walk, path, false)?;
    if !Arc::ptr_eq(from.mount(), dir.mount()) {
        return Err(EXDEV);
    }
    if protection::HARDLINKS[0].get() != 0 && !may_be_linked(walk.who, from.inode(), &from.inode().stat()?) {
        return Err(EPERM);
    }
    #[cfg(feature = "landlock")]
    if let Some(domain) = &walk.who.domain {
        may_change(&dir)?;
        let old = from.parent().unwrap_or_else(|| from.clone());
        let linked = landlock::Reparenting {
            moving: from,
            from: &old,
            to: &dir,
            replaced: None,
            removes: false,
            exchanges: false,
            leaves_whiteout: false,
        };
        domain.check_refer(&linked)?;
    }
    may_create(walk.who, &dir)?;
    may_alter(from.inode())?;
    if from.is_directory() {
        return Err(EPERM);
    }
    dir.inode().link(&name, from.inode())?;
    notify::linked(from.inode());
    notify::name(&dir, &name, notify::CREATE, false);
    Ok(())
}

/// fs.protected_hardlinks: others' files only where the caller could write them anyway.
fn may_be_linked(who: &Credentials, inode: &Arc<dyn Inode>, stat: &Stat) -> bool {
    let runs_as_another = stat.permissions & 0o4000 != 0 || stat.permissions & 0o2010 == 0o2010;
    who.owns(stat)
        || (stat.kind == FileType::Regular
            && !runs_as_another
            && who.check_file(inode, stat, Access::READ | Access::WRITE).is_ok())
}

/// unlink(2), and with `directory` rmdir(2).
pub fn unlink(walk: &Walk<'_>, path: &[u8], directory: bool) -> Result<()> {
    let Parent { dir, last, slash } = walk.parent(path)?;
    let name = match last {
        Last::Name(name) => name,
        _ if !directory => return Err(EISDIR),
        Last::DotDot => return Err(ENOTEMPTY),
        Last::Dot => return Err(EINVAL),
        Last::Root => return Err(EBUSY),
    };
    // Whether anything may change comes before whether there is such a name.
    may_change(&dir)?;
    let victim = dir.child(&name)?;
    if slash && !directory {
        return Err(if victim.is_directory() { EISDIR } else { ENOTDIR });
    }
    #[cfg(feature = "landlock")]
    if let Some(domain) = &walk.who.domain {
        may_change(&dir)?;
        domain.check(&dir, if directory { landlock::REMOVE_DIR } else { landlock::REMOVE_FILE })?;
    }
    may_delete(walk.who, &dir, &victim, directory)?;
    if is_covered_here(&victim) {
        return Err(EBUSY);
    }
    dir.inode().unlink(&name, directory)?;
    victim.unlinked();
    name_is_gone(&victim);
    notify::unlinked(&victim);
    // Unless it is open, the file is gone before its directory is told (Linux' d_delete_notify).
    drop(victim);
    notify::name(&dir, &name, notify::DELETE, directory);
    Ok(())
}

/// renameat2(2).
pub fn rename(from: &Walk<'_>, old: &[u8], to: &Walk<'_>, new: &[u8], flags: u32) -> Result<()> {
    check_rename_flags(flags)?;
    let exchange = flags & RENAME_EXCHANGE != 0;
    let source = from.parent(old)?;
    let target = to.parent(new)?;
    if !Arc::ptr_eq(source.dir.mount(), target.dir.mount()) {
        return Err(EXDEV);
    }
    let Last::Name(name) = source.last else { return Err(EBUSY) };
    let Last::Name(to_name) = target.last else {
        return Err(if flags & RENAME_NOREPLACE != 0 { EEXIST } else { EBUSY });
    };
    may_change(&source.dir)?;
    let moving = source.dir.child(&name)?;
    let there = match target.dir.child(&to_name) {
        Ok(_) if flags & RENAME_NOREPLACE != 0 => return Err(EEXIST),
        Ok(there) => Some(there),
        Err(ENOENT) if exchange || target.dir.inode().has_fixed_names() => return Err(ENOENT),
        Err(ENOENT) => None,
        Err(e) => return Err(e),
    };
    if !moving.is_directory() && (source.slash || (!exchange && target.slash)) {
        return Err(ENOTDIR);
    }
    if exchange && target.slash && there.as_ref().is_some_and(|t| !t.is_directory()) {
        return Err(ENOTDIR);
    }
    if moving.is_ancestor_of(&target.dir) {
        return Err(EINVAL);
    }
    if let Some(there) = &there
        && there.is_ancestor_of(&source.dir)
    {
        return Err(if exchange { EINVAL } else { ENOTEMPTY });
    }
    #[cfg(feature = "landlock")]
    if let Some(domain) = &from.who.domain {
        let moved = landlock::Reparenting {
            moving: &moving,
            from: &source.dir,
            to: &target.dir,
            replaced: there.as_ref(),
            removes: true,
            exchanges: exchange,
            leaves_whiteout: flags & RENAME_WHITEOUT != 0,
        };
        domain.check_refer(&moved)?;
    }
    if there.as_ref().is_some_and(|t| Arc::ptr_eq(t.inode(), moving.inode())) {
        return Ok(());
    }
    may_delete(from.who, &source.dir, &moving, moving.is_directory())?;
    match &there {
        Some(there) if exchange => may_delete(to.who, &target.dir, there, there.is_directory())?,
        Some(there) => may_delete(to.who, &target.dir, there, moving.is_directory())?,
        None => {
            may_create(to.who, &target.dir)?;
        }
    }
    if !Arc::ptr_eq(&source.dir, &target.dir) {
        // The `..` of a directory that moves changes.
        let exchanged = there.iter().filter(|_| exchange);
        for moved in core::iter::once(&moving).chain(exchanged).filter(|dentry| dentry.is_directory()) {
            from.who.check_file(moved.inode(), &moved.inode().stat()?, Access::WRITE)?;
        }
    }
    if is_covered_here(&moving) || there.as_ref().is_some_and(is_covered_here) {
        return Err(EBUSY);
    }
    if flags & RENAME_WHITEOUT != 0 && !source.dir.inode().takes_whiteouts() {
        return Err(EINVAL);
    }
    source.dir.inode().rename(&name, target.dir.inode(), &to_name, flags & !RENAME_WHITEOUT)?;
    match there {
        Some(there) if exchange => {
            there.moved(&source.dir, &name);
            moving.moved(&target.dir, &to_name);
            notify::moved(&moving, (&source.dir, &name), (&target.dir, &to_name), None);
            notify::moved(&there, (&target.dir, &to_name), (&source.dir, &name), None);
        }
        there => {
            if let Some(there) = &there {
                there.unlinked();
                name_is_gone(there);
            }
            moving.moved(&target.dir, &to_name);
            notify::moved(&moving, (&source.dir, &name), (&target.dir, &to_name), there.as_deref());
        }
    }
    if flags & RENAME_WHITEOUT != 0 {
        // What overlay file systems take for a deleted name: device 0, 0 (renameat2(2)).
        let owner = may_create(from.who, &source.dir)?;
        source.dir.inode().create(&name, FileType::CharDevice, 0, owner, 0)?;
    }
    Ok(())
}

/// `EINVAL` for flags of renameat2(2) that are not known or do not go together.
pub fn check_rename_flags(flags: u32) -> Result<()> {
    let alone = flags & RENAME_EXCHANGE != 0 && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT) != 0;
    let known = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
    if flags & !known != 0 || alone { Err(EINVAL) } else { Ok(()) }
}

/// A regular file without a name in the file system of `dir` (O_TMPFILE), which link(2) may give one if `linkable`.
pub fn create_unnamed(
    who: &Credentials,
    dir: &Arc<Dentry>,
    permissions: u32,
    linkable: bool,
) -> Result<Arc<Dentry>> {
    if !dir.is_directory() {
        return Err(ENOTDIR);
    }
    let owner = may_create(who, dir)?;
    let new = New::of(who, dir, permissions & 0o7777, false)?;
    let inode = dir.inode().create_unnamed(new.permissions, owner, linkable)?;
    new.finish(&inode)?;
    Dentry::unnamed_in(dir, inode)
}

/// chmod and chown's rule: a file that somebody else owns is `EPERM`; S_ISGID goes when the group is not the
/// caller's.
pub fn permissions_to_set(who: &Credentials, stat: &Stat, permissions: u32) -> Result<u32> {
    if !who.owns(stat) {
        return Err(EPERM);
    }
    let keeps_group = who.has_over(Capability::Fsetid, stat) || who.is_in_group(stat.gid);
    Ok(permissions & 0o7777 & if keeps_group { u32::MAX } else { !S_ISGID })
}

/// The directory of that path, for the kernel itself: made with those above it where it is missing. The error is one line.
pub fn directory(
    namespace: &Namespace,
    path: &str,
    permissions: u32,
) -> core::result::Result<Arc<Dentry>, String> {
    let root_user = Credentials::root();
    let root = namespace.root().topmost();
    let walk = Walk::new(&root, &root, &root_user);
    if let Ok(found) = walk.lookup(path.as_bytes(), true) {
        return Ok(found);
    }
    let ends = path.match_indices('/').map(|(i, _)| i).skip(1).chain([path.len()]);
    for end in ends {
        let part = &path.as_bytes()[..end];
        if walk.lookup(part, true).is_err() {
            create(&walk, part, FileType::Directory, permissions, 0).map_err(|e| format!("{path}: {e:?}"))?;
        }
    }
    walk.lookup(path.as_bytes(), true).map_err(|e| format!("{path}: {e:?}"))
}
