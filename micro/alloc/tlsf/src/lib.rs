// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap with constant-time allocation and release: two-level segregated fit.
//!
//! Masmano, Ripoll, Crespo, Real: "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004. Free
//! blocks are kept in lists by size class; a first bitmap finds the power of two, a second one the sixteenth within
//! it, so that the search is two bit scans. Neighbours are merged at once.
//!
//! Own code rather than the `rlsf` crate: that one brings libc and a documentation macro into a kernel build.
//!
//! # Invariants (checked by [`Tlsf::check`] in tests)
//!
//! - A region is a gapless chain of blocks, ended by a used block of length zero; `before` leads back.
//! - No two neighbouring blocks are free.
//! - A free block is in exactly the list of its class, and a bit is set exactly when its list is not empty.
#![no_std]
#[cfg(test)]
extern crate std;

use api_alloc::{Heap, SCRAP, Statistics};
use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::null_mut;

/// Blocks start and end at multiples of this; so does every layout without a greater wish.
const UNIT: usize = 16;
/// Second-level lists in a power of two.
const SECOND: usize = 16;
const SECOND_BITS: u32 = SECOND.trailing_zeros();
/// Lengths below this have a list for each multiple of `UNIT`.
const SMALL: usize = UNIT * SECOND;
const SMALL_BITS: u32 = SMALL.trailing_zeros();
/// Longest block: 2^LONGEST_BITS bytes, more than one growth of the heap can ask for.
const LONGEST_BITS: u32 = 40;
/// One first-level class for the small ones, one for each power of two above.
const FIRST: usize = (LONGEST_BITS - SMALL_BITS) as usize + 1;

/// In `Header::word`: the block is free.
const FREE: usize = 1;

/// Before every block. The length counts the payload, not the header.
#[repr(C, align(16))]
struct Header {
    /// Length of the payload (a multiple of [`UNIT`]), and [`FREE`].
    word: usize,
    /// The block physically before, null for the first of a region.
    before: *mut Header,
}

/// At the start of a free block's payload.
#[repr(C)]
struct Links {
    next: *mut Header,
    previous: *mut Header,
}

const HEADER: usize = size_of::<Header>();
/// A free block must hold its links.
const SHORTEST: usize = size_of::<Links>();

/// Pages are given back from free blocks of at least this length: nearly each of them has one, so that few are passed over.
const SHORTEST_HOLE: usize = 2 * PAGE;
/// A hole begins and ends where one of these does, or its region.
const PAGE: usize = 4096;
/// Regions too short for a hole, in pages: what one live block kept of a longer one, and what there was while pages were short. They
/// are given back whole.
const SHORT_REGIONS: [usize; 2] = [2 * PAGE, PAGE];
/// So many free blocks of a region's class are looked at for one that is a whole region: others of just that length are few.
const LOOKED_AT: usize = 1024;

/// The allocator.
pub struct Tlsf {
    first: u64,
    second: [u16; FIRST],
    lists: [[*mut Header; SECOND]; FIRST],
    statistics: Statistics,
    /// Free blocks that are whole [`SHORT_REGIONS`].
    short_regions: usize,
}

// SAFETY: the pointers lead into regions that belong to this heap alone.
unsafe impl Send for Tlsf {}

/// The list a free block of this length belongs to.
fn class_of(length: usize) -> (usize, usize) {
    if length < SMALL {
        return (0, length / UNIT);
    }
    let log = length.ilog2();
    let first = (log - SMALL_BITS) as usize + 1;
    (first, (length >> (log - SECOND_BITS)) & (SECOND - 1))
}

/// The first list all of whose blocks are at least this long.
fn class_for(length: usize) -> (usize, usize) {
    if length < SMALL {
        return class_of(length);
    }
    class_of(length + (1 << (length.ilog2() - SECOND_BITS)) - 1)
}

// The helpers below take pointers to live headers of a region: the chain invariant.

unsafe fn length(block: *mut Header) -> usize {
    // SAFETY: live header.
    unsafe { (*block).word & !FREE }
}

