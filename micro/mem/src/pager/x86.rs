// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Four-level page tables of x86-64 (Intel SDM 3A, 4.5).
//!
//! Pages are supervisor pages: the program runs in ring 0. The upper half (kernel, physical memory) is that of the
//! tables the machine booted with and is shared by its root entries, which never change.
//!
//! **Several processors.** Who changes tables holds the kernel's lock, so it alone does; but the other processors read them at any
//! moment, remember what they found, and set the bits that say a page was used or written. So an entry that may be used is exchanged
//! in one step, what was set up to that step counts, and those who are in the address space are told before anybody relies on the
//! change. A processor that is in none need not be told: it remembers nothing once it comes back.

use super::{Batch, LARGE, LARGE_PAGES, Page, Pager, Taken};
use crate::Prot;
use abi::{PAGE_SIZE, Result};
use api_mem::PageFrame;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};

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
/// Software: only [`ACCESSED`] says whether the page was touched. Without it the page counts as touched by the fault that brought it.
const AGED: u64 = 1 << 53;
/// Software: `Prot::READ` was asked for; distinguishes write-only from read-write in listings.
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

fn bits(rights: Prot, own: bool) -> u64 {
    let mut bits = if own { OWN } else { 0 };
    bits |= if rights.is_none() { KEPT } else { PRESENT };
    if rights.contains(Prot::READ) {
        bits |= READABLE;
    }
    if rights.contains(Prot::WRITE) {
        bits |= WRITABLE;
    }
    if !rights.contains(Prot::EXECUTE) {
        bits |= NO_EXECUTE;
    }
    bits
}

