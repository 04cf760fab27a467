// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a regular file: pages of its own over bytes of the archive over nothing.

use crate::pages::Pages;
use abi::PAGE_SIZE;
use api_mem::PageFrame;

const PAGE: u64 = PAGE_SIZE as u64;

/// What the archive holds of a file. Shrinks when the file is truncated, never grows.
struct Base {
    bytes: &'static [u8],
    /// Physical address of the first byte when that is a page boundary, else 0.
    physical: u64,
    /// Whole pages from the start that are used in place.
    in_place: u64,
}

/// Contents of a regular file.
pub struct Data {
    pub length: u64,
    pub pages: Pages,
    base: Option<Base>,
    /// System-call sites of an ELF file; dropped when the file changes.
    pub sites: Option<&'static [u8]>,
    /// F_SEAL_* of fcntl(2).
    pub seals: u32,
}

/// What is at one page of a file.
pub enum Place {
    Page(PageFrame),
    /// Bytes of the archive, from the start of the page.
    Bytes(&'static [u8]),
    Hole,
}

impl Data {
    pub fn new(seals: u32) -> Data {
        Data { length: 0, pages: Pages::new(), base: None, sites: None, seals }
    }

    pub fn archived(bytes: &'static [u8], physical: u64, sites: Option<&'static [u8]>) -> Data {
        let aligned = physical != 0 && physical.is_multiple_of(PAGE);
        let in_place = if aligned { bytes.len() as u64 / PAGE } else { 0 };
        let base = Base { bytes, physical, in_place };
        Data {
            length: bytes.len() as u64,
            base: (!bytes.is_empty()).then_some(base),
            sites,
            ..Data::new(super::contents::SEAL_SEAL)
        }
    }

    /// Where the archive has its bytes, if they are pages there and nobody changed them: the table of sites is there until then.
    pub fn content(&self) -> Option<u64> {
        let base = self.base.as_ref().filter(|base| base.in_place > 0 && self.sites.is_some())?;
        Some(base.physical)
    }

    /// What is at page `index`.
    pub fn place(&self, index: u64) -> Place {
        if let Some(frame) = self.pages.get(index) {
            return Place::Page(frame.clone());
        }
        let Some(base) = &self.base else { return Place::Hole };
        if index < base.in_place {
            return Place::Page(permanent(base.physical + index * PAGE));
        }
        let start = usize::try_from(index).ok().and_then(|i| i.checked_mul(PAGE_SIZE));
        match start.and_then(|s| base.bytes.get(s..)) {
            Some(rest) if !rest.is_empty() => Place::Bytes(&rest[..rest.len().min(PAGE_SIZE)]),
            _ => Place::Hole,
        }
    }

    /// Pages that hold data.
    pub fn page_count(&self) -> u64 {
        self.archived_pages().max(self.pages.count())
    }

    /// Zeroes what follows the end in the last page.
    pub fn clear_tail(&self) {
        let within = (self.length % PAGE) as usize;
        if within != 0
            && let Place::Page(frame) = self.place(self.length / PAGE)
        {
            frame.zero(within, PAGE_SIZE - within);
        }
    }

    /// Forgets everything from byte `length` on; what follows in its page becomes zero.
    pub fn cut(&mut self, length: u64, gone: &mut dyn FnMut(PageFrame)) {
        self.length = length;
        self.clear_tail();
        self.pages.remove(length.div_ceil(PAGE), u64::MAX, gone);
        if let Some(base) = &mut self.base {
            base.in_place = base.in_place.min(length.div_ceil(PAGE));
            base.bytes = &base.bytes[..base.bytes.len().min(length as usize)];
            if base.bytes.is_empty() {
                self.base = None;
            }
        }
        self.sites = None;
    }

    /// Forgets whole pages `from..to`, which lie behind [`Data::archived_pages`].
    pub fn punch(&mut self, from: u64, to: u64, gone: &mut dyn FnMut(PageFrame)) {
        self.pages.remove(from, to, gone);
        self.sites = None;
    }

    /// Pages from the start that the archive has something of: a page taken away there would show its bytes again.
    pub fn archived_pages(&self) -> u64 {
        self.base.as_ref().map_or(0, |b| (b.bytes.len() as u64).div_ceil(PAGE))
    }

    /// The first page at or behind `index` that holds data (`hole` false) or none (`hole` true).
    pub fn next(&self, index: u64, hole: bool) -> Option<u64> {
        let base = self.archived_pages();
        if !hole {
            return if index < base { Some(index) } else { self.pages.next(index) };
        }
        let mut at = index.max(base);
        while self.pages.get(at).is_some() {
            at += 1;
        }
        Some(at)
    }
}

/// A page of the archive.
#[allow(unsafe_code)]
fn permanent(physical: u64) -> PageFrame {
    // SAFETY: the archive's pages are permanent: whatever number of handles there is, the frame allocator never
    // gives them to anybody else (contract of `api_mem`). `physical` lies inside the archive: `in_place` counts
    // whole pages of it.
    unsafe { PageFrame::from_raw(physical) }
}
