// SPDX-License-Identifier: Apache-2.0 OR MIT
//! F_SETLEASE of fcntl(2): the holder of a lease is told by a signal before somebody opens or truncates its file, who waits until the
//! lease is given back, or taken away after /proc/sys/fs/lease-break-time.

use crate::async_io;
use abi::setting::Setting;
use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Inode};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use descriptors::{Description, OwnerKind, Watcher, writers};
use ordered::{Map, Set};
use task::pids::Pid;
use task::{files, processes, wait};
use vfs::Capability;

const O_ACCMODE: u32 = 0o3;
const O_NONBLOCK: u32 = 0o4000;
const O_TRUNC: u32 = 0o1000;
/// `si_code` of SIGIO: there is a message.
const POLL_MSG: i32 = 3;
const EPOLLMSG: Events = Events(0x400);
const NS_PER_SECOND: u64 = 1_000_000_000;

/// /proc/sys/fs/lease-break-time, in seconds.
pub static BREAK_TIME: [Setting; 1] = [Setting::new(45, 0, i32::MAX as u64)];

/// What a lease is, with the numbers of fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read = 0,
    Write = 1,
    None = 2,
}

impl Kind {
    /// `EINVAL` for other numbers.
    pub fn of(number: u64) -> Result<Kind> {
        [Kind::Read, Kind::Write, Kind::None].into_iter().find(|kind| *kind as u64 == number).ok_or(EINVAL)
    }
}

/// What one description has.
struct Lease {
    description: Weak<Description>,
    /// [`Description::id`].
    id: usize,
    /// Who took it.
    pid: Pid,
    fd: i32,
    kind: Kind,
    /// What it is to become: somebody opens the file.
    broken_to: Option<Kind>,
    /// When it becomes that without its holder (monotonic).
    until_ns: u64,
    /// Kept for the description, which has a weak reference.
    _watcher: Arc<dyn Watcher>,
}

impl Lease {
    /// Whether it is in the way of an open for reading, or with `writes` for writing.
    fn is_in_the_way(&self, writes: bool) -> bool {
        writes || self.kind == Kind::Write
    }
}

/// The leases of one file.
struct FileLeases {
    /// Keeps the inode's address from being used again.
    inode: Arc<dyn Inode>,
    held: SpinLock<Vec<Lease>>,
    /// Woken when a lease is given back.
    queue: WaitQueue,
}

/// By the inode's address.
static FILES: SpinLock<Map<usize, Arc<FileLeases>>> = SpinLock::new(Map::new());
/// How many files have leases: without any, open(2) looks no further.
static LEASED: AtomicUsize = AtomicUsize::new(0);

