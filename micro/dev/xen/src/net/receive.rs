// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that come: the other end writes them to pages, whose bytes are copied to the caller's buffers. Entry and page belong
//! together, so nothing that the other end says names a page.

use crate::page::{PAGE, read};
use crate::ring::{Broken, Ring};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{Buffer, Incoming};
use plat_pc::xen::Page;

/// Words of a response.
pub const WORDS: usize = 2;
// Flags of a response (`NETRXF_`).
pub const DATA_VALIDATED: u32 = 1;
pub const CHECKSUM_BLANK: u32 = 2;
pub const MORE_DATA: u32 = 4;
pub const EXTRA_INFO: u32 = 8;
/// Of an entry with extra information: another one follows (`XEN_NETIF_EXTRA_FLAG_MORE`), in the second byte.
const EXTRA_MORE: u32 = 1 << 8;

/// Buffers that are kept for packets.
pub const BUFFERS: usize = 256;
/// Until the first packet comes: enough for the largest.
const FIRST_BUFFERS: usize = 33;

pub struct Receive {
    ring: Ring,
    /// A power of two.
    pages: &'static [Page],
    grants: Vec<u32>,
    spare: Vec<Buffer>,
    is_used: bool,
    is_broken: bool,
}

/// What a packet is copied to.
struct Copied {
    first: Option<Buffer>,
    more: Vec<Buffer>,
    is_whole: bool,
}

impl Copied {
    /// The buffer that has room, or another one.
    fn last(&mut self, spare: &mut Vec<Buffer>) -> Option<&mut Buffer> {
        let last = self.more.last().or(self.first.as_ref());
        if last.is_none_or(|buffer| buffer.tailroom() == 0) {
            let mut buffer = spare.pop()?;
            buffer.reset(0);
            if self.first.is_none() {
                self.first = Some(buffer);
            } else if self.more.reserve_fallibly(1).is_ok() {
                self.more.push(buffer);
            } else {
                spare.push(buffer);
                return None;
            }
        }
        self.more.last_mut().or(self.first.as_mut())
    }

    /// Appends the bytes at this place of the page.
    fn append(&mut self, page: &Page, mut offset: usize, end: usize, spare: &mut Vec<Buffer>) {
        while self.is_whole && offset < end {
            let Some(buffer) = self.last(spare) else {
                self.is_whole = false;
                return;
            };
            let count = buffer.tailroom().min(end - offset);
            if let Some(to) = buffer.extend(count) {
                read(page, offset, to);
            }
            offset += count;
        }
    }
}

impl Receive {
    pub fn new(ring: Ring, pages: &'static [Page], grants: Vec<u32>, spare: Vec<Buffer>) -> Receive {
        debug_assert!(pages.len().is_power_of_two() && pages.len() <= ring.size() as usize);
        Receive { ring, pages, grants, spare, is_used: false, is_broken: false }
    }

    /// Gives the other end the pages that it has not; true: it is to be told.
    pub fn fill(&mut self) -> bool {
        let taken = self.ring.size() - self.ring.room();
        for _ in taken..self.pages.len() as u32 {
            let page = self.ring.written() as usize % self.pages.len();
            self.ring.write(&[page as u32, self.grants[page]]);
        }
        self.ring.push()
    }

    pub fn wanted(&self) -> usize {
        let most = if self.is_used { BUFFERS } else { FIRST_BUFFERS };
        most.saturating_sub(self.spare.len())
    }

    pub fn refill(&mut self, buffers: &mut Vec<Buffer>) {
        while self.spare.len() < BUFFERS
            && let Some(buffer) = buffers.pop()
        {
            self.spare.push(buffer);
        }
    }

    fn waiting(&mut self) -> Result<bool, Broken> {
        if self.is_broken {
            return Ok(false);
        }
        self.ring.waiting().map(|count| count > 0).inspect_err(|_| self.is_broken = true)
    }

    /// Whoever sends the first half of a packet has broken the protocol: all of a packet is shown at once.
    fn next(&mut self) -> Result<(u32, [u32; WORDS]), Broken> {
        if self.waiting()? {
            return Ok(self.ring.take());
        }
        self.is_broken = true;
        Err(Broken)
    }

    /// The next packet. `Some(None)`: there was one that made no sense, or found no buffers.
    pub fn packet(&mut self) -> Result<Option<Option<Incoming>>, Broken> {
        if !self.waiting()? {
            return Ok(None);
        }
        self.is_used = true;
        let mut copied = Copied { first: None, more: Vec::new(), is_whole: true };
        let (mut entry, mut words) = self.next()?;
        let begin = words[1];
        if begin & EXTRA_INFO != 0 {
            // How long its segments were is nothing to us.
            while self.next()?.1[0] & EXTRA_MORE != 0 {}
        }
        loop {
            let [place, answer] = words;
            let (offset, length) = ((place >> 16) as usize, (answer >> 16) as u16 as i16);
            let end = usize::try_from(length).ok().filter(|n| *n > 0).map(|n| offset + n);
            match end.filter(|end| *end <= PAGE) {
                Some(end) => {
                    let page = &self.pages[entry as usize % self.pages.len()];
                    copied.append(page, offset, end, &mut self.spare);
                }
                None => copied.is_whole = false,
            }
            if answer & MORE_DATA == 0 {
                break;
            }
            (entry, words) = self.next()?;
        }
        let Copied { first, more, is_whole } = copied;
        if let (true, Some(first)) = (is_whole, &first) {
            debug_assert!(!first.is_empty());
        }
        match (is_whole, first) {
            (true, Some(first)) => {
                let checksum_valid = begin & (DATA_VALIDATED | CHECKSUM_BLANK) != 0;
                Ok(Some(Some(Incoming { first, more, checksum_valid })))
            }
            (_, first) => {
                self.spare.extend(first.into_iter().chain(more).take(BUFFERS));
                Ok(Some(None))
            }
        }
    }

    /// Asks to be told of the next packet; false: one waits.
    pub fn arm(&mut self) -> bool {
        self.is_broken || self.ring.arm().unwrap_or(true)
    }
}
