// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readiness of many files at once (epoll(7)).
//!
//! Each watched file has an [`Item`] on its wait queue. A wake-up puts the item on the ready list; collecting events
//! takes items off it, asks each file what is possible now, and puts level-triggered ones back. So the cost is that
//! of the ready files, not of the watched ones, and a steady state allocates nothing.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use api_fs::{File, FileType, Stat};
use api_lock::SpinLock;
use api_sched::{WaitKey, WaitQueue, Waiter};
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use descriptors::{Description, Watcher};
use ordered::Map;

pub const EXCLUSIVE: u32 = 1 << 28;
const WAKEUP: u32 = 1 << 29;
pub const ONESHOT: u32 = 1 << 30;
pub const EDGE: u32 = 1 << 31;
/// What may stand beside EPOLLEXCLUSIVE.
const EXCLUSIVE_ALLOWED: u32 =
    EXCLUSIVE | WAKEUP | EDGE | Events::IN.0 | Events::OUT.0 | Events::ERR.0 | Events::HUP.0;
const FLAGS: u32 = EXCLUSIVE | WAKEUP | ONESHOT | EDGE;
/// epoll instances that may watch each other in a chain (Linux EP_MAX_NESTS, plus the first).
const NESTING_LIMIT: u32 = 5;

/// One watched descriptor.
struct Item {
    this: Weak<Item>,
    epoll: Weak<Epoll>,
    file: Arc<dyn File>,
    /// Events asked for, with the flags; 0 after EPOLLONESHOT fired.
    interest: AtomicU32,
    data: AtomicU64,
    key: SpinLock<Option<WaitKey>>,
    is_queued: AtomicBool,
    is_dead: AtomicBool,
}

impl Item {
    fn new(epoll: Weak<Epoll>, file: Arc<dyn File>, interest: u32, data: u64) -> Arc<Item> {
        Arc::new_cyclic(|this| Item {
            this: this.clone(),
            epoll,
            file,
            interest: AtomicU32::new(interest),
            data: AtomicU64::new(data),
            key: SpinLock::new(None),
            is_queued: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
        })
    }

    fn interest(&self) -> u32 {
        self.interest.load(Ordering::Relaxed)
    }

    /// What is possible now of what was asked for.
    fn ready(&self) -> Events {
        let interest = self.interest() & !FLAGS;
        if interest == 0 || self.is_dead.load(Ordering::Relaxed) {
            return Events::NONE;
        }
        self.file.poll() & Events(interest)
    }

    fn leave(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
        let key = self.key.lock().take();
        if let (Some(key), Some(queue)) = (key, self.file.wait_queue()) {
            queue.remove(key);
        }
    }
}

impl Waiter for Item {
    fn wake(&self, events: Events) {
        let interest = self.interest() & !FLAGS;
        if interest == 0 || !events.intersects(Events(interest)) || self.is_dead.load(Ordering::Relaxed) {
            return;
        }
        if let Some(epoll) = self.epoll.upgrade() {
            epoll.enqueue(self);
        }
    }
}

/// Items by description and descriptor number.
type Items = Map<(usize, i32), Arc<Item>>;

#[derive(Default)]
struct State {
    items: Items,
    ready: VecDeque<Arc<Item>>,
}

/// An epoll instance.
pub struct Epoll {
    this: Weak<Epoll>,
    state: SpinLock<State>,
    queue: WaitQueue,
}

fn check_flags(events: u32) -> Result<()> {
    if events & EXCLUSIVE != 0 && events & !EXCLUSIVE_ALLOWED != 0 { Err(EINVAL) } else { Ok(()) }
}

/// ERR and HUP are always of interest.
fn full_interest(events: u32) -> u32 {
    events | Events::ERR.0 | Events::HUP.0
}

impl Epoll {
    pub fn new() -> Arc<Epoll> {
        Arc::new_cyclic(|this| Epoll {
            this: this.clone(),
            state: SpinLock::default(),
            queue: WaitQueue::new(),
        })
    }

    fn enqueue(&self, item: &Item) {
        if item.is_queued.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(item) = item.this.upgrade() else { return };
        self.state.lock().ready.push_back(item);
        self.queue.wake(Events::IN | Events::RDNORM);
    }

    /// True when this instance watches `other`, directly or through others; the depth of the longest chain below.
    fn depth(&self, other: *const Epoll, level: u32) -> Result<u32> {
        if core::ptr::eq(self, other) || level > NESTING_LIMIT {
            return Err(ELOOP);
        }
        let watched: alloc::vec::Vec<Arc<dyn File>> = {
            let state = self.state.lock();
            let epolls = state.items.values().filter(|i| i.file.as_any().is::<Epoll>());
            epolls.map(|i| i.file.clone()).collect()
        };
        let mut deepest = 0;
        for file in watched {
            if let Some(epoll) = file.as_any().downcast_ref::<Epoll>() {
                deepest = deepest.max(epoll.depth(other, level + 1)? + 1);
            }
        }
        Ok(deepest)
    }

