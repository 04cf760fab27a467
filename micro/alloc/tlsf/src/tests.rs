// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use api_alloc::{KernelHeap, Pages};
use core::alloc::GlobalAlloc;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

/// Host memory that lives as long as the test.
struct Region(Vec<u128>);

impl Region {
    fn new(bytes: usize) -> Region {
        Region(std::vec![0; bytes / 16])
    }

    fn give(&mut self, heap: &mut Tlsf) {
        let (start, length) = (self.0.as_mut_ptr().cast(), self.0.len() * 16);
        // SAFETY: the vector outlives the heap in every test below and is not touched.
        unsafe { heap.add_region(start, length) }
    }

    /// Walks the chain: gapless, linked back, no free neighbours, free blocks listed.
    fn check(&self, heap: &Tlsf) -> usize {
        let mut block = self.0.as_ptr() as *mut Header;
        let (mut before, mut free) = (null_mut(), 0);
        // SAFETY: the chain invariant is what is being checked; the test ends at the first broken link.
        unsafe {
            loop {
                assert_eq!((*block).before, before);
                if is_free(block) {
                    assert!(before.is_null() || !is_free(before), "free neighbours");
                    let (i, j) = class_of(length(block));
                    let mut entry = heap.lists[i][j];
                    while entry != block {
                        assert!(!entry.is_null(), "a free block is in no list");
                        entry = (*links(entry)).next;
                    }
                    free += length(block);
                }
                if length(block) == 0 {
                    break;
                }
                (before, block) = (block, after(block));
            }
            assert_eq!(block as usize + HEADER, self.0.as_ptr().add(self.0.len()) as usize);
        }
        free
    }
}

fn bits_and_scraps_agree(heap: &Tlsf) {
    let mut scraps = 0;
    for (i, lists) in heap.lists.iter().enumerate() {
        for (j, head) in lists.iter().enumerate() {
            assert_eq!(heap.second[i] >> j & 1 == 1, !head.is_null());
            let mut block = *head;
            while !block.is_null() {
                // SAFETY: lists hold free blocks.
                unsafe {
                    let whole = length(block) + HEADER;
                    scraps += if whole < SCRAP { whole } else { 0 };
                    block = (*links(block)).next;
                }
            }
        }
        assert_eq!(heap.first >> i & 1 == 1, heap.second[i] != 0);
    }
    assert_eq!(heap.statistics().scraps, scraps);
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn classes_cover_every_length_and_never_hand_out_too_little() {
    for length in (UNIT..1 << 20).step_by(UNIT) {
        assert!(class_for(length) >= class_of(length));
        assert!(class_of(length) >= class_of(length - UNIT));
        // The shortest block of the class found is long enough.
        let shortest =
            (UNIT..).step_by(UNIT).skip(length / UNIT - 1).find(|l| class_of(*l) == class_for(length));
        assert!(shortest.unwrap() >= length);
    }
}

#[test]
fn all_memory_comes_back_as_one_block() {
    let mut region = Region::new(1 << 16);
    let mut heap = Tlsf::new();
    region.give(&mut heap);
    let whole = region.check(&heap);
    let blocks: Vec<_> = (1..100).map(|n| (heap.alloc(layout(n * 3, 8)), layout(n * 3, 8))).collect();
    for (block, l) in blocks.iter().step_by(2).chain(blocks.iter().skip(1).step_by(2)) {
        assert!(!block.is_null());
        // SAFETY: live, freed once.
        unsafe { heap.free(*block, *l) };
        region.check(&heap);
    }
    assert_eq!(region.check(&heap), whole);
    assert_eq!(heap.statistics().blocks, 0);
}

#[test]
fn random_traffic_keeps_the_invariants_and_the_contents() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut regions: Vec<Region> = (0..3).map(|_| Region::new(256 << 10)).collect();
    let mut heap = Tlsf::new();
    regions.iter_mut().for_each(|r| r.give(&mut heap));
    let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
    for step in 0..60_000u32 {
        if live.len() > 400 || (random(5) < 2 && !live.is_empty()) {
            let (block, l, fill) = live.swap_remove(random(live.len() as u64) as usize);
            // SAFETY: live block of `l.size()` bytes.
            let bytes = unsafe { std::slice::from_raw_parts(block, l.size()) };
            assert!(bytes.iter().all(|b| *b == fill), "somebody wrote into a live block");
            // SAFETY: freed once.
            unsafe { heap.free(block, l) };
        } else {
            let size = 1 << random(14);
            let l = layout(1 + random(size) as usize, 1 << random(13));
            let block = heap.alloc(l);
            if !block.is_null() {
                assert_eq!(block as usize % l.align(), 0);
                // SAFETY: fresh block of that size.
                unsafe { block.write_bytes(step as u8, l.size()) };
                live.push((block, l, step as u8));
            }
        }
        if step % 1024 == 0 {
            regions.iter().for_each(|r| assert!(r.check(&heap) > 0));
            bits_and_scraps_agree(&heap);
        }
        assert_eq!(heap.statistics().blocks, live.len());
    }
}

