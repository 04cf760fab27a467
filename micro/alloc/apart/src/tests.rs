// SPDX-License-Identifier: Apache-2.0 OR MIT

extern crate std;

use super::*;
use alloc_buddy::Buddy;
use alloc_region::Bump;
use alloc_tlsf::Tlsf;
use api_alloc::Pages;
use std::sync::Mutex;
use std::vec::Vec;

/// Memory for both heaps, of which pages are handed out from the first to the last, and those given back again.
struct Machine {
    start: usize,
    next: usize,
    free: Vec<(usize, usize)>,
}

const PAGES: usize = 1 << 12;
static MACHINE: Mutex<Machine> = Mutex::new(Machine { start: 0, next: 0, free: Vec::new() });
static OF_NETWORK: PageSet = PageSet::new();
/// The library that is entered is one of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn take(count: usize) -> *mut u8 {
    let mut machine = MACHINE.lock().unwrap();
    if machine.start == 0 {
        let layout = Layout::from_size_align(PAGES * PAGE, PAGE).unwrap();
        // SAFETY: the layout is not empty; the words are leaked.
        unsafe {
            machine.start = std::alloc::alloc(layout) as usize;
            let words = std::vec![0u64; PageSet::words_for(PAGES)].leak();
            OF_NETWORK.begin(words.as_mut_ptr(), machine.start, PAGES);
        }
    }
    if let Some(at) = machine.free.iter().position(|(_, pages)| *pages == count) {
        return machine.free.swap_remove(at).0 as *mut u8;
    }
    if machine.next + count > PAGES {
        return null_mut();
    }
    machine.next += count;
    (machine.start + (machine.next - count) * PAGE) as *mut u8
}

unsafe fn give(start: *mut u8, count: usize) {
    MACHINE.lock().unwrap().free.push((start as usize, count));
}

fn take_for_network(count: usize) -> *mut u8 {
    let start = take(count);
    assert!(start.is_null() || OF_NETWORK.add(start, count));
    start
}

unsafe fn give_of_network(start: *mut u8, count: usize) {
    OF_NETWORK.remove(start, count);
    // SAFETY: by the caller's word.
    unsafe { give(start, count) }
}

type Both<N> = Apart<Tlsf, N>;

const fn both<N: Heap>(network: N) -> Both<N> {
    let pages = Pages { take: take_for_network, give: give_of_network };
    Apart::new(
        KernelHeap::new(Tlsf::new(), Pages { take, give }),
        KernelHeap::new(network, pages),
        &OF_NETWORK,
    )
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).unwrap()
}

#[test]
fn a_block_is_of_the_heap_of_the_library_that_asked_whoever_frees_it() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let heap = both(Buddy::new());
    // The marks are there with the first page.
    assert!(!take(1).is_null());
    // SAFETY: blocks are live when they are used, and freed once with their layouts.
    unsafe {
        let usual = heap.alloc(layout(100));
        let entered = library::enter(Library::Network);
        let own = heap.alloc(layout(100));
        {
            let _inner = library::enter(Library::Rest);
            assert!(!OF_NETWORK.has(heap.alloc(layout(10))));
        }
        assert!(OF_NETWORK.has(heap.alloc(layout(10))));
        heap.dealloc(usual, layout(100));
        drop(entered);
        assert!(OF_NETWORK.has(own) && !OF_NETWORK.has(usual) && !OF_NETWORK.has(heap.alloc(layout(100))));
        own.write_bytes(7, 100);
        // It moves to the heap of who makes it larger.
        let moved = heap.realloc(own, layout(100), 5000);
        assert!(!OF_NETWORK.has(moved) && moved.add(99).read() == 7);
        heap.dealloc(moved, layout(5000));
        assert_eq!(heap.network.statistics().blocks, 1);
    }
}

#[test]
fn a_large_block_is_pages_of_nobody() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let heap = both(Bump::new());
    let large = layout(KernelHeap::<Bump>::LARGE);
    // SAFETY: as above.
    unsafe {
        let entered = library::enter(Library::Network);
        let block = heap.alloc(large);
        assert!(!block.is_null() && !OF_NETWORK.has(block));
        drop(entered);
        let small = heap.realloc(block, large, 100);
        assert!(!small.is_null() && heap.network.statistics().blocks == 0);
        heap.dealloc(small, layout(100));
    }
    assert_eq!(heap.statistics().blocks, 0);
}

#[test]
fn pages_that_are_given_back_are_nobodys() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let heap = both(Tlsf::new());
    assert!(!take(1).is_null());
    let _entered = library::enter(Library::Network);
    // SAFETY: as above.
    unsafe {
        let block = heap.alloc(layout(100));
        assert!(OF_NETWORK.has(block));
        heap.dealloc(block, layout(100));
        assert!(heap.reclaim() > 0);
        assert!(!OF_NETWORK.has(block));
    }
}

#[test]
fn a_page_outside_of_the_set_is_not_marked() {
    let set = PageSet::new();
    assert!(!set.add(PAGE as *const u8, 1) && !set.has(PAGE as *const u8));
    let words = std::vec![0u64; PageSet::words_for(70)].leak();
    // SAFETY: there are words for 70 pages, and they are leaked.
    unsafe { set.begin(words.as_mut_ptr(), 10 * PAGE, 70) };
    let page = |n: usize| (n * PAGE) as *const u8;
    assert!(!set.add(page(9), 1) && !set.add(page(79), 2) && set.add(page(78), 2) && set.add(page(10), 1));
    let marked = (0..100).filter(|n| set.has(page(*n)));
    assert_eq!(marked.collect::<Vec<_>>(), [10, 78, 79]);
    set.remove(page(78), 2);
    assert!(!set.has(page(79)) && set.has((10 * PAGE + 4095) as *const u8));
}
