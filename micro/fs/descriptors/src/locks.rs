// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Advisory locks: the record locks of fcntl (of a process: F_SETLK; of an open file description: F_OFD_SETLK) and
//! flock. They hold inside this machine.
//!
//! A request that conflicts answers `EAGAIN`; whoever wants to wait uses [`queue`](FileLocks::queue).

use crate::Description;
use crate::held::Held;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::Inode;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use ordered::Map;
use segmented::SegmentedVec;

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    pub(crate) fn overlaps(&self, other: &Lock) -> bool {
        self.start < other.end && other.start < self.end
    }
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

/// All locks that are held; `ENOMEM` where there are more than can be listed.
pub fn all() -> Result<SegmentedVec<Listed>> {
    let mut files = SegmentedVec::new();
    for locks in FILES.lock().values() {
        files.push(locks.clone()).map_err(|_| ENOMEM)?;
    }
    let mut out = SegmentedVec::new();
    for i in 0..files.len() {
        let file: &Arc<FileLocks> = &files[i];
        let held = file.held.lock();
        let records = held.records().map(|lock| (lock, false));
        let flocks = held.flocks().map(|lock| (lock, true));
        for (lock, whole) in records.chain(flocks) {
            out.push(Listed { inode: file.inode.clone(), lock, whole }).map_err(|_| ENOMEM)?;
        }
    }
    Ok(out)
}

/// Forgets files without locks and without waiters.
fn tidy(locks: Arc<FileLocks>) {
    let mut files = FILES.lock();
    let idle = {
        let held = locks.held.lock();
        held.is_empty() && locks.queue.is_empty()
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
        let gave = held.clear_all(owner);
        flock && held.unflock(owner) || gave
    };
    if gave {
        locks.queue.wake_all(Events::ALL);
    }
    tidy(locks);
}

impl FileLocks {
    /// F_GETLK: a lock that stands in the way of `wanted`.
    pub fn obstacle(&self, wanted: &Lock) -> Option<Lock> {
        self.held.lock().obstacle(wanted)
    }

    /// F_SETLK: takes the lock (or changes what the owner has there); `EAGAIN` when another's is in the way, `ENOLCK`
    /// when there is no memory for it.
    pub fn set(&self, wanted: Lock, description: &Description) -> Result<()> {
        let mut held = self.held.lock();
        if held.conflict(&wanted).is_some() {
            return Err(EAGAIN);
        }
        let downgrades = held.change(&wanted, true)?;
        drop(held);
        description.note_locks();
        if downgrades {
            self.queue.wake_all(Events::ALL);
        }
        Ok(())
    }

    /// F_SETLKW: as [`FileLocks::set`], with [`Waiter`] told whom the caller waits for; `EDEADLK` when that owner waits
    /// for the caller in turn.
    pub fn set_or_wait(&self, wanted: Lock, description: &Description, waiter: &Waiter) -> Result<()> {
        match self.set(wanted, description) {
            Err(EAGAIN) => match self.obstacle(&wanted).map(|lock| lock.owner) {
                Some(Owner::Process(holder)) => waiter.waits_for(holder).and(Err(EAGAIN)),
                _ => Err(EAGAIN),
            },
            done => done,
        }
    }

    /// F_SETLK with F_UNLCK.
    pub fn clear(&self, range: Lock) -> Result<()> {
        if self.held.lock().change(&range, false)? {
            self.queue.wake_all(Events::ALL);
        }
        Ok(())
    }

    /// flock(2): shared or exclusive; `EAGAIN` when another description's is in the way. Changing the kind gives
    /// the old lock up first, as flock(2) says.
    pub fn flock(&self, id: usize, exclusive: bool, description: &Description) -> Result<()> {
        let (result, gave) = self.held.lock().flock(Owner::Description(id), exclusive);
        description.note_locks();
        if gave {
            self.queue.wake_all(Events::ALL);
        }
        result
    }

