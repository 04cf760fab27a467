// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of mkfs.ext4(8), changed here and judged by e2fsck(8): a file system that only its own author can read is none.

mod damage;
mod disk;
mod model;
mod operations;
mod power_cut;

use crate::inode::New;
use crate::{Core, Options, ROOT};
use abi::errno::*;
use api_fs::{FileType, SetAttr, Timespec};
use disk::{MemoryDisk, check, image};
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

/// Ways to make a file system: what mkfs does by itself, and what a user may wish.
const KINDS: [&[&str]; 6] = [
    &[],
    &["-b", "1024"],
    &["-b", "2048", "-O", "^metadata_csum"],
    &["-O", "^64bit,^metadata_csum"],
    &["-O", "^64bit,^metadata_csum,uninit_bg", "-b", "1024"],
    &["-O", "metadata_csum_seed,^resize_inode", "-I", "128", "-b", "4096"],
];

fn now() -> Timespec {
    Timespec { seconds: 1_700_000_000, nanoseconds: 123_456_789 }
}

fn mounted(disk: &Arc<MemoryDisk>) -> Core {
    Core::mount(disk.clone(), Options::default(), now()).map_err(|refusal| refusal.0).unwrap()
}

fn file() -> New {
    New { kind: FileType::Regular, permissions: 0o644, owner: (0, 0), device: 0, now: now() }
}

fn directory() -> New {
    New { kind: FileType::Directory, permissions: 0o755, ..file() }
}

fn write_all(core: &mut Core, number: u32, mut offset: u64, mut bytes: &[u8]) -> abi::Result<()> {
    while !bytes.is_empty() {
        let part = bytes.len().min(crate::data::MAX_STEP);
        let n = core.write(number, offset, &bytes[..part], now())?;
        offset += n as u64;
        bytes = &bytes[n..];
    }
    Ok(())
}

