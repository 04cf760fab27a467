// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The symbols `api-mem` declares.

use crate::{FRAMES, PAGE, PHYS, copy, untouched, zero};

unsafe extern "Rust" {
    /// The kernel image provides it: the heap gives back what it no longer needs. False when that is nothing.
    safe fn unilith_heap_reclaim() -> bool;
}

/// One page, from the heap if there is no other.
#[inline]
fn new_frame() -> u64 {
    let physical = FRAMES.lock().new_frame();
    if physical != 0 { physical } else { new_frame_from_heap() }
}

#[cold]
fn new_frame_from_heap() -> u64 {
    if unilith_heap_reclaim() { FRAMES.lock().new_frame() } else { 0 }
}

fn at(physical: u64) -> *mut u8 {
    (physical as usize + PHYS) as *mut u8
}

#[unsafe(no_mangle)]
fn unilith_frame_new() -> u64 {
    let physical = new_frame();
    if physical != 0 && !untouched::take(physical) {
        // SAFETY: a fresh page, ours alone.
        unsafe { zero(at(physical), PAGE) }
    }
    physical
}

#[unsafe(no_mangle)]
fn unilith_frame_copy(of: u64) -> u64 {
    let physical = new_frame();
    if physical != 0 {
        untouched::take(physical);
        // SAFETY: a fresh page, and one the caller holds a count of.
        unsafe { copy(at(of), at(physical)) }
    }
    physical
}

#[unsafe(no_mangle)]
fn unilith_frame_retain(physical: u64) {
    FRAMES.lock().retain(physical);
}

#[unsafe(no_mangle)]
fn unilith_frame_release(physical: u64) {
    FRAMES.lock().release(physical);
}

#[unsafe(no_mangle)]
fn unilith_frame_count(physical: u64) -> u32 {
    FRAMES.lock().count(physical)
}

#[unsafe(no_mangle)]
fn unilith_frame_bytes(physical: u64) -> *mut u8 {
    at(physical)
}

#[unsafe(no_mangle)]
fn unilith_frames_take_zeroed(count: usize) -> u64 {
    let mut physical = FRAMES.lock().take(count);
    if physical == 0 && unilith_heap_reclaim() {
        physical = FRAMES.lock().take(count);
    }
    if physical != 0 {
        // Neighbours that were used before are zeroed together.
        let (mut used, end) = (physical, physical + (count * PAGE) as u64);
        for page in (physical..).step_by(PAGE).take(count) {
            if untouched::take(page) {
                // SAFETY: fresh pages, ours alone.
                unsafe { zero(at(used), (page - used) as usize) }
                used = page + PAGE as u64;
            }
        }
        // SAFETY: as above.
        unsafe { zero(at(used), (end - used) as usize) }
    }
    physical
}

#[unsafe(no_mangle)]
fn unilith_frames_give(physical: u64, count: usize) {
    // SAFETY: `api_mem::Pages` gives what it took, once.
    unsafe { crate::give(physical, count) }
}

#[unsafe(no_mangle)]
fn unilith_frames_statistics() -> (u64, u64) {
    crate::statistics()
}
