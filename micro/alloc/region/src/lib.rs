// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap that only hands out: allocation moves a pointer, and what is freed stays used.
//!
//! The smallest and quickest heap there is (Hanson: "Fast allocation and deallocation of memory based on object
//! lifetimes", 1990), for programs that end before memory does: it is to measure what taking memory back costs, and for
//! machines that run one short job. Blocks of 32 KiB and more are pages of their own in every heap and do come back.
//!
//! # Invariants
//!
//! - A region starts with its [`Region`]; `at..end` lies behind it in the same region and belongs to no block.
#![no_std]

use api_alloc::{Heap, Statistics};
use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::null_mut;

/// At the start of each region.
#[repr(C)]
struct Region {
    next: *mut Region,
    /// What was not handed out yet.
    at: usize,
    end: usize,
}

/// The allocator.
pub struct Bump {
    regions: *mut Region,
    statistics: Statistics,
}

// SAFETY: the pointers lead into regions that belong to this heap alone.
unsafe impl Send for Bump {}

impl Default for Bump {
    fn default() -> Self {
        Bump::new()
    }
}

impl Bump {
    pub const fn new() -> Bump {
        Bump { regions: null_mut(), statistics: Statistics { total: 0, used: 0, blocks: 0, scraps: 0 } }
    }
}

// SAFETY: a block lies between the old and the new `at` of one region, which only grows: live blocks do not overlap.
unsafe impl Heap for Bump {
    // All else may be in those who call it: the image shows by this one that the heap is in it.
    #[inline(never)]
    unsafe fn add_region(&mut self, start: *mut u8, length: usize) {
        let skip = start.align_offset(align_of::<Region>());
        let Some(room) = length.checked_sub(skip + size_of::<Region>()) else { return };
        // SAFETY: the header lies in the region, aligned, and the region is this heap's by the caller's word.
        unsafe {
            let region: *mut Region = start.add(skip).cast();
            let at = region.add(1) as usize;
            region.write(Region { next: self.regions, at, end: at + room });
            self.regions = region;
        }
        self.statistics.total += length;
        self.statistics.used += length - room;
    }

    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let mut region = self.regions;
        // SAFETY: the list holds this heap's regions and ends with null. There are few: each is larger than the one
        // before (`KernelHeap::grow`), and the newest comes first.
        while let Some(here) = unsafe { region.as_mut() } {
            let aligned = here.at.checked_next_multiple_of(layout.align());
            let block = aligned.and_then(|start| Some((start, start.checked_add(layout.size())?)));
            if let Some((start, end)) = block.filter(|(_, end)| *end <= here.end) {
                self.statistics.used += end - here.at;
                self.statistics.blocks += 1;
                here.at = end;
                return start as *mut u8;
            }
            region = here.next;
        }
        null_mut()
    }

    unsafe fn free(&mut self, _block: *mut u8, _layout: Layout) {
        self.statistics.blocks -= 1;
    }

    fn region_for(&self, layout: Layout) -> usize {
        layout.size() + layout.align() + size_of::<Region>() + align_of::<Region>()
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc_contract::{Memory, layout};

    #[test]
    fn the_contract_holds() {
        alloc_contract::holds(Bump::new);
    }

    #[test]
    fn what_is_freed_stays_used() {
        let mut memory = Memory::new(4096);
        let mut heap = Bump::new();
        memory.give(&mut heap);
        let first = heap.alloc(layout(64, 8));
        let used = heap.statistics().used;
        // SAFETY: live, freed once.
        unsafe { heap.free(first, layout(64, 8)) };
        assert_eq!((heap.statistics().used, heap.statistics().blocks), (used, 0));
        assert_ne!(heap.alloc(layout(64, 8)), first);
    }

    #[test]
    fn a_block_costs_its_bytes_and_nothing_else() {
        let mut memory = Memory::new(1 << 16);
        let mut heap = Bump::new();
        memory.give(&mut heap);
        let begin = heap.statistics().used;
        for _ in 0..100 {
            assert!(!heap.alloc(layout(24, 8)).is_null());
        }
        assert_eq!(heap.statistics().used - begin, 2400);
    }
}
