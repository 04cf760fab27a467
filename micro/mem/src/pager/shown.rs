// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A record of what a host process shows of the program's part: which memory, and with which rights.
//!
//! A host process outlives the address space that it showed. The next space that it shows is often a relative: a child of the same
//! parent, whose text is the same pages at the same addresses. The record tells which mappings can stay and which have to
//! go, where unmapping everything would cost a fault and a call for each piece that comes back.
//!
//! The record is exact, or it is lost: of a program with many pieces nobody needs it, and keeping it would cost more with each.

use crate::{PAGE, Prot};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// `length` bytes of memory from `physical` on at `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub address: u64,
    pub physical: u64,
    pub length: u64,
    pub rights: Prot,
}

impl Run {
    pub const NOTHING: Run = Run { address: 0, physical: 0, length: 0, rights: Prot::NONE };

    pub fn end(&self) -> u64 {
        self.address + self.length
    }

    /// Takes over `next` when it goes on with the same memory and rights where this one ends.
    pub fn extend(&mut self, next: &Run) -> bool {
        let goes_on = self.rights == next.rights
            && self.end() == next.address
            && self.physical + self.length == next.physical;
        if goes_on {
            self.length += next.length;
        }
        goes_on
    }

    /// The part of it that lies in the range, which is not empty.
    fn part(&self, start: u64, end: u64) -> Run {
        let address = self.address.max(start);
        let length = self.end().min(end) - address;
        Run { address, physical: self.physical + (address - self.address), length, rights: self.rights }
    }
}

/// A record that is not lost. What is shown can be asked of it alone: a lost record has no runs, and "nothing is shown" would be wrong.
/// Any change may lose a record, one that takes pages away too, for what is left of a run may be two.
#[derive(Clone, Copy)]
pub(super) struct Known<'a>(&'a [Run]);

impl Known<'_> {
    /// Index of the first run that ends behind `address`.
    fn index(self, address: u64) -> usize {
        self.0.partition_point(|run| run.end() <= address)
    }

    /// The first part of a run that lies in the range.
    pub fn next(self, start: u64, end: u64) -> Option<Run> {
        let run = self.0.get(self.index(start)).filter(|run| run.address < end && start < end)?;
        Some(run.part(start, end))
    }

    /// True when all of the run is shown as it says.
    pub fn holds(self, run: &Run) -> bool {
        self.next(run.address, run.end()) == Some(*run)
    }
}

/// What one host process shows.
pub(super) struct Shown {
    /// Ascending, none over another.
    runs: Vec<Run>,
    is_lost: bool,
}

impl Shown {
    /// A program that has more runs has other costs than those of a fork. 4 KiB for each host process.
    pub const MAX: usize = 128;

    /// Nothing is shown.
    pub const fn new() -> Shown {
        Shown { runs: Vec::new(), is_lost: false }
    }

    /// Everything was unmapped.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.is_lost = false;
    }

    fn lose(&mut self) {
        self.runs.clear();
        self.is_lost = true;
    }

    /// What is shown; `None` when nobody knows.
    pub fn known(&self) -> Option<Known<'_>> {
        (!self.is_lost).then_some(Known(&self.runs))
    }

    /// The range is no longer shown.
    pub fn remove(&mut self, start: u64, end: u64) {
        self.splice(start, end, None);
    }

    /// The run is shown, in place of what was there.
    pub fn add(&mut self, run: Run) {
        self.splice(run.address, run.end(), Some(run));
    }

    /// What is shown of the range has other rights.
    pub fn protect(&mut self, start: u64, end: u64, rights: Prot) {
        let mut at = start;
        while let Some(run) = self.known().and_then(|known| known.next(at, end)) {
            at = run.end();
            if run.rights != rights {
                self.add(Run { rights, ..run });
            }
        }
    }

    /// Puts a run, or nothing, in place of the range.
    fn splice(&mut self, start: u64, end: u64, new: Option<Run>) {
        if self.is_lost || start >= end {
            return;
        }
        let first = Known(&self.runs).index(start);
        let behind = self.runs[first..].partition_point(|run| run.address < end) + first;
        // What is left of the runs at both ends of the range, around what is new.
        let mut pieces = [Run::NOTHING; 3];
        let mut count = 0;
        if first < behind {
            let (head, tail) = (self.runs[first], self.runs[behind - 1]);
            if head.address < start {
                (pieces[count], count) = (head.part(head.address, start), count + 1);
            }
            if let Some(run) = new {
                (pieces[count], count) = (run, count + 1);
            }
            if tail.end() > end {
                (pieces[count], count) = (tail.part(end, tail.end()), count + 1);
            }
        } else if let Some(run) = new {
            (pieces[count], count) = (run, count + 1);
        }
        // All of its memory at once, with room for the pieces that are left: it never moves.
        let is_too_long = self.runs.len() - (behind - first) + count > Self::MAX;
        if is_too_long || self.runs.reserve_exact_fallibly(Self::MAX - self.runs.len()).is_err() {
            return self.lose();
        }
        self.runs.splice(first..behind, pieces[..count].iter().copied());
        // Neighbours that became one: the pieces, and the runs next to them.
        for index in (first.saturating_sub(1)..first + count).rev() {
            if let (Some(next), Some(run)) = (self.runs.get(index + 1).copied(), self.runs.get_mut(index))
                && run.extend(&next)
            {
                self.runs.remove(index + 1);
            }
        }
    }
}

