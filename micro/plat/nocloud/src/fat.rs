// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files in the root directory of a FAT file system (Microsoft's "FAT: General Overview of On-Disk Format", 1.03), for a loader whose
//! firmware reads sectors and nothing else. The file system is the whole disk, or one of the four partitions of an MBR.

use crate::{LABEL, MAX_FILE, Media, NAMES, UNREADABLE};

/// Bytes of a sector: of a disk, and the only size of the file system's.
pub const SECTOR: usize = 512;
/// Bytes of a directory's entry, and of a name's piece of one.
const ENTRY: usize = 32;
const PIECE: usize = 13;
/// Longest name that is looked for, in pieces.
const MAX_PIECES: usize = 2;
/// Most sectors of the root directory: it has three files.
const MAX_DIRECTORY: u32 = 64;
/// Attributes of an entry.
const VOLUME: u8 = 8;
const DIRECTORY: u8 = 16;
const LONG_NAME: u8 = 15;
/// The number of clusters decides the kind (page 14).
const FAT12_CLUSTERS: u32 = 4085;
const FAT16_CLUSTERS: u32 = 65525;

/// Fills the buffer with a sector of the disk; answers whether it could.
pub type Read<'r> = dyn FnMut(u64, &mut [u8; SECTOR]) -> bool + 'r;

/// Reads the files of a FAT file system with the label; whether there is one.
pub fn read_files(media: &mut Media<'_>, buffer: &mut [u8; SECTOR], read: &mut Read<'_>) -> bool {
    if !read(0, buffer) || buffer[510..] != [0x55, 0xaa] {
        return false;
    }
    if let Some(volume) = Volume::parse(buffer, 0) {
        return volume.read_files(media, buffer, read);
    }
    let mut starts = [0; 4];
    for (start, entry) in starts.iter_mut().zip(buffer[446..510].chunks_exact(16)) {
        *start = long(entry, 8);
    }
    starts.into_iter().filter(|start| *start != 0).any(|start| {
        read(start.into(), buffer)
            && buffer[510..] == [0x55, 0xaa]
            && Volume::parse(buffer, start).is_some_and(|volume| volume.read_files(media, buffer, read))
    })
}

/// Where things are, in sectors of the disk.
#[derive(Clone, Copy)]
struct Volume {
    fat: u64,
    /// The root directory of FAT12 and FAT16; FAT32's is a file that begins at the cluster `root_cluster`.
    root: u64,
    root_sectors: u32,
    root_cluster: u32,
    data: u64,
    per_cluster: u32,
    clusters: u32,
    bits: u32,
}

/// Where the bytes of a file or directory go on.
#[derive(Clone, Copy)]
enum Place {
    Fixed,
    Cluster(u32),
}

impl Volume {
    fn parse(sector: &[u8; SECTOR], start: u32) -> Option<Volume> {
        let (reserved, fats) = (u32::from(half(sector, 14)), u32::from(sector[16]));
        let per_cluster = u32::from(sector[13]);
        if usize::from(half(sector, 11)) != SECTOR
            || !per_cluster.is_power_of_two()
            || reserved == 0
            || fats == 0
        {
            return None;
        }
        let either = |short: u16, long: u32| if short != 0 { u32::from(short) } else { long };
        let per_fat = either(half(sector, 22), long(sector, 36));
        let total = either(half(sector, 19), long(sector, 32));
        let root_sectors = (u32::from(half(sector, 17)) * ENTRY as u32).div_ceil(SECTOR as u32);
        let root = fats.checked_mul(per_fat)?.checked_add(reserved)?;
        let data = root.checked_add(root_sectors)?;
        let clusters = total.checked_sub(data)? / per_cluster;
        let bits = match clusters {
            ..FAT12_CLUSTERS => 12,
            FAT12_CLUSTERS..FAT16_CLUSTERS => 16,
            _ => 32,
        };
        let start = u64::from(start);
        Some(Volume {
            fat: start + u64::from(reserved),
            root: start + u64::from(root),
            root_sectors,
            root_cluster: long(sector, 44),
            data: start + u64::from(data),
            per_cluster,
            clusters,
            bits,
        })
    }