fn key(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

fn existing(inode: &Arc<dyn Inode>) -> Option<Arc<FileLeases>> {
    FILES.lock().get(&key(inode)).cloned()
}

/// Forgets a file that has no leases left.
fn tidy(leases: &FileLeases) {
    let mut files = FILES.lock();
    if leases.held.lock().is_empty()
        && let Some(gone) = files.remove(&key(&leases.inode))
    {
        LEASED.fetch_sub(1, Relaxed);
        drop(files);
        drop(gone);
    }
}

/// Gives leases back when their description is closed.
struct Closed;

impl Watcher for Closed {
    fn closed(&self, description: usize) {
        let found =
            |leases: &&Arc<FileLeases>| leases.held.lock().iter().any(|lease| lease.id == description);
        let leases = FILES.lock().values().find(found).cloned();
        if let Some(leases) = leases {
            leases.held.lock().retain(|lease| lease.id != description);
            leases.queue.wake_all(Events::ALL);
            tidy(&leases);
        }
    }
}

/// A lease as /proc/locks shows it.
pub struct Listed {
    pub inode: Arc<dyn Inode>,
    pub pid: Pid,
    /// What it is, or is to become.
    pub kind: Kind,
    pub is_breaking: bool,
}

/// All leases that are held; `ENOMEM` where there are more than can be listed.
pub fn all() -> Result<Vec<Listed>> {
    let mut files: Vec<Arc<FileLeases>> = Vec::new();
    for leases in FILES.lock().values() {
        files.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        files.push(leases.clone());
    }
    let mut out = Vec::new();
    for file in &files {
        for lease in file.held.lock().iter() {
            let (inode, pid) = (file.inode.clone(), lease.pid);
            let kind = lease.broken_to.unwrap_or(lease.kind);
            let is_breaking = lease.broken_to.is_some();
            out.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            out.push(Listed { inode, pid, kind, is_breaking });
        }
    }
    Ok(out)
}

/// How many open file descriptions may read, but not write to the file.
fn readers(inode: &Arc<dyn Inode>) -> usize {
    let mut seen = Set::new();
    for process in processes::all() {
        let _ = process.each_files(|files| {
            let descriptors = &files.descriptors;
            let mut next = descriptors.next_open(0);
            while let Some(fd) = next {
                if let Ok(description) = descriptors.get(fd)
                    && !description.may_write()
                    && description.inode().is_some_and(|other| Arc::ptr_eq(other, inode))
                {
                    seen.insert(description.id());
                }
                next = descriptors.next_open(fd as u32 + 1);
            }
            Ok(())
        });
    }
    seen.len()
}

/// F_GETLEASE: what the description has, or will have once the lease is broken.
pub fn get(description: &Description) -> Kind {
    let Some(leases) = description.inode().and_then(existing) else { return Kind::None };
    let held = leases.held.lock();
    let own = held.iter().find(|lease| lease.id == description.id());
    own.map_or(Kind::None, |lease| lease.broken_to.unwrap_or(lease.kind))
}

/// F_SETLEASE.
pub fn set(fd: i32, description: &Arc<Description>, kind: Kind) -> Result<usize> {
    let inode = description.inode().ok_or(EINVAL)?;
    let stat = description.file().stat()?;
    let who = files::credentials();
    if who.uid != stat.uid && !who.has(Capability::Lease) {
        return Err(EACCES);
    }
    if stat.kind != FileType::Regular {
        return Err(EINVAL);
    }
    match kind {
        Kind::None => give_back(inode, description.id()),
        _ => take(fd, description, inode, kind),
    }
}

fn give_back(inode: &Arc<dyn Inode>, id: usize) -> Result<usize> {
    let leases = existing(inode).ok_or(EAGAIN)?;
    let had = {
        let mut held = leases.held.lock();
        let before = held.len();
        held.retain(|lease| lease.id != id);
        before != held.len()
    };
    leases.queue.wake_all(Events::ALL);
    tidy(&leases);
    if had { Ok(0) } else { Err(EAGAIN) }
}

fn take(fd: i32, description: &Arc<Description>, inode: &Arc<dyn Inode>, kind: Kind) -> Result<usize> {
    // Nobody else may have the file open in a way that would break the lease (Linux' `check_conflicting_open`).
    let writers = writers::count(inode);
    if kind == Kind::Read && writers > 0 {
        return Err(EAGAIN);
    }
    let (own_writers, own_readers) = if description.may_write() { (1, 0) } else { (0, 1) };
    if kind == Kind::Write && (writers != own_writers || readers(inode) != own_readers) {
        return Err(EAGAIN);
    }
    let watcher: Arc<dyn Watcher> = Arc::new(Closed);
    let leases = {
        let mut files = FILES.lock();
        let new =
            || FileLeases { inode: inode.clone(), held: SpinLock::new(Vec::new()), queue: WaitQueue::new() };
        files
            .entry(key(inode))
            .or_insert_with(|| {
                LEASED.fetch_add(1, Relaxed);
                Arc::new(new())
            })
            .clone()
    };
    let taken = description.watch(&watcher).and_then(|()| add(&leases, description, fd, kind, watcher));
    if taken.is_err() {
        tidy(&leases);
        return taken;
    }
    if description.owned().id == 0 {
        description.set_owned(async_io::owned(OwnerKind::Process, task::current().process.pid));
    }
    leases.queue.wake_all(Events::ALL);
    taken
}

fn add(
    leases: &FileLeases,
    description: &Arc<Description>,
    fd: i32,
    kind: Kind,
    watcher: Arc<dyn Watcher>,
) -> Result<usize> {
    let mut held = leases.held.lock();
    let id = description.id();
    let conflicts = |lease: &Lease| kind == Kind::Write || lease.broken_to == Some(Kind::None);
    if held.iter().any(|lease| lease.id != id && conflicts(lease)) {
        return Err(EAGAIN);
    }
    match held.iter_mut().find(|lease| lease.id == id) {
        // Whoever asks for a weaker one does what somebody who opens the file waits for.
        Some(own) => (own.kind, own.broken_to, own.fd) = (kind, None, fd),
        None => {
            held.reserve_fallibly(1).map_err(|_| ENOLCK)?;
            let description = Arc::downgrade(description);
            let until_ns = wait::FOREVER;
            let (pid, broken_to) = (task::current().process.pid, None);
            held.push(Lease { description, id, pid, fd, kind, broken_to, until_ns, _watcher: watcher });
        }
    }
    Ok(0)
}

/// Somebody is about to open the file with `flags`, or to truncate it: leases that are in the way are broken, which the caller waits
/// for unless with O_NONBLOCK, which is `EAGAIN`.
#[inline]
pub fn break_for(inode: &Arc<dyn Inode>, flags: u32) -> Result<()> {
    if LEASED.load(Relaxed) == 0 { Ok(()) } else { break_leases(inode, flags) }
}

#[cold]
fn break_leases(inode: &Arc<dyn Inode>, flags: u32) -> Result<()> {
    let Some(leases) = existing(inode) else { return Ok(()) };
    let writes = flags & O_ACCMODE != 0 || flags & O_TRUNC != 0;
    loop {
        let until_ns = match leases.tell_holders(writes)? {
            None => return Ok(()),
            Some(_) if flags & O_NONBLOCK != 0 => return Err(EAGAIN),
            Some(until_ns) => until_ns,
        };
        let is_free = || if leases.is_in_the_way(writes) { Err(EAGAIN) } else { Ok(()) };
        match wait::on_queue(&leases.queue, Events::ALL, until_ns, is_free) {
            Err(EAGAIN) => leases.take_away(api_plat::now_ns()),
            done => done?,
        }
        tidy(&leases);
    }
}

impl FileLeases {
    fn is_in_the_way(&self, writes: bool) -> bool {
        self.held.lock().iter().any(|lease| lease.is_in_the_way(writes))
    }

    /// Signals to the holders of leases that are in the way and were not told before: when the first of these leases is taken away.
    /// `None` when nothing is in the way.
    fn tell_holders(&self, writes: bool) -> Result<Option<u64>> {
        let target = if writes { Kind::None } else { Kind::Read };
        let mut told = Vec::new();
        let mut first = None;
        {
            let mut held = self.held.lock();
            told.reserve_fallibly(held.len()).map_err(|_| ENOMEM)?;
            let until_ns =
                api_plat::now_ns().saturating_add(BREAK_TIME[0].get().saturating_mul(NS_PER_SECOND));
            for lease in held.iter_mut().filter(|lease| lease.is_in_the_way(writes)) {
                if lease.broken_to.is_none() || writes && lease.broken_to != Some(Kind::None) {
                    lease.broken_to = Some(target);
                    // 0 means that a holder has all the time it wants (Linux' `break_time`).
                    lease.until_ns = if BREAK_TIME[0].get() == 0 { wait::FOREVER } else { until_ns };
                    told.push((lease.description.clone(), lease.fd));
                }
                first = Some(first.map_or(lease.until_ns, |first: u64| first.min(lease.until_ns)));
            }
        }
        for (description, fd) in told {
            if let Some(description) = description.upgrade() {
                async_io::send(&description, fd, POLL_MSG, Events::READABLE | EPOLLMSG);
            }
        }
        Ok(first)
    }

    /// Leases whose time is over become what they were broken to.
    fn take_away(&self, now_ns: u64) {
        let mut held = self.held.lock();
        for lease in held.iter_mut().filter(|lease| lease.until_ns <= now_ns) {
            if let Some(kind) = lease.broken_to.take() {
                lease.kind = kind;
            }
            lease.until_ns = wait::FOREVER;
        }
        held.retain(|lease| lease.kind != Kind::None);
        drop(held);
        self.queue.wake_all(Events::ALL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_for_reading_is_in_the_way_of_writers_alone() {
        let lease = |kind| Lease {
            pid: Pid::FIRST,
            description: Weak::new(),
            id: 1,
            fd: 0,
            kind,
            broken_to: None,
            until_ns: 0,
            _watcher: Arc::new(Closed),
        };
        assert!(lease(Kind::Read).is_in_the_way(true));
        assert!(!lease(Kind::Read).is_in_the_way(false));
        assert!(lease(Kind::Write).is_in_the_way(false));
        assert_eq!(Kind::of(3), Err(EINVAL));
    }
}
