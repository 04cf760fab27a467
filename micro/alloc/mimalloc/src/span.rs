// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Regions, their pages, and spans of pages.

use crate::PAGE;
use core::mem::size_of;
use core::ptr::null_mut;

/// What a span is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    Free,
    /// One block.
    Whole,
    /// Blocks of a class.
    Blocks(u8),
}

/// A block that is free, as a list has it.
struct Block {
    next: *mut Block,
}

/// A page of a region. The fields speak of the span that begins here, except `back`.
pub struct Page {
    /// Pages from the span's first page to this one. A free span tells it for its first and last page only.
    back: u32,
    /// Live blocks.
    pub live: u32,
    pub state: State,
    /// Pages of the span.
    pub pages: usize,
    /// Where the span begins.
    pub base: usize,
    /// Where blocks begin that were never handed out.
    fresh: usize,
    /// The next block is taken from here.
    free: *mut Block,
    /// Blocks that came back.
    returned: *mut Block,
    /// In the list of free spans, or of those of a class.
    pub next: *mut Page,
    pub previous: *mut Page,
}

/// At the start of a region, followed by a [`Page`] for each of its pages.
pub struct Region {
    pub next: *mut Region,
    /// Where the pages begin, a multiple of [`PAGE`].
    base: usize,
    /// Number of pages.
    pub pages: usize,
}

/// Puts a span, which is in no list, in front of a list.
///
/// # Safety
///
/// `span` and the list's entries are first pages of spans of one heap.
pub unsafe fn link(list: &mut *mut Page, span: *mut Page) {
    // SAFETY: by the caller's word.
    unsafe {
        ((*span).next, (*span).previous) = (*list, null_mut());
        if let Some(head) = list.as_mut() {
            head.previous = span;
        }
    }
    *list = span;
}

/// Takes a span out of its list.
///
/// # Safety
///
/// `span` is in `list`.
pub unsafe fn unlink(list: &mut *mut Page, span: *mut Page) {
    // SAFETY: by the caller's word; neighbours in a list are first pages of spans or null.
    unsafe {
        let (next, previous) = ((*span).next, (*span).previous);
        if let Some(next) = next.as_mut() {
            next.previous = previous;
        }
        match previous.as_mut() {
            Some(previous) => previous.next = next,
            None => *list = next,
        }
        ((*span).next, (*span).previous) = (null_mut(), null_mut());
    }
}

impl Page {
    /// Makes the span one of blocks, none of them handed out.
    pub fn begin_blocks(&mut self, class: usize, size: usize) {
        self.state = State::Blocks(class as u8);
        self.live = 0;
        self.fresh = self.base;
        (self.free, self.returned) = (null_mut(), null_mut());
        debug_assert!(size <= self.pages * PAGE);
    }

    fn has_fresh(&self) -> bool {
        let State::Blocks(class) = self.state else { return false };
        self.fresh + crate::size_of_class(class.into()) <= self.base + self.pages * PAGE
    }

    /// Whether no block is free.
    pub fn is_full(&self) -> bool {
        self.free.is_null() && self.returned.is_null() && !self.has_fresh()
    }

    /// A free block.
    ///
    /// # Safety
    ///
    /// The span has one: it is not full.
    pub unsafe fn take_block(&mut self, size: usize) -> *mut u8 {
        self.live += 1;
        if self.free.is_null() {
            // The lists change places: what came back meanwhile is handed out in one go.
            core::mem::swap(&mut self.free, &mut self.returned);
        }
        if self.free.is_null() {
            let block = self.fresh;
            self.fresh += size;
            return block as *mut u8;
        }
        let block = self.free;
        // SAFETY: blocks in the list are free and hold their link.
        self.free = unsafe { (*block).next };
        block.cast()
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// It is a live one of this span.
    pub unsafe fn give_block(&mut self, block: *mut u8) {
        self.live -= 1;
        let block: *mut Block = block.cast();
        // SAFETY: the block is nobody's any more, at least 16 bytes long and as aligned.
        unsafe { block.write(Block { next: self.returned }) };
        self.returned = block;
    }
}

impl Region {
    /// Makes a region of these bytes, all of it one free span; `None` when it is too short for a page.
    ///
    /// # Safety
    ///
    /// The bytes are the heap's alone, for ever.
    pub unsafe fn begin(start: *mut u8, length: usize, next: *mut Region) -> Option<*mut Region> {
        let skip = start.align_offset(align_of::<Region>().max(align_of::<Page>()));
        let table = start as usize + skip + size_of::<Region>();
        let end = start as usize + length;
        // At most this many pages; the table of fewer may leave room for no more, because pages are aligned.
        let room = end.checked_sub(table)?;
        let mut pages = room / (PAGE + size_of::<Page>());
        let base = |pages: usize| (table + pages * size_of::<Page>()).next_multiple_of(PAGE);
        while pages > 0 && base(pages) + pages * PAGE > end {
            pages -= 1;
        }
        if pages == 0 {
            return None;
        }
        let region: *mut Region = start.wrapping_add(skip).cast();
        // SAFETY: header and table lie in the region in front of the pages, and are aligned.
        unsafe {
            region.write(Region { next, base: base(pages), pages });
            (*region).set_span(0, pages, State::Free);
        }
        Some(region)
    }

