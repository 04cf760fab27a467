// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints what is found in each file: `cargo run --release --example scan -- /usr/bin/FILE…`.

use std::time::Instant;

fn main() {
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let start = Instant::now();
        match unilith_rewrite::scan(&bytes) {
            Err(error) => println!("{path}: {error}"),
            Ok(scan) => {
                let kept = scan.sites.iter().filter(|s| s.before >= 5).count();
                let numbered = scan.sites.iter().filter(|s| s.number != api_sites::NUMBER_UNKNOWN).count();
                println!(
                    "{path}: {} sites ({kept} keep the syscall, {numbered} numbered), {} missed, {} not code, {:?}",
                    scan.sites.len(),
                    scan.missed.len(),
                    scan.not_code,
                    start.elapsed()
                );
                scan.missed.iter().for_each(|m| println!("    {:#x} {:?} {}", m.address, m.number, m.reason));
            }
        }
    }
}
