// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel heap: what an allocator micro-library implements, and the global allocator made of one.
//!
//! # Contract
//!
//! - A [`Heap`] hands out blocks of the regions it was given and of nothing else. It never asks for memory, never
//!   blocks and never panics: no room is a null pointer. [`KernelHeap`] around it adds regions when it says so.
//! - A region, once added, belongs to the heap until [`Heap::take_empty`] hands it back, whole or in parts: pages between live
//!   blocks need not wait for these. [`KernelHeap::reclaim`] asks for those when pages are short, so that what a program
//!   made the kernel allocate serves others when it is gone.
//! - Exclusive access is the caller's affair (`&mut self`); [`KernelHeap`] brings the lock.
//! - Callers must not rely on the size of a block beyond what they asked for, nor on its address.
//! - Whoever makes an object for a program or a peer asks [`is_low`] first and refuses with `ENOMEM`: pages of programs
//!   and files end where the kernel's reserve begins, new objects end in the middle of it, and the rest is for what a
//!   call that was let in allocates on its way, which cannot fail.
//! - A request that may be refused is written as one ([`Reserve`], [`attempt`]): a test has each of them refused in turn
//!   ([`fault`]), and what is not written so is known to lean on the reserve.
//! - Blocks from [`KernelHeap::LARGE`] on come straight from pages and go back there, so that a passing need of the
//!   kernel does not stay with the heap.
//!
//! `alloc-tlsf`, `alloc-buddy`, `alloc-mimalloc`, `alloc-tiny` and `alloc-region` implement it, `alloc-checked` finds
//! misuse around each of them, `alloc-apart` lets the network have another one than the rest, and `alloc-contract` checks all of this. The kernel picks one by cargo feature:
//!
//! ```ignore
//! #[global_allocator]
//! static HEAP: KernelHeap<alloc_tlsf::Tlsf> = KernelHeap::new(alloc_tlsf::Tlsf::new(), PAGES);
//! ```
#![no_std]
extern crate alloc;
#[cfg(feature = "host")]
extern crate std;

mod fallible;
pub mod fault;
pub mod library;

pub use fallible::{CollectFallibly, NoMemory, Reserve, attempt, make_room, try_box};

use api_lock::SpinLock;
use core::alloc::{GlobalAlloc, Layout};

#[cfg(not(feature = "host"))]
unsafe extern "Rust" {
    /// The kernel image provides it.
    safe fn unilith_memory_is_low() -> bool;
}

/// True when memory is so short that nothing new may be made, or when a test has it refused here.
#[cfg(not(feature = "host"))]
#[inline]
pub fn is_low() -> bool {
    fault::is_due() || unilith_memory_is_low()
}

/// [`is_low`] without the fault of a test: for callers that end somebody rather than refuse.
#[cfg(not(feature = "host"))]
#[inline]
pub fn is_really_low() -> bool {
    unilith_memory_is_low()
}

/// The host has memory.
#[cfg(feature = "host")]
pub fn is_really_low() -> bool {
    false
}

#[cfg(not(feature = "host"))]
unsafe extern "Rust" {
    safe fn unilith_heap_trim();
}

/// Gives back what the heap no longer needs, where that is much: a process has ended and what it had made is gone.
#[cfg(not(feature = "host"))]
pub fn trim() {
    unilith_heap_trim();
}

/// The host's heap is its own affair.
#[cfg(feature = "host")]
pub fn trim() {}

#[cfg(not(feature = "host"))]
unsafe extern "Rust" {
    safe fn unilith_heap_statistics() -> Statistics;
}

/// What the kernel's heap holds.
#[cfg(not(feature = "host"))]
pub fn statistics() -> Statistics {
    unilith_heap_statistics()
}

/// The host's heap tells nothing.
#[cfg(feature = "host")]
pub fn statistics() -> Statistics {
    Statistics::default()
}

