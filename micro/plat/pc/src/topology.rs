// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processors there are: ACPI's table of interrupt controllers (MADT; ACPI 6.5, 5.2.12), or the MultiProcessor
//! Specification's table (version 1.4, chapter 4) where there is no ACPI.
//!
//! The tables are firmware's, and any of them may lie, as `acpi` says.

use crate::acpi::{self, Physical, Result, is_summed, search, u16_at, u32_at};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_plat::MAX_CPUS;

/// Identities of the processors' local APICs, each once, as far as they fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identities {
    ids: [u32; MAX_CPUS],
    count: usize,
}

impl Identities {
    fn add(&mut self, id: u32) {
        if self.count < MAX_CPUS && !self.as_slice().contains(&id) {
            self.ids[self.count] = id;
            self.count += 1;
        }
    }

    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..self.count]
    }
}

/// The processors that may be used. `rsdp` is what the boot loader says of ACPI's root pointer, or 0. The error is a sentence's end:
/// what is wrong with a table.
pub fn find(memory: &impl Physical, rsdp: u64) -> Result<Identities> {
    if let Some(madt) = acpi::find(memory, rsdp, b"APIC")? {
        return processors_of_madt(&madt);
    }
    match search(memory, b"_MP_", 16) {
        Some(pointer) => processors_of_mp(memory, pointer),
        None => Ok(Identities::default()),
    }
}

/// Behind the header, the address of the local APICs and flags.
const MADT_ENTRIES: usize = 44;
const LOCAL_APIC: u8 = 0;
const LOCAL_X2APIC: u8 = 9;
/// Of either: it can be used.
const ENABLED: u32 = 1;

fn processors_of_madt(madt: &[u8]) -> Result<Identities> {
    const BROKEN: &str = "ACPI's table of processors has an entry that is longer than itself";
    let mut found = Identities::default();
    let mut rest = madt.get(MADT_ENTRIES..).ok_or("ACPI's table of processors is too short")?;
    while !rest.is_empty() {
        let length = usize::from(*rest.get(1).ok_or(BROKEN)?);
        if length < 2 || length > rest.len() {
            return Err(BROKEN);
        }
        let (entry, next) = rest.split_at(length);
        match entry[0] {
            LOCAL_APIC => {
                let flags = u32_at(entry, 4).ok_or(BROKEN)?;
                if flags & ENABLED != 0 {
                    found.add(entry[3].into());
                }
            }
            LOCAL_X2APIC => {
                let flags = u32_at(entry, 8).ok_or(BROKEN)?;
                if flags & ENABLED != 0 {
                    found.add(u32_at(entry, 4).ok_or(BROKEN)?);
                }
            }
            _ => {}
        }
        rest = next;
    }
    Ok(found)
}

const MP_HEADER: usize = 44;
const MP_PROCESSOR: u8 = 0;
/// Entries of buses, I/O APICs and interrupts.
const MP_OTHER_LAST: u8 = 4;

