// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images that are made and read, and images that somebody has damaged.

use super::*;
use alloc::{format, string::ToString, vec, vec::Vec};

fn contents(count: usize) -> Vec<Content> {
    let content = |n: usize| Content {
        name: format!("file-{n}").into_bytes(),
        size: n as u64 * 100,
        digest: [n as u8; 32],
    };
    (0..count).map(content).collect()
}

fn open(image: &[u8], blocks: u64) -> Result<Volume<Vec<u8>>, Damage> {
    let superblock = Superblock::parse(image, blocks)?;
    let table = image.get(BLOCK..BLOCK + superblock.table_bytes()).ok_or(Damage::Short)?;
    Volume::new(superblock, table.to_vec())
}

/// Sums that fit again after what they are of was changed.
fn sum_up(image: &mut [u8]) {
    let end = (u64_at(image, 32) as usize).saturating_mul(BUCKET).saturating_add(BLOCK);
    if let Some(table) = image.get(BLOCK..end) {
        let sum = crc32c(table);
        image[96..100].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = crc32c(&image[..100]);
    image[100..104].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn every_file_is_found_by_its_name_and_by_its_number() {
    for count in [0, 1, 2, 7, 8, 9, 100, 1000, 10_000] {
        let files = contents(count);
        let plan = make(&files).unwrap();
        let volume = open(&plan.head, plan.blocks).unwrap();
        assert_eq!(volume.superblock().files, count as u64);
        for (file, first) in files.iter().zip(&plan.first_blocks) {
            let found = volume.find(&file.name).unwrap();
            assert_eq!((found.size, found.first_block, *found.digest), (file.size, *first, file.digest));
            assert_eq!(volume.file(found.number), Some(found));
        }
        assert_eq!(volume.files().count(), count);
        for name in [&b""[..], b"file", b"file-10000", b"file-1 ", &[0; MAX_NAME + 1]] {
            assert_eq!(volume.find(name), None);
        }
        assert_eq!(volume.file(u32::MAX), None);
    }
}

#[test]
fn files_with_the_same_bytes_are_stored_once() {
    let mut files = contents(3);
    (files[1].digest, files[1].size) = (files[2].digest, files[2].size);
    let plan = make(&files).unwrap();
    assert_eq!(plan.first_blocks[1], plan.first_blocks[2]);
    // One of no bytes, and one of a block.
    assert_eq!(plan.blocks * BLOCK as u64, plan.head.len() as u64 + BLOCK as u64);
}

#[test]
fn names_that_no_file_may_have_make_no_image() {
    let with = |name: &[u8]| {
        make(&[Content { name: name.to_vec(), size: 0, digest: [0; 32] }])
            .map(drop)
            .map_err(|e| e.to_string())
    };
    assert!(with(&[b'a'; MAX_NAME]).is_ok() && with("css/é.css".as_bytes()).is_ok());
    for name in [&b""[..], b"a\0b", &[b'a'; MAX_NAME + 1]] {
        assert!(with(name).unwrap_err().contains("1 to 198 bytes"));
    }
    let twice = [contents(1), contents(1)].concat();
    assert_eq!(make(&twice).map(drop), Err(Unmakeable::Twice("file-0".into())));
}

#[test]
fn what_is_no_image_or_another_version_is_said() {
    let plan = make(&contents(10)).unwrap();
    let with = |at: usize, byte: u8| {
        let mut image = plan.head.clone();
        image[at] = byte;
        sum_up(&mut image);
        open(&image, plan.blocks).map(drop)
    };
    assert_eq!(with(0, b'u'), Err(Damage::NoImage));
    assert_eq!(with(8, 2), Err(Damage::Version(2)));
    for (at, byte) in [(12, 1), (33, 1), (32, 3), (32, 0), (39, 1), (40, 2), (48, 9), (16, 0), (23, 0xff)] {
        assert_eq!(with(at, byte), Err(Damage::Superblock), "{at}");
    }
    assert_eq!(with(24, 11), Err(Damage::Count));
    assert_eq!(open(&plan.head, plan.blocks - 1).map(drop), Err(Damage::Short));
    assert_eq!(open(&[], 100).map(drop), Err(Damage::NoImage));
    assert_eq!(open(&plan.head[..SUPERBLOCK - 1], 100).map(drop), Err(Damage::NoImage));
}

#[test]
fn one_byte_that_changed_is_noticed() {
    let plan = make(&contents(10)).unwrap();
    let end = BLOCK + u64_at(&plan.head, 32) as usize * BUCKET;
    for at in (0..SUPERBLOCK).chain(BLOCK..end) {
        let mut image = plan.head.clone();
        image[at] ^= 0x40;
        assert!(open(&image, plan.blocks).is_err(), "{at}");
    }
}

#[test]
fn entries_that_lie_are_damaged_although_the_sums_fit() {
    let files = contents(10);
    let plan = make(&files).unwrap();
    let volume = open(&plan.head, plan.blocks).unwrap();
    let number = volume.find(b"file-9").unwrap().number as usize;
    let bucket = BLOCK + number / ENTRIES * BUCKET;
    let (hash, at) = (bucket + number % ENTRIES * 8, bucket + HASHES + number % ENTRIES * ENTRY);
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut image = plan.head.clone();
        change(&mut image[at..at + ENTRY]);
        sum_up(&mut image);
        open(&image, plan.blocks).map(drop)
    };
    let damaged = Err(Damage::Entry(number as u32));
    assert_eq!(with(&|entry| entry[..8].fill(0xff)), damaged, "size");
    assert_eq!(with(&|entry| entry[..8].copy_from_slice(&4097u64.to_le_bytes())), damaged, "size");
    assert_eq!(with(&|entry| entry[8..16].fill(0)), damaged, "in front of the contents");
    assert_eq!(with(&|entry| entry[8..16].fill(0xff)), damaged, "behind the end");
    assert_eq!(with(&|entry| entry[NAME - 2] = 0xff), damaged, "length");
    assert_eq!(with(&|entry| entry[NAME - 2] = 0), damaged, "length");
    assert_eq!(with(&|entry| entry[NAME] = b'F'), damaged, "name");
    assert_eq!(with(&|entry| entry[NAME] = 0), damaged, "name");
    let mut image = plan.head.clone();
    image[hash] ^= 1;
    sum_up(&mut image);
    assert_eq!(open(&image, plan.blocks).map(drop), damaged, "hash");
}

/// Changes that nobody thought of: `UNILITH_FUZZ_ROUNDS` images, with sums that fit, and a few thousand without it. Whatever they
/// are, what a volume says of its files lies within the image.
#[test]
fn damaged_images_are_errors_or_sound_and_never_panics() {
    extern crate std;
    let rounds: u64 = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(3000, |n| n.parse().unwrap());
    let plans: Vec<Plan> = [0, 1, 5, 30].map(|count| make(&contents(count)).unwrap()).into();
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut opened = 0;
    for _ in 0..rounds {
        let plan = &plans[random(plans.len())];
        let mut image = plan.head.clone();
        let used: Vec<usize> = (0..image.len() / ENTRY)
            .map(|n| n * ENTRY)
            .filter(|at| image[*at..*at + ENTRY] != [0; ENTRY])
            .collect();
        for _ in 0..1 + random(4) {
            let start = if random(3) == 0 { 8 } else { used[random(used.len())] };
            let width = 1 << random(4);
            let at = (start + random(96)).min(image.len() - width);
            let values = [0, 1, 0xff, 0x7f, 0x80, random(256) as u8];
            let value = values[random(values.len())];
            image[at..at + width].fill(value);
        }
        if random(8) == 0 {
            image.truncate(random(image.len()).max(SUPERBLOCK));
        }
        if random(10) != 0 {
            sum_up(&mut image);
        }
        let available = if random(4) == 0 { random(64) as u64 } else { plan.blocks };
        let Ok(volume) = open(&image, available) else { continue };
        opened += 1;
        let mut names = vec![];
        for file in volume.files() {
            let end = file.first_block + blocks_of(file.size);
            assert!(end <= available && file.first_block >= 1 && is_name(file.name));
            assert_eq!(volume.find(file.name), Some(file));
            names.push(file.name);
        }
        assert_eq!(names.len() as u64, volume.superblock().files);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len() as u64, volume.superblock().files);
    }
    assert!(rounds < 1000 || opened > 0, "some changes leave an image that can be read");
}
