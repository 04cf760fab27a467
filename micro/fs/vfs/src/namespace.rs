// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mount namespaces (mount_namespaces(7)): which file systems are mounted where.

use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags};
use crate::notify;
use crate::propagation::{self, Kind};
use crate::super_block::SuperBlock;
use crate::tree::{Copies, How, Mounted, Relation, Tree, check_memory};
use abi::{Events, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Inode;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};
use ordered::Map;

/// Most mounts of one namespace (fs.mount-max, which is 100,000 on Linux).
pub const MAX_MOUNTS: usize = 4096;
/// Receivers that are looked at by one call: mounts that all show each other could keep the kernel for minutes otherwise.
const MAX_LOOKED_AT: usize = 1 << 16;

/// How often the mounts changed, and who wants to hear of the next time.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static WATCHERS: WaitQueue = WaitQueue::new();

/// How often the mounts changed, and the queue that is woken when they change again.
pub fn mount_changes() -> (u64, &'static WaitQueue) {
    (CHANGES.load(Ordering::Relaxed), &WATCHERS)
}

pub(crate) fn mounts_changed() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
    WATCHERS.wake_all(Events::ERR | Events::PRI);
}

/// The mounts of a namespace.
pub(crate) struct Table {
    pub(crate) mounts: SpinLock<Vec<Mounted>>,
    /// It was made for another owner, who must not uncover what its mounts cover.
    locks: bool,
    pub(crate) owner: Owner,
    /// It is of no namespace: a descriptor keeps its mounts ([`crate::Detached`]).
    pub(crate) is_detached: bool,
}

/// All mounts that a process sees.
pub struct Namespace {
    pub(crate) table: Arc<Table>,
    root: SpinLock<Arc<Dentry>>,
    number: u64,
}

