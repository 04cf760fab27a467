// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that were never given to anybody. In a process of Linux they are zeros that cost nothing until they are touched,
//! so nobody may touch them only to make them zero.

use crate::PAGE;
use core::sync::atomic::{AtomicU64, Ordering};

/// Pages of 64 GiB, the most memory a process platform has; the map takes 2 MiB of addresses, and memory as it is used.
const WORDS: usize = (64 << 30) / PAGE / 64;
static TOUCHED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// True when the page at `physical` is given away for the first time, and so holds zeros.
#[inline]
pub fn take(physical: u64) -> bool {
    let page = physical as usize / PAGE;
    let Some(word) = TOUCHED.get(page / 64) else { return false };
    let bit = 1 << (page % 64);
    // One processor: nobody changes it in between.
    let before = word.load(Ordering::Relaxed);
    word.store(before | bit, Ordering::Relaxed);
    before & bit == 0
}