fn processors_of_mp(memory: &impl Physical, pointer: u64) -> Result<Identities> {
    let mut found = Identities::default();
    let mut bytes = [0; 16];
    if !memory.read(pointer, &mut bytes) {
        return Err("the table of processors (MP) is where no memory is");
    }
    let address = u32_at(&bytes, 4).unwrap_or(0);
    if bytes[11] != 0 || address == 0 {
        // A default configuration (chapter 5): two processors.
        found.add(0);
        found.add(1);
        return Ok(found);
    }
    let mut header = [0; MP_HEADER];
    if !memory.read(address.into(), &mut header) || !header.starts_with(b"PCMP") {
        return Err("the table of processors (MP) is not where its pointer says");
    }
    let length = usize::from(u16_at(&header, 4).unwrap_or(0));
    let count = u16_at(&header, 34).unwrap_or(0);
    if length < MP_HEADER {
        return Err("the table of processors (MP) has a length that cannot be");
    }
    let mut table = Vec::new();
    table
        .reserve_exact_fallibly(length)
        .map_err(|_| "there is no memory for the table of processors (MP)")?;
    table.resize(length, 0);
    if !memory.read(address.into(), &mut table) {
        return Err("the table of processors (MP) is longer than the memory it is in");
    }
    if !is_summed(&table) {
        return Err("the table of processors (MP) has another sum than it says");
    }
    let mut rest = &table[MP_HEADER..];
    for _ in 0..count {
        const BROKEN: &str = "the table of processors (MP) has fewer entries than it says";
        let kind = *rest.first().ok_or(BROKEN)?;
        let length = match kind {
            MP_PROCESSOR => 20,
            1..=MP_OTHER_LAST => 8,
            _ => return Err("the table of processors (MP) has an entry of a kind that there is not"),
        };
        let entry = rest.get(..length).ok_or(BROKEN)?;
        if kind == MP_PROCESSOR && u32::from(entry[3]) & ENABLED != 0 {
            found.add(entry[1].into());
        }
        rest = &rest[length..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acpi::tests::{Pieces, sum, table as acpi_table};
    use std::vec;

    /// Local APICs with these identities and flags, long ones from 256 on.
    fn madt(processors: &[(u32, u32)]) -> Vec<u8> {
        let mut body = vec![0; 8];
        // An I/O APIC, which is of no interest.
        body.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
        for (id, flags) in processors {
            match u8::try_from(*id) {
                Ok(id) => body.extend([0, 8, id, id]),
                Err(_) => {
                    body.extend([9, 16, 0, 0]);
                    body.extend(id.to_le_bytes());
                }
            }
            body.extend(flags.to_le_bytes());
            if *id > 255 {
                body.extend([0; 4]);
            }
        }
        acpi_table(b"APIC", &body)
    }

    fn acpi(madt: Vec<u8>, long: bool) -> Pieces {
        let mut memory = Pieces::default();
        memory.0.insert(0x7000, madt);
        memory.0.insert(0x6000, acpi_table(b"FACP", &[0; 80]));
        let mut list = Vec::new();
        for at in [0x6000u64, 0x7000] {
            list.extend(&at.to_le_bytes()[..if long { 8 } else { 4 }]);
        }
        memory.0.insert(0x5000, acpi_table(if long { b"XSDT" } else { b"RSDT" }, &list));
        let mut root = vec![0; 36];
        root[..8].copy_from_slice(b"RSD PTR ");
        root[15] = if long { 2 } else { 0 };
        root[if long { 24 } else { 16 }..][..4].copy_from_slice(&0x5000u32.to_le_bytes());
        root[20] = 36;
        sum(&mut root[..20], 8);
        sum(&mut root, 32);
        memory.0.insert(0xf_0040, root);
        memory
    }

    fn mp(entries: &[u8], count: u16) -> Pieces {
        let mut table = vec![0; MP_HEADER];
        table[..4].copy_from_slice(b"PCMP");
        table.extend(entries);
        let length = table.len() as u16;
        table[4..6].copy_from_slice(&length.to_le_bytes());
        table[34..36].copy_from_slice(&count.to_le_bytes());
        sum(&mut table, 7);
        let mut pointer = vec![0; 16];
        pointer[..4].copy_from_slice(b"_MP_");
        pointer[4..8].copy_from_slice(&0x8000u32.to_le_bytes());
        pointer[8] = 1;
        sum(&mut pointer, 10);
        let mut memory = Pieces::default();
        memory.0.insert(0x8000, table);
        memory.0.insert(0xf_0100, pointer);
        memory
    }

    fn mp_processors(processors: &[(u8, u8)]) -> Pieces {
        let mut entries = Vec::new();
        for (id, flags) in processors {
            let mut entry = [0; 20];
            entry[1] = *id;
            entry[3] = *flags;
            entries.extend(entry);
        }
        // A bus.
        entries.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        mp(&entries, processors.len() as u16 + 1)
    }

    fn found(memory: &Pieces, rsdp: u64) -> Vec<u32> {
        find(memory, rsdp).unwrap().as_slice().to_vec()
    }

    #[test]
    fn processors_of_acpi_are_found_by_either_pointer_told_or_searched() {
        for long in [false, true] {
            let memory = acpi(madt(&[(0, 1), (1, 1), (2, 0), (3, 2), (300, 1)]), long);
            for rsdp in [0, 0xf_0040] {
                assert_eq!(found(&memory, rsdp), [0, 1, 300]);
            }
        }
    }

    #[test]
    fn root_pointer_may_be_in_the_bios_data_area() {
        let mut memory = acpi(madt(&[(0, 1), (7, 1)]), false);
        let root = memory.0.remove(&0xf_0040).unwrap();
        memory.0.insert(0x40e, vec![0x00, 0x9e]);
        memory.0.insert(0x9_e010, root);
        assert_eq!(found(&memory, 0), [0, 7]);
    }

    #[test]
    fn processors_of_the_mp_table_are_found_where_there_is_no_acpi() {
        assert_eq!(found(&mp_processors(&[(0, 3), (1, 1), (2, 0)]), 0), [0, 1]);
        assert_eq!(found(&Pieces::default(), 0), []);
    }

    #[test]
    fn default_configuration_has_two() {
        let mut memory = Pieces::default();
        let mut pointer = vec![0; 16];
        pointer[..4].copy_from_slice(b"_MP_");
        pointer[11] = 5;
        sum(&mut pointer, 10);
        memory.0.insert(0x9_fc00, pointer);
        assert_eq!(found(&memory, 0), [0, 1]);
    }

    #[test]
    fn each_is_found_once_and_no_more_than_there_is_room_for() {
        let all: Vec<(u32, u32)> = (0..40).chain(0..40).map(|id| (id, 1)).collect();
        let identities = find(&acpi(madt(&all), true), 0).unwrap();
        assert_eq!(identities.as_slice(), (0..16).collect::<Vec<u32>>());
    }

    #[test]
    fn lies_are_told_in_a_sentence() {
        let lie = |memory: &Pieces, rsdp: u64| find(memory, rsdp).unwrap_err();
        let good = acpi(madt(&[(0, 1)]), false);
        assert!(lie(&good, 0x10).contains("root pointer"));
        let mut memory = good.clone();
        memory.0.get_mut(&0x7000).unwrap()[50] ^= 1;
        assert!(lie(&memory, 0).contains("sum"));
        for length in [0u32, 35, 1 << 20, u32::MAX] {
            let mut memory = good.clone();
            memory.0.get_mut(&0x7000).unwrap()[4..8].copy_from_slice(&length.to_le_bytes());
            assert!(lie(&memory, 0).contains("length"), "{length}");
        }
        let mut memory = good.clone();
        memory.0.get_mut(&0x7000).unwrap().truncate(40);
        assert!(lie(&memory, 0).contains("longer than the memory"));
        for broken in
            [&[0u8, 0][..], &[0, 1], &[0, 9, 0], &[0, 4, 0, 0], &[9, 10, 0, 0, 0, 0, 0, 0, 0, 0], &[5]]
        {
            let mut body = vec![0; 8];
            body.extend(broken);
            assert!(lie(&acpi(acpi_table(b"APIC", &body), true), 0).contains("entry"), "{broken:?}");
        }
        assert!(lie(&acpi(acpi_table(b"APIC", &[0; 4]), true), 0).contains("short"));
        assert!(lie(&mp(&[0; 10], 1), 0).contains("fewer"));
        assert!(lie(&mp(&[77; 20], 1), 0).contains("kind"));
        let mut memory = mp_processors(&[(0, 1)]);
        memory.0.get_mut(&0x8000).unwrap()[60] ^= 1;
        assert!(lie(&memory, 0).contains("sum"));
        memory.0.remove(&0x8000);
        assert!(lie(&memory, 0).contains("not where"));
    }

    /// Any byte of any table may be anything: it ends, within its bounds.
    #[test]
    fn no_table_whatsoever_is_trusted() {
        let sources = [
            acpi(madt(&[(0, 1), (1, 1), (300, 1)]), true),
            acpi(madt(&[(0, 1), (1, 1)]), false),
            mp_processors(&[(0, 1), (1, 1)]),
        ];
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..3_000 {
            let mut memory = sources[random() % sources.len()].clone();
            let places: Vec<u64> = memory.0.keys().copied().collect();
            for _ in 0..1 + random() % 3 {
                let piece = memory.0.get_mut(&places[random() % places.len()]).unwrap();
                let at = random() % piece.len();
                piece[at] = random() as u8;
            }
            // With its sum right again in half of the cases, so that what lies behind is reached.
            if random().is_multiple_of(2) {
                for (place, piece) in &mut memory.0 {
                    match place {
                        0xf_0040 => {
                            sum(&mut piece[..20], 8);
                            sum(piece, 32);
                        }
                        0xf_0100 => sum(piece, 10),
                        0x8000 => sum(piece, 7),
                        _ => sum(piece, 9),
                    }
                }
            }
            if let Ok(found) = find(&memory, 0) {
                assert!(found.as_slice().len() <= MAX_CPUS);
            }
        }
    }
}
