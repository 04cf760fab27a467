// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical pages as counted handles, and files as sources of pages.
//!
//! # Contract
//!
//! - A [`PageFrame`] is one 4 KiB page with a reference count. While a handle lives the page is not reused. Pages of
//!   the initial RAM disk are *permanent*: counting them does nothing.
//! - The kernel reaches any frame through [`PageFrame::bytes`]; there is no temporary mapping.
//! - A page may be mapped into the program at the same time; its bytes may change under the kernel, which is why
//!   access is by raw pointer and by copying.
//! - A [`PageSource`] (a file that can be mapped) hands out the frame that *is* the page of the file: writing to a
//!   shared mapping writes the file. Private mappings copy it on the first write.
//! - Allocation fails with `ENOMEM`; it never blocks and never panics.
//!
//! The frame allocator provides the `extern` functions; the feature `host` replaces them by host memory for tests.
#![no_std]
extern crate alloc;
#[cfg(feature = "host")]
extern crate std;

use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::{Sink, Source};

#[cfg(not(feature = "host"))]
unsafe extern "Rust" {
    /// A zeroed page: its physical address, or 0 when there is none.
    safe fn unilith_frame_new() -> u64;
    /// A page with the bytes of another: its physical address, or 0 when there is none.
    safe fn unilith_frame_copy(of: u64) -> u64;
    /// One more handle to the page.
    safe fn unilith_frame_retain(physical: u64);
    /// One handle less; frees the page with the last.
    safe fn unilith_frame_release(physical: u64);
    /// Handles to the page (permanent pages: `u32::MAX`).
    safe fn unilith_frame_count(physical: u64) -> u32;
    /// Where the kernel sees the page.
    safe fn unilith_frame_bytes(physical: u64) -> *mut u8;
    /// Contiguous pages of zeros with a count of one each, aligned to the next power of two. 0
    /// when there are none or `count` is above 1,024.
    safe fn unilith_frames_take_zeroed(count: usize) -> u64;
    /// Contiguous pages go back.
    safe fn unilith_frames_give(physical: u64, count: usize);
    /// All pages of the machine that can be handed out, and those that are free.
    safe fn unilith_frames_statistics() -> (u64, u64);
}

#[cfg(feature = "host")]
mod host;
#[cfg(feature = "host")]
use host::*;

/// A counted handle to one page.
#[derive(Debug, PartialEq, Eq)]
pub struct PageFrame(u64);

impl PageFrame {
    /// A new page of zeros.
    pub fn new() -> Result<PageFrame> {
        if api_alloc::fault::is_due() {
            return Err(ENOMEM);
        }
        match unilith_frame_new() {
            0 => Err(ENOMEM),
            physical => Ok(PageFrame(physical)),
        }
    }

    /// A new page with the same bytes.
    pub fn duplicate(&self) -> Result<PageFrame> {
        if api_alloc::fault::is_due() {
            return Err(ENOMEM);
        }
        match unilith_frame_copy(self.0) {
            0 => Err(ENOMEM),
            physical => Ok(PageFrame(physical)),
        }
    }

    /// Takes over one reference that was counted before (by [`PageFrame::into_raw`], or a permanent page).
    ///
    /// # Safety
    ///
    /// `physical` is a page of the frame allocator or a permanent one, and the reference is the caller's to give.
    pub unsafe fn from_raw(physical: u64) -> PageFrame {
        PageFrame(physical)
    }

    /// Gives the reference away, to a page-table entry for one.
    pub fn into_raw(self) -> u64 {
        let physical = self.0;
        core::mem::forget(self);
        physical
    }

    /// Physical address, a multiple of [`PAGE_SIZE`].
    pub fn physical(&self) -> u64 {
        self.0
    }

    /// The page's bytes as the kernel sees them, [`PAGE_SIZE`] of them.
    pub fn bytes(&self) -> *mut u8 {
        unilith_frame_bytes(self.0)
    }

    /// True when this is the only handle, so that the page may be written without a copy.
    pub fn is_unique(&self) -> bool {
        unilith_frame_count(self.0) == 1
    }

