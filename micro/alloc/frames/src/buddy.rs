// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocator itself, over memory at any offset so that tests can give it the host's.

use crate::PAGE;
use core::mem::size_of;

/// Orders 0 to 10: blocks of 1 to 1,024 pages (4 MiB).
const ORDERS: usize = 11;
/// Most pages of one block.
pub const MAX_BLOCK: usize = 1 << (ORDERS - 1);
/// Single pages kept ready: half a megabyte at most.
const READY: usize = 128;
/// The share of memory that only the kernel's heap may have, and its greatest size in pages (1 MiB): running out of
/// memory is the program's error and must leave the kernel able to say so.
const RESERVE_SHARE: u64 = 64;
const RESERVE_MAX: u64 = 256;
/// Pages fetched at once when none is ready.
const REFILL_ORDER: usize = 4;

/// In `Record::state`: a free block starts here; the low bits are its order. Otherwise the state is the count of
/// handles of a used page.
const FREE: u32 = 0x8000_0000;
/// State of a page among those kept ready.
const KEPT: u32 = 0;

/// What is known of a page that heads a free block or is used.
#[repr(C)]
struct Record {
    state: u32,
    /// Neighbours in the list of free blocks, as page numbers; 0 is none (page 0 is never given).
    next: u32,
    previous: u32,
}

/// Page numbers `first..end`; those from `frontier` on were never touched.
#[derive(Clone, Copy)]
struct Range {
    first: u32,
    end: u32,
    frontier: u32,
    /// Address of the record of `first`.
    records: usize,
}

impl Range {
    const EMPTY: Range = Range { first: 0, end: 0, frontier: 0, records: 0 };

    fn contains(&self, page: u32) -> bool {
        page >= self.first && page < self.frontier
    }
}

/// The allocator of physical pages.
pub struct Frames {
    /// Where physical address 0 is seen.
    offset: usize,
    ranges: [Range; Frames::RANGES],
    used_ranges: usize,
    lists: [u32; ORDERS],
    ready: [u32; READY],
    ready_count: usize,
    total: u64,
    free: u64,
    /// Single pages are refused from here on.
    reserve: u64,
}

impl Frames {
    /// More ranges than a PC's memory map has usable ones.
    pub const RANGES: usize = 24;

    pub const fn new(offset: usize) -> Frames {
        Frames {
            offset,
            ranges: [Range::EMPTY; Self::RANGES],
            used_ranges: 0,
            lists: [0; ORDERS],
            ready: [0; READY],
            ready_count: 0,
            total: 0,
            free: 0,
            reserve: 0,
        }
    }

    /// Pages that were given and are not records.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    /// Pages that [`Frames::new_frame`] leaves to the kernel's heap.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    /// # Safety
    ///
    /// As for [`crate::add_range`].
    pub unsafe fn add_range(&mut self, start: u64, end: u64) -> bool {
        let page = PAGE as u64;
        let limit = u64::from(u32::MAX);
        let (mut first, end) = (start.div_ceil(page).max(1), (end / page).min(limit));
        if first >= end || self.used_ranges == Self::RANGES {
            return first >= end;
        }
        let records = first * page;
        first += ((end - first) * size_of::<Record>() as u64).div_ceil(page);
        if first >= end {
            return true;
        }
        let range = Range {
            first: first as u32,
            end: end as u32,
            frontier: first as u32,
            records: records as usize + self.offset,
        };
        // The largest ranges first: lookups end soon, and low memory stays for last.
        let mut at = self.used_ranges;
        while at > 0 && self.ranges[at - 1].end - self.ranges[at - 1].first < range.end - range.first {
            self.ranges[at] = self.ranges[at - 1];
            at -= 1;
        }
        self.ranges[at] = range;
        self.used_ranges += 1;
        self.total += end - first;
        self.reserve = (self.total / RESERVE_SHARE).min(RESERVE_MAX);
        self.free += end - first;
        true
    }

