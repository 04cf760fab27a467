// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks (`io/blkif.h`) behind `api-blockdev`: one ring each, and pages of the driver's that data is copied to and from.

use crate::bus::{self, CONNECTED, Device, INIT_WAIT, INITIALISED};
use crate::grant::{self, grant};
use crate::page::{PAGE, Writer, read};
use crate::ring::Ring;
use abi::{Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, Operation, QUEUE, Request, SECTOR};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use api_sched::{DeferredWork, DeferredWorkSlot};
use core::sync::atomic::{AtomicBool, Ordering};
use plat_pc::xen::{Page, event};

/// Disks that are driven.
const MAX_DISKS: usize = 4;
/// Pages of a request (`BLKIF_MAX_SEGMENTS_PER_REQUEST`).
const PIECES: usize = 11;
/// Requests that the other end has at once: with their pages they are 704 KiB.
const SLOTS: usize = 16;
/// Words of a request.
const WORDS: usize = 28;
// `BLKIF_OP_` and `BLKIF_RSP_`.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 3;
const OKAY: u16 = 0;
const UNSUPPORTED: u16 = 0xfffe;
/// Of `info` in the other end's folder.
const VDISK_READONLY: u32 = 4;

static DEFERRED_WORK: [DeferredWorkSlot; MAX_DISKS] = [const { DeferredWorkSlot::new() }; MAX_DISKS];

/// A request that the other end has, with the memory that it reads to.
struct InFlight {
    tag: u64,
    memory: Gather,
}

struct State {
    ring: Ring,
    /// [`PIECES`] for each slot.
    pages: &'static [Page],
    grants: Vec<u32>,
    slots: Vec<Option<InFlight>>,
    /// Completions that are not from the ring.
    answered: VecDeque<Completion>,
    is_broken: bool,
}

pub struct Disk {
    info: Info,
    /// The device's number, which is part of each request.
    handle: u32,
    can_flush: bool,
    channel: u32,
    index: usize,
    listens: AtomicBool,
    state: SpinLock<State>,
}

/// Gives away all disks that work.
pub fn start(give: &mut dyn FnMut(Arc<dyn BlockDevice>)) {
    for (index, device) in bus::devices("vbd", MAX_DISKS).into_iter().enumerate() {
        match connect(&device, index) {
            Ok(disk) => give(Arc::new(disk)),
            Err(e) => log::error!("xen: a disk does not start: {e:?}"),
        }
    }
}

fn connect(device: &Device, index: usize) -> Result<Disk> {
    device.wait_for(INIT_WAIT)?;
    let [page] = grant::pages(1)? else { return Err(ENOMEM) };
    let pages = grant::pages(SLOTS * PIECES)?;
    let mut grants = Vec::new();
    grants.reserve_exact_fallibly(pages.len()).map_err(|_| ENOMEM)?;
    for page in pages {
        grants.push(grant(device.domain, page)?);
    }
    let state = State::new(Ring::new(page, WORDS), pages, grants)?;
    let channel = device.channel()?;
    device.say("ring-ref", grant(device.domain, page)?)?;
    device.say("event-channel", channel)?;
    device.say("protocol", "x86_64-abi")?;
    device.say("state", INITIALISED)?;
    device.wait_for(CONNECTED)?;
    // Other sizes are for front ends that ask for them.
    if device.told::<usize>("sector-size")? != SECTOR {
        return Err(EINVAL);
    }
    let info = Info {
        sectors: device.told("sectors")?,
        sector_size: SECTOR,
        read_only: device.told::<u32>("info")? & VDISK_READONLY != 0,
        largest: PIECES * PAGE,
    };
    device.say("state", CONNECTED)?;
    let can_flush = device.offers("feature-flush-cache");
    let listens = AtomicBool::new(false);
    let state = SpinLock::new(state);
    Ok(Disk { info, handle: device.number()?, can_flush, channel, index, listens, state })
}

/// The pages of a memory, each with where its bytes begin in the page and in the memory, and how many they are.
fn pieces(memory: &Gather) -> impl Iterator<Item = (&PageFrame, usize, usize, usize)> {
    let mut done = 0;
    memory.frames.iter().enumerate().map_while(move |(i, frame)| {
        let offset = if i == 0 { memory.offset } else { 0 };
        let count = PAGE.checked_sub(offset)?.min(memory.length - done);
        let piece = (frame, offset, done, count);
        done += count;
        (count > 0).then_some(piece)
    })
}

const PIECE: usize = 512;

impl State {
    fn new(ring: Ring, pages: &'static [Page], grants: Vec<u32>) -> Result<State> {
        let mut slots = Vec::new();
        slots.reserve_exact_fallibly(SLOTS).map_err(|_| ENOMEM)?;
        slots.resize_with(SLOTS, || None);
        let mut answered = VecDeque::new();
        answered.reserve_exact_fallibly(2 * QUEUE).map_err(|_| ENOMEM)?;
        Ok(State { ring, pages, grants, slots, answered, is_broken: false })
    }

