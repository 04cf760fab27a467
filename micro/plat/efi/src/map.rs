// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's memory map (UEFI 2.10, 7.2.3) as the kernel reads it.

use pvh::{ACPI, MapEntry, NVS, RAM, RESERVED};

/// Entries the kernel reads.
pub const MAX_ENTRIES: usize = 128;

/// Entries in the order they came, neighbours of one kind put together.
pub struct Map {
    entries: [MapEntry; MAX_ENTRIES],
    length: usize,
}

/// What memory of a UEFI type is once boot services have ended.
pub fn kind(uefi: u32) -> u32 {
    match uefi {
        // Loader and boot services, code and data, and conventional memory.
        1..=4 | 7 => RAM,
        9 => ACPI,
        10 => NVS,
        _ => RESERVED,
    }
}

impl Default for Map {
    fn default() -> Map {
        let none = MapEntry { address: 0, size: 0, kind: 0, reserved: 0 };
        Map { entries: [none; MAX_ENTRIES], length: 0 }
    }
}

impl Map {
    /// Adds pages. Reserved ones are left out, as what is not in the map is no memory either; so is what no longer fits.
    pub fn add(&mut self, uefi: u32, address: u64, pages: u64) {
        let kind = kind(uefi);
        let Some(size) = pages.checked_mul(4096).filter(|size| *size > 0 && kind != RESERVED) else { return };
        if let Some(last) = self.length.checked_sub(1).map(|n| &mut self.entries[n])
            && last.kind == kind
            && last.address.checked_add(last.size) == Some(address)
            && let Some(sum) = last.size.checked_add(size)
        {
            last.size = sum;
            return;
        }
        if let Some(free) = self.entries.get_mut(self.length) {
            *free = MapEntry { address, size, kind, reserved: 0 };
            self.length += 1;
        }
    }

    pub fn entries(&self) -> &[MapEntry] {
        &self.entries[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_become_one_entry() {
        let mut map = Map::default();
        for (uefi, address, pages) in [
            (7, 0, 16),
            (3, 0x1_0000, 16),
            (0, 0x2_0000, 16),
            (4, 0x3_0000, 1),
            (9, 0x3_1000, 1),
            (7, 0x5_0000, 0),
            (7, u64::MAX - 4095, u64::MAX),
        ] {
            map.add(uefi, address, pages);
        }
        let is = |address, size, kind| MapEntry { address, size, kind, reserved: 0 };
        assert_eq!(map.entries(), [is(0, 0x2_0000, RAM), is(0x3_0000, 4096, RAM), is(0x3_1000, 4096, ACPI)]);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut map = Map::default();
        for n in 0..1000 {
            map.add(7, n * 8192, 1);
        }
        assert_eq!(map.entries().len(), MAX_ENTRIES);
    }
}
