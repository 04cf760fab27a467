// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of a ring, which the program maps.
//!
//! The program writes to them whenever it likes: what is read here is one word of status at a time, and never an offset or a length
//! that is not checked against the ring's own.

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::{PageFrame, PageSource};
use core::sync::atomic::{Ordering, fence};

/// Pages of zeros in a row.
pub struct Memory(Vec<PageFrame>);

impl Memory {
    /// `ENOMEM` without so many pages, and where little would be left for others.
    pub fn new(pages: usize) -> Result<Arc<Memory>> {
        let mut frames = Vec::new();
        frames.reserve_exact_fallibly(pages).map_err(|_| ENOMEM)?;
        for _ in 0..pages {
            if api_alloc::is_low() {
                return Err(ENOMEM);
            }
            frames.push(PageFrame::new()?);
        }
        Ok(Arc::new(Memory(frames)))
    }

    pub fn pages(&self) -> usize {
        self.0.len()
    }

    /// The pieces of pages that `length` bytes from `at` on lie in: page, offset in it, and offset from `at`.
    fn pieces(
        &self,
        at: usize,
        length: usize,
    ) -> impl Iterator<Item = (&PageFrame, usize, core::ops::Range<usize>)> {
        let mut done = 0;
        core::iter::from_fn(move || {
            let (page, offset) = ((at + done) / PAGE_SIZE, (at + done) % PAGE_SIZE);
            let frame = self.0.get(page).filter(|_| done < length)?;
            let piece = done..(done + PAGE_SIZE - offset).min(length);
            done = piece.end;
            Some((frame, offset, piece))
        })
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.pieces(at, bytes.len()).for_each(|(frame, offset, piece)| frame.write(offset, &bytes[piece]));
    }

    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        self.pieces(at, bytes.len()).for_each(|(frame, offset, piece)| frame.read(offset, &mut bytes[piece]));
    }

    pub fn word(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    /// The status that the program wrote last. What it wrote before that is read after this.
    pub fn status(&self, at: usize) -> u32 {
        let status = self.word(at);
        fence(Ordering::Acquire);
        status
    }

    /// Hands over what was written before.
    pub fn set_status(&self, at: usize, status: u32) {
        fence(Ordering::Release);
        self.write(at, &status.to_ne_bytes());
        fence(Ordering::Release);
    }
}

/// What mmap(2) of a socket maps: the ring that receives, and behind it the one that sends.
pub struct Rings(pub Vec<Arc<Memory>>);

impl PageSource for Rings {
    fn page(&self, index: u64, _: bool) -> Result<PageFrame> {
        let mut index = usize::try_from(index).map_err(|_| EINVAL)?;
        for memory in &self.0 {
            match memory.0.get(index) {
                Some(frame) => return Ok(frame.clone()),
                None => index -= memory.pages(),
            }
        }
        Err(EINVAL)
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        self.page(index, false).ok()
    }

    /// Everything, and nothing else (Linux' packet_mmap).
    fn check_range(&self, first: u64, count: u64) -> Result<()> {
        if first == 0 && count * PAGE_SIZE as u64 == self.length() { Ok(()) } else { Err(EINVAL) }
    }

    fn length(&self) -> u64 {
        (self.0.iter().map(|memory| memory.pages()).sum::<usize>() * PAGE_SIZE) as u64
    }

    fn is_memory(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_across_pages_and_both_rings_are_mapped_as_one() {
        let (one, two) = (Memory::new(2).unwrap(), Memory::new(1).unwrap());
        one.write(PAGE_SIZE - 2, &[1, 2, 3, 4]);
        let mut bytes = [0; 4];
        one.read(PAGE_SIZE - 2, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        two.set_status(8, 77);
        assert_eq!(two.status(8), 77);
        let rings = Rings([one.clone(), two].into());
        let mut word = [0; 4];
        rings.page(2, true).unwrap().read(8, &mut word);
        assert_eq!((u32::from_ne_bytes(word), rings.length()), (77, 3 * PAGE_SIZE as u64));
        assert_eq!(rings.page(3, false).err(), Some(EINVAL));
        assert_eq!(
            [rings.check_range(0, 3), rings.check_range(0, 2), rings.check_range(1, 2)],
            [Ok(()), Err(EINVAL), Err(EINVAL)]
        );
        assert_eq!(Arc::strong_count(&one), 2, "who maps it can be counted");
    }
}
