// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What firmware's tables call the computer (SMBIOS 3.7, DSP0134): maker and product, by which clouds are known, and the serial number,
//! where cloud-init looks for its first words: `ds=nocloud;h=NAME`.

/// Most bytes of the tables that are looked at.
pub const MAX_TABLES: usize = 64 << 10;
/// Kinds of structures: the computer, and the end.
const SYSTEM: u8 = 1;
const END: u8 = 127;
/// Where in the system's structure the numbers of its strings are (7.2).
const VENDOR: usize = 4;
const PRODUCT: usize = 5;
const SERIAL: usize = 7;

/// What the computer is called; empty where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System<'a> {
    pub vendor: &'a str,
    pub product: &'a str,
    pub serial: &'a str,
}

/// Where the tables are and how long, by an entry point (5.2).
pub fn tables(entry: &[u8]) -> Option<(u64, usize)> {
    let number = |at: usize, bytes: usize| {
        let bytes = entry.get(at..at + bytes)?;
        Some(bytes.iter().rev().fold(0, |n: u64, b| n << 8 | u64::from(*b)))
    };
    let (at, length) = match entry {
        [b'_', b'S', b'M', b'3', b'_', ..] => (number(16, 8)?, number(12, 4)?),
        [b'_', b'S', b'M', b'_', ..] => (number(24, 4)?, number(22, 2)?),
        _ => return None,
    };
    (at != 0).then_some((at, (length as usize).min(MAX_TABLES)))
}

/// What the tables call the computer.
pub fn system(mut tables: &[u8]) -> Option<System<'_>> {
    while let [kind, length, ..] = *tables {
        let (structure, strings) = tables.split_at_checked(usize::from(length).max(4))?;
        // The strings behind a structure end with an empty one (6.1.3).
        let end = strings.windows(2).position(|pair| pair == [0, 0])?;
        if kind == SYSTEM {
            let string = |at: usize| {
                let wanted = usize::from(*structure.get(at)?).checked_sub(1)?;
                let string = strings.get(..end)?.split(|byte| *byte == 0).nth(wanted)?;
                core::str::from_utf8(string).ok()
            };
            let [vendor, product, serial] = [VENDOR, PRODUCT, SERIAL].map(|at| string(at).unwrap_or(""));
            return Some(System { vendor, product, serial });
        }
        if kind == END {
            return None;
        }
        tables = strings.get(end + 2..)?;
    }
    None
}

/// The host name that a serial number gives.
pub fn hostname(serial: &str) -> Option<&str> {
    let mut words = serial.trim().split(';');
    let is_ours = words.next()?.strip_prefix("ds=").is_some_and(|kind| kind.eq_ignore_ascii_case("nocloud"));
    if !is_ours {
        return None;
    }
    words.find_map(|word| word.strip_prefix("h=").or_else(|| word.strip_prefix("local-hostname=")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn made() -> Vec<u8> {
        let mut tables = Vec::from([0, 5, 0, 0, 1]);
        tables.extend(b"firmware\0\0");
        tables.extend([1, 8, 0, 0, 1, 2, 0, 3]);
        tables.extend(b"maker\0product\0ds=nocloud;i=i-1;h=web\0\0");
        tables.extend([127, 4, 0, 0, 0, 0]);
        tables
    }

    #[test]
    fn the_computers_names_are_found_and_its_serial_number_gives_another() {
        let tables = made();
        let told = System { vendor: "maker", product: "product", serial: "ds=nocloud;i=i-1;h=web" };
        assert_eq!(system(&tables), Some(told));
        // A string that has the number 0 is none.
        assert_eq!(system(&[1, 8, 0, 0, 0, 0, 0, 0, 0, 0]), Some(System::default()));
        assert_eq!(system(&[127, 4, 0, 0, 0, 0]), None);
        assert_eq!(hostname("ds=nocloud;i=i-1;h=web"), Some("web"));
        assert_eq!(hostname("ds=NoCloud;local-hostname=a"), Some("a"));
        for other in ["", "VMware-56 4d", "ds=nocloud", "ds=ec2;h=web", "h=web"] {
            assert_eq!(hostname(other), None);
        }
    }

    #[test]
    fn damaged_tables_are_read_within_their_bounds() {
        let good = made();
        for length in 0..good.len() {
            let _ = system(&good[..length]);
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = system(&bad);
            }
        }
    }

    #[test]
    fn both_kinds_of_entry_points_are_read() {
        let mut entry = [0; 32];
        entry[..5].copy_from_slice(b"_SM3_");
        entry[12..16].copy_from_slice(&0x10_0000u32.to_le_bytes());
        entry[16..24].copy_from_slice(&0x7f00_0000_1000u64.to_le_bytes());
        assert_eq!(tables(&entry), Some((0x7f00_0000_1000, MAX_TABLES)));
        entry[..5].copy_from_slice(b"_SM_\0");
        entry[22..28].copy_from_slice(&[0x34, 0x12, 0, 0, 0xf0, 0x7e]);
        assert_eq!(tables(&entry), Some((0x7ef0_0000, 0x1234)));
        assert_eq!(tables(&entry[..20]), None);
        assert_eq!(tables(&[0; 32]), None);
    }
}
