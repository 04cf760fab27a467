// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of the hash file system, with sums that fit: what a volume says of its files lies within the image.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shfs::{BLOCK, Superblock, Volume};

fuzz_target!(|bytes: &[u8]| {
    let available = bytes.len() as u64;
    let Ok(superblock) = Superblock::parse(bytes, available) else { return };
    let Some(table) = bytes.get(BLOCK..BLOCK + superblock.table_bytes()) else { return };
    let Ok(volume) = Volume::new(superblock, table.to_vec()) else { return };
    let mut count = 0;
    for file in volume.files() {
        assert_eq!(volume.find(file.name), Some(file));
        count += 1;
    }
    assert_eq!(count, volume.superblock().files);
});