/// What is to be unmapped of a record: ranges, ascending, each as long as nothing that stays lies in it.
pub(super) struct Leftovers {
    range: (u64, u64),
}

impl Leftovers {
    pub const fn new() -> Leftovers {
        Leftovers { range: (0, 0) }
    }

    /// The next page of the record: it stays, or goes. Answers a range that is complete.
    pub fn page(&mut self, address: u64, stays: bool) -> Option<(u64, u64)> {
        let before = self.range;
        match (stays, before.1 != 0) {
            (true, _) => return self.end(),
            (false, true) => self.range.1 = address + PAGE,
            (false, false) => self.range = (address, address + PAGE),
        }
        None
    }

    /// The last range, if there is one.
    pub fn end(&mut self) -> Option<(u64, u64)> {
        let range = core::mem::take(&mut self.range);
        (range.1 != 0).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const RW: Prot = Prot::READ.with(Prot::WRITE);

    fn runs(shown: &Shown) -> &[Run] {
        shown.known().unwrap().0
    }

    fn holds(shown: &Shown, run: &Run) -> bool {
        shown.known().unwrap().holds(run)
    }

    fn run(page: u64, physical: u64, pages: u64, rights: Prot) -> Run {
        Run { address: page * PAGE, physical: physical * PAGE, length: pages * PAGE, rights }
    }

    #[test]
    fn neighbours_with_the_same_memory_and_rights_are_one_run() {
        let mut shown = Shown::new();
        shown.add(run(10, 50, 2, RW));
        shown.add(run(14, 54, 1, RW));
        shown.add(run(12, 52, 2, RW));
        assert_eq!(runs(&shown), [run(10, 50, 5, RW)]);
        assert!(holds(&shown, &run(11, 51, 3, RW)) && !holds(&shown, &run(11, 52, 3, RW)));
        shown.protect(11 * PAGE, 12 * PAGE, Prot::READ);
        assert!(!holds(&shown, &run(10, 50, 3, RW)));
        assert_eq!(runs(&shown).len(), 3);
        shown.protect(11 * PAGE, 12 * PAGE, RW);
        assert_eq!(runs(&shown).len(), 1);
    }

    #[test]
    fn a_record_with_too_many_runs_is_lost_until_nothing_is_shown() {
        let mut shown = Shown::new();
        for page in 0..Shown::MAX as u64 {
            shown.add(run(10 + 2 * page, page, 1, RW));
        }
        assert_eq!(runs(&shown).len(), Shown::MAX);
        // In place of another one it fits.
        shown.add(run(12, 9_000, 1, Prot::READ));
        assert!(shown.known().is_some());
        shown.add(run(9_000, 9_000, 1, RW));
        assert!(shown.known().is_none());
        shown.add(run(1, 1, 1, RW));
        assert!(shown.known().is_none());
        shown.clear();
        assert_eq!(runs(&shown), []);
        // The middle of a run is taken away.
        for page in 0..Shown::MAX as u64 {
            shown.add(run(10 + 4 * page, 1_000 * page, 3, RW));
        }
        shown.remove(11 * PAGE, 12 * PAGE);
        assert!(shown.known().is_none());
    }

    /// Random changes against a map of pages.
    #[test]
    fn the_record_says_what_a_map_of_pages_says() {
        const PAGES: u64 = 64;
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % n
        };
        let (mut shown, mut model) = (Shown::new(), BTreeMap::new());
        for _ in 0..20_000 {
            let (first, count) = (1 + below(PAGES), 1 + below(9));
            let rights = [Prot::READ, RW, Prot::READ.with(Prot::EXECUTE)][below(3) as usize];
            let (start, end) = (first * PAGE, (first + count) * PAGE);
            match below(4) {
                0 => {
                    shown.remove(start, end);
                    model.retain(|page, _| !(first..first + count).contains(page));
                }
                1 => {
                    shown.protect(start, end, rights);
                    model.range_mut(first..first + count).for_each(|(_, (_, old))| *old = rights);
                }
                _ => {
                    // Often the memory that belongs there, so that runs meet.
                    let physical = first + if below(3) == 0 { below(1_000) } else { 100 };
                    shown.add(run(first, physical, count, rights));
                    model.extend((0..count).map(|i| (first + i, (physical + i, rights))));
                }
            }
            let runs = runs(&shown);
            assert!(runs.windows(2).all(|pair| pair[0].end() <= pair[1].address));
            assert!(runs.windows(2).all(|pair| !pair[0].clone().extend(&pair[1])), "neighbours that fit");
            let pages = runs.iter().flat_map(|run| {
                let page = |i| (run.address / PAGE + i, (run.physical / PAGE + i, run.rights));
                (0..run.length / PAGE).map(page)
            });
            assert!(pages.eq(model.iter().map(|(page, what)| (*page, *what))));
        }
    }

    #[test]
    fn what_goes_is_unmapped_in_as_few_ranges_as_what_stays_allows() {
        let mut leftovers = Leftovers::new();
        let mut ranges = Vec::new();
        for (page, stays) in
            [(1, false), (2, false), (9, false), (10, true), (11, true), (12, false), (40, true), (50, false)]
        {
            ranges.extend(leftovers.page(page * PAGE, stays));
        }
        ranges.extend(leftovers.end());
        let pages: Vec<_> = ranges.iter().map(|(start, end)| (start / PAGE, end / PAGE)).collect();
        assert_eq!(pages, [(1, 10), (12, 13), (50, 51)]);
    }
}
