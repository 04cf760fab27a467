// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of a process of Linux: [`Tables`] keep the account, the host's mmap, mprotect and munmap do the work.
//!
//! Neighbours that are changed together become one call: pages are gathered in a run as long as address and memory go
//! on, and the run is mapped by [`Pager::flush`] or the first page that does not fit.
//!
//! The host tells nothing of accesses. A page that was made writable counts as written; marking it clean takes the right
//! away, so that the next write faults.
//!
//! Each address space is shown by a host process as long as there are enough of them (`api_plat::pages::enter`). What the
//! host shows is a part of the account, with the same rights or fewer: the rest appears when it is touched
//! ([`Pager::show_again`]), with its neighbours. What is taken from a space that is not active is noted, and taken from the
//! host's view before the space goes on.
//!
//! A space that is new takes over a host process with what it shows of the one before, as far as that is the same (`shown`): a
//! child of a program that forks again and again finds its text there.

use super::shown::{Leftovers, Run, Shown};
#[cfg(test)]
use super::views::{self as host, now_ns};
use super::x86::Tables;
use super::{Batch, LARGE, Page, Pager};
use crate::Prot;
use crate::fork::Written;
use crate::space::here;
use crate::{PAGE, USER_END};
use abi::Result;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::{Guard, SpinLock};
use api_mem::PageFrame;
use api_plat::MAX_CPUS;
#[cfg(not(test))]
use api_plat::{now_ns, pages as host};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// For each processor the tables whose pages the host shows it; 0 for none.
static ACTIVE: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// The running processor's.
fn active() -> &'static AtomicU64 {
    &ACTIVE[here()]
}

/// The top-level table of the address space that the host shows.
pub fn root() -> Option<u64> {
    let root = active().load(Ordering::Relaxed);
    (root != 0).then_some(root)
}

/// What each host process shows, whether its space is alive or gone.
static RECORDS: [SpinLock<Shown>; host::MAX_PROCESSES] =
    [const { SpinLock::new(Shown::new()) }; host::MAX_PROCESSES];
/// For each processor the host process that it is in.
static HERE: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

/// The record of the host process that the running processor is in.
fn record() -> Guard<'static, Shown> {
    RECORDS[HERE[here()].load(Ordering::Relaxed)].lock()
}

pub(crate) struct Mirror {
    tables: Tables,
    /// Pages that are to be mapped.
    run: Run,
    /// The host shows all pages.
    is_whole: bool,
    stale: Stale,
    /// Pages that are shown as soon as the space is active for the first time.
    expected: [u64; Written::MAX],
    expects: usize,
    /// It was active before.
    was_active: bool,
    /// Pages were aged ([`Pager::age`]), here or in a parent: the host shows none of them that does not count as accessed.
    was_aged: bool,
}

/// Ranges of a space that is not active, of which the host may show what is no longer true.
#[derive(Default)]
struct Stale {
    ranges: [(u64, u64); Stale::MAX],
    count: usize,
    /// There were too many: everything is.
    all: bool,
}

impl Stale {
    const MAX: usize = 16;

    fn add(&mut self, start: u64, end: u64) {
        if let Some((from, to)) = self.ranges[..self.count].last_mut()
            && start <= *to
            && end >= *from
        {
            (*from, *to) = ((*from).min(start), (*to).max(end));
        } else if self.count < Stale::MAX {
            self.ranges[self.count] = (start, end);
            self.count += 1;
        } else {
            self.all = true;
        }
    }
}

/// A space of so few runs of pages is shown as a whole when it becomes active and nothing of it is shown: it is a program
/// that was just loaded. Spaces with more tables than that are not looked at.
const FEW_RUNS: usize = 24;
const FEW_TABLES: u64 = 32;
/// Pages are shown with those around them that are in the same part of so many bytes: the runs next to them, so many in all,
/// because each is a call of the host. Those that are shown already do not count.
const AROUND: u64 = 128 << 10;
const RUNS_AROUND: usize = 6;
/// Most pages that are compared when a space takes over what a host process shows: 10 ns each.
const COMPARED: u64 = 4096;
/// The host shows nothing of the program below.
const LOWEST: u64 = PAGE * 16;

fn protection(rights: Prot) -> u32 {
    // Every page that can be written or executed can be read on x86; PROT_* have these bits.
    let bits = [(Prot::READ, 1), (Prot::WRITE, 2), (Prot::EXECUTE, 4)];
    bits.iter().filter(|(right, _)| rights.contains(*right)).map(|(_, bit)| bit).sum()
}

