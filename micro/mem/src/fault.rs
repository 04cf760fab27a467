// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Page faults: the page that was missing appears.
//!
//! One lookup in the tree, one page, one entry; what can be had cheaply with it comes along: the neighbours of a
//! file's page that are in memory anyway, and, where anonymous memory is used in ascending order, the next pages.

use crate::commit;
use crate::fork::Written;
use crate::pager::{LARGE, LARGE_PAGES, Machine, Page, Pager};
use crate::space::{Inner, Space};
use crate::text::Text;
use crate::vma::VmFlags;
use crate::vma::{Backing, Large, MappedFile};
use crate::{PAGE, Prot, USER_END};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::{PageFrame, Pages};
use api_plat::{Access, FaultOutcome};
use core::mem::ManuallyDrop;

/// Pages of a file mapped with the one that was asked for: an aligned group (Linux' fault_around_bytes, 64 KiB). Where a
/// fault is a signal and a call of the host it is larger for what cannot be written, for those pages cost nothing.
const AROUND: u64 = 16;
const AROUND_READ_ONLY: u64 = if Machine::CHUNKS { 64 } else { AROUND };
/// Most pages of a file copied at once where one after the other is written: relocation does that.
const COPIES_AHEAD: u32 = if Machine::CHUNKS { 16 } else { 1 };
/// Variables of programs and libraries: writable mappings of at most so many pages of files of the image, which are copied
/// by [`COPIES_AHEAD`] at the first touch. Reading them first, as relocation does, would cost a second fault.
const VARIABLES_MAX: u64 = 256;
/// Most pages of anonymous memory made at once for sequential use.
const AHEAD: u32 = if Machine::CHUNKS { LARGE_PAGES as u32 } else { 16 };
/// Pages of the smallest piece of contiguous memory, and how many pieces there may be before they get larger.
const CHUNK_LEAST: u64 = 16;
const CHUNKS_MAX: u64 = 16_384;
/// A large page is made unasked only where this share of memory is free: a machine's memory is the host's.
const LARGE_FREE_SHARE: u64 = 2;
/// And at least so many pages (256 MiB).
const LARGE_LEAST: u64 = 1 << 16;
/// With less than this share free, memory is short: nothing is made ahead.
const SHORT_SHARE: u64 = 8;
/// Most pages that a mapping of a program may have to be made ready at the start: those of a file that are only read cost no
/// memory.
const READY_READ_ONLY: u64 = 128;
const READY_WRITTEN: u64 = 16;
/// Pages below a stack that must stay unmapped for it to grow (Linux' stack_guard_gap).
const STACK_GAP: u64 = 256 * PAGE;

/// What has to be done without the lock.
pub(crate) enum Step {
    Done(FaultOutcome),
    /// A page of a file; `for_write` where writing it will be writing the file.
    Fetch {
        file: Arc<MappedFile>,
        index: u64,
        for_write: bool,
    },
}

const RESOLVED: Step = Step::Done(FaultOutcome::Resolved);
const NO_MEMORY: Step = Step::Done(FaultOutcome::OutOfMemory);

/// Others may run after so many bytes of a range whose pages are made.
pub(crate) const BETWEEN_OTHERS: u64 = 1 << 20;

impl Space {
    /// A page fault at `address`. May block in the file's [`api_mem::PageSource::page`].
    pub fn fault(&self, address: u64, access: Access) -> FaultOutcome {
        let page = address & !(PAGE - 1);
        let mut fetched: Option<(Arc<MappedFile>, u64, PageFrame)> = None;
        loop {
            let step = {
                let mut inner = self.lock();
                let step = inner.fault(page, access, fetched.take());
                inner.pager.flush();
                step
            };
            match step {
                Step::Done(outcome) => return outcome,
                Step::Fetch { file, index, for_write } => {
                    match file.source.page(index, for_write) {
                        Ok(frame) => fetched = Some((file, index, frame)),
                        Err(abi::errno::ENOMEM) => return FaultOutcome::OutOfMemory,
                        Err(_) => return FaultOutcome::Bus,
                    };
                }
            }
        }
    }

    /// A program was loaded: what its start is going to touch is there before it runs. Only where a fault is a signal and a call of the
    /// host: elsewhere it costs less than a page that nobody needs.
    pub fn make_ready(&self) {
        if Machine::CHUNKS {
            self.lock().make_ready(0, USER_END);
        }
    }

