// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts by descriptors: open_tree(2), move_mount(2), mount_setattr(2). The order of errors is that of Linux' fs/namespace.c.

use super::mounts::{PROPAGATION, check_may_mount, propagation_of};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, Inode, Stat};
use calls_files::open;
use calls_files::stat::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, lookup_at};
use core::any::Any;
use descriptors::Description;
use task::call::Call;
use task::files::{self, AT_FDCWD, O_CLOEXEC};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::nsfs::NamespaceFile;
use task::users::UserNamespace;
use vfs::{Attributes, Dentry, Detached, MountFlags, Owner};

const O_PATH: u32 = 0o10000000;
const AT_NO_AUTOMOUNT: u32 = 0x800;
const AT_RECURSIVE: u32 = 0x8000;
const OPEN_TREE_CLONE: u32 = 1;

const MOVE_MOUNT_F_SYMLINKS: u32 = 0x1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x4;
const MOVE_MOUNT_T_SYMLINKS: u32 = 0x10;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
const MOVE_MOUNT_SET_GROUP: u32 = 0x100;
/// With the two flags of automounts, of which there are none here.
const MOVE_MOUNT_KNOWN: u32 = 0x177;

const MOUNT_ATTR_ATIME: u64 = 0x70;
const MOUNT_ATTR_NOATIME: u64 = 0x10;
const MOUNT_ATTR_STRICTATIME: u64 = 0x20;
const MOUNT_ATTR_NODIRATIME: u64 = 0x80;
const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
const MOUNT_ATTR_NOSYMFOLLOW: u64 = 0x20_0000;
/// MOUNT_ATTR_RDONLY, NOSUID, NODEV and NOEXEC are the same bits as the flags of mount(2).
const MOUNT_ATTR_SAME: u64 = 0xf;
/// What fsmount(2) takes; mount_setattr(2) has MOUNT_ATTR_IDMAP besides.
pub(super) const MOUNT_ATTR_KNOWN: u64 =
    MOUNT_ATTR_SAME | MOUNT_ATTR_ATIME | MOUNT_ATTR_NODIRATIME | MOUNT_ATTR_NOSYMFOLLOW;
/// `struct mount_attr` as it was at first: what is set, cleared, propagation, and a descriptor of a user namespace.
const MOUNT_ATTR_SIZE: usize = 32;

/// An O_PATH descriptor that keeps mounts of no namespace.
struct TreeFile(Detached);

