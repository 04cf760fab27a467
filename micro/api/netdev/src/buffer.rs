// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::ops::Range;

/// Bytes of a packet buffer: a frame of 1,514 bytes, the headroom and a device's own header fit.
pub const BUFFER_SIZE: usize = 2048;

/// Room in front of a packet.
pub struct Headroom {
    /// For the device's own header.
    pub device: usize,
    /// For Ethernet (14), IPv4 (20, with options 60) and TCP (up to 60) headers, besides.
    pub protocols: usize,
}

/// What a transmitted packet is built behind.
pub const HEADROOM: Headroom = Headroom { device: 16, protocols: 136 };

/// Memory with a window of valid bytes in it, so that headers are put in front and taken off without copying.
pub struct Buffer {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// An empty buffer; `None` when there is no memory.
    pub fn new(size: usize, headroom: usize) -> Option<Buffer> {
        if api_alloc::is_low() {
            return None;
        }
        let mut memory = Vec::new();
        memory.reserve_exact_fallibly(size).ok()?;
        memory.resize(size, 0);
        let mut buffer = Buffer { memory: memory.into_boxed_slice(), start: 0, end: 0 };
        buffer.reset(headroom);
        Some(buffer)
    }

    /// Empties the buffer and leaves `headroom` bytes (at most its size) in front.
    pub fn reset(&mut self, headroom: usize) {
        self.start = headroom.min(self.memory.len());
        self.end = self.start;
    }

    /// Bytes of memory, used or not.
    pub fn size(&self) -> usize {
        self.memory.len()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub fn headroom(&self) -> usize {
        self.start
    }

    pub fn tailroom(&self) -> usize {
        self.memory.len() - self.end
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// All of the memory, for devices that write into it.
    #[inline]
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Declares the bytes at `range` of the memory valid, cut at its end.
    #[inline]
    pub fn set_window(&mut self, range: Range<usize>) {
        self.end = range.end.min(self.memory.len());
        self.start = range.start.min(self.end);
    }

    /// Puts `count` bytes in front and returns them; `None` when the headroom is too small.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        self.start = self.start.checked_sub(count)?;
        Some(&mut self.memory[self.start..self.start + count])
    }

    /// Takes `count` bytes (at most all) off the front.
    #[inline]
    pub fn trim_front(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Keeps the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start + length);
    }

    /// Appends `count` bytes and returns them; `None` when the tailroom is too small.
    pub fn extend(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.tailroom() {
            return None;
        }
        self.end += count;
        Some(&mut self.memory[self.end - count..self.end])
    }

    /// Appends a copy of `bytes`; false, and no change, when they do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        self.extend(bytes.len()).map(|to| to.copy_from_slice(bytes)).is_some()
    }
}

impl core::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len(), self.size())
    }
}

/// A part of shared, unchanging memory: what TCP's send queue and a packet in flight hold at the same time.
#[derive(Clone, Debug)]
pub struct Fragment {
    memory: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

impl Fragment {
    /// The bytes at `range`, cut at the memory's end.
    pub fn new(memory: Arc<Vec<u8>>, range: Range<usize>) -> Fragment {
        let end = range.end.min(memory.len());
        Fragment { start: range.start.min(end), end, memory }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_in_front_without_moving_the_payload() {
        let mut buffer = Buffer::new(64, 16).unwrap();
        assert!(buffer.append(b"payload"));
        buffer.prepend(4).unwrap().copy_from_slice(b"tcp ");
        assert_eq!(buffer.bytes(), b"tcp payload");
        assert!(buffer.prepend(13).is_none());
        buffer.trim_front(4);
        buffer.truncate(3);
        assert_eq!(buffer.bytes(), b"pay");
        assert!(!buffer.append(&[0; 64]));
    }

    #[test]
    fn a_window_never_leaves_the_memory() {
        let mut buffer = Buffer::new(8, 100).unwrap();
        assert_eq!((buffer.len(), buffer.tailroom()), (0, 0));
        buffer.set_window(4..400);
        assert_eq!(buffer.len(), 4);
        buffer.set_window(40..400);
        assert!(buffer.is_empty());
        let fragment = Fragment::new(Arc::new(Vec::from(*b"abc")), 1..9);
        assert_eq!(fragment.bytes(), b"bc");
    }
}