/// On the host memory is low where a test has it refused.
#[cfg(feature = "host")]
pub fn is_low() -> bool {
    fault::is_due()
}

/// A page of memory.
const PAGE: usize = 4096;

/// Most objects of the kernel are smaller.
pub const SCRAP: usize = 1024;

/// What a heap holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Given by [`Heap::add_region`].
    pub total: usize,
    /// Taken by live blocks, the allocator's own overhead included.
    pub used: usize,
    /// Live blocks.
    pub blocks: usize,
    /// Of the free ones those in blocks below [`SCRAP`], where the heap can tell: they are of no use to a larger object.
    pub scraps: usize,
}

/// An allocator micro-library.
///
/// # Safety
///
/// Live blocks do not overlap, lie inside the regions given, and have the size and alignment of their layout.
pub unsafe trait Heap {
    /// Gives memory to the heap. Too small a region is ignored.
    ///
    /// # Safety
    ///
    /// `length` bytes at `start` are readable, writable, used by nobody else, and stay so until [`Heap::take_empty`] returns
    /// them.
    unsafe fn add_region(&mut self, start: *mut u8, length: usize);

    /// A block for `layout` (size above zero), or null when there is no room.
    fn alloc(&mut self, layout: Layout) -> *mut u8;

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// `block` came from [`Heap::alloc`] of this heap with this layout and was not freed since.
    unsafe fn free(&mut self, block: *mut u8, layout: Layout);

    /// Memory without a live block, which the heap forgets: a region as it was added, or whole pages of one; `None` when there
    /// is none, or when the heap cannot tell. Costs nothing while it is not asked for.
    fn take_empty(&mut self) -> Option<(*mut u8, usize)> {
        None
    }

    /// How long a fresh region must be for `layout` to fit.
    fn region_for(&self, layout: Layout) -> usize;

    fn statistics(&self) -> Statistics;
}

/// Where the heap's memory comes from: whole pages, contiguous.
#[derive(Clone, Copy)]
pub struct Pages {
    /// `count` pages, or null.
    pub take: fn(count: usize) -> *mut u8,
    /// Gives back what `take` returned, all of it or some of its pages, which nobody uses any more.
    pub give: unsafe fn(start: *mut u8, count: usize),
}

/// A global allocator made of a heap and a source of pages.
pub struct KernelHeap<H> {
    heap: SpinLock<H>,
    pages: Pages,
}

impl<H> KernelHeap<H> {
    /// From this size on a block is made of pages of its own.
    pub const LARGE: usize = 32 * 1024;
    /// The least the heap grows by: one region serves many small blocks.
    const GROWTH: usize = 64 * 1024;
    /// Pages of the smallest region that every heap hands back when it is empty.
    const SMALLEST: usize = 3;
    /// The most, where the block does not ask for more: one block that stays keeps its whole region.
    const MAX_GROWTH: usize = 256 * 1024;

    /// So many free bytes are kept for the next objects rather than given back.
    const SPARE: usize = 1024 * 1024;

    pub const fn new(heap: H, pages: Pages) -> Self {
        KernelHeap { heap: SpinLock::new(heap), pages }
    }
}

impl<H: Heap> KernelHeap<H> {
    pub fn statistics(&self) -> Statistics {
        self.heap.lock().statistics()
    }

    #[cold]
    fn grow(&self, heap: &mut H, layout: Layout) -> bool {
        let least = heap.region_for(layout).div_ceil(PAGE);
        let usual = Self::GROWTH.div_ceil(PAGE).max(least);
        let most =
            (heap.statistics().total / 8).clamp(Self::GROWTH, Self::MAX_GROWTH).div_ceil(PAGE).max(least);
        // Where pages are short a region is as small as it may be and still be handed back.
        for count in [most, usual, least.max(Self::SMALLEST), least] {
            let start = (self.pages.take)(count);
            if !start.is_null() {
                // SAFETY: the pages are ours alone, until the heap hands the region back.
                unsafe { heap.add_region(start, count * PAGE) };
                return true;
            }
        }
        false
    }

