// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared subtrees (mount_namespaces(7), "Shared subtrees"): which mounts show what is mounted on another one. The reference is Linux'
//! fs/pnode.c and Documentation/filesystems/sharedsubtree.rst.
//!
//! A mount is in at most one peer group, all of whose members show what is mounted on any of them, in whatever namespace they are. A
//! mount may have a group as its master, too: it receives from that group and sends nothing to it.

use crate::mount::Mount;
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU32, Ordering};
use ordered::Map;

/// How a mount takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Propagation {
    /// The peer group that it is in (MS_SHARED).
    pub peers: Option<u32>,
    /// The peer group that it receives from (MS_SLAVE).
    pub master: Option<u32>,
    /// It cannot be bound (MS_UNBINDABLE).
    pub is_unbindable: bool,
}

/// What mount(2) can make of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Shared,
    Slave,
    Private,
    Unbindable,
}

/// A peer group. It has members for as long as it exists.
#[derive(Default)]
struct Group {
    peers: Map<u32, Weak<Mount>>,
    slaves: Map<u32, Weak<Mount>>,
}

/// Who takes part. Mounts are known by their number, so that none of them need be kept, or let go, while this is locked: a mount leaves
/// when it is dropped.
struct Registry {
    /// What a mount is, unless it is private.
    members: Map<u32, Propagation>,
    /// All peer groups, by number.
    groups: Map<u32, Group>,
}

static REGISTRY: SpinLock<Registry> = SpinLock::new(Registry { members: Map::new(), groups: Map::new() });
static NEXT_GROUP: AtomicU32 = AtomicU32::new(1);

pub(crate) fn new_group() -> u32 {
    NEXT_GROUP.fetch_add(1, Ordering::Relaxed)
}

/// What the mount of that number is.
pub(crate) fn of(id: u32) -> Propagation {
    REGISTRY.lock().members.get(&id).copied().unwrap_or_default()
}

/// The mount, which takes no part, does from now on. `ENOMEM` leaves it as it was.
pub(crate) fn enter(mount: &Arc<Mount>, new: Propagation) -> Result<()> {
    if new == Propagation::default() {
        return Ok(());
    }
    mount.takes_part();
    let mut registry = REGISTRY.lock();
    let entered = registry.enter(mount.id(), &Arc::downgrade(mount), new);
    if entered.is_err() {
        registry.leave(mount.id());
    }
    entered
}

/// The mount of that number is private from now on.
pub(crate) fn leave(id: u32) {
    REGISTRY.lock().leave(id);
}

impl Registry {
    fn enter(&mut self, id: u32, mount: &Weak<Mount>, new: Propagation) -> Result<()> {
        // The master may have lost its last member meanwhile.
        let master = new.master.filter(|number| self.groups.contains_key(number));
        self.members.insert_fallibly(id, Propagation { master, ..new }).map_err(|_| ENOMEM)?;
        if let Some(number) = new.peers {
            if !self.groups.contains_key(&number) {
                self.groups.insert_fallibly(number, Group::default()).map_err(|_| ENOMEM)?;
            }
            let group = self.groups.get_mut(&number).ok_or(ENOMEM)?;
            group.peers.insert_fallibly(id, mount.clone()).map_err(|_| ENOMEM)?;
        }
        if let Some(group) = master.and_then(|number| self.groups.get_mut(&number)) {
            group.slaves.insert_fallibly(id, mount.clone()).map_err(|_| ENOMEM)?;
        }
        Ok(())
    }

    /// What received from a group that has no member left receives from that group's master.
    fn leave(&mut self, id: u32) {
        let Some(was) = self.members.remove(&id) else { return };
        if let Some(group) = was.master.and_then(|number| self.groups.get_mut(&number)) {
            group.slaves.remove(&id);
        }
        let Some(number) = was.peers else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.peers.remove(&id);
        if !group.peers.is_empty() {
            return;
        }
        let slaves = self.groups.remove(&number).map(|group| group.slaves).unwrap_or_default();
        for (id, slave) in slaves.iter() {
            let above = was.master.and_then(|number| self.groups.get_mut(&number));
            // Without memory for a place in the other group it receives from nobody any more.
            let is_kept = above.is_some_and(|group| group.slaves.insert_fallibly(*id, slave.clone()).is_ok());
            if let Some(member) = self.members.get_mut(id) {
                member.master = if is_kept { was.master } else { None };
            }
        }
    }
}

