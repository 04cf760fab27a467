// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies into and out of pages that others may write to meanwhile.

use core::sync::atomic::Ordering;
use plat_pc::xen::Page;

pub const PAGE: usize = 4096;

/// Copies pieces one behind the other into pages, whole words at a time.
pub struct Writer<'a, I> {
    pages: I,
    page: Option<&'a Page>,
    /// Bytes of the page that are written, and those of them that wait for their word to be whole.
    at: usize,
    word: [u8; 4],
}

impl<'a, I: Iterator<Item = &'a Page>> Writer<'a, I> {
    pub fn new(pages: I) -> Writer<'a, I> {
        Writer { pages, page: None, at: 0, word: [0; 4] }
    }

    /// What exceeds the pages is left out.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.at.is_multiple_of(PAGE) {
                self.page = self.pages.next();
                self.at = 0;
            }
            let Some(page) = self.page else { return };
            if self.at.is_multiple_of(4) && bytes.len() >= 4 {
                let count = (bytes.len().min(PAGE - self.at)) / 4;
                let (now, rest) = bytes.split_at(4 * count);
                let words = now.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
                let first = self.at / 4;
                page.0[first..first + count]
                    .iter()
                    .zip(words)
                    .for_each(|(to, w)| to.store(w, Ordering::Relaxed));
                self.at += 4 * count;
                bytes = rest;
                continue;
            }
            if self.at.is_multiple_of(4) {
                self.word = [0; 4];
            }
            self.word[self.at % 4] = bytes[0];
            page.0[self.at / 4].store(u32::from_le_bytes(self.word), Ordering::Relaxed);
            self.at += 1;
            bytes = &bytes[1..];
        }
    }
}

/// Copies out of a page; what exceeds it is left as it is.
pub fn read(page: &Page, offset: usize, to: &mut [u8]) {
    let mut words = page.0.iter().skip(offset / 4).map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    if offset.is_multiple_of(4) {
        for (to, word) in to.chunks_mut(4).zip(words) {
            to.copy_from_slice(&word[..to.len()]);
        }
        return;
    }
    let Some(mut word) = words.next() else { return };
    for (i, byte) in (offset..PAGE).zip(to) {
        *byte = word[i % 4];
        if i % 4 == 3 {
            word = words.next().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn pieces_are_read_back_as_they_were_written(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 0..8), offset in 0..PAGE
        ) {
            let pages: Vec<Page> = (0..3).map(|_| Page::default()).collect();
            let mut writer = Writer::new(pages.iter());
            pieces.iter().for_each(|piece| writer.put(piece));
            let mut all = pieces.concat();
            all.resize(3 * PAGE, 0);
            let mut found = std::vec![0; PAGE];
            for (page, bytes) in pages.iter().zip(all.chunks(PAGE)) {
                read(page, 0, &mut found);
                prop_assert_eq!(&found[..], bytes);
                let mut part = std::vec![0xaa; 100];
                read(page, offset, &mut part);
                let there = bytes[offset..].len().min(100);
                prop_assert_eq!(&part[..there], &bytes[offset..offset + there]);
                prop_assert!(part[there..].iter().all(|byte| *byte == 0xaa));
            }
        }
    }
}
