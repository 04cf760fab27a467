// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a computer of its own is told when it starts: by the file that its firmware starts or its loader reads, by file systems labelled `cidata` and the files on them, by SMBIOS' tables, by the
//! memory map and modes of the screen of a BIOS, and by the server of a cloud.
#![no_main]

use bios::{drive, memory, vbe};
use efi::{Kernel, Packed};
use libfuzzer_sys::fuzz_target;
use metadata::http::{self, Answer};
use nocloud::{MAX_FILE, Media, fat, iso, smbios};
use pvh::{MapEntry, RAM};

/// Copies the sector `n` of the disk.
fn read(disk: &[u8], n: u64, to: &mut [u8]) -> bool {
    let start = usize::try_from(n).ok().and_then(|n| n.checked_mul(to.len()));
    let sector = start.and_then(|start| disk.get(start..start.checked_add(to.len())?));
    sector.map(|sector| to.copy_from_slice(sector)).is_some()
}

/// A memory map never has RAM where something else is, and what is taken is RAM.
fn firmware(bytes: &[u8]) {
    let mut told = memory::Memory::default();
    for entry in bytes.as_chunks::<{ memory::LONG_ENTRY }>().0 {
        told.add(entry, memory::ENTRY);
    }
    let mut map = [MapEntry { address: 0, size: 0, kind: 0, reserved: 0 }; memory::MAX_ENTRIES];
    let length = told.map(&mut map);
    let is_in = |entry: &MapEntry, at: u64| at >= entry.address && at - entry.address < entry.size;
    for ram in map[..length].iter().filter(|entry| entry.kind == RAM) {
        assert!(map[..length].iter().all(|other| other.kind == RAM || !is_in(other, ram.address)));
    }
    if let Some(taken) = told.take(4096) {
        assert!(
            map[..length].len() == map.len()
                || map[..length].iter().any(|entry| entry.kind == RAM && is_in(entry, taken))
        );
    }
    if let Some(info) = bytes.first_chunk() {
        vbe::modes(info);
    }
    if let Some(mode) = bytes.first_chunk() {
        vbe::framebuffer(mode, 0x200);
        vbe::framebuffer(mode, 0x300);
    }
    bytes.first_chunk().map(drive::block);
    if let Some((_, length)) = smbios::tables(bytes) {
        assert!(length <= smbios::MAX_TABLES);
    }
}

/// A damaged file has no kernel, or one whose segments are unpacked to as many bytes as they say or not at all.
fn file(bytes: &[u8]) {
    /// Of one segment; more is a matter of the computer's memory.
    const MAX: u64 = 1 << 20;
    let kernel = efi::section(bytes, efi::KERNEL).unwrap_or(bytes);
    for segment in Kernel::decode(kernel).iter().flat_map(|kernel| kernel.segments()) {
        if segment.memory <= MAX {
            let mut memory = vec![0xff; segment.memory as usize];
            let is_whole = segment.unpack(&mut memory);
            assert!(!is_whole || memory[segment.bytes.size()..].iter().all(|byte| *byte == 0));
        }
    }
    if let Some(root) = Packed::decode(bytes).filter(|root| root.size() as u64 <= MAX) {
        root.unpack(&mut vec![0; root.size()]);
    }
}

/// Of an answer that is whole nothing more is read, however it came.
fn answer(bytes: &[u8]) {
    let told = http::read(bytes, true);
    if let Ok(Answer::Body(body)) = told {
        assert!(body.len() <= metadata::MAX_BODY);
        metadata::token(body);
    }
    for length in (0..bytes.len()).step_by(7) {
        match http::read(&bytes[..length], false) {
            Ok(Answer::Part) => {}
            // What follows changes nothing.
            early => assert_eq!(early, told),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let mut memory = vec![[0; MAX_FILE]; 3];
    let [meta, network, user] = &mut memory[..] else { return };
    let mut media = Media { files: [meta, network, user], lengths: [0; 3] };
    match kind % 6 {
        0 => {
            // The descriptors of a CD are at its 16th sector.
            let behind = |n: u32| u64::from(n).wrapping_sub(16);
            iso::read_files(&mut media, &mut [0; iso::SECTOR], &mut |n, to| read(bytes, behind(n), to));
        }
        1 => {
            fat::read_files(&mut media, &mut [0; fat::SECTOR], &mut |n, to| read(bytes, n, to));
        }
        2 => {
            // The files themselves, one behind the other.
            for (n, piece) in bytes.chunks((bytes.len() / 3).max(1)).take(3).enumerate() {
                let length = piece.len().min(MAX_FILE);
                media.files[n][..length].copy_from_slice(&piece[..length]);
                media.lengths[n] = piece.len();
            }
        }
        3 => return answer(bytes),
        4 => return file(bytes),
        _ => return firmware(bytes),
    }
    let serial = smbios::system(bytes).unwrap_or_default().serial;
    let mut line = vec![0; 16 << 10];
    if let Some(length) = media.add_to("log=info -- /bin/x", serial, &mut line, &mut |_| {}) {
        let line = std::str::from_utf8(&line[..length]).expect("words are text");
        assert!(line.ends_with("-- /bin/x") && !line.contains(['\n', '\0']));
    }
});