/// Pages with new rights: start and end of neighbours that have the same. As many as a program has pages at worst.
#[derive(Default)]
struct Changed {
    runs: Vec<(u64, u64, Prot)>,
    /// There was no memory for some of them.
    is_incomplete: bool,
}

impl Changed {
    /// The page behind those before it.
    fn add(&mut self, address: u64, rights: Prot) {
        if let Some((_, end, last)) = self.runs.last_mut()
            && *end == address
            && *last == rights
        {
            *end += PAGE;
        } else if self.runs.reserve_fallibly(1).is_ok() {
            self.runs.push((address, address + PAGE, rights));
        } else {
            self.is_incomplete = true;
        }
    }
}

impl Mirror {
    fn is_active(&self) -> bool {
        active().load(Ordering::Relaxed) == self.tables.root()
    }

    /// The running processor is not in this space, and what the host shows of a range is no longer true. Where another processor
    /// is in the space, its pages go at once, because its threads may be using them; otherwise before the space goes on.
    fn forget(&mut self, start: u64, end: u64) {
        let root = self.tables.root();
        if ACTIVE.iter().any(|active| active.load(Ordering::Relaxed) == root) {
            // SAFETY: a range of the program's.
            match unsafe { host::unmap_in(root, start, end - start) } {
                Some((process, true)) => RECORDS[process].lock().remove(start, end),
                Some((process, false)) => RECORDS[process].lock().clear(),
                None => {}
            }
            self.is_whole = false;
        } else {
            self.stale.add(start, end);
        }
    }

    /// Adds a page to the run, or begins another one.
    fn add(&mut self, address: u64, physical: u64, length: u64, rights: Prot) {
        if self.was_aged {
            self.tables.mark_accessed(address, address + length);
        }
        let mut new = Run { address, physical, length, rights };
        if self.run.length != 0 {
            if self.run.extend(&new) {
                return;
            }
            if new.extend(&self.run) {
                self.run = new;
                return;
            }
        }
        self.flush();
        self.run = new;
    }

    /// A new page, or one that replaces another.
    fn show(&mut self, address: u64, physical: u64, length: u64, rights: Prot) {
        if rights.contains(Prot::WRITE) {
            self.tables.mark_written(address);
        }
        if self.is_active() {
            self.add(address, physical, length, rights);
        }
    }

