// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads asleep on a word of the program's memory: a hash table of queues, first come first served.
//!
//! The key is the word's address: there is one address space, so two threads that mean the same word name the same
//! address unless a file is mapped shared at two places (the one case that is not served).

use crate::task;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_sched::Waiter;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The bit set that matches every wake-up.
pub const ANY: u32 = u32::MAX;

const BUCKETS: usize = 64;

struct Entry {
    /// Changes when the entry is requeued.
    word: AtomicU64,
    bits: u32,
    tid: i32,
    woken: AtomicBool,
    thread: Arc<dyn Waiter>,
}

type Queue = SpinLock<VecDeque<Arc<Entry>>>;

static TABLE: [Queue; BUCKETS] = [const { SpinLock::new(VecDeque::new()) }; BUCKETS];

fn bucket(word: u64) -> &'static Queue {
    // Fibonacci hashing of the word's index.
    &TABLE[((word >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
}

/// The running thread's place in a queue; left on drop.
pub struct Sleeper(Arc<Entry>);

impl Sleeper {
    pub fn enter(word: u64, bits: u32) -> Sleeper {
        let entry = Arc::new(Entry {
            word: AtomicU64::new(word),
            bits,
            tid: task::current().tid,
            woken: AtomicBool::new(false),
            thread: api_sched::current(),
        });
        bucket(word).lock().push_back(entry.clone());
        Sleeper(entry)
    }

    pub fn is_woken(&self) -> bool {
        self.0.woken.load(Ordering::Acquire)
    }

    /// Leaves the queue; true when a wake-up had been spent on this thread.
    pub fn leave(&self) -> bool {
        if !self.is_woken() {
            bucket(self.0.word.load(Ordering::Relaxed)).lock().retain(|e| !Arc::ptr_eq(e, &self.0));
        }
        self.is_woken()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.leave();
    }
}

fn take(queue: &mut VecDeque<Arc<Entry>>, word: u64, bits: u32, most: u32) -> Vec<Arc<Entry>> {
    let mut taken = Vec::new();
    let mut index = 0;
    while taken.len() < most as usize && index < queue.len() {
        let entry = &queue[index];
        if entry.word.load(Ordering::Relaxed) == word && entry.bits & bits != 0 {
            taken.extend(queue.remove(index));
        } else {
            index += 1;
        }
    }
    taken
}

fn rouse(entries: &[Arc<Entry>]) {
    for entry in entries {
        entry.woken.store(true, Ordering::Release);
        entry.thread.wake(abi::Events::NONE);
    }
}

/// Wakes up to `most` threads asleep on the word with one of the bits; how many it were.
pub fn wake(word: u64, most: u32, bits: u32) -> usize {
    let taken = {
        let mut queue = bucket(word).lock();
        if queue.is_empty() {
            return 0;
        }
        take(&mut queue, word, bits, most)
    };
    rouse(&taken);
    taken.len()
}

/// Wakes up to `wake_most` and moves up to `move_most` of the rest to another word; both counts.
pub fn requeue(from: u64, to: u64, wake_most: u32, move_most: u32) -> (usize, usize) {
    let (woken, moved) = {
        let mut queue = bucket(from).lock();
        (take(&mut queue, from, ANY, wake_most), take(&mut queue, from, ANY, move_most))
    };
    for entry in &moved {
        entry.word.store(to, Ordering::Relaxed);
    }
    let counts = (woken.len(), moved.len());
    bucket(to).lock().extend(moved);
    rouse(&woken);
    counts
}

/// Thread id of the first sleeper, and whether there are more.
pub fn first(word: u64) -> Option<(i32, bool)> {
    let queue = bucket(word).lock();
    let mut of_word = queue.iter().filter(|e| e.word.load(Ordering::Relaxed) == word);
    let first = of_word.next()?.tid;
    Some((first, of_word.next().is_some()))
}
