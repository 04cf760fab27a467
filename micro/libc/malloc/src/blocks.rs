// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of a heap, and blocks of pages of their own, told apart by the header before each.
//!
//! # Invariants
//!
//! - Before each live block lies its [`Header`]. The block and `lead` bytes before it, of which the header is the last part,
//!   are one block of the heap with the layout that [`Header::layout`] says, or begin a mapping.
//! - Memory of the heap came from [`Pages::map`] and is unmapped when [`Heap::take_empty`] gave it back.

use api_alloc::Heap;
use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::NonNull;

pub const PAGE: usize = 4096;
/// Every block is aligned so (System V ABI for x86-64, 3.1.2: `long double`).
pub const ALIGN: usize = 16;
/// From this size on a block is made of pages of its own, as in glibc (M_MMAP_THRESHOLD of mallopt(3)).
const MAPPED_FROM: usize = 128 * 1024;
/// The least that the heap grows by, and so many free bytes stay with it.
const GROWTH: usize = 256 * 1024;
const SPARE: usize = 1024 * 1024;
/// The largest request; differences of pointers are signed.
const MAX_SIZE: usize = isize::MAX as usize - 2 * PAGE;

/// Where memory comes from: whole pages.
pub trait Pages {
    /// `length` bytes of zeros at a multiple of [`PAGE`], or null.
    fn map(&mut self, length: usize) -> *mut u8;
    /// Gives back pages that `map` or `remap` gave, all or some.
    ///
    /// # Safety
    ///
    /// Nobody uses them any more.
    unsafe fn unmap(&mut self, start: *mut u8, length: usize);
    /// Makes a mapping longer or shorter, perhaps elsewhere, with its contents; null where that is not possible, and it stays.
    ///
    /// # Safety
    ///
    /// It is one that `map` or `remap` gave, of that length; its address is forgotten where the answer is not null.
    unsafe fn remap(&mut self, start: *mut u8, old: usize, new: usize) -> *mut u8;
}

/// How the blocks are made.
#[derive(Clone, Copy)]
pub struct Policy {
    /// Blocks of this size have pages of their own.
    pub mapped_from: usize,
    /// A block has the size asked for and moves whenever that changes: checks around it see each byte.
    pub is_exact: bool,
}

impl Policy {
    pub const USUAL: Policy = Policy { mapped_from: MAPPED_FROM, is_exact: false };
    /// Of a heap that looks at each block.
    pub const GUARD: Policy = Policy { mapped_from: usize::MAX, is_exact: true };
}

/// Whose memory a block is: the byte right before it. No address, which is what heaps write to free memory, has one of these
/// values in its highest byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heap = 0x5b,
    Mapped = 0x5d,
}

/// Right before each block.
#[repr(C, align(16))]
struct Header {
    /// Bytes of the block.
    size: usize,
    /// From the highest byte on: [`Kind`], the binary logarithm of `lead`, and 48 bits of the address that asked for the block.
    word: usize,
}

const HEADER: usize = size_of::<Header>();
const CALLER: usize = (1 << 48) - 1;

/// What a live block's header says.
#[derive(Clone, Copy)]
struct Block {
    size: usize,
    kind: Kind,
    /// Bytes from the beginning of the heap's block or mapping to the block.
    lead: usize,
    caller: usize,
}

impl Block {
    fn write(self, block: *mut u8) {
        let lead = self.lead.trailing_zeros() as usize;
        let word = (self.kind as usize) << 56 | lead << 48 | self.caller & CALLER;
        // SAFETY: `lead` bytes before the block, a header at least, are the block's by the invariant, and aligned as it is.
        unsafe { block.sub(HEADER).cast::<Header>().write(Header { size: self.size, word }) };
    }

    /// The header of what a program says is a block; `None` where it cannot be one.
    ///
    /// # Safety
    ///
    /// The bytes before it can be read if it is a multiple of [`ALIGN`].
    unsafe fn read(block: *mut u8) -> Option<Block> {
        if !(block as usize).is_multiple_of(ALIGN) {
            return None;
        }
        // SAFETY: by the caller's word.
        let Header { size, word } = unsafe { block.sub(HEADER).cast::<Header>().read() };
        let kind = [Kind::Heap, Kind::Mapped].into_iter().find(|kind| *kind as usize == word >> 56)?;
        let lead = 1_usize.checked_shl((word >> 48 & 0xff) as u32)?;
        (lead >= HEADER).then_some(Block { size, kind, lead, caller: word & CALLER })
    }