/// Whose capabilities count for a namespace: nothing to this crate.
pub type Owner = Option<Arc<dyn Any + Send + Sync>>;

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Namespace {
    /// A tree with the given file system as its root.
    pub fn new(root: Arc<dyn Inode>, file_system: &'static str) -> Result<Namespace> {
        let flags = MountFlags::default();
        let mount = Mount::new(&root, file_system, file_system.into(), b"/".to_vec(), flags);
        Ok(Namespace::with(Tree::new(Mounted::new(mount, root)?), None, false))
    }

    fn with(tree: Tree, owner: Owner, locks: bool) -> Namespace {
        let root = SpinLock::new(tree.mounts()[0].root.clone());
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Namespace { table: Table::of(tree, owner, locks, false), root, number }
    }

    /// Counts from 0, the machine's own.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it was made with.
    pub fn owner(&self) -> &Owner {
        &self.table.owner
    }

    /// The root of the first mount.
    pub fn root(&self) -> Arc<Dentry> {
        self.root.lock().clone()
    }

    /// Mounts a file system on a directory (on top of what is mounted there already).
    pub fn mount(
        &self,
        point: &Arc<Dentry>,
        inode: Arc<dyn Inode>,
        file_system: &'static str,
        source: &str,
        flags: MountFlags,
    ) -> Result<Arc<Dentry>> {
        let super_block = Arc::new(SuperBlock::new(flags, self.owner().clone()));
        self.mount_new(point, super_block, inode, file_system, String::from(source), flags)
    }

    /// As [`Namespace::mount`], of a file system that somebody else knows, too.
    pub fn mount_new(
        &self,
        point: &Arc<Dentry>,
        super_block: Arc<SuperBlock>,
        inode: Arc<dyn Inode>,
        file_system: &'static str,
        source: String,
        flags: MountFlags,
    ) -> Result<Arc<Dentry>> {
        check_memory()?;
        let mount = Mount::of(super_block, &inode, file_system, source, b"/".to_vec(), flags);
        self.attach(&self.point(point)?, Tree::new(Mounted::new(mount, inode)?))
    }

    /// Mounts an inode that is in no tree, as of a namespace, on a file: `start` is what mountinfo shows.
    pub fn mount_inode(
        &self,
        point: &Arc<Dentry>,
        inode: Arc<dyn Inode>,
        file_system: &'static str,
        start: Vec<u8>,
    ) -> Result<Arc<Dentry>> {
        check_memory()?;
        let mount = Mount::new(&inode, file_system, file_system.into(), start, MountFlags::default());
        self.attach(&self.point(point)?, Tree::new(Mounted::new(mount, inode)?))
    }

    /// What a mount at a place covers. `EINVAL` where that is not of this namespace.
    fn point(&self, place: &Arc<Dentry>) -> Result<Arc<Dentry>> {
        let point = place.topmost();
        if self.has(point.mount()) { Ok(point) } else { Err(EINVAL) }
    }

    /// Shows what is below `from` at another place, too (MS_BIND), and if `all`, with what is mounted there (MS_REC).
    pub fn bind(&self, from: &Arc<Dentry>, point: &Arc<Dentry>, all: bool) -> Result<Arc<Dentry>> {
        let tree = self.copy_of(from, all)?;
        // What has no name any more is bound nowhere (a directory is found by its root).
        if from.is_unlinked() {
            return Err(ENOENT);
        }
        self.attach(&self.point(point)?, tree)
    }

    /// What is below `from`, to be mounted once more. `EINVAL` where that is not of this namespace, cannot be bound, or would show what
    /// a locked mount covers.
    pub(crate) fn copy_of(&self, from: &Arc<Dentry>, all: bool) -> Result<Tree> {
        if !self.has(from.mount()) || from.mount().propagation().is_unbindable {
            return Err(EINVAL);
        }
        let before = self.snapshot()?;
        if !all && has_locked_below(&before, from) {
            return Err(EINVAL);
        }
        let how = How { relation: Relation::Same, all, with_unbindable: false, locks: false };
        Tree::copy(&before, from, &how).map(|(tree, _)| tree)
    }

    /// Another namespace with the same mounts, and where they are in it. `locks`: it has another owner, who must not uncover what they
    /// cover, and whose mounts show nowhere else.
    pub fn copy(&self, owner: Owner, locks: bool) -> Result<(Namespace, Copies)> {
        let relation = if locks { Relation::Receiver } else { Relation::Same };
        let how = How { relation, all: true, with_unbindable: true, locks };
        let (tree, copies) = Tree::copy(&self.snapshot()?, &self.root(), &how)?;
        Ok((Namespace::with(tree, owner, locks), copies))
    }

    /// The mounts become some of this namespace, the first of them covers a directory of it, or a file if it is one. So do copies in
    /// all mounts that receive from the one it is mounted on.
    fn attach(&self, point: &Arc<Dentry>, new: Tree) -> Result<Arc<Dentry>> {
        if new.mounts()[0].root.is_directory() != point.is_directory() {
            return Err(ENOTDIR);
        }
        let root = new.mounts()[0].root.clone();
        if is_gone(point) || is_gone(&root) {
            return Err(ENOENT);
        }
        let copies = self.table.copies_for_receivers(point, new.mounts())?;
        if !self.has(point.mount()) {
            return Err(EINVAL);
        }
        // All of it shows, or nothing.
        self.table.make_room(new.mounts().len(), &copies)?;
        self.table.insert(point, new);
        copies.into_iter().for_each(Copy::insert);
        mounts_changed();
        Ok(root)
    }

    /// Changes the flags of the mount a dentry belongs to (MS_REMOUNT with MS_BIND). `EPERM` where those are locked.
    pub fn remount(&self, at: &Arc<Dentry>, flags: MountFlags) -> Result<()> {
        self.check_remount(at, flags)?;
        at.mount().set_flags(flags);
        mounts_changed();
        Ok(())
    }

    /// Whether [`Namespace::remount`] would.
    pub fn check_remount(&self, at: &Arc<Dentry>, flags: MountFlags) -> Result<()> {
        if self.is_mount_root(at) { at.mount().check_change(flags) } else { Err(EINVAL) }
    }

    /// Takes the mount whose root is `at` to another place, with what is mounted below it (MS_MOVE). `EINVAL` when it is no mount
    /// root or the first mount, and between a directory and something else; `ELOOP` for a place below itself.
    pub fn move_mount(&self, at: &Arc<Dentry>, to: &Arc<Dentry>) -> Result<()> {
        let to = self.point(to)?;
        if let Some(table) = at.mount().table().filter(|table| table.is_detached) {
            return self.attach_detached(&table, at, &to);
        }
        let is_free = self.is_mount_root(at) && !at.mount().is_locked();
        let point = at.mount().point().filter(|_| is_free).ok_or(EINVAL)?;
        if to.is_directory() != at.is_directory() {
            return Err(EINVAL);
        }
        if is_gone(&to) || is_gone(at) {
            return Err(ENOENT);
        }
        // Those that show what is mounted there would have to lose it.
        if point.mount().propagation().peers.is_some() {
            return Err(EINVAL);
        }
        let moved = self.table.tree_of(at.mount())?;
        check_unbindable(&moved, &to)?;
        if is_reachable(&to, at) {
            return Err(ELOOP);
        }
        let copies = self.table.copies_for_receivers(&to, &moved)?;
        // The copies' places were looked up, during which others may have moved or unmounted what was found here.
        let is_there = at.mount().point().is_some_and(|now| Arc::ptr_eq(&now, &point));
        if !is_there || !self.has(to.mount()) || to.is_mount_point() || is_reachable(&to, at) {
            return Err(EINVAL);
        }
        self.table.make_room(0, &copies)?;
        point.set_cover(None);
        at.mount().set_point(Some(to.clone()));
        to.set_cover(Some(at.clone()));
        copies.into_iter().for_each(Copy::insert);
        mounts_changed();
        Ok(())
    }

    /// Mounts what a descriptor keeps, from its root on (move_mount(2)).
    fn attach_detached(&self, from: &Arc<Table>, at: &Arc<Dentry>, to: &Arc<Dentry>) -> Result<()> {
        let is_first = at.mount().point().is_none() && is_root(at) && !at.mount().is_locked();
        if !is_first || to.is_directory() != at.is_directory() {
            return Err(EINVAL);
        }
        if is_gone(to) {
            return Err(ENOENT);
        }
        let moved = from.tree_of(at.mount())?;
        check_unbindable(&moved, to)?;
        let copies = self.table.copies_for_receivers(to, &moved)?;
        // As of a move: others may have mounted it, or unmounted the place, meanwhile.
        let is_there = at.mount().table().is_some_and(|now| Arc::ptr_eq(&now, from));
        if !is_there || !self.has(to.mount()) || to.is_mount_point() {
            return Err(EINVAL);
        }
        self.table.make_room(moved.len(), &copies)?;
        let mounts = core::mem::take(&mut *from.mounts.lock());
        self.table.insert_mounts(to, mounts);
        copies.into_iter().for_each(Copy::insert);
        mounts_changed();
        Ok(())
    }

    /// How the mount whose root is `at` takes part in what others show, and with `all` those below it, too. `EINVAL` when it is no mount
    /// root.
    pub fn change_propagation(&self, at: &Arc<Dentry>, kind: Kind, all: bool) -> Result<()> {
        if !self.is_mount_root(at) {
            return Err(EINVAL);
        }
        if !all {
            propagation::change(at.mount(), kind)?;
        } else {
            for mounted in self.table.tree_of(at.mount())? {
                propagation::change(&mounted.mount, kind)?;
            }
        }
        mounts_changed();
        Ok(())
    }

    /// pivot_root(2): `new` takes the place of the mount whose root is `root`, which goes to `put_old`.
    pub fn pivot(&self, root: &Arc<Dentry>, new: &Arc<Dentry>, put_old: &Arc<Dentry>) -> Result<()> {
        if ![root, new, put_old].iter().all(|place| self.has(place.mount())) {
            return Err(EINVAL);
        }
        if new.is_unlinked() || put_old.is_unlinked() {
            return Err(ENOENT);
        }
        if [new, put_old].iter().any(|place| Arc::ptr_eq(place.mount(), root.mount())) {
            return Err(EBUSY);
        }
        let is_below = is_reachable(put_old, new) && is_reachable(new, root);
        if !self.is_mount_root(root) || !self.is_mount_root(new) || !is_below || new.mount().is_locked() {
            return Err(EINVAL);
        }
        let point = new.mount().point().ok_or(EINVAL)?;
        let above = root.mount().point();
        let is_shown = |mount: &Mount| mount.propagation().peers.is_some();
        if is_shown(put_old.mount()) || is_shown(point.mount()) || above.is_some_and(|p| is_shown(p.mount()))
        {
            return Err(EINVAL);
        }
        point.set_cover(None);
        // The new root stays where the old one was to stay.
        new.mount().set_locked(root.mount().is_locked());
        root.mount().set_locked(false);
        let above = root.mount().set_point(Some(put_old.clone()));
        if let Some(above) = &above {
            above.set_cover(Some(new.clone()));
        }
        new.mount().set_point(above);
        put_old.set_cover(Some(root.clone()));
        {
            let mut first = self.root.lock();
            if Arc::ptr_eq(&first, root) {
                *first = new.clone();
            }
        }
        mounts_changed();
        Ok(())
    }

    fn has(&self, mount: &Arc<Mount>) -> bool {
        self.table.is_of(mount)
    }

    /// Something of this namespace is mounted here, and this is its root.
    pub fn is_mount_root(&self, dentry: &Arc<Dentry>) -> bool {
        self.has(dentry.mount()) && is_root(dentry)
    }

    /// MNT_EXPIRE: the mount whose root is `at` goes when this is asked for again, unless somebody uses it meanwhile (`EAGAIN`). `EBUSY`
    /// where it is in use.
    pub fn expire(&self, at: &Arc<Dentry>) -> Result<()> {
        let mount = at.mount();
        if !self.is_mount_root(at) || mount.point().is_none() || mount.is_locked() {
            return Err(EINVAL);
        }
        if mount.mounts_on_it() > 0 || is_busy(mount, at) {
            return Err(EBUSY);
        }
        if mount.expire() { self.unmount(at, false) } else { Err(EAGAIN) }
    }

    /// Takes the mount whose root is `at` away. `EINVAL` when it is no mount root or the first mount, `EBUSY` when
    /// something is mounted below or a file of it is in use; if `lazy`, what is mounted below goes, too, and what is in use
    /// stays until it is not. What receivers of the place show there goes as well, unless something is mounted on it.
    pub fn unmount(&self, at: &Arc<Dentry>, lazy: bool) -> Result<()> {
        let point = at.mount().point().filter(|_| self.is_mount_root(at) && !at.mount().is_locked());
        let point = point.ok_or(EINVAL)?;
        let mount = at.mount().clone();
        if !lazy && (mount.mounts_on_it() > 0 || is_busy(&mount, at)) {
            return Err(EBUSY);
        }
        let (mut shown, mut looked_at) = (Vec::new(), 0);
        if lazy {
            // What is on others first, so that these are free.
            for mounted in self.table.tree_of(&mount)?.iter().rev() {
                if let Some(point) = mounted.mount.point() {
                    shown_by_receivers(&point, &mut shown, &mut looked_at)?;
                }
            }
        } else {
            shown_by_receivers(&point, &mut shown, &mut looked_at)?;
            for Shown { root, .. } in &shown {
                if root.mount().mounts_on_it() == 0 && is_busy(&root.mount().clone(), root) {
                    return Err(EBUSY);
                }
            }
        }
        // What is in use stays, and its watches with it.
        let is_unused = notify::is_watched() && !is_busy(&mount, at);
        self.table.detach(&mount);
        shown.iter().for_each(|shown| shown.table.detach_from_below(&shown.root));
        drop(shown);
        if is_unused && Arc::strong_count(mount.super_block()) == 1 {
            notify::unmounted(at.inode().stat()?.device);
        }
        mounts_changed();
        Ok(())
    }

    /// Nobody uses the tree any more: mounts let go of each other, which would be there for ever otherwise. What is mounted is not
    /// listed from here on.
    pub fn take_apart(&self) {
        self.table.take_apart();
        mounts_changed();
    }

    fn snapshot(&self) -> Result<Vec<Mounted>> {
        self.table.snapshot()
    }

    /// Every mount with its root, in the order they were mounted.
    pub fn list(&self) -> Vec<(Arc<Mount>, Arc<Dentry>)> {
        self.table.mounts.lock().iter().map(|m| (m.mount.clone(), m.root.clone())).collect()
    }
}

