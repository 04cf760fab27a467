// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mappings of the program's memory, and the tree they are kept in.

use crate::{Prot, Text};
use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_mem::PageSource;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use ordered::{Iter, Map};

/// Most mappings of an address space (vm.max_map_count), with Linux' default.
static MAX_MAPPINGS: AtomicUsize = AtomicUsize::new(65_530);

pub fn max_mappings() -> usize {
    MAX_MAPPINGS.load(Ordering::Relaxed)
}

/// For all address spaces; those that have more keep them.
pub fn set_max_mappings(count: usize) {
    MAX_MAPPINGS.store(count, Ordering::Relaxed);
}

/// A file as it is mapped: its pages, and what /proc/self/maps says of it.
pub struct MappedFile {
    pub source: Arc<dyn PageSource>,
    pub path: Vec<u8>,
    pub device: u64,
    pub inode: u64,
    /// Where the file is in the tree of names, and whether it was opened for writing too: for /proc/PID/map_files. `None` for memory
    /// that has no such place. This crate only keeps it.
    pub place: Option<Arc<dyn Any + Send + Sync>>,
    pub is_writable: bool,
}

/// What a mapping shows.
#[derive(Clone)]
pub(crate) enum Backing {
    Anonymous,
    /// From page `index` of the file on.
    File {
        file: Arc<MappedFile>,
        index: u64,
    },
    /// Stubs of the system-call sites of a text mapping.
    Stubs,
    /// Pages of the kernel's: the vDSO.
    Fixed,
}

/// madvise's wish for large pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Large {
    #[default]
    WherePaying,
    Always,
    Never,
}

/// A memory policy (numa(7)) of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// MPOL_BIND and so on with its flags; 0 is MPOL_DEFAULT.
    pub mode: u16,
    /// Whether it names node 0, the only one.
    pub names_node: bool,
}

/// Properties that neighbours must share to become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmFlags {
    pub rights: Prot,
    /// What mprotect may allow at most: a shared mapping of a file that was opened for reading cannot be written.
    pub most: Prot,
    pub shared: bool,
    pub grows_down: bool,
    pub locked: bool,
    /// Locked, but each page only from its first touch on (MLOCK_ONFAULT).
    pub on_fault: bool,
    pub no_reserve: bool,
    pub large: Large,
    /// MADV_DONTFORK, MADV_WIPEONFORK and MADV_DONTDUMP.
    pub no_fork: bool,
    pub wipe_on_fork: bool,
    pub no_dump: bool,
    /// mseal: neither unmapped nor protected otherwise.
    pub sealed: bool,
    /// Private memory with pages of the process that this one was forked from. It does not join mappings that were made since, as on Linux, where
    /// pages of one origin alone are of one mapping (`anon_vma`).
    pub inherited: bool,
    /// mbind(2), which says where pages would be if there were more nodes than one.
    pub policy: MemoryPolicy,
}

impl VmFlags {
    /// Its pages are to be made at once.
    pub fn populates(&self) -> bool {
        self.locked && !self.on_fault
    }

    /// It counts for RLIMIT_DATA.
    pub fn is_data(&self) -> bool {
        !self.shared && self.rights.contains(Prot::WRITE) && !self.grows_down
    }

    /// The space's commitment counts its pages. Shared pages are counted by the object that is mapped.
    pub fn is_committed(&self) -> bool {
        !self.shared && self.rights.contains(Prot::WRITE) && !self.no_reserve
    }
}

/// One mapping; its start is its key in the tree.
#[derive(Clone)]
pub(crate) struct Vma {
    pub end: u64,
    pub flags: VmFlags,
    pub backing: Backing,
    /// Where system calls of the text go, for executable mappings of files that have a table of sites.
    pub text: Option<Arc<Text>>,
    pub name: &'static str,
    /// The page behind the last one that was faulted in, and how many were then: sequential use gets more at once.
    pub streak: (u64, u32),
}

impl Vma {
    pub fn anonymous(end: u64, flags: VmFlags) -> Vma {
        Vma { end, flags, backing: Backing::Anonymous, text: None, name: "", streak: (0, 0) }
    }

    /// Page of the file that is seen at `address`, for a mapping that starts at `start`.
    pub fn file_page(&self, start: u64, address: u64) -> Option<(&Arc<MappedFile>, u64)> {
        match &self.backing {
            Backing::File { file, index } => Some((file, index + (address - start) / PAGE_SIZE as u64)),
            _ => None,
        }
    }