/// Bytes of a free block that [`Statistics::scraps`] counts.
unsafe fn scrap(block: *mut Header) -> usize {
    // SAFETY: live header.
    let whole = unsafe { length(block) } + HEADER;
    if whole < SCRAP { whole } else { 0 }
}

unsafe fn is_free(block: *mut Header) -> bool {
    // SAFETY: live header.
    unsafe { (*block).word & FREE != 0 }
}

unsafe fn payload(block: *mut Header) -> *mut u8 {
    // SAFETY: the payload follows the header in the same region.
    unsafe { block.add(1).cast() }
}

unsafe fn links(block: *mut Header) -> *mut Links {
    // SAFETY: as above.
    unsafe { payload(block).cast() }
}

unsafe fn after(block: *mut Header) -> *mut Header {
    // SAFETY: the chain is gapless and ends with a header of length zero, for which this is not called.
    unsafe { payload(block).add(length(block)).cast() }
}

/// Whether a block is all of a region that is too short for a hole.
unsafe fn is_short_region(block: *mut Header) -> bool {
    // SAFETY: live header.
    let whole = unsafe { length(block) } + 2 * HEADER;
    // SAFETY: as above; a block of such a length is followed by a header.
    SHORT_REGIONS.contains(&whole) && unsafe { (*block).before.is_null() && length(after(block)) == 0 }
}

impl Default for Tlsf {
    fn default() -> Self {
        Tlsf::new()
    }
}

impl Tlsf {
    pub const fn new() -> Tlsf {
        Tlsf {
            first: 0,
            second: [0; FIRST],
            lists: [[null_mut(); SECOND]; FIRST],
            statistics: Statistics { total: 0, used: 0, blocks: 0, scraps: 0 },
            short_regions: 0,
        }
    }

    /// # Safety
    ///
    /// A live block that is in no list; it becomes free.
    unsafe fn insert(&mut self, block: *mut Header) {
        // SAFETY: the block is ours, and its payload is long enough for the links.
        unsafe {
            (*block).word |= FREE;
            self.statistics.scraps += scrap(block);
            self.short_regions += usize::from(is_short_region(block));
            let (i, j) = class_of(length(block));
            let head = self.lists[i][j];
            links(block).write(Links { next: head, previous: null_mut() });
            if !head.is_null() {
                (*links(head)).previous = block;
            }
            self.lists[i][j] = block;
            self.first |= 1 << i;
            self.second[i] |= 1 << j;
        }
    }

    /// # Safety
    ///
    /// A free block; it leaves its list and becomes used.
    unsafe fn remove(&mut self, block: *mut Header) {
        // SAFETY: a free block is in the list of its class, so its links lead to free blocks or nowhere.
        unsafe {
            self.statistics.scraps -= scrap(block);
            self.short_regions -= usize::from(is_short_region(block));
            let Links { next, previous } = links(block).read();
            if !next.is_null() {
                (*links(next)).previous = previous;
            }
            if previous.is_null() {
                let (i, j) = class_of(length(block));
                self.lists[i][j] = next;
                if next.is_null() {
                    self.second[i] &= !(1 << j);
                    if self.second[i] == 0 {
                        self.first &= !(1 << i);
                    }
                }
            } else {
                (*links(previous)).next = next;
            }
            (*block).word &= !FREE;
        }
    }

    /// A free block of at least `wanted` bytes.
    fn find(&self, wanted: usize) -> *mut Header {
        if wanted >= 1 << (LONGEST_BITS - 1) {
            return null_mut();
        }
        let (i, j) = class_for(wanted);
        let here = self.second[i] >> j << j;
        if here != 0 {
            return self.lists[i][here.trailing_zeros() as usize];
        }
        let above = self.first & (u64::MAX << i << 1);
        if above == 0 {
            return null_mut();
        }
        let i = above.trailing_zeros() as usize;
        self.lists[i][self.second[i].trailing_zeros() as usize]
    }

