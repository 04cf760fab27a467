// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that driver and controller share.

use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::alloc::{Layout, alloc_zeroed};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

/// Words of the kernel heap, zeroed, from a page boundary on. Never freed: a controller that was told of it may write to it as long as it
/// has a way to memory, and controllers are started once.
pub struct Shared {
    memory: NonNull<AtomicU32>,
    words: usize,
}

// SAFETY: the memory belongs to this value alone (and the controller), and is accessed by atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(bytes: usize) -> Result<Shared> {
        let size = bytes.max(4).next_multiple_of(PAGE_SIZE);
        let layout = Layout::from_size_align(size, PAGE_SIZE).map_err(|_| ENOMEM)?;
        if api_alloc::fault::is_due() {
            return Err(ENOMEM);
        }
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(ENOMEM)?;
        Ok(Shared { memory: memory.cast(), words: size / 4 })
    }

    pub fn start(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }

    /// A word, which the controller may change at any time.
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.words, "outside of the shared memory");
        // SAFETY: the index is within the memory, which is initialised, aligned and never freed.
        unsafe { self.memory.add(index).as_ref() }
    }
}
