// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a traced process (ptrace(2)): its text shows the program's own bytes, and the tracer reads and writes
//! what the program itself may not.
//!
//! A patched system call would be seen by a debugger that disassembles, would take a breakpoint that the kernel then
//! jumps over, and a single step would lead into the kernel. So a traced space has no patched calls: the pages that
//! have some get their own bytes back, later ones are not patched, and every call of the process traps. The stubs stay
//! as they are, for a thread may be in the middle of one; [`Space::original_address`] says where it would be otherwise.
//!
//! A space that was traced once stays so: a thread, or the frame of a signal handler on its stack, may stand behind a
//! `syscall` whose place a jump would take. The next program has a space of its own, with patched calls.

use crate::fault::{Step, borrowed};
use crate::pager::Pager;
use crate::space::{Inner, Space};
use crate::text::Text;
use crate::vma::{Backing, MappedFile};
use crate::{PAGE, Prot};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageFrame;
use api_plat::{Access, FaultOutcome};

/// A page of text with patched calls: its address, its sites, and what it is a copy of.
struct Patched {
    address: u64,
    text: Arc<Text>,
    file: Arc<MappedFile>,
    index: u64,
}

impl Space {
    /// The text shows the program's own bytes from now on, for good. May block in the file's [`api_mem::PageSource::page`].
    pub fn start_tracing(&self) -> Result<()> {
        let patched = {
            let mut inner = self.lock();
            if inner.traced {
                return Ok(());
            }
            let patched = inner.patched()?;
            inner.traced = true;
            patched
        };
        for page in patched {
            let original = page.file.source.page(page.index, false).map_err(|_| EIO)?;
            let mut inner = self.lock();
            inner.restore(&page, &original)?;
            inner.pager.flush();
        }
        Ok(())
    }

    /// Where the program is that is at `address`: in a stub, the place in the text that the stub stands for.
    pub fn original_address(&self, address: u64) -> u64 {
        let inner = self.lock();
        match inner.tree.find(address) {
            Some((_, vma)) if matches!(vma.backing, Backing::Stubs) => {
                let texts = inner.tree.iter().filter_map(|(_, vma)| vma.text.as_ref());
                texts.filter_map(|text| text.original(address)).next().unwrap_or(address)
            }
            _ => address,
        }
    }

    /// Reads as a tracer: whatever the mapping allows the program. `EIO` where nothing is mapped.
    pub fn peek(&self, address: u64, to: &mut [u8]) -> Result<()> {
        self.by_pages(address, to.len(), |at, offset, range| {
            let frame = self.reach(at, false)?;
            frame.read(offset, &mut to[range]);
            Ok(())
        })
    }

    /// Writes as a tracer: also to what the program may only read or execute, of which it gets a copy of its own. `EIO` where
    /// nothing is mapped, and for files that are mapped shared and may not be written.
    pub fn poke(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.by_pages(address, bytes.len(), |at, offset, range| {
            let frame = self.reach(at, true)?;
            frame.write(offset, &bytes[range]);
            Ok(())
        })
    }

    fn by_pages(
        &self,
        address: u64,
        length: usize,
        mut each: impl FnMut(u64, usize, core::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).filter(|at| *at < crate::USER_END).ok_or(EIO)?;
            let offset = (at % PAGE) as usize;
            let n = (PAGE as usize - offset).min(length - done);
            each(at & !(PAGE - 1), offset, done..done + n)?;
            done += n;
        }
        Ok(())
    }

    /// The frame of a page, made ready to be read or written by the tracer.
    fn reach(&self, page: u64, writes: bool) -> Result<PageFrame> {
        // Pages that are fetched may go again before the lock is taken.
        for _ in 0..8 {
            let rights = {
                let inner = self.lock();
                inner.tree.find(page).map(|(_, vma)| vma.flags.rights)
            };
            let access = match rights {
                Some(rights) if writes && rights.contains(Prot::WRITE) => Access::Write,
                Some(rights) if !rights.contains(Prot::READ) && rights.contains(Prot::EXECUTE) => {
                    Access::Execute
                }
                // Where nothing is mapped a stack may grow.
                _ => Access::Read,
            };
            match self.fault(page, access) {
                FaultOutcome::Resolved => {}
                FaultOutcome::OutOfMemory => return Err(ENOMEM),
                // What the program has made inaccessible is there all the same.
                FaultOutcome::Segv { mapped: true } => {}
                _ => return Err(EIO),
            }
            let mut inner = self.lock();
            let (_, vma) = inner.tree.find(page).ok_or(EIO)?;
            let (rights, shared) = (vma.flags.rights, vma.flags.shared);
            let is_fixed = matches!(vma.backing, Backing::Fixed | Backing::Stubs);
            let anonymous = matches!(vma.backing, Backing::Anonymous);
            let there = inner.pager.page(page);
            if writes && !rights.contains(Prot::WRITE) && (shared || is_fixed) {
                return Err(EIO);
            }
            let Some(there) = there else {
                // Never touched, and nobody may: nothing is there to be read.
                if rights.is_none() && anonymous && !writes {
                    return Ok(inner.zero.clone());
                }
                if rights.is_none() {
                    return Err(EIO);
                }
                continue;
            };
            if writes && !shared && (!there.own || there.copied) {
                if !matches!(inner.make_own(page, there, rights), Step::Done(FaultOutcome::Resolved)) {
                    return Err(ENOMEM);
                }
                inner.pager.flush();
            }
            let there = inner.pager.page(page).ok_or(EIO)?;
            return Ok(PageFrame::clone(&borrowed(there.physical)));
        }
        Err(EIO)
    }
}

impl Inner {
    /// The pages of text that were touched and have patched calls.
    fn patched(&mut self) -> Result<Vec<Patched>> {
        let Inner { tree, pager, .. } = self;
        let mut patched = Vec::new();
        for (start, vma) in tree.iter() {
            let (Some(text), Some((file, first))) = (&vma.text, vma.file_page(start, start)) else {
                continue;
            };
            let pages = (vma.end - start) / PAGE;
            for index in text.pages().filter(|index| (first..first + pages).contains(index)) {
                let address = start + (index - first) * PAGE;
                if pager.page(address).is_some() {
                    patched.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                    patched.push(Patched { address, text: text.clone(), file: file.clone(), index });
                }
            }
        }
        Ok(patched)
    }

    /// Gives a patched page its own bytes back. The page is replaced at once: another processor may be running it.
    fn restore(&mut self, patched: &Patched, original: &PageFrame) -> Result<()> {
        let Some((_, vma)) = self.tree.find(patched.address) else { return Ok(()) };
        let rights = vma.flags.rights;
        if !vma.text.as_ref().is_some_and(|text| Arc::ptr_eq(text, &patched.text)) {
            return Ok(());
        }
        let Some(there) = self.pager.page(patched.address) else { return Ok(()) };
        if !there.own {
            // Other spaces have the patched page as well.
            let rights = rights.without(Prot::WRITE);
            drop(self.pager.replace(patched.address, original.clone(), rights, false));
            return Ok(());
        }
        let copy = borrowed(there.physical).duplicate()?;
        patched.text.unpatch_from(patched.index, &copy, original);
        // Written pages stay writable, as far as the mapping is.
        drop(self.pager.replace(patched.address, copy, rights, true));
        Ok(())
    }
}
