// SPDX-License-Identifier: Apache-2.0 OR MIT
//! inotify(7): an instance is a file from which the events of its watches are read.
//!
//! `vfs::notify` finds the watches; an instance keeps them alive, filters what they hear and queues it. Events that
//! equal the last one in the queue are not queued again, and those beyond [`MAX_EVENTS`] are lost, of which one event
//! tells.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

use abi::setting::Setting;
use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType, Inode, Sink, Stat};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};
use ordered::Map;
use vfs::notify::{self, Watch};

/// fs.inotify.max_queued_events, of instances made from now on.
pub static MAX_EVENTS: [Setting; 1] = [Setting::new(16_384, 0, i32::MAX as u64)];
/// fs.inotify.max_user_instances and max_user_watches, of each user.
pub static MAX_INSTANCES: [Setting; 1] = [Setting::new(128, 0, i32::MAX as u64)];
pub static MAX_WATCHES: [Setting; 1] = [Setting::new(65_536, 0, i32::MAX as u64)];

/// What a user has.
#[derive(Clone, Copy, Default)]
struct Used {
    instances: u64,
    watches: u64,
}

static USERS: SpinLock<Map<u32, Used>> = SpinLock::new(Map::new());

/// Counts an instance of a user's; `EMFILE` at the limit.
fn charge_instance(uid: u32) -> Result<()> {
    let mut users = USERS.lock();
    let used = users.entry(uid).or_default();
    if used.instances >= MAX_INSTANCES[0].get() {
        return Err(EMFILE);
    }
    used.instances += 1;
    Ok(())
}

/// Counts a watch of a user's; `ENOSPC` at the limit.
fn charge_watch(uid: u32) -> Result<()> {
    let mut users = USERS.lock();
    let used = users.entry(uid).or_default();
    if used.watches >= MAX_WATCHES[0].get() {
        return Err(ENOSPC);
    }
    used.watches += 1;
    Ok(())
}

fn uncharge(uid: u32, instances: u64, watches: u64) {
    let mut users = USERS.lock();
    let Some(used) = users.get_mut(&uid) else { return };
    used.instances -= instances;
    used.watches -= watches;
    if used.instances == 0 && used.watches == 0 {
        users.remove(&uid);
    }
}
/// Every event that can be asked for.
pub const ALL_EVENTS: u32 = 0xfff;
const IN_IGNORED: u32 = 0x8000;
const IN_Q_OVERFLOW: u32 = 0x4000;
pub const IN_ONLYDIR: u32 = 0x0100_0000;
pub const IN_DONT_FOLLOW: u32 = 0x0200_0000;
const IN_EXCL_UNLINK: u32 = 0x0400_0000;
const IN_MASK_CREATE: u32 = 0x1000_0000;
const IN_MASK_ADD: u32 = 0x2000_0000;
const IN_ONESHOT: u32 = 0x8000_0000;
/// What a mask may hold.
const KNOWN: u32 = ALL_EVENTS
    | IN_ONLYDIR
    | IN_DONT_FOLLOW
    | IN_EXCL_UNLINK
    | IN_MASK_CREATE
    | IN_MASK_ADD
    | IN_ONESHOT
    // IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED, IN_ISDIR: reported always, so asking for them is no error.
    | notify::UNMOUNT
    | IN_Q_OVERFLOW
    | IN_IGNORED
    | notify::IS_DIR;
/// What /proc/PID/fdinfo shows of a mask.
const SHOWN: u32 = ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT;
const FIONREAD: u32 = 0x541b;
/// `struct inotify_event` without its name.
const HEADER: usize = 16;

#[derive(PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    /// The name with at least one NUL, in units of the header's size.
    fn name_length(&self) -> usize {
        if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(HEADER) }
    }

    fn length(&self) -> usize {
        HEADER + self.name_length()
    }

    fn bytes(&self) -> Vec<u8> {
        let words = [self.watch as u32, self.mask, self.cookie, self.name_length() as u32];
        let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        out.extend_from_slice(&self.name);
        out.resize(self.length(), 0);
        out
    }
}

/// One watch of an instance.
struct Mark {
    instance: Weak<Instance>,
    number: i32,
    mask: AtomicU32,
    key: notify::Key,
    inode: Arc<dyn Inode>,
}

