// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring of descriptors in memory that driver and card share.

use abi::{Result, errno::ENOMEM};
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// Descriptors of a ring: 512 KiB of receive buffers hold a window of TCP. Their 4 KiB are a multiple of the 128 bytes that cards want.
pub const SIZE: usize = 256;
/// Most descriptors the card may have: a ring whose head and tail are the same is empty, not full (SDM 3.2.6).
pub const MAX_DESCRIPTORS: usize = SIZE - 1;
/// Bytes of a ring.
pub const BYTES: usize = SIZE * 16;
const LAYOUT: Layout = match Layout::from_size_align(BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("4096 is a power of two"),
};

/// The driver walks it with indices of its own, which are taken modulo [`SIZE`].
pub struct Ring {
    memory: NonNull<AtomicU64>,
}

// SAFETY: the memory belongs to the ring alone (and the card), and is accessed by atomics only.
unsafe impl Send for Ring {}

impl Ring {
    pub fn new() -> Result<Ring> {
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(LAYOUT) }).ok_or(ENOMEM)?;
        Ok(Ring { memory: memory.cast() })
    }

    pub fn start(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }

    fn half(&self, index: usize, second: bool) -> &AtomicU64 {
        // SAFETY: the index is within the ring, whose memory is zeroed or written and may be changed by the card at any time: an atomic.
        unsafe { self.memory.add(index % SIZE * 2 + usize::from(second)).as_ref() }
    }

    /// Writes a descriptor that the card does not have. It gets it with the tail register, whose write is ordered behind this one.
    pub fn set(&self, index: usize, address: u64, rest: u64) {
        self.half(index, false).store(address, Ordering::Relaxed);
        self.half(index, true).store(rest, Ordering::Release);
    }

    /// What the card last wrote to a descriptor that it has, or has given back.
    pub fn rest(&self, index: usize) -> u64 {
        self.half(index, true).load(Ordering::Acquire)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout. The card was reset, or never knew the ring.
        unsafe { dealloc(self.memory.as_ptr().cast(), LAYOUT) }
    }
}
