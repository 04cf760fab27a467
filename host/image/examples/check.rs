// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints what a program needs of the kernel: `cargo run --example check -- REFERENCE [WORDS]`.

use unilith_image::{Cache, Catalogue, Quiet, Reference, Request, Result, check};

fn run() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let catalogue = Catalogue::open("apps");
    let reference = Reference::parse(&words.next().unwrap_or_default(), &catalogue)?;
    let mut request = Request::new(reference, catalogue);
    request.words = words.collect();
    let report = check(&request, &Cache::of_user()?, &Quiet)?;
    for need in &report.needs {
        println!(
            "{:4} {:24} {:?} {} ({})",
            need.number,
            need.name,
            need.status,
            need.note,
            need.callers.join(", ")
        );
    }
    println!(
        "{} calls in {}; computed in {:?}",
        report.needs.len(),
        report.files.join(", "),
        report.computed
    );
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