    /// Cuts a used block after `keep` bytes and frees the rest, where that is worth a block.
    ///
    /// # Safety
    ///
    /// A live used block whose neighbour behind is not free, `keep` a multiple of [`UNIT`] within it.
    unsafe fn trim(&mut self, block: *mut Header, keep: usize) {
        // SAFETY: the new header lies inside the block, and the chain is mended on both sides.
        unsafe {
            let spare = length(block) - keep;
            if spare < HEADER + SHORTEST {
                return;
            }
            let behind = after(block);
            (*block).word = keep;
            let rest = after(block);
            rest.write(Header { word: spare - HEADER, before: block });
            (*behind).before = rest;
            self.insert(rest);
        }
    }

    /// Cuts the pages out of a free block, or the whole region where the block is all of it. One live object beside them would
    /// keep a region of megabytes otherwise. What is left on either side is a region of its own: the one in front ends with
    /// a header of length zero, the one behind begins with a block that has none before it.
    ///
    /// # Safety
    ///
    /// A live free block.
    unsafe fn take_hole(&mut self, block: *mut Header) -> Option<(*mut u8, usize)> {
        // SAFETY: all headers that are written lie in the free block, outside the hole, and the chains on both sides are
        // mended. Places are computed as numbers and reached from the block's own pointer.
        unsafe {
            let behind = after(block);
            let (is_first, is_last) = ((*block).before.is_null(), length(behind) == 0);
            let (begin, next) = (block as usize, behind as usize);
            let mut start = if is_first { begin } else { (begin + HEADER).next_multiple_of(PAGE) };
            // In front there is the end's header alone, or a free block and that header.
            if !is_first && start - begin > HEADER && start - begin < 2 * HEADER + SHORTEST {
                start += PAGE;
            }
            let mut end = if is_last { next + HEADER } else { next / PAGE * PAGE };
            if !is_last && end != next && next - end < HEADER + SHORTEST {
                end -= PAGE;
            }
            if start >= end {
                return None;
            }
            self.remove(block);
            let whole: *mut u8 = block.cast();
            let at = |place: usize| whole.add(place - begin);
            if !is_first && start - begin == HEADER {
                (*block).word = 0;
            } else if !is_first {
                (*block).word = start - begin - 2 * HEADER;
                after(block).write(Header { word: 0, before: block });
                self.insert(block);
            }
            if !is_last && end == next {
                (*behind).before = null_mut();
            } else if !is_last {
                let rest = at(end).cast::<Header>();
                rest.write(Header { word: next - end - HEADER, before: null_mut() });
                (*behind).before = rest;
                self.insert(rest);
            }
            self.statistics.total -= end - start;
            // Each region counts two headers.
            self.statistics.used += 2 * HEADER * (usize::from(!is_first) + usize::from(!is_last));
            self.statistics.used -= 2 * HEADER;
            Some((at(start), end - start))
        }
    }

    /// A region without a live block in which no hole can be.
    fn take_short_region(&mut self) -> Option<(*mut u8, usize)> {
        if self.short_regions == 0 {
            return None;
        }
        for size in SHORT_REGIONS {
            let (i, j) = class_of(size - 2 * HEADER);
            let mut block = self.lists[i][j];
            for _ in 0..LOOKED_AT {
                if block.is_null() {
                    break;
                }
                // SAFETY: lists hold free blocks.
                unsafe {
                    if is_short_region(block) {
                        return self.take_hole(block);
                    }
                    block = (*links(block)).next;
                }
            }
        }
        None
    }

    /// Merges a used block with its free neighbours and puts it into its list.
    ///
    /// # Safety
    ///
    /// A live used block nobody uses any more.
    unsafe fn release(&mut self, mut block: *mut Header) {
        // SAFETY: neighbours come from the chain; what is free is taken off its list before it is swallowed.
        unsafe {
            let behind = after(block);
            if is_free(behind) {
                self.remove(behind);
                (*block).word += HEADER + length(behind);
            }
            let before = (*block).before;
            if !before.is_null() && is_free(before) {
                self.remove(before);
                (*before).word += HEADER + length(block);
                block = before;
            }
            (*after(block)).before = block;
            self.insert(block);
        }
    }
}

