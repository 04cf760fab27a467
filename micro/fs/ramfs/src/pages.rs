// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sparse array of pages: a radix tree of 64-way nodes that is as high as its largest index needs. A file of one
//! page has no node at all.

use abi::{Result, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageFrame;

const BITS: u32 = 6;
const WAYS: usize = 1 << BITS;

enum Slot {
    Empty,
    Page(PageFrame),
    Node(Vec<Slot>),
}

/// Pages by index.
pub struct Pages {
    root: Slot,
    /// Levels of nodes above the pages: 0 when only index 0 fits.
    height: u32,
    count: u64,
}

fn node() -> Result<Vec<Slot>> {
    let mut ways = Vec::new();
    ways.reserve_exact_fallibly(WAYS).map_err(|_| ENOMEM)?;
    ways.extend((0..WAYS).map(|_| Slot::Empty));
    Ok(ways)
}

fn way(index: u64, level: u32) -> usize {
    (index >> (level * BITS)) as usize & (WAYS - 1)
}

impl Pages {
    pub const fn new() -> Pages {
        Pages { root: Slot::Empty, height: 0, count: 0 }
    }

    /// Pages in the tree.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn fits(&self, index: u64) -> bool {
        let bits = self.height * BITS;
        bits >= u64::BITS || index >> bits == 0
    }

    pub fn get(&self, index: u64) -> Option<&PageFrame> {
        if !self.fits(index) {
            return None;
        }
        let mut slot = &self.root;
        let mut level = self.height;
        loop {
            match slot {
                Slot::Empty => return None,
                Slot::Page(frame) => return Some(frame),
                Slot::Node(ways) => {
                    level -= 1;
                    slot = &ways[way(index, level)];
                }
            }
        }
    }

    /// Puts a page where there is none; the page that is there already wins and is returned.
    pub fn insert(&mut self, index: u64, frame: PageFrame) -> Result<PageFrame> {
        while !self.fits(index) {
            if !matches!(self.root, Slot::Empty) {
                let mut ways = node()?;
                ways[0] = core::mem::replace(&mut self.root, Slot::Empty);
                self.root = Slot::Node(ways);
            }
            self.height += 1;
        }
        let mut slot = &mut self.root;
        for level in (0..self.height).rev() {
            if matches!(slot, Slot::Empty) {
                *slot = Slot::Node(node()?);
            }
            let Slot::Node(ways) = slot else { return Err(ENOMEM) };
            slot = &mut ways[way(index, level)];
        }
        if let Slot::Page(there) = slot {
            return Ok(there.clone());
        }
        *slot = Slot::Page(frame.clone());
        self.count += 1;
        Ok(frame)
    }

    /// Removes the pages `from..to` and returns them one by one to `gone`.
    pub fn remove(&mut self, from: u64, to: u64, gone: &mut dyn FnMut(PageFrame)) {
        let (height, mut removed) = (self.height, 0);
        remove(&mut self.root, height, 0, from, to, &mut |frame| {
            removed += 1;
            gone(frame);
        });
        self.count -= removed;
        if self.count == 0 {
            self.root = Slot::Empty;
            self.height = 0;
        }
    }

    /// The first index at or behind `from` that has a page.
    pub fn next(&self, from: u64) -> Option<u64> {
        next(&self.root, self.height, 0, from)
    }
}

/// Pages below a slot of `level`, saturating.
fn span(level: u32) -> u64 {
    1u64.checked_shl(level * BITS).unwrap_or(u64::MAX)
}

fn remove(slot: &mut Slot, level: u32, base: u64, from: u64, to: u64, gone: &mut dyn FnMut(PageFrame)) {
    let last = base.saturating_add(span(level) - 1);
    if last < from || base >= to {
        return;
    }
    let mut empty = true;
    if let Slot::Node(ways) = slot {
        for (i, child) in ways.iter_mut().enumerate() {
            let start = base.saturating_add((i as u64).saturating_mul(span(level - 1)));
            remove(child, level - 1, start, from, to, gone);
            empty &= matches!(child, Slot::Empty);
        }
    }
    if empty && let Slot::Page(frame) = core::mem::replace(slot, Slot::Empty) {
        gone(frame);
    }
}

fn next(slot: &Slot, level: u32, base: u64, from: u64) -> Option<u64> {
    if base.saturating_add(span(level) - 1) < from {
        return None;
    }
    match slot {
        Slot::Empty => None,
        Slot::Page(_) => Some(base),
        Slot::Node(ways) => ways.iter().enumerate().find_map(|(i, child)| {
            let start = base.saturating_add((i as u64).saturating_mul(span(level - 1)));
            next(child, level - 1, start, from)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_pages_are_found_where_they_were_put() {
        let mut pages = Pages::new();
        let indexes = [0, 1, 63, 64, 4095, 4096, 1 << 30, (1 << 51) - 1];
        for (i, index) in indexes.iter().enumerate() {
            let frame = PageFrame::new().unwrap();
            frame.write(0, &[i as u8]);
            pages.insert(*index, frame).unwrap();
        }
        for (i, index) in indexes.iter().enumerate() {
            let mut byte = [0];
            pages.get(*index).unwrap().read(0, &mut byte);
            assert_eq!(byte[0], i as u8);
        }
        assert!(pages.get(2).is_none());
        assert_eq!(pages.next(2), Some(63));
        assert_eq!(pages.next(4097), Some(1 << 30));
        assert_eq!(pages.next(1 << 51), None);
        let mut gone = 0;
        pages.remove(64, 4096, &mut |_| gone += 1);
        assert_eq!((gone, pages.count()), (2, 6));
        assert_eq!(pages.next(64), Some(4096));
        pages.remove(0, u64::MAX, &mut |_| gone += 1);
        assert_eq!((gone, pages.count(), pages.next(0)), (8, 0, None));
    }

    #[test]
    fn the_first_page_put_in_a_place_stays() {
        let mut pages = Pages::new();
        let first = pages.insert(7, PageFrame::new().unwrap()).unwrap();
        let second = pages.insert(7, PageFrame::new().unwrap()).unwrap();
        assert_eq!(first.physical(), second.physical());
        assert_eq!(pages.count(), 1);
    }
}
