// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::vec::Vec;

/// Host memory that lives as long as the test.
struct Memory(Vec<u128>);

impl Memory {
    fn new(length: usize) -> Memory {
        Memory(std::vec![0; length.div_ceil(16)])
    }

    fn give(&mut self, heap: &mut Buddy) {
        let (start, length) = (self.0.as_mut_ptr().cast(), self.0.len() * 16);
        // SAFETY: the vector outlives the heap in every test below and is not touched.
        unsafe { heap.add_region(start, length) }
    }
}

/// Bytes in free blocks; checks that the map and the lists agree and that no free buddies were left apart.
fn check(heap: &Buddy) -> usize {
    let mut total = 0;
    for order in 0..ORDERS {
        let (mut block, mut previous) = (heap.lists[order], null_mut());
        while !block.is_null() {
            let address = block as usize;
            // SAFETY: lists hold free blocks, which is being checked.
            unsafe {
                assert_eq!((*block).previous, previous);
                let region = heap.region_of(address);
                assert_eq!(*Region::map(region, address), FREE | order as u8);
                let buddy = address ^ bytes(order);
                let inside = Region::contains(region, buddy, bytes(order)) && order + 1 < ORDERS;
                assert!(!inside || *Region::map(region, buddy) != FREE | order as u8, "free buddies apart");
                (previous, block) = (block, (*block).next);
            }
            total += bytes(order);
        }
    }
    total
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
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
    let mut memory: Vec<Memory> = (0..3).map(|_| Memory::new(300 << 10)).collect();
    let mut heap = Buddy::new();
    memory.iter_mut().for_each(|m| m.give(&mut heap));
    let all = check(&heap);
    let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
    for step in 0..80_000u32 {
        let emptying = step > 70_000;
        if emptying && live.is_empty() {
            break;
        }
        if emptying || live.len() > 400 || (random(5) < 2 && !live.is_empty()) {
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
        assert_eq!(heap.statistics().blocks, live.len());
        if step % 1024 == 0 {
            assert_eq!(check(&heap), heap.statistics().total - heap.statistics().used);
        }
    }
    assert_eq!(check(&heap), all);
}

#[test]
fn the_contract_holds() {
    alloc_contract::holds(Buddy::new);
    alloc_contract::all_memory_comes_back(Buddy::new);
}
