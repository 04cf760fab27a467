// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files are covered by mounts, whatever mount of their file system the covered place is in: a name cannot be taken away under
//! a mount of the caller's namespace, and takes mounts of other namespaces along (rename(2), "EBUSY"; mount_namespaces(7)).

use crate::dentry::Dentry;
use crate::mount::Mount;
use crate::namespace;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Inode;
use api_lock::SpinLock;
use ordered::Map;

/// The covered inode's address, and the number of the mount.
type Key = (usize, u32);

/// A leaf lock. Mounts are looked at without it: the last handle of one may be let go.
static COVERED: SpinLock<Map<Key, Weak<Mount>>> = SpinLock::new(Map::new());

fn address(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

/// The mount covers that place from now on. Without memory for it only names of the place's own mount are kept from going.
pub(crate) fn add(point: &Dentry, mount: &Arc<Mount>) {
    let _ = COVERED.lock().insert_fallibly((address(point.inode()), mount.id()), Arc::downgrade(mount));
}

pub(crate) fn remove(point: &Dentry, mount: &Mount) {
    COVERED.lock().remove(&(address(point.inode()), mount.id()));
}

/// Mounts that cover the name in any mount of its file system.
fn mounts_on(victim: &Arc<Dentry>) -> Vec<Arc<Mount>> {
    let (mut found, mut spare) = (Vec::new(), None);
    {
        let at = address(victim.inode());
        let covered = COVERED.lock();
        for mount in covered.range((at, 0)..=(at, u32::MAX)).filter_map(|(_, mount)| mount.upgrade()) {
            if found.reserve_fallibly(1).is_err() {
                // The handle outlives the lock.
                spare = Some(mount);
                break;
            }
            found.push(mount);
        }
    }
    drop(spare);
    found.retain(|mount| mount.point().is_some_and(|point| is_same_name(&point, victim)));
    found
}

/// A file with several names is covered under one of them.
fn is_same_name(point: &Arc<Dentry>, victim: &Arc<Dentry>) -> bool {
    let is_same_directory = || match (point.parent(), victim.parent()) {
        (Some(a), Some(b)) => Arc::ptr_eq(a.inode(), b.inode()),
        _ => false,
    };
    victim.is_directory() || point.name() == victim.name() && is_same_directory()
}

/// Something of the same namespace is mounted on it.
pub(crate) fn is_covered_here(victim: &Arc<Dentry>) -> bool {
    if victim.is_mount_point() {
        return true;
    }
    let Some(own) = victim.mount().table() else { return false };
    let is_own = |mount: &Arc<Mount>| mount.table().is_some_and(|table| Arc::ptr_eq(&table, &own));
    mounts_on(victim).iter().any(is_own)
}

/// The name is gone, and with it what other namespaces have mounted there.
pub(crate) fn name_is_gone(victim: &Arc<Dentry>) {
    for mount in mounts_on(victim) {
        namespace::take_away(&mount);
    }
}