    /// Pages that are there, neighbours with the same rights together: start, end, and PROT_*. All of them are shown.
    pub(crate) fn shown(&mut self, each: &mut dyn FnMut(u64, u64, u32)) {
        self.flush();
        if !self.is_whole && self.is_active() {
            let (runs, all) = self.runs(0, USER_END, usize::MAX);
            self.is_whole = all;
            self.add_runs(&runs);
            self.flush();
        }
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

    /// Gives what is shown of a range other rights.
    /// Gives the pages of a range that changed their new rights. Where there was no memory for the list nothing of the range is
    /// shown any more, and appears anew when it is touched.
    fn protect_runs(&mut self, changed: Changed, start: u64, end: u64) {
        if changed.is_incomplete {
            self.hide(start, end);
            self.is_whole = false;
            return;
        }
        changed.runs.into_iter().for_each(|run| self.protect_run(run));
    }

    fn protect_run(&mut self, (start, end, rights): (u64, u64, Prot)) {
        let mut at = start;
        while at < end {
            let Some((from, to)) = self.next_to_protect(at, end, rights) else { break };
            // SAFETY: a range of the program's. The host refuses where it does not show all of it, or has no room for one more
            // mapping; what it shows then goes, and appears anew when it is touched.
            if unsafe { host::protect(from, to - from, protection(rights)) }.is_err() {
                self.hide(start, end);
                self.is_whole = false;
                return;
            }
            record().protect(from, to, rights);
            at = to;
        }
    }

    /// The next part of a range that the host shows with other rights than these: neighbours together, or all where there
    /// is no record.
    fn next_to_protect(&self, start: u64, end: u64, rights: Prot) -> Option<(u64, u64)> {
        let record = record();
        let Some(known) = record.known() else { return Some((start, end)) };
        let (mut from, mut to) = (0, start);
        while let Some(run) = known.next(to, end) {
            match (run.rights != rights, from != 0) {
                (true, false) => (from, to) = (run.address, run.end()),
                (true, true) if run.address == to => to = run.end(),
                (false, false) => to = run.end(),
                _ => break,
            }
        }
        (from != 0).then_some((from, to))
    }

    /// Takes a range of the active space out of what the host shows.
    fn hide(&mut self, start: u64, end: u64) {
        // SAFETY: a range of the program's.
        let is_exact = unsafe { host::unmap(start, end - start) };
        match is_exact && (start, end) != (LOWEST, USER_END) {
            true => record().remove(start, end),
            false => record().clear(),
        }
        self.is_whole &= is_exact;
    }

    /// What the host process shows was another space's. What is the same in this one stays; the rest goes. Pages that are expected come
    /// in place of what is there, and so do all when they are about to be shown (`is_replaced`).
    fn take_over(&mut self, is_replaced: bool) {
        self.is_whole = false;
        let (mut leftovers, mut left, mut at) = (Leftovers::new(), COMPARED, 0);
        loop {
            let next = record().known().map(|known| known.next(at, USER_END));
            let Some(next) = next else {
                // Nobody knows what is shown, or not any more: what is left of a run in whose middle pages went may be one too many.
                self.hide(LOWEST, USER_END);
                return self.show_expected();
            };
            let Some(run) = next else { break };
            at = run.end();
            let pages = run.length / PAGE;
            let is_compared = pages <= left;
            left -= if is_compared { pages } else { 0 };
            for i in 0..pages {
                let (address, physical) = (run.address + i * PAGE, run.physical + i * PAGE);
                let stays = self.expected[..self.expects].contains(&address)
                    || is_compared
                        && self.tables.page(address).is_some_and(|page| {
                            is_replaced || page.physical == physical && page.rights.contains(run.rights)
                        });
                if let Some((start, end)) = leftovers.page(address, stays) {
                    self.hide(start, end);
                }
            }
        }
        if let Some((start, end)) = leftovers.end() {
            self.hide(start, end);
        }
        self.show_expected();
    }

    /// Shows the pages that were expected to be used.
    fn show_expected(&mut self) {
        let expected = self.expected;
        for address in &expected[..core::mem::take(&mut self.expects)] {
            match self.tables.page(*address) {
                Some(page) => {
                    let (physical, rights) = (page.physical, page.rights);
                    self.add_runs(&[Run { address: *address, physical, length: PAGE, rights }]);
                }
                None => self.hide(*address, *address + PAGE),
            }
        }
        self.flush();
    }

    /// Maps a run. Where the host has as many mappings as it allows (vm.max_map_count) all that it shows of the space goes, and
    /// appears anew when it is touched: the account is here, and the host's mappings are to it what a TLB is to page tables.
    fn map_run(&mut self, run: Run) {
        let map = || {
            // SAFETY: a range of the program's.
            unsafe { host::map(run.address, run.physical, run.length, protection(run.rights)) }
        };
        if map().is_err() {
            self.hide(LOWEST, USER_END);
            self.is_whole = false;
            if map().is_err() {
                out_of_mappings();
            }
        }
        record().add(run);
    }

    /// The pages of a range as runs, as many as there is room for; false if there are more.
    fn runs(&mut self, start: u64, end: u64, most: usize) -> (Vec<Run>, bool) {
        let mut runs: Vec<Run> = Vec::new();
        let mut too_many = false;
        self.tables.visit(start, end, &mut |address, page| {
            let count = runs.len();
            let new = Run { address, physical: page.physical, length: PAGE, rights: page.rights };
            if !runs.last_mut().is_some_and(|run| run.extend(&new)) {
                match count >= most || runs.reserve_fallibly(1).is_err() {
                    true => too_many = true,
                    false => runs.push(new),
                }
            }
            false
        });
        (runs, !too_many)
    }

    fn add_run(&mut self, run: &Run) {
        self.add(run.address, run.physical, run.length, run.rights);
    }

    /// Shows runs, but for those that are shown already.
    fn add_runs(&mut self, runs: &[Run]) {
        for run in runs {
            let is_shown = record().known().is_some_and(|known| known.holds(run));
            if !is_shown {
                self.add_run(run);
            }
        }
    }
}

/// Not even for one: the kernel's own are all that is left, which are few.
#[cfg(test)]
fn out_of_mappings() -> ! {
    panic!("the host has no room for a mapping though it shows nothing");
}

#[cfg(not(test))]
#[cold]
fn out_of_mappings() -> ! {
    let reason = "the host has no room for a mapping of the program's memory: raise vm.max_map_count";
    api_plat::power_off(&api_plat::Status::Failed { reason: reason.into() })
}

/// Another host: its processes show nothing, and the processor is in the first one.
#[cfg(test)]
pub(super) fn begin() {
    RECORDS.iter().for_each(|record| record.lock().clear());
    HERE[0].store(0, Ordering::Relaxed);
    ACTIVE[0].store(0, Ordering::Relaxed);
}

impl Pager for Mirror {
    const CHUNKS: bool = true;

