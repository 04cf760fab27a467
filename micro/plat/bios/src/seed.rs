// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cloud-init's NoCloud disk or CD: the BIOS reads blocks of it, `nocloud` understands them.

use crate::{firmware::Firmware, loader::take};
use bios::{drive, memory::Memory};
use nocloud::{MAX_ADDED, MAX_FILE, Media, fat, iso, smbios};

/// Places where an entry point of SMBIOS may begin (SMBIOS 3.7, 5.2), its names, and how long each is at most.
const STEP: usize = 16;
const ENTRIES: [(&[u8], usize); 2] = [(b"_SM3_", 24), (b"_SM_", 31)];

/// The kernel's command line, ended by a NUL byte, with what a disk of this computer says; as it is, where there is no such disk.
pub fn line(
    firmware: &mut Firmware,
    memory: &mut Memory,
    line: &'static [u8],
) -> Result<&'static [u8], &'static str> {
    let files = Media::new(take(memory, 3 * MAX_FILE as u64)?);
    let (mut media, _) = files.ok_or("there is not enough memory for cloud-init's files")?;
    let has_disk = drive::NUMBERS.into_iter().flatten().any(|disk| has_files(firmware, disk, &mut media));
    let told = told(firmware.tables()).unwrap_or_default();
    let out = take(memory, (line.len() + MAX_ADDED) as u64)?;
    let has_words = has_disk || smbios::hostname(told.serial).is_some();
    nocloud::line(line, has_words.then_some(&media), &told, out, &mut |text| firmware.say(text))
        .ok_or("the file on this disk is damaged: its command line is not UTF-8")
}

/// Reads the files of a disk with the label; whether it is one.
fn has_files(firmware: &mut Firmware, disk: u8, media: &mut Media<'_>) -> bool {
    let Some(block) = firmware.block(disk) else { return false };
    let mut sector = [0; fat::SECTOR];
    let mut large = [0; iso::SECTOR];
    let mut read = |at: u64, to: &mut [u8]| {
        // One block where it is larger than the sector that is wanted, which never crosses a block's end.
        let blocks = to.len().div_ceil(block) as u16;
        let bytes = firmware.read(disk, at / block as u64, blocks);
        let from = (at % block as u64) as usize;
        let piece = bytes.and_then(|bytes| bytes.get(from..from + to.len()));
        piece.map(|piece| to.copy_from_slice(piece)).is_some()
    };
    let start = |n: u64, size: usize| n.checked_mul(size as u64);
    iso::read_files(media, &mut large, &mut |n, to| start(n.into(), to.len()).is_some_and(|at| read(at, to)))
        || fat::read_files(media, &mut sector, &mut |n, to| start(n, to.len()).is_some_and(|at| read(at, to)))
}

/// What the BIOS calls the computer.
fn told(tables: &'static [u8]) -> Option<smbios::System<'static>> {
    let all = ENTRIES.iter().find_map(|(name, length)| {
        tables.chunks_exact(STEP).enumerate().find_map(|(n, piece)| {
            let entry = tables.get(n * STEP..).filter(|_| piece.starts_with(name))?;
            smbios::tables(entry.get(..*length)?).filter(|(start, _)| *start < 1 << 32)
        })
    });
    // What is above is not mapped.
    let (start, length) = all.filter(|(start, length)| start + (*length as u64) <= 1 << 32)?;
    // SAFETY: the BIOS says that its tables are there, and how long they are (at most 64 KiB are read).
    smbios::system(unsafe { core::slice::from_raw_parts(start as *const u8, length) })
}
