// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cloud-init's NoCloud disk or CD: the BIOS reads blocks of it, `nocloud` understands them.

use crate::{firmware::Firmware, loader::take};
use bios::{drive, memory::Memory};
use core::fmt;
use nocloud::{MAX_FILE, Media, fat, iso, smbios};

/// Bytes that the words of the files may add to the command line.
const MAX_ADDED: usize = 32 << 10;
/// Places where an entry point of SMBIOS may begin (SMBIOS 3.7, 5.2), its names, and how long each is at most.
const STEP: usize = 16;
const ENTRIES: [(&[u8], usize); 2] = [(b"_SM3_", 24), (b"_SM_", 31)];

/// Writes to the screen and the serial port.
struct Console<'f>(&'f mut Firmware);

impl fmt::Write for Console<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Words of the files may be in any language, the console is for ASCII.
        for part in text.split_inclusive(|c: char| !matches!(c, ' '..='~')) {
            let plain = part.trim_end_matches(|c: char| !matches!(c, ' '..='~'));
            self.0.say(plain);
            if plain.len() < part.len() {
                self.0.say("?");
            }
        }
        Ok(())
    }
}

/// The kernel's command line, ended by a NUL byte, with what a disk of this computer says; as it is, where there is no such disk.
pub fn line(
    firmware: &mut Firmware,
    memory: &mut Memory,
    line: &'static [u8],
) -> Result<&'static [u8], &'static str> {
    let mut left = take(memory, 3 * MAX_FILE as u64)?;
    let mut file = || {
        let (first, rest) = core::mem::take(&mut left).split_first_chunk_mut()?;
        left = rest;
        Some(first)
    };
    let files = file().zip(file()).zip(file()).ok_or("there is not enough memory for cloud-init's files")?;
    let mut media = Media { files: [files.0.0, files.0.1, files.1], lengths: [0; 3] };
    let has_disk = drive::NUMBERS.into_iter().flatten().any(|disk| has_files(firmware, disk, &mut media));
    let told = told(firmware.tables()).unwrap_or_default();
    let out = take(memory, (line.len() + MAX_ADDED) as u64)?;
    if !has_disk && smbios::hostname(told.serial).is_none() {
        // Clouds have a server in place of the disk, which the kernel asks.
        let cloud = metadata::of_computer(told.vendor, told.product);
        let length = cloud.and_then(|cloud| metadata::add_to(line, cloud, out));
        return Ok(length.map_or(line, |length| &out[..length]));
    }
    let own = line.strip_suffix(&[0]).and_then(|line| core::str::from_utf8(line).ok());
    let own = own.ok_or("the file on this disk is damaged: its command line is not UTF-8")?;
    let end = out.len() - 1;
    let mut say = |text: fmt::Arguments<'_>| {
        firmware.say("unilith: cidata: ");
        let _ = fmt::write(&mut Console(firmware), text);
        firmware.say("\r\n");
    };
    let length = media.add_to(own, told.serial, &mut out[..end], &mut say);
    // Behind the words there are zeros.
    Ok(length.map_or(line, |length| &out[..=length]))
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