impl Watch for Mark {
    fn happened(&self, event: u32, cookie: u32, name: Option<&[u8]>, is_unlinked: bool) {
        let mask = self.mask.load(Ordering::Relaxed);
        let Some(instance) = self.instance.upgrade() else { return };
        if event & (mask & ALL_EVENTS | notify::UNMOUNT) == 0 || (is_unlinked && mask & IN_EXCL_UNLINK != 0) {
            return;
        }
        let name = name.unwrap_or(&[]).to_vec();
        instance.push(Event { watch: self.number, mask: event & !notify::SAME_DIRECTORY, cookie, name });
        if mask & IN_ONESHOT != 0 {
            self.gone();
        }
    }

    fn gone(&self) {
        if let Some(instance) = self.instance.upgrade() {
            // Whoever was first says so.
            let _ = instance.remove(self.number);
        }
    }
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    watches: Map<i32, Arc<Mark>>,
    /// The number of the watch on each inode.
    by_inode: Map<notify::Key, i32>,
    last: i32,
}

/// What inotify_init(2) makes.
pub struct Instance {
    this: Weak<Instance>,
    /// Whose it is.
    uid: u32,
    max_events: usize,
    state: SpinLock<State>,
    queue: WaitQueue,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let watches = self.state.get_mut().watches.len() as u64;
        uncharge(self.uid, 1, watches);
    }
}

impl Instance {
    /// A new instance of that user's; `EMFILE` where it has too many.
    pub fn new(uid: u32) -> Result<Arc<Instance>> {
        charge_instance(uid)?;
        Ok(Arc::new_cyclic(|this| Instance {
            this: this.clone(),
            uid,
            max_events: MAX_EVENTS[0].get() as usize,
            state: SpinLock::default(),
            queue: WaitQueue::new(),
        }))
    }

    /// `EINVAL` for a mask of nothing, or with what there is not. One that asks for no event but says how is one (Linux).
    pub fn check_mask(mask: u32) -> Result<()> {
        let both = IN_MASK_ADD | IN_MASK_CREATE;
        if mask & !KNOWN != 0 || mask == 0 || mask & both == both {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// inotify_add_watch(2): the number of the watch on that inode, new or changed.
    pub fn add(&self, inode: &Arc<dyn Inode>, mask: u32) -> Result<i32> {
        let key = notify::key(inode)?;
        let known = {
            let state = self.state.lock();
            state.by_inode.get(&key).and_then(|number| state.watches.get(number)).cloned()
        };
        if let Some(mark) = known {
            if mask & IN_MASK_CREATE != 0 {
                return Err(EEXIST);
            }
            let before = if mask & IN_MASK_ADD != 0 { mark.mask.load(Ordering::Relaxed) } else { 0 };
            mark.mask.store(before | mask, Ordering::Relaxed);
            return Ok(mark.number);
        }
        charge_watch(self.uid)?;
        let mark = {
            let mut state = self.state.lock();
            // Numbers are not used again (Linux counts on as well).
            let Some(next) = state.last.checked_add(1) else {
                uncharge(self.uid, 0, 1);
                return Err(ENOSPC);
            };
            state.last = next;
            let mask = AtomicU32::new(mask);
            let mark = Arc::new(Mark {
                instance: self.this.clone(),
                number: state.last,
                mask,
                key,
                inode: inode.clone(),
            });
            state.watches.insert(mark.number, mark.clone());
            state.by_inode.insert(key, mark.number);
            mark
        };
        let weak: Weak<Mark> = Arc::downgrade(&mark);
        if let Err(e) = notify::add(key, weak) {
            self.take(mark.number);
            return Err(e);
        }
        Ok(mark.number)
    }

    /// inotify_rm_watch(2): `EINVAL` when there is no such watch.
    pub fn remove(&self, number: i32) -> Result<()> {
        let mark = self.take(number).ok_or(EINVAL)?;
        notify::remove(mark.key, Arc::as_ptr(&mark).cast());
        self.push(Event { watch: number, mask: IN_IGNORED, cookie: 0, name: Vec::new() });
        Ok(())
    }

    fn take(&self, number: i32) -> Option<Arc<Mark>> {
        let mut state = self.state.lock();
        let mark = state.watches.remove(&number)?;
        state.by_inode.remove(&mark.key);
        uncharge(self.uid, 0, 1);
        Some(mark)
    }

    fn push(&self, event: Event) {
        {
            let mut state = self.state.lock();
            if state.events.back() == Some(&event) {
                return;
            }
            let event = match state.events.len() {
                n if n < self.max_events => event,
                n if n == self.max_events => {
                    Event { watch: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: Vec::new() }
                }
                _ => return,
            };
            if state.events.reserve_fallibly(1).is_err() {
                return;
            }
            state.events.push_back(event);
        }
        self.queue.wake(Events::READABLE);
    }
}

impl File for Instance {
    fn anonymous_name(&self) -> &'static str {
        "inotify"
    }

    fn show_info(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        let watches: Vec<Arc<Mark>> = self.state.lock().watches.values().cloned().collect();
        for mark in watches {
            let Ok(Stat { inode, device, .. }) = mark.inode.stat() else { continue };
            let (watch, mask) = (mark.number, mark.mask.load(Ordering::Relaxed) & SHOWN);
            writeln!(out, "inotify wd:{watch:x} ino:{inode:x} sdev:{device:x} mask:{mask:x} ignored_mask:0")?;
        }
        Ok(())
    }

    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        loop {
            let event = {
                let mut state = self.state.lock();
                match state.events.front() {
                    None if done == 0 => return Err(EAGAIN),
                    Some(event) if event.length() > to.remaining() && done == 0 => return Err(EINVAL),
                    Some(event) if event.length() <= to.remaining() => state.events.pop_front(),
                    _ => return Ok(done),
                }
            };
            let Some(event) = event else { return Ok(done) };
            done += to.put(&event.bytes())?;
        }
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        Events::NONE.with(Events::READABLE, !self.state.lock().events.is_empty())
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        if command != FIONREAD {
            return Err(ENOTTY);
        }
        let length: usize = self.state.lock().events.iter().map(Event::length).sum();
        api_fs::write_user_int(argument, i32::try_from(length).unwrap_or(i32::MAX))?;
        Ok(0)
    }

