// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged files through the scanner and the analysis: any answer is right that is not a panic and is well formed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    fs,
    time::{Duration, Instant},
};
use unilith_rewrite::{Object, needs, scan};

/// Seconds to go on; `FUZZ_SECONDS=600 cargo test --release -p unilith-rewrite --test fuzz` for a long run.
fn duration() -> Duration {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

#[test]
fn damaged_files_give_well_formed_tables_or_errors() {
    let samples: Vec<Vec<u8>> =
        ["/bin/true", "/lib64/ld-linux-x86-64.so.2"].iter().filter_map(|p| fs::read(p).ok()).collect();
    if samples.is_empty() {
        eprintln!("skipped: neither /bin/true nor the dynamic linker on this machine");
        return;
    }
    // xorshift64* (Vigna): the same damage in every run.
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = |below: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    };
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < duration() {
        let mut bytes = samples[random(samples.len())].clone();
        for _ in 0..1 + random(12) {
            // File header and program headers, section headers at the end, or anywhere.
            let at = match random(3) {
                0 => random(1024),
                1 => bytes.len() - 1 - random(4096.min(bytes.len())).min(bytes.len() - 1),
                _ => random(bytes.len()),
            };
            bytes[at] = [random(256) as u8, 0, 0xff, 0x7f][random(4)];
        }
        if random(8) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        if let Ok(found) = scan(&bytes) {
            assert!(
                found.sites.is_empty() || api_sites::Sites::parse(&api_sites::encode(&found.sites)).is_some()
            );
            for site in &found.sites {
                let at = site.offset as usize + site.before as usize;
                assert_eq!(bytes[at..at + 2], [0x0f, 0x05]);
            }
        }
        // Every answer is as good as the next for a damaged file.
        let _ = needs(&[Object { name: "x".into(), bytes: &bytes }]);
        rounds += 1;
    }
    eprintln!("{rounds} files");
}
