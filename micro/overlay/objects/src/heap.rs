// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's heap. The kernel keeps its books outside of the program's reach: whatever a program writes where it
//! should not, the heap stays whole, and what it frees twice is noticed.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Multiple of every block.
const GRAIN: u64 = 16;
/// Freed addresses that are remembered, to tell a double free from a wild one.
const REMEMBERED: usize = 64;

/// Why a block cannot be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is free already.
    Twice,
    /// No block begins there.
    Never,
}

/// Books of blocks in arenas somewhere.
#[derive(Default)]
pub struct Heap {
    /// Length by start.
    free: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
    freed: Vec<u64>,
}

impl Heap {
    /// Takes a block; `None` when no arena has room for it.
    pub fn take(&mut self, size: u64) -> Option<u64> {
        let size = size.max(1).checked_next_multiple_of(GRAIN)?;
        let (start, length) = self.free.iter().map(|(s, l)| (*s, *l)).find(|(_, length)| *length >= size)?;
        self.free.remove(&start);
        if length > size {
            self.free.insert(start + size, length - size);
        }
        self.used.insert(start, size);
        self.freed.retain(|at| *at != start);
        Some(start)
    }

    /// Gives a block back.
    pub fn give(&mut self, address: u64) -> Result<(), Wrong> {
        let Some(length) = self.used.remove(&address) else {
            return Err(if self.freed.contains(&address) { Wrong::Twice } else { Wrong::Never });
        };
        if self.freed.len() == REMEMBERED {
            self.freed.remove(0);
        }
        self.freed.push(address);
        self.add(address, length);
        Ok(())
    }

    /// Adds room: a new arena, or a block that was given back. Neighbours become one.
    pub fn add(&mut self, start: u64, length: u64) {
        let (mut start, mut length) = (start, length);
        if let Some(next) = self.free.remove(&(start + length)) {
            length += next;
        }
        if let Some((before, size)) = self.free.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + size == start
        {
            self.free.remove(&before);
            (start, length) = (before, length + size);
        }
        self.free.insert(start, length);
    }

    /// Usable bytes of a block in use.
    pub fn size(&self, address: u64) -> Option<u64> {
        self.used.get(&address).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_do_not_overlap_and_come_back_whole() {
        let mut heap = Heap::default();
        assert_eq!(heap.take(1), None);
        heap.add(0x1000, 0x1000);
        let blocks: Vec<u64> = (0..16).map(|_| heap.take(250).unwrap()).collect();
        assert_eq!(heap.take(1), None);
        for pair in blocks.windows(2) {
            assert_eq!(pair[1] - pair[0], 256);
        }
        for block in blocks.iter().step_by(2).chain(blocks.iter().skip(1).step_by(2)) {
            heap.give(*block).unwrap();
        }
        assert_eq!(heap.take(0x1000), Some(0x1000));
    }

    #[test]
    fn freeing_twice_and_freeing_what_was_never_given_are_told_apart() {
        let mut heap = Heap::default();
        heap.add(0x1000, 0x1000);
        let block = heap.take(10).unwrap();
        assert_eq!(heap.size(block), Some(16));
        heap.give(block).unwrap();
        assert_eq!(heap.give(block), Err(Wrong::Twice));
        assert_eq!(heap.give(block + 8), Err(Wrong::Never));
        assert_eq!(heap.take(10), Some(block));
        assert_eq!(heap.give(block), Ok(()));
    }
}