    fn add(&mut self, kind: u32, handle: u32, request: Request) -> core::result::Result<(), Request> {
        let free = self.slots.iter().position(Option::is_none).filter(|_| self.ring.room() > 0);
        let length = request.memory.length;
        let Some(slot) = free.filter(|_| length <= PIECES * PAGE) else { return Err(request) };
        let first = slot * PIECES;
        if kind == WRITE {
            let mut writer = Writer::new(self.pages[first..first + PIECES].iter());
            let mut bytes = [0; PIECE];
            for (frame, offset, _, count) in pieces(&request.memory) {
                for at in (0..count).step_by(PIECE) {
                    let bytes = &mut bytes[..PIECE.min(count - at)];
                    frame.read(offset + at, bytes);
                    writer.put(bytes);
                }
            }
        }
        let count = if kind == FLUSH { 0 } else { length.div_ceil(PAGE) };
        let mut words = [0; WORDS];
        words[0] = kind | (count as u32) << 8 | handle << 16;
        words[2] = slot as u32;
        words[4] = request.sector as u32;
        words[5] = (request.sector >> 32) as u32;
        for i in 0..count {
            let last = (length - i * PAGE).min(PAGE) / SECTOR - 1;
            words[6 + 2 * i] = self.grants[first + i];
            words[7 + 2 * i] = (last as u32) << 8;
        }
        self.ring.write(&words);
        self.slots[slot] = Some(InFlight { tag: request.tag, memory: request.memory });
        Ok(())
    }

    fn take(&mut self) -> Option<Completion> {
        if !self.is_broken {
            match self.ring.waiting() {
                Ok(0) => {}
                Ok(_) => {
                    let (_, [low, high, answer]) = self.ring.take::<3>();
                    let slot = if high == 0 { low as usize } else { usize::MAX };
                    match self.slots.get_mut(slot).and_then(Option::take) {
                        Some(done) => return Some(self.complete(slot, done, (answer >> 16) as u16)),
                        None => self.fail(),
                    }
                }
                Err(_) => self.fail(),
            }
        }
        self.answered.pop_front()
    }

    fn complete(&self, slot: usize, done: InFlight, status: u16) -> Completion {
        let result = match status {
            OKAY => Ok(()),
            UNSUPPORTED => Err(EOPNOTSUPP),
            _ => Err(EIO),
        };
        if done.memory.is_written && result.is_ok() {
            let pages = &self.pages[slot * PIECES..];
            let mut bytes = [0; PIECE];
            for (frame, offset, from, count) in pieces(&done.memory) {
                for at in (0..count).step_by(PIECE) {
                    // Sectors may begin in one page and end in the next one where the memory does not begin with a page.
                    let place = (from + at) % PAGE;
                    let length = PIECE.min(count - at);
                    let here = length.min(PAGE - place);
                    read(&pages[(from + at) / PAGE], place, &mut bytes[..here]);
                    if here < length {
                        read(&pages[(from + at) / PAGE + 1], 0, &mut bytes[here..length]);
                    }
                    frame.write(offset + at, &bytes[..length]);
                }
            }
        }
        Completion { tag: done.tag, result }
    }

    /// The other end broke the protocol. Its pages are the driver's own, so the memory of requests is free.
    fn fail(&mut self) {
        log::error!("xen: a disk's other end broke the protocol: the disk is gone");
        self.is_broken = true;
        for lost in self.slots.iter_mut().filter_map(Option::take) {
            self.answered.push_back(Completion { tag: lost.tag, result: Err(EIO) });
        }
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&self, request: Request) -> core::result::Result<(), Request> {
        let mut state = self.state.lock();
        let kind = match request.operation {
            Operation::Read => READ,
            Operation::Write => WRITE,
            Operation::Flush => FLUSH,
        };
        // What a disk without a cache has completed is on it.
        let is_done = kind == FLUSH && !self.can_flush;
        if state.is_broken || is_done {
            if state.answered.len() >= QUEUE {
                return Err(request);
            }
            let result = if state.is_broken { Err(EIO) } else { Ok(()) };
            state.answered.push_back(Completion { tag: request.tag, result });
            return Ok(());
        }
        state.add(kind, self.handle, request)
    }

    fn notify(&self) {
        let is_to_be_told = self.state.lock().ring.push();
        if is_to_be_told {
            event::notify(self.channel);
        }
    }

    fn complete(&self) -> Option<Completion> {
        self.state.lock().take()
    }

    fn arm_interrupt(&self) -> bool {
        let mut state = self.state.lock();
        state.answered.is_empty() && !state.is_broken && state.ring.arm().unwrap_or(false)
    }

    fn on_interrupt(&self, work: DeferredWork) -> Result<()> {
        DEFERRED_WORK[self.index].set(work);
        if self.listens.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        event::listen(self.channel, |index| DEFERRED_WORK[index].raise(), self.index)
    }
}

#[cfg(test)]
mod tests;
