// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readiness of many files at once (epoll(7)).
//!
//! Each watched file has an [`Item`] on its wait queue. A wake-up puts the item on the ready list ([`ready`]); collecting
//! events takes items off it, asks each file what is possible now, and puts level-triggered ones back. So the cost is
//! that of the ready files, not of the watched ones, and a wake-up allocates nothing.
//!
//! Instances that watch each other ([`nesting`]) form no circle and no chain of more than five.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use api_fs::{File, FileType, Stat};
use api_lock::SpinLock;
use api_sched::{WaitKey, WaitQueue, Waiter};
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use descriptors::{Description, Watcher};
use nesting::Nesting;
use ordered::Map;
use ready::Ready;

mod nesting;
mod ready;

pub const EXCLUSIVE: u32 = 1 << 28;
const WAKEUP: u32 = 1 << 29;
pub const ONESHOT: u32 = 1 << 30;
pub const EDGE: u32 = 1 << 31;
/// What may stand beside EPOLLEXCLUSIVE.
const EXCLUSIVE_ALLOWED: u32 =
    EXCLUSIVE | WAKEUP | EDGE | Events::IN.0 | Events::OUT.0 | Events::ERR.0 | Events::HUP.0;
const FLAGS: u32 = EXCLUSIVE | WAKEUP | ONESHOT | EDGE;

/// One watched descriptor.
struct Item {
    epoll: Weak<Epoll>,
    /// Its place in [`Ready`].
    slot: u32,
    file: Arc<dyn File>,
    /// Events asked for, with the flags; 0 after EPOLLONESHOT fired.
    interest: AtomicU32,
    data: AtomicU64,
    key: SpinLock<Option<WaitKey>>,
    /// In the ready list. Changed with the instance locked; a wake-up may look without.
    is_queued: AtomicBool,
    /// Removed: changed with the instance locked.
    is_dead: AtomicBool,
}

impl Item {
    fn new(epoll: Weak<Epoll>, slot: u32, file: Arc<dyn File>, interest: u32, data: u64) -> Arc<Item> {
        Arc::new(Item {
            epoll,
            slot,
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

    /// Leaves the file's wait queue.
    fn leave(&self) {
        let key = self.key.lock().take();
        let (Some(key), Some(queue)) = (key, self.file.wait_queue()) else { return };
        queue.remove(key);
        if let Some(child) = self.child() {
            nesting::unlink(&self.epoll, child);
        }
    }

    /// The watched file, where it is an instance itself.
    fn child(&self) -> Option<&Epoll> {
        self.file.as_any().downcast_ref()
    }
}

impl Waiter for Item {
    fn wake(&self, events: Events) {
        self.wake_exclusive(events);
    }

    /// A wake-up is used when somebody slept in epoll_wait for it. Otherwise the next exclusive waiter gets it, for
    /// whoever has this instance may be busy for long.
    fn wake_exclusive(&self, events: Events) -> bool {
        let interest = self.interest() & !FLAGS;
        if interest == 0 || !events.intersects(Events(interest)) || self.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        self.epoll.upgrade().is_some_and(|epoll| epoll.enqueue(self))
    }
}

/// Items by description and descriptor number.
type Items = Map<(usize, i32), Arc<Item>>;

#[derive(Default)]
struct State {
    items: Items,
    ready: Ready,
}

impl State {
    fn take(&mut self, key: &(usize, i32)) -> Option<Arc<Item>> {
        let item = self.items.remove(key)?;
        self.ready.remove(item.slot);
        item.is_dead.store(true, Ordering::Relaxed);
        item.is_queued.store(false, Ordering::Relaxed);
        Some(item)
    }

    /// Puts an item into the ready list.
    fn push(&mut self, item: &Item) {
        if !item.is_dead.load(Ordering::Relaxed) {
            item.is_queued.store(true, Ordering::Relaxed);
            self.ready.push_back(item.slot);
        }
    }

    fn pop(&mut self) -> Option<Arc<Item>> {
        let item = self.ready.pop_front()?;
        item.is_queued.store(false, Ordering::SeqCst);
        Some(item)
    }
}

/// An epoll instance.
pub struct Epoll {
    this: Weak<Epoll>,
    state: SpinLock<State>,
    queue: WaitQueue,
    nesting: Nesting,
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
            nesting: Nesting::new(),
        })
    }

