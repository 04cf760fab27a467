// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cloud-init's NoCloud disk or CD: firmware reads it, `nocloud` understands it. Names and numbers of sections are UEFI 2.10's.
//!
//! A file system that firmware knows (FAT) is asked for its label and files; what is on any medium else is looked at as a CD.

use crate::firmware::call;
use crate::handles::{any, connect_all};
use crate::stub::{allocate, say, tables};
use core::{ptr, slice};
use nocloud::{LABEL, MAX_ADDED, MAX_FILE, Media, NAMES, UNREADABLE, iso, smbios};
use uefi_raw::{
    Char16, Guid, guid,
    protocol::{
        block::BlockIoProtocol,
        file_system::{FileAttribute, FileMode, FileProtocolV1, FileSystemInfo, SimpleFileSystemProtocol},
    },
    table::{
        boot::{BootServices, PAGE_SIZE},
        system::SystemTable,
    },
};

/// SMBIOS3_TABLE_GUID and SMBIOS_TABLE_GUID (4.6.1), and the bytes of their entry points that count.
const SMBIOS: [Guid; 2] =
    [guid!("f2fd1544-9794-4a2c-992e-e5bbcf20e394"), guid!("eb9d2d31-2d88-11d3-9a16-0090273fc14d")];
const ENTRY_BYTES: [usize; 2] = [24, 31];
/// Where the label is in what is said of a file system (13.5), and the most bytes of both that are read.
const LABEL_OFFSET: usize = 36;
const MAX_INFO: usize = 256;

/// Memory for one disk's files, and for a sector.
struct Memory {
    media: Media<'static>,
    sector: &'static mut [u8; iso::SECTOR],
}

/// The kernel's command line, ended by a NUL byte, with what a disk of this computer says; as it is, where there is no such disk.
pub fn line(
    system: &SystemTable,
    services: &BootServices,
    line: &'static [u8],
) -> Result<&'static [u8], &'static str> {
    let mut memory = memory(services)?;
    let told = told(system).unwrap_or_default();
    let mut look = || file_systems(services, &mut memory) || disks(services, &mut memory);
    let has_disk = look() || {
        connect_all(services);
        look()
    };
    let out = zeros(services, line.len() + MAX_ADDED)?;
    let has_words = has_disk || smbios::hostname(told.serial).is_some();
    nocloud::line(line, has_words.then_some(&memory.media), &told, out, &mut |text| say(system, text))
        .ok_or("this file is damaged: its command line is not UTF-8")
}

/// What firmware calls the computer.
fn told(system: &SystemTable) -> Option<smbios::System<'static>> {
    let all = tables(system);
    let (entry, bytes) = SMBIOS.iter().zip(ENTRY_BYTES).find_map(|(guid, bytes)| {
        all.iter().find(|table| table.vendor_guid == *guid).map(|table| (table.vendor_table, bytes))
    })?;
    if entry.is_null() {
        return None;
    }
    // SAFETY: firmware keeps an entry point of that many bytes there (4.6.1; SMBIOS 3.7, 5.2), and says how long the tables are, which
    // stay where they are.
    unsafe {
        let (start, length) = smbios::tables(slice::from_raw_parts(entry.cast(), bytes))?;
        smbios::system(slice::from_raw_parts(start as *const u8, length))
    }
}

/// Zeros that stay, below 4 GiB.
fn zeros(services: &BootServices, bytes: usize) -> Result<&'static mut [u8], &'static str> {
    let bytes = allocate(services, bytes)?;
    bytes.fill(0);
    Ok(bytes)
}

fn memory(services: &BootServices) -> Result<Memory, &'static str> {
    let left = zeros(services, 3 * MAX_FILE + iso::SECTOR)?;
    let short = "there is not enough memory for cloud-init's files";
    let (media, left) = Media::new(left).ok_or(short)?;
    let (sector, _) = left.split_first_chunk_mut().ok_or(short)?;
    Ok(Memory { media, sector })
}

