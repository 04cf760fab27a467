// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fork: a second address space with the contents of the first.
//!
//! Pages are not copied but shared until one of the two writes; their counts of handles say who is the last. What
//! mappings of files share they go on sharing, for their pages come from the file.

use crate::pager::Pager;
use crate::space::{Inner, Space};
use crate::text::Text;
use crate::vma::{Backing, Vma};
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;

impl Space {
    /// Another address space with the same mappings, pages and break, as fork(2) makes it: without mappings of
    /// MADV_DONTFORK, with empty ones of MADV_WIPEONFORK, and with nothing locked. `ENOMEM` leaves this one as it was
    /// as far as the program can tell.
    pub fn fork(&self) -> Result<Arc<Space>> {
        let inner = self.lock().fork()?;
        Ok(Space::with(inner))
    }
}

impl Inner {
    fn fork(&mut self) -> Result<Inner> {
        let mut child = Inner::empty(self.layout, self.limits, self.zero.clone())?;
        (child.brk_start, child.brk) = (self.brk_start, self.brk);
        child.traced = self.traced;
        let zero = self.zero.physical();
        let Inner { tree, pager, .. } = self;
        let mut texts = Texts(Vec::new());
        for (start, vma) in tree.iter().filter(|(_, vma)| !vma.traits.no_fork) {
            let mut copy: Vma = vma.clone();
            copy.traits.locked = false;
            copy.text = vma.text.as_ref().map(|text| texts.copy(text)).transpose()?;
            child.account(&copy.traits, (vma.end - start) as i64);
            child.tree.insert_apart(start, copy);
            // Pages of shared mappings come from the file when they are touched.
            let from_file = vma.traits.shared && matches!(vma.backing, Backing::File { .. });
            if from_file || vma.traits.wipe_on_fork {
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
        }
        Ok(child)
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
        self.0.try_reserve(1).map_err(|_| ENOMEM)?;
        let copy = Arc::new(Text::clone(text));
        self.0.push((key, copy.clone()));
        Ok(copy)
    }
}
