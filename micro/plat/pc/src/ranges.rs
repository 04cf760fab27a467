// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Free memory: what the machine's map says, less what is in use already.

use abi::PAGE_SIZE;
use api_plat::MemoryRange;

/// Most ranges kept; a PC's map has about a dozen.
pub const MAX_RANGES: usize = 32;

/// Ascending, disjoint, non-empty ranges of whole pages.
pub struct Ranges {
    list: [MemoryRange; MAX_RANGES],
    length: usize,
}

impl Ranges {
    pub const fn new() -> Ranges {
        Ranges { list: [MemoryRange { start: 0, end: 0 }; MAX_RANGES], length: 0 }
    }

    pub fn as_slice(&self) -> &[MemoryRange] {
        &self.list[..self.length]
    }

    /// Adds the whole pages of a range that overlaps no other. A range too many is left out: that memory is not used.
    pub fn add(&mut self, start: u64, end: u64) {
        let page = PAGE_SIZE as u64;
        let (start, end) = (start.next_multiple_of(page), end & !(page - 1));
        if start < end {
            self.insert(MemoryRange { start, end });
        }
    }

    fn insert(&mut self, range: MemoryRange) {
        if self.length == MAX_RANGES {
            return;
        }
        let at = self.as_slice().partition_point(|r| r.start < range.start);
        self.list.copy_within(at..self.length, at + 1);
        self.list[at] = range;
        self.length += 1;
    }

    /// Takes out every page that `start..end` touches.
    pub fn remove(&mut self, start: u64, end: u64) {
        let page = PAGE_SIZE as u64;
        let (start, end) = (start & !(page - 1), end.next_multiple_of(page));
        let mut i = 0;
        while i < self.length {
            let range = self.list[i];
            if range.end <= start || end <= range.start || start >= end {
                i += 1;
                continue;
            }
            self.list.copy_within(i + 1..self.length, i);
            self.length -= 1;
            for (start, end) in [(range.start, start.min(range.end)), (end.max(range.start), range.end)] {
                if start < end {
                    self.insert(MemoryRange { start, end });
                    i += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn pages(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.as_slice().iter().map(|r| (r.start >> 12, r.end >> 12)).collect()
    }

    #[test]
    fn what_is_in_use_is_cut_out_by_whole_pages() {
        let mut ranges = Ranges::new();
        ranges.add(0x100_000, 0x800_0000);
        ranges.add(0x10, 0x9_fc00);
        assert_eq!(pages(&ranges), [(1, 0x9f), (0x100, 0x8000)]);
        ranges.remove(0, 0x10_0000);
        ranges.remove(0x20_0001, 0x30_0001);
        ranges.remove(0x7ff_f000, 0x900_0000);
        assert_eq!(pages(&ranges), [(0x100, 0x200), (0x301, 0x7fff)]);
        ranges.remove(0x18_0000, 0x50_0000);
        assert_eq!(pages(&ranges), [(0x100, 0x180), (0x500, 0x7fff)]);
        ranges.remove(0x60_0000, 0x60_0000);
        assert_eq!(pages(&ranges).len(), 2);
        ranges.remove(0, u64::MAX - 4096);
        assert_eq!(pages(&ranges), []);
    }

    #[test]
    fn more_ranges_than_fit_are_left_out() {
        let mut ranges = Ranges::new();
        for i in 0..MAX_RANGES as u64 + 4 {
            ranges.add(i * 0x10_0000, i * 0x10_0000 + 0x2000);
        }
        assert_eq!(ranges.as_slice().len(), MAX_RANGES);
        ranges.remove(0x1000, 0x1001);
        assert_eq!(pages(&ranges)[..2], [(0, 1), (0x100, 0x102)]);
    }
}