    /// Gives pages back while more than a quarter of a heap that is not small is free. The rest serves the next objects.
    pub fn trim(&self) {
        let has_much = || {
            let Statistics { total, used, .. } = self.statistics();
            total - used > (total / 4).max(Self::SPARE)
        };
        while has_much() && self.give_back() > 0 {}
    }

    /// Gives memory without a live block back to where pages come from; how many pages these were. Takes the heap's lock:
    /// the source of pages must not call it.
    #[cold]
    pub fn reclaim(&self) -> usize {
        core::iter::repeat_with(|| self.give_back()).take_while(|pages| *pages > 0).sum()
    }

    /// One run of pages; how many, or 0 where there is none.
    fn give_back(&self) -> usize {
        let Some((start, length)) = self.heap.lock().take_empty() else { return 0 };
        // SAFETY: the heap has let go of pages that `take` returned.
        unsafe { (self.pages.give)(start, length / PAGE) };
        length / PAGE
    }

    /// A block of pages of its own.
    fn take_large(&self, layout: Layout) -> *mut u8 {
        let count = layout.size().div_ceil(PAGE);
        let block = (self.pages.take)(count);
        if block.is_null() && self.reclaim() > 0 { (self.pages.take)(count) } else { block }
    }

    /// A block of a region, which is added where none has room.
    fn take_small(&self, layout: Layout) -> *mut u8 {
        let mut heap = self.heap.lock();
        let block = heap.alloc(layout);
        if !block.is_null() || !self.grow(&mut heap, layout) {
            return block;
        }
        heap.alloc(layout)
    }

    /// Whether such a block is made of pages of its own.
    #[inline]
    pub fn is_large(layout: &Layout) -> bool {
        layout.size() >= Self::LARGE && layout.align() <= PAGE
    }
}

// SAFETY: the heap keeps `Heap`'s promise, pages are distinct from the heap's regions, and the lock makes the access
// exclusive. Neither unwinds.
unsafe impl<H: Heap + Send> GlobalAlloc for KernelHeap<H> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        fault::watch(layout.size());
        if Self::is_large(&layout) {
            return self.take_large(layout);
        }
        let block = self.take_small(layout);
        // Pages that are free may be apart from each other, with free memory of the heap between them.
        if block.is_null() && self.reclaim() > 0 { self.take_small(layout) } else { block }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if Self::is_large(&layout) {
            // SAFETY: `take` returned it for this layout, and its owner gives it back.
            return unsafe { (self.pages.give)(block, layout.size().div_ceil(PAGE)) };
        }
        // SAFETY: by the caller's word the block is a live one of this layout, and small ones come from the heap.
        unsafe { self.heap.lock().free(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `new_size` is not zero and does not overflow when rounded up to the alignment (`GlobalAlloc`).
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let pages = |l: &Layout| l.size().div_ceil(PAGE);
        if Self::is_large(&layout) && Self::is_large(&new_layout) && pages(&layout) == pages(&new_layout) {
            return block;
        }
        // SAFETY: by the caller's word.
        unsafe { moved(self, block, layout, new_size) }
    }
}

/// `realloc` by a new block and a copy; the old block stays where there is no room for another.
///
/// # Safety
///
/// As of [`GlobalAlloc::realloc`] of this allocator.
pub unsafe fn moved(by: &impl GlobalAlloc, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: `new_size` is not zero and does not overflow when rounded up to the alignment (`GlobalAlloc`).
    let new = unsafe { by.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
    if !new.is_null() {
        // SAFETY: both blocks are live, distinct, and at least as long as the smaller size.
        unsafe { core::ptr::copy_nonoverlapping(block, new, layout.size().min(new_size)) };
        // SAFETY: the caller gives `block` away.
        unsafe { by.dealloc(block, layout) };
    }
    new
}