/// Copies that become mounts of a namespace.
struct Copy {
    table: Arc<Table>,
    point: Arc<Dentry>,
    tree: Tree,
}

impl Copy {
    /// Where the receiver is mounted no more it is dropped.
    fn insert(self) {
        if self.table.is_of(self.point.mount()) {
            self.table.insert(&self.point, self.tree);
        }
    }
}

/// What a receiver shows at a place.
struct Shown {
    table: Arc<Table>,
    root: Arc<Dentry>,
}

impl Table {
    pub(crate) fn of(tree: Tree, owner: Owner, locks: bool, is_detached: bool) -> Arc<Table> {
        let table = Arc::new(Table { mounts: SpinLock::default(), locks, owner, is_detached });
        tree.mounts().iter().for_each(|mounted| mounted.mount.set_table(&table));
        *table.mounts.lock() = tree.take();
        table
    }

    /// Mounts let go of each other.
    pub(crate) fn take_apart(&self) {
        let mounts = core::mem::take(&mut *self.mounts.lock());
        for Mounted { mount, .. } in mounts.iter().rev() {
            mount.let_go();
        }
    }

    fn is_of(self: &Arc<Table>, mount: &Mount) -> bool {
        mount.table().is_some_and(|table| Arc::ptr_eq(&table, self))
    }