    /// Makes every page of the range appear, up to the first that does not (MAP_POPULATE, mlock): behind the end of a file
    /// none does, and a mapping may be terabytes long. False where one did not.
    pub fn populate(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let access = {
                let mut inner = self.lock();
                let Some((start, vma)) = inner.tree.first_overlap(at, end) else { return true };
                let (rights, shared, vma_end) = (vma.flags.rights, vma.flags.shared, vma.end);
                if rights.is_none() {
                    // A reservation may be terabytes long.
                    at = vma_end;
                    continue;
                }
                at = at.max(start);
                let writes = rights.contains(Prot::WRITE) && !shared;
                let there = inner.pager.page(at).is_some_and(|page| page.own || !writes);
                match there {
                    true => None,
                    false if writes => Some(Access::Write),
                    false => Some(Access::Read),
                }
            };
            if access.is_some_and(|access| self.fault(at, access) != FaultOutcome::Resolved) {
                return false;
            }
            at += PAGE;
            if at.is_multiple_of(BETWEEN_OTHERS) {
                api_sched::cond_resched();
            }
        }
        true
    }
}

/// True when a large page is worth its memory: where it was asked for as long as memory is not short, in sequential
/// use as long as it is plentiful.
fn large_pays(large: Large, sequential: bool) -> bool {
    let (total, free) = api_mem::statistics();
    let wanted = large == Large::Always && free > total / SHORT_SHARE;
    wanted || (sequential && free > total / LARGE_FREE_SHARE && free > LARGE_LEAST)
}

pub(crate) fn borrowed(physical: u64) -> ManuallyDrop<PageFrame> {
    // SAFETY: used only while the page-table entry, whose count this is, stays as it is: under the space's lock. It is
    // not dropped.
    ManuallyDrop::new(unsafe { PageFrame::from_raw(physical) })
}

impl Inner {
    /// Makes the pages of the mappings that begin in the range and are small appear, as far as they are at hand and memory is plentiful.
    pub(crate) fn make_ready(&mut self, start: u64, end: u64) {
        let mut ranges = Vec::new();
        for (from, vma) in self.tree.starting_from(start).take_while(|(from, _)| **from < end) {
            let VmFlags { rights, shared, grows_down, .. } = vma.flags;
            let writes = rights.contains(Prot::WRITE);
            let most = match vma.backing {
                Backing::File { .. } if !writes => READY_READ_ONLY,
                Backing::File { .. } | Backing::Anonymous => READY_WRITTEN,
                Backing::Stubs | Backing::Fixed => 0,
            };
            // Of text with sites each page that is not common costs a copy.
            let is_apart = shared || grows_down || rights.is_none() || vma.text.is_some();
            let is_wanted = !is_apart && (vma.end - from) / PAGE <= most;
            if is_wanted && ranges.reserve_fallibly(1).is_ok() {
                ranges.push((*from, vma.end, if writes { Access::Write } else { Access::Read }));
            }
        }
        for (from, to, access) in ranges {
            for address in (from..to).step_by(PAGE as usize) {
                let (total, free) = api_mem::statistics();
                if free < total / SHORT_SHARE {
                    return;
                }
                let is_there = self.pager.page(address).is_some();
                if !is_there
                    && !matches!(self.fault(address, access, None), Step::Done(FaultOutcome::Resolved))
                {
                    break;
                }
            }
        }
        self.pager.flush();
    }

