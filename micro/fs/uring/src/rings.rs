// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Submission and completion ring.

use crate::memory::Memory;
use crate::params::*;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use api_alloc::Reserve;
use api_mem::{PageFrame, PageSource};

// Where the words of Linux' `struct io_rings` are.
const SQ_HEAD: usize = 0;
const SQ_TAIL: usize = 64;
const CQ_HEAD: usize = 128;
const CQ_TAIL: usize = 192;
const SQ_MASK: usize = 256;
const CQ_MASK: usize = 260;
const SQ_ENTRIES: usize = 264;
const CQ_ENTRIES: usize = 268;
const SQ_DROPPED: usize = 272;
const SQ_FLAGS: usize = 276;
const CQ_FLAGS: usize = 280;
const CQ_OVERFLOW: usize = 284;
const CQES: usize = 320;

/// IORING_CQ_EVENTFD_DISABLED.
const EVENTFD_DISABLED: u32 = 1;

/// `struct io_uring_sqe`, the first 64 bytes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    /// `off`, `addr2`.
    pub offset: u64,
    /// `addr`, `splice_off_in`.
    pub address: u64,
    pub length: u32,
    /// `rw_flags`, `poll32_events`, `msg_flags` and so on.
    pub op_flags: u32,
    pub user_data: u64,
    /// `buf_index`, `buf_group`.
    pub buffer: u16,
    pub personality: u16,
    /// `splice_fd_in`, `file_index`, `addr_len`.
    pub file_index: i32,
    pub address3: u64,
    pub reserved: u64,
}

impl Sqe {
    pub fn from_bytes(bytes: &[u8; 64]) -> Sqe {
        fn number<const N: usize>(bytes: &[u8; 64], at: usize) -> [u8; N] {
            let mut out = [0; N];
            out.copy_from_slice(&bytes[at..at + N]);
            out
        }
        Sqe {
            opcode: bytes[0],
            flags: bytes[1],
            ioprio: u16::from_ne_bytes(number(bytes, 2)),
            fd: i32::from_ne_bytes(number(bytes, 4)),
            offset: u64::from_ne_bytes(number(bytes, 8)),
            address: u64::from_ne_bytes(number(bytes, 16)),
            length: u32::from_ne_bytes(number(bytes, 24)),
            op_flags: u32::from_ne_bytes(number(bytes, 28)),
            user_data: u64::from_ne_bytes(number(bytes, 32)),
            buffer: u16::from_ne_bytes(number(bytes, 40)),
            personality: u16::from_ne_bytes(number(bytes, 42)),
            file_index: i32::from_ne_bytes(number(bytes, 44)),
            address3: u64::from_ne_bytes(number(bytes, 48)),
            reserved: u64::from_ne_bytes(number(bytes, 56)),
        }
    }
}

/// `struct io_uring_cqe`. With SETUP_CQE32 each has 16 bytes more, which are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
}

/// What the submission ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Entry(Sqe),
    /// The program named an entry that there is not: it was counted as dropped, and submission ends here.
    Dropped,
    Empty,
}

/// The memory of both rings as mmap(2) sees it.
pub struct Mapping {
    rings: Memory,
    sqes: Memory,
}

impl Mapping {
    /// The memory that begins at the page `index` of the file, and the page in it.
    fn find(&self, index: u64) -> Option<(&Memory, u64)> {
        let page = PAGE_SIZE as u64;
        [(OFFSET_SQES, &self.sqes), (OFFSET_CQ_RING, &self.rings), (OFFSET_SQ_RING, &self.rings)]
            .into_iter()
            .find_map(|(offset, memory)| Some((memory, index.checked_sub(offset / page)?)))
    }
}

impl PageSource for Mapping {
    fn page(&self, index: u64, _: bool) -> Result<PageFrame> {
        let (memory, page) = self.find(index).ok_or(EINVAL)?;
        usize::try_from(page).ok().and_then(|page| memory.frame(page)).ok_or(EINVAL)
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        self.page(index, false).ok()
    }

    /// From the beginning of a ring on, no further than its end (Linux' io_uring_validate_mmap_request).
    fn check_range(&self, first: u64, count: u64) -> Result<()> {
        match self.find(first) {
            Some((memory, 0)) if count <= memory.pages() as u64 => Ok(()),
            _ => Err(EINVAL),
        }
    }