    /// How many handles there are, entries of page tables among them; `u32::MAX` where [`PageFrame::is_permanent`] holds.
    pub fn handles(&self) -> u32 {
        unilith_frame_count(self.0)
    }

    /// True for a page that is never reused, such as those of the initial RAM disk.
    pub fn is_permanent(&self) -> bool {
        unilith_frame_count(self.0) == u32::MAX
    }

    /// Copies out of the page, from `offset` on; both must stay inside it.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= PAGE_SIZE);
        // SAFETY: the range lies in the page, which the handle keeps alive; `to` is ours.
        unsafe { core::ptr::copy_nonoverlapping(self.bytes().add(offset), to.as_mut_ptr(), to.len()) }
    }

    /// Copies into the page, at `offset`; both must stay inside it.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= PAGE_SIZE);
        // SAFETY: the range lies in the page, which the handle keeps alive; kernel memory does not overlap it.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.bytes().add(offset), from.len()) }
    }

    /// Appends bytes of the page to `to`; both must stay inside the page. May fault and so block: hold no lock.
    pub fn send(&self, offset: usize, length: usize, to: &mut Sink<'_>) -> Result<usize> {
        assert!(offset + length <= PAGE_SIZE);
        // SAFETY: the range lies in the page, which the handle keeps alive.
        unsafe { to.put_raw(self.bytes().add(offset), length) }
    }

    /// Fills bytes of the page from `from`; both must stay inside the page. May fault and so block: hold no lock.
    pub fn receive(&self, offset: usize, length: usize, from: &mut Source<'_>) -> Result<usize> {
        assert!(offset + length <= PAGE_SIZE);
        // SAFETY: the range lies in the page, which the handle keeps alive.
        unsafe { from.take_raw(self.bytes().add(offset), length) }
    }

    /// [`PageFrame::send`] up to the first byte that cannot be stored ([`Sink::put_up_to_fault`]).
    pub fn send_up_to_fault(&self, offset: usize, length: usize, to: &mut Sink<'_>) -> Result<usize> {
        assert!(offset + length <= PAGE_SIZE);
        // SAFETY: the range lies in the page, which the handle keeps alive.
        unsafe { to.put_raw_up_to_fault(self.bytes().add(offset), length) }
    }

    /// [`PageFrame::receive`] up to the first byte that cannot be read ([`Source::take_up_to_fault`]).
    pub fn receive_up_to_fault(&self, offset: usize, length: usize, from: &mut Source<'_>) -> Result<usize> {
        assert!(offset + length <= PAGE_SIZE);
        // SAFETY: the range lies in the page, which the handle keeps alive.
        unsafe { from.take_raw_up_to_fault(self.bytes().add(offset), length) }
    }

    /// Zeroes `length` bytes from `offset` on.
    pub fn zero(&self, offset: usize, length: usize) {
        assert!(offset + length <= PAGE_SIZE);
        // SAFETY: as in `write`.
        unsafe { core::ptr::write_bytes(self.bytes().add(offset), 0, length) }
    }
}

impl Clone for PageFrame {
    fn clone(&self) -> PageFrame {
        unilith_frame_retain(self.0);
        PageFrame(self.0)
    }
}

impl Drop for PageFrame {
    fn drop(&mut self) {
        unilith_frame_release(self.0);
    }
}

/// Contiguous pages, for devices and large mappings: aligned to the next power of two of their number.
#[derive(Debug)]
pub struct Pages {
    physical: u64,
    count: usize,
}

impl Pages {
    /// Most pages of one piece (4 MiB).
    pub const MAX: usize = 1024;

    /// `count` pages of zeros.
    pub fn new(count: usize) -> Result<Pages> {
        if api_alloc::fault::is_due() {
            return Err(ENOMEM);
        }
        match unilith_frames_take_zeroed(count) {
            0 => Err(ENOMEM),
            physical => Ok(Pages { physical, count }),
        }
    }

