// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Four-level page tables of x86-64 (Intel SDM 3A, 4.5).
//!
//! Pages are supervisor pages: the program runs in ring 0. The upper half (kernel, physical memory) is that of the
//! tables the machine booted with and is shared by its root entries, which never change.

use super::{Batch, LARGE, LARGE_PAGES, Page, Pager, Taken};
use crate::Rights;
use abi::{PAGE_SIZE, Result};
use api_mem::Frame;
use core::ops::ControlFlow;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE_BIT: u64 = 1 << 7;
/// Software: a page is there but may not be touched (PROT_NONE); the processor sees it as absent.
const KEPT: u64 = 1 << 9;
/// Software: `Page::own`.
const OWN: u64 = 1 << 10;
/// Software: `Page::copied`.
const COPIED: u64 = 1 << 52;
/// Software: `Rights::READ` was asked for; distinguishes write-only from read-write in listings.
const READABLE: u64 = 1 << 11;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Bytes under one entry of the levels 1 (page table) to 4 (root).
const SPAN: [u64; 5] = [0, 1 << 12, 1 << 21, 1 << 30, 1 << 39];
/// From this many pages on a full flush is cheaper than one by one (Linux' tlb_single_page_flush_ceiling).
const FLUSH_ALL: u64 = 33;

const PAGE: u64 = PAGE_SIZE as u64;

type Entry = *mut u64;

/// The page tables of one address space.
pub(crate) struct Tables {
    root: u64,
    /// Tables below the root.
    count: u64,
    /// The page table used last, and the start of the 2 MiB it maps; `u64::MAX` for none.
    last: (u64, u64),
}

// SAFETY: the tables are reached through this value alone (and by the processor, which only sets bits).
unsafe impl Send for Tables {}

fn bits(rights: Rights, own: bool) -> u64 {
    let mut bits = if own { OWN } else { 0 };
    bits |= if rights.is_none() { KEPT } else { PRESENT };
    if rights.contains(Rights::READ) {
        bits |= READABLE;
    }
    if rights.contains(Rights::WRITE) {
        bits |= WRITABLE;
    }
    if !rights.contains(Rights::EXECUTE) {
        bits |= NO_EXECUTE;
    }
    bits
}

fn page_of(entry: u64) -> Page {
    let mut rights = Rights::NONE;
    if entry & PRESENT != 0 {
        if entry & READABLE != 0 {
            rights = rights.with(Rights::READ);
        }
        if entry & WRITABLE != 0 {
            rights = rights.with(Rights::WRITE);
        }
        if entry & NO_EXECUTE == 0 {
            rights = rights.with(Rights::EXECUTE);
        }
    }
    Page {
        physical: entry & ADDRESS,
        rights,
        own: entry & OWN != 0,
        copied: entry & COPIED != 0,
        large: entry & LARGE_BIT != 0,
        accessed: entry & ACCESSED != 0,
        dirty: entry & DIRTY != 0,
    }
}

fn index(address: u64, level: usize) -> usize {
    (address / SPAN[level]) as usize % 512
}

/// The entry for `address` in the table at `table`.
fn entry(table: u64, address: u64, level: usize) -> Entry {
    api_mem::view(table).cast::<u64>().wrapping_add(index(address, level))
}

fn read(entry: Entry) -> u64 {
    // SAFETY: entries lie in tables this value owns.
    unsafe { entry.read_volatile() }
}

fn write(entry: Entry, value: u64) {
    // SAFETY: as in `read`. Volatile: the processor reads it behind the compiler's back.
    unsafe { entry.write_volatile(value) }
}

/// The table the processor uses; none in tests on a host.
#[cfg(not(feature = "process"))]
pub fn root() -> Option<u64> {
    #[cfg(feature = "host")]
    return None;
    #[cfg(not(feature = "host"))]
    Some(loaded())
}

/// The table of an empty program half, which the machine booted with; 0 before the first address space is made.
#[cfg(not(any(feature = "host", feature = "process")))]
static EMPTY: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

