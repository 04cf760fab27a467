// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts that are on each other, before they are those of a namespace, and copies of them.

use crate::dentry::Dentry;
use crate::mount::Mount;
use crate::propagation::{self, Propagation};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use ordered::Map;

#[derive(Clone)]
pub(crate) struct Mounted {
    pub mount: Arc<Mount>,
    pub root: Arc<Dentry>,
}

/// What a copy is to the mount that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// It is in the same groups.
    Same,
    /// It receives from the group that the other is in, and is in the groups of one that is in none.
    Receiver,
    /// It receives from the group that the other is in, and is in a new one.
    SharedReceiver,
}

/// How mounts are copied.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub relation: Relation,
    /// With what is mounted below.
    pub all: bool,
    /// With mounts below that cannot be bound.
    pub with_unbindable: bool,
    /// For another owner, who must not uncover what they cover.
    pub locks: bool,
}

impl Relation {
    fn of(self, was: Propagation) -> Propagation {
        let is_unbindable = was.is_unbindable;
        match self {
            Relation::Same => was,
            _ if was.peers.is_none() => was,
            Relation::Receiver => Propagation { peers: None, master: was.peers, is_unbindable },
            Relation::SharedReceiver => {
                Propagation { peers: Some(propagation::new_group()), master: was.peers, is_unbindable }
            }
        }
    }
}

/// `ENOMEM` where nothing new may be made.
pub(crate) fn check_memory() -> Result<()> {
    if api_alloc::is_low() { Err(ENOMEM) } else { Ok(()) }
}

impl Mounted {
    /// Its root is a root of a file system.
    pub fn new(mount: Arc<Mount>, inode: Arc<dyn api_fs::Inode>) -> Result<Mounted> {
        let root = Dentry::root(mount.clone(), inode)?;
        mount.set_root(&root);
        Ok(Mounted { mount, root })
    }

    /// The same part of the file system, to be mounted once more.
    fn again(from: &Arc<Dentry>, how: &How) -> Result<Mounted> {
        check_memory()?;
        let (was, inode) = (from.mount(), from.inode());
        let mount = Mount::another(was, inode, from.path_in_file_system());
        if was.has_locked_flags() {
            mount.lock_flags();
        }
        propagation::enter(&mount, how.relation.of(was.propagation()))?;
        // Names that it keeps would not be given up when the other one removes them.
        was.clear_cache();
        Mounted::new(mount, inode.clone())
    }

    /// It covers that place from now on, below whatever is mounted there.
    pub fn cover(&self, point: &Arc<Dentry>) {
        self.mount.set_point(Some(point.clone()));
        if let Some(above) = point.set_cover(Some(self.root.clone())) {
            above.mount().set_point(Some(self.root.clone()));
            self.root.set_cover(Some(above));
        }
    }
}

/// Mounts of a namespace and their copies in another one.
pub struct Copies(Vec<(Arc<Mount>, Arc<Dentry>)>);

impl Copies {
    /// The same place in the copy. What has no name any more has none there; what is mounted nowhere stays what it is.
    pub fn of(&self, place: &Arc<Dentry>) -> Result<Arc<Dentry>> {
        let Some((_, root)) = self.0.iter().find(|(mount, _)| Arc::ptr_eq(mount, place.mount())) else {
            return Ok(place.clone());
        };
        let path = place.path_in_mount();
        match descend(root, &path) {
            Ok(found) if Arc::ptr_eq(found.inode(), place.inode()) => Ok(found),
            _ => Dentry::unnamed(root.mount(), place.inode().clone(), &place.name()),
        }
    }
}

/// What is at a path below `from` in its mount, whoever may go there and whatever covers it.
pub(crate) fn descend(from: &Arc<Dentry>, path: &[u8]) -> Result<Arc<Dentry>> {
    let mut at = from.clone();
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        at = at.child(name)?;
    }
    Ok(at)
}

/// Mounts of no namespace yet: the first one is mounted nowhere, the others on those before them. They let go of each other unless
/// they are taken.
pub(crate) struct Tree(Vec<Mounted>);

impl Tree {
    pub fn new(first: Mounted) -> Tree {
        Tree(alloc::vec![first])
    }

    pub fn mounts(&self) -> &[Mounted] {
        &self.0
    }

    pub fn take(mut self) -> Vec<Mounted> {
        core::mem::take(&mut self.0)
    }

    /// What is mounted at `from`, of mounts of which no two have the same place.
    pub fn copy(mounts: &[Mounted], from: &Arc<Dentry>, how: &How) -> Result<(Tree, Copies)> {
        let mut on: Map<u32, Vec<&Mounted>> = Map::new();
        for mounted in mounts.iter().filter(|_| how.all) {
            if let Some(point) = mounted.mount.point() {
                let list = on.entry(point.mount().id()).or_default();
                list.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                list.push(mounted);
            }
        }
        let mut tree = Tree::new(Mounted::again(from, how)?);
        let to = &tree.0[0];
        if how.locks {
            to.mount.lock_flags();
        }
        let mut copied: Vec<(Arc<Mount>, Arc<Dentry>)> = Vec::new();
        copied.reserve_fallibly(if how.all { mounts.len() + 1 } else { 1 }).map_err(|_| ENOMEM)?;
        copied.push((from.mount().clone(), to.root.clone()));
        let mut next = 0;
        while let Some((mount, root)) = copied.get(next).cloned() {
            for mounted in on.get(&mount.id()).into_iter().flatten() {
                let Some(point) = mounted.mount.point() else { continue };
                let is_left_out = mounted.mount.propagation().is_unbindable && !how.with_unbindable;
                if is_left_out || mounted.mount.keeps_mounts() {
                    continue;
                }
                let path = if next > 0 {
                    point.path_in_mount()
                } else if from.is_ancestor_of(&point) {
                    point.path_from(from).unwrap_or_default()
                } else {
                    continue;
                };
                // A volume may have lost the directory.
                let Ok(point) = descend(&root, &path) else { continue };
                tree.0.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                let copy = Mounted::again(&mounted.root, how)?;
                copy.cover(&point);
                copy.mount.set_locked(how.locks || mounted.mount.is_locked());
                if how.locks {
                    copy.mount.lock_flags();
                }
                copied.push((mounted.mount.clone(), copy.root.clone()));
                tree.0.push(copy);
            }
            next += 1;
        }
        Ok((tree, Copies(copied)))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for Mounted { mount, .. } in self.0.iter().rev() {
            mount.let_go();
        }
    }
}