    pub(crate) fn snapshot(&self) -> Result<Vec<Mounted>> {
        let mut copy = Vec::new();
        copy.reserve_exact_fallibly(self.mounts.lock().len()).map_err(|_| ENOMEM)?;
        copy.extend(self.mounts.lock().iter().cloned());
        Ok(copy)
    }

    /// The mount and all below it, each behind the one that it is mounted on.
    pub(crate) fn tree_of(&self, mount: &Arc<Mount>) -> Result<Vec<Mounted>> {
        let mut on: Map<u32, Vec<Mounted>> = Map::new();
        let mut found = Vec::new();
        let all = self.snapshot()?;
        found.reserve_exact_fallibly(all.len()).map_err(|_| ENOMEM)?;
        for mounted in all {
            if Arc::ptr_eq(&mounted.mount, mount) {
                found.push(mounted);
            } else if let Some(point) = mounted.mount.point() {
                let list = on.entry(point.mount().id()).or_default();
                list.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                list.push(mounted);
            }
        }
        let mut next = 0;
        while let Some(id) = found.get(next).map(|mounted: &Mounted| mounted.mount.id()) {
            found.extend(on.remove(&id).into_iter().flatten());
            next += 1;
        }
        Ok(found)
    }

    /// Room for so many mounts here, and for the copies where they go: `ENOSPC` where there are too many, `ENOMEM`.
    fn make_room(&self, count: usize, copies: &[Copy]) -> Result<()> {
        let reserve = |table: &Table, count: usize| {
            let mut mounts = table.mounts.lock();
            if mounts.len() + count > MAX_MOUNTS {
                return Err(ENOSPC);
            }
            mounts.reserve_fallibly(count).map_err(|_| ENOMEM)
        };
        let key = |table: &Table| core::ptr::from_ref(table) as usize;
        let mut counts: Map<usize, usize> = Map::new();
        for copy in copies {
            let more = copy.tree.mounts().len() + counts.get(&key(&copy.table)).copied().unwrap_or(0);
            counts.insert_fallibly(key(&copy.table), more).map_err(|_| ENOMEM)?;
        }
        reserve(self, count + counts.remove(&key(self)).unwrap_or(0))?;
        let mut others = copies.iter();
        others
            .try_for_each(|copy| counts.remove(&key(&copy.table)).map_or(Ok(()), |n| reserve(&copy.table, n)))
    }