#[cfg(not(any(feature = "host", feature = "process")))]
fn load(root: u64) {
    // SAFETY: the upper half of every root is that of the running tables, so kernel code and stack stay mapped.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

#[cfg(not(any(feature = "host", feature = "process")))]
fn loaded() -> u64 {
    let root: u64;
    // SAFETY: reading CR3 has no effect.
    unsafe { core::arch::asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root
}

fn flush_page(address: u64) {
    #[cfg(not(any(feature = "host", feature = "process")))]
    // SAFETY: forgetting a translation changes no memory.
    unsafe {
        core::arch::asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(any(feature = "host", feature = "process"))]
    let _ = address;
}

fn flush_all() {
    #[cfg(not(any(feature = "host", feature = "process")))]
    // SAFETY: loads the root that is in use already.
    unsafe {
        core::arch::asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
    }
}

/// Pages whose translations the processor may remember though their entries are others now.
#[derive(Default)]
struct Stale(Option<(u64, u64)>);

impl Stale {
    /// An entry was changed; `old` is what it was. One that was never used is remembered nowhere: the processor sets the bit
    /// before it keeps a translation (4.8, 4.10.2.3). With software emulation forgetting is dear.
    fn add(&mut self, address: u64, old: u64) {
        if old & ACCESSED != 0 {
            let (first, _) = self.0.unwrap_or((address, address));
            self.0 = Some((first.min(address), address + PAGE));
        }
    }

    fn forget(self) {
        match self.0 {
            Some((start, end)) if (end - start) / PAGE >= FLUSH_ALL => flush_all(),
            Some((start, end)) => (start..end).step_by(PAGE_SIZE).for_each(flush_page),
            None => {}
        }
    }
}

impl Tables {
    fn new_table(&mut self) -> Result<u64> {
        let table = Frame::new()?.into_raw();
        self.count += 1;
        Ok(table)
    }

    fn free_table(&mut self, table: u64) {
        self.count -= 1;
        self.last = (u64::MAX, 0);
        // SAFETY: the count was given to the entry that is gone now.
        drop(unsafe { Frame::from_raw(table) });
    }

    /// The entry of `level` for `address`, with the tables on the way made. The answer at a higher level than asked
    /// for is a large page.
    fn make(&mut self, address: u64, level: usize) -> Result<(Entry, usize)> {
        let mut table = self.root;
        for at in (level + 1..=4).rev() {
            let slot = entry(table, address, at);
            let value = read(slot);
            table = if value & PRESENT == 0 && value & KEPT == 0 {
                let new = self.new_table()?;
                write(slot, new | PRESENT | WRITABLE);
                new
            } else if value & LARGE_BIT != 0 && at == 2 {
                return Ok((slot, at));
            } else {
                value & ADDRESS
            };
        }
        if level == 1 {
            self.last = (address & !(LARGE - 1), table);
        }
        Ok((entry(table, address, level), level))
    }

    /// The entry with the page, without making tables; with the level (2 is a large page).
    fn find(&mut self, address: u64) -> Option<(Entry, usize)> {
        if self.last.0 == address & !(LARGE - 1) {
            return Some((entry(self.last.1, address, 1), 1));
        }
        let mut table = self.root;
        for level in (2..=4).rev() {
            let slot = entry(table, address, level);
            let value = read(slot);
            if value & (PRESENT | KEPT) == 0 {
                return None;
            }
            if value & LARGE_BIT != 0 && level == 2 {
                return Some((slot, 2));
            }
            table = value & ADDRESS;
        }
        self.last = (address & !(LARGE - 1), table);
        Some((entry(table, address, 1), 1))
    }

    /// Calls `seen` with every entry of the range that holds a page, skipping what has no tables.
    fn walk(&self, start: u64, end: u64, mut seen: impl FnMut(u64, Entry, usize) -> ControlFlow<()>) {
        let mut address = start;
        'next: while address < end {
            let mut table = self.root;
            for level in (2..=4).rev() {
                let slot = entry(table, address, level);
                let value = read(slot);
                if value & (PRESENT | KEPT) == 0 {
                    address = (address & !(SPAN[level] - 1)) + SPAN[level];
                    continue 'next;
                }
                if level == 2 && value & LARGE_BIT != 0 {
                    if seen(address, slot, 2).is_break() {
                        return;
                    }
                    address = (address & !(LARGE - 1)) + LARGE;
                    continue 'next;
                }
                table = value & ADDRESS;
            }
            let stop = end.min((address & !(LARGE - 1)) + LARGE);
            while address < stop {
                let slot = entry(table, address, 1);
                if read(slot) != 0 && seen(address, slot, 1).is_break() {
                    return;
                }
                address += PAGE;
            }
        }
    }

    /// Frees the tables on the way to `start..end` that lie wholly in `floor..ceiling`, below `table` of `level`,
    /// which maps from `base` on.
    fn trim_level(&mut self, table: u64, level: usize, base: u64, start: u64, end: u64, gap: (u64, u64)) {
        let span = SPAN[level];
        let mut at = base.max(start & !(span - 1));
        while at < end && at < base + span * 512 {
            let slot = entry(table, at, level);
            let value = read(slot);
            if value & PRESENT != 0 && value & LARGE_BIT == 0 {
                let below = value & ADDRESS;
                if level > 2 {
                    self.trim_level(below, level - 1, at, start, end, gap);
                }
                if at >= gap.0 && at + span <= gap.1 {
                    write(slot, 0);
                    self.free_table(below);
                }
            }
            at += span;
        }
    }

    /// Frees a table of `level` with all below it, and the pages.
    fn free_below(&mut self, table: u64, level: usize) {
        for i in 0..if level == 4 { 256 } else { 512 } {
            let value = read(entry(table, i * SPAN[level], level));
            if value & (PRESENT | KEPT) == 0 {
                continue;
            }
            let physical = value & ADDRESS;
            if level > 1 && value & LARGE_BIT == 0 {
                self.free_below(physical, level - 1);
                self.free_table(physical);
                continue;
            }
            let pages = if level == 2 { LARGE_PAGES as u64 } else { 1 };
            for i in 0..pages {
                // SAFETY: the entry held one count of each of its pages.
                drop(unsafe { Frame::from_raw(physical + i * PAGE) });
            }
        }
    }
}

impl Pager for Tables {
    fn new() -> Result<Tables> {
        let root = Frame::new()?.into_raw();
        #[cfg(not(any(feature = "host", feature = "process")))]
        {
            use core::sync::atomic::Ordering;
            if EMPTY.load(Ordering::Relaxed) == 0 {
                EMPTY.store(loaded() & ADDRESS, Ordering::Relaxed);
            }
            let from = api_mem::view(loaded() & ADDRESS).cast::<u64>();
            // SAFETY: both are whole tables; the new one is ours alone. The upper half is the kernel's.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    from.add(256),
                    api_mem::view(root).cast::<u64>().add(256),
                    256,
                );
            }
        }
        Ok(Tables { root, count: 0, last: (u64::MAX, 0) })
    }

    fn activate(&mut self) {
        #[cfg(not(any(feature = "host", feature = "process")))]
        load(self.root);
    }

    fn deactivate() {
        #[cfg(not(any(feature = "host", feature = "process")))]
        load(EMPTY.load(core::sync::atomic::Ordering::Relaxed));
    }

    fn fork(
        &mut self,
        child: &mut Self,
        start: u64,
        end: u64,
        seen: &mut dyn FnMut(&Page, u64),
    ) -> Result<()> {
        self.fork_with(child, start, end, seen, &mut |_, _| ())
    }

    fn reclaim(&mut self, address: u64, rights: Rights) {
        if let Some((slot, _)) = self.find(address) {
            let old = read(slot);
            write(slot, old & (ADDRESS | ACCESSED | DIRTY | LARGE_BIT) | bits(rights, true));
            // What it may do grew, but for entries without any right: the processor looks again after a fault.
            flush_page(address);
        }
    }

    fn mark_copied(&mut self, address: u64) {
        if let Some((slot, 1)) = self.find(address) {
            write(slot, read(slot) | COPIED);
        }
    }

    #[inline]
    fn page(&mut self, address: u64) -> Option<Page> {
        let (slot, level) = self.find(address)?;
        let value = read(slot);
        if value & (PRESENT | KEPT) == 0 {
            return None;
        }
        let mut page = page_of(value);
        if level == 2 {
            page.physical += address & (LARGE - 1) & !(PAGE - 1);
        }
        Some(page)
    }

    fn prepare(&mut self, address: u64) -> Result<()> {
        self.make(address, 1).map(|_| ())
    }

    #[inline]
    fn map(&mut self, address: u64, frame: Frame, rights: Rights, own: bool) -> Result<()> {
        let slot = match self.find(address) {
            Some((slot, _)) => slot,
            None => self.make(address, 1)?.0,
        };
        debug_assert_eq!(read(slot), 0);
        write(slot, frame.into_raw() | bits(rights, own));
        Ok(())
    }

    fn map_large(&mut self, address: u64, physical: u64, rights: Rights) -> Result<bool> {
        let (slot, _) = self.make(address, 2)?;
        if read(slot) != 0 {
            return Ok(false);
        }
        write(slot, physical | bits(rights, true) | LARGE_BIT);
        Ok(true)
    }

    fn replace(&mut self, address: u64, frame: Frame, rights: Rights, own: bool) -> Option<Frame> {
        let (slot, level) = self.find(address)?;
        let old = read(slot);
        if level == 2 {
            // The page itself is not exchanged: only rights of the whole large page change.
            write(slot, old & !(PRESENT | KEPT | WRITABLE | READABLE | NO_EXECUTE) | bits(rights, true));
            flush_page(address);
            return Some(frame);
        }
        let physical = frame.into_raw();
        let keep = if old & ADDRESS == physical { old & (ACCESSED | DIRTY) } else { 0 };
        write(slot, physical | bits(rights, own) | keep);
        flush_page(address);
        // SAFETY: the entry held a count of the old page.
        (old & (PRESENT | KEPT) != 0).then(|| unsafe { Frame::from_raw(old & ADDRESS) })
    }

    fn split(&mut self, address: u64) -> Result<()> {
        if address.is_multiple_of(LARGE) {
            return Ok(());
        }
        let Some((slot, 2)) = self.find(address) else { return Ok(()) };
        let old = read(slot);
        let table = self.new_table()?;
        let base = address & !(LARGE - 1);
        for i in 0..LARGE_PAGES as u64 {
            write(entry(table, base + i * PAGE, 1), (old & !LARGE_BIT) + i * PAGE);
        }
        write(slot, table | PRESENT | WRITABLE);
        flush_page(base);
        Ok(())
    }

    fn protect(&mut self, start: u64, end: u64, rights: &mut dyn FnMut(&Page) -> Rights) {
        let mut stale = Stale::default();
        self.walk(start, end, |address, slot, _| {
            let old = read(slot);
            let page = page_of(old);
            let new = rights(&page);
            if new != page.rights {
                let kept = old & (ADDRESS | ACCESSED | DIRTY | LARGE_BIT | COPIED);
                write(slot, kept | bits(new, page.own));
                stale.add(address, old);
            }
            ControlFlow::Continue(())
        });
        stale.forget();
    }

    fn take(&mut self, start: u64, end: u64, batch: &mut Batch) -> u64 {
        let (mut next, mut stale) = (end, Stale::default());
        let mut large: Option<(u64, u64)> = None;
        self.walk(start, end, |address, slot, level| {
            let old = read(slot);
            let page = page_of(old);
            if level == 2 {
                large = Some((address & !(LARGE - 1), old));
                next = address;
                return ControlFlow::Break(());
            }
            write(slot, 0);
            stale.add(address, old);
            // SAFETY: the entry held a count of the page.
            let frame = unsafe { Frame::from_raw(page.physical) };
            if batch.push(Taken { address, frame, own: page.own, copied: page.copied, dirty: page.dirty }) {
                ControlFlow::Continue(())
            } else {
                next = address + PAGE;
                ControlFlow::Break(())
            }
        });
        stale.forget();
        if let Some((base, old)) = large {
            self.release_large(base, old);
            batch.large += 1;
            next = base + LARGE;
        }
        next
    }

    fn visit(&mut self, start: u64, end: u64, seen: &mut dyn FnMut(u64, &Page) -> bool) {
        let mut stale = Stale::default();
        self.walk(start, end, |address, slot, level| {
            let value = read(slot);
            let mut page = page_of(value);
            let stop = if level == 2 { end.min((address & !(LARGE - 1)) + LARGE) } else { address + PAGE };
            let mut clean = false;
            for address in (address..stop).step_by(PAGE_SIZE) {
                page.physical = (value & ADDRESS) + if level == 2 { address & (LARGE - 1) } else { 0 };
                clean = seen(address, &page);
            }
            if clean && value & DIRTY != 0 {
                write(slot, value & !DIRTY);
                stale.add(address, value);
            }
            ControlFlow::Continue(())
        });
        stale.forget();
    }

    fn trim(&mut self, start: u64, end: u64, floor: u64, ceiling: u64) {
        let before = self.count;
        self.trim_level(self.root, 4, 0, start, end, (floor, ceiling));
        if self.count != before {
            // The processor may hold the tables themselves in its paging-structure caches.
            flush_all();
        }
    }

    fn table_bytes(&self) -> u64 {
        (self.count + 1) * PAGE
    }
}