/// Its place in other groups, or none. After `ENOMEM` it is private.
pub(crate) fn set(mount: &Arc<Mount>, new: Propagation) -> Result<()> {
    leave(mount.id());
    enter(mount, new)
}

/// mount(2) with one of the flags.
pub(crate) fn change(mount: &Arc<Mount>, kind: Kind) -> Result<()> {
    let now = mount.propagation();
    match kind {
        Kind::Shared if now.peers.is_some() => Ok(()),
        Kind::Shared => set(mount, Propagation { peers: Some(new_group()), is_unbindable: false, ..now }),
        Kind::Slave => match now.peers {
            Some(number) => {
                let is_alone = REGISTRY.lock().groups.get(&number).is_none_or(|group| group.peers.len() < 2);
                let master = if is_alone { now.master } else { Some(number) };
                set(mount, Propagation { peers: None, master, is_unbindable: false })
            }
            None => Ok(()),
        },
        Kind::Private => set(mount, Propagation::default()),
        Kind::Unbindable => set(mount, Propagation { is_unbindable: true, ..Propagation::default() }),
    }
}

/// A peer group that is reached, and the place in [`Receivers::visits`] of the one that it receives from.
pub(crate) struct Visit {
    pub from: Option<usize>,
}

pub(crate) struct Receiver {
    pub mount: Arc<Mount>,
    /// The group that it shows the mounts of: its own, or its master.
    pub visit: usize,
    /// It is a member of that group.
    pub is_peer: bool,
}

/// Where what is mounted on a mount shows as well.
pub(crate) struct Receivers {
    pub visits: Vec<Visit>,
    pub all: Vec<Receiver>,
}

/// Whoever receives from the mount, senders before receivers. `ENOMEM`.
pub(crate) fn receivers(of: &Mount) -> Result<Receivers> {
    // Declared before the lock is taken, and so dropped after it is given back: the last handle of a mount may be here.
    let mut found = Receivers { visits: Vec::new(), all: Vec::new() };
    let Some(first) = of.propagation().peers else { return Ok(found) };
    let registry = REGISTRY.lock();
    let mut to_visit: Vec<u32> = Vec::new();
    let mut seen = Map::new();
    let mut reach = |number: u32, from, visits: &mut Vec<Visit>, to_visit: &mut Vec<u32>| -> Result<()> {
        if seen.insert_fallibly(number, ()).map_err(|_| ENOMEM)?.is_none() {
            visits.reserve_fallibly(1).and_then(|()| to_visit.reserve_fallibly(1)).map_err(|_| ENOMEM)?;
            visits.push(Visit { from });
            to_visit.push(number);
        }
        Ok(())
    };
    reach(first, None, &mut found.visits, &mut to_visit)?;
    let mut visit = 0;
    while let Some(number) = to_visit.get(visit) {
        let group = registry.groups.get(number);
        let lists = group.into_iter().flat_map(|group| [(&group.peers, true), (&group.slaves, false)]);
        for (list, is_peer) in lists {
            for (id, mount) in list.iter().filter(|(id, _)| **id != of.id()) {
                match registry.members.get(id).and_then(|member| member.peers) {
                    // It is found again as a member of its group.
                    Some(own) if !is_peer => reach(own, Some(visit), &mut found.visits, &mut to_visit)?,
                    _ => {
                        found.all.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                        let mount = mount.upgrade();
                        found.all.extend(mount.map(|mount| Receiver { mount, visit, is_peer }));
                    }
                }
            }
        }
        visit += 1;
    }
    drop(registry);
    Ok(found)
}

/// The nearest group above the mount's master, or this, that has a member which `is_seen` (mountinfo's propagate_from).
pub(crate) fn nearest_seen(mount: &Mount, is_seen: impl Fn(u32) -> bool) -> Option<u32> {
    let mut number = mount.propagation().master;
    let registry = REGISTRY.lock();
    while let Some(group) = number.and_then(|number| registry.groups.get(&number)) {
        if group.peers.keys().any(|id| is_seen(*id)) {
            return number;
        }
        let member = group.peers.keys().next().and_then(|id| registry.members.get(id));
        number = member.and_then(|member| member.master);
    }
    None
}
