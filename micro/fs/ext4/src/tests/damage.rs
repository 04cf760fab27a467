// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that somebody has damaged, by accident or on purpose: every answer is allowed but a panic and none at all.

use super::disk::{MemoryDisk, image};
use super::{directory, file, mounted, now, write_all};
use crate::{Core, Options, ROOT};
use api_fs::FileType;
use std::sync::Arc;
use std::vec::Vec;

/// Numbers that are different each time and the same for each seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

/// An image with something of everything, ended without a word, so that there is a journal to be replayed.
fn full_image(kind: &[&str]) -> Arc<MemoryDisk> {
    let disk = image(8 << 20, kind);
    let mut core = mounted(&disk);
    let holes = core.create(ROOT, b"holes", file()).unwrap();
    for i in 0..40 {
        write_all(&mut core, holes, i * 9000, &[i as u8; 100]).unwrap();
    }
    let many = core.create(ROOT, b"many", directory()).unwrap();
    for i in 0..150 {
        core.create(many, std::format!("the name of a file in a directory, {i}").as_bytes(), file()).unwrap();
    }
    core.symlink(many, b"link", &[b'l'; 100], file()).unwrap();
    core.sync().unwrap();
    let left = core.create_unnamed(ROOT, file(), true).unwrap();
    core.hold(left).unwrap();
    write_all(&mut core, left, 0, &[1; 20_000]).unwrap();
    core.sync().unwrap();
    MemoryDisk::new(disk.contents())
}

/// Reads and changes whatever there is, as far as it goes.
fn use_all(core: &mut Core, random: &mut Random) {
    let mut left = Vec::from([ROOT]);
    let mut seen = 0;
    // A damaged tree may have loops.
    while let Some(inode) = left.pop()
        && seen < 120
    {
        seen += 1;
        let mut from = 0;
        for _ in 0..40 {
            let Ok(entries) = core.list(inode, from, 10) else { break };
            let Some(last) = entries.last() else { break };
            assert!(last.next > from, "a listing goes on");
            from = last.next;
            for entry in entries {
                let Ok(child) = core.lookup(inode, &entry.name) else { continue };
                match core.stat(child).map(|stat| stat.kind) {
                    Ok(FileType::Directory) => left.push(child),
                    Ok(FileType::Symlink) => drop(core.read_link(child)),
                    Ok(FileType::Regular) => {
                        let mut frames = Vec::with_capacity(8);
                        let _ = core.read(child, random.next() % 400_000, &mut frames);
                        let _ =
                            core.seek_data(child, random.next() % 400_000, random.next().is_multiple_of(2));
                        let _ = match random.below(6) {
                            0 => core.write(child, random.next() % 400_000, &[3; 3000], now()).map(|_| ()),
                            1 => core.truncate(child, random.next() % 400_000, now()),
                            2 => core.unlink(inode, &entry.name, false, now()),
                            3 => core.allocate_range(child, 3, random.next() % 400_000, 20_000, now()),
                            4 => core.rename((inode, &entry.name), (ROOT, b"moved"), 0, now()),
                            _ => Ok(()),
                        };
                    }
                    _ => {}
                }
            }
        }
        let _ = core.create(inode, b"new", file());
        let _ = core.create(inode, b"new directory", directory());
    }
    let _ = core.stat_fs();
    let _ = core.sync();
    let _ = core.unmount();
}

fn damage(kind: &[&str], seeds: std::ops::Range<u64>) -> usize {
    let whole = full_image(kind).contents();
    // Places where there is something: most of a disk is empty.
    let used: Vec<usize> = (0..whole.len() / 16).filter(|i| whole[i * 16..i * 16 + 16] != [0; 16]).collect();
    let mut mounts = 0;
    for seed in seeds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut bytes = whole.clone();
        for _ in 0..=random.below(20) {
            let at = used[random.below(used.len())] * 16 + random.below(16);
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = 0xff,
                2 => bytes[at] = 0,
                _ => bytes[at] = random.next() as u8,
            }
        }
        let disk = MemoryDisk::new(bytes);
        if let Ok(mut core) = Core::mount(disk, Options::default(), now()) {
            mounts += 1;
            use_all(&mut core, &mut random);
        }
    }
    mounts
}

#[test]
fn a_damaged_disk_is_no_reason_to_panic_or_to_go_on_for_ever() {
    // Without checksums all of it comes to whoever reads it; with them, most is found first.
    let without = damage(&["-b", "1024", "-O", "^metadata_csum"], 0..300);
    assert!(without > 100, "{without}: most can be mounted");
    damage(&["-b", "1024"], 300..400);
    damage(&["-O", "^64bit,^metadata_csum"], 400..500);
}
