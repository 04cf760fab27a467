// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every allocator micro-library promises (`api-alloc`), as checks that each of them runs in its tests.
//!
//! Runs on the host only; no image contains it.

use api_alloc::Heap;
use std::alloc::Layout;
use std::ops::Range;

/// Steps of [`random_traffic_keeps_every_block_intact`].
const STEPS: u32 = 60_000;
/// Live blocks at a time in random traffic.
const MAX_LIVE: usize = 400;

/// Host memory that a heap is given; it must outlive the heap.
pub struct Memory {
    words: Vec<u128>,
    /// Bytes at the front that the heap does not get, so that its region starts at an odd place.
    skip: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory::behind(0, bytes)
    }

    /// `bytes` bytes that begin `skip` bytes after a multiple of 16.
    pub fn behind(skip: usize, bytes: usize) -> Memory {
        Memory { words: vec![0; (skip + bytes).div_ceil(16)], skip }
    }

    fn bytes(&self) -> usize {
        self.words.len() * 16 - self.skip
    }

    /// Addresses of the memory.
    pub fn range(&self) -> Range<usize> {
        let start = self.words.as_ptr() as usize + self.skip;
        start..start + self.bytes()
    }

    /// Gives all of it to the heap.
    pub fn give<H: Heap>(&mut self, heap: &mut H) {
        let (start, length) = (self.words.as_mut_ptr().cast::<u8>(), self.bytes());
        // SAFETY: `skip` is less than the length. The callers keep the memory until the heap is gone and touch it only
        // through blocks of the heap.
        unsafe { heap.add_region(start.add(self.skip), length) }
    }
}

/// A layout of tests: both numbers are valid.
pub fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("the test's own numbers")
}

/// A sequence of numbers that is the same in every run (xorshift; Marsaglia 2003).
pub fn random() -> impl FnMut(u64) -> u64 {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}

/// A block that is live, and the byte it is filled with.
struct Live {
    block: *mut u8,
    layout: Layout,
    fill: u8,
}

impl Live {
    fn is_intact(&self) -> bool {
        // SAFETY: the block is live and `layout.size()` bytes long by the heap's promise, and was filled.
        let bytes = unsafe { std::slice::from_raw_parts(self.block, self.layout.size()) };
        bytes.iter().all(|byte| *byte == self.fill)
    }

    fn free<H: Heap>(self, heap: &mut H) {
        // SAFETY: the block is a live one of this heap with this layout, and `self` is consumed.
        unsafe { heap.free(self.block, self.layout) }
    }
}

/// All of the below.
pub fn holds<H: Heap>(new: fn() -> H) {
    no_room_is_a_null_pointer(new);
    regions_too_small_or_crooked_are_no_harm(new);
    a_region_of_the_size_asked_for_is_enough(new);
    random_traffic_keeps_every_block_intact(new);
}

/// An empty heap, a heap that is full, and sizes beyond all memory answer null; a heap that is full serves again when
/// it gets another region.
pub fn no_room_is_a_null_pointer<H: Heap>(new: fn() -> H) {
    let (mut first, mut second) = (Memory::new(64 << 10), Memory::new(64 << 10));
    let mut heap = new();
    assert!(heap.alloc(layout(1, 1)).is_null());
    first.give(&mut heap);
    assert!(heap.alloc(layout(isize::MAX as usize - 64, 64)).is_null());
    assert!(heap.alloc(layout((64 << 10) + 1, 8)).is_null());
    let filled = (0..=4096).take_while(|_| !heap.alloc(layout(64, 8)).is_null()).count();
    assert!((256..=1024).contains(&filled), "{filled} blocks of 64 bytes from 64 KiB");
    second.give(&mut heap);
    assert!(!heap.alloc(layout(64, 8)).is_null());
    assert_eq!(heap.statistics().blocks, filled + 1);
}

/// Regions of every small size, at every offset: they are ignored or used, and no block leaves them.
pub fn regions_too_small_or_crooked_are_no_harm<H: Heap>(new: fn() -> H) {
    for skip in 0..16 {
        for bytes in (0..600).step_by(7).chain([5000, 9001]) {
            let mut memory = Memory::behind(skip, bytes.max(1));
            let range = memory.range();
            let mut heap = new();
            memory.give(&mut heap);
            loop {
                let block = heap.alloc(layout(8, 8)) as usize;
                if block == 0 {
                    break;
                }
                assert!(range.contains(&block) && block + 8 <= range.end, "a block outside of its region");
                // SAFETY: a live block of eight bytes.
                unsafe { (block as *mut u64).write(!0) };
            }
        }
    }
}

/// [`Heap::region_for`] tells the truth, whatever the alignment.
pub fn a_region_of_the_size_asked_for_is_enough<H: Heap>(new: fn() -> H) {
    for size in (1..5000).step_by(3).chain([32_767, 65_536, 100_001]) {
        for align in [1, 16, 64, 4096, 16_384] {
            let mut heap = new();
            let mut memory = Memory::new(heap.region_for(layout(size, align)));
            memory.give(&mut heap);
            let block = heap.alloc(layout(size, align)) as usize;
            assert!(block != 0 && block.is_multiple_of(align), "{size} bytes aligned to {align}");
        }
    }
}

