// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mremap: growing, shrinking and moving a mapping.

use crate::layout::LOWEST;
use crate::pager::{LARGE, Pager};
use crate::space::{Inner, Request, Space, Unsaved, save, whole_pages};
use crate::vma::{Backing, MappedFile, Vma};
use crate::{PAGE, Prot, USER_END};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;

/// What mremap is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    pub address: u64,
    pub old_length: u64,
    pub new_length: u64,
    /// MREMAP_MAYMOVE.
    pub may_move: bool,
    /// MREMAP_FIXED, with the new address.
    pub fixed: Option<u64>,
    /// MREMAP_DONTUNMAP: the old range stays mapped, empty.
    pub keep: bool,
}

impl Space {
    /// mremap, with the errors of the manual page: `EINVAL` for bad arguments, `EFAULT` where the old range is not
    /// one mapping, `ENOMEM` where it cannot grow.
    pub fn remap(&self, ask: Remap) -> Result<u64> {
        let Remap { address, may_move, fixed, keep, .. } = ask;
        // Linux rounds up a length that is less than a page below 2^64 to 0.
        let old = abi::page_up(ask.old_length).unwrap_or(0);
        let new = whole_pages(ask.new_length).map_err(|_| EINVAL)?;
        if !address.is_multiple_of(PAGE)
            || ((fixed.is_some() || keep) && !may_move)
            || (keep && old != new)
            || new > USER_END
        {
            return Err(EINVAL);
        }
        let old_end = address.checked_add(old).filter(|end| *end <= USER_END).ok_or(EINVAL)?;
        if let Some(to) = fixed {
            let end = to.checked_add(new).filter(|end| *end <= USER_END).ok_or(EINVAL)?;
            if !to.is_multiple_of(PAGE) || (to < old_end && address < end) {
                return Err(EINVAL);
            }
            if to < LOWEST {
                return Err(EPERM);
            }
            self.store_shared(to, end)?;
        }
        self.store_shared(address, old_end)?;
        let mut unsaved = Vec::new();
        let mut inner = self.lock();
        let result = inner.remap(ask, old, new, &mut unsaved);
        inner.pager.flush();
        drop(inner);
        save(unsaved);
        let (start, locked) = result?;
        if locked {
            self.populate(start, start + new);
        }
        Ok(start)
    }
}

impl Space {
    /// remap_file_pages(2): from `page` of its file on, the part of a shared mapping shows other pages, with the same rights.
    /// `EINVAL` where not all of it is mapped shared from one file.
    pub fn remap_pages(&self, address: u64, length: u64, page: u64, populate: bool) -> Result<()> {
        let end = address.checked_add(length).filter(|end| *end > address).ok_or(EINVAL)?;
        page.checked_add(length / PAGE).ok_or(EINVAL)?;
        let request = {
            let inner = self.lock();
            let (start, first) =
                inner.tree.find(address).filter(|(_, vma)| vma.flags.shared).ok_or(EINVAL)?;
            let (file, _) = first.file_page(start, address).ok_or(EINVAL)?;
            let flags = first.flags;
            let alike = |vma: &Vma| {
                let same_file = |(other, _): (&Arc<MappedFile>, u64)| Arc::ptr_eq(other, file);
                vma.flags == flags && vma.file_page(0, 0).is_some_and(same_file)
            };
            if !inner.tree.covers(address, end)
                || !inner.tree.overlapping(start, end).all(|(_, vma)| alike(vma))
            {
                return Err(EINVAL);
            }
            Request {
                shared: true,
                most: flags.most,
                locked: flags.locked,
                ..Request::anonymous(length, flags.rights).of(file.clone(), page).at(address)
            }
        };
        self.map(request)?;
        if populate {
            self.populate(address, end);
        }
        Ok(())
    }
}

