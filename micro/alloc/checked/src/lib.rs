// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap around another one that finds misuse: `--set heap-check=on`.
//!
//! - What is handed out is filled with [`FRESH`], so that a read of memory nobody wrote shows.
//! - Behind each block lies a guard of [`GUARD`] bytes; a write beyond the block's end is found when it is freed.
//! - What is freed is filled with [`FREED`] and kept from reuse for the next [`KEPT`] releases; a write to it meanwhile,
//!   and a second release of it, are found.
//!
//! A finding ends the kernel's machine with the block's address, size and what was found: the kernel's data can no longer be
//! trusted. Blocks of 32 KiB and more are pages of their own and are not looked at.
#![no_std]

use api_alloc::{Heap, Statistics};
use core::alloc::Layout;

/// Bytes of memory that nobody wrote yet.
pub const FRESH: u8 = 0xa5;
/// Bytes of memory that was freed.
pub const FREED: u8 = 0xde;
/// Bytes behind a block.
const EDGE: u8 = 0x5e;
/// How many of them, with the block's alignment at least.
const GUARD: usize = 16;
/// Blocks that wait before they are used again. Each costs its memory that long.
const KEPT: usize = 256;

/// How memory was misused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    BeyondItsEnd,
    FreedTwice,
    AfterItWasFreed,
}

/// A block that was misused.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    pub misuse: Misuse,
    pub block: usize,
    pub size: usize,
}

/// A heap with checks.
pub struct Checked<H> {
    heap: H,
    /// Is told what is found.
    report: fn(Finding) -> !,
    /// Blocks that were freed lately, a ring.
    kept: [(usize, Option<Layout>); KEPT],
    next: usize,
    /// Blocks and bytes in `kept`: they count as free to everybody but the heap below.
    waiting: (usize, usize),
}

impl<H> Checked<H> {
    pub const fn new(heap: H) -> Checked<H> {
        Checked::reporting(heap, found)
    }

    /// The same with another end than a panic.
    pub const fn reporting(heap: H, report: fn(Finding) -> !) -> Checked<H> {
        Checked { heap, report, kept: [(0, None); KEPT], next: 0, waiting: (0, 0) }
    }
}

/// The layout of a block with its guard; `None` when there is no such size.
fn with_guard(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().checked_add(GUARD)?, layout.align()).ok()
}

/// Whether `length` bytes at `start` all are `value`.
///
/// # Safety
///
/// The bytes are readable and nobody writes them meanwhile.
unsafe fn is_filled(start: *const u8, length: usize, value: u8) -> bool {
    // SAFETY: by the caller's word.
    unsafe { core::slice::from_raw_parts(start, length) }.iter().all(|byte| *byte == value)
}

#[cold]
fn found(Finding { misuse, block, size }: Finding) -> ! {
    let what = match misuse {
        Misuse::BeyondItsEnd => "written to beyond its end",
        Misuse::FreedTwice => "freed twice",
        Misuse::AfterItWasFreed => "written to after it was freed",
    };
    panic!("heap check: {what}: block of {size} bytes at {block:#x}")
}

impl<H: Heap> Checked<H> {
    /// Looks at a block that waited and gives it to the heap below.
    fn release(&mut self, block: usize, layout: Layout) {
        // `free` let only such layouts in.
        let Some(guarded) = with_guard(layout) else { return };
        let start = block as *mut u8;
        // SAFETY: the block is this heap's, as long as its layout and guard say, until it goes back below, once.
        unsafe {
            if !is_filled(start, layout.size(), FREED) {
                (self.report)(Finding { misuse: Misuse::AfterItWasFreed, block, size: layout.size() });
            }
            self.heap.free(start, guarded);
        }
        self.waiting.0 -= 1;
        self.waiting.1 -= guarded.size();
    }

    /// Everything that waits goes back; true if there was anything.
    fn release_all(&mut self) -> bool {
        let had = self.waiting.0 > 0;
        for i in 0..KEPT {
            if let (block, Some(layout)) = core::mem::take(&mut self.kept[i]) {
                self.release(block, layout);
            }
        }
        had
    }
}

