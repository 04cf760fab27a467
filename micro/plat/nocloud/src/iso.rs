// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files in the root directory of a CD (ECMA-119, "ISO 9660"), by their names of Rock Ridge (IEEE P1282, `NM`), or else by those of
//! ISO 9660 itself, which has capital letters, `_` for `-`, and maybe eight characters only.

use crate::{LABEL, MAX_FILE, Media, NAMES, UNREADABLE};

/// Bytes of a sector.
pub const SECTOR: usize = 2048;
/// The volume descriptors begin here (ECMA-119 6.7.1.1), and this many are looked at.
const FIRST_DESCRIPTOR: u32 = 16;
const MAX_DESCRIPTORS: u32 = 16;
const PRIMARY: u8 = 1;
const LAST: u8 = 255;
/// Most sectors of the root directory: it has three files.
const MAX_DIRECTORY: u32 = 16;
/// Bytes of a directory record in front of the name (9.1).
const RECORD: usize = 33;
const IS_DIRECTORY: u8 = 2;
/// Names of ISO 9660 that were made shorter begin with these.
const SHORT: [&[u8]; 3] = [b"META_DAT", b"NETWORK_", b"USER_DAT"];

/// A file: its first sector and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub sector: u32,
    pub bytes: u32,
}

/// Reads the files of a CD with the label; whether there is one. `read` fills the buffer with a sector, and answers whether it could.
pub fn read_files(
    media: &mut Media<'_>,
    buffer: &mut [u8; SECTOR],
    read: &mut dyn FnMut(u32, &mut [u8; SECTOR]) -> bool,
) -> bool {
    let Some(files) = find(buffer, read) else { return false };
    for ((bytes, length), file) in media.files.iter_mut().zip(&mut media.lengths).zip(files) {
        let Some(file) = file else { continue };
        *length = file.bytes as usize;
        let needed = (*length).min(MAX_FILE).div_ceil(SECTOR);
        for (n, part) in bytes.chunks_mut(SECTOR).take(needed).enumerate() {
            let sector = file.sector.checked_add(n as u32);
            if !sector.is_some_and(|sector| read(sector, buffer)) {
                *length = UNREADABLE;
                break;
            }
            part.copy_from_slice(&buffer[..]);
        }
    }
    true
}

/// Finds the files of [`NAMES`] on a CD with the label; `None` where there is no such CD.
fn find(
    buffer: &mut [u8; SECTOR],
    read: &mut dyn FnMut(u32, &mut [u8; SECTOR]) -> bool,
) -> Option<[Option<Extent>; 3]> {
    let root = (FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + MAX_DESCRIPTORS).find_map(|sector| {
        if !read(sector, buffer) || &buffer[1..6] != b"CD001" || buffer[0] == LAST {
            return Some(None);
        }
        (buffer[0] == PRIMARY).then(|| {
            let label = buffer[40..72].trim_ascii();
            label.eq_ignore_ascii_case(LABEL.as_bytes()).then(|| extent(&buffer[156..156 + RECORD]))?
        })
    })??;
    let mut found = [None; 3];
    for n in 0..(root.bytes.div_ceil(SECTOR as u32)).min(MAX_DIRECTORY) {
        if !read(root.sector.checked_add(n)?, buffer) {
            break;
        }
        let mut rest = &buffer[..];
        // A record does not cross the end of a sector; zeros are what is left of it.
        while let Some((record, behind)) =
            rest.first().and_then(|length| rest.split_at_checked((*length).into()))
        {
            if record.len() < RECORD {
                break;
            }
            rest = behind;
            if record[25] & IS_DIRECTORY == 0
                && let Some(which) = which(record)
            {
                found[which] = extent(record);
            }
        }
    }
    Some(found)
}

fn extent(record: &[u8]) -> Option<Extent> {
    let number = |at: usize| record.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    Some(Extent { sector: number(2)?, bytes: number(10)? })
}

/// Which of the files the record is for.
fn which(record: &[u8]) -> Option<usize> {
    let length = usize::from(*record.get(32)?);
    let name = record.get(RECORD..RECORD + length)?;
    // The fields of Rock Ridge begin at an even place (9.1.12).
    let fields = record.get((RECORD + length).next_multiple_of(2)..).unwrap_or(&[]);
    match rock_ridge(fields) {
        Some(name) => NAMES.iter().position(|known| known.as_bytes() == name),
        None => SHORT.iter().position(|known| name.starts_with(known)),
    }
}