/// Blocks of all sizes and alignments come and go in three regions: none overlaps another or leaves its region, the
/// numbers add up, and a heap that takes blocks back has all of its memory again at the end.
pub fn random_traffic_keeps_every_block_intact<H: Heap>(new: fn() -> H) {
    let mut random = random();
    let mut memory: Vec<Memory> = (0..3).map(|i| Memory::behind(i, 300 << 10)).collect();
    let mut heap = new();
    memory.iter_mut().for_each(|region| region.give(&mut heap));
    let ranges: Vec<Range<usize>> = memory.iter().map(Memory::range).collect();
    let mut live: Vec<Live> = Vec::new();
    let begin = heap.statistics();
    let mut refused = 0;
    for step in 0..STEPS {
        if live.len() > MAX_LIVE || (random(5) < 2 && !live.is_empty()) {
            let block = live.swap_remove(random(live.len() as u64) as usize);
            assert!(block.is_intact(), "somebody wrote into a live block");
            block.free(&mut heap);
        } else {
            let size = 1 << random(14);
            let layout = layout(1 + random(size) as usize, 1 << random(13));
            let block = heap.alloc(layout);
            if block.is_null() {
                refused += 1;
                continue;
            }
            let (start, end) = (block as usize, block as usize + layout.size());
            assert!(start.is_multiple_of(layout.align()));
            assert!(
                ranges.iter().any(|r| r.contains(&start) && end <= r.end),
                "a block outside of all regions"
            );
            // SAFETY: the block is fresh and that long.
            unsafe { block.write_bytes(step as u8, layout.size()) };
            live.push(Live { block, layout, fill: step as u8 });
        }
        let now = heap.statistics();
        assert_eq!(now.blocks, live.len());
        assert!(now.used <= now.total && now.total == begin.total);
    }
    assert!(refused < STEPS, "the heap served nothing");
    assert!(live.iter().all(Live::is_intact), "somebody wrote into a live block");
    live.into_iter().for_each(|block| block.free(&mut heap));
    assert_eq!(heap.statistics().blocks, 0);
}

/// A heap that takes blocks back: when all are free, it holds what it held, and its longest block is as long as before.
pub fn all_memory_comes_back<H: Heap>(new: fn() -> H) {
    let mut memory = Memory::new(256 << 10);
    let mut heap = new();
    memory.give(&mut heap);
    let begin = heap.statistics();
    let longest = |heap: &mut H| {
        (1..=64).rev().map(|kib| layout(kib << 12, 16)).find(|l| {
            let block = heap.alloc(*l);
            if !block.is_null() {
                // SAFETY: live, freed once.
                unsafe { heap.free(block, *l) };
            }
            !block.is_null()
        })
    };
    let before = longest(&mut heap);
    let mut random = random();
    for _ in 0..20 {
        let mut live = Vec::new();
        loop {
            let layout = layout(1 + random(3000) as usize, 1 << random(8));
            let block = heap.alloc(layout);
            if block.is_null() {
                break;
            }
            live.push(Live { block, layout, fill: 0 });
        }
        while !live.is_empty() {
            live.swap_remove(random(live.len() as u64) as usize).free(&mut heap);
        }
        assert_eq!(heap.statistics(), begin);
    }
    assert_eq!(longest(&mut heap), before);
}

/// A heap that hands memory back: pages beside a live block go, at the latest with it all of the regions, and they serve again.
pub fn empty_memory_is_handed_back<H: Heap>(new: fn() -> H) {
    let mut memory: Vec<Memory> = (0..4).map(|_| Memory::new(64 << 10)).collect();
    let mut heap = new();
    assert!(heap.take_empty().is_none());
    memory.iter_mut().for_each(|region| region.give(&mut heap));
    let begin = heap.statistics();
    let mut live: Vec<Live> = Vec::new();
    loop {
        let layout = layout(1000, 16);
        let block = heap.alloc(layout);
        if block.is_null() {
            break;
        }
        live.push(Live { block, layout, fill: 0 });
    }
    assert!(heap.take_empty().is_none());
    let last = live.swap_remove(live.len() / 2);
    live.into_iter().for_each(|block| block.free(&mut heap));
    let kept = last.block as usize..last.block as usize + last.layout.size();
    let mut back: Vec<Range<usize>> = Vec::new();
    let take = |heap: &mut H, back: &mut Vec<Range<usize>>| {
        while let Some((start, length)) = heap.take_empty() {
            let (start, end) = (start as usize, start as usize + length);
            let of_one = |region: &Memory| region.range().start <= start && end <= region.range().end;
            assert!(memory.iter().any(of_one), "what is handed back was given");
            assert!(back.iter().all(|other| other.end <= start || end <= other.start), "handed back twice");
            back.push(start..end);
        }
    };
    take(&mut heap, &mut back);
    assert!(back.iter().all(|range| range.end <= kept.start || kept.end <= range.start));
    let statistics = heap.statistics();
    assert!(
        statistics.total <= 64 << 10 && statistics.blocks == 1,
        "one block keeps no more than its region"
    );
    last.free(&mut heap);
    take(&mut heap, &mut back);
    // What is left is shorter than a heap looks for, and of use all the same.
    assert!(heap.statistics().total < 64 << 10 && heap.statistics().blocks == 0);
    assert!(heap.alloc(layout(32 << 10, 16)).is_null());
    for range in &back {
        // SAFETY: memory of the test, which the heap has handed back.
        unsafe { heap.add_region(range.start as *mut u8, range.len()) };
    }
    assert_eq!(heap.statistics().total, begin.total);
    assert!(!heap.alloc(layout(32 << 10, 16)).is_null());
}