    pub fn contains(&self, address: usize) -> bool {
        (self.base..self.base + self.pages * PAGE).contains(&address)
    }

    /// The entry of a page.
    fn page(&mut self, index: usize) -> *mut Page {
        debug_assert!(index < self.pages);
        // The table follows the header.
        (&raw mut *self).wrapping_add(1).cast::<Page>().wrapping_add(index)
    }

    /// The first page's entry, which begins a span.
    pub fn first(&mut self) -> *mut Page {
        self.page(0)
    }

    /// The span that an address lies in, which is not a free one.
    pub fn span_of(&mut self, address: usize) -> *mut Page {
        let index = (address - self.base) / PAGE;
        // SAFETY: the entry was written when its span was made; `back` leads to the span's first page.
        let back = unsafe { (*self.page(index)).back } as usize;
        self.page(index - back)
    }

    fn index_of(&self, span: *mut Page) -> usize {
        // SAFETY: the caller's spans have a base.
        (unsafe { (*span).base } - self.base) / PAGE
    }

    /// Writes the entries of a span of `count` pages from page `index` on.
    fn set_span(&mut self, index: usize, count: usize, state: State) -> *mut Page {
        let first = self.page(index);
        let entry = |back: usize| Page {
            back: back as u32,
            live: 0,
            state,
            pages: count,
            base: self.base + index * PAGE,
            fresh: 0,
            free: null_mut(),
            returned: null_mut(),
            next: null_mut(),
            previous: null_mut(),
        };
        // Nobody asks for the span of an address within a free span but its last page's.
        let written = if state == State::Free { [0, count - 1] } else { [0, 0] };
        // SAFETY: the entries are in the table, and the span's pages are in no other span.
        unsafe {
            for back in written {
                first.wrapping_add(back).write(entry(back));
            }
            if state != State::Free {
                for back in 1..count {
                    first.wrapping_add(back).write(entry(back));
                }
            }
        }
        first
    }

    /// Cuts `count` pages out of a free span that is in no list, `front` pages from its start: what is left before, the
    /// pages, what is left behind.
    pub fn cut(
        &mut self,
        span: *mut Page,
        front: usize,
        count: usize,
    ) -> (Option<*mut Page>, *mut Page, Option<*mut Page>) {
        let index = self.index_of(span);
        // SAFETY: the span is a free one of this region.
        let behind = unsafe { (*span).pages } - front - count;
        let before = (front > 0).then(|| self.set_span(index, front, State::Free));
        let taken = self.set_span(index + front, count, State::Whole);
        let rest = (behind > 0).then(|| self.set_span(index + front + count, behind, State::Free));
        (before, taken, rest)
    }

    /// The spans right before and right behind a span, where they are free.
    pub fn free_neighbours(&mut self, span: *mut Page) -> (Option<*mut Page>, Option<*mut Page>) {
        let index = self.index_of(span);
        // SAFETY: the entries of a span's first and last page are always written.
        unsafe {
            let behind = index + (*span).pages;
            let before = (index > 0).then(|| {
                let last = self.page(index - 1);
                let back = (*last).back as usize;
                self.page(index - 1 - back)
            });
            let behind = (behind < self.pages).then(|| self.page(behind));
            let is_free = |page: &*mut Page| (**page).state == State::Free;
            (before.filter(is_free), behind.filter(is_free))
        }
    }

    /// Makes a span and its free neighbours, none of which is in a list, one free span.
    pub fn join(
        &mut self,
        before: Option<*mut Page>,
        span: *mut Page,
        behind: Option<*mut Page>,
    ) -> *mut Page {
        let index = self.index_of(before.unwrap_or(span));
        // SAFETY: as for `free_neighbours`.
        let count = [before, Some(span), behind].into_iter().flatten().map(|s| unsafe { (*s).pages }).sum();
        self.set_span(index, count, State::Free)
    }
}
