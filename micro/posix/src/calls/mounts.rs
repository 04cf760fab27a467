// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted where: mount(2), umount2(2), pivot_root(2). The order of errors is that of Linux' fs/namespace.c.

use crate::mounts;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Inode};
use api_user::UserPtr;
use calls_files::open::read_path;
use calls_files::stat::lookup_at;
use task::call::Call;
use task::files::{self, AT_FDCWD};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::nsfs::{NSFS, NamespaceFile};
use task::pids::PidNamespace;
use task::processes;
use task::users::{self, Kind, UserNamespace};
use vfs::{Dentry, MountFlags, PropagationKind};

const MS_REMOUNT: u64 = 32;
const MS_BIND: u64 = 4096;
const MS_MOVE: u64 = 8192;
const MS_REC: u64 = 16384;
const MS_SILENT: u64 = 32768;
const MS_UNBINDABLE: u64 = 1 << 17;
const MS_PRIVATE: u64 = 1 << 18;
const MS_SLAVE: u64 = 1 << 19;
const MS_SHARED: u64 = 1 << 20;
const PROPAGATION: u64 = MS_UNBINDABLE | MS_PRIVATE | MS_SLAVE | MS_SHARED;
/// What programs of old put into the upper half.
const MS_MGC: u64 = 0xc0ed_0000;
const MS_MGC_MASK: u64 = 0xffff_0000;
const MNT_FORCE: u32 = 1;
const MNT_DETACH: u32 = 2;
const MNT_EXPIRE: u32 = 4;
const UMOUNT_NOFOLLOW: u32 = 8;
/// Half of memory for each tmpfs, as Linux has it, unless `size=` says otherwise.
const TMPFS_SHARE: u64 = 2;

fn kept_flags(flags: u64) -> MountFlags {
    MountFlags(flags as u32 & MountFlags::KNOWN)
}

fn check_may_mount() -> Result<()> {
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
        return namespace.remount(&at, kept_flags(flags)).map(|()| 0);
    }
    if flags & MS_BIND != 0 {
        let from = lookup_source(source)?;
        if let Some(shown) = namespace_of(&namespace, &from)? {
            return namespace.mount_inode(&at, from.inode().clone(), NSFS, shown).map(|_| 0);
        }
        return namespace.bind(&from, &at, flags & MS_REC != 0).map(|_| 0);
    }
    if flags & PROPAGATION != 0 {
        return change_propagation(&namespace, &at, flags).map(|()| 0);
    }
    if flags & MS_MOVE != 0 {
        let from = lookup_source(source)?;
        return namespace.move_mount(&from, &at).map(|()| 0);
    }
    let kind = kind.ok_or(EINVAL)?;
    let (name, root) = if kind == b"ext4" {
        ("ext4", on_disk(source.clone(), flags, options)?)
    } else {
        new_file_system(&kind, options)?
    };
    let shown = source.unwrap_or_else(|| b"none".to_vec());
    namespace.mount(&at, root, name, &String::from_utf8_lossy(&shown), kept_flags(flags))?;
    Ok(0)
}

/// What is bound or moved.
fn lookup_source(source: Option<Vec<u8>>) -> Result<Arc<Dentry>> {
    let source = source.filter(|source| !source.is_empty()).ok_or(EINVAL)?;
    lookup_at(AT_FDCWD, &source, true)
}

/// The root directory of the file system on a disk, which is named by its node.
fn on_disk(source: Option<Vec<u8>>, flags: u64, options: Result<Option<Vec<u8>>>) -> Result<Arc<dyn Inode>> {
    if !cfg!(feature = "ext4") {
        return Err(ENODEV);
    }
    // Disks are the machine's.
    if !task::current().credentials().lock().users.is_first() {
        return Err(EPERM);
    }
    let node = lookup_source(source)?;
    if node.kind() != FileType::BlockDevice {
        return Err(ENOTBLK);
    }
    calls_files::disks::mount(node.inode().stat()?.rdev, kept_flags(flags), &options?.unwrap_or_default())
}