    fn read_files(&self, media: &mut Media<'_>, buffer: &mut [u8; SECTOR], read: &mut Read<'_>) -> bool {
        // First cluster and bytes of each file.
        let mut found = [None; 3];
        let mut is_ours = false;
        let mut name = LongName::default();
        let root = if self.bits == 32 { Place::Cluster(self.root_cluster) } else { Place::Fixed };
        let whole = self.each_sector(root, MAX_DIRECTORY, buffer, read, &mut |sector, _| {
            for entry in sector.chunks_exact(ENTRY) {
                let (first, kind) = (entry[0], entry[11]);
                match (first, kind & 0x3f) {
                    (0, _) => return false,
                    (0xe5, _) => name = LongName::default(),
                    (_, LONG_NAME) => name.add(entry),
                    (_, kind) if kind & VOLUME != 0 => {
                        is_ours |= entry[..11].trim_ascii_end().eq_ignore_ascii_case(LABEL.as_bytes());
                    }
                    (_, kind) => {
                        let which = NAMES.iter().position(|known| name.is(known));
                        if let Some(which) = which.filter(|_| kind & DIRECTORY == 0) {
                            let cluster = u32::from(half(entry, 20)) << 16 | u32::from(half(entry, 26));
                            found[which] = Some((cluster, long(entry, 28)));
                        }
                        name = LongName::default();
                    }
                }
            }
            true
        });
        if !is_ours {
            return false;
        }
        for ((file, length), place) in media.files.iter_mut().zip(&mut media.lengths).zip(found) {
            let Some((cluster, bytes)) = place else {
                // The name may be in what cannot be read.
                *length = if whole { 0 } else { UNREADABLE };
                continue;
            };
            *length = bytes as usize;
            let needed = (*length).min(MAX_FILE).div_ceil(SECTOR) as u32;
            let mut done = 0;
            let whole = needed == 0
                || self.each_sector(Place::Cluster(cluster), needed, buffer, read, &mut |sector, n| {
                    file[n * SECTOR..][..SECTOR].copy_from_slice(sector);
                    done = n as u32 + 1;
                    true
                });
            if !whole || done < needed {
                *length = UNREADABLE;
            }
        }
        true
    }

    /// Calls `each` for at most `limit` sectors, with the number of each, until it answers no; whether all could be read.
    fn each_sector(
        &self,
        mut place: Place,
        limit: u32,
        buffer: &mut [u8; SECTOR],
        read: &mut Read<'_>,
        each: &mut dyn FnMut(&[u8; SECTOR], usize) -> bool,
    ) -> bool {
        let mut n = 0;
        loop {
            let (first, count) = match place {
                Place::Fixed => (self.root, self.root_sectors),
                // Clusters are numbered from 2 on.
                Place::Cluster(cluster) => match cluster.checked_sub(2).filter(|n| *n < self.clusters) {
                    Some(index) => {
                        (self.data + u64::from(index) * u64::from(self.per_cluster), self.per_cluster)
                    }
                    None => return false,
                },
            };
            for sector in 0..count {
                if n == limit {
                    return true;
                }
                if !read(first + u64::from(sector), buffer) {
                    return false;
                }
                if !each(buffer, n as usize) {
                    return true;
                }
                n += 1;
            }
            let Place::Cluster(cluster) = place else { return true };
            if n >= limit {
                return true;
            }
            match self.next(cluster, buffer, read) {
                Some(Some(next)) => place = Place::Cluster(next),
                Some(None) => return true,
                None => return false,
            }
        }
    }

    /// The cluster behind this one; `Some(None)`: it was the last. `None`: the table cannot be read.
    fn next(&self, cluster: u32, buffer: &mut [u8; SECTOR], read: &mut Read<'_>) -> Option<Option<u32>> {
        let bit = u64::from(cluster) * u64::from(self.bits);
        let byte = |at: u64, buffer: &mut [u8; SECTOR], read: &mut Read<'_>| {
            let sector = self.fat + at / SECTOR as u64;
            read(sector, buffer).then(|| buffer[(at % SECTOR as u64) as usize])
        };
        let mut value = 0;
        // An entry of FAT12 begins in the middle of a byte, and may cross a sector's end.
        for n in 0..u64::from(self.bits).div_ceil(8) {
            value |= u32::from(byte(bit / 8 + n, buffer, read)?) << (8 * n);
        }
        let value = match self.bits {
            12 if bit % 8 == 4 => value >> 4,
            12 => value & 0xfff,
            16 => value,
            _ => value & 0x0fff_ffff,
        };
        let end = match self.bits {
            12 => 0xff8,
            16 => 0xfff8,
            _ => 0x0fff_fff8,
        };
        Some((value < end).then_some(value))
    }
}

/// The name in the entries in front of a file's own (page 27), the last piece first.
#[derive(Default)]
struct LongName {
    pieces: [[u8; PIECE]; MAX_PIECES],
    /// How many pieces it has, 0 for none that is known, and which is next.
    count: usize,
    next: usize,
}

impl LongName {
    fn add(&mut self, entry: &[u8]) {
        let order = usize::from(entry[0] & 0x1f);
        if entry[0] & 0x40 != 0 {
            *self = LongName { count: order, next: order, ..LongName::default() };
        }
        let is_next = order != 0 && order == self.next && order <= MAX_PIECES;
        if !is_next {
            *self = LongName::default();
            return;
        }
        self.next -= 1;
        let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain((28..32).step_by(2));
        for (to, at) in self.pieces[order - 1].iter_mut().zip(places) {
            // What is not ASCII is in no name that is looked for; behind the end is a zero, and then filling.
            *to = u8::try_from(half(entry, at)).unwrap_or(0xff);
        }
    }

    fn is(&self, name: &str) -> bool {
        let all = self.pieces.as_flattened();
        let end = all.iter().position(|byte| *byte == 0).unwrap_or(all.len());
        self.count != 0 && self.next == 0 && all[..end].eq_ignore_ascii_case(name.as_bytes())
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions};
    use std::{
        io::{Cursor, Write as _},
        string::String,
        vec,
        vec::Vec,
    };