/// The name of Rock Ridge, where it is in one piece.
fn rock_ridge(mut fields: &[u8]) -> Option<&[u8]> {
    while let [kind, second, length, _, ..] = *fields {
        let (field, rest) = fields.split_at_checked(length.into())?;
        match [kind, second] {
            [b'N', b'M'] => return field.get(5..),
            _ if field.len() < 4 => return None,
            _ => fields = rest,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    fn record(name: &[u8], rock: Option<&[u8]>, sector: u32, bytes: u32, flags: u8) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        record[2..6].copy_from_slice(&sector.to_le_bytes());
        record[10..14].copy_from_slice(&bytes.to_le_bytes());
        record[25] = flags;
        record[32] = name.len() as u8;
        record.extend(name);
        record.resize(record.len().next_multiple_of(2), 0);
        if let Some(rock) = rock {
            record.extend([b'R', b'R', 5, 1, 9]);
            record.extend([b'N', b'M', 5 + rock.len() as u8, 1, 0]);
            record.extend(rock);
        }
        record.resize(record.len().next_multiple_of(2), 0);
        record[0] = record.len() as u8;
        record
    }

    /// A CD with this label and this directory, whose sectors are 18 and 19.
    fn disk(label: &str, directory: &[&[Vec<u8>]]) -> Vec<u8> {
        let mut disk = vec![0; 24 * SECTOR];
        for (sector, kind) in [(16, 0), (17, PRIMARY)] {
            disk[sector * SECTOR] = kind;
            disk[sector * SECTOR + 1..][..5].copy_from_slice(b"CD001");
            disk[sector * SECTOR + 40..][..32].fill(b' ');
            disk[sector * SECTOR + 40..][..label.len()].copy_from_slice(label.as_bytes());
            let root = record(b"\0", None, 18, (directory.len() * SECTOR) as u32, IS_DIRECTORY);
            disk[sector * SECTOR + 156..][..root.len()].copy_from_slice(&root);
        }
        for (n, records) in directory.iter().enumerate() {
            let bytes = records.concat();
            disk[(18 + n) * SECTOR..][..bytes.len()].copy_from_slice(&bytes);
        }
        disk
    }

    fn look(disk: &[u8]) -> Option<[Option<Extent>; 3]> {
        find(&mut [0; SECTOR], &mut |sector, to| {
            let from = disk.get(sector as usize * SECTOR..).and_then(|rest| rest.first_chunk::<SECTOR>());
            from.map(|from| *to = *from).is_some()
        })
    }

    fn files() -> Vec<u8> {
        let first = [
            record(b"\0", None, 18, 2048, IS_DIRECTORY),
            record(b"META_DATA.;1", Some(b"meta-data"), 20, 100, 0),
            record(b"USER_DAT.;1", None, 21, 200, 0),
            record(b"NETWORK_.;1", Some(b"network-config.old"), 22, 300, 0),
        ];
        let second = [record(b"NETWORK_CONFIG.;1", Some(b"network-config"), 23, 400, 0)];
        disk("CIDATA", &[&first, &second])
    }

    #[test]
    fn files_are_found_by_both_kinds_of_names() {
        let at = |sector, bytes| Some(Extent { sector, bytes });
        assert_eq!(look(&files()), Some([at(20, 100), at(23, 400), at(21, 200)]));
        assert_eq!(look(&disk("cidata", &[&[]])), Some([None; 3]));
        assert_eq!(look(&disk("debian", &[&[]])), None);
        assert_eq!(look(&files()[..17 * SECTOR]), None);
        assert_eq!(look(&[]), None);
    }

    #[test]
    fn a_damaged_cd_is_read_within_its_bounds() {
        let good = files();
        let mut seed = 9u32;
        for _ in 0..3_000 {
            let mut bad = good.clone();
            for _ in 0..8 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let places = [
                    16 * SECTOR..16 * SECTOR + 200,
                    17 * SECTOR + 156..17 * SECTOR + 200,
                    18 * SECTOR..18 * SECTOR + 250,
                ];
                let place = places[(seed >> 8) as usize % 3].clone();
                let at = place.start + (seed >> 12) as usize % place.len();
                bad[at] = (seed >> 3) as u8;
            }
            let mut reads = 0;
            find(&mut [0; SECTOR], &mut |sector, to| {
                reads += 1;
                let from = bad.get((sector as usize).saturating_mul(SECTOR)..);
                from.and_then(|rest| rest.first_chunk::<SECTOR>()).map(|from| *to = *from).is_some()
            });
            assert!(reads <= MAX_DESCRIPTORS + MAX_DIRECTORY);
        }
    }
}