    /// The part from `at` on, of a mapping that starts at `start`.
    fn tail(&self, start: u64, at: u64) -> Vma {
        let mut tail = self.clone();
        if let Backing::File { index, .. } = &mut tail.backing {
            *index += (at - start) / PAGE_SIZE as u64;
        }
        tail
    }

    /// True when `next` goes on where this mapping, from `start`, ends.
    fn joins(&self, start: u64, next_start: u64, next: &Vma) -> bool {
        if self.end != next_start || self.flags != next.flags || self.name != next.name {
            return false;
        }
        let text = match (&self.text, &next.text) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        text && match (&self.backing, &next.backing) {
            (Backing::Anonymous, Backing::Anonymous) => !self.flags.shared,
            (Backing::File { file: a, index: i }, Backing::File { file: b, index: j }) => {
                Arc::ptr_eq(a, b) && i + (self.end - start) / PAGE_SIZE as u64 == *j
            }
            _ => false,
        }
    }
}

/// All mappings of an address space, by start; they do not overlap.
#[derive(Default)]
pub(crate) struct Tree {
    map: Map<u64, Vma>,
    /// No gap of `searched.1` bytes or more lies wholly above `searched.0`, below the top the search was made for.
    searched: (u64, u64, u64),
}

impl Tree {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Vma)> {
        self.map.iter().map(|(start, vma)| (*start, vma))
    }

    /// The mapping with `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Option<(u64, &Vma)> {
        let (start, vma) = self.map.range(..=address).next_back()?;
        (address < vma.end).then_some((*start, vma))
    }

    #[inline]
    pub fn find_mut(&mut self, address: u64) -> Option<(u64, &mut Vma)> {
        let (start, vma) = self.map.range_mut(..=address).next_back()?;
        (address < vma.end).then_some((*start, vma))
    }

    /// The first mapping that starts at `address` or behind.
    pub fn next(&self, address: u64) -> Option<(u64, &Vma)> {
        self.map.range(address..).next().map(|(start, vma)| (*start, vma))
    }

    /// End of the last mapping that starts before `address`; 0 when there is none.
    pub fn end_before(&self, address: u64) -> u64 {
        self.map.range(..address).next_back().map_or(0, |(_, vma)| vma.end)
    }

    /// Mappings with a byte in the range, in ascending order; the first may start before it and the last end behind.
    pub fn overlapping(&self, start: u64, end: u64) -> Iter<'_, u64, Vma> {
        let first = self.find(start).map_or(start, |(first, _)| first);
        self.map.range(first.min(end)..end)
    }

    /// Mappings that start at `address` or behind, in ascending order.
    pub fn starting_from(&self, address: u64) -> Iter<'_, u64, Vma> {
        self.map.range(address..u64::MAX)
    }

    /// The first mapping with a byte in the range.
    pub fn first_overlap(&self, start: u64, end: u64) -> Option<(u64, &Vma)> {
        if start >= end {
            return None;
        }
        self.find(start).or_else(|| self.next(start).filter(|(s, _)| *s < end))
    }

    /// True when every byte of the range is mapped.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.covered_until(start, end) == end
    }

    /// Where the first gap in the range is, or its end.
    pub fn covered_until(&self, start: u64, end: u64) -> u64 {
        let mut at = start;
        while at < end {
            match self.find(at) {
                Some((_, vma)) => at = vma.end,
                None => return at,
            }
        }
        end
    }

    /// Splits the mapping that reaches over `at`; `ENOMEM` when there are as many as there may be, or memory is short.
    pub fn cut(&mut self, at: u64) -> Result<()> {
        let is_full = self.map.len() >= max_mappings();
        if let Some((start, vma)) = self.find_mut(at)
            && start < at
        {
            if is_full || api_alloc::is_low() {
                return Err(ENOMEM);
            }
            let tail = vma.tail(start, at);
            vma.end = at;
            self.map.insert(at, tail);
        }
        Ok(())
    }

    /// Adds a mapping where nothing is, and joins it with its neighbours where they are alike.
    pub fn insert(&mut self, start: u64, vma: Vma) {
        self.map.insert(start, vma);
        self.join(start);
    }

    /// Adds a mapping where nothing is; it stays apart from its neighbours.
    pub fn insert_apart(&mut self, start: u64, vma: Vma) {
        self.map.insert(start, vma);
    }

    /// Takes a mapping out.
    pub fn remove(&mut self, start: u64) -> Option<Vma> {
        let vma = self.map.remove(&start)?;
        if vma.end > self.searched.0 {
            // The gap may have become large enough: it ends where the next mapping starts.
            self.searched.0 = self.next(vma.end).map_or(u64::MAX, |(next, _)| next);
        }
        Some(vma)
    }

    /// Joins the mapping at `start` with the one before and the one behind it where they are alike.
    pub fn join(&mut self, start: u64) {
        let mut start = start;
        if let Some((before, vma)) = self.map.range(..start).next_back().map(|(s, v)| (*s, v))
            && self.map.get(&start).is_some_and(|here| vma.joins(before, start, here))
        {
            self.swallow(before, start);
            start = before;
        }
        let Some(vma) = self.map.get(&start) else { return };
        let next = vma.end;
        if self.map.get(&next).is_some_and(|behind| vma.joins(start, next, behind)) {
            self.swallow(start, next);
        }
    }

    fn swallow(&mut self, start: u64, next: u64) {
        if let Some(behind) = self.map.remove(&next)
            && let Some(vma) = self.map.get_mut(&start)
        {
            vma.end = behind.end;
        }
    }

    /// Changes every mapping of the range; both ends are cut first and joined afterwards. `ENOMEM` as for [`Tree::cut`], and
    /// nothing is changed.
    pub fn change(&mut self, start: u64, end: u64, mut change: impl FnMut(u64, &mut Vma)) -> Result<()> {
        let cut = self.cut(start).and_then(|()| self.cut(end));
        if cut.is_ok() {
            self.map.range_mut(start..end).for_each(|(start, vma)| change(*start, vma));
        }
        // A mapping that joins the one before it is gone, so the next is looked for each time.
        let mut at = Some(start);
        while let Some(start) = at {
            self.join(start);
            at = self.map.range(start + 1..=end).next().map(|(next, _)| *next);
        }
        cut
    }

    /// Moves the start of the mapping at `start` down to `to`.
    pub fn extend_down(&mut self, start: u64, to: u64) {
        if let Some(vma) = self.map.remove(&start) {
            self.map.insert(to, vma);
        }
    }

    /// Moves the end of the mapping at `start`.
    pub fn extend_up(&mut self, start: u64, end: u64) {
        if let Some(vma) = self.map.get_mut(&start) {
            vma.end = end;
        }
        self.join(start);
    }

    /// Free bytes a mapping below a stack leaves alone (Linux' stack_guard_gap).
    const STACK_GAP: u64 = 256 * PAGE_SIZE as u64;

    /// The highest gap of `length` bytes that ends at `top` or below and starts at `bottom` or above.
    pub fn gap_below(&self, bottom: u64, top: u64, length: u64) -> Option<u64> {
        let end = self.scan_below(top, length);
        (end >= bottom && end - bottom >= length).then(|| end - length)
    }

    /// As [`Tree::gap_below`], remembering how far the search had to go: for the one `top` that mmap uses.
    pub fn gap_for_mmap(&mut self, bottom: u64, top: u64, length: u64) -> Option<u64> {
        let (end, searched_length, searched_top) = self.searched;
        let known = length >= searched_length && searched_top == top;
        let end = self.scan_below(if known { end.min(top) } else { top }, length);
        self.searched = (end, length, top);
        (end >= bottom && end - bottom >= length).then(|| end - length)
    }

    /// Where the highest gap of `length` bytes at or below `end` ends.
    fn scan_below(&self, mut end: u64, length: u64) -> u64 {
        for (start, vma) in self.map.range(..end).rev() {
            if vma.end <= end && end - vma.end >= length {
                break;
            }
            let room = if vma.flags.grows_down { Self::STACK_GAP } else { 0 };
            end = end.min(start.saturating_sub(room));
        }
        end
    }

    /// The lowest gap of `length` bytes that starts at `bottom` or above and ends at `top` or below.
    pub fn gap_above(&self, bottom: u64, top: u64, length: u64) -> Option<u64> {
        let mut start = self.find(bottom).map_or(bottom, |(_, vma)| vma.end);
        for (next, vma) in self.map.range(start..) {
            let room = if vma.flags.grows_down { Self::STACK_GAP } else { 0 };
            if next.saturating_sub(room) >= start && next.saturating_sub(room) - start >= length {
                break;
            }
            start = vma.end;
        }
        (start.checked_add(length)? <= top).then_some(start)
    }
}
