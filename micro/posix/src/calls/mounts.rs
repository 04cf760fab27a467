// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted where: mount(2), umount2(2), pivot_root(2). The order of errors is that of Linux' fs/namespace.c.

use crate::file_systems::{Made, Parameters, Type};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::FileType;
use api_user::UserPtr;
use calls_files::open::read_path;
use calls_files::stat::lookup_at;
use task::call::Call;
use task::files::{self, AT_FDCWD};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::nsfs::{NSFS, NamespaceFile};
use task::processes;
use task::users::UserNamespace;
use vfs::{Dentry, MountFlags, Namespace, PropagationKind, Resolve, Walk};

const MS_REMOUNT: u64 = 32;
const MS_BIND: u64 = 4096;
const MS_MOVE: u64 = 8192;
const MS_REC: u64 = 16384;
const MS_SILENT: u64 = 32768;
const MS_UNBINDABLE: u64 = 1 << 17;
const MS_PRIVATE: u64 = 1 << 18;
const MS_SLAVE: u64 = 1 << 19;
const MS_SHARED: u64 = 1 << 20;
const MS_RELATIME: u64 = 1 << 21;
pub(super) const PROPAGATION: u64 = MS_UNBINDABLE | MS_PRIVATE | MS_SLAVE | MS_SHARED;
/// What programs of old put into the upper half.
const MS_MGC: u64 = 0xc0ed_0000;
const MS_MGC_MASK: u64 = 0xffff_0000;
const MNT_FORCE: u32 = 1;
const MNT_DETACH: u32 = 2;
const MNT_EXPIRE: u32 = 4;
const UMOUNT_NOFOLLOW: u32 = 8;
/// The flags of the file system that MS_REMOUNT changes (Linux' MS_RMT_MASK, without what is not kept).
pub(super) const RECONFIGURED: u32 = MountFlags::READ_ONLY | MountFlags::SYNCHRONOUS | MountFlags::LAZYTIME;

pub(super) fn check_may_mount() -> Result<()> {
    let owner = UserNamespace::of_owner(files::current().namespace().owner());
    let may = task::current().credentials().lock().can_in(&owner, CAP_SYS_ADMIN);
    // Who has a domain would get around its rules.
    #[cfg(feature = "landlock")]
    let may = may && task::current().credentials().lock().domain.is_none();
    if may { Ok(()) } else { Err(EPERM) }
}

/// A string that may be left out, of less than a page (Linux' strndup_user).
fn read_word(pointer: UserPtr<u8>) -> Result<Option<Vec<u8>>> {
    pointer.non_null().map(|pointer| pointer.read_cstr(PAGE_SIZE, EINVAL)).transpose()
}

/// mount(2): file systems of the kernel's own, bind mounts, MS_MOVE and MS_REMOUNT.
pub fn mount(call: &mut Call<'_>) -> Result<usize> {
    let kind = read_word(call.ptr(2))?;
    let source = read_word(call.ptr(0))?;
    let options = read_word(call.ptr(4));
    let path = read_path(call.ptr(1), false)?;
    let at = lookup_at(AT_FDCWD, &path, true)?;
    check_may_mount()?;
    let mut flags = call.arg(3);
    if flags & MS_MGC_MASK == MS_MGC {
        flags &= !MS_MGC_MASK;
    }
    let namespace = files::current().namespace();
    if flags & MS_REMOUNT != 0 {
        return remount(&namespace, &at, flags, options).map(|()| 0);
    }
    if flags & MS_BIND != 0 {
        let from = lookup_source(source)?;
        if let Some(shown) = namespace_of(&namespace, &from)? {
            return namespace.mount_inode(&at, from.inode().clone(), NSFS, shown).map(|_| 0);
        }
        return namespace.bind(&from, &at, flags & MS_REC != 0).map(|_| 0);
    }
    if flags & PROPAGATION != 0 {
        let kind = propagation_of(flags & !(MS_REC | MS_SILENT))?;
        return namespace.change_propagation(&at, kind, flags & MS_REC != 0).map(|()| 0);
    }
    if flags & MS_MOVE != 0 {
        let from = lookup_source(source)?;
        return namespace.move_mount(&from, &at).map(|()| 0);
    }
    let flags = MountFlags::of_call(flags);
    let mut parameters = Parameters::new(Type::of(&kind.ok_or(EINVAL)?)?).with_flags(flags);
    parameters.source = source;
    parameters.set_all(&options?.unwrap_or_default())?;
    let made = parameters.make(namespace.owner())?;
    namespace.mount_new(
        &at,
        made.super_block,
        made.root,
        parameters.kind.name(),
        parameters.source_shown(),
        flags,
    )?;
    Ok(0)
}