    /// flock(LOCK_UN).
    pub fn unflock(&self, id: usize) {
        self.held.lock().unflock(Owner::Description(id));
        self.queue.wake_all(Events::ALL);
    }
}

/// Which threads wait for record locks, by process and thread, and for which process that holds one.
static WAITING: SpinLock<Map<(i32, i32), i32>> = SpinLock::new(Map::new());

/// How many processes are followed that wait for one another, as on Linux (MAX_DEADLK_ITERATIONS).
const MAX_WAITERS_FOLLOWED: usize = 10;

/// A thread that waits for a record lock, until this is dropped.
pub struct Waiter {
    thread: i32,
    process: i32,
}

impl Waiter {
    pub fn new(thread: i32, process: i32) -> Waiter {
        Waiter { thread, process }
    }

    fn waits_for(&self, holder: i32) -> Result<()> {
        let mut waiting = WAITING.lock();
        let mut next = holder;
        for _ in 0..MAX_WAITERS_FOLLOWED {
            let Some((_, behind)) = waiting.range((next, i32::MIN)..=(next, i32::MAX)).next() else { break };
            if *behind == self.process {
                return Err(EDEADLK);
            }
            next = *behind;
        }
        waiting.insert((self.process, self.thread), holder);
        Ok(())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITING.lock().remove(&(self.process, self.thread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    fn records(locks: &FileLocks) -> Vec<Lock> {
        locks.held.lock().records().collect()
    }

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
        locks.clear(lock(40, 60, true, 1)).unwrap();
        assert_eq!(locks.set(lock(40, 60, true, 2), &d), Ok(()));
        assert_eq!(locks.set(lock(39, 60, true, 2), &d), Err(EAGAIN));
        locks.clear(lock(40, 60, true, 2)).unwrap();
        locks.set(lock(40, 60, true, 1), &d).unwrap();
        assert_eq!(records(&locks), [lock(0, 100, true, 1)]);
        locks.set(lock(10, 20, false, 1), &d).unwrap();
        assert_eq!(records(&locks).len(), 3);
    }

    #[test]
    fn the_lock_in_the_way_is_the_first_of_its_owner() {
        let (inode, d) = file();
        let locks = of(&inode);
        locks.set(lock(10, 15, true, 1), &d).unwrap();
        locks.set(lock(1, 6, false, 1), &d).unwrap();
        assert_eq!(locks.obstacle(&lock(0, u64::MAX, true, 2)), Some(lock(1, 6, false, 1)));
        locks.set(lock(5, 12, false, 1), &d).unwrap();
        assert_eq!(records(&locks), [lock(1, 12, false, 1), lock(12, 15, true, 1)]);
        process_closed(&inode, 1);
    }

    #[test]
    fn processes_that_wait_for_one_another_are_told() {
        let (inode, d) = file();
        let locks = of(&inode);
        for pid in 101..=103 {
            locks.set(lock(pid as u64, pid as u64 + 1, true, pid), &d).unwrap();
        }
        let wait = |pid: i32, behind: u64, waiter: &Waiter| {
            locks.set_or_wait(lock(behind, behind + 1, true, pid), &d, waiter)
        };
        let [first, second, third] = [101, 102, 103].map(|pid| Waiter::new(pid, pid));
        assert_eq!(wait(101, 102, &first), Err(EAGAIN));
        assert_eq!(wait(102, 103, &second), Err(EAGAIN));
        assert_eq!(wait(103, 101, &third), Err(EDEADLK));
        drop(first);
        assert_eq!(wait(103, 101, &third), Err(EAGAIN), "the first gave up");
        (101..=103).for_each(|pid| process_closed(&inode, pid));
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
        assert_eq!(locks.held.lock().flocks().count(), 0);
        assert_eq!(records(&locks).len(), 1, "a process' locks do not go with the description");
        process_closed(&inode, 1);
        drop(locks);
        assert!(existing(&inode).is_some_and(|l| records(&l).is_empty()) || existing(&inode).is_none());
    }
}
