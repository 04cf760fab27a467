// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap of binary buddies (Knuth, The Art of Computer Programming 1, 2.5).
//!
//! Blocks are powers of two and aligned to their size; a freed block merges with its buddy as long as that is free.
//! Simple, fast, and without a header before each block; it wastes a quarter of the memory on average.
//!
//! Own code rather than the `buddy_system_allocator` crate: that one looks for the buddy by walking the free list,
//! which is linear in the number of free blocks.
//!
//! # Invariants (checked in tests)
//!
//! - A region starts with its map, one byte for each unit of [`UNIT`] bytes. The byte of a free block's first unit is
//!   [`FREE`] plus its order; no other byte has [`FREE`] set.
//! - A free block is in the list of its order; two free buddies of one order do not exist (below the highest order).
#![no_std]
#[cfg(test)]
extern crate std;

use api_alloc::{Heap, Statistics};
use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::null_mut;

/// The smallest block: room for the links of a free one.
const UNIT: usize = 32;
/// Orders 0 (32 bytes) to 19 (16 MiB).
const ORDERS: usize = 20;
/// In the map: a free block of the order in the low bits starts here.
const FREE: u8 = 0x80;

/// At the start of each region, followed by the map.
#[repr(C)]
struct Region {
    next: *mut Region,
    /// First byte that blocks are made of, a multiple of [`UNIT`].
    base: usize,
    units: usize,
}

/// In a free block.
#[repr(C)]
struct Links {
    next: *mut Links,
    previous: *mut Links,
}

/// The allocator.
pub struct Buddy {
    regions: *mut Region,
    lists: [*mut Links; ORDERS],
    statistics: Statistics,
}

// SAFETY: the pointers lead into regions that belong to this heap alone.
unsafe impl Send for Buddy {}

impl Default for Buddy {
    fn default() -> Self {
        Buddy::new()
    }
}

const fn bytes(order: usize) -> usize {
    UNIT << order
}

/// The order whose blocks suit a layout; `None` when there is none.
fn order_of(layout: Layout) -> Option<usize> {
    let units = layout.size().max(layout.align()).div_ceil(UNIT);
    let order = units.checked_next_power_of_two()?.trailing_zeros() as usize;
    (order < ORDERS).then_some(order)
}

impl Region {
    /// Where the map has the byte for the unit at `address`.
    ///
    /// # Safety
    ///
    /// `region` is a region of the heap and `address` one of its units.
    unsafe fn map(region: *mut Region, address: usize) -> *mut u8 {
        // SAFETY: the map follows the descriptor and has a byte for each unit.
        unsafe { region.add(1).cast::<u8>().add((address - (*region).base) / UNIT) }
    }

    /// # Safety
    ///
    /// `region` is a region of the heap.
    unsafe fn contains(region: *mut Region, address: usize, length: usize) -> bool {
        // SAFETY: as above.
        let (base, units) = unsafe { ((*region).base, (*region).units) };
        address >= base && address + length <= base + units * UNIT
    }
}

impl Buddy {
    pub const fn new() -> Buddy {
        Buddy {
            regions: null_mut(),
            lists: [null_mut(); ORDERS],
            statistics: Statistics { total: 0, used: 0, blocks: 0, scraps: 0 },
        }
    }

    /// # Safety
    ///
    /// `address` is an unused, aligned block of `order` in `region`.
    unsafe fn push(&mut self, region: *mut Region, address: usize, order: usize) {
        let block = address as *mut Links;
        let head = self.lists[order];
        // SAFETY: the block is unused and long enough; the head of a list is a free block.
        unsafe {
            block.write(Links { next: head, previous: null_mut() });
            if !head.is_null() {
                (*head).previous = block;
            }
            *Region::map(region, address) = FREE | order as u8;
        }
        self.lists[order] = block;
    }