    fn fault(
        &mut self,
        address: u64,
        access: Access,
        fetched: Option<(Arc<MappedFile>, u64, PageFrame)>,
    ) -> Step {
        let Some((start, vma)) = self.tree.find_mut(address) else { return self.grow_stack(address, access) };
        let rights = vma.flags.rights;
        if !rights.allow(access) {
            return Step::Done(FaultOutcome::Segv { mapped: true });
        }
        let present = self.pager.page(address);
        if let Some(page) = present
            && page.rights.allow(access)
        {
            self.pager.show_again(address);
            return RESOLVED;
        }
        match &vma.backing {
            Backing::Anonymous => match present {
                Some(page) => self.make_own(address, page, rights),
                // One page of zeros for all that is only read would cost the host a mapping for each page.
                None if access == Access::Write || Machine::CHUNKS => {
                    let end = vma.end;
                    let expected = vma.streak.0 == address;
                    let count = if expected { (vma.streak.1 * 2).min(AHEAD) } else { 1 };
                    let large = vma.flags.large;
                    if vma.flags.on_fault {
                        // What is not touched is not to be locked.
                        return self.make_page(address, rights);
                    }
                    let (step, next) = self.make_anonymous(address, start, end, rights, count, large);
                    if let Some((_, vma)) = self.tree.find_mut(address) {
                        vma.streak = (next, count);
                    }
                    step
                }
                None => {
                    match self.pager.map(address, self.zero.clone(), rights.without(Prot::WRITE), false) {
                        Ok(()) => RESOLVED,
                        Err(_) => NO_MEMORY,
                    }
                }
            },
            Backing::File { file, index } => {
                let (file, shared) = (file.clone(), vma.flags.shared);
                let (first, end) = (*index, vma.end);
                let text = vma.text.clone();
                let streak = vma.streak;
                let view = View { file, first, start, end, rights, shared, text };
                if Machine::CHUNKS
                    && (end - start) / PAGE <= VARIABLES_MAX
                    && rights.contains(Prot::WRITE)
                    && !shared
                    && self.copy_variables(address, &view)
                {
                    return RESOLVED;
                }
                let step = self.fault_file(address, access, &view, present, fetched);
                if COPIES_AHEAD > 1
                    && access == Access::Write
                    && !shared
                    && matches!(step, Step::Done(FaultOutcome::Resolved))
                {
                    let count = if streak.0 == address { (streak.1 * 2).min(COPIES_AHEAD) } else { 1 };
                    let next = self.copy_ahead(address + PAGE, &view, count - 1);
                    if let Some((_, vma)) = self.tree.find_mut(address) {
                        vma.streak = (next, count);
                    }
                }
                step
            }
            // All their pages were mapped at once, with the rights they have.
            Backing::Stubs | Backing::Fixed => Step::Done(FaultOutcome::Segv { mapped: true }),
        }
    }

    /// New zeroed memory from `address` on: `count` pages as far as they are free, or a large page; and where it ends.
    fn make_anonymous(
        &mut self,
        address: u64,
        start: u64,
        end: u64,
        rights: Prot,
        count: u32,
        large: Large,
    ) -> (Step, u64) {
        let base = address & !(LARGE - 1);
        if large != Large::Never
            && base >= start
            && base + LARGE <= end
            && large_pays(large, count >= AHEAD && base == address)
            && let Ok(pages) = Pages::new(LARGE_PAGES)
        {
            let physical = pages.physical();
            if self.pager.map_large(base, physical, rights) == Ok(true) {
                pages.into_raw();
                self.count_resident(true, LARGE_PAGES as i64);
                return (RESOLVED, base + LARGE);
            }
        }
        if Machine::CHUNKS
            && let Some(next) = self.make_chunk(address, start, end, rights, count)
        {
            return (RESOLVED, next);
        }
        match self.make_page(address, rights) {
            Step::Done(FaultOutcome::Resolved) => (RESOLVED, self.make_ahead(address, end, rights, count)),
            failed => (failed, address),
        }
    }

    /// One page of new zeroed memory.
    fn make_page(&mut self, address: u64, rights: Prot) -> Step {
        let Ok(frame) = PageFrame::new() else { return NO_MEMORY };
        if self.pager.map(address, frame, rights, true).is_err() {
            return NO_MEMORY;
        }
        self.count_resident(true, 1);
        RESOLVED
    }

