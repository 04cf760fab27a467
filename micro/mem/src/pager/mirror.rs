// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of a process of Linux: [`Tables`] keep the account, the host's mmap, mprotect and munmap do the work.
//!
//! Neighbours that are changed together become one call: pages are gathered in a run as long as address and memory go
//! on, and the run is mapped by [`Pager::flush`] or the first page that does not fit.
//!
//! The host tells nothing of accesses. A page that was made writable counts as written; marking it clean takes the right
//! away, so that the next write faults.

use super::x86::Tables;
use super::{Batch, LARGE, Page, Pager};
use crate::Rights;
use crate::{PAGE, USER_END};
use abi::Result;
use alloc::vec::Vec;
use api_mem::Frame;
use core::sync::atomic::{AtomicU64, Ordering};

/// The tables whose pages the host shows; 0 before the first.
static ACTIVE: AtomicU64 = AtomicU64::new(0);

/// The top-level table of the address space that the host shows.
pub fn root() -> Option<u64> {
    let root = ACTIVE.load(Ordering::Relaxed);
    (root != 0).then_some(root)
}

/// Pages that are to be mapped: `length` bytes at `address`, from `physical` on.
#[derive(Clone, Copy)]
struct Run {
    address: u64,
    physical: u64,
    length: u64,
    rights: Rights,
}

const NOTHING: Run = Run { address: 0, physical: 0, length: 0, rights: Rights::NONE };

pub(crate) struct Mirror {
    tables: Tables,
    run: Run,
    /// Where the host shows nothing any more, though the tables still hold pages: `take` comes in parts.
    gone: (u64, u64),
}

fn protection(rights: Rights) -> u32 {
    // Every page that can be written or executed can be read on x86; PROT_* have these bits.
    let bits = [(Rights::READ, 1), (Rights::WRITE, 2), (Rights::EXECUTE, 4)];
    bits.iter().filter(|(right, _)| rights.contains(*right)).map(|(_, bit)| bit).sum()
}

impl Mirror {
    fn is_active(&self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self.tables.root()
    }

    /// Adds a page to the run, or begins another one.
    fn add(&mut self, address: u64, physical: u64, length: u64, rights: Rights) {
        let run = &mut self.run;
        if run.length != 0 && run.rights == rights {
            let after = run.address + run.length == address && run.physical + run.length == physical;
            if after {
                run.length += length;
                return;
            }
            if address + length == run.address && physical + length == run.physical {
                *run = Run { address, physical, length: run.length + length, rights };
                return;
            }
        }
        self.flush();
        self.run = Run { address, physical, length, rights };
    }

    /// A new page, or one that replaces another.
    fn show(&mut self, address: u64, physical: u64, length: u64, rights: Rights) {
        if rights.contains(Rights::WRITE) {
            self.tables.mark_written(address);
        }
        if self.is_active() {
            self.add(address, physical, length, rights);
        }
        self.gone = (0, 0);
    }

    /// Pages that are there, neighbours with the same rights together: start, end, and PROT_*.
    pub(crate) fn shown(&mut self, each: &mut dyn FnMut(u64, u64, u32)) {
        self.flush();
        let mut run = (0, 0, 0);
        self.tables.visit(0, USER_END, &mut |address, page| {
            let rights = protection(page.rights);
            if run.1 == address && run.2 == rights {
                run.1 = address + PAGE;
            } else {
                if run.1 != 0 {
                    each(run.0, run.1, run.2);
                }
                run = (address, address + PAGE, rights);
            }
            false
        });
        if run.1 != 0 {
            each(run.0, run.1, run.2);
        }
    }

    fn protect_run(&self, (start, end, rights): (u64, u64, Rights)) {
        // SAFETY: a range of the program's. A host without room for one more mapping leaves the rights as they were.
        let done = unsafe { api_plat::pages::protect(start, end - start, protection(rights)) };
        if done.is_err() {
            out_of_mappings();
        }
    }
}

/// There is no way to tell the program: on Linux a page fault needs no mapping of its own.
#[cold]
fn out_of_mappings() -> ! {
    let reason = "the host has no room for another mapping of the program's memory: raise vm.max_map_count";
    api_plat::power_off(&api_plat::Status::Failed { reason: reason.into() })
}

impl Pager for Mirror {
    const CHUNKS: bool = true;

    fn new() -> Result<Self> {
        Ok(Mirror { tables: Tables::new()?, run: NOTHING, gone: (0, 0) })
    }

    fn activate(&mut self) {
        // SAFETY: everything below `USER_END` is the program's.
        unsafe { api_plat::pages::unmap(PAGE * 16, USER_END - PAGE * 16) };
        ACTIVE.store(self.tables.root(), Ordering::Relaxed);
        let mut pages = Vec::new();
        self.tables.visit(0, USER_END, &mut |address, page| {
            pages.push((address, page.physical, page.rights));
            false
        });
        for (address, physical, rights) in pages {
            self.add(address, physical, PAGE, rights);
        }
        self.flush();
    }

    fn deactivate() {
        // SAFETY: everything below `USER_END` is the program's.
        unsafe { api_plat::pages::unmap(PAGE * 16, USER_END - PAGE * 16) };
        ACTIVE.store(0, Ordering::Relaxed);
    }