/// How a mount takes part in what others show. `EINVAL` for several kinds at once.
fn change_propagation(namespace: &vfs::Namespace, at: &Arc<Dentry>, flags: u64) -> Result<()> {
    let kind = match flags & !(MS_REC | MS_SILENT) {
        MS_SHARED => PropagationKind::Shared,
        MS_SLAVE => PropagationKind::Slave,
        MS_PRIVATE => PropagationKind::Private,
        MS_UNBINDABLE => PropagationKind::Unbindable,
        _ => return Err(EINVAL),
    };
    namespace.change_propagation(at, kind, flags & MS_REC != 0)
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

/// The root directory of a file system that is to be mounted, and its name.
fn new_file_system(kind: &[u8], options: Result<Option<Vec<u8>>>) -> Result<(&'static str, Arc<dyn Inode>)> {
    let (task, is_inside) = (task::current(), !task::current().credentials().lock().users.is_first());
    if kind == b"proc" && (is_inside || task.process.pids != PidNamespace::FIRST) {
        let pids = &task.process.pids;
        let may = task.credentials().lock().can_in(&pids.owner(), CAP_SYS_ADMIN);
        return if may { Ok(("proc", proc::proc(files::new_device(), pids))) } else { Err(EPERM) };
    }
    if let Some(single) = mounts::single(kind) {
        // They are not of a user namespace.
        return if is_inside && [&b"devtmpfs"[..], b"sysfs"].contains(&kind) {
            Err(EPERM)
        } else {
            Ok(single)
        };
    }
    if kind != b"tmpfs" {
        return Err(ENODEV);
    }
    let options = options?.unwrap_or_default();
    let Tmpfs { size, mode, owner } = tmpfs_options(&options)?;
    Ok(("tmpfs", ramfs::tmpfs(files::new_device(), size, mode, owner)))
}

/// Options of a tmpfs (tmpfs(5)).
struct Tmpfs {
    size: u64,
    mode: u32,
    owner: (u32, u32),
}

/// `EINVAL` for an option that is not known, and for a value that is none.
fn tmpfs_options(options: &[u8]) -> Result<Tmpfs> {
    let memory = files::current().memory;
    let who = files::credentials();
    let mut made = Tmpfs { size: memory / TMPFS_SHARE, mode: 0o1777, owner: (who.uid, who.gid) };
    for option in options.split(|b| *b == b',').filter(|option| !option.is_empty()) {
        let (name, value) = match option.iter().position(|b| *b == b'=') {
            Some(end) => (&option[..end], core::str::from_utf8(&option[end + 1..]).map_err(|_| EINVAL)?),
            None => (option, ""),
        };
        match name {
            b"size" => made.size = size_of_tmpfs(value, memory)?,
            b"nr_blocks" => {
                made.size = size_of_tmpfs(value, memory)?.checked_mul(PAGE_SIZE as u64).ok_or(EINVAL)?;
            }
            b"mode" => made.mode = u32::from_str_radix(value, 8).map_err(|_| EINVAL)? & 0o7777,
            b"uid" => made.owner.0 = users::named(Kind::User, value.parse().map_err(|_| EINVAL)?)?,
            b"gid" => made.owner.1 = users::named(Kind::Group, value.parse().map_err(|_| EINVAL)?)?,
            // Inode numbers are of 64 bits, and every page is as far away as another.
            b"inode64" | b"mpol" => {}
            _ => return Err(EINVAL),
        }
    }
    if made.size == 0 {
        // No limit.
        made.size = memory;
    }
    Ok(made)
}

/// A number with k, m, g, or % of memory.
fn size_of_tmpfs(value: &str, memory: u64) -> Result<u64> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let number: u64 = number.parse().map_err(|_| EINVAL)?;
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "%" => return Ok(memory / 100 * number.min(100)),
        _ => return Err(EINVAL),
    };
    number.checked_mul(1 << shift).ok_or(EINVAL)
}

/// umount2(2).
pub fn umount2(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW)?;
    let path = read_path(call.ptr(0), false)?;
    // What covers the place itself counts, too: `.` of who has just covered it.
    let root = lookup_at(AT_FDCWD, &path, flags & UMOUNT_NOFOLLOW == 0)?.topmost();
    check_may_mount()?;
    if flags & MNT_EXPIRE != 0 {
        // Nothing is marked to expire: the first of two such calls does that, and is all that is heard of.
        return Err(EINVAL);
    }
    files::current().namespace().unmount(&root, flags & MNT_DETACH != 0)?;
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