    /// Physical address of the first page.
    pub fn physical(&self) -> u64 {
        self.physical
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all pages as the kernel sees them.
    pub fn bytes(&self) -> *mut u8 {
        unilith_frame_bytes(self.physical)
    }

    /// The pages one by one, in their order; `ENOMEM` where there is no room for the list.
    pub fn into_frames(self) -> Result<Vec<PageFrame>> {
        let mut frames = Vec::new();
        frames.reserve_exact_fallibly(self.count).map_err(|_| ENOMEM)?;
        let count = self.count as u64;
        let start = self.into_raw();
        // SAFETY: `into_raw` gave one count of each page.
        frames.extend((0..count).map(|i| unsafe { PageFrame::from_raw(start + i * PAGE_SIZE as u64) }));
        Ok(frames)
    }

    /// Gives the pages away as [`PageFrame`]s that are released one by one: the physical address of the first.
    pub fn into_raw(self) -> u64 {
        let physical = self.physical;
        core::mem::forget(self);
        physical
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unilith_frames_give(self.physical, self.count);
    }
}

/// Memory in pages that lie anywhere, for a device or a peer: `length` bytes from `offset` of the first page on.
#[derive(Debug, Default)]
pub struct Gather {
    pub frames: Vec<PageFrame>,
    pub offset: usize,
    pub length: usize,
    /// It is written to; else it is read.
    pub is_written: bool,
}

/// Where the kernel sees the page at a physical address: for page tables. Files and devices use [`PageFrame::bytes`].
#[inline]
pub fn view(physical: u64) -> *mut u8 {
    unilith_frame_bytes(physical)
}

/// All pages of the machine that can be handed out, and those that are free.
pub fn statistics() -> (u64, u64) {
    unilith_frames_statistics()
}

/// A file whose pages can be mapped.
pub trait PageSource: Send + Sync {
    /// The frame holding bytes `index * 4096 ..` of the file, zero-filled behind its end. May block (9p). `EIO` or
    /// another error becomes SIGBUS. With `for_write` the source makes room for a dirty page first (`ENOSPC`,
    /// `ENOMEM`); `EACCES` when shared writing is impossible.
    fn page(&self, index: u64, for_write: bool) -> Result<PageFrame>;

    /// The page when it is at hand without waiting and without making it (a hole stays a hole): reading faults map
    /// the neighbours of the page that was asked for as well.
    fn resident_page(&self, _index: u64) -> Option<PageFrame> {
        None
    }

    /// `EINVAL` where these pages cannot be mapped by themselves: memory that is mapped as a whole or not at all.
    fn check_range(&self, _first: u64, _count: u64) -> Result<()> {
        Ok(())
    }

    /// Length of the file in bytes: a page wholly behind it is SIGBUS.
    fn length(&self) -> u64;

    /// The page was written through a shared mapping and is now unmapped or synchronised: store it where the file
    /// lives elsewhere. Called by msync, munmap and exit; RAM file systems need nothing.
    fn write_back(&self, _index: u64, _frame: &PageFrame) -> Result<()> {
        Ok(())
    }

    /// True where a written page is the file itself, so that [`PageSource::write_back`] has nothing to do.
    fn is_memory(&self) -> bool {
        false
    }

    /// Forgets `count` pages from `first` on, which read as zeros from then on (MADV_REMOVE).
    fn make_hole(&self, _first: u64, _count: u64) -> Result<()> {
        Err(abi::errno::EOPNOTSUPP)
    }

    /// A number that stands for the bytes of the file, for as long as the machine runs: two files that answer the same one have
    /// the same bytes. `None` for files whose bytes may change, or have changed.
    fn content(&self) -> Option<u64> {
        None
    }

    /// Text of the file is about to be mapped: gets from elsewhere what [`PageSource::sites`] will show. May sleep.
    fn prepare_text(&self) {}

    /// Shows `read` the system-call sites of the file's text (`api-sites` format), when they are known. Does not sleep.
    fn sites(&self, _read: &mut dyn FnMut(&[u8])) {}
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;

    #[test]
    fn a_page_lives_as_long_as_its_last_handle() {
        let a = PageFrame::new().unwrap();
        assert!(a.is_unique());
        let b = a.clone();
        assert!(!a.is_unique());
        a.write(4094, &[1, 2]);
        drop(a);
        let mut out = [0; 2];
        b.read(4094, &mut out);
        assert_eq!(out, [1, 2]);
        assert!(b.is_unique());
    }
}