fn page_of(entry: u64) -> Page {
    let mut rights = Prot::NONE;
    if entry & PRESENT != 0 {
        if entry & READABLE != 0 {
            rights = rights.with(Prot::READ);
        }
        if entry & WRITABLE != 0 {
            rights = rights.with(Prot::WRITE);
        }
        if entry & NO_EXECUTE == 0 {
            rights = rights.with(Prot::EXECUTE);
        }
    }
    Page {
        physical: entry & ADDRESS,
        rights,
        own: entry & OWN != 0,
        copied: entry & COPIED != 0,
        large: entry & LARGE_BIT != 0,
        accessed: entry & ACCESSED != 0 || entry & AGED == 0,
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

/// What is written to a page's memory before is seen by who finds the entry.
fn write(entry: Entry, value: u64) {
    // SAFETY: as in `read`.
    unsafe { AtomicU64::from_ptr(entry) }.store(value, Ordering::Release);
}

/// Other processors may set bits of an entry meanwhile.
#[inline]
fn several() -> bool {
    !cfg!(any(feature = "host", feature = "process")) && api_plat::cpus() > 1
}

/// Changes an entry; answers what it was.
#[inline]
fn change(entry: Entry, new: impl Fn(u64) -> u64) -> u64 {
    let mut old = read(entry);
    if !several() {
        write(entry, new(old));
        return old;
    }
    // SAFETY: as in `read`.
    let shared = unsafe { AtomicU64::from_ptr(entry) };
    while let Err(now) = shared.compare_exchange(old, new(old), Ordering::AcqRel, Ordering::Relaxed) {
        old = now;
    }
    old
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
static EMPTY: AtomicU64 = AtomicU64::new(0);

/// The table that each processor uses; who holds the kernel's lock alone changes and reads it.
#[cfg(not(any(feature = "host", feature = "process")))]
static ROOTS: [AtomicU64; api_plat::MAX_CPUS] = [const { AtomicU64::new(0) }; api_plat::MAX_CPUS];

#[cfg(not(any(feature = "host", feature = "process")))]
fn load(root: u64) {
    if several() {
        ROOTS[api_plat::cpu() as usize].store(root, Ordering::Relaxed);
    }
    // SAFETY: the upper half of every root is that of the running tables, so kernel code and stack stay mapped.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// The other processors that use the table forget translations of `start..end`.
fn forget_elsewhere(root: u64, start: u64, end: u64) {
    #[cfg(not(any(feature = "host", feature = "process")))]
    if several() {
        let here = api_plat::cpu();
        let uses = |cpu: u32| ROOTS[cpu as usize].load(Ordering::Relaxed) == root;
        let others = (0..api_plat::cpus()).filter(|cpu| *cpu != here && uses(*cpu));
        let others = others.fold(0, |others, cpu| others | 1 << cpu);
        if others != 0 {
            api_plat::forget_on(others, start, end);
        }
    }
    #[cfg(any(feature = "host", feature = "process"))]
    let _ = (root, start, end);
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
    /// An entry was changed; `old` is what it was in the moment of the change. One that was never used is remembered nowhere: the processor sets the bit
    /// before it keeps a translation (4.8, 4.10.2.3). With software emulation forgetting is dear.
    fn add(&mut self, address: u64, old: u64) {
        if old & ACCESSED != 0 {
            let (first, _) = self.0.unwrap_or((address, address));
            self.0 = Some((first.min(address), address + PAGE));
        }
    }

    /// `root` names the tables.
    fn forget(self, root: u64) {
        let Some((start, end)) = self.0 else { return };
        if (end - start) / PAGE >= FLUSH_ALL {
            flush_all();
        } else {
            (start..end).step_by(PAGE_SIZE).for_each(flush_page);
        }
        forget_elsewhere(root, start, end);
    }
}

impl Tables {
    /// The page's entry was changed, and its old translation is of no use.
    fn forget_page(&self, address: u64) {
        flush_page(address);
        forget_elsewhere(self.root, address, address + PAGE);
    }

    fn new_table(&mut self) -> Result<u64> {
        let table = PageFrame::new()?.into_raw();
        self.count += 1;
        Ok(table)
    }

    fn free_table(&mut self, table: u64) {
        self.count -= 1;
        self.last = (u64::MAX, 0);
        // SAFETY: the count was given to the entry that is gone now.
        drop(unsafe { PageFrame::from_raw(table) });
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

    /// Takes out the tables on the way to `start..end` that lie wholly in `floor..ceiling`, below `table` of `level`,
    /// which maps from `base` on. They are empty, and their first entries make a list of them from `cut` on: a processor that
    /// still remembers one finds no page in it.
    fn trim_level(
        &mut self,
        (table, level): (u64, usize),
        base: u64,
        (start, end): (u64, u64),
        gap: (u64, u64),
        cut: &mut u64,
    ) {
        let span = SPAN[level];
        let mut at = base.max(start & !(span - 1));
        while at < end && at < base + span * 512 {
            let slot = entry(table, at, level);
            let value = read(slot);
            if value & PRESENT != 0 && value & LARGE_BIT == 0 {
                let below = value & ADDRESS;
                if level > 2 {
                    self.trim_level((below, level - 1), at, (start, end), gap, cut);
                }
                if at >= gap.0 && at + span <= gap.1 {
                    write(slot, 0);
                    write(entry(below, 0, 1), *cut);
                    *cut = below;
                }
            }
            at += span;
        }
    }

    /// Frees a table of `level` with all below it, and the pages.
    fn free_below(&mut self, table: u64, level: usize) {
        let end = if level == 4 { 256 } else { 512 };
        let entries = api_mem::view(table).cast::<u64>();
        let value_at = |i: usize| read(entries.wrapping_add(i));
        let mut i = 0;
        while i < end {
            // Most tables are nearly empty: eight entries with one look.
            if i % 8 == 0 && (i..i + 8).fold(0, |all, i| all | value_at(i)) & (PRESENT | KEPT) == 0 {
                i += 8;
                continue;
            }
            let value = value_at(i);
            i += 1;
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
                drop(unsafe { PageFrame::from_raw(physical + i * PAGE) });
            }
        }
    }
}

impl Pager for Tables {
    fn new() -> Result<Tables> {
        let root = PageFrame::new()?.into_raw();
        #[cfg(not(any(feature = "host", feature = "process")))]
        {
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

    fn activate(&mut self) -> Option<u64> {
        #[cfg(not(any(feature = "host", feature = "process")))]
        load(self.root);
        None
    }

    fn deactivate() {
        #[cfg(not(any(feature = "host", feature = "process")))]
        load(EMPTY.load(Ordering::Relaxed));
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

    fn reclaim(&mut self, address: u64, rights: Prot) {
        if let Some((slot, _)) = self.find(address) {
            change(slot, |old| old & (ADDRESS | ACCESSED | DIRTY | LARGE_BIT) | bits(rights, true));
            // What it may do grew, but for entries without any right: a processor looks again after a fault.
            flush_page(address);
        }
    }

    fn mark_copied(&mut self, address: u64) {
        if let Some((slot, 1)) = self.find(address) {
            change(slot, |old| old | COPIED);
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
    fn map(&mut self, address: u64, frame: PageFrame, rights: Prot, own: bool) -> Result<()> {
        let slot = match self.find(address) {
            Some((slot, _)) => slot,
            None => self.make(address, 1)?.0,
        };
        debug_assert_eq!(read(slot), 0);
        write(slot, frame.into_raw() | bits(rights, own));
        Ok(())
    }

    fn map_large(&mut self, address: u64, physical: u64, rights: Prot) -> Result<bool> {
        let (slot, _) = self.make(address, 2)?;
        if read(slot) != 0 {
            return Ok(false);
        }
        write(slot, physical | bits(rights, true) | LARGE_BIT);
        Ok(true)
    }

    fn replace(&mut self, address: u64, frame: PageFrame, rights: Prot, own: bool) -> Option<PageFrame> {
        let (slot, level) = self.find(address)?;
        if level == 2 {
            // The page itself is not exchanged: only rights of the whole large page change.
            let rights = bits(rights, true);
            change(slot, |old| old & !(PRESENT | KEPT | WRITABLE | READABLE | NO_EXECUTE) | rights);
            self.forget_page(address);
            return Some(frame);
        }
        let physical = frame.into_raw();
        let old = change(slot, |old| {
            let keep = if old & ADDRESS == physical { old & (ACCESSED | DIRTY) } else { 0 };
            physical | bits(rights, own) | keep
        });
        self.forget_page(address);
        // SAFETY: the entry held a count of the old page.
        (old & (PRESENT | KEPT) != 0).then(|| unsafe { PageFrame::from_raw(old & ADDRESS) })
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
        self.forget_page(base);
        Ok(())
    }

    fn protect(&mut self, start: u64, end: u64, rights: &mut dyn FnMut(&Page) -> Prot) {
        let mut stale = Stale::default();
        self.walk(start, end, |address, slot, _| {
            let page = page_of(read(slot));
            let new = rights(&page);
            if new != page.rights {
                let new = bits(new, page.own);
                let kept = ADDRESS | ACCESSED | DIRTY | LARGE_BIT | COPIED | AGED;
                stale.add(address, change(slot, |old| old & kept | new));
            }
            ControlFlow::Continue(())
        });
        stale.forget(self.root);
    }

    fn take(&mut self, start: u64, end: u64, batch: &mut Batch) -> u64 {
        let (mut next, mut stale) = (end, Stale::default());
        let mut large: Option<(u64, u64)> = None;
        self.walk(start, end, |address, slot, level| {
            if level == 2 {
                large = Some((address & !(LARGE - 1), read(slot)));
                next = address;
                return ControlFlow::Break(());
            }
            let old = change(slot, |_| 0);
            let page = page_of(old);
            stale.add(address, old);
            // SAFETY: the entry held a count of the page.
            let frame = unsafe { PageFrame::from_raw(page.physical) };
            if batch.push(Taken { address, frame, own: page.own, copied: page.copied, dirty: page.dirty }) {
                ControlFlow::Continue(())
            } else {
                next = address + PAGE;
                ControlFlow::Break(())
            }
        });
        stale.forget(self.root);
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
                stale.add(address, change(slot, |old| old & !DIRTY));
            }
            ControlFlow::Continue(())
        });
        stale.forget(self.root);
    }

    fn age(&mut self, start: u64, end: u64) {
        let mut stale = Stale::default();
        self.walk(start, end, |address, slot, _| {
            stale.add(address, change(slot, |old| old & !ACCESSED | AGED));
            ControlFlow::Continue(())
        });
        stale.forget(self.root);
    }

    fn trim(&mut self, start: u64, end: u64, floor: u64, ceiling: u64) {
        let mut cut = 0;
        self.trim_level((self.root, 4), 0, (start, end), (floor, ceiling), &mut cut);
        if cut != 0 {
            // Processors may hold the tables themselves in their paging-structure caches, which forgetting any page empties.
            flush_all();
            forget_elsewhere(self.root, start, start + PAGE);
        }
        while cut != 0 {
            let table = cut;
            cut = read(entry(table, 0, 1));
            self.free_table(table);
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
            // With what processors set up to the change.
            let now = read(slot);
            if now & WRITABLE != old & WRITABLE {
                stale.add(base, now);
                changed(base, &page_of(now));
            }
            ControlFlow::Continue(())
        });
        stale.forget(self.root);
        result
    }

    /// Takes over one entry of a parent's, which changes with it; how many pages it has. None of one that is here already.
    fn fork_entry(&mut self, address: u64, theirs: Entry, level: usize) -> Result<u64> {
        let (slot, at) = match self.find(address) {
            Some(found) if level == 1 => found,
            _ => self.make(address, level)?,
        };
        if at == 1 && read(slot) & (PRESENT | KEPT) != 0 {
            return Ok(0);
        }
        debug_assert_eq!((at, read(slot)), (level, 0));
        let old = read(theirs);
        let pages = if level == 2 { LARGE_PAGES as u64 } else { 1 };
        let frame = |i: u64| {
            // SAFETY: the parent's entry holds a count of each of its pages, and is not changed meanwhile.
            core::mem::ManuallyDrop::new(unsafe { PageFrame::from_raw((old & ADDRESS) + i * PAGE) })
        };
        if old & OWN == 0 {
            write(slot, PageFrame::clone(&frame(0)).into_raw() | old & !ADDRESS);
            return Ok(1);
        }
        // Writable and not alone: a device is at work on it.
        if level == 1 && old & (WRITABLE | COPIED) == WRITABLE && !frame(0).is_unique() {
            write(slot, frame(0).duplicate()?.into_raw() | old & !ADDRESS);
            return Ok(1);
        }
        let both = old & !WRITABLE | COPIED;
        for i in 0..pages {
            PageFrame::clone(&frame(i)).into_raw();
        }
        write(slot, both);
        change(theirs, |old| old & !WRITABLE | COPIED);
        Ok(pages)
    }

    /// Frees a whole large page.
    fn release_large(&mut self, base: u64, old: u64) {
        if let Some((slot, 2)) = self.find(base) {
            write(slot, 0);
            self.forget_page(base);
        }
        for i in 0..LARGE_PAGES as u64 {
            // SAFETY: the entry held one count of each of its pages.
            drop(unsafe { PageFrame::from_raw((old & ADDRESS) + i * PAGE) });
        }
    }
}

#[cfg(any(test, feature = "process"))]
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
    /// The processor may touch these pages from now on without anybody being told.
    pub fn mark_accessed(&mut self, start: u64, end: u64) {
        self.walk(start, end, |_, slot, _| {
            change(slot, |old| old | ACCESSED);
            ControlFlow::Continue(())
        });
    }

    /// What the processor does when it writes.
    pub fn mark_written(&mut self, address: u64) {
        if let Some((slot, _)) = self.find(address) {
            write(slot, read(slot) | ACCESSED | DIRTY);
        }
    }

    /// The same for all pages of the range that may be written.
    pub fn mark_writable_written(&mut self, start: u64, end: u64) {
        self.walk(start, end, |_, slot, _| {
            let value = read(slot);
            if page_of(value).rights.contains(Prot::WRITE) {
                write(slot, value | ACCESSED | DIRTY);
            }
            ControlFlow::Continue(())
        });
    }

    /// Splits all large pages of the range. `ENOMEM` leaves some.
    pub fn split_all(&mut self, start: u64, end: u64) -> Result<()> {
        let mut at = start;
        while at < end {
            let mut large = None;
            self.walk(at, end, |address, _, level| {
                large = (level == 2).then_some(address & !(LARGE - 1));
                if large.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let Some(address) = large else { break };
            self.split(address + PAGE)?;
            at = address + LARGE;
        }
        Ok(())
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.free_below(self.root, 4);
        // SAFETY: the root's count was kept in `root`.
        drop(unsafe { PageFrame::from_raw(self.root) });
    }
}
