// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network's heap beside that of the rest (`--set alloc.net=NAME`).

use super::{Used, usual};
use abi::PAGE_SIZE;
use alloc_apart::{Apart, PageSet};
use alloc_frames::{heap_give, heap_take};
use api_alloc::{KernelHeap, Pages};
use api_plat::{MemoryRange, PHYS};

#[cfg(feature = "alloc-net-buddy")]
use alloc_buddy::Buddy as OfNetwork;
#[cfg(feature = "alloc-net-mimalloc")]
use alloc_mimalloc::Mimalloc as OfNetwork;
#[cfg(feature = "alloc-net-region")]
use alloc_region::Bump as OfNetwork;
#[cfg(feature = "alloc-net-tiny")]
use alloc_tiny::Tiny as OfNetwork;
#[cfg(feature = "alloc-net-tlsf")]
use alloc_tlsf::Tlsf as OfNetwork;

#[cfg(not(feature = "heap-check"))]
type Network = OfNetwork;
#[cfg(feature = "heap-check")]
type Network = alloc_checked::Checked<OfNetwork>;

#[cfg(not(feature = "heap-check"))]
const EMPTY: Network = OfNetwork::new();
#[cfg(feature = "heap-check")]
const EMPTY: Network = alloc_checked::Checked::new(OfNetwork::new());

static OF_NETWORK: PageSet = PageSet::new();

#[global_allocator]
pub static HEAP: Apart<Used, Network> =
    Apart::new(usual(), KernelHeap::new(EMPTY, Pages { take, give }), &OF_NETWORK);

fn take(count: usize) -> *mut u8 {
    let start = heap_take(count);
    if start.is_null() || OF_NETWORK.add(start, count) {
        return start;
    }
    // SAFETY: taken just now, and nobody has it.
    unsafe { heap_give(start, count) };
    core::ptr::null_mut()
}

/// # Safety
///
/// As of [`heap_give`].
unsafe fn give(start: *mut u8, count: usize) {
    OF_NETWORK.remove(start, count);
    // SAFETY: by the caller's word.
    unsafe { heap_give(start, count) }
}

/// The network has a heap of its own from here on, in this memory.
pub fn begin(memory: &[MemoryRange]) {
    let end = memory.iter().map(|range| range.end).max().unwrap_or(0) as usize;
    let pages = end.div_ceil(PAGE_SIZE);
    let bytes = size_of::<u64>() * PageSet::words_for(pages);
    let words = heap_take(bytes.div_ceil(PAGE_SIZE));
    if words.is_null() {
        log::warn!(
            "alloc.net: there is no memory for {bytes} bytes of marks; the network has the kernel's heap"
        );
        return;
    }
    // SAFETY: these pages were taken for it, and are never given back. Physical memory is seen from `PHYS` on.
    unsafe {
        words.write_bytes(0, bytes);
        OF_NETWORK.begin(words.cast(), PHYS as usize, pages);
    }
}
