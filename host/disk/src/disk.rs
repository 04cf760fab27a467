// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk with one partition, the EFI system partition (UEFI 2.10, 13.3), and one file on it.

use crate::{DiskError, Result};
use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};
use fscommon::{BufStream, StreamSlice};
use gpt::{GptConfig, disk::LogicalBlockSize, mbr::ProtectiveMBR, partition_types};
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 512;
/// Where the partition begins, and what is behind it for the second partition table.
const FRONT: u64 = MIB;
const BACK: u64 = MIB;
/// Where firmware looks on a disk that it knows nothing of (3.5.1.1).
const FOLDERS: [&str; 2] = ["EFI", "EFI/BOOT"];
const FILE: &str = "EFI/BOOT/BOOTX64.EFI";

/// Writes a raw disk image to `path`.
pub fn write_disk(path: &Path, efi_file: &[u8]) -> Result<()> {
    let failed = |error| DiskError::Write { path: path.into(), error };
    let room = partition_size(efi_file.len() as u64);
    let disk =
        File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(failed)?;
    disk.set_len(FRONT + room + BACK).map_err(failed)?;
    partition(path, &disk, room)?;
    let part = StreamSlice::new(BufStream::new(&disk), FRONT, FRONT + room).map_err(failed)?;
    fill(part, efi_file).map_err(failed)?;
    disk.sync_all().map_err(failed)
}

/// Bytes of a partition for a file: tables of the file system take at most four bytes of 512 twice, and there are two
/// folders.
fn partition_size(file: u64) -> u64 {
    (file + file / 64 + MIB / 2).next_multiple_of(MIB)
}

fn partition(path: &Path, disk: &File, room: u64) -> Result<()> {
    let wrong = |why: String| DiskError::Partitions { path: path.into(), why };
    let failed = |error| DiskError::Write { path: path.into(), error };
    let blocks = u32::try_from((FRONT + room + BACK) / BLOCK - 1).unwrap_or(u32::MAX);
    let mut front = disk;
    let mut record = ProtectiveMBR::with_lb_size(blocks);
    record.set_bootcode(bios_says());
    record.overwrite_lba0(&mut front).map_err(|e| wrong(e.to_string()))?;
    let device = Box::new(disk.try_clone().map_err(failed)?);
    let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut table = config.create_from_device(device, None).map_err(|e| wrong(e.to_string()))?;
    let alignment = Some(FRONT / BLOCK);
    table
        .add_partition("unilith", room, partition_types::EFI, 0, alignment)
        .map_err(|e| wrong(e.to_string()))?;
    table.write().map(drop).map_err(|e| wrong(e.to_string()))
}

/// What a BIOS runs of the disk, at 0x7c00 in 16 bits: it shows a sentence and stops.
fn bios_says() -> [u8; 440] {
    const CODE: [u8; 24] = [
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0xbe, 0x18, 0x7c, // mov si, 0x7c00 + 24
        0xac, // next: lodsb
        0x84, 0xc0, // test al, al
        0x74, 0x09, // jz stop
        0xb4, 0x0e, // mov ah, 0x0e (teletype)
        0xbb, 0x07, 0x00, // mov bx, 7
        0xcd, 0x10, // int 0x10
        0xeb, 0xf2, // jmp next
        0xf4, // stop: hlt
        0xeb, 0xfd, // jmp stop
    ];
    let text =
        b"This disk boots by UEFI. Choose UEFI in the firmware's or the virtual machine's settings.\r\n\0";
    let mut code = [0; 440];
    code[..CODE.len()].copy_from_slice(&CODE);
    code[CODE.len()..CODE.len() + text.len()].copy_from_slice(text);
    code
}

fn fill(mut part: StreamSlice<BufStream<&File>>, efi_file: &[u8]) -> io::Result<()> {
    fatfs::format_volume(&mut part, FormatVolumeOptions::new().volume_label(*b"UNILITH    "))?;
    let system = FileSystem::new(part, FsOptions::new())?;
    for folder in FOLDERS {
        system.root_dir().create_dir(folder)?;
    }
    system.root_dir().create_file(FILE)?.write_all(efi_file)?;
    system.unmount()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_file_of_any_size_fits_its_disk_and_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        for length in [1, 500_000, 4_000_000, 70_000_001] {
            let bytes: Vec<u8> =
                (0..length).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            write_disk(&path, &bytes).unwrap();
            let disk = GptConfig::new().writable(false).open(&path).unwrap();
            let [part] = &disk.partitions().values().collect::<Vec<_>>()[..] else { panic!("one partition") };
            assert_eq!((part.part_type_guid.clone(), part.first_lba), (partition_types::EFI, FRONT / BLOCK));
            let end = (part.last_lba + 1) * BLOCK;
            let part = StreamSlice::new(File::open(&path).unwrap(), FRONT, end).unwrap();
            let system = FileSystem::new(ReadOnly(part), FsOptions::new()).unwrap();
            let mut found = Vec::new();
            system.root_dir().open_file("efi/boot/bootx64.efi").unwrap().read_to_end(&mut found).unwrap();
            assert!(found == bytes, "{length}");
        }
    }

    /// The crate wants a stream that can be written, even to read.
    struct ReadOnly<T>(T);

    impl<T: io::Read> io::Read for ReadOnly<T> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl<T: io::Seek> io::Seek for ReadOnly<T> {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    impl<T> io::Write for ReadOnly<T> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            Ok(from.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