    fn fork(
        &mut self,
        child: &mut Self,
        start: u64,
        end: u64,
        seen: &mut dyn FnMut(&Page, u64),
    ) -> Result<()> {
        self.flush();
        // Copies of single pages are all there is: a large page here is only a shorter account.
        let mut large = Vec::new();
        self.tables.visit(start, end, &mut |address, page| {
            if page.large && address % LARGE == 0 {
                large.push(address);
            }
            false
        });
        large.into_iter().try_for_each(|address| self.tables.split(address + PAGE))?;
        let mut runs: Vec<(u64, u64, Rights)> = Vec::new();
        let result =
            self.tables.fork_with(&mut child.tables, start, end, seen, &mut |address, page| match runs
                .last_mut()
            {
                Some((_, end, last)) if *end == address && *last == page.rights => *end += PAGE,
                _ => runs.push((address, address + PAGE, page.rights)),
            });
        if self.is_active() {
            runs.into_iter().for_each(|run| self.protect_run(run));
        }
        result
    }

    fn reclaim(&mut self, address: u64, rights: Rights) {
        self.flush();
        self.tables.reclaim(address, rights);
        if rights.contains(Rights::WRITE) {
            self.tables.mark_written(address);
        }
        if self.is_active() {
            self.protect_run((address, address + PAGE, rights));
        }
    }

    fn mark_copied(&mut self, address: u64) {
        self.tables.mark_copied(address);
    }

    fn page(&mut self, address: u64) -> Option<Page> {
        self.tables.page(address)
    }

    fn prepare(&mut self, address: u64) -> Result<()> {
        self.tables.prepare(address)
    }

    fn map(&mut self, address: u64, frame: Frame, rights: Rights, own: bool) -> Result<()> {
        let physical = frame.physical();
        self.tables.map(address, frame, rights, own)?;
        self.show(address, physical, PAGE, rights);
        Ok(())
    }

    fn map_large(&mut self, address: u64, physical: u64, rights: Rights) -> Result<bool> {
        let mapped = self.tables.map_large(address, physical, rights)?;
        if mapped {
            self.show(address, physical, LARGE, rights);
        }
        Ok(mapped)
    }

    fn replace(&mut self, address: u64, frame: Frame, rights: Rights, own: bool) -> Option<Frame> {
        self.flush();
        let old = self.tables.replace(address, frame, rights, own);
        if let Some(page) = self.tables.page(address) {
            self.show(address, page.physical, PAGE, rights);
            // The old page may be reused as soon as it is given back.
            self.flush();
        }
        old
    }

    fn split(&mut self, address: u64) -> Result<()> {
        self.tables.split(address)
    }

    fn protect(&mut self, start: u64, end: u64, rights: &mut dyn FnMut(&Page) -> Rights) {
        self.flush();
        if self.is_active() {
            let mut runs: Vec<(u64, u64, Rights)> = Vec::new();
            self.tables.visit(start, end, &mut |address, page| {
                let new = rights(page);
                match runs.last_mut() {
                    _ if new == page.rights => {}
                    Some((_, end, last)) if *end == address && *last == new => *end += PAGE,
                    _ => runs.push((address, address + PAGE, new)),
                }
                false
            });
            runs.into_iter().for_each(|run| self.protect_run(run));
        }
        self.tables.protect(start, end, &mut |page| rights(page));
        let mut written = Vec::new();
        self.tables.visit(start, end, &mut |address, page| {
            if page.rights.contains(Rights::WRITE) && !page.dirty {
                written.push(address);
            }
            false
        });
        written.into_iter().for_each(|address| self.tables.mark_written(address));
    }

    fn take(&mut self, start: u64, end: u64, batch: &mut Batch) -> u64 {
        self.flush();
        let (from, to) = self.gone;
        if self.is_active() && !(from <= start && end <= to) {
            // Most of what a program replaces by something else it never touched.
            if self.tables.holds(start, end) {
                // SAFETY: a range of the program's.
                unsafe { api_plat::pages::unmap(start, end - start) };
            }
            self.gone = (start, end);
        }
        self.tables.take(start, end, batch)
    }

    fn visit(&mut self, start: u64, end: u64, seen: &mut dyn FnMut(u64, &Page) -> bool) {
        let mut cleaned = Vec::new();
        self.tables.visit(start, end, &mut |address, page| {
            let clean = seen(address, page);
            if clean && page.dirty {
                cleaned.push((address, page.rights.without(Rights::WRITE)));
            }
            clean
        });
        for (address, rights) in cleaned {
            if self.is_active() {
                self.protect_run((address, address + PAGE, rights));
            }
            self.tables.protect(address, address + PAGE, &mut |_| rights);
        }
    }

    fn trim(&mut self, start: u64, end: u64, floor: u64, ceiling: u64) {
        self.tables.trim(start, end, floor, ceiling);
    }

    fn table_bytes(&self) -> u64 {
        self.tables.table_bytes()
    }

    fn flush(&mut self) {
        let run = core::mem::replace(&mut self.run, NOTHING);
        if run.length == 0 {
            return;
        }
        // SAFETY: a range of the program's.
        let mapped =
            unsafe { api_plat::pages::map(run.address, run.physical, run.length, protection(run.rights)) };
        if mapped.is_err() {
            out_of_mappings();
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // The next space was activated, which took these pages away.
        if self.is_active() {
            ACTIVE.store(0, Ordering::Relaxed);
        }
    }
}