/// Payload length for a layout with no more than the usual alignment.
fn rounded(size: usize) -> Option<usize> {
    Some(size.checked_add(UNIT - 1)? / UNIT * UNIT).map(|n| n.max(SHORTEST))
}

// SAFETY: `alloc` cuts blocks out of free ones of the regions given and marks them used, so that no two live ones
// overlap; payloads are multiples of 16 and greater alignments are reached by cutting off the front.
unsafe impl Heap for Tlsf {
    unsafe fn add_region(&mut self, start: *mut u8, size: usize) {
        let skip = start.align_offset(UNIT);
        let Some(size) = size.checked_sub(skip).map(|n| n / UNIT * UNIT) else { return };
        if !(2 * HEADER + SHORTEST..1 << LONGEST_BITS).contains(&size) {
            return;
        }
        // SAFETY: the region is ours by the caller's word, and both headers lie inside it.
        unsafe {
            let block: *mut Header = start.add(skip).cast();
            block.write(Header { word: size - 2 * HEADER, before: null_mut() });
            after(block).write(Header { word: 0, before: block });
            self.insert(block);
        }
        self.statistics.total += size;
        self.statistics.used += 2 * HEADER;
    }

    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some(size) = rounded(layout.size()) else { return null_mut() };
        // Room to move forward to the alignment with a whole block in front.
        let slack = if layout.align() > UNIT { layout.align() + HEADER + SHORTEST } else { 0 };
        let Some(wanted) = size.checked_add(slack) else { return null_mut() };
        let mut block = self.find(wanted);
        if block.is_null() {
            return null_mut();
        }
        // SAFETY: `find` returns free blocks of at least `wanted` bytes. A free block's neighbours are used, which is
        // what `trim` needs; after the front is cut off, the aligned block is live and linked both ways.
        unsafe {
            self.remove(block);
            if layout.align() > UNIT && payload(block).align_offset(layout.align()) != 0 {
                let room = payload(block).add(HEADER + SHORTEST);
                let skip = HEADER + SHORTEST + room.align_offset(layout.align());
                let whole = length(block);
                let behind = after(block);
                (*block).word = skip - HEADER;
                let front = block;
                block = after(front);
                block.write(Header { word: whole - skip, before: front });
                (*behind).before = block;
                self.insert(front);
            }
            self.trim(block, size);
            self.statistics.used += length(block) + HEADER;
            self.statistics.blocks += 1;
            payload(block)
        }
    }

    unsafe fn free(&mut self, block: *mut u8, _layout: Layout) {
        // SAFETY: a live block's header is right before it, by the caller's word.
        unsafe {
            let block = block.cast::<Header>().sub(1);
            self.statistics.used -= length(block) + HEADER;
            self.statistics.blocks -= 1;
            self.release(block);
        }
    }

    fn take_empty(&mut self) -> Option<(*mut u8, usize)> {
        let (shortest, _) = class_of(SHORTEST_HOLE);
        let longer = self.first & (u64::MAX << shortest);
        // The longest first: the fewer pieces the better.
        for i in (0..FIRST).rev().filter(|i| longer >> i & 1 != 0) {
            for j in (0..SECOND).rev() {
                let mut block = self.lists[i][j];
                while !block.is_null() {
                    // SAFETY: lists hold free blocks.
                    unsafe {
                        if let Some(hole) = self.take_hole(block) {
                            return Some(hole);
                        }
                        block = (*links(block)).next;
                    }
                }
            }
        }
        self.take_short_region()
    }

    fn region_for(&self, layout: Layout) -> usize {
        // A sixteenth more than asked for, because the search rounds up to the next class.
        let wanted = layout.size() + layout.align() + 4 * HEADER + SHORTEST + UNIT;
        wanted + wanted / SECOND + UNIT
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests;
