// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A namespace as a block device.

use crate::command::{self, Prp};
use crate::controller::{Controller, Hardware};
use crate::identify::{self, Namespace};
use crate::queue::{Answer, Pair, Status};
use crate::shared::Shared;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, MAX_REQUEST, Operation, QUEUE, Request};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use api_sched::DeferredWork;
use core::sync::atomic::Ordering;

/// A request without an answer for so long ends the work with its controller: what Linux waits, too.
pub const ANSWER_NS: u64 = 30_000_000_000;
/// How often a driver whose controller has a request looks whether the controller has failed.
const CHECK_NS: u64 = 1_000_000_000;

/// A list of PRP entries has all pages of the largest request but the first one, and lies within a page.
const LIST_BYTES: usize = 8 * (MAX_REQUEST / PAGE_SIZE);
const _: () = assert!(PAGE_SIZE.is_multiple_of(LIST_BYTES));

/// A request that the controller has.
struct InFlight {
    tag: u64,
    since_ns: u64,
    /// Held for the controller, or to copy to when it is done.
    memory: Gather,
    /// The pages that the controller has instead.
    bounce: Option<Gather>,
}

struct State {
    pair: Pair,
    /// By command number, as many as may be in flight.
    slots: Vec<Option<InFlight>>,
    free: Vec<u16>,
    /// Room for a PRP list for each of them.
    lists: Shared,
    /// Completions that are not from the queue.
    answered: VecDeque<Completion>,
    /// Memory to which a controller that broke the protocol may have been about to write.
    lost: Vec<Gather>,
    /// A completion came since somebody last waited.
    is_busy: bool,
    /// When to look next whether the controller has failed.
    check_ns: u64,
}

pub struct Disk<H: Hardware> {
    controller: Arc<Controller<H>>,
    info: Info,
    namespace: u32,
    queue: u16,
    has_cache: bool,
    state: SpinLock<State>,
}

fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
    Ok(list)
}

/// Bytes of memory as pieces within pages: the page, where in it, and how many.
fn pieces(memory: &Gather) -> impl Iterator<Item = (&PageFrame, usize, usize)> {
    let (mut offset, mut left) = (memory.offset, memory.length);
    memory.frames.iter().map_while(move |frame| {
        let length = (PAGE_SIZE - offset).min(left);
        let piece = (frame, offset, length);
        (offset, left) = (0, left - length);
        (length > 0).then_some(piece)
    })
}

/// As many new pages as so many bytes take.
fn new_pages(length: usize, is_written: bool) -> Result<Gather> {
    let count = length.div_ceil(PAGE_SIZE);
    let mut frames = with_room(count)?;
    for _ in 0..count {
        frames.push(PageFrame::new()?);
    }
    Ok(Gather { frames, offset: 0, length, is_written })
}

/// Copies all bytes of a memory to another one of the same length.
fn copy(from: &Gather, to: &Gather) {
    const PIECE: usize = 256;
    let mut buffer = [0; PIECE];
    let mut to = pieces(to);
    let mut room = to.next();
    for (frame, mut at, mut left) in pieces(from) {
        while left > 0
            && let Some((target, start, length)) = room
        {
            let count = left.min(length).min(PIECE);
            frame.read(at, &mut buffer[..count]);
            target.write(start, &buffer[..count]);
            (at, left) = (at + count, left - count);
            room = if count == length { to.next() } else { Some((target, start + count, length - count)) };
        }
    }
}

impl<H: Hardware> Disk<H> {
    /// `limit`: commands in flight at most.
    pub fn new(
        controller: Arc<Controller<H>>,
        queue: u16,
        pair: Pair,
        limit: usize,
        number: u32,
        namespace: Namespace,
        identity: identify::Controller,
    ) -> Result<Disk<H>> {
        let mut slots = with_room(limit)?;
        slots.resize_with(limit, || None);
        let mut free = with_room(limit)?;
        free.extend((0..limit as u16).rev());
        let mut answered = VecDeque::new();
        answered.reserve_exact_fallibly(2 * QUEUE).map_err(|_| ENOMEM)?;
        let state = State {
            pair,
            slots,
            free,
            lists: Shared::new(LIST_BYTES * limit)?,
            answered,
            lost: with_room(2 * QUEUE)?,
            is_busy: false,
            check_ns: 0,
        };
        let info = Info {
            sectors: namespace.blocks,
            sector_size: namespace.block,
            read_only: namespace.read_only,
            largest: identity.largest.min(MAX_REQUEST as u64) as usize,
        };
        let has_cache = identity.has_cache;
        Ok(Disk { controller, info, namespace: number, queue, has_cache, state: SpinLock::new(state) })
    }

    /// The PRP entries of a request's memory, each page of it one.
    fn prp(&self, state: &State, slot: usize, memory: &Gather) -> Prp {
        let mut addresses = pieces(memory).map(|(frame, offset, _)| frame.physical() + offset as u64);
        let mut prp = Prp(addresses.next().unwrap_or(0), addresses.next().unwrap_or(0));
        if memory.frames.len() > 2 {
            let first = slot * LIST_BYTES / 4;
            for (n, address) in core::iter::once(prp.1).chain(addresses).enumerate() {
                state.lists.word(first + 2 * n).store(address as u32, Ordering::Relaxed);
                state.lists.word(first + 2 * n + 1).store((address >> 32) as u32, Ordering::Relaxed);
            }
            let start = state.lists.start().wrapping_add(slot * LIST_BYTES);
            prp.1 = self.controller.hardware.address_of(start);
        }
        prp
    }

