// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File handles (name_to_handle_at(2), open_by_handle_at(2)): a file by what stays the same when its names change.
//!
//! A file is known by its handle from the time somebody asked for it until it is gone. Only file systems in memory give handles
//! out: their inodes live as long as their files.

use crate::open::{install, read_path};
use crate::stat::{AT_EMPTY_PATH, lookup_at};
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use api_fs::Inode;
use api_lock::SpinLock;
use api_user::UserPtr;
use ordered::Map;
use task::call::Call;
use task::files::{self, AT_FDCWD};
use vfs::{Capability, Dentry, ops};

const AT_SYMLINK_FOLLOW: u32 = 0x400;
/// Linux' MAX_HANDLE_SZ.
const MAX_HANDLE: u32 = 128;
const HANDLE_TYPE: u32 = 1;
/// What open(2)'s flags may not ask of a file that is there.
const O_CREAT: u32 = 0o100;

/// `struct file_handle` without its bytes: how many those are, and their kind.
type Header = [u32; 2];

/// The bytes of a handle: device and inode number.
type Handle = (u64, u64);
const HANDLE_BYTES: u32 = size_of::<[u64; 2]>() as u32;

/// A file that was named: its place in the tree, as long as that is in use, and its inode.
struct Named {
    place: Weak<Dentry>,
    inode: Weak<dyn Inode>,
}

#[derive(Default)]
struct Table {
    named: Map<Handle, Named>,
    /// At this many entries those of files that are gone are looked for.
    tidy_at: usize,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table { named: Map::new(), tidy_at: 64 });

fn remember(handle: Handle, dentry: &Arc<Dentry>) {
    let named = Named { place: Arc::downgrade(dentry), inode: Arc::downgrade(dentry.inode()) };
    let mut table = TABLE.lock();
    if table.named.len() >= table.tidy_at {
        table.named.retain(|_, named| named.inode.strong_count() > 0);
        table.tidy_at = 2 * table.named.len().max(32);
    }
    table.named.insert(handle, named);
}

/// The file of a handle, on the file system that `mount` belongs to.
fn find(handle: Handle, mount: &Arc<Dentry>) -> Result<Arc<Dentry>> {
    let (place, inode) = {
        let table = TABLE.lock();
        let named = table.named.get(&handle).ok_or(ESTALE)?;
        (named.place.upgrade(), named.inode.upgrade().ok_or(ESTALE)?)
    };
    if mount.inode().stat()?.device != handle.0 {
        return Err(ESTALE);
    }
    match place.filter(|place| Arc::ptr_eq(place.inode(), &inode)) {
        Some(place) => Ok(place),
        None => Dentry::unnamed(mount.mount(), inode, b""),
    }
}

/// name_to_handle_at(2).
pub fn name_to_handle_at(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(4, AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)?;
    let path = read_path(call.ptr(1), flags & AT_EMPTY_PATH != 0)?;
    let dentry = match path.is_empty() && call.int(0) != AT_FDCWD {
        true => files::current().descriptors.get_any(call.int(0))?.place().ok_or(EOPNOTSUPP)?.clone(),
        false if path.is_empty() => files::current().working(),
        false => lookup_at(call.int(0), &path, flags & AT_SYMLINK_FOLLOW != 0)?,
    };
    if dentry.inode().mounts().is_none() {
        return Err(EOPNOTSUPP);
    }
    let (header_at, mount_at) = (call.ptr::<Header>(2), call.ptr::<i32>(3));
    let [room, _] = header_at.read()?;
    if room > MAX_HANDLE {
        return Err(EINVAL);
    }
    let stat = dentry.inode().stat()?;
    let fits = room >= HANDLE_BYTES;
    if fits {
        let handle = (stat.device, stat.inode);
        let bytes: UserPtr<[u64; 2]> = UserPtr::new(call.arg(2).wrapping_add(size_of::<Header>() as u64));
        bytes.write([handle.0, handle.1])?;
        remember(handle, &dentry);
    }
    // The size that it takes is told where it does not fit, too.
    mount_at.write(dentry.mount().id() as i32)?;
    header_at.write([HANDLE_BYTES, HANDLE_TYPE])?;
    if fits { Ok(0) } else { Err(EOVERFLOW) }
}

/// open_by_handle_at(2).
pub fn open_by_handle_at(call: &mut Call<'_>) -> Result<usize> {
    let [bytes, kind] = call.ptr::<Header>(1).read()?;
    if bytes == 0 || bytes > MAX_HANDLE {
        return Err(EINVAL);
    }
    let mount = match call.int(0) {
        AT_FDCWD => files::current().working(),
        fd => files::current().descriptors.get_any(fd)?.place().ok_or(ESTALE)?.clone(),
    };
    let who = files::credentials();
    if !who.has(Capability::DacReadSearch) {
        return Err(EPERM);
    }
    if (kind as i32) < 0 {
        return Err(EINVAL);
    }
    if kind != HANDLE_TYPE || bytes != HANDLE_BYTES {
        return Err(ESTALE);
    }
    let [device, inode] = UserPtr::new(call.arg(1).wrapping_add(size_of::<Header>() as u64)).read()?;
    let dentry = find((device, inode), &mount)?;
    let flags = call.uint(2) & !O_CREAT;
    ops::check_open(&who, &dentry, flags)?;
    install(dentry, flags).map(|fd| fd as usize)
}
