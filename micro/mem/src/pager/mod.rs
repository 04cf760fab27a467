// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mechanism that makes pages appear in the program's half of the address space.
//!
//! Policy (what is where) is in the rest of the crate; a pager only does as it is told. [`x86::Tables`] writes page
//! tables; a process of Linux has none and does the same with its host's mmap (`mirror`).

// Tests have a host of their own for it, and not all that a kernel asks of it.
#[cfg(any(feature = "process", test))]
#[cfg_attr(not(feature = "process"), allow(dead_code))]
mod mirror;
#[cfg(any(feature = "process", test))]
mod shown;
#[cfg(test)]
mod views;
mod x86;

/// The pager of this image.
#[cfg(feature = "process")]
pub(crate) type Machine = mirror::Mirror;
#[cfg(not(feature = "process"))]
pub(crate) type Machine = x86::Tables;
/// The top-level table of the address space that is there; `None` before the first.
#[cfg(feature = "process")]
pub use mirror::root;
#[cfg(not(feature = "process"))]
pub use x86::root;

use crate::Prot;
use abi::{PAGE_SIZE, Result};
use api_mem::PageFrame;
use core::mem::MaybeUninit;

/// Bytes of a large page.
pub(crate) const LARGE: u64 = 2 << 20;
/// Pages of a large page.
pub(crate) const LARGE_PAGES: usize = LARGE as usize / PAGE_SIZE;

/// A page that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub physical: u64,
    pub rights: Prot,
    /// The program's own copy or anonymous memory, not a page of a file.
    pub own: bool,
    /// Own, but after a fork another address space may have it too: writing it needs [`Pager::replace`] by a copy, or
    /// [`Pager::reclaim`] where its count says that the other one is gone. It is never writable.
    pub copied: bool,
    /// Part of a large page.
    pub large: bool,
    /// It was touched since [`Pager::age`], or has not been aged.
    pub accessed: bool,
    pub dirty: bool,
}

/// One page taken out of the address space; the holder has its count.
pub(crate) struct Taken {
    pub address: u64,
    pub frame: PageFrame,
    pub own: bool,
    pub copied: bool,
    pub dirty: bool,
}

/// Pages taken at a time: they must not be reused before the TLB has forgotten them.
pub(crate) struct Batch {
    /// The first `count` are there. Not initialised ahead: most batches hold a page or two.
    pages: [MaybeUninit<Taken>; Batch::ROOM],
    count: usize,
    /// Large pages that were taken and freed besides.
    pub large: u64,
}

impl Batch {
    pub const ROOM: usize = 64;

    pub const fn new() -> Batch {
        Batch { pages: [const { MaybeUninit::uninit() }; Batch::ROOM], count: 0, large: 0 }
    }

    /// Adds a page; false when the batch is full now. There is room.
    fn push(&mut self, taken: Taken) -> bool {
        self.pages[self.count].write(taken);
        self.count += 1;
        self.count < Self::ROOM
    }

    /// The pages, leaving the batch empty.
    pub fn drain(&mut self) -> impl Iterator<Item = Taken> + '_ {
        core::iter::from_fn(|| {
            self.count = self.count.checked_sub(1)?;
            // SAFETY: it was below the count, so it was written, and it is read once.
            Some(unsafe { self.pages[self.count].assume_init_read() })
        })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.drain().for_each(drop);
    }
}

/// Addresses are multiples of the page size in the program's half; ranges are `start..end`.
pub(crate) trait Pager: Sized {
    /// An empty program half.
    fn new() -> Result<Self>;

    /// New memory is best made in contiguous pieces, because each piece costs a call of the host.
    const CHUNKS: bool = false;

    /// Makes it the running processor's. It may be dropped only while another one is active, or none. `Some` where the program does
    /// not see its pages any more: what was shown of them went for another space's, and each comes back with a fault. It is how
    /// many nanoseconds it took to take that one's away.
    fn activate(&mut self) -> Option<u64>;

    /// Makes none of them the running processor's: no address of the program's half leads anywhere.
    fn deactivate();