    /// EPOLL_CTL_ADD.
    pub fn add(&self, fd: i32, description: &Arc<Description>, events: u32, data: u64) -> Result<()> {
        check_flags(events)?;
        let file = description.file().clone();
        let queue = file.wait_queue().ok_or(EPERM)?;
        if let Some(other) = file.as_any().downcast_ref::<Epoll>() {
            if core::ptr::eq(other, self) || events & EXCLUSIVE != 0 {
                return Err(EINVAL);
            }
            if other.depth(self, 1)? + 1 >= NESTING_LIMIT {
                return Err(ELOOP);
            }
        }
        let key = (description.id(), fd);
        if self.state.lock().items.contains_key(&key) {
            return Err(EEXIST);
        }
        let item = Item::new(self.this.clone(), file.clone(), full_interest(events), data);
        let exclusive = events & EXCLUSIVE != 0;
        *item.key.lock() = Some(queue.add(item.clone(), Events::ALL, exclusive));
        self.state.lock().items.insert(key, item.clone());
        if let Some(this) = self.this.upgrade() {
            let watcher: Arc<dyn Watcher> = this;
            description.watch(&watcher);
        }
        self.check(&item);
        Ok(())
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: i32, description: &Arc<Description>, events: u32, data: u64) -> Result<()> {
        if events & EXCLUSIVE != 0 {
            return Err(EINVAL);
        }
        let item = self.state.lock().items.get(&(description.id(), fd)).cloned().ok_or(ENOENT)?;
        if item.interest() & EXCLUSIVE != 0 {
            return Err(EINVAL);
        }
        item.data.store(data, Ordering::Relaxed);
        item.interest.store(full_interest(events), Ordering::Relaxed);
        self.check(&item);
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: i32, description: &Arc<Description>) -> Result<()> {
        let item = self.state.lock().items.remove(&(description.id(), fd)).ok_or(ENOENT)?;
        item.leave();
        Ok(())
    }

    fn check(&self, item: &Arc<Item>) {
        if !item.ready().is_empty() {
            self.enqueue(item);
        }
    }

    /// Hands up to `most` events with their data to `out`; `EAGAIN` when there are none. An error of `out` ends it
    /// and is the result when nothing was handed over yet.
    pub fn collect(&self, most: usize, mut out: impl FnMut(u32, u64) -> Result<()>) -> Result<usize> {
        let mut done = 0;
        // Those put back for being level-triggered are not looked at twice.
        let mut left = self.state.lock().ready.len();
        while left > 0 && done < most {
            left -= 1;
            let Some(item) = self.state.lock().ready.pop_front() else { break };
            // Before asking the file: a wake-up from here on queues it again.
            item.is_queued.store(false, Ordering::Relaxed);
            let events = item.ready();
            if events.is_empty() {
                continue;
            }
            if let Err(e) = out(events.0, item.data.load(Ordering::Relaxed)) {
                self.enqueue(&item);
                return if done == 0 { Err(e) } else { Ok(done) };
            }
            done += 1;
            let interest = item.interest();
            if interest & ONESHOT != 0 {
                item.interest.store(interest & FLAGS, Ordering::Relaxed);
            } else if interest & EDGE == 0 && !item.is_queued.swap(true, Ordering::Relaxed) {
                self.state.lock().ready.push_back(item);
            }
        }
        if done == 0 {
            return Err(EAGAIN);
        }
        if !self.queue.is_empty() && !self.state.lock().ready.is_empty() {
            // Other threads wait on the same instance: there may be something for them.
            self.queue.wake(Events::IN | Events::RDNORM);
        }
        Ok(done)
    }

    /// Lines of /proc/self/fdinfo: number, events and data of each watched descriptor.
    pub fn watched(&self, mut line: impl FnMut(i32, u32, u64)) {
        for ((_, fd), item) in &self.state.lock().items {
            line(*fd, item.interest(), item.data.load(Ordering::Relaxed));
        }
    }
}

impl Watcher for Epoll {
    fn closed(&self, description: usize) {
        loop {
            let item = {
                let mut state = self.state.lock();
                let key = state.items.range((description, i32::MIN)..=(description, i32::MAX)).next();
                let Some(key) = key.map(|(key, _)| *key) else { return };
                state.items.remove(&key)
            };
            if let Some(item) = item {
                item.leave();
            }
        }
    }
}

impl File for Epoll {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Regular, 0o600))
    }

    fn poll(&self) -> Events {
        let mut left = self.state.lock().ready.len();
        while left > 0 {
            left -= 1;
            let Some(item) = self.state.lock().ready.front().cloned() else { break };
            if !item.ready().is_empty() {
                return Events::IN | Events::RDNORM;
            }
            let mut state = self.state.lock();
            state.ready.pop_front();
            item.is_queued.store(false, Ordering::Relaxed);
        }
        Events::NONE
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        for item in core::mem::take(&mut self.state.get_mut().items).into_values() {
            item.leave();
        }
    }
}

#[cfg(test)]
mod tests;
