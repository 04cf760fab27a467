// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring buffer: records of any length in the order in which they were reserved (Linux' `BPF_MAP_TYPE_RINGBUF`).
//!
//! Each record has a header word: its length, [`BUSY`] until it is submitted, [`DISCARDED`] if it is to be skipped.
//! A record lies in one piece: one that would cross the end is preceded by a discarded one that fills it up.

use super::Words;
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const HEADER: u64 = 8;
const BUSY: u64 = 1 << 63;
const DISCARDED: u64 = 1 << 62;

pub(crate) struct Ring {
    size: u64,
    locked: AtomicBool,
    /// Bytes ever reserved and ever taken.
    produced: AtomicU64,
    consumed: AtomicU64,
}

impl Ring {
    /// `size` is a power of two.
    pub fn new(size: u32) -> Ring {
        Ring {
            size: size.into(),
            locked: AtomicBool::new(false),
            produced: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
        }
    }

    /// What `bpf_ringbuf_query` tells.
    pub fn query(&self, what: u64) -> u64 {
        let (produced, consumed) =
            (self.produced.load(Ordering::Acquire), self.consumed.load(Ordering::Acquire));
        match what {
            0 => produced - consumed,
            1 => self.size,
            2 => consumed,
            3 => produced,
            _ => 0,
        }
    }

    /// Makes room for a record: the byte where it begins.
    pub fn reserve(&self, words: &Words, length: u64) -> Option<usize> {
        let whole = HEADER + length.checked_next_multiple_of(8)?;
        if whole > self.size {
            return None;
        }
        while self.locked.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        let produced = self.produced.load(Ordering::Relaxed);
        let at = produced % self.size;
        let fill = if at + whole > self.size { self.size - at } else { 0 };
        let room = self.size - (produced - self.consumed.load(Ordering::Acquire));
        let place = (fill + whole <= room).then(|| {
            if fill > 0 {
                words.set((at / 8) as usize, DISCARDED | (fill - HEADER));
            }
            let at = (produced + fill) % self.size;
            words.set((at / 8) as usize, BUSY | length);
            self.produced.store(produced + fill + whole, Ordering::Release);
            (at + HEADER) as usize
        });
        self.locked.store(false, Ordering::Release);
        place
    }

    /// Length of the record whose bytes begin at `at`, while it is being written.
    pub fn reserved(&self, words: &Words, at: usize) -> Option<u64> {
        let header = words.get((at.checked_sub(HEADER as usize)?) / 8)?;
        (header & BUSY != 0).then_some(header & !(BUSY | DISCARDED))
    }

    /// Ends the writing of a record.
    pub fn finish(&self, words: &Words, at: usize, keep: bool) {
        let Some(length) = self.reserved(words, at) else { return };
        if let Some(word) = words.word((at - HEADER as usize) / 8) {
            word.store(if keep { length } else { length | DISCARDED }, Ordering::Release);
        }
    }

    /// Takes the oldest record, if it is finished. One reader at a time.
    pub fn take(&self, words: &Words, take: &mut dyn FnMut(&[u8])) -> bool {
        loop {
            let consumed = self.consumed.load(Ordering::Relaxed);
            if consumed == self.produced.load(Ordering::Acquire) {
                return false;
            }
            let at = (consumed % self.size) as usize;
            let Some(header) = words.word(at / 8).map(|w| w.load(Ordering::Acquire)) else { return false };
            if header & BUSY != 0 {
                return false;
            }
            let length = header & !DISCARDED;
            let kept = header & DISCARDED == 0;
            if kept {
                let mut bytes = Vec::new();
                // Without memory the record waits.
                if bytes.reserve_exact_fallibly(length as usize).is_err() {
                    return false;
                }
                bytes.resize(length as usize, 0);
                words.read(at + HEADER as usize, &mut bytes);
                take(&bytes);
            }
            self.consumed.store(consumed + HEADER + length.next_multiple_of(8), Ordering::Release);
            if kept {
                return true;
            }
        }
    }
}
