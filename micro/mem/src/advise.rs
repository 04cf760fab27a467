// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program says about its memory, and asks about it: madvise, mincore, msync, mlock.

use crate::pager::Pager;
use crate::space::{Inner, Space, range_end, save};
use crate::vma::{Backing, Large, MappedFile, MemoryPolicy, VmFlags, Vma};
use crate::{PAGE, Prot, USER_END};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageFrame;

/// The advice of madvise that does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// MADV_NORMAL and the like: only checked.
    Hint,
    /// MADV_COLD and MADV_PAGEOUT: only checked; `EINVAL` for locked memory.
    Cold,
    /// MADV_DONTNEED.
    Discard,
    /// MADV_FREE: private anonymous memory only.
    Free,
    /// MADV_HUGEPAGE.
    Large,
    /// MADV_NOHUGEPAGE.
    Small,
    /// MADV_POPULATE_READ and MADV_POPULATE_WRITE.
    Populate { write: bool },
    /// MADV_DONTFORK and MADV_DOFORK.
    Fork(bool),
    /// MADV_WIPEONFORK and MADV_KEEPONFORK.
    WipeOnFork(bool),
    /// MADV_DONTDUMP and MADV_DODUMP.
    Dump(bool),
    /// MADV_REMOVE: a hole in the file of a shared mapping.
    Remove,
}

/// Pages stored between two looks at the lock.
const STORE_AT_ONCE: usize = 64;

impl Space {
    /// madvise. `ENOMEM` where nothing is mapped, after the rest was done.
    pub fn advise(&self, address: u64, length: u64, advice: Advice) -> Result<()> {
        // There is no mapping behind the program's half.
        let end = match abi::page_up(length).and_then(|length| address.checked_add(length)) {
            Some(_) => range_end(address, length, ENOMEM)?,
            None => return Err(EINVAL),
        };
        if end == address {
            return Ok(());
        }
        if let Advice::Populate { write } = advice {
            return self.populate_checked(address, end, write);
        }
        if advice == Advice::Remove {
            return self.remove_pages(address, end);
        }
        if advice == Advice::Discard {
            self.store_shared(address, end)?;
        }
        let mut unsaved = Vec::new();
        let mut inner = self.lock();
        let result = inner.advise(address, end, advice, &mut unsaved);
        drop(inner);
        save(unsaved);
        result
    }

    /// `EINVAL` where no file is mapped, or the memory is locked; `EACCES` unless the mapping could write the file.
    fn remove_pages(&self, start: u64, end: u64) -> Result<()> {
        let (mut at, mut result) = (start, Ok(()));
        while at < end {
            let (file, page, to) = {
                let inner = self.lock();
                let Some((first, vma)) = inner.tree.first_overlap(at, end) else { return Err(ENOMEM) };
                if first > at {
                    (at, result) = (first, Err(ENOMEM));
                }
                let (file, page) = vma.file_page(first, at).filter(|_| !vma.flags.locked).ok_or(EINVAL)?;
                if !vma.flags.shared || !vma.flags.most.contains(Prot::WRITE) {
                    return Err(EACCES);
                }
                (file.clone(), page, vma.end.min(end))
            };
            file.source.make_hole(page, (to - at) / PAGE)?;
            self.file_lost(file.device, file.inode, page * PAGE, page * PAGE + (to - at), false);
            at = to;
        }
        result
    }

    /// mseal: `ENOMEM`, and nothing done, where part of the range is not mapped.
    pub fn seal(&self, address: u64, length: u64) -> Result<()> {
        let end = range_end(address, length, EINVAL)?;
        let mut inner = self.lock();
        if !inner.tree.covers(address, end) {
            return Err(ENOMEM);
        }
        inner.change(address, end, |flags| flags.sealed = true)?;
        Ok(())
    }