impl Inner {
    fn remap(&mut self, ask: Remap, old: u64, new: u64, unsaved: &mut Unsaved) -> Result<(u64, bool)> {
        let Remap { address, may_move, fixed, keep, .. } = ask;
        let (start, vma) = self.tree.find(address).ok_or(EFAULT)?;
        let (vma_end, flags) = (vma.end, vma.flags);
        if old == 0 && !flags.shared {
            return Err(EINVAL);
        }
        if matches!(vma.backing, Backing::Stubs | Backing::Fixed) {
            return Err(EFAULT);
        }
        // What is sealed is said before that the range is more than one mapping.
        self.check_sealed(address, address + old)?;
        // What is cut off may be of several mappings, and places where none is.
        let cuts_in_place = new < old && fixed.is_none();
        if address + old.min(new) > vma_end && !cuts_in_place {
            return Err(EFAULT);
        }
        // Shrinking in place, or the part in front of a fixed move.
        if new < old {
            self.remove(address + new, address + old, unsaved)?;
            if fixed.is_none() {
                return Ok((address, false));
            }
        }
        if new == old && fixed.is_none() && !keep {
            return Ok((address, flags.populates()));
        }
        let old = old.min(new);
        if new > old || keep {
            let growth = if keep { new } else { new - old };
            let mut request = Request::anonymous(growth, flags.rights);
            request.shared = flags.shared;
            request.locked = flags.locked;
            request.no_reserve = flags.no_reserve;
            self.check_limits(&request, 0, growth)?;
        }
        if fixed.is_none() && !keep && old != 0 && address + old == vma_end {
            let limit = self.tree.next(vma_end).map_or(USER_END, |(next, _)| next);
            if address + new <= limit {
                self.account(&flags, (new - old) as i64);
                self.tree.extend_up(start, address + new);
                return Ok((address, flags.populates()));
            }
        }
        if !may_move {
            return Err(ENOMEM);
        }
        let to = match fixed {
            Some(to) => {
                self.remove(to, to + new, unsaved)?;
                to
            }
            None => {
                let top = self.layout.mmap_base;
                self.tree.gap_for_mmap(LOWEST, top, new).ok_or(ENOMEM)?
            }
        };
        self.move_mapping(address, old, to, new, keep, unsaved)?;
        Ok((to, flags.populates()))
    }

    /// Moves the pages of `old` bytes at `from` to a new mapping of `new` bytes at `to`, where nothing is.
    fn move_mapping(
        &mut self,
        from: u64,
        old: u64,
        to: u64,
        new: u64,
        keep: bool,
        unsaved: &mut Unsaved,
    ) -> Result<()> {
        self.pager.split(from)?;
        self.pager.split(from + old)?;
        // Large pages move as small ones.
        let mut at = from.next_multiple_of(LARGE);
        while at < from + old {
            self.pager.split(at + PAGE)?;
            at += LARGE;
        }
        self.tree.cut(from)?;
        self.tree.cut(from + old)?;
        let (start, vma) = self.tree.find(from).ok_or(EFAULT)?;
        let mut moved: Vma = vma.clone();
        if let Some((_, index)) = vma.file_page(start, from)
            && let Backing::File { index: first, .. } = &mut moved.backing
        {
            *first = index;
        }
        let text = moved.text.take();
        // Tables first: once pages are on their way nothing may fail.
        let (mut tables, mut is_incomplete) = (Vec::new(), false);
        self.pager.visit(from, from + old, &mut |address, _| {
            let table = (address - from + to) & !(LARGE - 1);
            if tables.last() != Some(&table) {
                match tables.reserve_fallibly(1) {
                    Ok(()) => tables.push(table),
                    Err(_) => is_incomplete = true,
                }
            }
            false
        });
        if is_incomplete {
            return Err(ENOMEM);
        }
        tables.into_iter().try_for_each(|address| self.pager.prepare(address))?;
        moved.end = to + new;
        moved.streak = (0, 0);
        let mut left_out = 0;
        let tree = &self.tree;
        let taken = self.pager.take_out(from, from + old, |pager, batch| {
            for taken in batch.drain() {
                let mut taken = taken;
                if let Some(text) = text.as_ref()
                    && let Some((_, page)) = tree.find(from).and_then(|(s, v)| v.file_page(s, taken.address))
                    && text.has_sites(page)
                {
                    if !taken.own {
                        // Other spaces have the patched page as well: the file's own comes when it is touched.
                        left_out += 1;
                        continue;
                    }
                    // Another address space may run the code that is there.
                    if taken.copied && !taken.frame.is_unique() {
                        (taken.frame, taken.copied) = (taken.frame.duplicate()?, false);
                    }
                    text.unpatch(page, &taken.frame);
                }
                let shared = moved.flags.shared;
                if taken.dirty
                    && shared
                    && let Some((file, page)) = moved.file_page(to, taken.address - from + to)
                    && !file.source.is_memory()
                {
                    unsaved.push((file.clone(), page, taken.frame.clone()));
                }
                // Writing a shared page goes through its file again.
                let rights = moved.flags.rights;
                let writes = taken.own && !taken.copied;
                let rights = if writes { rights } else { rights.without(Prot::WRITE) };
                pager.map(taken.address - from + to, taken.frame, rights, taken.own)?;
                if taken.copied {
                    pager.mark_copied(taken.address - from + to);
                }
            }
            Ok::<(), abi::Errno>(())
        });
        self.count_resident(false, -left_out);
        taken?;
        // The mapping at the old place holds the last one now, and the stubs go with it.
        drop(text);
        self.account(&moved.flags, new as i64);
        self.tree.insert(to, moved);
        if old != 0 && !keep {
            self.remove(from, from + old, &mut Vec::new())?;
        } else {
            self.tree.join(from);
        }
        Ok(())
    }
}
