// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads asleep on a word of the program's memory: a hash table of queues, first come first served.
//!
//! A word is known by its [`Key`]: the address in an address space, or the place in a file that is mapped shared.
use abi::{Result, errno::EINVAL};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_sched::Waiter;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use task::pids::Pid;

/// What two threads that mean the same word have in common, wherever each of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    object: (u64, u64),
    offset: u64,
}

impl Key {
    /// Of the word at an address of the running thread's. `private`: the program promises that no other process uses it.
    pub fn of(word: u64, private: bool) -> Key {
        let (object, offset) = mem::current().word(word, private);
        Key { object, offset }
    }
}

/// The bit set that matches every wake-up.
pub const ANY: u32 = u32::MAX;

const BUCKETS: usize = 64;

/// A lock that is owned while others wait for it (a priority-inheritance futex, Linux' `futex_pi_state`).
pub struct Lock {
    /// As the kernel knows it, whatever the program writes to the word.
    owner: SpinLock<Pid>,
}

/// Locks that there are: while there are none, nobody who ends has one to hand on.
static LOCKS: AtomicUsize = AtomicUsize::new(0);

impl Lock {
    pub fn of(owner: Pid) -> Arc<Lock> {
        LOCKS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Lock { owner: SpinLock::new(owner) })
    }

    pub fn owner(&self) -> Pid {
        *self.owner.lock()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        LOCKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a thread waits for on a word.
#[derive(Clone)]
pub enum Kind {
    /// To be woken.
    Plain,
    /// To be requeued to the lock at that word.
    Requeue(Key),
    /// To own the lock.
    Lock(Arc<Lock>),
}

pub struct Entry {
    /// Changes when the entry is requeued.
    word: SpinLock<Key>,
    bits: u32,
    pub pid: Pid,
    /// Of the thread when it went to sleep: higher ones are woken first.
    priority: u8,
    kind: SpinLock<Kind>,
    woken: AtomicBool,
    /// It was given a lock whose owner had ended.
    inherits: AtomicBool,
    thread: Arc<dyn Waiter>,
}

impl Entry {
    pub fn kind(&self) -> Kind {
        self.kind.lock().clone()
    }

    /// The lock that it waits for.
    pub fn lock(&self) -> Option<Arc<Lock>> {
        match &*self.kind.lock() {
            Kind::Lock(lock) => Some(lock.clone()),
            _ => None,
        }
    }

    fn is_plain(&self) -> bool {
        matches!(*self.kind.lock(), Kind::Plain)
    }
}

type Queue = SpinLock<VecDeque<Arc<Entry>>>;

static TABLE: [Queue; BUCKETS] = [const { SpinLock::new(VecDeque::new()) }; BUCKETS];

fn bucket(word: Key) -> &'static Queue {
    // Fibonacci hashing of the word's index.
    let number = (word.offset >> 2) ^ word.object.0 ^ word.object.1;
    &TABLE[(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
}

/// The running thread's place in a queue; left on drop.
pub struct Sleeper(Arc<Entry>);

impl Sleeper {
    pub fn enter(word: Key, bits: u32) -> Sleeper {
        Sleeper::enter_for(word, bits, Kind::Plain)
    }

    pub fn enter_for(word: Key, bits: u32, kind: Kind) -> Sleeper {
        let entry = Arc::new(Entry {
            word: SpinLock::new(word),
            bits,
            pid: task::current().tid,
            priority: sched::current().rank().priority,
            kind: SpinLock::new(kind),
            woken: AtomicBool::new(false),
            inherits: AtomicBool::new(false),
            thread: api_sched::current(),
        });
        enter(&mut bucket(word).lock(), entry.clone());
        Sleeper(entry)
    }

    /// It was requeued to the lock that it wanted.
    pub fn waits_for_lock(&self) -> bool {
        self.0.lock().is_some()
    }

    /// It was given a lock whose owner had ended.
    pub fn inherits(&self) -> bool {
        self.0.inherits.load(Ordering::Relaxed)
    }

    pub fn is_woken(&self) -> bool {
        self.0.woken.load(Ordering::Acquire)
    }

    /// Leaves the queue; true when a wake-up had been spent on this thread.
    pub fn leave(&self) -> bool {
        if !self.is_woken() {
            let word = *self.0.word.lock();
            bucket(word).lock().retain(|e| !Arc::ptr_eq(e, &self.0));
        }
        self.is_woken()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Behind those of its priority and higher ones.
fn enter(queue: &mut VecDeque<Arc<Entry>>, entry: Arc<Entry>) {
    match queue.iter().rposition(|e| e.priority >= entry.priority) {
        Some(last) => queue.insert(last + 1, entry),
        None => queue.push_front(entry),
    }
}

fn wake_all(entries: &[Arc<Entry>]) {
    for entry in entries {
        entry.woken.store(true, Ordering::Release);
        entry.thread.wake(abi::Events::NONE);
    }
}

/// Wakes up to `most` threads asleep on the word with one of the bits; how many it were. `EINVAL` when one that waits for a lock,
/// or to be requeued to one, is before them.
pub fn wake(word: Key, most: u32, bits: u32) -> Result<usize> {
    let mut taken = Vec::new();
    let mut is_lock = false;
    {
        let mut queue = bucket(word).lock();
        let mut index = 0;
        while taken.len() < most as usize && index < queue.len() {
            let entry = &queue[index];
            if *entry.word.lock() == word {
                if !entry.is_plain() {
                    is_lock = true;
                    break;
                }
                if entry.bits & bits != 0 {
                    taken.extend(queue.remove(index));
                    continue;
                }
            }
            index += 1;
        }
    }
    wake_all(&taken);
    if is_lock { Err(EINVAL) } else { Ok(taken.len()) }
}

/// Wakes up to `wake_most` and moves up to `move_most` of the rest to another word; how many both are. `EINVAL` as for [`wake`].
pub fn requeue(from: Key, to: Key, wake_most: u32, move_most: u32) -> Result<usize> {
    let (mut woken, mut moved) = (Vec::new(), Vec::new());
    let (mut is_lock, mut stay) = (false, 0);
    {
        let mut queue = bucket(from).lock();
        let mut index = 0;
        while index < queue.len() && moved.len() + stay < move_most as usize
            || woken.len() < wake_most as usize
        {
            let Some(entry) = queue.get(index) else { break };
            if *entry.word.lock() != from {
                index += 1;
                continue;
            }
            if !entry.is_plain() {
                is_lock = true;
                break;
            }
            if woken.len() < wake_most as usize {
                woken.extend(queue.remove(index));
            } else if from == to {
                stay += 1;
                index += 1;
            } else {
                moved.extend(queue.remove(index));
            }
        }
    }
    let count = woken.len() + moved.len() + stay;
    for entry in &moved {
        *entry.word.lock() = to;
    }
    let mut queue = bucket(to).lock();
    moved.into_iter().for_each(|entry| enter(&mut queue, entry));
    drop(queue);
    wake_all(&woken);
    if is_lock { Err(EINVAL) } else { Ok(count) }
}

/// The first of the sleepers on a word.
pub fn first(word: Key) -> Option<Arc<Entry>> {
    bucket(word).lock().iter().find(|e| *e.word.lock() == word).cloned()
}

fn remove(entry: &Arc<Entry>) {
    let word = *entry.word.lock();
    bucket(word).lock().retain(|e| !Arc::ptr_eq(e, entry));
}

/// The sleeper has the lock: it goes on.
pub fn hand_over(entry: &Arc<Entry>, lock: &Arc<Lock>) {
    *lock.owner.lock() = entry.pid;
    *entry.kind.lock() = Kind::Lock(lock.clone());
    remove(entry);
    wake_all(core::slice::from_ref(entry));
}

/// The sleeper waits for the lock from now on, which is at that word.
pub fn wait_for_lock(entry: &Arc<Entry>, to: Key, lock: &Arc<Lock>) {
    remove(entry);
    *entry.kind.lock() = Kind::Lock(lock.clone());
    *entry.word.lock() = to;
    enter(&mut bucket(to).lock(), entry.clone());
}

fn find(wanted: impl Fn(&Entry) -> bool) -> Option<Arc<Entry>> {
    TABLE.iter().find_map(|queue| queue.lock().iter().find(|entry| wanted(entry)).cloned())
}

/// Whether a thread that waits for the lock would wait for itself: for a lock whose owner waits for another one, and so on.
pub fn is_deadlock(lock: &Arc<Lock>, waiter: Pid) -> bool {
    /// Linux' `max_lock_depth`.
    const DEEPEST: usize = 1024;
    let mut lock = lock.clone();
    for _ in 0..DEEPEST {
        let owner = lock.owner();
        if owner == waiter {
            return true;
        }
        let next = find(|entry| entry.pid == owner && entry.lock().is_some()).and_then(|entry| entry.lock());
        match next {
            Some(next) => lock = next,
            None => return false,
        }
    }
    true
}

/// A thread has ended: the locks that it owned are those of the first who wait for them.
pub fn owner_ends(owner: Pid) {
    while LOCKS.load(Ordering::Relaxed) != 0 {
        let is_next = |entry: &Entry| entry.lock().is_some_and(|lock| lock.owner() == owner);
        let Some(entry) = find(is_next) else { return };
        let Some(lock) = entry.lock() else { return };
        entry.inherits.store(true, Ordering::Relaxed);
        hand_over(&entry, &lock);
    }
}
