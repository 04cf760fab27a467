// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical pages: the one allocator of the machine's memory, with a count for each page.
//!
//! Binary buddies of 1 to 1,024 pages over the ranges the platform gives with [`add_range`], and a small stack of
//! single pages in front of them, so that the usual request (one page, and one back) touches no list.
//!
//! **Memory is touched only when it is needed.** The record of a page (12 bytes) is written when the page is first
//! part of a block that is handled; behind the *frontier* of a range nothing was written at all, neither records nor
//! pages. A machine of 256 MiB that uses 20 therefore costs its host 20. Records of a block's inner pages are never
//! read before they are written: a buddy is looked at only below its parent, and the split wrote it.
//!
//! Pages outside of every range (the kernel's image, the initial RAM disk, devices) are *permanent*: counting them
//! does nothing.
//!
//! Provides the `unilith_frame_*` symbols of `api-mem`, whose documentation is their contract.
#![no_std]
#[cfg(test)]
extern crate std;

mod buddy;
#[cfg(not(any(test, feature = "host")))]
mod symbols;
#[cfg_attr(not(feature = "process"), path = "touched.rs")]
mod untouched;

pub use buddy::{Frames, MAX_BLOCK};

use api_lock::SpinLock;
use core::alloc::Layout;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Where the kernel sees physical memory on the pc platform; physical address 0 is here.
pub const PHYS: usize = api_plat::PHYS as usize;

static FRAMES: SpinLock<Frames> = SpinLock::new(Frames::new(PHYS));

/// Gives the physical range `start..end` to the allocator; the platform calls it at boot for what the machine's map
/// calls usable (without kernel image, initial RAM disk and boot structures), and later for boot memory that has
/// become free. Ends that are not page-aligned are left out. At most [`Frames::RANGES`] ranges; more are ignored,
/// and the answer is false.
///
/// # Safety
///
/// The range is RAM, mapped at [`PHYS`], and nobody else uses it.
pub unsafe fn add_range(start: u64, end: u64) -> bool {
    // SAFETY: by the caller's word.
    unsafe { FRAMES.lock().add_range(untouched::begin(start, end), end) }
}

/// All pages, and those that are free.
pub fn statistics() -> (u64, u64) {
    let frames = FRAMES.lock();
    (frames.total(), frames.free())
}

/// Free pages, and how many of them are left to the kernel's heap.
pub fn spare() -> (u64, u64) {
    let frames = FRAMES.lock();
    (frames.free(), frames.reserve())
}

/// `count` contiguous pages (at most [`MAX_BLOCK`]), aligned to the next power of two; the physical address, or 0.
/// Their bytes are whatever they were.
pub fn take(count: usize) -> u64 {
    let physical = FRAMES.lock().take(count);
    for page in (physical..).step_by(PAGE).take(if physical == 0 { 0 } else { count }) {
        untouched::take(page);
    }
    physical
}

/// Gives contiguous pages back, all or a part of what was taken.
///
/// # Safety
///
/// They were taken, were not given back since, and nobody uses them.
pub unsafe fn give(physical: u64, count: usize) {
    // SAFETY: by the caller's word.
    unsafe { FRAMES.lock().give(physical, count) }
}

/// For `api_alloc::Pages`: memory of the kernel heap.
pub fn heap_take(count: usize) -> *mut u8 {
    match take(count) {
        0 => core::ptr::null_mut(),
        physical => (physical as usize + PHYS) as *mut u8,
    }
}

/// For `api_alloc::Pages`: the way back.
///
/// # Safety
///
/// [`heap_take`] returned these pages, or more with them among those, and nobody uses them any more.
pub unsafe fn heap_give(start: *mut u8, count: usize) {
    debug_assert!(Layout::from_size_align(count * PAGE, PAGE).is_ok());
    // SAFETY: by the caller's word.
    unsafe { give((start as usize - PHYS) as u64, count) }
}

/// Zeroes pages, 64 bytes a step: as quick as `rep stosq` on hardware and twice as quick under emulation. Processes are not
/// emulated, and there `rep stosq` is quicker for more than a page.
///
/// # Safety
///
/// `start` is the page-aligned start of `bytes` writable bytes, whole pages.
#[inline]
unsafe fn zero(start: *mut u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    #[cfg(feature = "process")]
    // SAFETY: by the caller's word.
    unsafe {
        core::arch::asm!("rep stosq", inout("rcx") bytes / 8 => _, inout("rdi") start => _, in("rax") 0,
            options(nostack, preserves_flags));
    }
    #[cfg(not(feature = "process"))]
    // SAFETY: by the caller's word.
    unsafe {
        core::arch::asm!(
            "xorps {zero}, {zero}",
            "2:",
            "movaps [{at}], {zero}",
            "movaps [{at} + 16], {zero}",
            "movaps [{at} + 32], {zero}",
            "movaps [{at} + 48], {zero}",
            "add {at}, 64",
            "cmp {at}, {end}",
            "jne 2b",
            at = inout(reg) start => _, end = in(reg) start.wrapping_add(bytes), zero = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies one page, in the same way.
///
/// # Safety
///
/// Both are page-aligned starts of [`PAGE`] bytes, and different pages.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8) {
    // SAFETY: by the caller's word.
    unsafe {
        core::arch::asm!(
            "2:",
            "movaps {a}, [{from}]",
            "movaps {b}, [{from} + 16]",
            "movaps {c}, [{from} + 32]",
            "movaps {d}, [{from} + 48]",
            "movaps [{to}], {a}",
            "movaps [{to} + 16], {b}",
            "movaps [{to} + 32], {c}",
            "movaps [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "cmp {from}, {end}",
            "jne 2b",
            from = inout(reg) from => _, to = inout(reg) to => _, end = in(reg) from.wrapping_add(PAGE),
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack),
        );
    }
}
