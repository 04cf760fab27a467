// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from host memory, for tests of the crates above.

use crate::PAGE_SIZE;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::Mutex;

static COUNTS: Mutex<Option<HashMap<u64, u32>>> = Mutex::new(None);

fn with<T>(f: impl FnOnce(&mut HashMap<u64, u32>) -> T) -> T {
    let mut counts = COUNTS.lock().unwrap_or_else(|e| e.into_inner());
    f(counts.get_or_insert_default())
}

fn layout() -> Layout {
    Layout::new::<[u64; PAGE_SIZE / 8]>().align_to(PAGE_SIZE).expect("a page is a valid layout")
}

pub(crate) fn unilith_frame_new() -> u64 {
    // SAFETY: the layout is not empty.
    let page = unsafe { alloc_zeroed(layout()) } as u64;
    with(|counts| counts.insert(page, 1));
    page
}

pub(crate) fn unilith_frame_copy(of: u64) -> u64 {
    let page = unilith_frame_new();
    // SAFETY: two distinct live pages.
    unsafe { std::ptr::copy_nonoverlapping(of as *const u8, page as *mut u8, PAGE_SIZE) }
    page
}

/// In a count: the page is a part of a piece, whose memory is not freed page by page.
const OF_PIECE: u32 = 1 << 31;

/// One allocation behind the pages: tests that give their pages back one by one leak it.
pub(crate) fn unilith_frames_take_zeroed(count: usize) -> u64 {
    if count == 0 || count > 1024 {
        return 0;
    }
    let align = count.next_power_of_two() * PAGE_SIZE;
    let layout = Layout::from_size_align(count * PAGE_SIZE, align).expect("at most 4 MiB");
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) as u64 };
    with(|counts| counts.extend((0..count as u64).map(|i| (start + i * PAGE_SIZE as u64, 1 | OF_PIECE))));
    start
}

pub(crate) fn unilith_frames_give(physical: u64, count: usize) {
    let align = count.next_power_of_two() * PAGE_SIZE;
    let layout = Layout::from_size_align(count * PAGE_SIZE, align).expect("at most 4 MiB");
    with(|counts| {
        for i in 0..count as u64 {
            counts.remove(&(physical + i * PAGE_SIZE as u64));
        }
    });
    // SAFETY: it came from `unilith_frames_take_zeroed` with this count.
    unsafe { dealloc(physical as *mut u8, layout) }
}

/// As many as a test can wish for.
pub(crate) fn unilith_frames_statistics() -> (u64, u64) {
    (1 << 20, 1 << 19)
}

pub(crate) fn unilith_frame_retain(page: u64) {
    with(|counts| {
        counts.entry(page).and_modify(|n| *n += 1);
    });
}

pub(crate) fn unilith_frame_release(page: u64) {
    let last = with(|counts| match counts.get_mut(&page) {
        Some(n) if *n & !OF_PIECE == 1 => counts.remove(&page).is_some_and(|n| n & OF_PIECE == 0),
        Some(n) => {
            *n -= 1;
            false
        }
        None => false, // permanent: not ours
    });
    if last {
        // SAFETY: it came from `alloc_zeroed` with this layout, and nobody holds it any more.
        unsafe { dealloc(page as *mut u8, layout()) }
    }
}

pub(crate) fn unilith_frame_count(page: u64) -> u32 {
    with(|counts| counts.get(&page).map_or(u32::MAX, |n| n & !OF_PIECE))
}

pub(crate) fn unilith_frame_bytes(page: u64) -> *mut u8 {
    page as *mut u8
}
