// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a tracer does to the program's memory: look without touching, change code, and put code near it.

use crate::fault::{Step, borrowed};
use crate::pager::Pager;
use crate::space::{Space, range_end};
use crate::text::REACH;
use crate::vma::{Backing, VmFlags, Vma};
use crate::{PAGE, Prot, USER_END};
use abi::{Result, errno::*};
use api_mem::PageFrame;
use api_plat::{Access, FaultOutcome};

/// As many bytes as are changed at once.
const MAX_BYTES: usize = 64;

impl Space {
    /// What the host shows of the space, in ascending order: start, end, and PROT_* rights of pages with the same ones.
    #[cfg(feature = "process")]
    pub fn shown(&self, each: &mut dyn FnMut(u64, u64, u32)) {
        self.lock().pager.shown(each);
    }

    /// Replaces bytes of the program's code, if they are `expected`: all at once as far as this processor is
    /// concerned. The program gets pages of its own; the file stays as it is. `EBUSY` when there is something else,
    /// `EFAULT` where no code is, `EACCES` for code that is shared or not a file's.
    pub fn poke_code(&self, address: u64, expected: &[u8], bytes: &[u8]) -> Result<()> {
        let end = range_end(address & !(PAGE - 1), PAGE, EFAULT)?;
        if expected.len() != bytes.len() || bytes.len() > MAX_BYTES || end > USER_END {
            return Err(EINVAL);
        }
        let last = address + bytes.len() as u64 - 1;
        let pages = [address & !(PAGE - 1), last & !(PAGE - 1)];
        let pages = if pages[0] == pages[1] { &pages[..1] } else { &pages[..] };
        // Pages that are fetched may go again before the lock is taken.
        for _ in 0..8 {
            for page in pages {
                match self.fault(*page, Access::Execute) {
                    FaultOutcome::Resolved => {}
                    FaultOutcome::OutOfMemory => return Err(ENOMEM),
                    _ => return Err(EFAULT),
                }
            }
            let mut inner = self.lock();
            let mut own = true;
            for page in pages {
                let Some((_, vma)) = inner.tree.find(*page) else { return Err(EFAULT) };
                let rights = vma.flags.rights;
                if vma.flags.shared || !matches!(vma.backing, Backing::File { .. }) {
                    return Err(EACCES);
                }
                match inner.pager.page(*page) {
                    Some(there) if !there.own || there.copied => {
                        if !matches!(inner.make_own(*page, there, rights), Step::Done(FaultOutcome::Resolved))
                        {
                            return Err(ENOMEM);
                        }
                    }
                    Some(_) => {}
                    None => own = false,
                }
            }
            if !own {
                continue;
            }
            let mut frames = [(0, 0); 2];
            for (i, page) in pages.iter().enumerate() {
                frames[i] = (*page, inner.pager.page(*page).ok_or(EFAULT)?.physical);
            }
            // Each byte by itself: at most two pages are involved.
            let place = |at: u64| {
                let frame = if at & !(PAGE - 1) == frames[0].0 { frames[0].1 } else { frames[1].1 };
                (borrowed(frame), (at % PAGE) as usize)
            };
            let mut there = [0; MAX_BYTES];
            for (i, byte) in there[..bytes.len()].iter_mut().enumerate() {
                let (frame, offset) = place(address + i as u64);
                frame.read(offset, core::slice::from_mut(byte));
            }
            if there[..bytes.len()] != *expected {
                return Err(EBUSY);
            }
            for (i, byte) in bytes.iter().enumerate() {
                let (frame, offset) = place(address + i as u64);
                frame.write(offset, core::slice::from_ref(byte));
            }
            return Ok(());
        }
        Err(EAGAIN)
    }

    /// Maps a page of the tracer's, readable and executable, within reach of a relative jump from `near`; it stays
    /// for as long as the space does.
    pub fn map_near(&self, near: u64, frame: PageFrame) -> Result<u64> {
        let mut inner = self.lock();
        let below = inner.tree.gap_below(crate::layout::LOWEST.max(near.saturating_sub(REACH)), near, PAGE);
        let above = || inner.tree.gap_above(near, near.saturating_add(REACH).min(USER_END), PAGE);
        let address = below.or_else(above).ok_or(ENOMEM)?;
        let rights = Prot::READ.with(Prot::EXECUTE);
        let flags = VmFlags { rights, most: rights, shared: true, ..VmFlags::default() };
        let mut vma = Vma::anonymous(address + PAGE, flags);
        (vma.backing, vma.name) = (Backing::Fixed, "[probes]");
        inner.map_file_page(address, frame, rights)?;
        inner.pager.flush();
        inner.account(&flags, PAGE as i64);
        inner.tree.insert(address, vma);
        Ok(address)
    }
}
