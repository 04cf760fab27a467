// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A growable array in segments, for tables whose length a program or a peer decides.
//!
//! A `Vec` grows by moving into one block of twice the size. The machine's largest block is 4 MiB and memory is
//! fragmented long before that, so a table in one block ends the machine at a length that has nothing to do with how
//! much memory is free. Here elements stay where they are, no block is larger than [`SEGMENT`] bytes, and growth that
//! finds no memory is an answer ([`Full`]) instead of a panic.
//!
//! The directory of segments is a `Vec` of 24 bytes for each segment: 4 MiB of it lead to 2.7 GiB of elements.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

use alloc::vec::Vec;
use api_alloc::Reserve;
use core::ops::{Index, IndexMut};

/// Bytes of a segment, unless one element is larger: below the size from which the kernel heap takes whole pages.
pub const SEGMENT: usize = 16 * 1024;

/// There is no memory for another element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// An array that grows at its end.
pub struct SegmentedVec<T> {
    segments: Vec<Vec<T>>,
    length: usize,
}

impl<T> Default for SegmentedVec<T> {
    fn default() -> Self {
        SegmentedVec::new()
    }
}

impl<T> SegmentedVec<T> {
    /// Elements of a segment, as a power of two.
    const BITS: u32 = match SEGMENT / size_of::<T>() {
        0 => 0,
        count => count.ilog2(),
    };
    const MASK: usize = (1 << Self::BITS) - 1;

    pub const fn new() -> Self {
        SegmentedVec { segments: Vec::new(), length: 0 }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes room for one more element: the next [`SegmentedVec::push`] succeeds.
    pub fn reserve(&mut self) -> Result<(), Full> {
        let segment = self.length >> Self::BITS;
        if segment == self.segments.len() {
            self.segments.reserve_fallibly(1).map_err(|_| Full)?;
            self.segments.push(Vec::new());
        }
        let elements = &mut self.segments[segment];
        if elements.len() == elements.capacity() {
            // The first segment grows by doubling, for most tables stay short.
            let more = if segment == 0 { elements.len().max(4) } else { Self::MASK + 1 };
            let more = more.min(Self::MASK + 1 - elements.len());
            elements.reserve_exact_fallibly(more).map_err(|_| Full)?;
        }
        Ok(())
    }

    /// Appends an element and says at which index.
    pub fn push(&mut self, element: T) -> Result<usize, Full> {
        self.reserve()?;
        let index = self.length;
        self.segments[index >> Self::BITS].push(element);
        self.length += 1;
        Ok(index)
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.segments.get(index >> Self::BITS)?.get(index & Self::MASK)
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.segments.get_mut(index >> Self::BITS)?.get_mut(index & Self::MASK)
    }

    pub fn pop(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        let segment = self.length >> Self::BITS;
        let element = self.segments[segment].pop();
        // One empty segment stays, so that a table that swings around a boundary does not allocate each time.
        if segment + 2 < self.segments.len() {
            self.segments.pop();
        }
        element
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.segments.iter_mut().flatten()
    }
}

impl<T> Index<usize> for SegmentedVec<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.segments[index >> Self::BITS][index & Self::MASK]
    }
}

impl<T> IndexMut<usize> for SegmentedVec<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.segments[index >> Self::BITS][index & Self::MASK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn elements_keep_their_index_and_their_order() {
        let mut array = SegmentedVec::new();
        for i in 0..100_000usize {
            assert_eq!(array.push(i as u64 * 3), Ok(i));
        }
        assert_eq!((array.len(), array[70_001], array.get(100_000)), (100_000, 210_003, None));
        array[5] = 1;
        *array.get_mut(99_999).unwrap() = 2;
        assert_eq!(array.iter().copied().take(6).collect::<Vec<_>>(), [0, 3, 6, 9, 12, 1]);
        assert_eq!(array.pop(), Some(2));
        let mut rest: VecDeque<u64> = array.iter().copied().collect();
        while let Some(element) = array.pop() {
            assert_eq!(rest.pop_back(), Some(element));
        }
        assert!(rest.is_empty() && array.is_empty() && array.get(0).is_none());
        assert_eq!(array.push(9), Ok(0));
    }

    #[test]
    fn no_block_is_larger_than_a_segment() {
        let mut array = SegmentedVec::<[u8; 48]>::new();
        for _ in 0..50_000 {
            array.push([0; 48]).unwrap();
        }
        assert!(array.segments.iter().all(|s| s.capacity() * 48 <= SEGMENT));
        let mut large = SegmentedVec::<[u8; 20_000]>::new();
        large.push([1; 20_000]).unwrap();
        large.push([2; 20_000]).unwrap();
        assert_eq!(large[1][0], 2);
    }
}
