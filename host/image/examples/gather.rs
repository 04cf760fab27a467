// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gathers one reference and prints what came of it: `cargo run --example gather -- debian:redis-server [WORDS]`.
//! Catalogue entries are looked for in `./apps`.

use std::process::ExitCode;
use unilith_image::{Cache, Catalogue, Progress, Reference, Request, Result, gather};

struct Lines;

impl Progress for Lines {
    fn step(&self, text: &str) {
        eprintln!("{text}");
    }
    fn advance(&self, _: u64, _: u64) {}
}

fn run() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let catalogue = Catalogue::open("apps");
    let reference = Reference::parse(&words.next().unwrap_or_default(), &catalogue)?;
    let mut request = Request::new(reference, catalogue);
    request.offline = std::env::var_os("OFFLINE").is_some();
    request.words = words.collect();
    let image = gather(&request, &Cache::of_user()?, &Lines)?;
    println!("{}\n{} bytes\n{:#?}", image.root.display(), image.size, image.config);
    println!("programs: {}", image.programs.join(" "));
    image.warnings.iter().for_each(|w| println!("warning: {w}"));
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