    fn close(&self) -> Result<()> {
        let watches = {
            let mut state = self.state.lock();
            state.by_inode.clear();
            core::mem::take(&mut state.watches)
        };
        uncharge(self.uid, 0, watches.len() as u64);
        for mark in watches.into_values() {
            notify::remove(mark.key, Arc::as_ptr(&mark).cast());
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn read(instance: &Instance, room: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; room];
        let n = instance.read(0, &mut Sink::kernel(&mut out))?;
        out.truncate(n);
        Ok(out)
    }

    #[test]
    fn events_are_merged_and_read_whole() {
        let instance = Instance::new(7).unwrap();
        let event = |mask: u32| Event { watch: 1, mask, cookie: 0, name: b"a".to_vec() };
        assert_eq!(read(&instance, 100), Err(EAGAIN));
        instance.push(event(notify::MODIFY));
        instance.push(event(notify::MODIFY));
        instance.push(event(notify::OPEN));
        assert_eq!(read(&instance, 31), Err(EINVAL));
        let first = read(&instance, 63).unwrap();
        assert_eq!(first.len(), 32);
        assert_eq!(first[12..18], [16, 0, 0, 0, b'a', 0]);
        assert_eq!(read(&instance, 100).unwrap().len(), 32);
        for cookie in 0..2 * MAX_EVENTS[0].get() as u32 {
            instance.push(Event { cookie, ..event(notify::MOVED_TO) });
        }
        let all = read(&instance, 1 << 20).unwrap();
        assert_eq!(all.len(), MAX_EVENTS[0].get() as usize * 32 + HEADER);
        assert_eq!(all[all.len() - HEADER..][..8], [0xff, 0xff, 0xff, 0xff, 0, 0x40, 0, 0]);
    }

    #[test]
    fn a_watch_is_one_for_each_inode_and_says_when_it_ends() {
        let root: Arc<dyn Inode> = ramfs::tmpfs(1, 1 << 20, 0o777, (0, 0));
        let instance = Instance::new(7).unwrap();
        assert_eq!(Instance::check_mask(0), Err(EINVAL));
        assert_eq!(Instance::check_mask(IN_MASK_ADD | IN_MASK_CREATE | 1), Err(EINVAL));
        assert_eq!(instance.add(&root, notify::CREATE), Ok(1));
        assert_eq!(instance.add(&root, notify::DELETE | IN_MASK_ADD), Ok(1));
        assert_eq!(instance.add(&root, notify::DELETE | IN_MASK_CREATE), Err(EEXIST));
        assert_eq!(instance.remove(1), Ok(()));
        assert_eq!(instance.remove(1), Err(EINVAL));
        assert_eq!(read(&instance, 100).unwrap()[4..8], [0, 0x80, 0, 0]);
    }
}
