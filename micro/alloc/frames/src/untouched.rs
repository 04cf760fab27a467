// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that were never given to anybody. In a process of Linux they are zeros that cost nothing until they are touched,
//! so nobody may touch them only to make them zero.

use crate::{PAGE, PHYS};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// A bit for each page below the end of the first range, kept in the first pages of that range: 1/32768 of the memory in
/// addresses, and memory as it is used.
static TOUCHED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Makes the map, at the begin of the first range; what is left of the range. Pages of later ranges above its end count as
/// touched.
///
/// # Safety
///
/// The range is memory that nobody used yet, mapped at [`PHYS`].
pub unsafe fn begin(start: u64, end: u64) -> u64 {
    let page = PAGE as u64;
    let words = (end / page).div_ceil(64);
    let map = start.next_multiple_of(page);
    let behind = (map + words * 8).next_multiple_of(page);
    if WORDS.load(Ordering::Relaxed) != 0 || behind >= end {
        return start;
    }
    // The order is nobody's concern: machines start with one processor.
    TOUCHED.store((map as usize + PHYS) as *mut AtomicU64, Ordering::Relaxed);
    WORDS.store(words as usize, Ordering::Relaxed);
    behind
}

/// True when the page at `physical` is given away for the first time, and so holds zeros.
#[inline]
pub fn take(physical: u64) -> bool {
    let page = physical as usize / PAGE;
    if page / 64 >= WORDS.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: `begin` made the map of this many words, in zeros, in pages that are in no range.
    let word = unsafe { &*TOUCHED.load(Ordering::Relaxed).add(page / 64) };
    let bit = 1 << (page % 64);
    // One processor: nobody changes it in between.
    let before = word.load(Ordering::Relaxed);
    word.store(before | bit, Ordering::Relaxed);
    before & bit == 0
}