    fn length(&self) -> u64 {
        OFFSET_SQES + (self.sqes.pages() * PAGE_SIZE) as u64
    }

    fn is_memory(&self) -> bool {
        true
    }
}

/// Both rings, and completions that found no room.
pub struct Rings {
    memory: Arc<Mapping>,
    sq_entries: u32,
    cq_entries: u32,
    sqe_size: usize,
    cqe_size: usize,
    array: usize,
    /// The kernel's own: what is in the shared memory is for the program to read.
    sq_head: u32,
    cq_tail: u32,
    overflow: VecDeque<Cqe>,
    sq_flags: u32,
    dropped: u32,
    lost: u32,
}

impl Rings {
    /// Makes rings of the sizes that [`Params::fix`] made, and says in `params` where everything is.
    pub fn new(params: &mut Params) -> Result<Rings> {
        let cqe_size = if params.has(SETUP_CQE32) { 32 } else { 16 };
        let sqe_size = if params.has(SETUP_SQE128) { 128 } else { 64 };
        let array = CQES + params.cq_entries as usize * cqe_size;
        let rings = Memory::new(array + params.sq_entries as usize * size_of::<u32>())?;
        let sqes = Memory::new(params.sq_entries as usize * sqe_size)?;
        rings.set_word(SQ_MASK, params.sq_entries - 1);
        rings.set_word(CQ_MASK, params.cq_entries - 1);
        rings.set_word(SQ_ENTRIES, params.sq_entries);
        rings.set_word(CQ_ENTRIES, params.cq_entries);
        params.sq = SqOffsets {
            head: SQ_HEAD as u32,
            tail: SQ_TAIL as u32,
            ring_mask: SQ_MASK as u32,
            ring_entries: SQ_ENTRIES as u32,
            flags: SQ_FLAGS as u32,
            dropped: SQ_DROPPED as u32,
            array: array as u32,
            reserved: [0; 3],
        };
        params.cq = CqOffsets {
            head: CQ_HEAD as u32,
            tail: CQ_TAIL as u32,
            ring_mask: CQ_MASK as u32,
            ring_entries: CQ_ENTRIES as u32,
            overflow: CQ_OVERFLOW as u32,
            cqes: CQES as u32,
            flags: CQ_FLAGS as u32,
            reserved: [0; 3],
        };
        Ok(Rings {
            memory: Arc::new(Mapping { rings, sqes }),
            sq_entries: params.sq_entries,
            cq_entries: params.cq_entries,
            sqe_size,
            cqe_size,
            array,
            sq_head: 0,
            cq_tail: 0,
            overflow: VecDeque::new(),
            sq_flags: 0,
            dropped: 0,
            lost: 0,
        })
    }