    /// There is room ([`Table::make_room`]), and the place is of this namespace.
    fn insert(self: &Arc<Table>, point: &Arc<Dentry>, tree: Tree) {
        self.insert_mounts(point, tree.take());
    }

    /// The same for mounts of which the first one covers the place, and the others are below it.
    fn insert_mounts(self: &Arc<Table>, point: &Arc<Dentry>, mounts: Vec<Mounted>) {
        mounts.iter().for_each(|mounted| mounted.mount.set_table(self));
        mounts.iter().take(1).for_each(|first| first.cover(point));
        self.mounts.lock().extend(mounts);
    }

    /// Copies of mounts that are about to be mounted there, for whoever receives from that place. The mounts are in peer groups from then
    /// on if that is.
    fn copies_for_receivers(self: &Arc<Table>, point: &Arc<Dentry>, new: &[Mounted]) -> Result<Vec<Copy>> {
        let mut copies: Vec<Copy> = Vec::new();
        if point.mount().propagation().peers.is_none() {
            return Ok(copies);
        }
        if new.iter().any(|mounted| mounted.mount.keeps_mounts()) {
            return Err(EINVAL);
        }
        let receivers = propagation::receivers(point.mount())?;
        for mounted in new {
            propagation::change(&mounted.mount, Kind::Shared)?;
        }
        let path = point.path_in_file_system();
        // Which copy the members of each group have theirs from; of the first group it is the original.
        let mut sources: Vec<Option<usize>> = Vec::new();
        sources.reserve_exact_fallibly(receivers.visits.len()).map_err(|_| ENOMEM)?;
        sources.resize(receivers.visits.len(), None);
        let mut made = 0;
        for receiver in receivers.all {
            // Mounts that are new themselves are of no namespace yet.
            let Some(table) = receiver.mount.table() else { continue };
            let Some(point) = receiver.mount.place_of(&path, point.inode()) else { continue };
            let is_first = receiver.visit == 0 || sources[receiver.visit].is_some();
            let relation = match (receiver.is_peer, is_first) {
                (true, true) => Relation::Same,
                (true, false) => Relation::SharedReceiver,
                (false, _) => Relation::Receiver,
            };
            // The nearest group above with a copy that it can be made of.
            let mut visit = receiver.visit;
            let source = loop {
                match (sources[visit], receivers.visits[visit].from) {
                    (Some(copy), _) => break copies[copy].tree.mounts(),
                    (None, Some(above)) => visit = above,
                    (None, None) => break new,
                }
            };
            let locks = table.locks && !self.locks;
            let how = How { relation, all: true, with_unbindable: true, locks };
            let (tree, _) = Tree::copy(source, &source[0].root, &how)?;
            made += tree.mounts().len();
            if table.mounts.lock().len() + made > MAX_MOUNTS {
                return Err(ENOSPC);
            }
            copies.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            copies.push(Copy { table, point, tree });
            if receiver.is_peer && receiver.visit > 0 && sources[receiver.visit].is_none() {
                sources[receiver.visit] = Some(copies.len() - 1);
            }
        }
        Ok(copies)
    }

