// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk with an EFI system partition (UEFI 2.10, 13.3) and one file on it, which a loader for BIOSes in a partition of its own
//! reads, too.

use crate::{DiskError, Loader, Result};
use bios::FIRST_BLOCK;
use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};
use fscommon::{BufStream, StreamSlice};
use gpt::{GptConfig, disk::LogicalBlockSize, mbr::ProtectiveMBR, partition_types};
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
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
pub fn write_disk(path: &Path, efi_file: &[u8], loader: &Loader) -> Result<()> {
    let failed = |error| DiskError::Write { path: path.into(), error };
    let room = partition_size(efi_file.len() as u64);
    let disk =
        File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(failed)?;
    disk.set_len(FRONT + room + BACK).map_err(failed)?;
    partition(path, &disk, room, loader)?;
    let part = StreamSlice::new(BufStream::new(&disk), FRONT, FRONT + room).map_err(failed)?;
    fill(part, efi_file).map_err(failed)?;
    let mut part = StreamSlice::new(&disk, FRONT, FRONT + room).map_err(failed)?;
    let start = start_of(&mut part, efi_file)
        .map_err(failed)?
        .ok_or_else(|| DiskError::Loader("the file is not in one piece on its file system".into()))?;
    let loader = loader.on_disk((FRONT + start) / BLOCK, efi_file.len() as u64);
    disk.write_all_at(&loader, FIRST_BLOCK * BLOCK).map_err(failed)?;
    disk.sync_all().map_err(failed)
}

/// Bytes of a partition for a file: tables of the file system take at most four bytes of 512 twice, and there are two
/// folders.
fn partition_size(file: u64) -> u64 {
    (file + file / 64 + MIB / 2).next_multiple_of(MIB)
}

/// Where in its file system the file is, if it is there in one piece: what is written to an empty one lies so.
fn start_of(part: &mut StreamSlice<&File>, file: &[u8]) -> io::Result<Option<u64>> {
    let mut block = [0; BLOCK as usize];
    let mut reader = io::BufReader::with_capacity(1 << 20, part);
    let mut at = 0;
    loop {
        match reader.read_exact(&mut block) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        // The first of all files, and the only one that can begin so.
        let length = file.len().min(block.len());
        if block[..length] == file[..length] {
            break;
        }
        at += BLOCK;
    }
    reader.seek(SeekFrom::Start(at))?;
    let mut piece = vec![0; 1 << 20];
    for expected in file.chunks(piece.len()) {
        let read = &mut piece[..expected.len()];
        reader.read_exact(read)?;
        if read != expected {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

fn partition(path: &Path, disk: &File, room: u64, loader: &Loader) -> Result<()> {
    let wrong = |why: String| DiskError::Partitions { path: path.into(), why };
    let failed = |error| DiskError::Write { path: path.into(), error };
    let blocks = u32::try_from((FRONT + room + BACK) / BLOCK - 1).unwrap_or(u32::MAX);
    let mut front = disk;
    let mut record = ProtectiveMBR::with_lb_size(blocks);
    record.set_bootcode(loader.code);
    record.overwrite_lba0(&mut front).map_err(|e| wrong(e.to_string()))?;
    let device = Box::new(disk.try_clone().map_err(failed)?);
    let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut table = config.create_from_device(device, None).map_err(|e| wrong(e.to_string()))?;
    table
        .add_partition("unilith-bios", loader.room(), partition_types::BIOS, 0, Some(FIRST_BLOCK))
        .map_err(|e| wrong(e.to_string()))?;
    let alignment = Some(FRONT / BLOCK);
    table
        .add_partition("unilith", room, partition_types::EFI, 0, alignment)
        .map_err(|e| wrong(e.to_string()))?;
    table.write().map(drop).map_err(|e| wrong(e.to_string()))
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

    #[test]
    fn a_file_of_any_size_fits_its_disk_and_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        for length in [1, 500_000, 4_000_000, 70_000_001] {
            let bytes: Vec<u8> =
                (0..length).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            write_disk(&path, &bytes, &Loader::for_tests()).unwrap();
            let disk = GptConfig::new().writable(false).open(&path).unwrap();
            let [own, part] = &disk.partitions().values().collect::<Vec<_>>()[..] else {
                panic!("two partitions")
            };
            assert_eq!((own.part_type_guid.clone(), own.first_lba), (partition_types::BIOS, FIRST_BLOCK));
            // The loader is told where the file is.
            let raw = File::open(&path).unwrap();
            let mut place = [0; 32];
            raw.read_exact_at(&mut place, FIRST_BLOCK * BLOCK + bios::PLACE as u64).unwrap();
            let place = bios::Place::decode(&place).unwrap();
            assert_eq!(place.bytes, bytes.len() as u64);
            let mut found = vec![0; bytes.len()];
            raw.read_exact_at(&mut found, place.block * BLOCK).unwrap();
            assert!(found == bytes, "{length}");
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