    /// mbind(2): `EFAULT` where something is not mapped.
    pub fn set_policy(&self, address: u64, length: u64, policy: MemoryPolicy) -> Result<()> {
        let end = range_end(address, length, EINVAL)?;
        let mut inner = self.lock();
        if !inner.tree.covers(address, end) {
            return Err(EFAULT);
        }
        inner.change(address, end, |flags| flags.policy = policy)
    }

    /// The policy of the mapping at `address`; `EFAULT` where there is none.
    pub fn policy(&self, address: u64) -> Result<MemoryPolicy> {
        let inner = self.lock();
        inner.tree.find(address).map(|(_, vma)| vma.flags.policy).ok_or(EFAULT)
    }

    /// Gives back what no other process has, of a process that is about to end. Nobody reads zeros in its place: the mappings stay
    /// without rights. `ENOMEM` leaves a part.
    pub fn reap(&self) -> Result<()> {
        let (mut at, mut unsaved) = (0, Vec::new());
        let mut inner = self.lock();
        while let Some((start, vma)) = inner.tree.first_overlap(at, USER_END) {
            at = vma.end;
            if vma.flags.shared || matches!(vma.backing, Backing::Stubs | Backing::Fixed) {
                continue;
            }
            let (vma, end) = (vma.clone(), vma.end);
            inner.protect(start, end, Prot::NONE)?;
            inner.discard(start, end, start, &vma, &mut unsaved);
        }
        Ok(())
    }

    /// move_pages(2): `Ok` where a page is that may be moved. `ENOENT`: it is a file's and not here. `EFAULT`: there is no mapping, or
    /// of anonymous memory nothing but zeros.
    pub fn find_page(&self, address: u64) -> Result<()> {
        let mut inner = self.lock();
        let page = address & !(PAGE - 1);
        let (_, vma) = inner.tree.find(page).ok_or(EFAULT)?;
        let absent = if matches!(vma.backing, Backing::File { .. }) { ENOENT } else { EFAULT };
        match inner.pager.page(page) {
            Some(found) if found.physical == inner.zero.physical() => Err(EFAULT),
            Some(_) => Ok(()),
            None => Err(absent),
        }
    }

    fn populate_checked(&self, start: u64, end: u64, write: bool) -> Result<()> {
        use api_plat::{Access, FaultOutcome::*};
        let (access, right) = if write { (Access::Write, Prot::WRITE) } else { (Access::Read, Prot::READ) };
        let mut at = start;
        while at < end {
            // What the processor would let the program do counts less than what it asked for.
            let to = match self.lock().tree.find(at) {
                Some((_, vma)) if vma.flags.rights.contains(right) => vma.end.min(end),
                Some(_) => return Err(EINVAL),
                None => return Err(ENOMEM),
            };
            for page in (at..to).step_by(PAGE as usize) {
                match self.fault(page, access) {
                    Resolved => {}
                    OutOfMemory | Segv { mapped: false } => return Err(ENOMEM),
                    Segv { mapped: true } => return Err(EINVAL),
                    Bus => return Err(EFAULT),
                }
                if page.is_multiple_of(crate::fault::BETWEEN_OTHERS) {
                    api_sched::cond_resched();
                }
            }
            at = to;
        }
        Ok(())
    }

    /// mincore: calls `seen` for each page of the range with whether it is in memory. `ENOMEM` where nothing is
    /// mapped.
    pub fn resident(&self, address: u64, length: u64) -> Result<Vec<u8>> {
        let end = range_end(address, length, ENOMEM)?;
        let mut inner = self.lock();
        if !inner.tree.covers(address, end) {
            return Err(ENOMEM);
        }
        let count = ((end - address) / PAGE) as usize;
        let mut out = Vec::new();
        out.reserve_exact_fallibly(count).map_err(|_| EAGAIN)?;
        out.resize(count, 0);
        let mut at = address;
        while at < end {
            let Some((start, vma)) = inner.tree.find(at) else { break };
            let stop = vma.end.min(end);
            // Pages of a file count when they are in memory, mapped or not.
            let file = vma.file_page(start, at).map(|(file, page)| (file.clone(), page));
            if let Some((file, first)) = file {
                for i in 0..(stop - at) / PAGE {
                    let here = file.source.resident_page(first + i).is_some();
                    out[((at - address) / PAGE + i) as usize] = u8::from(here);
                }
            }
            inner.pager.visit(at, stop, &mut |page, _| {
                out[((page - address) / PAGE) as usize] = 1;
                false
            });
            at = stop;
        }
        Ok(out)
    }

