// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints the system calls a program can make: `cargo run --release --example needs -- PROGRAM LIBRARIES…`.

use unilith_rewrite::{Object, needs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<(String, Vec<u8>)> = std::env::args()
        .skip(1)
        .map(|p| Ok((p.clone(), std::fs::read(p)?)))
        .collect::<std::io::Result<_>>()?;
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
    let objects: Vec<Object> = files.iter().map(|(p, bytes)| Object { name: name(p), bytes }).collect();
    let found = needs(&objects)?;
    for (number, from) in &found.calls {
        println!("{number}: {}", from.iter().cloned().collect::<Vec<_>>().join(", "));
    }
    println!("{} calls; computed numbers in {:?}", found.calls.len(), found.computed);
    Ok(())
}
