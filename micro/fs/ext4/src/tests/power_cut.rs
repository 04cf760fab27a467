// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power goes at every point: what the disk has then is every flush that it completed, and any part of the writes since, in any
//! order, torn at sectors of 512 bytes (for e2fsck, which has no answer to a torn superblock, at 1,024). The tree is that of the last sync or of the one that was under way, and nothing between.

use super::disk::{Event, MemoryDisk, check, image};
use super::model::{Model, Tree, tree_of};
use super::operations::operations;
use super::{KINDS, mounted};
use proptest::prelude::*;
use std::string::String;
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
}

/// The disk as it is when the power goes before event `cut`: writes since the last flush are there or not, by pieces of `unit` bytes.
fn cut_at(before: &[u8], events: &[Event], cut: usize, unit: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = before.to_vec();
    let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
    let mut late = Vec::new();
    for (n, event) in events[..cut].iter().enumerate() {
        let Event::Write(offset, data) = event else { continue };
        for (sector, part) in data.chunks(unit).enumerate() {
            let at = *offset as usize + sector * unit;
            if n < flushed {
                bytes[at..at + unit].copy_from_slice(part);
            } else {
                late.push((at, part));
            }
        }
    }
    // How many reach the disk, from none to all, and in which order.
    let share = random.next() % 101;
    let whole = random.next().is_multiple_of(3);
    for i in (1..late.len()).rev() {
        late.swap(i, random.next() as usize % (i + 1));
    }
    for (at, part) in late {
        if whole || random.next() % 100 < share {
            bytes[at..at + unit].copy_from_slice(part);
        }
    }
    bytes
}

/// Names, and the contents of files that are the same in both trees.
fn is_as(found: &Tree, wanted: &Tree, other: &Tree) -> bool {
    found.keys().eq(wanted.keys())
        && wanted.iter().all(|(path, contents)| {
            let found = &found[path];
            let may_be_mixed = other.get(path).is_none_or(|other| other != contents);
            let length = |of: &Option<Vec<u8>>| of.as_ref().map(Vec::len);
            length(found) == length(contents) && (may_be_mixed || found == contents)
        })
}

/// e2fsck(8) replays the journal, and has nothing to mend but what it does for every disk that was not unmounted.
fn check_by_e2fsck(bytes: Vec<u8>) {
    let disk = MemoryDisk::new(bytes);
    let (code, text) = disk.run("e2fsck", &["-fp"]);
    let expected = |line: &str| {
        let known = [
            "recovering journal",
            "Clearing orphaned inode",
            "Truncating orphaned inode",
            "files (",
            "non-contiguous",
            // A tree that has more levels than it needs now is in order: Linux leaves them so as well.
            "could be shorter.  IGNORED",
        ];
        line.trim().is_empty() || known.iter().any(|known| line.contains(known))
    };
    let unexpected: Vec<String> = text.lines().filter(|line| !expected(line)).map(String::from).collect();
    assert!(code <= 1 && unexpected.is_empty(), "{code}: {text}");
    check(&disk, &[]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_synced_is_there_wherever_the_power_goes(
        list in operations(160), kind in 0..4usize, seed in 1..u64::MAX,
    ) {
        let disk = image(8 << 20, KINDS[kind]);
        let before = disk.contents();
        disk.record();
        let mut core = mounted(&disk);
        let mut model = Model::new();
        // The tree of each sync, with the events that were done when it returned.
        let mut synced = std::vec![(model.tree(), disk.event_count())];
        for (n, operation) in list.into_iter().enumerate() {
            model.apply(&mut core, operation);
            if n % 20 == 19 {
                core.sync().unwrap();
                synced.push((model.tree(), disk.event_count()));
            }
        }
        core.sync().unwrap();
        synced.push((model.tree(), disk.event_count()));
        core.unmount().unwrap();
        let events = disk.events.lock().unwrap().clone().unwrap();
        let mut random = Random(seed);
        let step = (events.len() / 60).max(1);
        for cut in (0..=events.len()).step_by(step) {
            let unit = if random.next().is_multiple_of(2) { 512 } else { 1024 };
            let bytes = cut_at(&before, &events, cut, unit, &mut random);
            let last = synced.iter().rposition(|(_, count)| *count <= cut).unwrap_or(0);
            let (old, new) = (&synced[last].0, &synced[(last + 1).min(synced.len() - 1)].0);
            let after: Arc<MemoryDisk> = MemoryDisk::new(bytes.clone());
            let mut core = mounted(&after);
            let found = tree_of(&mut core);
            prop_assert!(
                is_as(&found, old, new) || is_as(&found, new, old),
                "cut {} of {}: {:?}\nis neither {:?}\nnor {:?}",
                cut, events.len(), found.keys(), old.keys(), new.keys()
            );
            core.unmount().unwrap();
            check(&after, KINDS[kind]);
            if unit == 1024 {
                check_by_e2fsck(bytes);
            }
        }
    }
}