/// A page of the host, where pages of the machine would be.
#[repr(C, align(4096))]
#[derive(Clone)]
struct PageOfHost([u8; PAGE]);

#[test]
fn pages_between_live_blocks_are_given_back_and_serve_again() {
    const PAGES: usize = 256;
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut memory = std::vec![PageOfHost([0; PAGE]); PAGES];
    let mut heap = Tlsf::new();
    // SAFETY: the vector outlives the heap and is touched only by what is given back.
    unsafe { heap.add_region(memory.as_mut_ptr().cast(), PAGES * PAGE) };
    let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
    let mut away: Vec<(*mut u8, usize)> = Vec::new();
    let mut given = 0;
    for step in 0..60_000u32 {
        // Waves, so that there are times of few blocks far apart.
        let most = if step / 3000 % 2 == 0 { 300 } else { 5 };
        if live.len() > most {
            let (block, l, fill) = live.swap_remove(random(live.len() as u64) as usize);
            // SAFETY: live block of `l.size()` bytes.
            let bytes = unsafe { std::slice::from_raw_parts(block, l.size()) };
            assert!(bytes.iter().all(|b| *b == fill), "somebody wrote into a live block");
            // SAFETY: freed once.
            unsafe { heap.free(block, l) };
        } else {
            let most = 1 << random(14);
            let l = layout(1 + random(most) as usize, 1 << random(8));
            let block = heap.alloc(l);
            if !block.is_null() {
                // SAFETY: fresh block of that size.
                unsafe { block.write_bytes(step as u8, l.size()) };
                live.push((block, l, step as u8));
            }
        }
        if step % 64 == 0 {
            while let Some((start, length)) = heap.take_empty() {
                assert!(length > 0 && length.is_multiple_of(PAGE) && (start as usize).is_multiple_of(PAGE));
                // SAFETY: the heap has given it up: whoever has it may write all of it.
                unsafe { start.write_bytes(0xff, length) };
                away.push((start, length));
                given += length;
            }
            bits_and_scraps_agree(&heap);
        }
        if step % 200 == 0 && !away.is_empty() {
            let (start, length) = away.swap_remove(random(away.len() as u64) as usize);
            // SAFETY: it was given back, and is given again.
            unsafe { heap.add_region(start, length) };
        }
        let held: usize = away.iter().map(|(_, length)| length).sum();
        assert_eq!(heap.statistics().total + held, PAGES * PAGE);
    }
    assert!(given > 20 * PAGES * PAGE, "pages came and went: {given}");
    for (block, l, _) in live.drain(..) {
        // SAFETY: freed once.
        unsafe { heap.free(block, l) };
    }
    let Statistics { total, used, blocks, scraps } = heap.statistics();
    assert!(blocks == 0 && used <= total && scraps <= total);
}

/// Pages that the heaps of the next test have.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Pages of a machine that has no more than `MAX_RUN` in a row.
fn take_few<const MAX_RUN: usize>(count: usize) -> *mut u8 {
    if count > MAX_RUN {
        return null_mut();
    }
    TAKEN.fetch_add(count, Ordering::Relaxed);
    // The heap may give back a part, which the host's heap would not take: the test keeps them.
    Vec::leak(std::vec![PageOfHost([0; PAGE]); count]).as_mut_ptr().cast()
}

#[test]
fn a_heap_that_grew_while_pages_were_short_gives_them_back() {
    let give = |_, count| {
        TAKEN.fetch_sub(count, Ordering::Relaxed);
    };
    let layouts = [layout(3000, 16), layout(100, 8), layout(7000, 16), layout(5000, 64)];
    for (take, layouts) in [
        (take_few::<1> as fn(usize) -> *mut u8, &layouts[..2]),
        (take_few::<2>, &layouts[..3]),
        (take_few::<3>, &layouts),
    ] {
        let heap = KernelHeap::new(Tlsf::new(), Pages { take, give });
        is_given_back(&heap, layouts);
    }
}

fn is_given_back(heap: &KernelHeap<Tlsf>, layouts: &[Layout]) {
    let all: Vec<(*mut u8, Layout)> = layouts
        .iter()
        .cycle()
        .take(2000)
        // SAFETY: the layouts are not empty.
        .map(|l| (unsafe { heap.alloc(*l) }, *l))
        .collect();
    assert!(all.iter().all(|(block, _)| !block.is_null()) && TAKEN.load(Ordering::Relaxed) > 700);
    // SAFETY: freed once.
    all.into_iter().for_each(|(block, l)| unsafe { heap.dealloc(block, l) });
    heap.trim();
    // Beside the two headers of each region.
    assert!(TAKEN.load(Ordering::Relaxed) <= 260, "a heap keeps a mebibyte for the next objects");
    heap.reclaim();
    assert_eq!((TAKEN.load(Ordering::Relaxed), heap.statistics().total), (0, 0));
}

#[test]
fn the_contract_holds() {
    alloc_contract::holds(Tlsf::new);
    alloc_contract::all_memory_comes_back(Tlsf::new);
    alloc_contract::empty_memory_is_handed_back(Tlsf::new);
}
