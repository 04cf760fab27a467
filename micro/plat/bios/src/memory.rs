// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory as the BIOS tells of it (ACPI 6.5, 15.1, "INT 15H, E820H"), and what the loader takes of it.

use pvh::{MapEntry, RAM};

/// Entries that are read, and that the kernel reads.
pub const MAX_ENTRIES: usize = 128;
/// Bytes of an entry, and of one with the attributes of ACPI 3.0.
pub const ENTRY: usize = 20;
pub const LONG_ENTRY: usize = 24;
const ENABLED: u32 = 1;
const MAX_TAKEN: usize = 16;
const PAGE: u64 = 4096;
const FOUR_GIB: u64 = 1 << 32;
/// What is below is firmware's, the loader's, and the kernel's for starting processors.
const MIB: u64 = 1 << 20;

/// What was told, in the order it came, and what is taken.
pub struct Memory {
    told: [MapEntry; MAX_ENTRIES],
    length: usize,
    taken: [(u64, u64); MAX_TAKEN],
    takes: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            told: [MapEntry { address: 0, size: 0, kind: 0, reserved: 0 }; MAX_ENTRIES],
            length: 0,
            taken: [(0, 0); MAX_TAKEN],
            takes: 0,
        }
    }
}

impl Memory {
    /// Adds an entry of `length` bytes, as the BIOS wrote it. What does not fit is left out.
    pub fn add(&mut self, entry: &[u8; LONG_ENTRY], length: usize) {
        let long = |at: usize| u64::from_le_bytes(*entry[at..].first_chunk().unwrap_or(&[0; 8]));
        let (address, size) = (long(0), long(8));
        let (kind, attributes) = (long(16) as u32, (long(16) >> 32) as u32);
        let is_ignored = length >= LONG_ENTRY && attributes & ENABLED == 0;
        if size == 0 || is_ignored || address.checked_add(size).is_none() {
            return;
        }
        if let Some(free) = self.told.get_mut(self.length) {
            *free = MapEntry { address, size, kind, reserved: 0 };
            self.length += 1;
        }
    }

    fn told(&self) -> &[MapEntry] {
        &self.told[..self.length]
    }

    /// The end of the RAM from `address` on that nothing else is in, by what was told; `address` where there is none.
    fn end_of_ram(&self, address: u64) -> u64 {
        let mut end = address;
        // Pieces may follow each other.
        while let Some(next) = self.told().iter().find_map(|entry| {
            let behind = entry.address + entry.size;
            (entry.kind == RAM && entry.address <= end && behind > end).then_some(behind)
        }) {
            end = next;
        }
        let others =
            self.told().iter().filter(|entry| entry.kind != RAM && entry.address + entry.size > address);
        others.map(|entry| entry.address.max(address)).fold(end, u64::min)
    }

    /// The memory map for the kernel: what was told, but RAM without what is told to be something else, too.
    pub fn map(&self, out: &mut [MapEntry; MAX_ENTRIES]) -> usize {
        let mut length = 0;
        let mut put = |address: u64, end: u64, kind: u32| {
            if let Some(to) = out.get_mut(length) {
                *to = MapEntry { address, size: end - address, kind, reserved: 0 };
                length += 1;
            }
        };
        for entry in self.told() {
            let end = entry.address + entry.size;
            if entry.kind != RAM {
                put(entry.address, end, entry.kind);
                continue;
            }
            let mut at = entry.address;
            while at < end {
                let stop = self.end_of_ram(at).min(end);
                if stop > at {
                    put(at, stop, RAM);
                    at = stop;
                    continue;
                }
                // Behind what begins here or before.
                let covers = |other: &&MapEntry| {
                    other.kind != RAM && other.address <= at && other.address + other.size > at
                };
                match self.told().iter().find(covers) {
                    Some(other) => at = other.address + other.size,
                    None => break,
                }
            }
        }
        length
    }

    /// Whether these bytes are RAM that the loader may use and nobody has.
    fn is_free(&self, start: u64, end: u64) -> bool {
        let mut taken = self.taken[..self.takes].iter();
        start >= MIB && taken.all(|(s, e)| end <= *s || start >= *e) && self.end_of_ram(start) >= end
    }