    /// An aligned piece of contiguous new memory around `address`, as large as sequential use suggests and as nothing of
    /// it is there yet, and where it ends; `None` where memory is short. The host keeps a limited number of mappings, so a program that uses
    /// much memory gets larger pieces.
    fn make_chunk(&mut self, address: u64, start: u64, end: u64, rights: Prot, count: u32) -> Option<u64> {
        let (total, free) = api_mem::statistics();
        if free < total / SHORT_SHARE {
            return None;
        }
        let least =
            (self.own_resident / CHUNKS_MAX).next_power_of_two().clamp(CHUNK_LEAST, LARGE_PAGES as u64);
        let mut pages = (u64::from(count).next_power_of_two()).clamp(least, LARGE_PAGES as u64);
        let mut is_free = |from: u64, to: u64| {
            from >= start
                && to <= end
                && (from..to).step_by(PAGE as usize).all(|at| self.pager.page(at).is_none())
        };
        // The end of the mapping and what is there already make it smaller.
        while pages > CHUNK_LEAST && {
            let base = address & !(pages * PAGE - 1);
            !is_free(base, base + pages * PAGE)
        } {
            pages /= 2;
        }
        let mut base = address & !(pages * PAGE - 1);
        if pages == CHUNK_LEAST {
            // Of the smallest piece the part around the address that is free.
            let (first, behind) = (base, base + pages * PAGE);
            base = address;
            while base > first && is_free(base - PAGE, base) {
                base -= PAGE;
            }
            let mut stop = address + PAGE;
            while stop < behind && is_free(stop, stop + PAGE) {
                stop += PAGE;
            }
            pages = (stop - base) / PAGE;
        }
        let memory = Pages::new(pages as usize).ok()?;
        let physical = memory.into_raw();
        for i in 0..pages {
            // SAFETY: `into_raw` gave one count of each page.
            let frame = unsafe { PageFrame::from_raw(physical + i * PAGE) };
            if self.pager.map(base + i * PAGE, frame, rights, true).is_err() {
                // The rest goes back; what is mapped stays.
                for i in i + 1..pages {
                    // SAFETY: as above.
                    drop(unsafe { PageFrame::from_raw(physical + i * PAGE) });
                }
                self.count_resident(true, i as i64);
                let next = base + i * PAGE;
                return (next > address).then_some(next);
            }
        }
        self.count_resident(true, pages as i64);
        Some(base + pages * PAGE)
    }

    /// The pages behind `address`, in the same page table and as long as none is there and memory is plentiful; where
    /// they end.
    fn make_ahead(&mut self, address: u64, end: u64, rights: Prot, count: u32) -> u64 {
        let (total, free) = api_mem::statistics();
        if count == 1 || free < total / SHORT_SHARE {
            return address + PAGE;
        }
        let stop = end.min(address + u64::from(count) * PAGE).min((address & !(LARGE - 1)) + LARGE);
        let mut at = address + PAGE;
        while at < stop && self.pager.page(at).is_none() {
            let Ok(frame) = PageFrame::new() else { break };
            if self.pager.map(at, frame, rights, true).is_err() {
                break;
            }
            self.count_resident(true, 1);
            at += PAGE;
        }
        at
    }

    /// Own copies, in one piece, of the page at `address` of a private mapping and of those around it that are as good as
    /// constant and none of the program's yet; false where that is not so, or memory is short.
    fn copy_variables(&mut self, address: u64, view: &View) -> bool {
        const MAX_COPIES: usize = COPIES_AHEAD as usize;
        let (total, free) = api_mem::statistics();
        if free < total / SHORT_SHARE {
            return false;
        }
        let pages = view.file.source.length().div_ceil(PAGE);
        let group = address & !(MAX_COPIES as u64 * PAGE - 1);
        let mut originals = [const { None }; MAX_COPIES];
        let (mut from, mut to) = (group, address);
        for (i, original) in originals.iter_mut().enumerate() {
            let at = group + i as u64 * PAGE;
            *original = (view.start..view.end)
                .contains(&at)
                .then(|| view.index(at))
                .filter(|index| *index < pages && !view.has_sites(*index) && self.pager.page(at).is_none())
                .and_then(|index| view.file.source.resident_page(index))
                .filter(PageFrame::is_permanent);
            match original {
                None if at <= address => from = at + PAGE,
                None => break,
                Some(_) => to = at + PAGE,
            }
        }
        if from > address {
            return false;
        }
        let Ok(memory) = Pages::new(((to - from) / PAGE) as usize) else { return false };
        let physical = memory.into_raw();
        let mut made = from;
        for (i, original) in originals[((from - group) / PAGE) as usize..].iter().flatten().enumerate() {
            // SAFETY: `into_raw` gave one count of each page.
            let copy = unsafe { PageFrame::from_raw(physical + i as u64 * PAGE) };
            // SAFETY: both are whole pages, and nobody else has the new one.
            unsafe { core::ptr::copy_nonoverlapping(original.bytes(), copy.bytes(), PAGE as usize) };
            // Behind one for which there was no room in the tables nothing is mapped: it goes back.
            let at = from + i as u64 * PAGE;
            if made == at && self.pager.map(at, copy, view.rights, true).is_ok() {
                made += PAGE;
            }
        }
        self.count_resident(true, ((made - from) / PAGE) as i64);
        made > address
    }

