// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TPACKET_V3: packets of any size one behind the other in blocks, which are handed over one by one, when they are full or their time
//! is up (Linux' `prb_` functions).

use crate::memory::Memory;
use crate::ring::{Request, TP_STATUS_KERNEL, TP_STATUS_LOSING, Version};
use api_fs::Timespec;

const TP_STATUS_USER: u32 = 1;
/// The block was handed over because its time was up.
const TP_STATUS_BLK_TMO: u32 = 1 << 5;
/// `sizeof(struct tpacket_block_desc)`, where its status is in it, and what things in blocks are aligned to.
const DESCRIPTOR: u32 = 48;
const STATUS: usize = 8;
const ALIGNMENT: usize = 8;
/// Of a ring that names none (Linux' DEFAULT_PRB_RETIRE_TOV).
const DEFAULT_TIMEOUT_MS: u32 = 8;

/// Where a block's first packet is: behind its descriptor and the program's own bytes.
pub fn first_packet(private: u32) -> u64 {
    (u64::from(DESCRIPTOR) + u64::from(private)).next_multiple_of(ALIGNMENT as u64)
}

/// The blocks of a ring.
pub struct Blocks {
    /// The one that is filled.
    active: u32,
    /// Where the next packet and the last one are, in the ring's memory.
    next: usize,
    last: usize,
    /// Packets in the block, and its bytes.
    packets: u32,
    length: u32,
    first_at: Timespec,
    last_at: Timespec,
    sequence: u64,
    /// The block that would be filled is still the program's.
    is_frozen: bool,
    /// How often that happened, since somebody asked.
    pub freezes: u32,
    pub timeout_ns: u64,
    /// When the block is handed over, full or not: on the monotonic clock.
    pub due: Option<u64>,
}

impl Blocks {
    pub fn new(memory: &Memory, request: &Request) -> Blocks {
        let timeout = if request.timeout == 0 { DEFAULT_TIMEOUT_MS } else { request.timeout };
        let mut blocks = Blocks {
            active: 0,
            next: 0,
            last: 0,
            packets: 0,
            length: 0,
            first_at: Timespec::default(),
            last_at: Timespec::default(),
            sequence: 1,
            is_frozen: false,
            freezes: 0,
            timeout_ns: u64::from(timeout) * 1_000_000,
            due: None,
        };
        blocks.open(memory, request, Timespec::now());
        blocks
    }

    pub fn packets(&self) -> u32 {
        self.packets
    }

    fn start(block: u32, request: &Request) -> usize {
        block as usize * request.block_size as usize
    }

    fn is_programs(memory: &Memory, block: u32, request: &Request) -> bool {
        memory.status(Blocks::start(block, request) + STATUS) & TP_STATUS_USER != 0
    }

    /// The block that is filled, or would be, is the kernel's.
    pub fn has_room(&self, memory: &Memory, request: &Request) -> bool {
        !Blocks::is_programs(memory, self.active, request)
    }

    /// The block before the one that is filled is the program's.
    pub fn is_readable(&self, memory: &Memory, request: &Request) -> bool {
        let previous = self.active.checked_sub(1).unwrap_or(request.blocks.saturating_sub(1));
        memory.status(Blocks::start(previous, request) + STATUS) != TP_STATUS_KERNEL
    }

    fn describe(&self, memory: &Memory, request: &Request) {
        let mut descriptor = [0; DESCRIPTOR as usize];
        let first = first_packet(request.private) as u32;
        let words = [Version::V3 as u32, DESCRIPTOR, TP_STATUS_KERNEL, self.packets, first, self.length];
        let sequence = [self.sequence as u32, (self.sequence >> 32) as u32];
        let times = [self.first_at, self.last_at].map(|at| [at.seconds as u32, at.nanoseconds]);
        let all = words.into_iter().chain(sequence).chain(times.into_iter().flatten());
        for (word, to) in all.zip(descriptor.as_chunks_mut::<4>().0) {
            *to = word.to_ne_bytes();
        }
        memory.write(Blocks::start(self.active, request), &descriptor);
    }

    /// Begins to fill the active block, which is the kernel's.
    fn open(&mut self, memory: &Memory, request: &Request, at: Timespec) {
        let first = first_packet(request.private);
        (self.packets, self.length, self.is_frozen, self.due) = (0, first as u32, false, None);
        (self.first_at, self.last_at) = (at, at);
        self.next = Blocks::start(self.active, request) + first as usize;
        self.describe(memory, request);
    }

    /// Hands the active block over; whether the next one can be filled.
    fn close(&mut self, memory: &Memory, request: &Request, status: u32, at: Timespec) -> bool {
        // No packet is behind the last one.
        memory.write(self.last, &[0; 4]);
        self.describe(memory, request);
        memory.set_status(Blocks::start(self.active, request) + STATUS, TP_STATUS_USER | status);
        self.sequence += 1;
        self.active = if self.active + 1 >= request.blocks { 0 } else { self.active + 1 };
        (self.packets, self.due) = (0, None);
        if Blocks::is_programs(memory, self.active, request) {
            self.is_frozen = true;
            self.freezes = self.freezes.wrapping_add(1);
            return false;
        }
        self.open(memory, request, at);
        true
    }

    /// Makes room for a packet of `length` bytes with its header, which must fit a block: where it is, if there is room; and whether a
    /// block was handed over.
    pub fn reserve(
        &mut self,
        memory: &Memory,
        request: &Request,
        length: usize,
        is_losing: bool,
        at: Timespec,
    ) -> (Option<usize>, bool) {
        if self.is_frozen {
            if Blocks::is_programs(memory, self.active, request) {
                return (None, false);
            }
            self.open(memory, request, at);
        }
        let length = length.next_multiple_of(ALIGNMENT);
        let end = Blocks::start(self.active, request) + request.block_size as usize;
        let is_full = self.packets > 0 && self.next + length >= end;
        let status = if is_losing { TP_STATUS_LOSING } else { 0 };
        if is_full && !self.close(memory, request, status, at) {
            return (None, true);
        }
        let at = self.next;
        memory.write(at, &(length as u32).to_ne_bytes());
        self.next += length;
        self.length += length as u32;
        self.last = at;
        self.packets += 1;
        (Some(at), is_full)
    }

    /// The packet that room was made for is there.
    pub fn stored(&mut self, at: Timespec) {
        self.last_at = at;
    }

    /// The block's time is up; whether it was handed over.
    pub fn retire(&mut self, memory: &Memory, request: &Request, is_losing: bool) -> bool {
        self.due = None;
        if self.packets == 0 {
            return false;
        }
        let status = TP_STATUS_BLK_TMO | if is_losing { TP_STATUS_LOSING } else { 0 };
        self.close(memory, request, status, Timespec::now());
        true
    }
}