    /// A file system of a kind, with some files before the three.
    fn volume(kind: FatType, label: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
        let sectors = match kind {
            FatType::Fat12 => 2_000,
            FatType::Fat16 => 20_000,
            FatType::Fat32 => 70_000,
        };
        let mut disk = vec![0; sectors * SECTOR];
        let mut name = [b' '; 11];
        name[..label.len()].copy_from_slice(label.as_bytes());
        let options = FormatVolumeOptions::new().fat_type(kind).volume_label(name).bytes_per_cluster(512);
        fatfs::format_volume(Cursor::new(&mut disk[..]), options).unwrap();
        let system = FileSystem::new(Cursor::new(&mut disk[..]), FsOptions::new()).unwrap();
        assert_eq!(system.fat_type(), kind);
        for n in 0..40 {
            system.root_dir().create_file(&std::format!("a file with a longer name {n}")).unwrap();
        }
        system.root_dir().create_dir("meta-data.d").unwrap();
        for (name, bytes) in files {
            system.root_dir().create_file(name).unwrap().write_all(bytes).unwrap();
        }
        system.unmount().unwrap();
        disk
    }

    type Told = Option<[Result<String, usize>; 3]>;

    fn look(disk: &[u8], reads: &mut usize) -> Told {
        let mut memory = vec![[0; MAX_FILE]; 3];
        let [a, b, c] = &mut memory[..] else { unreachable!("three") };
        let mut media = Media { files: [a, b, c], lengths: [0; 3] };
        let is_ours = read_files(&mut media, &mut [0; SECTOR], &mut |sector, to| {
            *reads += 1;
            let from = usize::try_from(sector).ok().and_then(|n| disk.get(n.checked_mul(SECTOR)?..));
            from.and_then(|rest| rest.first_chunk()).map(|from| *to = *from).is_some()
        });
        let text = |n: usize| match media.lengths[n] {
            length if length > MAX_FILE => Err(length),
            length => Ok(String::from_utf8_lossy(&media.files[n][..length]).into_owned()),
        };
        is_ours.then(|| [text(0), text(1), text(2)])
    }

    #[test]
    fn files_of_every_kind_of_fat_are_found_whole() {
        for kind in [FatType::Fat12, FatType::Fat16, FatType::Fat32] {
            let user = "x: y\n".repeat(2_000);
            let long = vec![b'n'; MAX_FILE + 1];
            let files: [(&str, &[u8]); 3] =
                [("meta-data", b"a: b\n"), ("user-data", user.as_bytes()), ("network-config", &long)];
            let disk = volume(kind, "CIDATA", &files);
            let told = [Ok("a: b\n".into()), Err(MAX_FILE + 1), Ok(user.clone())];
            assert_eq!(look(&disk, &mut 0), Some(told.clone()), "{kind:?}");
            assert_eq!(look(&volume(kind, "OTHER", &files), &mut 0), None, "{kind:?}");
            let only = volume(kind, "cidata", &[("User-Data", b"u")]);
            assert_eq!(look(&only, &mut 0), Some([Ok("".into()), Ok("".into()), Ok("u".into())]), "{kind:?}");
            // The same behind a partition table.
            let mut parted = vec![0; 64 * SECTOR];
            parted[446 + 16 + 8..][..4].copy_from_slice(&64u32.to_le_bytes());
            parted[510..512].copy_from_slice(&[0x55, 0xaa]);
            parted.extend(&disk);
            assert_eq!(look(&parted, &mut 0), Some(told), "{kind:?}");
            // A disk that ends in the middle of a file.
            let cut = look(&disk[..disk.len() / 8], &mut 0);
            assert!(cut.is_none_or(|files| files.iter().any(|file| file.is_err())), "{kind:?}");
        }
    }

    #[test]
    fn a_damaged_file_system_is_read_within_its_bounds() {
        let good =
            volume(FatType::Fat12, "CIDATA", &[("meta-data", b"a: b\n"), ("user-data", &[b'u'; 3000])]);
        let mut seed = 9u32;
        for _ in 0..5_000 {
            let mut bad = good.clone();
            for _ in 0..6 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let places = [0..64, SECTOR..2 * SECTOR, SECTOR..40 * SECTOR];
                let place = places[(seed >> 8) as usize % 3].clone();
                bad[place.start + (seed >> 12) as usize % place.len()] = (seed >> 3) as u8;
            }
            let mut reads = 0;
            look(&bad, &mut reads);
            // Each sector of a directory and of three files, and the piece of the table behind it.
            assert!(reads <= 2 + 4 * (MAX_DIRECTORY as usize + 3 * 32), "{reads}");
        }
        // A chain of clusters that is a circle.
        let mut circle = good.clone();
        circle[SECTOR..10 * SECTOR].fill(0);
        look(&circle, &mut 0);
        assert_eq!(look(&[], &mut 0), None);
        assert_eq!(look(&[0; SECTOR], &mut 0), None);
    }
}