    /// What the heap has it as.
    fn layout(&self) -> Option<Layout> {
        Layout::from_size_align(self.lead.checked_add(self.size)?, self.lead).ok()
    }

    /// Bytes of the mapping.
    fn mapped(&self) -> usize {
        (self.lead + self.size).next_multiple_of(PAGE)
    }
}

/// It is no live block of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotABlock;

/// A program's memory.
pub struct Blocks<H, P> {
    heap: H,
    pages: P,
    policy: Policy,
    /// With more free bytes than this the heap is asked for what it can give back.
    trim_from: usize,
}

impl<H: Heap, P: Pages> Blocks<H, P> {
    pub const fn new(heap: H, pages: P, policy: Policy) -> Self {
        Blocks { heap, pages, policy, trim_from: SPARE }
    }

    /// A block of `size` bytes aligned to `align`, a power of two, for `caller`; true where it is known to be zeros.
    pub fn take(&mut self, size: usize, align: usize, caller: usize) -> Option<(NonNull<u8>, bool)> {
        if size > MAX_SIZE || align > MAX_SIZE {
            return None;
        }
        let size = self.rounded(size);
        let lead = align.max(HEADER);
        if size + lead >= self.policy.mapped_from {
            return Some((self.take_mapped(size, align, caller)?, true));
        }
        let block = Block { size, kind: Kind::Heap, lead, caller };
        let layout = block.layout()?;
        let mut start = self.heap.alloc(layout);
        if start.is_null() && self.grow(layout) {
            start = self.heap.alloc(layout);
        }
        let place = NonNull::new(start)?.as_ptr().wrapping_add(lead);
        block.write(place);
        Some((NonNull::new(place)?, false))
    }

    /// A block of at least this many bytes: never none, so that each has an address of its own (malloc(3)).
    fn rounded(&self, size: usize) -> usize {
        if self.policy.is_exact { size.max(1) } else { size.max(1).next_multiple_of(ALIGN) }
    }

    fn take_mapped(&mut self, size: usize, align: usize, caller: usize) -> Option<NonNull<u8>> {
        // A block with a greater alignment has a page before it, of whose start its header is the end.
        let lead = align.clamp(HEADER, PAGE);
        let length = (lead + size).next_multiple_of(PAGE);
        let more = if align > PAGE { align } else { 0 };
        let whole = length.checked_add(more)?;
        let mut start = self.map(whole);
        if start.is_null() {
            return None;
        }
        if more > 0 {
            let front = ((start as usize + PAGE).next_multiple_of(align) - PAGE) - start as usize;
            let behind = more - front;
            for (place, length) in [(0, front), (front + length, behind)] {
                if length > 0 {
                    // SAFETY: these pages lie before and behind the block's, and nobody knows them.
                    unsafe { self.pages.unmap(start.wrapping_add(place), length) };
                }
            }
            start = start.wrapping_add(front);
        }
        let place = start.wrapping_add(lead);
        Block { size: length - lead, kind: Kind::Mapped, lead, caller }.write(place);
        NonNull::new(place)
    }

    /// Pages, for which the heap gives up what it can spare where there are none.
    fn map(&mut self, length: usize) -> *mut u8 {
        let start = self.pages.map(length);
        if start.is_null() && self.give_back(0) { self.pages.map(length) } else { start }
    }

    /// More memory for the heap: an eighth more, so that heaps with a list of regions have few.
    #[cold]
    fn grow(&mut self, layout: Layout) -> bool {
        let least = self.heap.region_for(layout).next_multiple_of(PAGE);
        let usual = (self.heap.statistics().total / 8).next_multiple_of(PAGE).max(GROWTH).max(least);
        for length in [usual, least] {
            let start = self.map(length);
            if !start.is_null() {
                // SAFETY: fresh pages of this process, unmapped only when the heap has given them back.
                unsafe { self.heap.add_region(start, length) };
                self.trim_from = self.trim_from.max(self.heap.statistics().total / 4);
                return true;
            }
        }
        false
    }

    /// Gives back pages until no more than `spare` bytes of the heap are free; whether there were any.
    #[cold]
    pub fn give_back(&mut self, spare: usize) -> bool {
        let mut any = false;
        while self.free_bytes() > spare
            && let Some((start, length)) = self.heap.take_empty()
        {
            // SAFETY: the heap has forgotten them.
            unsafe { self.pages.unmap(start, length) };
            any = true;
        }
        any
    }