    /// Takes a mount away with all that is mounted below it. What is open of them stays, and leads nowhere else.
    fn detach(&self, mount: &Arc<Mount>) {
        let mut gone = alloc::vec![mount.clone()];
        let mut next = 0;
        while let Some(mount) = gone.get(next).cloned() {
            next += 1;
            let taken = {
                let mut mounts = self.mounts.lock();
                // A mount that nothing is on needs no search.
                let others = if mount.mounts_on_it() > 0 { &mounts[..] } else { &[] };
                for on_it in others.iter().filter(|m| !Arc::ptr_eq(&m.mount, &mount)) {
                    if on_it.mount.point().is_some_and(|point| Arc::ptr_eq(point.mount(), &mount)) {
                        gone.push(on_it.mount.clone());
                    }
                }
                let index = mounts.iter().position(|m| Arc::ptr_eq(&m.mount, &mount));
                index.map(|index| mounts.remove(index))
            };
            mount.let_go();
            drop(taken);
        }
    }

    /// As [`Table::detach`] for a mount that only what covers it wholly may be on: that takes its place. With others it stays.
    fn detach_from_below(&self, root: &Arc<Dentry>) {
        let mount = root.mount();
        if let (Some(above), Some(place), 1) = (root.cover(), mount.point(), mount.mounts_on_it()) {
            root.set_cover(None);
            above.mount().set_point(Some(place.clone()));
            self.detach(mount);
            place.set_cover(Some(above));
        } else if mount.mounts_on_it() == 0 {
            self.detach(mount);
        }
    }
}

