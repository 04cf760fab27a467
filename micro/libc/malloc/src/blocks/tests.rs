// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every heap below a program's blocks.

use super::*;
use alloc_checked::Checked;
use std::alloc::{alloc_zeroed, dealloc};
use std::collections::BTreeMap;

/// Pages of the test, each mapping known; parts may be given back.
#[derive(Default)]
struct Host {
    /// Of each page that is mapped, the allocation that it is part of.
    pages: BTreeMap<usize, usize>,
    allocations: BTreeMap<usize, usize>,
    /// No more pages than these at a time.
    limit: Option<usize>,
}

impl Host {
    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, PAGE).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for (start, length) in &self.allocations {
            // SAFETY: `map` made it with this layout.
            unsafe { dealloc(*start as *mut u8, Host::layout(*length)) };
        }
    }
}

impl Pages for Host {
    fn map(&mut self, length: usize) -> *mut u8 {
        assert!(length > 0 && length.is_multiple_of(PAGE));
        if self.limit.is_some_and(|limit| self.pages.len() + length / PAGE > limit) {
            return core::ptr::null_mut();
        }
        // SAFETY: the length is not zero.
        let start = unsafe { alloc_zeroed(Host::layout(length)) };
        self.allocations.insert(start as usize, length);
        for page in (0..length).step_by(PAGE) {
            self.pages.insert(start as usize + page, start as usize);
        }
        start
    }

    unsafe fn unmap(&mut self, start: *mut u8, length: usize) {
        assert!(length > 0 && length.is_multiple_of(PAGE) && (start as usize).is_multiple_of(PAGE));
        for page in (start as usize..start as usize + length).step_by(PAGE) {
            assert!(self.pages.remove(&page).is_some(), "a page was given back that nobody has");
        }
    }

    unsafe fn remap(&mut self, start: *mut u8, old: usize, new: usize) -> *mut u8 {
        let place = self.map(new);
        if !place.is_null() {
            // SAFETY: both are mapped and that long.
            unsafe {
                core::ptr::copy_nonoverlapping(start, place, old.min(new));
                self.unmap(start, old);
            }
        }
        place
    }
}

/// Runs a check with each heap: `gives_back` says whether it gives all pages back.
macro_rules! with_each {
    ($check:ident) => {
        $check(&mut Blocks::new(alloc_tlsf::Tlsf::new(), Host::default(), Policy::USUAL), true, true);
        $check(&mut Blocks::new(alloc_buddy::Buddy::new(), Host::default(), Policy::USUAL), false, true);
        $check(
            &mut Blocks::new(alloc_mimalloc::Mimalloc::new(), Host::default(), Policy::USUAL),
            false,
            true,
        );
        $check(&mut Blocks::new(alloc_tiny::Tiny::new(), Host::default(), Policy::USUAL), false, true);
        $check(&mut Blocks::new(alloc_region::Bump::new(), Host::default(), Policy::USUAL), false, false);
        let guard = Checked::new(alloc_tlsf::Tlsf::new());
        $check(&mut Blocks::new(guard, Host::default(), Policy::GUARD), true, true);
    };
}

/// A block of a test, filled with one value.
struct Live {
    block: NonNull<u8>,
    size: usize,
    fill: u8,
}

impl Live {
    fn new(block: NonNull<u8>, size: usize, fill: u8) -> Live {
        // SAFETY: the block is that long.
        unsafe { block.write_bytes(fill, size) };
        Live { block, size, fill }
    }

    fn check(&self, length: usize) {
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts(self.block.as_ptr(), length) };
        assert!(bytes.iter().all(|byte| *byte == self.fill), "somebody wrote into a live block");
    }
}

