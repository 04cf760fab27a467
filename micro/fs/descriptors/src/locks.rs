// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Advisory locks: the record locks of fcntl (of a process: F_SETLK; of an open file description: F_OFD_SETLK) and
//! flock. They hold inside this machine.
//!
//! A request that conflicts answers `EAGAIN`; whoever wants to wait uses [`queue`].

use crate::Description;
use abi::{Events, Result, errno::EAGAIN};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Inode;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use ordered::Map;

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Process(i32),
    /// [`Description::id`].
    Description(usize),
}

/// One record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub start: u64,
    /// First byte behind it; `u64::MAX` means to the end of the file, however far that moves.
    pub end: u64,
    pub exclusive: bool,
    pub owner: Owner,
}

impl Lock {
    fn overlaps(&self, other: &Lock) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn conflicts(&self, other: &Lock) -> bool {
        self.owner != other.owner && (self.exclusive || other.exclusive) && self.overlaps(other)
    }
}

#[derive(Default)]
struct Held {
    records: Vec<Lock>,
    /// flock: whole files, by description; independent of record locks.
    flocks: Vec<Lock>,
}

/// The locks of one file.
pub struct FileLocks {
    /// Keeps the inode's address from being reused.
    inode: Arc<dyn Inode>,
    held: SpinLock<Held>,
    /// Woken when a lock is given back.
    pub queue: WaitQueue,
}

static FILES: SpinLock<Map<usize, Arc<FileLocks>>> = SpinLock::new(Map::new());