    pub fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }

    pub fn cq_entries(&self) -> u32 {
        self.cq_entries
    }

    pub fn sq_entries(&self) -> u32 {
        self.sq_entries
    }

    /// Submissions that wait, however many the program claims.
    pub fn submissions(&self) -> u32 {
        let tail = self.memory.rings.acquire(SQ_TAIL);
        tail.wrapping_sub(self.sq_head).min(self.sq_entries)
    }

    /// The next submission, copied: the program may write over it from now on.
    pub fn take(&mut self) -> Taken {
        if self.submissions() == 0 {
            return Taken::Empty;
        }
        let rings = &self.memory.rings;
        let place = self.array + (self.sq_head & (self.sq_entries - 1)) as usize * size_of::<u32>();
        let index = rings.word(place);
        self.sq_head = self.sq_head.wrapping_add(1);
        let taken = if index < self.sq_entries {
            let mut bytes = [0; 64];
            self.memory.sqes.read(index as usize * self.sqe_size, &mut bytes);
            Taken::Entry(Sqe::from_bytes(&bytes))
        } else {
            self.dropped = self.dropped.wrapping_add(1);
            rings.set_word(SQ_DROPPED, self.dropped);
            Taken::Dropped
        };
        rings.release(SQ_HEAD, self.sq_head);
        taken
    }

    /// Completions that the program has not taken; those that found no room are not among them.
    pub fn completions(&self) -> u32 {
        self.cq_tail.wrapping_sub(self.memory.rings.acquire(CQ_HEAD)).min(self.cq_entries)
    }

    /// The number of completions ever stored, which wraps.
    pub fn cq_tail(&self) -> u32 {
        self.cq_tail
    }

    pub fn has_overflow(&self) -> bool {
        !self.overflow.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.has_overflow() || self.completions() == self.cq_entries
    }

    fn store(&mut self, cqe: Cqe) {
        let place = CQES + (self.cq_tail & (self.cq_entries - 1)) as usize * self.cqe_size;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&cqe.user_data.to_ne_bytes());
        bytes[8..12].copy_from_slice(&cqe.result.to_ne_bytes());
        bytes[12..16].copy_from_slice(&cqe.flags.to_ne_bytes());
        let rings = &self.memory.rings;
        // An entry of 32 bytes may begin at any multiple of 16 only of a page that holds it: 320 and 4096 are multiples of 32.
        rings.write(place, &bytes[..self.cqe_size]);
        self.cq_tail = self.cq_tail.wrapping_add(1);
        rings.release(CQ_TAIL, self.cq_tail);
    }

    /// Stores a completion, or keeps it until there is room. One that there is no memory to keep is counted as lost.
    pub fn post(&mut self, cqe: Cqe) {
        if !self.is_full() {
            return self.store(cqe);
        }
        if api_alloc::is_low() || self.overflow.reserve_fallibly(1).is_err() {
            self.lost = self.lost.wrapping_add(1);
            return self.memory.rings.set_word(CQ_OVERFLOW, self.lost);
        }
        self.overflow.push_back(cqe);
        self.set_flag(SQ_CQ_OVERFLOW, true);
    }

    /// Moves completions that found no room into the ring; true when none is left.
    pub fn flush(&mut self) -> bool {
        while self.completions() < self.cq_entries {
            match self.overflow.pop_front() {
                Some(cqe) => self.store(cqe),
                None => break,
            }
        }
        let is_empty = self.overflow.is_empty();
        if is_empty {
            self.overflow = VecDeque::new();
            self.set_flag(SQ_CQ_OVERFLOW, false);
        }
        is_empty
    }

    /// Sets or clears a flag (`SQ_*`) that the program reads.
    pub fn set_flag(&mut self, flag: u32, on: bool) {
        let flags = if on { self.sq_flags | flag } else { self.sq_flags & !flag };
        if flags != self.sq_flags {
            self.sq_flags = flags;
            self.memory.rings.release(SQ_FLAGS, flags);
        }
    }

    /// The program does not want its eventfd to be signalled now.
    pub fn is_eventfd_disabled(&self) -> bool {
        self.memory.rings.word(CQ_FLAGS) & EVENTFD_DISABLED != 0
    }

    /// Lines of /proc/PID/fdinfo, as far as they are the rings'.
    pub fn show(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        let rings = &self.memory.rings;
        writeln!(out, "SqMask:\t{:#x}", self.sq_entries - 1)?;
        writeln!(out, "SqHead:\t{}", rings.word(SQ_HEAD))?;
        writeln!(out, "SqTail:\t{}", rings.word(SQ_TAIL))?;
        writeln!(out, "CachedSqHead:\t{}", self.sq_head)?;
        writeln!(out, "CqMask:\t{:#x}", self.cq_entries - 1)?;
        writeln!(out, "CqHead:\t{}", rings.word(CQ_HEAD))?;
        writeln!(out, "CqTail:\t{}", rings.word(CQ_TAIL))?;
        writeln!(out, "CachedCqTail:\t{}", self.cq_tail)?;
        writeln!(out, "SQEs:\t{}", self.submissions())?;
        writeln!(out, "CQEs:\t{}", self.completions())
    }
}

/// The kernel's thread sleeps: IORING_ENTER_SQ_WAKEUP wakes it.
pub const SQ_NEED_WAKEUP: u32 = 1;
/// Completions wait for room.
pub const SQ_CQ_OVERFLOW: u32 = 2;
/// Work waits for the program to enter the kernel.
pub const SQ_TASKRUN: u32 = 4;

#[cfg(test)]
mod tests;