// SAFETY: blocks are the heap's below, which keeps the promise; they are longer than what is handed out, and one that
// waits is handed out to nobody.
unsafe impl<H: Heap> Heap for Checked<H> {
    unsafe fn add_region(&mut self, start: *mut u8, length: usize) {
        // SAFETY: by the caller's word.
        unsafe { self.heap.add_region(start, length) }
    }

    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some(guarded) = with_guard(layout) else { return core::ptr::null_mut() };
        let mut block = self.heap.alloc(guarded);
        if block.is_null() && self.release_all() {
            block = self.heap.alloc(guarded);
        }
        if !block.is_null() {
            // SAFETY: the block is fresh, and that long.
            unsafe {
                block.write_bytes(FRESH, layout.size());
                block.add(layout.size()).write_bytes(EDGE, GUARD);
            }
        }
        block
    }

    unsafe fn free(&mut self, block: *mut u8, layout: Layout) {
        let address = block as usize;
        if self.kept.iter().any(|(kept, layout)| *kept == address && layout.is_some()) {
            (self.report)(Finding { misuse: Misuse::FreedTwice, block: address, size: layout.size() });
        }
        // SAFETY: the block is live by the caller's word, and has its guard.
        unsafe {
            if !is_filled(block.add(layout.size()), GUARD, EDGE) {
                (self.report)(Finding { misuse: Misuse::BeyondItsEnd, block: address, size: layout.size() });
            }
            block.write_bytes(FREED, layout.size());
        }
        self.waiting.0 += 1;
        self.waiting.1 += layout.size() + GUARD;
        let oldest = core::mem::replace(&mut self.kept[self.next], (address, Some(layout)));
        self.next = (self.next + 1) % KEPT;
        if let (block, Some(layout)) = oldest {
            self.release(block, layout);
        }
    }

    fn take_empty(&mut self) -> Option<(*mut u8, usize)> {
        self.release_all();
        self.heap.take_empty()
    }

    fn region_for(&self, layout: Layout) -> usize {
        self.heap.region_for(with_guard(layout).unwrap_or(layout))
    }

    fn statistics(&self) -> Statistics {
        let Statistics { total, used, blocks, scraps } = self.heap.statistics();
        Statistics {
            total,
            used: used.saturating_sub(self.waiting.1),
            blocks: blocks - self.waiting.0,
            scraps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc_contract::{Memory, layout};
    use alloc_tlsf::Tlsf;

    fn checked() -> Checked<Tlsf> {
        Checked::new(Tlsf::new())
    }

    #[test]
    fn the_contract_holds() {
        alloc_contract::holds(checked);
        alloc_contract::empty_memory_is_handed_back(checked);
    }

    /// A heap with 64 KiB and a block of 40 bytes.
    fn with_block(memory: &mut Memory) -> (Checked<Tlsf>, *mut u8) {
        let mut heap = checked();
        memory.give(&mut heap);
        let block = heap.alloc(layout(40, 8));
        (heap, block)
    }

    #[test]
    fn memory_that_nobody_wrote_shows() {
        let mut memory = Memory::new(1 << 16);
        let (_heap, block) = with_block(&mut memory);
        // SAFETY: a live block of 40 bytes.
        assert!(unsafe { is_filled(block, 40, FRESH) });
    }

    #[test]
    #[should_panic = "written to beyond its end: block of 40 bytes"]
    fn a_write_beyond_the_end_is_found() {
        let mut memory = Memory::new(1 << 16);
        let (mut heap, block) = with_block(&mut memory);
        // SAFETY: the byte is in the memory of the test; that it is not in the block is the point.
        unsafe {
            block.add(40).write(0);
            heap.free(block, layout(40, 8));
        }
    }

    #[test]
    #[should_panic = "freed twice: block of 40 bytes"]
    fn a_second_release_is_found() {
        let mut memory = Memory::new(1 << 16);
        let (mut heap, block) = with_block(&mut memory);
        // SAFETY: the second one is what the heap is to find before it uses the block.
        unsafe {
            heap.free(block, layout(40, 8));
            heap.free(block, layout(40, 8));
        }
    }

    #[test]
    #[should_panic = "written to after it was freed: block of 40 bytes"]
    fn a_write_to_what_was_freed_is_found() {
        let mut memory = Memory::new(1 << 16);
        let (mut heap, block) = with_block(&mut memory);
        // SAFETY: the byte is in the memory of the test; that it is nobody's is the point.
        unsafe {
            heap.free(block, layout(40, 8));
            block.add(3).write(1);
        }
        for _ in 0..=KEPT {
            let other = heap.alloc(layout(8, 8));
            // SAFETY: live, freed once.
            unsafe { heap.free(other, layout(8, 8)) };
        }
    }
}
