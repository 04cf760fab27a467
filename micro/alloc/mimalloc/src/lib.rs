// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap of pages of equal blocks, each with free lists of its own.
//!
//! Leijen, Zorn, de Moura: "Mimalloc: Free List Sharding in Action", APLAS 2019. Blocks of one size class lie in *spans*
//! of whole pages. A span has two lists: allocation takes from one, release puts on the other, and they change places
//! when the first is empty. So blocks that are used together lie together, the usual way takes one load and one store,
//! and no block has a header. What the paper does about threads is left out: the kernel's heap has one lock around it.
//!
//! Own code, because the crates bind the C library, which wants an operating system below it.
//!
//! # Invariants (checked in tests)
//!
//! - A region is a [`Region`], one [`Page`] for each of its pages, and the pages. Every page is in exactly one span.
//! - No two neighbouring spans are free, and every free span is in the list of free ones.
//! - A span of blocks is in the list of its class exactly when it has a free block.
#![no_std]
#[cfg(test)]
extern crate std;

mod class;
mod span;

use api_alloc::{Heap, Statistics};
use class::{CLASSES, class_for, size_of_class};
use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::null_mut;
use span::{Page, Region, State};

/// Bytes of a page.
const PAGE: usize = 4096;

/// The allocator.
pub struct Mimalloc {
    regions: *mut Region,
    /// Free spans, in no order.
    free_spans: *mut Page,
    /// For each class, the spans that have a free block.
    classes: [*mut Page; CLASSES],
    statistics: Statistics,
}

// SAFETY: the pointers lead into regions that belong to this heap alone.
unsafe impl Send for Mimalloc {}

impl Default for Mimalloc {
    fn default() -> Self {
        Mimalloc::new()
    }
}

impl Mimalloc {
    pub const fn new() -> Mimalloc {
        Mimalloc {
            regions: null_mut(),
            free_spans: null_mut(),
            classes: [null_mut(); CLASSES],
            statistics: Statistics { total: 0, used: 0, blocks: 0, scraps: 0 },
        }
    }

    /// # Safety
    ///
    /// `address` lies in a page of this heap.
    unsafe fn region_of(&self, address: usize) -> *mut Region {
        let mut region = self.regions;
        // SAFETY: the list holds the region by the caller's word, so the walk ends before the null pointer.
        unsafe {
            while !(*region).contains(address) {
                region = (*region).next;
            }
        }
        region
    }

    /// A span of `count` pages with an address that is a multiple of `align` in it, as used: its first page, and that
    /// address.
    fn take_span(&mut self, count: usize, align: usize) -> Option<(*mut Page, usize)> {
        let mut span = self.free_spans;
        // SAFETY: the list holds free spans; `Region::cut` keeps the invariants of spans.
        unsafe {
            while let Some(here) = span.as_ref() {
                let front = (here.base.wrapping_neg() & (align - 1)) / PAGE;
                if front.checked_add(count).is_some_and(|needed| needed <= here.pages) {
                    let region = self.region_of(here.base);
                    span::unlink(&mut self.free_spans, span);
                    let (before, taken, behind) = (*region).cut(span, front, count);
                    for rest in [before, behind].into_iter().flatten() {
                        span::link(&mut self.free_spans, rest);
                    }
                    return Some((taken, (*taken).base));
                }
                span = here.next;
            }
        }
        None
    }

    /// Makes a used span, which is in no list, free again.
    ///
    /// # Safety
    ///
    /// Nobody uses the span's pages.
    unsafe fn give_span(&mut self, span: *mut Page) {
        // SAFETY: neighbours come from the region's table, and a free one leaves its list before it is swallowed.
        unsafe {
            let region = self.region_of((*span).base);
            let (before, behind) = (*region).free_neighbours(span);
            for neighbour in [before, behind].into_iter().flatten() {
                span::unlink(&mut self.free_spans, neighbour);
            }
            let joined = (*region).join(before, span, behind);
            span::link(&mut self.free_spans, joined);
        }
    }