    /// The record of a page at or before the frontier of a range; `None` for any other.
    fn record(&self, page: u32) -> Option<*mut Record> {
        let range = self.ranges[..self.used_ranges].iter().find(|r| r.contains(page))?;
        Some((range.records as *mut Record).wrapping_add((page - range.first) as usize))
    }

    /// # Safety
    ///
    /// `block` is an unused block of `order` within the frontier of a range.
    unsafe fn push(&mut self, block: u32, order: usize) {
        let head = self.lists[order];
        if let Some(record) = self.record(block) {
            // SAFETY: records of a range are memory of this allocator.
            unsafe { record.write(Record { state: FREE | order as u32, next: head, previous: 0 }) }
        }
        if let Some(record) = self.record(head) {
            // SAFETY: as above.
            unsafe { (*record).previous = block }
        }
        self.lists[order] = block;
    }

    /// # Safety
    ///
    /// `block` is a free block of `order`.
    unsafe fn remove(&mut self, block: u32, order: usize) {
        let Some(record) = self.record(block) else { return };
        // SAFETY: records of a range are memory of this allocator, and that of a free block was written.
        let (next, previous) = unsafe { ((*record).next, (*record).previous) };
        // A page that later lies inside a greater block must not look like a free one.
        // SAFETY: as above.
        unsafe { (*record).state = KEPT }
        match self.record(previous) {
            // SAFETY: as above.
            Some(record) => unsafe { (*record).next = next },
            None => self.lists[order] = next,
        }
        if let Some(record) = self.record(next) {
            // SAFETY: as above.
            unsafe { (*record).previous = previous }
        }
    }

    /// A block of `order` from the lists, by splitting where needed.
    fn take_listed(&mut self, wanted: usize) -> Option<u32> {
        let mut order = (wanted..ORDERS).find(|k| self.lists[*k] != 0)?;
        let block = self.lists[order];
        // SAFETY: the head of a list is a free block; its halves are unused blocks once it is off the list.
        unsafe {
            self.remove(block, order);
            while order > wanted {
                order -= 1;
                self.push(block + (1 << order), order);
            }
        }
        Some(block)
    }

    /// Moves a frontier on by the largest aligned block there, and lists it; false when all was touched.
    fn advance(&mut self) -> bool {
        let Some(range) = self.ranges[..self.used_ranges].iter_mut().find(|r| r.frontier < r.end) else {
            return false;
        };
        let block = range.frontier;
        let order = block.trailing_zeros().min((range.end - block).ilog2()).min(ORDERS as u32 - 1) as usize;
        range.frontier += 1 << order;
        // SAFETY: nobody had the block yet.
        unsafe { self.push(block, order) };
        true
    }

    fn take_block(&mut self, order: usize) -> Option<u32> {
        loop {
            if let Some(block) = self.take_listed(order) {
                return Some(block);
            }
            if !self.advance() {
                return None;
            }
        }
    }

    /// # Safety
    ///
    /// A used, aligned block of `order`, which is nobody's from now on.
    unsafe fn free_block(&mut self, mut block: u32, mut order: usize) {
        let Some(range) = self.ranges[..self.used_ranges].iter().find(|r| r.contains(block)).copied() else {
            return;
        };
        while order + 1 < ORDERS {
            let buddy = block ^ (1 << order);
            if buddy < range.first || buddy + (1 << order) > range.frontier {
                break;
            }
            let Some(record) = self.record(buddy) else { break };
            // SAFETY: the buddy lies in the range, and the split of the parent wrote its record.
            if unsafe { (*record).state } != FREE | order as u32 {
                break;
            }
            // SAFETY: it is a free block of this order, as just read.
            unsafe { self.remove(buddy, order) };
            block = block.min(buddy);
            order += 1;
        }
        // SAFETY: the block, grown by free buddies, is unused.
        unsafe { self.push(block, order) };
    }

    fn set_state(&mut self, page: u32, state: u32) {
        if let Some(record) = self.record(page) {
            // SAFETY: records of a range are memory of this allocator.
            unsafe { (*record).state = state }
        }
    }