    /// Own copies of `count` pages of a private mapping from `from` on, as far as they are at hand and memory is plentiful;
    /// where they end.
    fn copy_ahead(&mut self, from: u64, view: &View, count: u32) -> u64 {
        let (total, free) = api_mem::statistics();
        if free < total / SHORT_SHARE {
            return from;
        }
        let pages = view.file.source.length().div_ceil(PAGE);
        let stop = view.end.min(from + u64::from(count) * PAGE);
        let mut at = from;
        while at < stop {
            let index = view.index(at);
            let present = self.pager.page(at);
            if index >= pages || present.is_some_and(|page| page.own) || view.has_sites(index) {
                break;
            }
            let Some(frame) = view.file.source.resident_page(index) else { break };
            let Ok(copy) = frame.duplicate() else { break };
            if present.is_some() {
                drop(self.pager.replace(at, copy, view.rights, true));
                self.count_resident(false, -1);
            } else if self.pager.map(at, copy, view.rights, true).is_err() {
                break;
            }
            self.count_resident(true, 1);
            at += PAGE;
        }
        at
    }

    /// A write to a page that is there but read-only: the last holder of an own page gets it, others get a copy.
    pub(crate) fn make_own(&mut self, address: u64, page: Page, rights: Prot) -> Step {
        if page.large && page.copied {
            let first = page.physical & !(LARGE - 1);
            if (0..LARGE_PAGES as u64).all(|i| borrowed(first + i * PAGE).is_unique()) {
                self.pager.reclaim(address, rights);
                return RESOLVED;
            }
            if self.pager.split((address & !(LARGE - 1)) + PAGE).is_err() {
                return NO_MEMORY;
            }
        }
        let frame = borrowed(page.physical);
        if page.own && frame.is_unique() {
            self.pager.reclaim(address, rights);
            return RESOLVED;
        }
        if page.copied && self.copies_told < Written::MAX {
            self.copies_told += 1;
            self.written.add(address);
        }
        let is_zero = page.physical == self.zero.physical();
        let copy = if is_zero { PageFrame::new() } else { frame.duplicate() };
        let Ok(copy) = copy else { return NO_MEMORY };
        let old = self.pager.replace(address, copy, rights, true);
        drop(old);
        if !page.own {
            if !is_zero {
                self.count_resident(false, -1);
            }
            self.count_resident(true, 1);
        }
        RESOLVED
    }

    fn fault_file(
        &mut self,
        address: u64,
        access: Access,
        view: &View,
        present: Option<Page>,
        fetched: Option<(Arc<MappedFile>, u64, PageFrame)>,
    ) -> Step {
        let index = view.index(address);
        let write = access == Access::Write;
        if let Some(page) = present
            && !view.shared
        {
            return self.make_own(address, page, view.rights);
        }
        let frame = match fetched {
            Some((file, at, frame)) if Arc::ptr_eq(&file, &view.file) && at == index => frame,
            _ => {
                if index.checked_mul(PAGE).is_none_or(|at| at >= view.file.source.length()) {
                    return Step::Done(FaultOutcome::Bus);
                }
                // Shared writing always asks the file, which makes room for a dirty page and may refuse.
                let at_hand = if write && view.shared { None } else { view.file.source.resident_page(index) };
                match at_hand {
                    Some(frame) => frame,
                    None => {
                        let for_write = write && view.shared;
                        return Step::Fetch { file: view.file.clone(), index, for_write };
                    }
                }
            }
        };
        if view.shared {
            let rights = if write { view.rights } else { view.rights.without(Prot::WRITE) };
            match present {
                Some(_) => drop(self.pager.replace(address, frame, rights, false)),
                None if self.map_file_page(address, frame, rights).is_err() => return NO_MEMORY,
                None => {}
            }
            if !write {
                self.map_around(address, view);
            }
            return RESOLVED;
        }
        let text = view.text.as_ref().filter(|text| !self.traced && text.has_sites(index));
        if !write
            && let Some(text) = text
            && let Some(frame) = text.common_page(index)
            && self.show_common_stubs(text)
        {
            let rights = view.rights.without(Prot::WRITE);
            return if self.map_file_page(address, frame.clone(), rights).is_ok() {
                RESOLVED
            } else {
                NO_MEMORY
            };
        }
        if write || text.is_some() {
            let Ok(copy) = frame.duplicate() else { return NO_MEMORY };
            if let Some(text) = text {
                self.patch(text, index, &copy);
            }
            if self.pager.map(address, copy, view.rights, true).is_err() {
                return NO_MEMORY;
            }
            self.count_resident(true, 1);
        } else if self.map_file_page(address, frame, view.rights.without(Prot::WRITE)).is_err() {
            return NO_MEMORY;
        }
        if !write {
            self.map_around(address, view);
        }
        RESOLVED
    }

