// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that wait for the port.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A ring of `SIZE` bytes, a power of two. One at a time adds and takes, by the writer's lock. A report of the kernel's crash comes without the
/// lock, from a processor that may have been stopped in the middle: it may then send bytes twice, or lose some, and nothing worse.
pub struct Waiting<const SIZE: usize> {
    bytes: [AtomicU8; SIZE],
    /// Counts of all bytes that were added and taken, modulo 2^64.
    added: AtomicUsize,
    taken: AtomicUsize,
}

impl<const SIZE: usize> Waiting<SIZE> {
    pub const fn new() -> Waiting<SIZE> {
        assert!(SIZE.is_power_of_two());
        Waiting {
            bytes: [const { AtomicU8::new(0) }; SIZE],
            added: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    fn len(&self) -> usize {
        self.added.load(Ordering::Relaxed).wrapping_sub(self.taken.load(Ordering::Relaxed)).min(SIZE)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn room(&self) -> usize {
        SIZE - self.len()
    }

    /// Adds as many of the bytes as there is room for.
    pub fn add(&self, bytes: &[u8]) {
        let added = self.added.load(Ordering::Relaxed);
        let bytes = &bytes[..bytes.len().min(self.room())];
        for (i, byte) in bytes.iter().enumerate() {
            self.bytes[added.wrapping_add(i) % SIZE].store(*byte, Ordering::Relaxed);
        }
        self.added.store(added.wrapping_add(bytes.len()), Ordering::Relaxed);
    }

    /// Takes the oldest bytes.
    pub fn take<'a>(&self, to: &'a mut [u8]) -> &'a [u8] {
        let taken = self.taken.load(Ordering::Relaxed);
        let length = self.len().min(to.len());
        let to = &mut to[..length];
        for (i, byte) in to.iter_mut().enumerate() {
            *byte = self.bytes[taken.wrapping_add(i) % SIZE].load(Ordering::Relaxed);
        }
        self.taken.store(taken.wrapping_add(length), Ordering::Relaxed);
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_none_is_overwritten() {
        let waiting = Waiting::<8>::new();
        let take = |most: usize| waiting.take(&mut vec![0; most]).to_vec();
        assert!(waiting.is_empty() && waiting.room() == 8);
        for round in 0..5 {
            waiting.add(&[round, 1, 2, 3, 4]);
            assert_eq!((waiting.room(), take(2)), (3, vec![round, 1]));
            waiting.add(&[5, 6, 7, 8, 9, 10]);
            assert_eq!(waiting.room(), 0, "what there is no room for is not taken");
            assert_eq!(take(16), [2, 3, 4, 5, 6, 7, 8, 9]);
        }
        assert!(waiting.is_empty() && take(1).is_empty());
    }
}
