// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use alloc_contract::{Memory, layout, random};
use std::vec::Vec;

/// Walks all regions: spans follow each other without a gap, no two neighbours are free, and each is listed where it
/// belongs.
fn check(heap: &Mimalloc) {
    let listed = |mut list: *mut Page, span: *mut Page| {
        // SAFETY: lists hold spans, which is being checked.
        unsafe {
            while !list.is_null() && list != span {
                list = (*list).next;
            }
        }
        list == span
    };
    let mut region = heap.regions;
    // SAFETY: as above.
    unsafe {
        while !region.is_null() {
            let (mut index, mut before) = (0, State::Whole);
            while index < (*region).pages {
                let span = (*region).first().add(index);
                let state = (*span).state;
                match state {
                    State::Free => {
                        assert!(before != State::Free, "free spans side by side");
                        assert!(listed(heap.free_spans, span));
                    }
                    State::Whole => {}
                    State::Blocks(class) => {
                        assert_eq!(listed(heap.classes[usize::from(class)], span), !(*span).is_full());
                    }
                }
                before = state;
                index += (*span).pages;
            }
            assert_eq!(index, (*region).pages);
            region = (*region).next;
        }
    }
}

#[test]
fn the_contract_holds() {
    alloc_contract::holds(Mimalloc::new);
    alloc_contract::all_memory_comes_back(Mimalloc::new);
}

#[test]
fn spans_stay_whole_under_random_traffic() {
    let mut memory: Vec<Memory> = (0..2).map(|_| Memory::new(512 << 10)).collect();
    let mut heap = Mimalloc::new();
    memory.iter_mut().for_each(|region| region.give(&mut heap));
    let (mut random, mut live) = (random(), Vec::new());
    for step in 0..30_000 {
        if random(2) == 0 && !live.is_empty() {
            let (block, l) = live.swap_remove(random(live.len() as u64) as usize);
            // SAFETY: live, freed once.
            unsafe { heap.free(block, l) };
        } else {
            let power = 4 + random(11);
            let l = layout(1 + random(1 << power) as usize, 1 << random(14));
            let block = heap.alloc(l);
            if !block.is_null() {
                live.push((block, l));
            }
        }
        if step % 64 == 0 {
            check(&heap);
        }
    }
}

#[test]
fn a_span_whose_blocks_are_all_free_serves_other_sizes() {
    let mut memory = Memory::new(64 << 10);
    let mut heap = Mimalloc::new();
    memory.give(&mut heap);
    // One block of each class keeps a span each, until they are wanted.
    for class in 0..16 {
        let l = layout(size_of_class(class), 8);
        let block = heap.alloc(l);
        assert!(!block.is_null(), "{class}");
        // SAFETY: live, freed once.
        unsafe { heap.free(block, l) };
    }
    assert!(!heap.alloc(layout(48 << 10, 4096)).is_null());
    check(&heap);
}

#[test]
fn blocks_come_back_in_the_order_of_their_release_not_at_once() {
    let mut memory = Memory::new(64 << 10);
    let mut heap = Mimalloc::new();
    memory.give(&mut heap);
    let l = layout(64, 8);
    let first = heap.alloc(l);
    let second = heap.alloc(l);
    // SAFETY: live, freed once.
    unsafe { heap.free(first, l) };
    // The list of those that came back is used when the other one is empty, which it is here.
    assert_eq!(heap.alloc(l), first);
    // SAFETY: live, freed once.
    unsafe {
        heap.free(second, l);
        heap.free(first, l);
    }
    assert_eq!([heap.alloc(l), heap.alloc(l)], [first, second]);
}