    fn new() -> Result<Self> {
        let (tables, stale) = (Tables::new()?, Stale::default());
        let expected = [0; Written::MAX];
        Ok(Mirror {
            tables,
            run: Run::NOTHING,
            is_whole: false,
            stale,
            expected,
            expects: 0,
            was_active: false,
            was_aged: false,
        })
    }

    fn expect(&mut self, address: u64) {
        if let Some(slot) = self.expected.get_mut(self.expects) {
            *slot = address;
            self.expects += 1;
        }
    }

    fn activate(&mut self) -> Option<u64> {
        let was_active = core::mem::replace(&mut self.was_active, true);
        let (process, is_shown) = host::enter(self.tables.root());
        HERE[here()].store(process, Ordering::Relaxed);
        active().store(self.tables.root(), Ordering::Relaxed);
        let stale = core::mem::take(&mut self.stale);
        let mut took = None;
        if !is_shown {
            let begin = now_ns();
            if self.was_aged {
                // What another space leaves would be touched without a fault.
                self.hide(LOWEST, USER_END);
            }
            let is_small = !self.was_aged && self.tables.table_bytes() <= FEW_TABLES * PAGE;
            let (runs, is_few) =
                if is_small { self.runs(0, USER_END, FEW_RUNS) } else { (Vec::new(), false) };
            self.take_over(is_few);
            if is_few {
                // Unless the host has no room for one of them.
                self.is_whole = true;
                self.add_runs(&runs);
                self.flush();
            }
            took = Some(now_ns() - begin);
        } else if stale.all {
            self.hide(LOWEST, USER_END);
            self.is_whole = false;
        } else {
            for (start, end) in &stale.ranges[..stale.count] {
                self.hide(*start, *end);
                self.is_whole = false;
            }
        }
        took.filter(|_| was_active)
    }

    fn deactivate() {
        // Nothing of the program runs here before the next space is active, and the host shows that one then.
        active().store(0, Ordering::Relaxed);
    }

    fn show_again(&mut self, address: u64) {
        if !self.is_active() {
            return;
        }
        if self.was_aged {
            // Neighbours would count as accessed.
            if let Some(page) = self.tables.page(address) {
                self.add(address, page.physical, PAGE, page.rights);
            }
            return;
        }
        let group = address & !(AROUND - 1);
        let (mut runs, _) = self.runs(group, group + AROUND, (AROUND / PAGE) as usize);
        let is_it = |run: &Run| (run.address..run.end()).contains(&address);
        // The one that was touched in any case: the fault says that it is not shown.
        let record = record();
        runs.retain(|run| is_it(run) || !record.known().is_some_and(|known| known.holds(run)));
        drop(record);
        if let Some(here) = runs.iter().position(is_it) {
            let first = here.saturating_sub(RUNS_AROUND / 2).min(runs.len().saturating_sub(RUNS_AROUND));
            runs[first..runs.len().min(first + RUNS_AROUND)].iter().for_each(|run| self.add_run(run));
        } else if let Some(page) = self.tables.page(address) {
            // There was no memory for the list.
            self.add(address, page.physical, PAGE, page.rights);
        }
    }

    fn fork(
        &mut self,
        child: &mut Self,
        start: u64,
        end: u64,
        seen: &mut dyn FnMut(&Page, u64),
    ) -> Result<()> {
        self.flush();
        child.was_aged |= self.was_aged;
        // Copies of single pages are all there is: a large page here is only a shorter account.
        self.tables.split_all(start, end)?;
        let mut runs = Changed::default();
        let result = self.tables.fork_with(&mut child.tables, start, end, seen, &mut |address, page| {
            runs.add(address, page.rights);
        });
        match self.is_active() {
            true => self.protect_runs(runs, start, end),
            false => self.forget(start, end),
        }
        result
    }

