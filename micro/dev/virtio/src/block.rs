// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block device (virtio 1.2, 5.2) behind `api-blockdev`: one queue, data in the pages that the caller holds, nothing copied, unless
//! the device takes a request's data in one piece only ([`bounce`]).

mod bounce;

use crate::{Area, Device, Queue, feature};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, MAX_REQUEST, Operation, QUEUE, Request, SECTOR};
use api_lock::SpinLock;
use api_mem::Gather;
use api_sched::DeferredWork;
use bounce::Bounce;

/// Feature bits (5.2.3).
const F_SEG_MAX: u64 = 1 << 2;
const F_RO: u64 = 1 << 5;
const F_FLUSH: u64 = 1 << 9;

/// Request types (5.2.6).
const T_IN: u32 = 0;
const T_OUT: u32 = 1;
const T_FLUSH: u32 = 4;

/// Status of a request (5.2.6).
const S_OK: u8 = 0;
const S_UNSUPP: u8 = 2;
/// No device writes this one.
const S_NONE: u8 = 0xff;

/// Where the configuration has the capacity in sectors, and the pieces of data of a request at most (5.2.4).
const CAPACITY: usize = 0;
const SEG_MAX: usize = 12;

/// Descriptors of the queue: a burst of requests of one page each, or some of the largest.
const QUEUE_SIZE: u16 = 256;
/// Header, status, and the pages of the largest request where it does not begin with one.
const MAX_AREAS: usize = 2 + MAX_REQUEST / PAGE_SIZE + 1;

/// What of a request is not data (`struct virtio_blk_req`): the device reads the header and writes the status.
#[repr(C)]
struct Ends {
    header: [u8; 16],
    status: u8,
}

/// A request that the device has.
struct InFlight {
    tag: u64,
    /// Bytes that the device has written when it did all of it.
    written: u32,
    /// Held for the device.
    memory: Gather,
    /// The device has memory of [`Bounce`] in its place.
    is_bounced: bool,
}

struct State {
    queue: Queue,
    ends: Box<[Ends]>,
    /// By token, as many as `ends`.
    slots: Vec<Option<InFlight>>,
    free: Vec<u16>,
    bounce: Option<Bounce>,
    /// Completions that are not from the queue.
    answered: VecDeque<Completion>,
    /// Memory to which a device that broke the protocol may still write.
    lost: Vec<Gather>,
    /// What the device is told of a request; kept so that a request allocates nothing.
    read: Vec<Area>,
    write: Vec<Area>,
}

pub struct Disk {
    info: Info,
    can_flush: bool,
    device: Device,
    state: SpinLock<State>,
}

fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
    Ok(list)
}

/// Prepares the device. [`BlockDevice::on_interrupt`] starts it.
pub fn start(device: Device) -> Result<Arc<Disk>> {
    let features = device.begin(feature::EVENT_IDX | F_SEG_MAX | F_RO | F_FLUSH)?;
    let mut queue = device.queue(0, QUEUE_SIZE, features)?;
    queue.disable_interrupts();
    // Without the feature a device takes one piece a request.
    let pieces = if features & F_SEG_MAX != 0 { device.config_u32(SEG_MAX) as usize } else { 1 };
    // Header and status have descriptors of their own, and a page more is touched where the data does not begin with one.
    let pages = pieces.min(usize::from(queue.size()).saturating_sub(2)).saturating_sub(1);
    let bounce = if pages == 0 { Some(Bounce::new()?) } else { None };
    let (requests, largest) = match &bounce {
        Some(bounce) => (bounce.places(), bounce::MAX),
        None => (QUEUE, MAX_REQUEST.min(pages * PAGE_SIZE)),
    };
    let mut ends = with_room(QUEUE)?;
    ends.resize_with(QUEUE, || Ends { header: [0; 16], status: S_NONE });
    let mut slots = with_room(QUEUE)?;
    slots.resize_with(QUEUE, || None);
    let mut free = with_room(QUEUE)?;
    free.extend((0..requests as u16).rev());
    let mut answered = VecDeque::new();
    answered.reserve_exact_fallibly(2 * QUEUE).map_err(|_| ENOMEM)?;
    let state = State {
        queue,
        ends: ends.into_boxed_slice(),
        slots,
        free,
        bounce,
        answered,
        lost: with_room(QUEUE)?,
        read: with_room(MAX_AREAS)?,
        write: with_room(MAX_AREAS)?,
    };
    let info = Info {
        sectors: device.config_u64(CAPACITY),
        sector_size: SECTOR,
        read_only: features & F_RO != 0,
        largest,
    };
    Ok(Arc::new(Disk { info, can_flush: features & F_FLUSH != 0, device, state: SpinLock::new(state) }))
}