/// It is the root of its mount.
pub(crate) fn is_root(place: &Arc<Dentry>) -> bool {
    place.mount().root().is_some_and(|root| Arc::ptr_eq(&root, place))
}

/// A locked mount is below that place, whose cover is to stay.
pub(crate) fn has_locked_below(mounts: &[Mounted], place: &Arc<Dentry>) -> bool {
    mounts
        .iter()
        .any(|m| m.mount.is_locked() && m.mount.point().is_some_and(|point| place.is_ancestor_of(&point)))
}

/// `EINVAL` where mounts that cannot be bound come to be on one that is shared.
fn check_unbindable(moved: &[Mounted], to: &Arc<Dentry>) -> Result<()> {
    let is_unbindable = |m: &Mounted| m.mount.propagation().is_unbindable;
    let is_shown = to.mount().propagation().peers.is_some();
    if is_shown && moved.iter().any(is_unbindable) { Err(EINVAL) } else { Ok(()) }
}

/// The place it covers is no more: the mount goes, with all below it.
pub(crate) fn take_away(mount: &Arc<Mount>) {
    if let Some(table) = mount.table() {
        table.detach(mount);
        mounts_changed();
    }
}

/// Its name was removed; that of a mount's root, which has none here, in another mount.
fn is_gone(place: &Arc<Dentry>) -> bool {
    let is_removed_directory =
        || place.is_directory() && place.inode().stat().is_ok_and(|stat| stat.links == 0);
    place.is_unlinked() || place.parent().is_none() && is_removed_directory()
}

/// What receivers of a place show there. `ENOSPC` where one call has too many to look at.
fn shown_by_receivers(point: &Arc<Dentry>, shown: &mut Vec<Shown>, looked_at: &mut usize) -> Result<()> {
    let path = point.path_in_file_system();
    let receivers = propagation::receivers(point.mount())?.all;
    *looked_at += receivers.len();
    if *looked_at > MAX_LOOKED_AT {
        return Err(ENOSPC);
    }
    for receiver in receivers {
        let place = receiver.mount.place_of(&path, point.inode());
        let found =
            place.and_then(|place| place.cover()).and_then(|root| Some((root.mount().table()?, root)));
        if let Some((table, root)) = found {
            shown.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            shown.push(Shown { table, root });
        }
    }
    Ok(())
}

/// Handles to the mount: the table's, the root dentry's, the caller's. Each dentry in use has one more. The root dentry itself: the
/// table's, the cover's, the caller's.
fn is_busy(mount: &Arc<Mount>, root: &Arc<Dentry>) -> bool {
    mount.clear_cache();
    Arc::strong_count(mount) > 3 || Arc::strong_count(root) > 3
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.take_apart();
    }
}

/// True when the way up from `place` comes to `top`, mounts included.
fn is_reachable(place: &Arc<Dentry>, top: &Arc<Dentry>) -> bool {
    let mut at = place.clone();
    loop {
        if Arc::ptr_eq(&at, top) {
            return true;
        }
        let Some(above) = at.parent().or_else(|| at.mount().point()) else { return false };
        at = above;
    }
}
