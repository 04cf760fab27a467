// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's heap. The kernel keeps its books outside of the program's reach: whatever a program writes where it
//! should not, the heap stays whole, and what it frees twice is noticed.

use alloc::vec::Vec;
use api_alloc::Reserve;

/// Multiple of every block.
const GRAIN: u64 = 16;
/// Most blocks in use: the lists are short enough to be searched while nobody else runs.
const BLOCKS_MAX: usize = 1 << 16;
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

/// A part of an arena: start and length.
type Part = (u64, u64);

/// Books of blocks in arenas somewhere, each list in ascending order.
#[derive(Default)]
pub struct Heap {
    free: Vec<Part>,
    used: Vec<Part>,
    freed: Vec<u64>,
}

/// Where a part that starts at `start` is, or would be.
fn place(parts: &[Part], start: u64) -> usize {
    parts.partition_point(|part| part.0 < start)
}

impl Heap {
    /// Takes a block; `None` when no arena has room for it.
    pub fn take(&mut self, size: u64) -> Option<u64> {
        let size = size.max(1).checked_next_multiple_of(GRAIN)?;
        // Room for what happens to it later, too: giving it back must not fail.
        if self.used.len() == BLOCKS_MAX
            || self.used.reserve_fallibly(1).is_err()
            || self.free.reserve_fallibly(self.used.len() + 2).is_err()
        {
            return None;
        }
        let index = self.free.iter().position(|(_, length)| *length >= size)?;
        let (start, length) = self.free[index];
        if length > size {
            self.free[index] = (start + size, length - size);
        } else {
            self.free.remove(index);
        }
        self.used.insert(place(&self.used, start), (start, size));
        self.freed.retain(|at| *at != start);
        Some(start)
    }

    /// Gives a block back.
    pub fn give(&mut self, address: u64) -> Result<(), Wrong> {
        let index = place(&self.used, address);
        let Some((_, length)) = self.used.get(index).copied().filter(|part| part.0 == address) else {
            return Err(if self.freed.contains(&address) { Wrong::Twice } else { Wrong::Never });
        };
        self.used.remove(index);
        if self.freed.len() == REMEMBERED {
            self.freed.remove(0);
        }
        self.freed.push(address);
        self.add(address, length);
        Ok(())
    }

    /// Adds room: a new arena, or a block that was given back. Neighbours become one.
    pub fn add(&mut self, start: u64, length: u64) {
        let index = place(&self.free, start);
        let joins_next = self.free.get(index).is_some_and(|next| start + length == next.0);
        let joins_last = index > 0 && self.free[index - 1].0 + self.free[index - 1].1 == start;
        match (joins_last, joins_next) {
            (true, true) => {
                let (_, next) = self.free.remove(index);
                self.free[index - 1].1 += length + next;
            }
            (true, false) => self.free[index - 1].1 += length,
            (false, true) => self.free[index] = (start, length + self.free[index].1),
            (false, false) => self.free.insert(index, (start, length)),
        }
    }

    /// Usable bytes of a block in use.
    pub fn size(&self, address: u64) -> Option<u64> {
        let part = self.used.get(place(&self.used, address))?;
        (part.0 == address).then_some(part.1)
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