fn read_all(core: &mut Core, number: u32) -> abi::Result<Vec<u8>> {
    let length = core.stat(number)?.size as usize;
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let mut frames = Vec::with_capacity(16);
        core.read(number, bytes.len() as u64, &mut frames)?;
        for frame in frames {
            let mut page = [0; abi::PAGE_SIZE];
            frame.read(0, &mut page);
            bytes.extend_from_slice(&page);
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn names(core: &mut Core, directory: u32) -> Vec<String> {
    let mut out = Vec::new();
    let mut from = 0;
    loop {
        let entries = core.list(directory, from, 100).unwrap();
        let Some(last) = entries.last() else { return out };
        from = last.next;
        out.extend(entries.iter().map(|e| String::from_utf8(e.name.clone()).unwrap()));
    }
}

#[test]
fn what_is_written_is_read_again_and_e2fsck_finds_nothing() {
    for kind in KINDS {
        let disk = image(16 << 20, kind);
        let mut core = mounted(&disk);
        let number = core.create(ROOT, b"notes", file()).unwrap();
        let text: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        write_all(&mut core, number, 0, &text).unwrap();
        let below = core.create(ROOT, b"below", directory()).unwrap();
        core.link(below, b"again", number, now()).unwrap();
        core.symlink(below, b"short", b"../notes", file()).unwrap();
        core.symlink(below, b"long", &[b'x'; 200], file()).unwrap();
        core.unmount().unwrap();
        check(&disk, kind);
        let mut core = mounted(&disk);
        let number = core.lookup(below, b"again").unwrap();
        assert_eq!(read_all(&mut core, number).unwrap(), text);
        assert_eq!(core.stat(number).unwrap().links, 2);
        assert_eq!(core.stat(number).unwrap().modified.seconds, now().seconds);
        let long = core.lookup(below, b"long").unwrap();
        assert_eq!(core.read_link(long).unwrap(), [b'x'; 200]);
        let mut there = names(&mut core, below);
        there.sort();
        assert_eq!(there, ["again", "long", "short"]);
        core.unmount().unwrap();
        check(&disk, kind);
    }
}

#[test]
fn a_directory_of_many_names_comes_and_goes() {
    for kind in [KINDS[0], KINDS[1]] {
        let disk = image(64 << 20, kind);
        let mut core = mounted(&disk);
        let many = core.create(ROOT, b"many", directory()).unwrap();
        const COUNT: usize = 3000;
        let name = |i: usize| std::format!("a name of some length, number {i}");
        for i in 0..COUNT {
            core.create(many, name(i).as_bytes(), file()).unwrap();
        }
        assert_eq!(core.create(many, name(7).as_bytes(), file()), Err(EEXIST));
        assert_eq!(names(&mut core, many).len(), COUNT);
        core.unmount().unwrap();
        check(&disk, kind);
        let mut core = mounted(&disk);
        assert_eq!(core.unlink(ROOT, b"many", true, now()), Err(ENOTEMPTY));
        for i in (0..COUNT).rev() {
            core.unlink(many, name(i).as_bytes(), false, now()).unwrap();
        }
        core.unlink(ROOT, b"many", true, now()).unwrap();
        core.unmount().unwrap();
        check(&disk, kind);
    }
}

#[test]
fn a_directory_with_an_index_loses_it_when_it_is_changed() {
    let folder = disk::folder();
    for i in 0..2000 {
        std::fs::write(folder.path().join(std::format!("file of Linux' number {i}")), "").unwrap();
    }
    let from = folder.path().to_str().unwrap().to_string();
    for kind in [&["-b", "1024", "-d", &from][..], &["-b", "1024", "-O", "^metadata_csum", "-d", &from]] {
        let disk = image(64 << 20, kind);
        // mkfs makes no indexes, e2fsck does.
        disk.run("e2fsck", &["-fyD"]);
        assert!(disk.debugfs("htree /").contains("Root node dump"), "there is an index");
        let mut core = mounted(&disk);
        assert_eq!(names(&mut core, ROOT).len(), 2001);
        let old = core.lookup(ROOT, b"file of Linux' number 1234").unwrap();
        core.unlink(ROOT, b"file of Linux' number 1234", false, now()).unwrap();
        assert_eq!(core.stat(old).map(|_| ()), Err(ESTALE));
        core.create(ROOT, b"new", file()).unwrap();
        core.unmount().unwrap();
        check(&disk, kind);
        assert!(!disk.debugfs("htree /").contains("Root node dump"));
    }
}

#[test]
fn a_fragmented_file_has_a_tree_of_extents() {
    for kind in [KINDS[0], KINDS[1], KINDS[3]] {
        let disk = image(64 << 20, kind);
        let mut core = mounted(&disk);
        let number = core.create(ROOT, b"holes", file()).unwrap();
        let size = core.block_size() as u64;
        // From the middle outwards, so that keys change at both ends.
        let places = (0..900u64).map(|i| if i % 2 == 0 { 1000 + i } else { 1000 - i });
        for place in places.clone() {
            write_all(&mut core, number, place * 2 * size, &[place as u8; 10]).unwrap();
        }
        core.unmount().unwrap();
        check(&disk, kind);
        let mut core = mounted(&disk);
        let bytes = read_all(&mut core, number).unwrap();
        for place in places.clone() {
            let at = (place * 2 * size) as usize;
            assert_eq!(bytes[at..at + 10], [place as u8; 10]);
        }
        let before = core.stat(number).unwrap().blocks;
        for place in places.clone().step_by(3) {
            core.allocate_range(number, 3, place * 2 * size, size, now()).unwrap();
        }
        assert!(core.stat(number).unwrap().blocks < before);
        core.sync().unwrap();
        core.truncate(number, 1001 * 2 * size + 5, now()).unwrap();
        core.unmount().unwrap();
        check(&disk, kind);
        let mut core = mounted(&disk);
        core.truncate(number, 0, now()).unwrap();
        assert_eq!(core.stat(number).unwrap().blocks, 0);
        core.unmount().unwrap();
        check(&disk, kind);
    }
}

#[test]
fn reserved_blocks_read_as_zeros_until_they_are_written() {
    for kind in KINDS {
        let disk = image(16 << 20, kind);
        let mut core = mounted(&disk);
        let number = core.create(ROOT, b"reserved", file()).unwrap();
        core.allocate_range(number, 0, 0, 1 << 20, now()).unwrap();
        assert_eq!(core.stat(number).unwrap().size, 1 << 20);
        write_all(&mut core, number, 500_000, b"in the middle").unwrap();
        core.unmount().unwrap();
        check(&disk, kind);
        let mut core = mounted(&disk);
        let mut expected = std::vec![0; 1 << 20];
        expected[500_000..500_013].copy_from_slice(b"in the middle");
        assert_eq!(read_all(&mut core, number).unwrap(), expected);
        core.unmount().unwrap();
    }
}

#[test]
fn a_full_disk_says_so_and_stays_whole() {
    let disk = image(8 << 20, KINDS[1]);
    let mut core = mounted(&disk);
    let number = core.create(ROOT, b"large", file()).unwrap();
    let mut at = 0;
    // In steps that become smaller, until not one block is left.
    for step in [60_000, 1000] {
        let failed = loop {
            match core.write(number, at, &std::vec![7; step], now()) {
                Ok(n) => at += n as u64,
                Err(e) => break e,
            }
        };
        assert_eq!(failed, ENOSPC);
    }
    assert_eq!(core.create(ROOT, b"one more", directory()), Err(ENOSPC));
    core.unmount().unwrap();
    check(&disk, KINDS[1]);
    let mut core = mounted(&disk);
    assert_eq!(core.stat(number).unwrap().size, at);
    core.unlink(ROOT, b"large", false, now()).unwrap();
    core.create(ROOT, b"one more", directory()).unwrap();
    core.unmount().unwrap();
    check(&disk, KINDS[1]);
}

#[test]
fn an_open_file_without_a_name_is_freed_with_its_last_holder_or_by_the_next_mount() {
    let disk = image(16 << 20, KINDS[0]);
    let mut core = mounted(&disk);
    let free = core.stat_fs().unwrap();
    let held = core.create(ROOT, b"held", file()).unwrap();
    let left = core.create_unnamed(ROOT, file(), true).unwrap();
    core.hold(held).unwrap();
    core.hold(left).unwrap();
    write_all(&mut core, held, 0, &[1; 50_000]).unwrap();
    write_all(&mut core, left, 0, &[2; 50_000]).unwrap();
    core.unlink(ROOT, b"held", false, now()).unwrap();
    assert_eq!(core.link(ROOT, b"again", held, now()), Err(ENOENT), "its last name was the last");
    assert_eq!(read_all(&mut core, held).unwrap(), [1; 50_000]);
    core.release(held, now());
    assert_eq!(core.stat(held).map(|_| ()), Err(ESTALE));
    core.sync().unwrap();
    // The machine ends without a word.
    drop(core);
    let mut core = mounted(&disk);
    assert_eq!(core.stat_fs().unwrap().blocks_free, free.blocks_free);
    assert_eq!(core.stat_fs().unwrap().files_free, free.files_free);
    core.unmount().unwrap();
    check(&disk, KINDS[0]);
}

#[test]
fn a_disk_that_cannot_be_written_makes_the_file_system_read_only() {
    let disk = image(16 << 20, KINDS[0]);
    let mut core = mounted(&disk);
    let kept = core.create(ROOT, b"kept", file()).unwrap();
    write_all(&mut core, kept, 0, &[1; 9000]).unwrap();
    core.sync().unwrap();
    core.create(ROOT, b"lost", file()).unwrap();
    disk.is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(core.sync(), Err(EIO));
    assert_eq!(core.sync(), Err(EIO), "nobody is told later that all is well");
    assert_eq!(core.create(ROOT, b"more", file()), Err(EROFS));
    assert_eq!(read_all(&mut core, kept).unwrap(), [1; 9000]);
    assert_eq!(core.unmount(), Err(EIO));
    drop(core);
    disk.is_broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let mut core = mounted(&disk);
    assert_eq!(core.lookup(ROOT, b"lost"), Err(ENOENT));
    assert_eq!(read_all(&mut core, kept).unwrap(), [1; 9000]);
    core.unmount().unwrap();
    check(&disk, KINDS[0]);
}

#[test]
fn a_failed_operation_changes_nothing() {
    let disk = image(16 << 20, KINDS[0]);
    let mut core = mounted(&disk);
    core.create(ROOT, b"a", file()).unwrap();
    let below = core.create(ROOT, b"b", directory()).unwrap();
    core.create(below, b"c", file()).unwrap();
    assert_eq!(core.rename((ROOT, b"a"), (ROOT, b"b"), 0, now()), Err(EISDIR));
    assert_eq!(core.rename((ROOT, b"b"), (ROOT, b"a"), 0, now()), Err(ENOTDIR));
    assert_eq!(core.rename((ROOT, b"a"), (below, b"c"), 1, now()), Err(EEXIST));
    core.rename((ROOT, b"a"), (below, b"c"), 2, now()).unwrap();
    core.rename((ROOT, b"b"), (ROOT, b"d"), 0, now()).unwrap();
    assert_eq!(core.unlink(ROOT, b"d", false, now()), Err(EISDIR));
    assert_eq!(core.unlink(ROOT, b"a", true, now()), Err(ENOTDIR));
    core.set_attributes(
        below,
        &SetAttr { uid: Some(70_000), permissions: Some(0o1777), ..SetAttr::default() },
        now(),
    )
    .unwrap();
    let stat = core.stat(below).unwrap();
    assert_eq!((stat.uid, stat.permissions, stat.links), (70_000, 0o1777, 2));
    core.unmount().unwrap();
    check(&disk, KINDS[0]);
}

#[test]
fn what_is_no_ext4_is_refused_with_a_sentence() {
    let refusal =
        |disk: &Arc<MemoryDisk>| Core::mount(disk.clone(), Options::default(), now()).err().unwrap();
    assert_eq!(refusal(&MemoryDisk::new(std::vec![0; 1 << 20])).1, EINVAL);
    assert_eq!(refusal(&image(16 << 20, &["-O", "inline_data"])).1, EINVAL);
    assert_eq!(refusal(&image(16 << 20, &["-O", "^has_journal"])).1, EROFS);
    let disk = image(16 << 20, KINDS[0]);
    disk.change(1024 + 0x20, |byte| *byte ^= 1);
    assert_eq!(refusal(&disk).1, EUCLEAN);
    let disk = image(16 << 20, &["-O", "quota"]);
    let mut core = mounted(&disk);
    assert_eq!(core.create(ROOT, b"new", file()), Err(EROFS), "an unknown feature that allows reading");
}
