// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap of one list: the first free block that is long enough is taken (Knuth, The Art of Computer Programming 1,
//! 2.5, algorithms A and B; Kernighan and Ritchie, 8.7).
//!
//! It is for images that count bytes: the least code of the heaps that take blocks back, no header before a block and
//! no table beside the blocks, because the caller of `free` tells the length. Time grows with the number of free blocks.
//!
//! # Invariants (checked in tests)
//!
//! - Free blocks are in one list, in the order of their addresses, and no two of them touch.
//! - Blocks start and end at multiples of [`UNIT`].
#![no_std]
#[cfg(test)]
extern crate std;

use api_alloc::{Heap, Statistics};
use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::null_mut;

/// Blocks start and end at multiples of this: room for a free block's [`Free`].
const UNIT: usize = size_of::<Free>();

/// At the start of a free block.
#[repr(C, align(16))]
struct Free {
    /// Bytes, this header included.
    length: usize,
    next: *mut Free,
}

/// The allocator.
pub struct Tiny {
    first: *mut Free,
    statistics: Statistics,
}

// SAFETY: the pointers lead into regions that belong to this heap alone.
unsafe impl Send for Tiny {}

impl Default for Tiny {
    fn default() -> Self {
        Tiny::new()
    }
}

/// Bytes that a block of this size takes; `None` when there is no such number.
fn rounded(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(UNIT)
}

impl Tiny {
    pub const fn new() -> Tiny {
        Tiny { first: null_mut(), statistics: Statistics { total: 0, used: 0, blocks: 0, scraps: 0 } }
    }

    /// Puts a block where its address belongs and joins it with its neighbours.
    ///
    /// # Safety
    ///
    /// `length` bytes at `start`, both multiples of [`UNIT`], are this heap's and in no block.
    unsafe fn insert(&mut self, start: usize, mut length: usize) {
        let block = start as *mut Free;
        // SAFETY: list entries are free blocks of this heap, and the new one is the caller's to give. An entry is
        // changed only where it or its successor is the neighbour.
        unsafe {
            let (mut before, mut after) = (null_mut::<Free>(), self.first);
            while !after.is_null() && (after as usize) < start {
                (before, after) = (after, (*after).next);
            }
            if after as usize == start + length {
                length += (*after).length;
                after = (*after).next;
            }
            if !before.is_null() && before as usize + (*before).length == start {
                (*before).length += length;
                (*before).next = after;
                return;
            }
            block.write(Free { length, next: after });
            if before.is_null() {
                self.first = block;
            } else {
                (*before).next = block;
            }
        }
    }
}

// SAFETY: `alloc` cuts a block out of a free one and leaves only what lies before and behind it in the list, so live
// blocks do not overlap; `insert` gets back what `alloc` cut, because both round the size the same way.
unsafe impl Heap for Tiny {
    unsafe fn add_region(&mut self, start: *mut u8, length: usize) {
        let skip = start.align_offset(UNIT);
        let Some(room) = length.checked_sub(skip).map(|n| n / UNIT * UNIT).filter(|n| *n > 0) else { return };
        // SAFETY: the bytes lie in the region, which is this heap's by the caller's word.
        unsafe { self.insert(start as usize + skip, room) };
        self.statistics.total += room;
    }

    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some(wanted) = rounded(layout.size()) else { return null_mut() };
        let (mut before, mut here) = (null_mut::<Free>(), self.first);
        // SAFETY: list entries are free blocks of this heap. What is left of one in front of the new block keeps its
        // header; what is left behind it gets one, inside the old block.
        unsafe {
            while !here.is_null() {
                let Free { length, next } = here.read();
                let front = (here as usize).wrapping_neg() & (layout.align() - 1);
                let spare = length.checked_sub(front).and_then(|n| n.checked_sub(wanted));
                if let Some(spare) = spare {
                    let block = here as usize + front;
                    let mut rest = next;
                    if spare > 0 {
                        rest = (block + wanted) as *mut Free;
                        rest.write(Free { length: spare, next });
                    }
                    if front > 0 {
                        here.write(Free { length: front, next: rest });
                    } else if before.is_null() {
                        self.first = rest;
                    } else {
                        (*before).next = rest;
                    }
                    self.statistics.used += wanted;
                    self.statistics.blocks += 1;
                    return block as *mut u8;
                }
                (before, here) = (here, next);
            }
        }
        null_mut()
    }

    unsafe fn free(&mut self, block: *mut u8, layout: Layout) {
        let Some(length) = rounded(layout.size()) else { return };
        // SAFETY: the block is a live one of this layout by the caller's word, so it is this long.
        unsafe { self.insert(block as usize, length) };
        self.statistics.used -= length;
        self.statistics.blocks -= 1;
    }

    fn region_for(&self, layout: Layout) -> usize {
        layout.size() + layout.align() + 2 * UNIT
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc_contract::{Memory, layout, random};

    /// Bytes of free blocks; fails where the list is out of order or two blocks touch.
    fn check(heap: &Tiny) -> usize {
        let (mut total, mut end, mut here) = (0, 0, heap.first);
        // SAFETY: the list holds free blocks, which is what is being checked.
        while let Some(free) = unsafe { here.as_ref() } {
            let start = here as usize;
            assert!(start > end, "free blocks that touch or are out of order");
            assert!(start.is_multiple_of(UNIT) && free.length.is_multiple_of(UNIT) && free.length > 0);
            (total, end, here) = (total + free.length, start + free.length, free.next);
        }
        total
    }

    #[test]
    fn the_contract_holds() {
        alloc_contract::holds(Tiny::new);
        alloc_contract::all_memory_comes_back(Tiny::new);
    }

    #[test]
    fn the_list_stays_in_order_and_joined() {
        let mut memory = Memory::new(1 << 16);
        let mut heap = Tiny::new();
        memory.give(&mut heap);
        let (mut random, mut live) = (random(), std::vec::Vec::new());
        for _ in 0..20_000 {
            if random(2) == 0 && !live.is_empty() {
                let (block, l) = live.swap_remove(random(live.len() as u64) as usize);
                // SAFETY: live, freed once.
                unsafe { heap.free(block, l) };
            } else {
                let l = layout(1 + random(500) as usize, 1 << random(7));
                let block = heap.alloc(l);
                if !block.is_null() {
                    live.push((block, l));
                }
            }
            assert_eq!(check(&heap), heap.statistics().total - heap.statistics().used);
        }
    }
}