/// Numbers below a limit, the same in each run.
fn random() -> impl FnMut(usize) -> usize {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

fn live_through_traffic<H: Heap>(blocks: &mut Blocks<H, Host>, gives_back: bool, reuses: bool) {
    let mut random = random();
    let mut live: Vec<Live> = Vec::new();
    for step in 0..30_000 {
        let fill = step as u8;
        match random(5) {
            0 | 1 if !live.is_empty() => {
                let one = live.swap_remove(random(live.len()));
                one.check(one.size);
                // SAFETY: live, given once.
                unsafe { blocks.give(one.block).unwrap() };
            }
            2 if !live.is_empty() => {
                let index = random(live.len());
                let (bits, kept) = (random(19), live[index].size);
                let size = random(1 << bits);
                // SAFETY: live, and known by its new address alone.
                let block = unsafe { blocks.resize(live[index].block, size, 0).unwrap().unwrap() };
                live[index].block = block;
                live[index].check(kept.min(size));
                live[index] = Live::new(block, size, fill);
            }
            _ => {
                let bits = random(if step % 50 == 0 { 19 } else { 12 });
                let (size, align) = (random(1 << bits), 1 << random(if step % 20 == 0 { 15 } else { 5 }));
                let (block, is_zero) = blocks.take(size, align.max(ALIGN), 0).unwrap();
                assert!((block.as_ptr() as usize).is_multiple_of(align.max(ALIGN)));
                // SAFETY: live.
                assert!(unsafe { blocks.size(block).unwrap() } >= size);
                if is_zero {
                    Live { block, size, fill: 0 }.check(size);
                }
                live.push(Live::new(block, size, fill));
            }
        }
        if live.len() > 600 {
            let one = live.swap_remove(random(live.len()));
            one.check(one.size);
            // SAFETY: live, given once.
            unsafe { blocks.give(one.block).unwrap() };
        }
    }
    for one in live {
        one.check(one.size);
        // SAFETY: live, given once.
        unsafe { blocks.give(one.block).unwrap() };
    }
    assert_eq!(blocks.heap.statistics().blocks, 0);
    if gives_back {
        blocks.give_back(0);
        // Each piece that the host did not put next to another one keeps the pages at its ends.
        let (stay, pieces) = (blocks.pages.pages.len(), blocks.pages.allocations.len());
        assert!(stay < GROWTH / PAGE + 2 * pieces, "{stay} pages stay of {pieces} pieces");
    }
    let held = blocks.pages.pages.len() * PAGE;
    assert!(!reuses || held < 64 << 20, "{held} bytes are held for nothing");
}

#[test]
fn blocks_live_through_traffic() {
    with_each!(live_through_traffic);
}

fn serve_the_ends<H: Heap>(blocks: &mut Blocks<H, Host>, _: bool, _: bool) {
    let (none, _) = blocks.take(0, ALIGN, 0).unwrap();
    let (other, _) = blocks.take(0, ALIGN, 0).unwrap();
    assert_ne!(none, other);
    for size in [usize::MAX, isize::MAX as usize, isize::MAX as usize - PAGE] {
        assert!(blocks.take(size, ALIGN, 0).is_none());
        // SAFETY: live.
        assert_eq!(unsafe { blocks.resize(none, size, 0) }, Ok(None));
    }
    assert!(blocks.take(1, 1 << 63, 0).is_none());
    for bits in 4..22 {
        let (block, _) = blocks.take(100, 1 << bits, 0).unwrap();
        assert!((block.as_ptr() as usize).is_multiple_of(1 << bits));
        let block = Live::new(block, 100, 7);
        // SAFETY: live.
        let moved = unsafe { blocks.resize(block.block, 300_000, 0).unwrap().unwrap() };
        Live { block: moved, ..block }.check(100);
        // SAFETY: live, given once.
        unsafe { blocks.give(moved).unwrap() };
    }
    // SAFETY: live, given once.
    unsafe {
        blocks.give(none).unwrap();
        blocks.give(other).unwrap();
    }
}

#[test]
fn the_ends_of_sizes_and_alignments_are_served_or_refused() {
    with_each!(serve_the_ends);
}

fn end_with_an_answer<H: Heap>(blocks: &mut Blocks<H, Host>, _: bool, reuses: bool) {
    blocks.pages.limit = Some(400);
    let mut live = Vec::new();
    while let Some((block, _)) = blocks.take(1000, ALIGN, 0) {
        live.push(Live::new(block, 1000, 3));
    }
    assert!(live.len() > 700, "{}", live.len());
    assert!(blocks.take(1 << 20, ALIGN, 0).is_none());
    let last = live.pop().unwrap();
    // SAFETY: live.
    assert_eq!(unsafe { blocks.resize(last.block, 100_000, 0) }, Ok(None));
    last.check(1000);
    for one in live {
        // SAFETY: live, given once.
        unsafe { blocks.give(one.block).unwrap() };
    }
    if reuses {
        assert!(blocks.take(100_000, ALIGN, 0).is_some());
    }
}

#[test]
fn memory_that_is_gone_is_an_answer_and_what_was_there_stays() {
    with_each!(end_with_an_answer);
}

#[test]
fn a_large_block_gives_what_a_heap_holds_back_to_have_pages() {
    let mut blocks = Blocks::new(alloc_tlsf::Tlsf::new(), Host::default(), Policy::USUAL);
    blocks.pages.limit = Some(300);
    let live: Vec<_> = (0..200).map(|_| blocks.take(4000, ALIGN, 0).unwrap().0).collect();
    for block in live {
        // SAFETY: live, given once.
        unsafe { blocks.give(block).unwrap() };
    }
    assert!(blocks.take(1 << 20, ALIGN, 0).is_some());
}

#[test]
fn what_is_no_block_is_not_taken_back() {
    let mut blocks = Blocks::new(alloc_tlsf::Tlsf::new(), Host::default(), Policy::USUAL);
    let (block, _) = blocks.take(100, ALIGN, 0).unwrap();
    let inside = |by: usize| NonNull::new(block.as_ptr().wrapping_add(by)).unwrap();
    // SAFETY: these bytes are the block's, of which the test alone knows.
    unsafe {
        block.write_bytes(0, 100);
        for by in [1, 8, 16, 32] {
            assert_eq!(blocks.give(inside(by)), Err(NotABlock));
        }
        assert_eq!(blocks.resize(inside(16), 10, 0), Err(NotABlock));
        blocks.give(block).unwrap();
        assert_eq!(blocks.give(block), Err(NotABlock));
    }
}

#[test]
fn a_block_is_described_by_its_header_at_each_alignment() {
    let mut blocks = Blocks::new(alloc_tlsf::Tlsf::new(), Host::default(), Policy::GUARD);
    for align in [16, 64, 4096] {
        let (block, _) = blocks.take(40, align, 0x4011_2233).unwrap();
        let start = block.as_ptr().wrapping_sub(align);
        // SAFETY: the heap's block with what lies before it.
        let found = unsafe { Blocks::<alloc_tlsf::Tlsf, Host>::describe(start, align + 40) }.unwrap();
        assert_eq!((found.block, found.size, found.caller), (block.as_ptr(), 40, 0x4011_2233));
    }
}