impl Tables {
    /// [`Pager::fork`]; `changed` is told of each page, large ones included, that this one may not write any more.
    pub(super) fn fork_with(
        &mut self,
        child: &mut Tables,
        start: u64,
        end: u64,
        seen: &mut dyn FnMut(&Page, u64),
        changed: &mut dyn FnMut(u64, &Page),
    ) -> Result<()> {
        let mut stale = Stale::default();
        let mut result = Ok(());
        self.walk(start, end, |address, slot, level| {
            let old = read(slot);
            let page = page_of(old);
            let base = if level == 2 { address & !(LARGE - 1) } else { address };
            match child.fork_entry(base, slot, level) {
                Ok(pages) => seen(&page, pages),
                Err(e) => {
                    result = Err(e);
                    return ControlFlow::Break(());
                }
            }
            if read(slot) & WRITABLE != old & WRITABLE {
                stale.add(base, old);
                changed(base, &page_of(read(slot)));
            }
            ControlFlow::Continue(())
        });
        stale.forget();
        result
    }

    /// Takes over one entry of a parent's, which changes with it; how many pages it has.
    fn fork_entry(&mut self, address: u64, theirs: Entry, level: usize) -> Result<u64> {
        let (slot, at) = match self.find(address) {
            Some(found) if level == 1 => found,
            _ => self.make(address, level)?,
        };
        debug_assert_eq!((at, read(slot)), (level, 0));
        let old = read(theirs);
        let pages = if level == 2 { LARGE_PAGES as u64 } else { 1 };
        let frame = |i: u64| {
            // SAFETY: the parent's entry holds a count of each of its pages, and is not changed meanwhile.
            core::mem::ManuallyDrop::new(unsafe { Frame::from_raw((old & ADDRESS) + i * PAGE) })
        };
        if old & OWN == 0 {
            write(slot, Frame::clone(&frame(0)).into_raw() | old & !ADDRESS);
            return Ok(1);
        }
        // Writable and not alone: a device is at work on it.
        if level == 1 && old & (WRITABLE | COPIED) == WRITABLE && !frame(0).is_unique() {
            write(slot, frame(0).duplicate()?.into_raw() | old & !ADDRESS);
            return Ok(1);
        }
        let both = old & !WRITABLE | COPIED;
        for i in 0..pages {
            Frame::clone(&frame(i)).into_raw();
        }
        write(slot, both);
        write(theirs, both);
        Ok(pages)
    }

    /// Frees a whole large page.
    fn release_large(&mut self, base: u64, old: u64) {
        if let Some((slot, 2)) = self.find(base) {
            write(slot, 0);
            flush_page(base);
        }
        for i in 0..LARGE_PAGES as u64 {
            // SAFETY: the entry held one count of each of its pages.
            drop(unsafe { Frame::from_raw((old & ADDRESS) + i * PAGE) });
        }
    }
}

#[cfg(feature = "process")]
impl Tables {
    /// Names the tables.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// True when there is a page in the range.
    pub fn holds(&self, start: u64, end: u64) -> bool {
        let mut found = false;
        self.walk(start, end, |_, _, _| {
            found = true;
            ControlFlow::Break(())
        });
        found
    }
}

#[cfg(any(test, feature = "process"))]
impl Tables {
    /// What the processor does when it writes.
    pub fn mark_written(&mut self, address: u64) {
        if let Some((slot, _)) = self.find(address) {
            write(slot, read(slot) | ACCESSED | DIRTY);
        }
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.free_below(self.root, 4);
        // SAFETY: the root's count was kept in `root`.
        drop(unsafe { Frame::from_raw(self.root) });
    }
}
