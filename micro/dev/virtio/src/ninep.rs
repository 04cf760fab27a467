// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 9p transport (virtio 1.2, 5.9): requests and replies over one queue, many in flight. What is in them is the 9p
//! client's business.

use crate::{Area, Device, Kind, Queue, feature};
use abi::{Result, errno::EINVAL, errno::EIO};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_mem::Gather;
use api_sched::Waiter;

/// The device has a mount tag.
const F_MOUNT_TAG: u64 = 1;
/// Descriptors of the queue: half as many requests in flight.
const QUEUE_SIZE: u16 = 128;
/// Longest mount tag that is read; QEMU's are 31 bytes at most.
const TAG_MAX: u16 = 255;

/// Most pages that are part of a message: with request and reply they fit the queue, and something else beside them.
pub const MAX_PAGES: usize = QUEUE_SIZE as usize - 8;

/// A request on its way.
struct Pending {
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Kept while the device uses them.
    _pages: Gather,
    /// Bytes of the reply, once it came.
    done: Option<usize>,
    waiter: Arc<dyn Waiter>,
}

struct State {
    queue: Queue,
    /// By token.
    pending: Vec<Option<Pending>>,
    /// Threads that wait for room in the queue.
    blocked_senders: Vec<Arc<dyn Waiter>>,
}

/// One exported directory.
pub struct Channel {
    tag: String,
    state: SpinLock<State>,
    _device: Device,
}

static CHANNELS: SpinLock<Vec<Arc<Channel>>> = SpinLock::new(Vec::new());
/// Devices that are not started: each takes some thirty accesses, of which each costs an exit to the monitor, and memory for its queue.
static FOUND: SpinLock<Vec<Device>> = SpinLock::new(Vec::new());

/// There is a device. It is started by [`start`].
pub(crate) fn found(device: Device) {
    FOUND.lock().push(device);
}

fn begin(device: Device) -> Result<Arc<Channel>> {
    let features = device.begin(feature::EVENT_IDX | F_MOUNT_TAG)?;
    if features & F_MOUNT_TAG == 0 {
        return Err(EINVAL);
    }
    let length = device.config_u16(0).min(TAG_MAX);
    let tag: Vec<u8> = (0..usize::from(length)).map(|i| device.config_u8(2 + i)).collect();
    let mut queue = device.queue(0, QUEUE_SIZE, features)?;
    device.on_interrupt(api_sched::add_deferred_work(poll))?;
    queue.enable_interrupts();
    device.start();
    let state = State { queue, pending: Vec::new(), blocked_senders: Vec::new() };
    let tag = String::from_utf8_lossy(&tag).into_owned();
    let channel = Arc::new(Channel { tag, state: SpinLock::new(state), _device: device });
    CHANNELS.lock().push(channel.clone());
    Ok(channel)
}

/// Starts the devices that were not started until now. Answers them.
pub fn start() -> Vec<Arc<Channel>> {
    let found = core::mem::take(&mut *FOUND.lock());
    let started = found.into_iter().map(begin);
    let started =
        started.filter_map(|channel| channel.inspect_err(|e| crate::does_not_start(Kind::NINEP, *e)).ok());
    started.collect()
}

fn poll() {
    let channels = CHANNELS.lock().clone();
    for channel in channels {
        channel.collect();
    }
}

impl Channel {
    /// The mount tag.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Sends `request` and waits for the reply, which is written to the capacity of `reply` and answered cut to its
    /// length, with the request's buffer to be used again. `EIO` when the device broke. Blocks: hold no lock.
    pub fn call(&self, request: Vec<u8>, mut reply: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
        reply.resize(reply.capacity(), 0);
        self.call_with(request, reply, Gather::default()).map(|(request, reply, _)| (request, reply))
    }

    /// The same with pages behind the request or behind the reply, which is written to its length. Answers how long the
    /// reply is with what is in the pages.
    pub fn call_with(
        &self,
        request: Vec<u8>,
        mut reply: Vec<u8>,
        pages: Gather,
    ) -> Result<(Vec<u8>, Vec<u8>, usize)> {
        if request.is_empty() || reply.is_empty() || pages.frames.len() > MAX_PAGES {
            return Err(EINVAL);
        }
        let waiter = api_sched::current();
        let mut from = Vec::from([Area::of(&request)]);
        let mut to = Vec::from([Area::of_mut(&mut reply)]);
        let with_pages = if pages.is_written { &mut to } else { &mut from };
        Area::of_pages(&pages, with_pages);
        let mut pending = Some(Pending { request, reply, _pages: pages, done: None, waiter: waiter.clone() });
        let token = loop {
            let mut state = self.state.lock();
            let free = state.pending.iter().position(Option::is_none);
            let token = free.unwrap_or(state.pending.len());
            // SAFETY: the buffers and pages are kept in `pending`, untouched by the kernel, until the device answered; moving
            // the vectors does not move what they hold. The program may touch its pages, and sees what it then gets.
            match unsafe { state.queue.add(&from, &to, token) } {
                Ok(()) => {
                    match free {
                        Some(free) => state.pending[free] = pending.take(),
                        None => state.pending.push(pending.take()),
                    }
                    state.queue.notify();
                    break token;
                }
                Err(_) if state.queue.is_broken() => return Err(EIO),
                Err(_) => {
                    state.blocked_senders.push(waiter.clone());
                    drop(state);
                    api_sched::park(u64::MAX);
                }
            }
        };
        loop {
            {
                let mut state = self.state.lock();
                if state.pending[token].as_ref().is_some_and(|p| p.done.is_some())
                    && let Some(Pending { request, mut reply, done: Some(length), .. }) =
                        state.pending[token].take()
                {
                    reply.truncate(length);
                    return Ok((request, reply, length));
                }
                if state.queue.is_broken() {
                    // The buffers stay where they are: the device may still write to them.
                    return Err(EIO);
                }
            }
            api_sched::park(u64::MAX);
        }
    }

    /// Takes the replies that came and wakes their threads.
    fn collect(&self) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            loop {
                while let Some(used) = state.queue.pop() {
                    if let Some(Some(pending)) = state.pending.get_mut(used.token) {
                        pending.done = Some(used.written as usize);
                        wake.push(pending.waiter.clone());
                    }
                    wake.append(&mut state.blocked_senders);
                }
                if state.queue.enable_interrupts() || state.queue.is_broken() {
                    break;
                }
            }
            if state.queue.is_broken() {
                wake.extend(state.pending.iter().flatten().map(|p| p.waiter.clone()));
                wake.append(&mut state.blocked_senders);
            }
        }
        for waiter in wake {
            waiter.wake(abi::Events::IN);
        }
    }
}