    /// The item's file is ready: true when somebody slept for that. Waiters hear of it also when the item is in the list
    /// already: it may be there for an older event that an edge-triggered parent was told of long ago.
    fn enqueue(&self, item: &Item) -> bool {
        // In one order with `State::pop`, after which the collector asks the file: one of the two sees the event.
        if !item.is_queued.swap(true, Ordering::SeqCst) {
            self.state.lock().push(item);
        }
        self.queue.wake(Events::READABLE)
    }

    /// EPOLL_CTL_ADD.
    pub fn add(&self, fd: i32, description: &Arc<Description>, events: u32, data: u64) -> Result<()> {
        check_flags(events)?;
        let file = description.file().clone();
        let queue = file.wait_queue().ok_or(EPERM)?;
        let this = self.this.upgrade().ok_or(EBADF)?;
        let child = file.as_any().downcast_ref::<Epoll>();
        if child.is_some_and(|child| core::ptr::eq(child, self) || events & EXCLUSIVE != 0) {
            return Err(EINVAL);
        }
        // Before there is anything to take back.
        let watcher: Arc<dyn Watcher> = this.clone();
        description.watch(&watcher)?;
        let key = (description.id(), fd);
        let item = {
            // Two threads may not make a circle of two halves.
            let mut walks = child.map(|_| nesting::lock());
            if self.state.lock().items.contains_key(&key) {
                return Err(EEXIST);
            }
            if let (Some(child), Some(walks)) = (child, &mut walks) {
                nesting::check(walks, &this, child)?;
            }
            let make = |slot| Item::new(self.this.clone(), slot, file.clone(), full_interest(events), data);
            let item = {
                let mut state = self.state.lock();
                if state.items.contains_key(&key) {
                    return Err(EEXIST);
                }
                let item = state.ready.insert(make)?;
                state.items.insert(key, item.clone());
                item
            };
            if let Some(child) = child {
                nesting::link(&this, child);
            }
            item
        };
        match queue.try_add(item.clone(), Events::ALL, events & EXCLUSIVE != 0) {
            Ok(registration) => *item.key.lock() = Some(registration),
            Err(e) => {
                let taken = self.state.lock().take(&key);
                if let (Some(_), Some(child)) = (taken, child) {
                    nesting::unlink(&item.epoll, child);
                }
                return Err(e);
            }
        }
        if item.is_dead.load(Ordering::Relaxed) {
            // Another thread removed it before it was in the queue.
            item.leave();
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
        let item = self.state.lock().take(&(description.id(), fd)).ok_or(ENOENT)?;
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
            // Off the list before the file is asked: a wake-up from here on puts it there again.
            let Some(item) = self.state.lock().pop() else { break };
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
            } else if interest & EDGE == 0 {
                self.state.lock().push(&item);
            }
        }
        if done == 0 {
            return Err(EAGAIN);
        }
        if !self.queue.is_empty() && self.state.lock().ready.len() > 0 {
            // Other threads wait on the same instance: there may be something for them.
            self.queue.wake(Events::READABLE);
        }
        Ok(done)
    }

    /// What tells the description apart that is watched by the number `fd`; the `index`th where several files had that number in turn.
    pub fn target(&self, fd: i32, index: usize) -> Option<usize> {
        let state = self.state.lock();
        let mut targets = state.items.iter().filter(|((_, number), _)| *number == fd);
        targets.nth(index).map(|((description, _), _)| *description)
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
                state.take(&key)
            };
            if let Some(item) = item {
                item.leave();
            }
        }
    }
}

impl File for Epoll {
    fn anonymous_name(&self) -> &'static str {
        "[eventpoll]"
    }

    fn can_read(&self) -> bool {
        false
    }

    fn can_write(&self) -> bool {
        false
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        let mut left = self.state.lock().ready.len();
        while left > 0 {
            left -= 1;
            let Some(item) = self.state.lock().ready.front().cloned() else { break };
            if !item.ready().is_empty() {
                return Events::READABLE;
            }
            // A wake-up that came meanwhile may have made it ready: it is asked again once it is off the list.
            let front = self.state.lock().pop();
            if let Some(front) = front
                && !front.ready().is_empty()
            {
                self.state.lock().push(&front);
                return Events::READABLE;
            }
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