fn key(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

fn existing(inode: &Arc<dyn Inode>) -> Option<Arc<FileLocks>> {
    FILES.lock().get(&key(inode)).cloned()
}

/// The locks of a file, made when there are none yet.
pub fn of(inode: &Arc<dyn Inode>) -> Arc<FileLocks> {
    let new = || FileLocks { inode: inode.clone(), held: SpinLock::default(), queue: WaitQueue::new() };
    FILES.lock().entry(key(inode)).or_insert_with(|| Arc::new(new())).clone()
}

/// One line of /proc/locks.
pub struct Listed {
    pub inode: Arc<dyn Inode>,
    pub lock: Lock,
    /// flock's, not a record lock.
    pub whole: bool,
}

/// All locks that are held.
pub fn all() -> Vec<Listed> {
    let files: Vec<Arc<FileLocks>> = FILES.lock().values().cloned().collect();
    let mut out = Vec::new();
    for file in &files {
        let held = file.held.lock();
        let records = held.records.iter().map(|lock| (*lock, false));
        let flocks = held.flocks.iter().map(|lock| (*lock, true));
        let listed = |(lock, whole)| Listed { inode: file.inode.clone(), lock, whole };
        out.extend(records.chain(flocks).map(listed));
    }
    out
}

/// Forgets files without locks and without waiters.
fn tidy(locks: Arc<FileLocks>) {
    let mut files = FILES.lock();
    let idle = {
        let held = locks.held.lock();
        held.records.is_empty() && held.flocks.is_empty() && locks.queue.is_empty()
    };
    // The table's handle and ours.
    if idle && Arc::strong_count(&locks) <= 2 {
        let gone = files.remove(&key(&locks.inode));
        drop(files);
        drop(gone);
    }
}

/// The file of that inode was closed by a process: all its record locks go, whatever descriptor took them.
pub fn process_closed(inode: &Arc<dyn Inode>, pid: i32) {
    release(inode, Owner::Process(pid), false);
}

/// A description was closed for good: its locks and its flock go.
pub fn description_closed(inode: &Arc<dyn Inode>, id: usize) {
    release(inode, Owner::Description(id), true);
}

fn release(inode: &Arc<dyn Inode>, owner: Owner, flock: bool) {
    let Some(locks) = existing(inode) else { return };
    let gave = {
        let mut held = locks.held.lock();
        let before = held.records.len() + held.flocks.len();
        held.records.retain(|l| l.owner != owner);
        if flock {
            held.flocks.retain(|l| l.owner != owner);
        }
        before != held.records.len() + held.flocks.len()
    };
    if gave {
        locks.queue.wake_all(Events::ALL);
    }
    tidy(locks);
}

impl FileLocks {
    /// F_GETLK: a lock that stands in the way of `wanted`.
    pub fn obstacle(&self, wanted: &Lock) -> Option<Lock> {
        self.held.lock().records.iter().find(|l| l.conflicts(wanted)).copied()
    }

    /// F_SETLK: takes the lock (or changes what the owner has there); `EAGAIN` when another's is in the way.
    pub fn set(&self, wanted: Lock, description: &Description) -> Result<()> {
        let mut held = self.held.lock();
        if held.records.iter().any(|l| l.conflicts(&wanted)) {
            return Err(EAGAIN);
        }
        let downgrades = carve(&mut held.records, &wanted);
        held.records.push(wanted);
        merge(&mut held.records, wanted.owner, wanted.exclusive);
        drop(held);
        description.note_locks();
        if downgrades {
            self.queue.wake_all(Events::ALL);
        }
        Ok(())
    }

    /// F_SETLK with F_UNLCK.
    pub fn clear(&self, range: Lock) {
        if carve(&mut self.held.lock().records, &range) {
            self.queue.wake_all(Events::ALL);
        }
    }

    /// flock(2): shared or exclusive; `EAGAIN` when another description's is in the way. Changing the kind gives
    /// the old lock up first, as flock(2) says.
    pub fn flock(&self, id: usize, exclusive: bool, description: &Description) -> Result<()> {
        let owner = Owner::Description(id);
        let wanted = Lock { start: 0, end: u64::MAX, exclusive, owner };
        let (result, gave) = {
            let mut held = self.held.lock();
            if held.flocks.iter().any(|l| l.owner == owner && l.exclusive == exclusive) {
                return Ok(());
            }
            let before = held.flocks.len();
            held.flocks.retain(|l| l.owner != owner);
            let gave = held.flocks.len() != before;
            if held.flocks.iter().any(|l| l.conflicts(&wanted)) {
                (Err(EAGAIN), gave)
            } else {
                held.flocks.push(wanted);
                (Ok(()), gave)
            }
        };
        description.note_locks();
        if gave {
            self.queue.wake_all(Events::ALL);
        }
        result
    }

    /// flock(LOCK_UN).
    pub fn unflock(&self, id: usize) {
        self.held.lock().flocks.retain(|l| l.owner != Owner::Description(id));
        self.queue.wake_all(Events::ALL);
    }
}

/// Takes the range out of the owner's locks, splitting them where needed; true when anything was given back.
fn carve(records: &mut Vec<Lock>, range: &Lock) -> bool {
    let mut gave = false;
    let mut rest = Vec::new();
    records.retain_mut(|lock| {
        if lock.owner != range.owner || !lock.overlaps(range) {
            return true;
        }
        gave = true;
        if range.end < lock.end {
            rest.push(Lock { start: range.end, ..*lock });
        }
        if lock.start < range.start {
            lock.end = range.start;
            return true;
        }
        false
    });
    records.append(&mut rest);
    gave
}

/// Joins the owner's locks of one kind that touch.
fn merge(records: &mut Vec<Lock>, owner: Owner, exclusive: bool) {
    let mut mine: Vec<Lock> = Vec::new();
    records.retain(|l| {
        let is_mine = l.owner == owner && l.exclusive == exclusive;
        if is_mine {
            mine.push(*l);
        }
        !is_mine
    });
    mine.sort_by_key(|l| l.start);
    let mut merged: Vec<Lock> = Vec::new();
    for lock in mine {
        match merged.last_mut() {
            Some(last) if lock.start <= last.end => last.end = last.end.max(lock.end),
            _ => merged.push(lock),
        }
    }
    records.append(&mut merged);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    fn file() -> (Arc<dyn Inode>, Arc<Description>) {
        let node = ramfs::tmpfs(1, 1 << 20, 0o777, (0, 0)).unnamed(0o600, (0, 0), false).unwrap();
        let inode: Arc<dyn Inode> = node;
        let file = inode.open(&inode, 2).unwrap();
        let description = Description::new(file, 2, None);
        (inode, description)
    }

    fn lock(start: u64, end: u64, exclusive: bool, pid: i32) -> Lock {
        Lock { start, end, exclusive, owner: Owner::Process(pid) }
    }

    #[test]
    fn writers_exclude_and_readers_share() {
        let (inode, d) = file();
        let locks = of(&inode);
        locks.set(lock(0, 10, false, 1), &d).unwrap();
        locks.set(lock(5, 15, false, 2), &d).unwrap();
        assert_eq!(locks.set(lock(0, 6, true, 1), &d), Err(EAGAIN));
        assert_eq!(locks.set(lock(0, 5, true, 1), &d), Ok(()));
        assert_eq!(locks.obstacle(&lock(14, 20, true, 1)), Some(lock(5, 15, false, 2)));
        assert_eq!(locks.obstacle(&lock(15, 20, true, 1)), None);
        process_closed(&inode, 2);
        assert_eq!(locks.set(lock(0, u64::MAX, true, 1), &d), Ok(()));
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock_and_locking_it_joins_again() {
        let (inode, d) = file();
        let locks = of(&inode);
        locks.set(lock(0, 100, true, 1), &d).unwrap();
        locks.clear(lock(40, 60, true, 1));
        assert_eq!(locks.set(lock(40, 60, true, 2), &d), Ok(()));
        assert_eq!(locks.set(lock(39, 60, true, 2), &d), Err(EAGAIN));
        locks.clear(lock(40, 60, true, 2));
        locks.set(lock(40, 60, true, 1), &d).unwrap();
        assert_eq!(locks.held.lock().records, [lock(0, 100, true, 1)]);
        locks.set(lock(10, 20, false, 1), &d).unwrap();
        assert_eq!(locks.held.lock().records.len(), 3);
    }

    #[test]
    fn flock_belongs_to_the_description_and_goes_with_it() {
        let (inode, a) = file();
        let b = Description::new(inode.open(&inode, 0).unwrap(), 0, None);
        let locks = of(&inode);
        locks.flock(a.id(), false, &a).unwrap();
        locks.flock(b.id(), false, &b).unwrap();
        assert_eq!(locks.flock(a.id(), true, &a), Err(EAGAIN));
        locks.flock(a.id(), false, &a).unwrap();
        b.close().unwrap();
        assert_eq!(locks.flock(a.id(), true, &a), Ok(()));
        locks.set(lock(0, 1, true, 1), &a).unwrap();
        drop(a);
        assert!(locks.held.lock().flocks.is_empty());
        assert_eq!(locks.held.lock().records.len(), 1, "a process' locks do not go with the description");
        process_closed(&inode, 1);
        drop(locks);
        assert!(
            existing(&inode).is_some_and(|l| l.held.lock().records.is_empty()) || existing(&inode).is_none()
        );
    }
}
