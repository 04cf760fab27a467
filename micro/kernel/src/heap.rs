// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's heap, made of the allocator that was picked.

use abi::PAGE_SIZE;
use alloc_frames::{add_range, heap_give, heap_take};
use api_alloc::{KernelHeap, Pages, Statistics};
use api_plat::MemoryRange;
#[cfg(feature = "fail-nth")]
use core::sync::atomic::{AtomicBool, Ordering};

// Two picked heaps are two definitions of this name, which the compiler refuses.
#[cfg(feature = "alloc-buddy")]
use alloc_buddy::Buddy as Picked;
#[cfg(feature = "alloc-mimalloc")]
use alloc_mimalloc::Mimalloc as Picked;
#[cfg(feature = "alloc-region")]
use alloc_region::Bump as Picked;
#[cfg(feature = "alloc-tiny")]
use alloc_tiny::Tiny as Picked;
#[cfg(feature = "alloc-tlsf")]
use alloc_tlsf::Tlsf as Picked;

#[cfg(feature = "alloc-apart")]
mod apart;
#[cfg(feature = "alloc-apart")]
use apart::{HEAP, begin};

#[cfg(not(feature = "heap-check"))]
type Used = Picked;
#[cfg(feature = "heap-check")]
type Used = alloc_checked::Checked<Picked>;

const fn usual() -> KernelHeap<Used> {
    #[cfg(not(feature = "heap-check"))]
    let empty = Picked::new();
    #[cfg(feature = "heap-check")]
    let empty = alloc_checked::Checked::new(Picked::new());
    KernelHeap::new(empty, Pages { take: heap_take, give: heap_give })
}

#[cfg(not(feature = "alloc-apart"))]
#[global_allocator]
static HEAP: KernelHeap<Used> = usual();

/// There are threads, and so there may be one of a program.
#[cfg(feature = "fail-nth")]
pub static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// A test reads on the console what a program's call asked for, and fails. What the kernel itself needs to start is left out.
#[cfg(feature = "fail-nth")]
#[unsafe(no_mangle)]
fn unilith_fault_leans_on_reserve(bytes: usize) {
    if !HAS_THREADS.load(Ordering::Relaxed) || task::running().is_none() {
        return;
    }
    crate::machine::warn(format_args!("{bytes} bytes of the heap that cannot be refused"));
}

/// What is left of pages and heap is less than half of the reserve: no call that makes something new is let in. The
/// heap counts, for it gives back only regions of which all is free; holes between small objects do not.
#[unsafe(no_mangle)]
#[inline(never)] // one copy, not one in each of the calls that ask
fn unilith_memory_is_low() -> bool {
    let (free, reserve) = alloc_frames::spare();
    if free >= reserve {
        return false;
    }
    let heap = HEAP.statistics();
    free as usize * PAGE_SIZE + (heap.total - heap.used).saturating_sub(heap.scraps)
        < reserve as usize * PAGE_SIZE / 2
}

/// Pages that the heap no longer needs are pages for programs again; false when there were none.
#[unsafe(no_mangle)]
#[inline(never)]
fn unilith_heap_reclaim() -> bool {
    HEAP.reclaim() > 0
}

#[unsafe(no_mangle)]
fn unilith_heap_statistics() -> Statistics {
    HEAP.statistics()
}

#[unsafe(no_mangle)]
fn unilith_heap_trim() {
    HEAP.trim();
}

#[unsafe(no_mangle)]
fn unilith_kernel_memory(free: &[MemoryRange]) {
    for range in free {
        // SAFETY: the platform calls this once, with RAM that nobody uses.
        let taken = unsafe { add_range(range.start, range.end) };
        if !taken {
            log::warn!("memory {:#x} to {:#x} is left unused: too many ranges", range.start, range.end);
        }
    }
    #[cfg(feature = "alloc-apart")]
    begin(free);
}