    /// One page with a count of one, its bytes whatever they were; 0 when there is none but the reserve, which
    /// [`Frames::take`] alone gives out.
    #[inline]
    pub fn new_frame(&mut self) -> u64 {
        if self.free <= self.reserve || (self.ready_count == 0 && !self.refill()) {
            return 0;
        }
        self.ready_count -= 1;
        let page = self.ready[self.ready_count];
        self.set_state(page, 1);
        self.free -= 1;
        u64::from(page) * PAGE as u64
    }

    #[cold]
    fn refill(&mut self) -> bool {
        for order in [REFILL_ORDER, 0] {
            if let Some(block) = self.take_block(order) {
                // The lowest goes on top, so that pages go out in ascending order.
                for page in (block..block + (1 << order)).rev() {
                    self.set_state(page, KEPT);
                    self.ready[self.ready_count] = page;
                    self.ready_count += 1;
                }
                return true;
            }
        }
        false
    }

    /// Puts the oldest of the pages kept ready back among the blocks, so that they can merge.
    #[cold]
    fn drain(&mut self, count: usize) {
        for i in 0..count {
            // SAFETY: pages kept ready are nobody's.
            unsafe { self.free_block(self.ready[i], 0) };
        }
        self.ready.copy_within(count..self.ready_count, 0);
        self.ready_count -= count;
    }

    /// One more handle; permanent pages stay as they are.
    #[inline]
    pub fn retain(&mut self, physical: u64) {
        if let Some(record) = self.record((physical / PAGE as u64) as u32) {
            // SAFETY: records of a range are memory of this allocator; a handle exists, so the state is a count.
            unsafe { (*record).state += 1 }
        }
    }

    /// One handle less; the last frees the page.
    #[inline]
    pub fn release(&mut self, physical: u64) {
        let page = (physical / PAGE as u64) as u32;
        let Some(record) = self.record(page) else { return };
        // SAFETY: as in `retain`.
        let count = unsafe {
            (*record).state -= 1;
            (*record).state
        };
        if count == 0 {
            if self.ready_count == READY {
                self.drain(READY / 2);
            }
            self.ready[self.ready_count] = page;
            self.ready_count += 1;
            self.free += 1;
        }
    }

    /// Handles to the page; `u32::MAX` for a permanent one.
    #[inline]
    pub fn count(&self, physical: u64) -> u32 {
        // SAFETY: records of a range are memory of this allocator.
        self.record((physical / PAGE as u64) as u32).map_or(u32::MAX, |record| unsafe { (*record).state })
    }

    /// See [`crate::take`]. Each page has a count of one, so that they may also be released one by one.
    pub fn take(&mut self, count: usize) -> u64 {
        if count == 0 || count > MAX_BLOCK {
            return 0;
        }
        let order = count.next_power_of_two().trailing_zeros() as usize;
        let block = self.take_block(order).or_else(|| {
            self.drain(self.ready_count);
            self.take_block(order)
        });
        let Some(block) = block else { return 0 };
        self.free -= 1 << order;
        // All of them, for nobody may take a neighbour's record that was never written for a free buddy's.
        for page in block..block + (1 << order) {
            self.set_state(page, 1);
        }
        // SAFETY: the tail is part of the block just taken.
        unsafe { self.give(u64::from(block + count as u32) * PAGE as u64, (1 << order) - count) };
        u64::from(block) * PAGE as u64
    }

    /// See [`crate::give`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn give(&mut self, physical: u64, count: usize) {
        let (mut page, end) =
            ((physical / PAGE as u64) as u32, (physical / PAGE as u64) as u32 + count as u32);
        while page < end {
            let order = page.trailing_zeros().min((end - page).ilog2()).min(ORDERS as u32 - 1) as usize;
            // SAFETY: part of the caller's pages.
            unsafe { self.free_block(page, order) };
            page += 1 << order;
        }
        self.free += count as u64;
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
