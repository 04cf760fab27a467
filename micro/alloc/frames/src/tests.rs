// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::vec::Vec;

/// Host memory that plays physical memory from address `BASE` on, filled with garbage as real memory may be.
struct Machine {
    memory: *mut u8,
    bytes: usize,
}

const BASE: u64 = 0x40_0000;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, PAGE * MAX_BLOCK).unwrap()
}

impl Machine {
    fn new(bytes: usize) -> Machine {
        // SAFETY: the layout is not empty, and the whole of it is written.
        let memory = unsafe { alloc(layout(bytes)) };
        // SAFETY: as above. 0x80000000 is the pattern that looks most like free blocks.
        unsafe { memory.cast::<u32>().write_bytes(0x80, bytes / 4) };
        for i in 0..bytes / 4 {
            // SAFETY: inside the allocation.
            unsafe { memory.cast::<u32>().add(i).write(FREE | (i % 4) as u32) }
        }
        Machine { memory, bytes }
    }

    fn frames(&self, ranges: &[(u64, u64)]) -> Frames {
        let mut frames = Frames::new((self.memory as usize).wrapping_sub(BASE as usize));
        for (start, end) in ranges {
            assert!(*end <= self.bytes as u64);
            // SAFETY: the range lies in the memory of this machine.
            assert!(unsafe { frames.add_range(BASE + start, BASE + end) });
        }
        frames
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory, layout(self.bytes)) }
    }
}

#[test]
fn every_page_is_handed_out_once_and_then_none() {
    let machine = Machine::new(8 << 20);
    let mut frames = machine.frames(&[(0, 3 << 20), (0x30_1000, 8 << 20)]);
    let total = frames.total();
    let reserve = total / RESERVE_SHARE;
    let mut seen: Vec<u64> = (0..total - reserve).map(|_| frames.new_frame()).collect();
    assert_eq!(frames.new_frame(), 0, "the rest is the kernel's");
    seen.extend((0..reserve).map(|_| frames.take(1)));
    assert_eq!((frames.free(), frames.take(1)), (0, 0));
    seen.sort();
    assert!(seen.windows(2).all(|w| w[1] >= w[0] + PAGE as u64) && seen[0] > BASE);
    seen.iter().for_each(|f| frames.release(*f));
    assert_eq!(frames.free(), total);
}

#[test]
fn freed_pages_merge_into_the_largest_blocks_again() {
    let machine = Machine::new(16 << 20);
    let mut frames = machine.frames(&[(0, 16 << 20)]);
    let before: Vec<u64> = (0..3).map(|_| frames.take(MAX_BLOCK)).collect();
    assert!(before.iter().all(|b| *b != 0 && b % (MAX_BLOCK * PAGE) as u64 == 0));
    assert_eq!(frames.take(MAX_BLOCK), 0);
    // SAFETY: taken just now.
    before.iter().for_each(|b| unsafe { frames.give(*b, MAX_BLOCK) });
    let pages: Vec<u64> = (0..frames.total()).map(|_| frames.take(1)).collect();
    assert_eq!(frames.take(2), 0);
    pages.iter().for_each(|f| frames.release(*f));
    assert!((0..3).all(|_| frames.take(MAX_BLOCK) != 0));
}

#[test]
fn counts_keep_a_page_and_permanent_pages_have_none() {
    let machine = Machine::new(4 << 20);
    let mut frames = machine.frames(&[(0, 4 << 20)]);
    let page = frames.new_frame();
    let free = frames.free();
    frames.retain(page);
    frames.release(page);
    assert_eq!((frames.count(page), frames.free()), (1, free));
    frames.release(page);
    assert_eq!(frames.free(), free + 1);
    let outside = BASE + (64 << 20);
    frames.retain(outside);
    frames.release(outside);
    frames.release(0);
    assert_eq!(frames.count(outside), u32::MAX);
}

#[test]
fn memory_behind_the_frontier_is_not_touched() {
    let machine = Machine::new(64 << 20);
    let mut frames = machine.frames(&[(0, 64 << 20)]);
    (0..100).for_each(|_| assert!(frames.new_frame() < BASE + (8 << 20)));
    // SAFETY: reads of the test's own memory.
    let word = |at: usize| unsafe { machine.memory.cast::<u32>().add(at / 4).read() };
    // Records of the last half of memory, and that half itself.
    let records = 64 / 4 * 1024 * size_of::<Record>();
    for at in (records / 2..records).step_by(4).chain((32 << 20..64 << 20).step_by(PAGE)) {
        assert_eq!(word(at), FREE | (at / 4 % 4) as u32);
    }
}

#[test]
fn random_traffic_never_hands_out_a_page_twice() {
    let machine = Machine::new(24 << 20);
    let mut frames = machine.frames(&[(0x1000, 0x9f000), (0x10_0000, 9 << 20), (9 << 20, 24 << 20)]);
    let total = frames.total();
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut owner: HashMap<u64, usize> = HashMap::new();
    let mut live: Vec<(u64, usize)> = Vec::new();
    for step in 0..60_000 {
        let most = 1 << random(11);
        let count = if random(4) == 0 { 1 + random(most) as usize } else { 1 };
        let grow = if step / 10_000 % 2 == 0 { 3 } else { 2 };
        if random(5) < grow {
            let start = if count == 1 { frames.new_frame() } else { frames.take(count) };
            if start == 0 {
                continue;
            }
            assert_eq!(start % (count.next_power_of_two() * PAGE) as u64, 0);
            for i in 0..count as u64 {
                assert_eq!(owner.insert(start + i * PAGE as u64, step), None, "handed out twice");
            }
            live.push((start, count));
        } else if !live.is_empty() {
            let (start, count) = live.swap_remove(random(live.len() as u64) as usize);
            for i in 0..count as u64 {
                owner.remove(&(start + i * PAGE as u64));
            }
            if random(2) == 0 {
                (0..count as u64).for_each(|i| frames.release(start + i * PAGE as u64));
            } else if count > 1 {
                // In two parts, as a driver that gives back what it does not need.
                let cut = random(count as u64) as usize;
                // SAFETY: taken, not given back, not used.
                unsafe {
                    frames.give(start, cut);
                    frames.give(start + (cut * PAGE) as u64, count - cut);
                }
            } else {
                frames.release(start);
            }
        }
        assert_eq!(frames.free() + owner.len() as u64, total);
    }
    for (start, count) in live {
        (0..count as u64).for_each(|i| frames.release(start + i * PAGE as u64));
    }
    assert_eq!(frames.free(), total);
    // All of it can still be reached.
    assert_eq!((0..total).filter(|_| frames.take(1) != 0).count() as u64, total);
}

#[test]
fn pages_are_zeroed_and_copied_to_their_last_byte() {
    let machine = Machine::new(4 * PAGE);
    let (a, b) = (machine.memory, machine.memory.wrapping_add(PAGE));
    // SAFETY: both pages are the test's own, and the neighbours are inside the allocation.
    unsafe {
        a.write_bytes(0x5a, 3 * PAGE);
        crate::zero(b, PAGE);
        assert_eq!((*b.sub(1), *b, *b.add(PAGE - 1), *b.add(PAGE)), (0x5a, 0, 0, 0x5a));
        crate::copy(a, b);
        assert!((0..3 * PAGE).all(|i| *a.add(i) == 0x5a));
    }
}