impl State {
    fn add(&mut self, kind: u32, request: Request) -> core::result::Result<(), Request> {
        let Some(token) = self.free.last().copied().map(usize::from) else { return Err(request) };
        let Ends { header, status } = &mut self.ends[token];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&request.sector.to_le_bytes());
        *status = S_NONE;
        self.read.clear();
        self.write.clear();
        self.read.push(Area::of(header));
        let data = if request.memory.is_written { &mut self.write } else { &mut self.read };
        let first = data.len();
        Area::of_pages(&request.memory, data);
        let is_bounced = self.bounce.is_some() && data.len() > first + 1;
        if let Some(bounce) = self.bounce.as_mut().filter(|_| is_bounced) {
            data.truncate(first);
            data.push(bounce.lend(token, &request.memory));
        }
        self.write.push(Area::of_mut(core::slice::from_mut(status)));
        // SAFETY: the ends of the request stay where they are as long as the device, which is for ever, and nobody touches those of
        // a token that is not free; the pages are held in `slots`. The program may touch its pages, and sees what it then gets.
        if unsafe { self.queue.add(&self.read, &self.write, token) }.is_err() {
            return Err(request);
        }
        self.free.pop();
        let Request { memory, tag, .. } = request;
        let written = 1 + if memory.is_written { memory.length as u32 } else { 0 };
        self.slots[token] = Some(InFlight { tag, written, memory, is_bounced });
        Ok(())
    }

    fn take(&mut self) -> Option<Completion> {
        while let Some(used) = self.queue.pop() {
            let Some(done) = self.slots.get_mut(used.token).and_then(Option::take) else { continue };
            self.free.push(used.token as u16);
            if let Some(bounce) = self.bounce.as_mut().filter(|_| done.is_bounced) {
                bounce.give_back(used.token, &done.memory);
            }
            // SAFETY: the token's place is in the list; the device wrote the byte before it said so, and writes it no more.
            let status = unsafe { (&raw const self.ends[used.token].status).read_volatile() };
            let result = match status {
                // A device may say nothing of the bytes of a request that it only read (2.7.8.2).
                S_OK if done.written == 1 || used.written >= done.written => Ok(()),
                S_UNSUPP => Err(EOPNOTSUPP),
                _ => Err(EIO),
            };
            return Some(Completion { tag: done.tag, result });
        }
        if self.queue.is_broken() {
            for lost in self.slots.iter_mut().filter_map(Option::take) {
                self.answered.push_back(Completion { tag: lost.tag, result: Err(EIO) });
                self.lost.push(lost.memory);
            }
        }
        self.answered.pop_front()
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&self, request: Request) -> core::result::Result<(), Request> {
        let mut state = self.state.lock();
        if state.queue.is_broken() && state.answered.len() < QUEUE {
            state.answered.push_back(Completion { tag: request.tag, result: Err(EIO) });
            return Ok(());
        }
        let kind = match request.operation {
            Operation::Read => T_IN,
            Operation::Write => T_OUT,
            Operation::Flush if self.can_flush => T_FLUSH,
            // What the device has completed is on its storage (5.2.5.2).
            Operation::Flush if state.answered.len() < QUEUE => {
                state.answered.push_back(Completion { tag: request.tag, result: Ok(()) });
                return Ok(());
            }
            Operation::Flush => return Err(request),
        };
        state.add(kind, request)
    }

    fn notify(&self) {
        self.state.lock().queue.notify();
    }

    fn complete(&self) -> Option<Completion> {
        self.state.lock().take()
    }

    fn arm_interrupt(&self) -> bool {
        let mut state = self.state.lock();
        state.answered.is_empty() && !state.queue.is_broken() && state.queue.enable_interrupts()
    }

    fn on_interrupt(&self, work: DeferredWork) -> Result<()> {
        self.device.on_interrupt(work)?;
        self.device.start();
        Ok(())
    }
}
