// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A heap of its own for the network beside that of the rest of the kernel: what is allocated while its code runs
//! ([`api_alloc::library`]) comes from there, whatever allocator the rest has. Who frees a block need not know: pages that
//! the network's heap has are marked, one bit each.
//!
//! Blocks from [`KernelHeap::LARGE`] on are pages of their own in both, and neither's.
#![no_std]

use api_alloc::library::{self, Library};
use api_alloc::{Heap, KernelHeap, Statistics, moved};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

const PAGE: usize = 4096;
const BITS: usize = u64::BITS as usize;

/// Pages of memory that belong to one heap. Marks are read and written without a lock: a page's mark changes only while no block on it
/// is live.
pub struct PageSet {
    words: AtomicPtr<AtomicU64>,
    start: AtomicUsize,
    /// How many there can be.
    pages: AtomicUsize,
}

impl Default for PageSet {
    fn default() -> PageSet {
        PageSet::new()
    }
}

impl PageSet {
    /// Without memory for its marks: no page can be added.
    pub const fn new() -> PageSet {
        PageSet { words: AtomicPtr::new(null_mut()), start: AtomicUsize::new(0), pages: AtomicUsize::new(0) }
    }

    /// Words of marks for so many pages.
    pub const fn words_for(pages: usize) -> usize {
        pages.div_ceil(BITS)
    }

    /// From now on it knows `pages` pages from the address `start` on.
    ///
    /// # Safety
    ///
    /// [`PageSet::words_for`] of them are at `words`, all 0 and the set's for ever; it is called once.
    pub unsafe fn begin(&self, words: *mut u64, start: usize, pages: usize) {
        self.start.store(start, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Relaxed);
        self.words.store(words.cast(), Ordering::Release);
    }

    fn is_ready(&self) -> bool {
        !self.words.load(Ordering::Relaxed).is_null()
    }

    /// The word with the mark of the page, and its bit.
    #[inline]
    fn mark(&self, address: usize) -> Option<(&AtomicU64, u64)> {
        let words = self.words.load(Ordering::Acquire);
        let page = address.wrapping_sub(self.start.load(Ordering::Relaxed)) / PAGE;
        if words.is_null() || page >= self.pages.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: `begin` was given words for all pages, for ever.
        Some((unsafe { &*words.add(page / BITS) }, 1 << (page % BITS)))
    }

    /// Whether the block begins on a page of the set.
    #[inline]
    pub fn has(&self, block: *const u8) -> bool {
        self.mark(block as usize).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Adds pages; false where one of them cannot be marked, and then none is.
    pub fn add(&self, start: *const u8, count: usize) -> bool {
        let pages = || (start as usize..).step_by(PAGE).take(count);
        let is_known = pages().all(|page| self.mark(page).is_some());
        for (word, bit) in pages().filter(|_| is_known).filter_map(|page| self.mark(page)) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        is_known
    }

    pub fn remove(&self, start: *const u8, count: usize) {
        for (word, bit) in (start as usize..).step_by(PAGE).take(count).filter_map(|page| self.mark(page)) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The global allocator made of two heaps.
pub struct Apart<U, N> {
    usual: KernelHeap<U>,
    network: KernelHeap<N>,
    of_network: &'static PageSet,
}

impl<U, N> Apart<U, N> {
    /// The network's heap marks the pages that it takes in `of_network`, and takes none that cannot be marked.
    pub const fn new(usual: KernelHeap<U>, network: KernelHeap<N>, of_network: &'static PageSet) -> Self {
        Apart { usual, network, of_network }
    }
}

impl<U: Heap, N: Heap> Apart<U, N> {
    /// Of both.
    pub fn statistics(&self) -> Statistics {
        let (usual, network) = (self.usual.statistics(), self.network.statistics());
        Statistics {
            total: usual.total + network.total,
            used: usual.used + network.used,
            blocks: usual.blocks + network.blocks,
            scraps: usual.scraps + network.scraps,
        }
    }

    /// As [`KernelHeap::reclaim`].
    pub fn reclaim(&self) -> usize {
        self.usual.reclaim() + self.network.reclaim()
    }

    /// As [`KernelHeap::trim`].
    pub fn trim(&self) {
        self.usual.trim();
        self.network.trim();
    }
}

// SAFETY: each block is of one of two global allocators, and freed by the one that its page tells; pages of their own are given
// back alike by both.
unsafe impl<U: Heap + Send, N: Heap + Send> GlobalAlloc for Apart<U, N> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let is_networks = library::current() == Library::Network
            && !KernelHeap::<N>::is_large(&layout)
            && self.of_network.is_ready();
        if !is_networks {
            // SAFETY: by the caller's word.
            return unsafe { self.usual.alloc(layout) };
        }
        // SAFETY: by the caller's word.
        let block = unsafe { self.network.alloc(layout) };
        if block.is_null() && self.usual.reclaim() > 0 {
            // SAFETY: by the caller's word.
            return unsafe { self.network.alloc(layout) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !KernelHeap::<N>::is_large(&layout) && self.of_network.has(block) {
            // SAFETY: the page is the network's, so the block is; the rest by the caller's word.
            unsafe { self.network.dealloc(block, layout) }
        } else {
            // SAFETY: as above.
            unsafe { self.usual.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if KernelHeap::<N>::is_large(&layout) {
            // SAFETY: by the caller's word. What is small from now on is the usual heap's, whoever asks.
            return unsafe { self.usual.realloc(block, layout, new_size) };
        }
        // SAFETY: by the caller's word.
        unsafe { moved(self, block, layout, new_size) }
    }
}

#[cfg(test)]
mod tests;