    /// msync. Written pages of shared mappings go to their files; with `invalidate`, `EBUSY` for locked memory.
    pub fn sync(&self, address: u64, length: u64, invalidate: bool) -> Result<()> {
        let end = range_end(address, length, ENOMEM)?;
        let (mapped, locked) = {
            let inner = self.lock();
            let mut parts = inner.tree.overlapping(address, end);
            (inner.tree.covers(address, end), parts.any(|(_, vma)| vma.flags.locked))
        };
        if invalidate && locked {
            return Err(EBUSY);
        }
        self.store_shared(address, end)?;
        if mapped { Ok(()) } else { Err(ENOMEM) }
    }

    /// Stores the written pages of all shared mappings; for the end of the program.
    pub fn sync_all(&self) -> Result<()> {
        self.store_shared(0, USER_END)
    }

    /// Stores the written pages of shared mappings in the range and marks them clean.
    pub(crate) fn store_shared(&self, start: u64, end: u64) -> Result<()> {
        let (mut at, mut result) = (start, Ok(()));
        while at < end {
            let mut pages = Vec::new();
            at = self.lock().collect_dirty(at, end, &mut pages);
            for (file, page, frame) in pages {
                let stored = file.source.write_back(page, &frame);
                result = result.and(stored);
            }
        }
        result
    }

    /// mlock and munlock. `ENOMEM` where nothing is mapped or the limit is reached, and for pages that cannot be brought in;
    /// what lies before the first gap is locked all the same.
    pub fn set_locked(&self, address: u64, length: u64, locked: bool, populate: bool) -> Result<()> {
        let start = address & !(PAGE - 1);
        // As Linux rounds it up, a length that is less than a page below 2^64 is none.
        let length = length.checked_add(address - start).and_then(abi::page_up).unwrap_or(0);
        let mut inner = self.lock();
        let limit = inner.limits.locked;
        let wanted = inner.locked_pages.saturating_add(length / PAGE);
        if locked && limit != u64::MAX && wanted > limit / PAGE {
            // What is locked already is not counted twice.
            let end = start.saturating_add(length);
            let pages = |(from, vma): (&u64, &Vma)| vma.end.min(end).saturating_sub(start.max(*from)) / PAGE;
            let all = inner.tree.overlapping(start, end).filter(|(_, vma)| vma.flags.locked);
            if wanted.saturating_sub(all.map(pages).sum()) > limit / PAGE {
                return Err(ENOMEM);
            }
        }
        start.checked_add(length).ok_or(EINVAL)?;
        let end = range_end(start, length, ENOMEM)?;
        let covered = inner.tree.covered_until(start, end);
        let mapped = covered == end;
        inner
            .change(start, covered, |flags| (flags.locked, flags.on_fault) = (locked, locked && !populate))?;
        let no_rights = inner.tree.overlapping(start, end).any(|(_, vma)| vma.flags.rights.is_none());
        drop(inner);
        // Pages that nobody may touch cannot be brought in.
        let are_here = mapped && (!(locked && populate) || (self.populate(start, end) && !no_rights));
        if are_here { Ok(()) } else { Err(ENOMEM) }
    }

