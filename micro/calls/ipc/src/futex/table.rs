// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads asleep on a word of the program's memory: a hash table of queues, first come first served.
//!
//! A word is known by its [`Key`]: the address in an address space, or the place in a file that is mapped shared.
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_sched::Waiter;
use core::sync::atomic::{AtomicBool, Ordering};

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

struct Entry {
    /// Changes when the entry is requeued.
    word: SpinLock<Key>,
    bits: u32,
    /// The thread's number, as the word has it.
    tid: i32,
    /// Of the thread when it went to sleep: higher ones are woken first.
    priority: u8,
    /// The priority-inheritance futex it is to be requeued to; `None`: it waits for an ordinary one.
    target: Option<Key>,
    woken: AtomicBool,
    thread: Arc<dyn Waiter>,
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
        Sleeper::enter_for(word, bits, None)
    }

    /// To be requeued to the priority-inheritance futex `target`.
    pub fn enter_for(word: Key, bits: u32, target: Option<Key>) -> Sleeper {
        let entry = Arc::new(Entry {
            word: SpinLock::new(word),
            bits,
            tid: task::current().number,
            priority: sched::current().rank().priority,
            target,
            woken: AtomicBool::new(false),
            thread: api_sched::current(),
        });
        enter(&mut bucket(word).lock(), entry.clone());
        Sleeper(entry)
    }

    pub fn is_woken(&self) -> bool {
        self.0.woken.load(Ordering::Acquire)
    }

    /// Whether it is in the queue of this word, or was until it left.
    pub fn waits_for(&self, word: Key) -> bool {
        *self.0.word.lock() == word
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

fn take(queue: &mut VecDeque<Arc<Entry>>, word: Key, bits: u32, most: u32) -> Vec<Arc<Entry>> {
    let mut taken = Vec::new();
    let mut index = 0;
    while taken.len() < most as usize && index < queue.len() {
        let entry = &queue[index];
        if *entry.word.lock() == word && entry.bits & bits != 0 {
            taken.extend(queue.remove(index));
        } else {
            index += 1;
        }
    }
    taken
}

fn wake_all(entries: &[Arc<Entry>]) {
    for entry in entries {
        entry.woken.store(true, Ordering::Release);
        entry.thread.wake(abi::Events::NONE);
    }
}

/// Wakes up to `most` threads asleep on the word with one of the bits; how many it were.
pub fn wake(word: Key, most: u32, bits: u32) -> usize {
    let taken = {
        let mut queue = bucket(word).lock();
        if queue.is_empty() {
            return 0;
        }
        take(&mut queue, word, bits, most)
    };
    wake_all(&taken);
    taken.len()
}

/// Wakes up to `wake_most` and moves up to `move_most` of the rest to another word; both counts.
pub fn requeue(from: Key, to: Key, wake_most: u32, move_most: u32) -> (usize, usize) {
    let (woken, moved) = {
        let mut queue = bucket(from).lock();
        (take(&mut queue, from, ANY, wake_most), take(&mut queue, from, ANY, move_most))
    };
    for entry in &moved {
        *entry.word.lock() = to;
    }
    let counts = (woken.len(), moved.len());
    let mut queue = bucket(to).lock();
    moved.into_iter().for_each(|entry| enter(&mut queue, entry));
    drop(queue);
    wake_all(&woken);
    counts
}

/// The futex the first sleeper is to be requeued to, and its thread; no futex for one that waits for an ordinary one.
pub fn first_target(word: Key) -> Option<(Option<Key>, i32)> {
    let queue = bucket(word).lock();
    queue.iter().find(|e| *e.word.lock() == word).map(|e| (e.target, e.tid))
}

/// Thread id of the first sleeper, and whether there are more.
pub fn first(word: Key) -> Option<(i32, bool)> {
    let queue = bucket(word).lock();
    let mut of_word = queue.iter().filter(|e| *e.word.lock() == word);
    let first = of_word.next()?.tid;
    Some((first, of_word.next().is_some()))
}
