// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts of no namespace, which a descriptor keeps until move_mount(2) mounts them: those of open_tree(2) with OPEN_TREE_CLONE, and of
//! fsmount(2). And what can be changed of such mounts and of others alike: mount_setattr(2), MOVE_MOUNT_SET_GROUP.

use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags};
use crate::namespace::{Namespace, Owner, Table, has_locked_below, is_root, mounts_changed};
use crate::propagation::{self, Kind, Propagation};
use crate::super_block::SuperBlock;
use crate::tree::{Mounted, Tree, check_memory};
use abi::{Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use api_fs::Inode;

/// A tree of mounts that is mounted nowhere. Where it was mounted, nothing of it is here any more; otherwise its mounts go with it.
pub struct Detached {
    table: Arc<Table>,
    root: Arc<Dentry>,
}

impl Detached {
    fn of(tree: Tree, owner: Owner) -> Detached {
        let root = tree.mounts()[0].root.clone();
        Detached { table: Table::of(tree, owner, false, true), root }
    }

    /// A mount of a new file system.
    pub fn new(
        super_block: Arc<SuperBlock>,
        inode: Arc<dyn Inode>,
        file_system: &'static str,
        source: String,
        flags: MountFlags,
        owner: Owner,
    ) -> Result<Detached> {
        check_memory()?;
        let mount = Mount::of(super_block, &inode, file_system, source, b"/".to_vec(), flags);
        Ok(Detached::of(Tree::new(Mounted::new(mount, inode)?), owner))
    }

    pub fn root(&self) -> &Arc<Dentry> {
        &self.root
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.table.take_apart();
    }
}

/// What mount_setattr(2) changes.
pub struct Attributes {
    /// Of [`MountFlags::OF_MOUNT`]. What is in both is set.
    pub set: u32,
    pub clear: u32,
    pub propagation: Option<Kind>,
    /// With what is mounted below (AT_RECURSIVE).
    pub all: bool,
    /// Users are to be others on the mount (MOUNT_ATTR_IDMAP): no file system has that.
    pub maps_users: bool,
}

impl Namespace {
    /// Another mount of what is below `from`, of no namespace (OPEN_TREE_CLONE), and if `all` of what is mounted there.
    pub fn clone_tree(&self, from: &Arc<Dentry>, all: bool) -> Result<Detached> {
        let tree = self.copy_of(from, all)?;
        tree.mounts()[0].mount.set_locked(false);
        Ok(Detached::of(tree, self.owner().clone()))
    }

    /// mount_setattr(2): all mounts are changed or none. `EINVAL` for what is no root of a mount of this namespace or of a detached tree.
    pub fn set_attributes(&self, at: &Arc<Dentry>, change: &Attributes) -> Result<()> {
        let table = at.mount().table().filter(|_| is_root(at)).ok_or(EINVAL)?;
        let is_ours = match table.is_detached {
            true => at.mount().point().is_none(),
            false => Arc::ptr_eq(&table, &self.table),
        };
        if !is_ours {
            return Err(EINVAL);
        }
        let mounts = match change.all {
            true => table.tree_of(at.mount())?,
            false => alloc::vec![Mounted { mount: at.mount().clone(), root: at.clone() }],
        };
        let changed = |mount: &Mount| MountFlags(mount.flags().0 & !change.clear | change.set);
        for Mounted { mount, .. } in &mounts {
            mount.check_change(changed(mount))?;
            if change.maps_users {
                return Err(EINVAL);
            }
        }
        for Mounted { mount, .. } in &mounts {
            if let Some(kind) = change.propagation {
                propagation::change(mount, kind)?;
            }
            mount.set_flags(changed(mount));
        }
        mounts_changed();
        Ok(())
    }
}

/// MOVE_MOUNT_SET_GROUP: the private mount whose root is `to` takes part as the one whose root is `from` does, which shows at least as much
/// of the file system. `may`: the caller may change mounts of that owner.
pub fn set_group(from: &Arc<Dentry>, to: &Arc<Dentry>, may: impl Fn(&Owner) -> bool) -> Result<()> {
    let (from_mount, to_mount) = (from.mount(), to.mount());
    let from_table = from_mount.table().ok_or(EINVAL)?;
    let to_table = to_mount.table().ok_or(EINVAL)?;
    if !may(&from_table.owner) || !may(&to_table.owner) {
        return Err(EPERM);
    }
    let is_same_file_system = from.inode().stat()?.device == to.inode().stat()?.device;
    if !is_root(from) || !is_root(to) || !is_same_file_system {
        return Err(EINVAL);
    }
    let place = from_mount.place_of(&to_mount.start, to.inode()).ok_or(EINVAL)?;
    if has_locked_below(&from_table.snapshot()?, &place) {
        return Err(EINVAL);
    }
    let (like, now) = (from_mount.propagation(), to_mount.propagation());
    let takes_part = |how: Propagation| how.peers.is_some() || how.master.is_some();
    if takes_part(now) || !takes_part(like) {
        return Err(EINVAL);
    }
    let is_unbindable = now.is_unbindable && like.peers.is_none();
    propagation::set(to_mount, Propagation { is_unbindable, ..like })?;
    mounts_changed();
    Ok(())
}