    /// mlockall and munlockall.
    pub fn set_all_locked(&self, now: Option<bool>, future: bool, populate: bool) -> Result<()> {
        let mut inner = self.lock();
        if (now == Some(true) || future) && inner.pages > inner.limits.locked / PAGE {
            return Err(ENOMEM);
        }
        (inner.lock_future, inner.lock_future_on_fault) = (future, future && !populate);
        if let Some(locked) = now {
            inner.change(0, USER_END, |flags| {
                (flags.locked, flags.on_fault) = (locked, locked && !populate)
            })?;
            drop(inner);
            if locked && populate {
                let mut at = 0;
                loop {
                    let next =
                        self.lock().tree.first_overlap(at, USER_END).map(|(start, vma)| (start, vma.end));
                    let Some((start, end)) = next else { break };
                    self.populate(start, end);
                    at = end;
                }
            }
        }
        Ok(())
    }
}

impl Space {
    /// shmdt(2): takes out the file that is mapped as if from its start at `address`, all pieces of that mapping that are there still.
    /// `EINVAL` when there is none that `wanted` agrees to.
    pub fn unmap_file(
        &self,
        address: u64,
        wanted: impl Fn(&Arc<MappedFile>) -> bool,
    ) -> Result<Arc<MappedFile>> {
        let (file, pieces) = {
            let inner = self.lock();
            let begins = |(start, vma): (u64, &Vma)| match vma.file_page(start, start) {
                Some((file, page)) if start.checked_sub(page * PAGE) == Some(address) && wanted(file) => {
                    Some(file.clone())
                }
                _ => None,
            };
            let behind = inner.tree.iter().filter(|(start, _)| *start >= address);
            let file = behind.filter_map(begins).next().ok_or(EINVAL)?;
            let belongs = |start: u64, vma: &Vma| match vma.file_page(start, start) {
                Some((other, page)) => {
                    Arc::ptr_eq(other, &file) && start.checked_sub(page * PAGE) == Some(address)
                }
                None => false,
            };
            let pieces: Vec<(u64, u64)> = inner
                .tree
                .iter()
                .filter(|(start, vma)| *start >= address && belongs(*start, vma))
                .map(|(start, vma)| (start, vma.end - start))
                .collect();
            (file, pieces)
        };
        for (start, length) in pieces {
            self.unmap(start, length)?;
        }
        Ok(file)
    }

    /// True when a shared mapping of the file is, or may be made, writable: such a file cannot be sealed.
    pub fn may_write_shared(&self, device: u64, inode: u64) -> bool {
        self.lock().tree.iter().any(|(_, vma)| match &vma.backing {
            Backing::File { file, .. } => {
                let flags = &vma.flags;
                (file.device, file.inode) == (device, inode)
                    && flags.shared
                    && flags.most.contains(Prot::WRITE)
            }
            _ => false,
        })
    }

    /// A file lost its pages from byte `from` up to byte `to`: mappings lose them as well, and a touch asks the file
    /// again. With `copies` private copies go too, as they do when a file becomes shorter.
    pub fn file_lost(&self, device: u64, inode: u64, from: u64, to: u64, copies: bool) {
        let (first, last) = (from.div_ceil(PAGE), to / PAGE);
        let mut lost = Vec::new();
        {
            let mut inner = self.lock();
            let ranges: Vec<(u64, u64, u64, Vma)> = inner
                .tree
                .iter()
                .filter_map(|(start, vma)| {
                    let Backing::File { file, index } = &vma.backing else { return None };
                    if (file.device, file.inode) != (device, inode) {
                        return None;
                    }
                    let address =
                        |page: u64| start.saturating_add(page.saturating_sub(*index).saturating_mul(PAGE));
                    let (low, high) = (address(first), address(last).min(vma.end));
                    (low < high).then(|| (start, low, high, vma.clone()))
                })
                .collect();
            for (start, low, high, vma) in ranges {
                if copies {
                    inner.discard(low, high, start, &vma, &mut lost);
                } else {
                    inner.forget_file_pages(start, low, high, &vma);
                }
            }
        }
        // Nothing of it is stored: the file no longer has these pages.
        drop(lost);
    }
}

