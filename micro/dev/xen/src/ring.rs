// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring of requests and their responses in one page (`io/ring.h`), as the front end has it. The other end is believed two
//! counters: how many requests it took does not matter here, and how many responses there are is checked against how many may be.

use core::sync::atomic::{Ordering, fence};
use plat_pc::xen::Page;

// Words of the page.
const REQUESTS: usize = 0;
const REQUEST_EVENT: usize = 1;
const RESPONSES: usize = 2;
const RESPONSE_EVENT: usize = 3;
const ENTRIES: usize = 16;

/// The other end broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

pub struct Ring {
    page: &'static Page,
    /// Words of an entry, which holds a request and later a response.
    words: usize,
    /// A power of two.
    size: u32,
    /// Requests written, and of these the ones that the other end may see.
    written: u32,
    pushed: u32,
    /// Responses taken.
    taken: u32,
}

impl Ring {
    /// As many entries of so many words as fit, to a power of two.
    pub fn new(page: &'static Page, words: usize) -> Ring {
        let fit = (page.0.len() - ENTRIES) / words;
        // Without this the first response would not be told of.
        page.0[RESPONSE_EVENT].store(1, Ordering::Relaxed);
        page.0[REQUEST_EVENT].store(1, Ordering::Relaxed);
        Ring { page, words, size: 1 << fit.ilog2(), written: 0, pushed: 0, taken: 0 }
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    /// How many requests there is room for.
    pub fn room(&self) -> u32 {
        self.size - self.written.wrapping_sub(self.taken)
    }

    /// How many entries were written so far, and so the place of the next one.
    pub fn written(&self) -> u32 {
        self.written
    }

    fn at(&self, index: u32) -> usize {
        ENTRIES + (index & (self.size - 1)) as usize * self.words
    }

    /// Writes a request; there is room, and the entry has these words.
    pub fn write(&mut self, request: &[u32]) {
        debug_assert!(self.room() > 0 && request.len() <= self.words);
        let at = self.at(self.written);
        for (word, value) in self.page.0[at..at + self.words].iter().zip(request) {
            word.store(*value, Ordering::Relaxed);
        }
        self.written = self.written.wrapping_add(1);
    }

    /// Shows what was written; true: the other end wants to be told.
    pub fn push(&mut self) -> bool {
        let before = core::mem::replace(&mut self.pushed, self.written);
        if before == self.written {
            return false;
        }
        self.page.0[REQUESTS].store(self.written, Ordering::Release);
        // Either the other end sees the request before it sleeps, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        let event = self.page.0[REQUEST_EVENT].load(Ordering::Relaxed);
        self.written.wrapping_sub(event) < self.written.wrapping_sub(before)
    }

    /// How many responses wait.
    pub fn waiting(&self) -> Result<u32, Broken> {
        let count = self.page.0[RESPONSES].load(Ordering::Acquire).wrapping_sub(self.taken);
        if count <= self.pushed.wrapping_sub(self.taken) { Ok(count) } else { Err(Broken) }
    }

    /// Takes the first words of the next response, of which one waits, and says which entry it was in.
    pub fn take<const N: usize>(&mut self) -> (u32, [u32; N]) {
        let index = self.taken;
        let at = self.at(index);
        self.taken = index.wrapping_add(1);
        (index & (self.size - 1), core::array::from_fn(|i| self.page.0[at + i].load(Ordering::Relaxed)))
    }

    /// Asks to be told of the next response; false when one waits already.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        self.page.0[RESPONSE_EVENT].store(self.taken.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.waiting()? == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::boxed::Box;

    fn ring(words: usize) -> (Ring, &'static Page) {
        let page = Box::leak(Box::new(Page::default()));
        (Ring::new(page, words), page)
    }

    #[test]
    fn sizes_are_those_of_xens_headers() {
        assert_eq!([2, 3, 28].map(|words| ring(words).0.size()), [256, 256, 32]);
    }

    #[test]
    fn request_and_response_share_an_entry() {
        let (mut ring, page) = ring(2);
        ring.write(&[7, 8]);
        assert!(ring.push(), "the other end has not seen any yet");
        assert_eq!(
            (page.0[REQUESTS].load(Ordering::Relaxed), page.0[ENTRIES + 1].load(Ordering::Relaxed)),
            (1, 8)
        );
        assert_eq!((ring.waiting(), ring.arm()), (Ok(0), Ok(true)));
        page.0[ENTRIES].store(9, Ordering::Relaxed);
        page.0[RESPONSES].store(1, Ordering::Relaxed);
        assert_eq!((ring.waiting(), ring.arm()), (Ok(1), Ok(false)));
        assert_eq!(ring.take::<2>(), (0, [9, 8]));
        assert_eq!(ring.room(), ring.size());
    }

    #[test]
    fn other_end_is_told_once_where_it_asked_once() {
        let (mut ring, _) = ring(2);
        ring.write(&[1, 1]);
        assert!(ring.push());
        ring.write(&[2, 2]);
        assert!(!ring.push() && !ring.push());
    }

    #[test]
    fn more_responses_than_requests_break_the_ring() {
        let (mut ring, page) = ring(2);
        ring.write(&[1, 1]);
        // Written is not pushed.
        page.0[RESPONSES].store(1, Ordering::Relaxed);
        assert_eq!(ring.waiting(), Err(Broken));
        ring.push();
        assert_eq!(ring.waiting(), Ok(1));
        page.0[RESPONSES].store(2, Ordering::Relaxed);
        assert_eq!((ring.waiting(), ring.arm()), (Err(Broken), Err(Broken)));
    }

    proptest! {
        #[test]
        fn whatever_the_other_end_writes_the_counts_stay_in_bounds(
            words in 1usize..30, steps in proptest::collection::vec((any::<bool>(), any::<u32>()), 1..200)
        ) {
            let (mut ring, page) = ring(words);
            for (writes, count) in steps {
                if writes && ring.room() > 0 {
                    ring.write(&[count]);
                    ring.push();
                }
                page.0[RESPONSES].store(count, Ordering::Relaxed);
                page.0[REQUEST_EVENT].store(count, Ordering::Relaxed);
                if let Ok(waiting) = ring.waiting() {
                    prop_assert!(waiting <= ring.size());
                    if waiting > 0 {
                        prop_assert!(ring.take::<1>().0 < ring.size());
                    }
                }
                prop_assert!(ring.room() <= ring.size());
            }
        }
    }
}