/// Reads the files of a FAT file system with the label; whether there is one.
fn file_systems(services: &BootServices, memory: &mut Memory) -> bool {
    any(services, &SimpleFileSystemProtocol::GUID, |system: *mut SimpleFileSystemProtocol| {
        let mut root: *mut FileProtocolV1 = ptr::null_mut();
        // SAFETY: firmware's own protocol (13.4), boot services run.
        let status = call(|| unsafe { ((*system).open_volume)(system, &mut root) });
        if status.is_error() || root.is_null() {
            return false;
        }
        let is_ours = has_label(root, memory);
        if is_ours {
            for (n, name) in NAMES.iter().enumerate() {
                memory.media.lengths[n] = read_file(root, name, memory.media.files[n]);
            }
        }
        // SAFETY: as above; the root is not used behind this.
        let _ = call(|| unsafe { ((*root).close)(root) });
        is_ours
    })
}

fn has_label(root: *mut FileProtocolV1, memory: &mut Memory) -> bool {
    let mut size = MAX_INFO;
    let info = memory.sector.as_mut_ptr();
    // SAFETY: firmware's own protocol (13.5); the buffer begins a page and has more than `size` bytes.
    let status = call(|| unsafe { ((*root).get_info)(root, &FileSystemInfo::ID, &mut size, info.cast()) });
    let label = memory.sector.get(LABEL_OFFSET..size.min(MAX_INFO)).unwrap_or(&[]);
    let label = label.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).take_while(|c| *c != 0);
    let upper = |c: u16| u8::try_from(c).map(|c| c.to_ascii_lowercase()).unwrap_or(0);
    !status.is_error() && label.map(upper).eq(LABEL.bytes())
}

/// Reads a file; answers its bytes, more than [`MAX_FILE`] for one that is longer, [`UNREADABLE`], 0 for none.
fn read_file(root: *mut FileProtocolV1, name: &str, to: &mut [u8; MAX_FILE]) -> usize {
    let mut wide: [Char16; 32] = [0; 32];
    for (to, byte) in wide.iter_mut().take(31).zip(name.bytes()) {
        *to = byte.into();
    }
    let mut file: *mut FileProtocolV1 = ptr::null_mut();
    // SAFETY: firmware's own protocol (13.5); the name ends with a zero.
    let status = call(|| unsafe {
        ((*root).open)(root, &mut file, wide.as_ptr(), FileMode::READ, FileAttribute::empty())
    });
    if status.is_error() || file.is_null() {
        return 0;
    }
    let (mut size, mut more) = (MAX_FILE, 1);
    let mut next = 0u8;
    // SAFETY: as above; both buffers have as many bytes as is said.
    let status = unsafe {
        let status = call(|| ((*file).read)(file, &mut size, to.as_mut_ptr().cast()));
        let rest = call(|| ((*file).read)(file, &mut more, (&raw mut next).cast()));
        let _ = call(|| ((*file).close)(file));
        if rest.is_error() {
            more = 0;
        }
        status
    };
    if status.is_error() { UNREADABLE } else { size.min(MAX_FILE) + more.min(1) }
}

/// Reads the files of a CD with the label; whether there is one.
fn disks(services: &BootServices, memory: &mut Memory) -> bool {
    any(services, &BlockIoProtocol::GUID, |disk: *mut BlockIoProtocol| {
        // SAFETY: firmware's own protocol (13.9), boot services run; its medium stays where it is.
        let Some(medium) = (unsafe { (*disk).media.as_ref() }) else { return false };
        let (id, block) = (medium.media_id, medium.block_size as usize);
        if !bool::from(medium.media_present) || !matches!(block, 512 | 1024 | iso::SECTOR) {
            return false;
        }
        let last = medium.last_block;
        let per_sector = (iso::SECTOR / block) as u64;
        let mut read = |sector: u32, to: &mut [u8; iso::SECTOR]| {
            let first = u64::from(sector) * per_sector;
            if first + per_sector - 1 > last {
                return false;
            }
            // SAFETY: as above; the buffer has the bytes, and begins at a multiple of what any disk wants.
            let status =
                call(|| unsafe { ((*disk).read_blocks)(disk, id, first, to.len(), to.as_mut_ptr().cast()) });
            !status.is_error()
        };
        iso::read_files(&mut memory.media, memory.sector, &mut read)
    })
}