impl Inner {
    /// Changes flags in a range, keeping the count of locked pages; `ENOMEM` when mappings cannot be split, and nothing is
    /// changed.
    fn change(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut VmFlags)) -> Result<()> {
        let mut locked = 0i64;
        self.tree.change(start, end, |from, vma| {
            let before = vma.flags.locked;
            change(&mut vma.flags);
            let pages = ((vma.end - from) / PAGE) as i64;
            locked += (i64::from(vma.flags.locked) - i64::from(before)) * pages;
        })?;
        self.locked_pages = self.locked_pages.wrapping_add_signed(locked);
        self.changes += 1;
        Ok(())
    }

    fn advise(
        &mut self,
        start: u64,
        end: u64,
        advice: Advice,
        unsaved: &mut crate::space::Unsaved,
    ) -> Result<()> {
        let (mut at, mut result) = (start, Ok(()));
        while at < end {
            let Some((first, vma)) = self.tree.first_overlap(at, end) else { break };
            if first > at {
                result = Err(ENOMEM);
            }
            let (from, to) = (first.max(at), vma.end.min(end));
            let anonymous = matches!(vma.backing, Backing::Anonymous);
            let kernel = matches!(vma.backing, Backing::Stubs | Backing::Fixed);
            match advice {
                Advice::Cold if kernel || vma.flags.locked => return Err(EINVAL),
                Advice::Hint | Advice::Cold | Advice::Populate { .. } | Advice::Remove => {}
                // What would lose contents that the program itself may not write (mseal(2)).
                Advice::Discard | Advice::Free | Advice::WipeOnFork(true) | Advice::Fork(false)
                    if vma.flags.sealed && !vma.flags.shared && !vma.flags.rights.contains(Prot::WRITE) =>
                {
                    return Err(EPERM);
                }
                Advice::Discard | Advice::Free => {
                    if kernel || vma.flags.locked || (advice == Advice::Free && !anonymous) {
                        return Err(EINVAL);
                    }
                    let vma = vma.clone();
                    self.pager.split(from)?;
                    self.pager.split(to)?;
                    self.discard(from, to, first, &vma, unsaved);
                }
                Advice::WipeOnFork(true) if !anonymous => return Err(EINVAL),
                _ if kernel => {}
                Advice::Large => self.change(from, to, |t| t.large = Large::Always)?,
                Advice::Small => self.change(from, to, |t| t.large = Large::Never)?,
                Advice::Fork(fork) => self.change(from, to, |t| t.no_fork = !fork)?,
                Advice::WipeOnFork(wipe) => self.change(from, to, |t| t.wipe_on_fork = wipe)?,
                Advice::Dump(dump) => self.change(from, to, |t| t.no_dump = !dump)?,
            }
            at = to;
        }
        if at < end { Err(ENOMEM) } else { result }
    }

    /// Gathers written pages of shared mappings, marks them clean and read-only no more than before, and says where
    /// to go on.
    fn collect_dirty(
        &mut self,
        start: u64,
        end: u64,
        pages: &mut Vec<(Arc<MappedFile>, u64, PageFrame)>,
    ) -> u64 {
        let mut at = start;
        while let Some((first, vma)) = self.tree.first_overlap(at, end) {
            let (from, to) = (first.max(at), vma.end.min(end));
            at = to;
            let Some((file, _)) = vma.file_page(first, from) else { continue };
            if !vma.flags.shared || file.source.is_memory() {
                continue;
            }
            let mut next = to;
            self.pager.visit(from, to, &mut |address, page| {
                if !page.dirty || address >= next {
                    return false;
                }
                // SAFETY: the entry holds a count of the page, of which a copy is taken.
                let frame = core::mem::ManuallyDrop::new(unsafe { PageFrame::from_raw(page.physical) });
                if let Some((file, index)) = vma.file_page(first, address) {
                    pages.push((file.clone(), index, PageFrame::clone(&frame)));
                }
                if pages.len() == STORE_AT_ONCE {
                    next = address + PAGE;
                }
                true
            });
            if next < to || pages.len() >= STORE_AT_ONCE {
                return next;
            }
        }
        end
    }
}