    fn reclaim(&mut self, address: u64, rights: Prot) {
        self.flush();
        self.tables.reclaim(address, rights);
        if rights.contains(Prot::WRITE) {
            self.tables.mark_written(address);
        }
        if self.is_active()
            && let Some(page) = self.tables.page(address)
        {
            // The host need not show it at present.
            self.add(address, page.physical, PAGE, rights);
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

    fn map(&mut self, address: u64, frame: PageFrame, rights: Prot, own: bool) -> Result<()> {
        let physical = frame.physical();
        self.tables.map(address, frame, rights, own)?;
        self.show(address, physical, PAGE, rights);
        Ok(())
    }

    fn map_large(&mut self, address: u64, physical: u64, rights: Prot) -> Result<bool> {
        let mapped = self.tables.map_large(address, physical, rights)?;
        if mapped {
            self.show(address, physical, LARGE, rights);
        }
        Ok(mapped)
    }

    fn replace(&mut self, address: u64, frame: PageFrame, rights: Prot, own: bool) -> Option<PageFrame> {
        self.flush();
        if !self.is_active() {
            self.forget(address, address + PAGE);
        }
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

    fn protect(&mut self, start: u64, end: u64, rights: &mut dyn FnMut(&Page) -> Prot) {
        self.flush();
        if self.is_active() {
            let mut runs = Changed::default();
            self.tables.visit(start, end, &mut |address, page| {
                let new = rights(page);
                if new != page.rights {
                    runs.add(address, new);
                }
                false
            });
            self.protect_runs(runs, start, end);
        } else {
            self.forget(start, end);
        }
        self.tables.protect(start, end, &mut |page| rights(page));
        self.tables.mark_writable_written(start, end);
    }

    fn conceal(&mut self, start: u64, end: u64) {
        self.flush();
        if !self.is_active() {
            self.forget(start, end);
        // Most of what a program replaces by something else it never touched.
        } else if self.tables.holds(start, end) {
            self.hide(start, end);
        }
    }

    fn take(&mut self, start: u64, end: u64, batch: &mut Batch) -> u64 {
        self.tables.take(start, end, batch)
    }

    fn visit(&mut self, start: u64, end: u64, seen: &mut dyn FnMut(u64, &Page) -> bool) {
        let mut cleaned: Vec<(u64, Prot)> = Vec::new();
        self.tables.visit(start, end, &mut |address, page| {
            let clean = seen(address, page);
            if clean && page.dirty {
                // A page that stays as it was is stored once more than it need be.
                if cleaned.reserve_fallibly(1).is_err() {
                    return false;
                }
                cleaned.push((address, page.rights.without(Prot::WRITE)));
            }
            clean
        });
        for (address, rights) in cleaned {
            match self.is_active() {
                true => self.protect_run((address, address + PAGE, rights)),
                false => self.forget(address, address + PAGE),
            }
            self.tables.protect(address, address + PAGE, &mut |_| rights);
        }
    }

    fn age(&mut self, start: u64, end: u64) {
        self.flush();
        if !self.tables.holds(start, end) {
            return;
        }
        self.was_aged = true;
        self.tables.age(start, end);
        match self.is_active() {
            true => self.hide(start, end),
            false => self.forget(start, end),
        }
        self.is_whole = false;
    }

    fn trim(&mut self, start: u64, end: u64, floor: u64, ceiling: u64) {
        self.tables.trim(start, end, floor, ceiling);
    }

    fn table_bytes(&self) -> u64 {
        self.tables.table_bytes()
    }

    fn flush(&mut self) {
        let run = core::mem::replace(&mut self.run, Run::NOTHING);
        // What is not shown here appears when it is touched.
        if run.length == 0 || !self.is_active() {
            return;
        }
        self.map_run(run);
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let root = self.tables.root();
        for active in ACTIVE.iter().filter(|active| active.load(Ordering::Relaxed) == root) {
            active.store(0, Ordering::Relaxed);
        }
        let Some(process) = host::leave(self.tables.root()) else { return };
        // The next space that it shows takes over what fits. What nobody knows goes, while others run.
        let mut record = RECORDS[process].lock();
        if record.known().is_none() {
            host::unmap_all_in(process);
            record.clear();
        }
    }
}