    /// # Safety
    ///
    /// `address` is a free block of `order` in `region`.
    unsafe fn remove(&mut self, region: *mut Region, address: usize, order: usize) {
        // SAFETY: a free block's links lead to free blocks or nowhere.
        unsafe {
            let Links { next, previous } = (address as *mut Links).read();
            if !next.is_null() {
                (*next).previous = previous;
            }
            if previous.is_null() {
                self.lists[order] = next;
            } else {
                (*previous).next = next;
            }
            *Region::map(region, address) = 0;
        }
    }

    /// # Safety
    ///
    /// `address` lies in memory of this heap.
    unsafe fn region_of(&self, address: usize) -> *mut Region {
        let mut region = self.regions;
        // SAFETY: the list holds the region by the caller's word, so the walk ends before the null pointer.
        unsafe {
            while !Region::contains(region, address, 1) {
                region = (*region).next;
            }
        }
        region
    }
}

// SAFETY: blocks are cut from free ones by halving, never overlap, and are aligned to their size, which is at least
// the layout's alignment.
unsafe impl Heap for Buddy {
    unsafe fn add_region(&mut self, start: *mut u8, length: usize) {
        let skip = start.align_offset(UNIT);
        let header = size_of::<Region>();
        let Some(room) = length.checked_sub(skip + header + 2 * UNIT) else { return };
        // One byte of map for each unit.
        let units = room / (UNIT + 1);
        if units == 0 {
            return;
        }
        // SAFETY: descriptor, map and units all lie in the region, which is ours by the caller's word. The map is
        // written before it is read.
        unsafe {
            let region: *mut Region = start.add(skip).cast();
            let map = region.add(1).cast::<u8>();
            map.write_bytes(0, units);
            let base = (map as usize + units).next_multiple_of(UNIT);
            region.write(Region { next: self.regions, base, units });
            self.regions = region;
            let (mut address, end) = (base, base + units * UNIT);
            while address < end {
                let fits = ((end - address) / UNIT).ilog2();
                let order = (address / UNIT).trailing_zeros().min(fits).min(ORDERS as u32 - 1) as usize;
                self.push(region, address, order);
                address += bytes(order);
            }
        }
        self.statistics.total += length;
        self.statistics.used += length - units * UNIT;
    }

    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some(wanted) = order_of(layout) else { return null_mut() };
        let Some(mut order) = (wanted..ORDERS).find(|k| !self.lists[*k].is_null()) else { return null_mut() };
        let address = self.lists[order] as usize;
        // SAFETY: the head of the list is a free block of its order, and so is its upper half once it is split.
        unsafe {
            let region = self.region_of(address);
            self.remove(region, address, order);
            while order > wanted {
                order -= 1;
                self.push(region, address + bytes(order), order);
            }
        }
        self.statistics.used += bytes(wanted);
        self.statistics.blocks += 1;
        address as *mut u8
    }

    unsafe fn free(&mut self, block: *mut u8, layout: Layout) {
        let Some(mut order) = order_of(layout) else { return };
        self.statistics.used -= bytes(order);
        self.statistics.blocks -= 1;
        let mut address = block as usize;
        // SAFETY: the block is live by the caller's word. A buddy is merged only if the map says that it is free with
        // just this order.
        unsafe {
            let region = self.region_of(address);
            while order + 1 < ORDERS {
                let buddy = address ^ bytes(order);
                if !Region::contains(region, buddy, bytes(order))
                    || *Region::map(region, buddy) != FREE | order as u8
                {
                    break;
                }
                self.remove(region, buddy, order);
                address = address.min(buddy);
                order += 1;
            }
            self.push(region, address, order);
        }
    }

    fn region_for(&self, layout: Layout) -> usize {
        // Twice the block holds an aligned one wherever the region starts; the rest is the map.
        let block = order_of(layout).map_or(layout.size(), bytes);
        let units = 2 * block + 3 * UNIT;
        units + units / UNIT + size_of::<Region>() + UNIT
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests;
