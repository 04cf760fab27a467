// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's allocator as Rust's: musl's `malloc`, or what `--set alloc.program` puts in its place.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn posix_memalign(block: *mut *mut c_void, align: usize, size: usize) -> c_int;
}

/// Every block of `malloc` is aligned so (System V ABI for x86-64).
const ALIGN: usize = 16;

/// `#[global_allocator] static MEMORY: Malloc = Malloc;`, which [`crate::program!`] writes.
pub struct Malloc;

// SAFETY: blocks are those of malloc(3), which keeps the promise; none of these functions unwinds.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: any size.
            return unsafe { malloc(layout.size()) }.cast();
        }
        let mut block = null_mut();
        // SAFETY: a place for the answer; a greater alignment is a power of two and a multiple of a pointer's size.
        match unsafe { posix_memalign(&raw mut block, layout.align(), layout.size()) } {
            0 => block.cast(),
            _ => null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: any size.
            return unsafe { calloc(1, layout.size()) }.cast();
        }
        // SAFETY: by the caller's word.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block is that long.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: a live block of these functions, by the caller's word.
        unsafe { free(block.cast()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: as above.
            return unsafe { realloc(block.cast(), size) }.cast();
        }
        // SAFETY: the size is not zero and does not overflow with this alignment, by the caller's word.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both are live, distinct, and as long as the lesser size; the caller gives the old one away.
            unsafe {
                core::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}
