// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fork: a second address space with the contents of the first.
//!
//! Pages are not copied but shared until one of the two writes; their counts of handles say who is the last. What
//! mappings of files share they go on sharing, for their pages come from the file.

use crate::commit;
use crate::fault::borrowed;
use crate::pager::Pager;
use crate::space::{Inner, Space, processors_in};
use crate::text::Text;
use crate::vma::{Backing, Vma};
use crate::{PAGE, Prot};
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;

/// The pages that a program and its children wrote soon after forks: the stack that fork returns on, the variables of the C
/// library that it changes. The next fork copies them at once, because a copy takes a tenth of the time of a fault, and of
/// two where both write. All spaces that come from one `execve` by forks have them together.
pub(crate) struct Written(SpinLock<Pages>);

#[derive(Clone, Copy)]
struct Pages {
    addresses: [u64; Written::MAX],
    /// Where the next one goes.
    next: usize,
}

impl Written {
    /// A fork copies so many at most, and each space names so many after a fork.
    pub const MAX: usize = 16;

    pub fn new() -> Written {
        Written(SpinLock::new(Pages { addresses: [0; Written::MAX], next: 0 }))
    }

    /// A page was copied because another space has it too. The one that was named first makes room.
    pub fn add(&self, address: u64) {
        let mut pages = self.0.lock();
        if !pages.addresses.contains(&address) {
            let next = pages.next;
            pages.addresses[next] = address;
            pages.next = (next + 1) % Written::MAX;
        }
    }

    /// Descending: a child whose predecessor has just ended is given the frames in the order in which that one lost them, and
    /// so each where it was.
    fn descending(&self) -> [u64; Written::MAX] {
        let mut addresses = self.0.lock().addresses;
        addresses.sort_unstable_by(|a, b| b.cmp(a));
        addresses
    }
}

impl Space {
    /// Another address space with the same mappings, pages and break, as fork(2) makes it: without mappings of
    /// MADV_DONTFORK, with empty ones of MADV_WIPEONFORK, and with nothing locked. `ENOMEM` leaves this one as it was
    /// as far as the program can tell.
    pub fn fork(&self) -> Result<Arc<Space>> {
        // The copies are made one after the other: another processor could write to one and then to another meanwhile.
        let is_still = processors_in(self) <= 1;
        let inner = self.lock().fork(is_still)?;
        Ok(Space::with(inner))
    }
}

impl Inner {
    fn fork(&mut self, is_still: bool) -> Result<Inner> {
        let mut child = Inner::empty(self.layout, self.limits, self.zero.clone())?;
        (child.brk_start, child.brk, child.mm_map) = (self.brk_start, self.brk, self.mm_map);
        child.traced = self.traced;
        child.written = self.written.clone();
        (self.copies_told, child.copies_told) = (0, 0);
        if is_still {
            self.copy_written(&mut child);
        }
        let zero = self.zero.physical();
        let Inner { tree, pager, .. } = self;
        let mut texts = Texts(Vec::new());
        for (start, vma) in tree.iter().filter(|(_, vma)| !vma.flags.no_fork) {
            let mut copy: Vma = vma.clone();
            (copy.flags.locked, copy.flags.on_fault) = (false, false);
            copy.text = vma.text.as_ref().map(|text| texts.copy(text)).transpose()?;
            if copy.flags.is_committed() {
                commit::check(|| (vma.end - start) / PAGE)?;
            }
            child.account(&copy.flags, (vma.end - start) as i64);
            child.tree.insert_apart(start, copy);
            // Pages of shared mappings come from the file when they are touched.
            let from_file = vma.flags.shared && matches!(vma.backing, Backing::File { .. });
            if from_file || vma.flags.wipe_on_fork {
                continue;
            }
            let (mut own, mut other) = (0, 0);
            let forked = pager.fork(&mut child.pager, start, vma.end, &mut |page, pages| match page.own {
                true => own += pages as i64,
                false => other += i64::from(page.physical != zero),
            });
            child.count_resident(true, own);
            child.count_resident(false, other);
            forked?;
            if own > 0
                && !vma.flags.shared
                && let Some((_, copy)) = child.tree.find_mut(start)
            {
                copy.flags.inherited = true;
            }
        }
        Ok(child)
    }

    /// Gives the child its own copies of the pages that are likely to be written, as far as there is memory for them.
    fn copy_written(&mut self, child: &mut Inner) {
        let written = self.written.clone();
        for address in written.descending().into_iter().filter(|address| *address != 0) {
            let Some((_, vma)) = self.tree.find(address) else { continue };
            let (flags, rights) = (vma.flags, vma.flags.rights);
            if flags.shared || flags.no_fork || flags.wipe_on_fork || !rights.contains(Prot::WRITE) {
                continue;
            }
            let Some(page) = self.pager.page(address).filter(|page| page.own && !page.large) else {
                continue;
            };
            let Ok(copy) = borrowed(page.physical).duplicate() else { return };
            if child.pager.map(address, copy, rights, true).is_err() {
                return;
            }
            child.pager.expect(address);
            child.count_resident(true, 1);
        }
    }
}

/// Pieces of one text mapping have one record of their sites together, in each address space one of its own: the last
/// piece takes the stubs with it.
struct Texts(Vec<(*const Text, Arc<Text>)>);

impl Texts {
    fn copy(&mut self, text: &Arc<Text>) -> Result<Arc<Text>> {
        let key = Arc::as_ptr(text);
        if let Some((_, copy)) = self.0.iter().find(|(original, _)| *original == key) {
            return Ok(copy.clone());
        }
        self.0.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        let copy = Arc::new(Text::clone(text));
        self.0.push((key, copy.clone()));
        Ok(copy)
    }
}