    /// Spans without a live block, which were kept for the next one of their class, become free. True if there was one.
    fn reclaim(&mut self) -> bool {
        let mut any = false;
        for class in 0..CLASSES {
            let mut span = self.classes[class];
            // SAFETY: the list holds spans of the class; one without live blocks is nobody's.
            while let Some(here) = unsafe { span.as_ref() } {
                let (next, is_empty) = (here.next, here.live == 0);
                if is_empty {
                    // SAFETY: as above; it leaves its list first.
                    unsafe {
                        span::unlink(&mut self.classes[class], span);
                        self.give_span(span);
                    }
                    any = true;
                }
                span = next;
            }
        }
        any
    }

    fn take_span_or_reclaim(&mut self, count: usize, align: usize) -> Option<(*mut Page, usize)> {
        self.take_span(count, align).or_else(|| self.reclaim().then(|| self.take_span(count, align))?)
    }

    fn alloc_small(&mut self, class: usize) -> *mut u8 {
        if self.classes[class].is_null() {
            let size = size_of_class(class);
            let Some((span, _)) = self.take_span_or_reclaim(class::pages_of(class), 1) else {
                return null_mut();
            };
            // SAFETY: the span is ours now and in no list.
            unsafe {
                (*span).begin_blocks(class, size);
                span::link(&mut self.classes[class], span);
            }
        }
        let span = self.classes[class];
        // SAFETY: spans in a class's list have a free block.
        unsafe {
            let block = (*span).take_block(size_of_class(class));
            if (*span).is_full() {
                span::unlink(&mut self.classes[class], span);
            }
            self.statistics.used += size_of_class(class);
            self.statistics.blocks += 1;
            block
        }
    }

    fn alloc_pages(&mut self, layout: Layout) -> *mut u8 {
        let count = layout.size().div_ceil(PAGE);
        let Some((span, address)) = self.take_span_or_reclaim(count, layout.align()) else {
            return null_mut();
        };
        // SAFETY: the span is ours now.
        unsafe { (*span).state = State::Whole };
        self.statistics.used += count * PAGE;
        self.statistics.blocks += 1;
        address as *mut u8
    }
}

// SAFETY: pages are in one span each, and blocks of a span are handed out once before they come back: live blocks do not
// overlap. A class is only used for layouts whose alignment divides its size, and spans begin at multiples of a page.
unsafe impl Heap for Mimalloc {
    unsafe fn add_region(&mut self, start: *mut u8, length: usize) {
        // SAFETY: the region is ours by the caller's word.
        let Some(region) = (unsafe { Region::begin(start, length, self.regions) }) else { return };
        self.regions = region;
        // SAFETY: a fresh region is one free span.
        unsafe {
            let usable = (*region).pages * PAGE;
            span::link(&mut self.free_spans, (*region).first());
            self.statistics.total += length;
            self.statistics.used += length - usable;
        }
    }

    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        match class_for(layout) {
            Some(class) => self.alloc_small(class),
            None => self.alloc_pages(layout),
        }
    }

    unsafe fn free(&mut self, block: *mut u8, _layout: Layout) {
        self.statistics.blocks -= 1;
        // SAFETY: the block is a live one by the caller's word, so it lies in a used span of this heap. A span that was
        // full is in no list; one that has no live block left stays in its list if it is the only one there.
        unsafe {
            let region = self.region_of(block as usize);
            let span = (*region).span_of(block as usize);
            let State::Blocks(class) = (*span).state else {
                self.statistics.used -= (*span).pages * PAGE;
                return self.give_span(span);
            };
            let class = usize::from(class);
            self.statistics.used -= size_of_class(class);
            let was_full = (*span).is_full();
            (*span).give_block(block);
            if was_full {
                span::link(&mut self.classes[class], span);
            }
            let is_only = (*span).next.is_null() && (*span).previous.is_null();
            if (*span).live == 0 && !is_only {
                span::unlink(&mut self.classes[class], span);
                self.give_span(span);
            }
        }
    }

    fn region_for(&self, layout: Layout) -> usize {
        let pages = match class_for(layout) {
            Some(class) => class::pages_of(class),
            None => layout.size().div_ceil(PAGE) + layout.align() / PAGE,
        };
        // The table of pages takes up to one page for each 64, and the start of the region may lie within a page.
        pages * (PAGE + size_of::<Page>()) + size_of::<Region>() + 2 * PAGE
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests;