    /// For fork: gives `child` every page of the range that is there, but for those of which it has a copy already: they stay as
    /// they are. Of the others both lose the right to write
    /// own pages, which are [`Page::copied`] from now on in both; a page that a device holds for writing stays this
    /// one's alone, and the child gets a copy. `seen` is told of the child's pages: how many, and whether they are own.
    ///
    /// `ENOMEM` may leave the child with a part of the range and this one with own pages that cannot be written before
    /// they fault, which is correct in both.
    fn fork(
        &mut self,
        child: &mut Self,
        start: u64,
        end: u64,
        seen: &mut dyn FnMut(&Page, u64),
    ) -> Result<()>;

    /// A copied page, small or large, is this space's alone again, with these rights.
    fn reclaim(&mut self, address: u64, rights: Prot);

    /// A page that was just put there is a copied one.
    fn mark_copied(&mut self, address: u64);

    /// The page at `address`.
    fn page(&mut self, address: u64) -> Option<Page>;

    /// Makes the tables [`Pager::map`] needs for a page at `address`.
    fn prepare(&mut self, address: u64) -> Result<()>;

    /// The program does not see the page at `address`, which is there with the right it asked for: it is shown, and so may be
    /// its neighbours. Never so where the processor reads the tables itself.
    fn show_again(&mut self, _address: u64) {}

    /// The page at `address` is likely to be used as soon as the space is active. Nothing to do where the processor reads the
    /// tables itself.
    fn expect(&mut self, _address: u64) {}

    /// Puts a page where none is. `ENOMEM` when there is no room for tables.
    fn map(&mut self, address: u64, frame: PageFrame, rights: Prot, own: bool) -> Result<()>;

    /// Puts a large page of [`LARGE_PAGES`] own frames, each with a count of one, where no page is and no table was;
    /// false (and nothing is taken over) where that is not so.
    fn map_large(&mut self, address: u64, physical: u64, rights: Prot) -> Result<bool>;

    /// Changes the page that is there, and forgets the old translation. Returns the frame that was there if it is
    /// another.
    fn replace(&mut self, address: u64, frame: PageFrame, rights: Prot, own: bool) -> Option<PageFrame>;

    /// Cuts a large page that reaches over `address` into small ones. `ENOMEM` when there is no room for the table.
    fn split(&mut self, address: u64) -> Result<()>;

    /// Gives every page in the range the rights the function says. Large pages at the ends were split. Old
    /// translations are forgotten.
    fn protect(&mut self, start: u64, end: u64, rights: &mut dyn FnMut(&Page) -> Prot);

    /// Takes the pages of the range out, and forgets their translations; `taken` is given them a batch at a time, which it drains.
    /// Large pages at the ends were split.
    fn take_out<E>(
        &mut self,
        start: u64,
        end: u64,
        mut taken: impl FnMut(&mut Self, &mut Batch) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        self.conceal(start, end);
        let (mut at, mut batch) = (start, Batch::new());
        while at < end {
            at = self.take(at, end, &mut batch);
            taken(self, &mut batch)?;
        }
        Ok(())
    }

    /// All pages of the range are about to be taken out: the program does not see them any more. Nothing to do where the processor
    /// reads the tables itself.
    fn conceal(&mut self, _start: u64, _end: u64) {}

    /// A part of [`Pager::take_out`]: takes pages out until the batch is full or the range ends; returns where to go on.
    fn take(&mut self, start: u64, end: u64, batch: &mut Batch) -> u64;

    /// Calls the function for each page of the range; a true answer marks it clean.
    fn visit(&mut self, start: u64, end: u64, seen: &mut dyn FnMut(u64, &Page) -> bool);

    /// The pages of the range count as not accessed until they are touched.
    fn age(&mut self, start: u64, end: u64);

    /// Frees tables of the range, wholly inside `floor..ceiling` where nothing is mapped.
    fn trim(&mut self, start: u64, end: u64, floor: u64, ceiling: u64);

    /// Bytes of page tables.
    fn table_bytes(&self) -> u64;

    /// Makes the program see what was mapped. Called before the space's lock is given back.
    fn flush(&mut self) {}
}