/// MS_REMOUNT: flags of the mount, and without MS_BIND those of its file system and its parameters, too.
fn remount(
    namespace: &Namespace,
    at: &Arc<Dentry>,
    flags: u64,
    options: Result<Option<Vec<u8>>>,
) -> Result<()> {
    let (mount, mut new) = (at.mount(), MountFlags::of_call(flags));
    // When times of access are written stays as it is unless something is said of it.
    if flags & (u64::from(MountFlags::TIMES) | MS_RELATIME) == 0 {
        new.0 |= mount.flags().0 & MountFlags::TIMES;
    }
    if flags & MS_BIND == 0 {
        namespace.check_remount(at, new)?;
        let kind = Type::of(mount.file_system.as_bytes()).unwrap_or(Type::Other(mount.file_system));
        let mut parameters = Parameters::new(kind).with_flags(new);
        if matches!(kind, Type::Tmpfs | Type::Ext4 | Type::Single("proc")) {
            parameters.set_all(&options?.unwrap_or_default())?;
        }
        let made = Made { super_block: mount.super_block().clone(), root: at.inode().clone() };
        parameters.reconfigure(&made, RECONFIGURED)?;
    }
    namespace.remount(at, new)
}

/// What is bound or moved.
fn lookup_source(source: Option<Vec<u8>>) -> Result<Arc<Dentry>> {
    let source = source.filter(|source| !source.is_empty()).ok_or(EINVAL)?;
    lookup_at(AT_FDCWD, &source, true)
}

/// How a mount takes part in what others show. `EINVAL` for several kinds at once.
pub(super) fn propagation_of(flags: u64) -> Result<PropagationKind> {
    match flags {
        MS_SHARED => Ok(PropagationKind::Shared),
        MS_SLAVE => Ok(PropagationKind::Slave),
        MS_PRIVATE => Ok(PropagationKind::Private),
        MS_UNBINDABLE => Ok(PropagationKind::Unbindable),
        _ => Err(EINVAL),
    }
}

/// What is shown of a namespace whose file in /proc is bound, which keeps it: ip-netns(8) does so. `EINVAL` for a mount namespace that
/// could come to keep itself, so for all but those that were made after the caller's own.
fn namespace_of(here: &vfs::Namespace, from: &Arc<Dentry>) -> Result<Option<Vec<u8>>> {
    if !from.is_unlinked() || from.kind() != FileType::Regular {
        return Ok(None);
    }
    let file = from.inode().open(from.inode(), 0)?;
    let Some(namespace) = file.as_any().downcast_ref::<NamespaceFile>() else { return Ok(None) };
    if namespace.of.mounts.as_ref().is_some_and(|mounts| mounts.number() <= here.number()) {
        return Err(EINVAL);
    }
    Ok(Some(namespace.shown().into_bytes()))
}

/// umount2(2).
pub fn umount2(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW)?;
    let path = read_path(call.ptr(0), false)?;
    let (files, who) = (files::current(), files::credentials());
    let (own, start) = (files.root(), files.start(AT_FDCWD, &path)?);
    let resolve = Resolve(Resolve::KEEPS_EXPIRY);
    let walk = Walk { root: &own, start: &start, who: &who, resolve };
    // What covers the place itself counts, too: `.` of who has just covered it.
    let root = walk.lookup(&path, flags & UMOUNT_NOFOLLOW == 0)?.topmost();
    drop(start);
    check_may_mount()?;
    let namespace = files.namespace();
    if flags & MNT_EXPIRE == 0 {
        namespace.unmount(&root, flags & MNT_DETACH != 0)?;
    } else if flags & (MNT_FORCE | MNT_DETACH) != 0 || Arc::ptr_eq(root.mount(), own.mount()) {
        return Err(EINVAL);
    } else {
        namespace.expire(&root)?;
    }
    drop(root);
    calls_files::disks::unmounted().map(|()| 0)
}

/// pivot_root(2).
pub fn pivot_root(call: &mut Call<'_>) -> Result<usize> {
    check_may_mount()?;
    let directory = |pointer| {
        let dentry = lookup_at(AT_FDCWD, &read_path(pointer, false)?, true)?;
        if dentry.is_directory() { Ok(dentry) } else { Err(ENOTDIR) }
    };
    let new = directory(call.ptr(0))?;
    let put_old = directory(call.ptr(1))?;
    let files = files::current();
    let old = files.root();
    files.namespace().pivot(&old, &new, &put_old)?;
    // Whoever was at the old root is at the new one.
    for process in processes::all() {
        process.files.replace_places(&old, &new);
        process.tasks().for_each(|task| task.files().replace_places(&old, &new));
    }
    Ok(0)
}