    fn free_bytes(&self) -> usize {
        let statistics = self.heap.statistics();
        statistics.total.saturating_sub(statistics.used)
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// Where it is a block of these, nobody uses it any more. The bytes before it can be read.
    pub unsafe fn give(&mut self, block: NonNull<u8>) -> Result<(), NotABlock> {
        let place = block.as_ptr();
        // SAFETY: by the caller's word.
        let block = unsafe { Block::read(place) }.ok_or(NotABlock)?;
        let start = place.wrapping_sub(block.lead);
        if block.kind == Kind::Mapped {
            // SAFETY: the invariant: the mapping begins there and is that long.
            unsafe { self.pages.unmap(start, block.mapped()) };
            return Ok(());
        }
        let layout = block.layout().ok_or(NotABlock)?;
        if !self.policy.is_exact {
            // So that a second call finds no header, where the heap leaves it alone; one with checks wants it for its report.
            // SAFETY: the header is before the block.
            unsafe { place.sub(HEADER).cast::<Header>().write(Header { size: 0, word: 0 }) };
        }
        // SAFETY: the invariant: the heap has it with this layout.
        unsafe { self.heap.free(start, layout) };
        let free = self.free_bytes();
        if free > self.trim_from {
            let spare = (self.heap.statistics().total / 8).max(SPARE / 2);
            self.give_back(spare);
            // What is free then cannot be given back, and is not looked through again for the next block.
            let statistics = self.heap.statistics();
            self.trim_from = self.free_bytes() + (statistics.total / 4).max(SPARE);
        }
        Ok(())
    }

    /// The bytes of a block that a program may use.
    ///
    /// # Safety
    ///
    /// The bytes before it can be read.
    pub unsafe fn size(&self, block: NonNull<u8>) -> Result<usize, NotABlock> {
        // SAFETY: by the caller's word.
        unsafe { Block::read(block.as_ptr()) }.map(|block| block.size).ok_or(NotABlock)
    }

    /// The block with another size and what is in it; `None` where there is no memory, and it stays as it was.
    ///
    /// # Safety
    ///
    /// As [`Blocks::give`], where there is another block.
    pub unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        size: usize,
        caller: usize,
    ) -> Result<Option<NonNull<u8>>, NotABlock> {
        let place = block.as_ptr();
        // SAFETY: by the caller's word.
        let old = unsafe { Block::read(place) }.ok_or(NotABlock)?;
        if size > MAX_SIZE {
            return Ok(None);
        }
        let wanted = self.rounded(size);
        if old.kind == Kind::Mapped && wanted + old.lead >= self.policy.mapped_from {
            let length = (old.lead + wanted).next_multiple_of(PAGE);
            if length == old.mapped() {
                return Ok(Some(block));
            }
            // SAFETY: the invariant: a mapping of that length.
            let start = unsafe { self.pages.remap(place.wrapping_sub(old.lead), old.mapped(), length) };
            let Some(start) = NonNull::new(start) else { return Ok(None) };
            let place = start.as_ptr().wrapping_add(old.lead);
            Block { size: length - old.lead, ..old }.write(place);
            return Ok(NonNull::new(place));
        }
        // Half of a block that stays unused is not worth a copy.
        let fits = if self.policy.is_exact {
            wanted == old.size
        } else {
            wanted <= old.size && wanted >= old.size / 2
        };
        if fits {
            return Ok(Some(block));
        }
        let Some((new, _)) = self.take(size, ALIGN, caller) else {
            return Ok(None);
        };
        // SAFETY: both are live, distinct, and as long as the lesser size.
        unsafe {
            core::ptr::copy_nonoverlapping(place, new.as_ptr(), old.size.min(wanted));
            self.give(block)?;
        }
        Ok(Some(new))
    }

    /// The block that a heap's block is, and who asked for it: for a heap that has found misuse of one. `None` where its header
    /// is overwritten.
    ///
    /// # Safety
    ///
    /// It is a block of the heap with `size` bytes.
    pub unsafe fn describe(start: *mut u8, size: usize) -> Option<Described> {
        let mut lead = HEADER;
        while lead < size {
            let place = start.wrapping_add(lead);
            // SAFETY: the header lies in the heap's block.
            match unsafe { Block::read(place) } {
                Some(block) if block.lead == lead && block.size == size - lead => {
                    return Some(Described { block: place, size: block.size, caller: block.caller });
                }
                _ => lead *= 2,
            }
        }
        None
    }
}

/// A block, for a report.
pub struct Described {
    pub block: *mut u8,
    pub size: usize,
    pub caller: usize,
}

#[cfg(test)]
mod tests;