    /// Gives up a controller that has failed, or has not answered the oldest request in time. Looks seldom.
    fn check(&self, state: &mut State) {
        let now = self.controller.hardware.now_ns();
        if state.free.len() == state.slots.len() || now < state.check_ns || self.controller.is_broken() {
            return;
        }
        state.check_ns = now + CHECK_NS;
        self.controller.check();
        let oldest = state.slots.iter().flatten().map(|request| request.since_ns).min();
        if oldest.is_some_and(|since| now.saturating_sub(since) > ANSWER_NS) {
            self.controller.give_up(format_args!(
                "a request to namespace {} has had no answer for {} seconds",
                self.namespace,
                ANSWER_NS / 1_000_000_000
            ));
        }
    }

    fn take(&self, state: &mut State) -> Option<Completion> {
        if !self.controller.is_broken()
            && let Some(answer) = state.pair.pop(&self.controller.hardware)
        {
            match state.slots.get_mut(usize::from(answer.id)).and_then(Option::take) {
                Some(done) => {
                    state.free.push(answer.id);
                    state.is_busy = true;
                    return Some(self.done(done, answer));
                }
                None => self.controller.give_up(format_args!(
                    "it answers command {} of namespace {}, which it was not given",
                    answer.id, self.namespace
                )),
            }
        }
        self.check(state);
        if self.controller.is_broken() {
            let State { slots, free, answered, lost, .. } = state;
            for (id, request) in
                slots.iter_mut().enumerate().filter_map(|(id, slot)| Some((id, slot.take()?)))
            {
                free.push(id as u16);
                answered.push_back(Completion { tag: request.tag, result: Err(EIO) });
                lost.push(request.memory);
                lost.extend(request.bounce);
            }
        }
        state.answered.pop_front()
    }

    fn done(&self, request: InFlight, answer: Answer) -> Completion {
        let result = result_of(answer.status);
        if result.is_err() {
            log::debug!("nvme: namespace {}: {:?}", self.namespace, answer.status);
        }
        if let Some(bounce) = request.bounce.filter(|bounce| bounce.is_written && result.is_ok()) {
            copy(&bounce, &request.memory);
        }
        Completion { tag: request.tag, result }
    }
}

fn result_of(status: Status) -> Result<()> {
    match status {
        Status::OK => Ok(()),
        Status::INVALID_OPCODE => Err(EOPNOTSUPP),
        Status::WRITE_PROTECTED => Err(EROFS),
        Status::CAPACITY_EXCEEDED => Err(ENOSPC),
        _ => Err(EIO),
    }
}

impl State {
    /// Answers without the controller; the request comes back where too many such answers wait.
    fn answer(&mut self, request: Request, result: Result<()>) -> core::result::Result<(), Request> {
        if self.answered.len() >= QUEUE {
            return Err(request);
        }
        self.answered.push_back(Completion { tag: request.tag, result });
        Ok(())
    }
}

impl<H: Hardware> BlockDevice for Disk<H> {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&self, request: Request) -> core::result::Result<(), Request> {
        let mut state = self.state.lock();
        if self.controller.is_broken() {
            return state.answer(request, Err(EIO));
        }
        if request.operation == Operation::Flush && !self.has_cache {
            // What the controller has completed is on its storage.
            return state.answer(request, Ok(()));
        }
        let Some(id) = state.free.last().copied() else { return Err(request) };
        let memory = &request.memory;
        // PRP entries are multiples of four (NVMe 4.3).
        let bounce = match memory.offset % 4 {
            0 => Ok(None),
            _ => new_pages(memory.length, memory.is_written).map(Some),
        };
        let bounce = match bounce {
            Ok(bounce) => bounce,
            Err(e) => return state.answer(request, Err(e)),
        };
        if let Some(bounce) = bounce.as_ref().filter(|bounce| !bounce.is_written) {
            copy(memory, bounce);
        }
        let slot = usize::from(id);
        let prp = self.prp(&state, slot, bounce.as_ref().unwrap_or(memory));
        let blocks = (memory.length / self.info.sector_size) as u32;
        let command = match request.operation {
            Operation::Flush => command::flush(self.namespace),
            operation => {
                let is_read = operation == Operation::Read;
                command::transfer(is_read, self.namespace, request.sector, blocks, prp)
            }
        };
        state.free.pop();
        state.pair.push(command, id);
        let since_ns = self.controller.hardware.now_ns();
        let Request { memory, tag, .. } = request;
        state.slots[slot] = Some(InFlight { tag, since_ns, memory, bounce });
        Ok(())
    }

    fn notify(&self) {
        if !self.controller.is_broken() {
            self.state.lock().pair.notify(&self.controller.hardware);
        }
    }

    fn complete(&self) -> Option<Completion> {
        self.take(&mut self.state.lock())
    }

    fn arm_interrupt(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.free.len() == state.slots.len();
        if !state.answered.is_empty()
            || !is_idle && (self.controller.is_broken() || state.pair.has_completion())
        {
            return false;
        }
        if !is_idle {
            let is_busy = core::mem::take(&mut state.is_busy);
            self.controller.hardware.armed(self.queue, is_busy);
        }
        true
    }

    fn on_interrupt(&self, work: DeferredWork) -> Result<()> {
        self.controller.hardware.connect(self.queue, work)
    }
}

#[cfg(test)]
mod tests;