impl File for TreeFile {
    fn stat(&self) -> Result<Stat> {
        self.0.root().inode().stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(self.0.root().inode())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A descriptor of mounts that go with it unless they are mounted. `flags`: O_CLOEXEC or none.
pub(super) fn install(detached: Detached, flags: u32) -> Result<usize> {
    let root = detached.root().clone();
    let description = Description::new(Arc::new(TreeFile(detached)), O_PATH, Some(root));
    files::current().descriptors.insert(description, flags & O_CLOEXEC != 0).map(|fd| fd as usize)
}

/// What a path leads to; an empty one, where that is allowed, to what the descriptor refers to. `EINVAL`: that is no file of a mount.
pub(super) fn place(directory: i32, path: &[u8], follow: bool) -> Result<Arc<Dentry>> {
    match (path.is_empty(), directory) {
        (false, _) => lookup_at(directory, path, follow),
        (true, AT_FDCWD) => Ok(files::current().working()),
        (true, _) => {
            let description = files::current().descriptors.get_any(directory)?;
            description.place().cloned().ok_or(EINVAL)
        }
    }
}

/// open_tree(2).
pub fn open_tree(call: &mut Call<'_>) -> Result<usize> {
    let known = AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW;
    let flags = call.flags(2, known | OPEN_TREE_CLONE | O_CLOEXEC)?;
    let clones = flags & OPEN_TREE_CLONE != 0;
    if flags & AT_RECURSIVE != 0 && !clones {
        return Err(EINVAL);
    }
    if clones {
        check_may_mount()?;
    }
    let path = open::read_path(call.ptr(1), flags & AT_EMPTY_PATH != 0)?;
    let found = place(call.int(0), &path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
    if !clones {
        return open::install(found, O_PATH | flags & O_CLOEXEC).map(|fd| fd as usize);
    }
    install(files::current().namespace().clone_tree(&found, flags & AT_RECURSIVE != 0)?, flags)
}

/// move_mount(2).
pub fn move_mount(call: &mut Call<'_>) -> Result<usize> {
    check_may_mount()?;
    let flags = call.flags(4, MOVE_MOUNT_KNOWN)?;
    let has = |flag: u32| flags & flag != 0;
    let path = open::read_path(call.ptr(1), has(MOVE_MOUNT_F_EMPTY_PATH))?;
    let from = place(call.int(0), &path, has(MOVE_MOUNT_F_SYMLINKS))?;
    let path = open::read_path(call.ptr(3), has(MOVE_MOUNT_T_EMPTY_PATH))?;
    let to = place(call.int(2), &path, has(MOVE_MOUNT_T_SYMLINKS))?;
    if has(MOVE_MOUNT_SET_GROUP) {
        let may = |owner: &Owner| {
            let owner = UserNamespace::of_owner(owner);
            task::current().credentials().lock().can_in(&owner, CAP_SYS_ADMIN)
        };
        return vfs::set_group(&from, &to, may).map(|()| 0);
    }
    files::current().namespace().move_mount(&from, &to).map(|()| 0)
}

/// mount_setattr(2).
pub fn mount_setattr(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(2, AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW)?;
    let size = call.size(4);
    if size > PAGE_SIZE {
        return Err(E2BIG);
    }
    if size < MOUNT_ATTR_SIZE {
        return Err(EINVAL);
    }
    check_may_mount()?;
    let [set, clear, propagation, user_namespace] = call.ptr(3).read_extensible(size)?;
    if set == 0 && clear == 0 && propagation == 0 {
        return Ok(0);
    }
    let propagation = match propagation {
        0 => None,
        other if other & !PROPAGATION != 0 => return Err(EINVAL),
        other => Some(propagation_of(other)?),
    };
    if (set | clear) & !(MOUNT_ATTR_KNOWN | MOUNT_ATTR_IDMAP) != 0 {
        return Err(EINVAL);
    }
    // When times of access are written is a number of several bits: it is cleared before it is set.
    let (cleared, is_set) = (clear & MOUNT_ATTR_ATIME, set & MOUNT_ATTR_ATIME != 0);
    if cleared != MOUNT_ATTR_ATIME && (cleared != 0 || is_set) {
        return Err(EINVAL);
    }
    let mut cleared_flags = mount_flags(clear & !MOUNT_ATTR_ATIME)?.0;
    if cleared != 0 {
        cleared_flags |= MountFlags::NOATIME | MountFlags::STRICTATIME;
    }
    let change = Attributes {
        set: mount_flags(set)?.0,
        clear: cleared_flags,
        propagation,
        all: flags & AT_RECURSIVE != 0,
        maps_users: set & MOUNT_ATTR_IDMAP != 0,
    };
    if clear & MOUNT_ATTR_IDMAP != 0 {
        return Err(EINVAL);
    }
    if change.maps_users {
        check_user_namespace(user_namespace)?;
    }
    let path = open::read_path(call.ptr(1), flags & AT_EMPTY_PATH != 0)?;
    let at = place(call.int(0), &path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
    files::current().namespace().set_attributes(&at, &change).map(|()| 0)
}

/// Flags of a mount from MOUNT_ATTR_*. `EINVAL` for several ways to write times of access.
pub(super) fn mount_flags(attributes: u64) -> Result<MountFlags> {
    let when = match attributes & MOUNT_ATTR_ATIME {
        0 => 0,
        MOUNT_ATTR_NOATIME => MountFlags::NOATIME,
        MOUNT_ATTR_STRICTATIME => MountFlags::STRICTATIME,
        _ => return Err(EINVAL),
    };
    let flag = |attribute: u64, flag: u32| if attributes & attribute != 0 { flag } else { 0 };
    let directories = flag(MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME);
    let links = flag(MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW);
    Ok(MountFlags((attributes & MOUNT_ATTR_SAME) as u32 | when | directories | links))
}

/// Whether a descriptor is of a user namespace that a mount could show other users by.
fn check_user_namespace(descriptor: u64) -> Result<()> {
    let descriptor = i32::try_from(descriptor).map_err(|_| EINVAL)?;
    let description = files::get(descriptor)?;
    let file = description.file().as_any().downcast_ref::<NamespaceFile>().ok_or(EINVAL)?;
    let users = file.of.users.as_ref().ok_or(EINVAL)?;
    let may = task::current().credentials().lock().can_in(users, CAP_SYS_ADMIN);
    if users.is_first() || !may { Err(EPERM) } else { Ok(()) }
}