    /// Maps the neighbours of a page of a file that are in memory, in place.
    fn map_around(&mut self, address: u64, view: &View) {
        let around = if view.rights.contains(Prot::WRITE) { AROUND } else { AROUND_READ_ONLY };
        let group = address & !(around * PAGE - 1);
        let (from, to) = (group.max(view.start), (group + around * PAGE).min(view.end));
        let pages = view.file.source.length().div_ceil(PAGE);
        let rights = view.rights.without(Prot::WRITE);
        let mut at = from;
        while at < to {
            let index = view.index(at);
            if index >= pages {
                return;
            }
            if !view.has_sites(index)
                && self.pager.page(at).is_none()
                && let Some(frame) = view.file.source.resident_page(index)
            {
                // The table exists: the page that was asked for is in the same group.
                if self.map_file_page(at, frame, rights).is_err() {
                    return;
                }
            }
            at += PAGE;
        }
    }

    /// Patches the copy of a text page; pages of stubs are made as they are needed.
    fn patch(&mut self, text: &Text, index: u64, copy: &PageFrame) {
        // The program may have unmapped the stubs, or mapped something over them.
        if !self.is_stubs(text.stubs(), text.stubs() + text.stub_bytes()) {
            return;
        }
        let rights = Prot::READ.with(Prot::EXECUTE);
        text.patch(index, copy, |address| {
            if let Some(page) = self.pager.page(address) {
                return Some(PageFrame::clone(&borrowed(page.physical)));
            }
            let frame = PageFrame::new().ok()?;
            self.pager.map(address, frame.clone(), rights, true).ok()?;
            self.count_resident(true, 1);
            Some(frame)
        });
    }

    /// A fault below a stack: the stack grows if its limit and its neighbour allow it.
    #[cold]
    fn grow_stack(&mut self, address: u64, access: Access) -> Step {
        let unmapped = Step::Done(FaultOutcome::Segv { mapped: false });
        let Some((start, vma)) = self.tree.next(address) else { return unmapped };
        let flags = vma.flags;
        let (end, growth) = (vma.end, start - address);
        let too_near = self.tree.end_before(address + 1).saturating_add(STACK_GAP) > address
            && self.tree.end_before(address + 1) != 0;
        let limits = &self.limits;
        if !flags.grows_down
            || too_near
            || end - address > limits.stack
            || self.pages + growth / PAGE > limits.address_space / PAGE
            || commit::check(|| growth / PAGE).is_err()
        {
            return unmapped;
        }
        self.tree.extend_down(start, address);
        self.account(&flags, growth as i64);
        self.fault(address, access, None)
    }
}

/// What a fault needs to know of the mapping of a file.
struct View {
    file: Arc<MappedFile>,
    /// Page of the file at `start`.
    first: u64,
    start: u64,
    end: u64,
    rights: Prot,
    shared: bool,
    text: Option<Arc<Text>>,
}

impl View {
    fn index(&self, address: u64) -> u64 {
        self.first + (address - self.start) / PAGE
    }

    /// System calls are to be patched in this page of the file.
    fn has_sites(&self, index: u64) -> bool {
        self.text.as_ref().is_some_and(|text| text.has_sites(index))
    }
}