    /// Takes these bytes, which somebody wants there and nowhere else; whether they are RAM that nobody has.
    pub fn take_at(&mut self, start: u64, end: u64) -> bool {
        if !self.is_free(start, end) {
            return false;
        }
        let Some(slot) = self.taken.get_mut(self.takes) else { return false };
        *slot = (start, end);
        self.takes += 1;
        true
    }

    /// Takes whole pages for so many bytes, the highest below 4 GiB. `None`: there are none.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let size = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let lowest = |end: u64| end.min(FOUR_GIB).checked_sub(size).map(|start| start & !(PAGE - 1));
        // Below the end of each piece of RAM, and below everything that is in the way.
        let ends = self.told().iter().flat_map(|entry| [entry.address, entry.address + entry.size]);
        let ends = ends.chain(self.taken[..self.takes].iter().map(|(start, _)| *start)).chain([FOUR_GIB]);
        let mut best = None;
        for start in ends.filter_map(lowest) {
            let end = start + size;
            if Some(start) > best && self.is_free(start, end) {
                best = Some(start);
            }
        }
        let start = best?;
        self.take_at(start, start + size).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn memory(entries: &[(u64, u64, u32)]) -> Memory {
        let mut memory = Memory::default();
        for (address, end, kind) in entries {
            let mut entry = [0; LONG_ENTRY];
            entry[..8].copy_from_slice(&address.to_le_bytes());
            entry[8..16].copy_from_slice(&(end - address).to_le_bytes());
            entry[16..20].copy_from_slice(&kind.to_le_bytes());
            memory.add(&entry, ENTRY);
        }
        memory
    }

    fn map(memory: &Memory) -> Vec<(u64, u64, u32)> {
        let mut out = [MapEntry { address: 0, size: 0, kind: 0, reserved: 0 }; MAX_ENTRIES];
        let length = memory.map(&mut out);
        out[..length].iter().map(|entry| (entry.address, entry.address + entry.size, entry.kind)).collect()
    }

    const M: u64 = MIB;

    #[test]
    fn memory_is_taken_from_the_top_and_never_twice() {
        let mut memory = memory(&[
            (0, 0x9f000, 1),
            (0xf_0000, M, 2),
            (M, 256 * M, 1),
            (255 * M, 256 * M, 3),
            (FOUR_GIB, FOUR_GIB + M, 1),
        ]);
        assert_eq!(memory.take(1), Some(255 * M - 4096));
        assert_eq!(memory.take(2 * M), Some(253 * M - 4096));
        assert!(memory.take_at(2 * M, 4 * M));
        assert!(!memory.take_at(3 * M, 5 * M), "it is taken");
        assert!(
            !memory.take_at(254 * M, 256 * M) && !memory.take_at(0, M) && !memory.take_at(300 * M, 301 * M)
        );
        assert_eq!(
            memory.take(249 * M - 4096),
            Some(4 * M),
            "all that is left above the piece in the middle"
        );
        assert_eq!(memory.take(2 * M), None);
        assert_eq!(memory.take(M), Some(M));
        assert_eq!(memory.take(u64::MAX), None);
    }

    #[test]
    fn ram_is_what_is_nothing_else() {
        let memory = memory(&[
            (0, 640, 1),
            (600, 1000, 2),
            (1000, 2000, 1),
            (1200, 1300, 4),
            (1250, 1400, 3),
            (2000, 2100, 1),
        ]);
        let only_ram: Vec<_> = map(&memory).into_iter().filter(|(_, _, kind)| *kind == RAM).collect();
        assert_eq!(only_ram, [(0, 600, 1), (1000, 1200, 1), (1400, 2000, 1), (2000, 2100, 1)]);
        assert_eq!(map(&memory).len(), 7);
    }

    #[test]
    fn entries_that_cannot_be_are_left_out() {
        let mut memory = memory(&[(0, 0, 1), (5, 5, 2)]);
        let mut entry = [0xff; LONG_ENTRY];
        memory.add(&entry, ENTRY);
        entry = [0; LONG_ENTRY];
        entry[8] = 1;
        entry[16] = 1;
        memory.add(&entry, LONG_ENTRY);
        assert_eq!(map(&memory), []);
        memory.add(&entry, ENTRY);
        assert_eq!(map(&memory), [(0, 1, 1)]);
        for _ in 0..1000 {
            memory.add(&entry, ENTRY);
        }
        assert_eq!(map(&memory).len(), MAX_ENTRIES);
    }
}
