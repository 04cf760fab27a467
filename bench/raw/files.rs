// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 22. What one open of a file takes, of a thousand in the root directory, and one of a file that is not there:
//! by open(2) and the VFS, and through SHFS, in the same machine (`examples/raw/files.c`). On a virtual machine that is
//! instructions (`--accel icount`: a nanosecond is an instruction), on a process machine time.

use crate::side::{Side, patient};
use crate::{Options, Result, Scratch, statistics, statistics::Samples};

/// The paper's.
const FILES: usize = 1000;
/// Rounds of a thousand opens of each kind in a run.
const ROUNDS: [&str; 2] = ["3", "200"];

pub fn run(options: &Options) -> Result<()> {
    let scratch = Scratch::new("files")?;
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (program, image, folder) = (at("files"), at("image"), at("pages"));
    let source = options.root.join("examples/raw/files.c").display().to_string();
    patient(options, &["cc", "-O2", "-o", &program, &source])?;
    std::fs::create_dir(&folder).map_err(|e| format!("cannot make {folder}: {e}"))?;
    for n in 0..FILES {
        scratch.write(&format!("pages/page-{n}.html"), &format!("<p>{n}</p>\n"))?;
    }
    patient(options, &["shfs", "make", &image, &folder])?;
    let (drive, volume) = (format!("{image}:ro"), format!("{folder}:/files:ro"));
    statistics::head(&["VFS", "SHFS"]);
    let parts = [
        (Side::Micro, &["--accel", "icount"][..], "instructions", ROUNDS[0]),
        (Side::Process, &[][..], "ns", ROUNDS[1]),
    ];
    for (side, words, unit, rounds) in parts {
        let mut there = [Samples::default(), Samples::default()];
        let mut missing = [Samples::default(), Samples::default()];
        for _ in 0..options.runs {
            let first = ["run", "--rm", "--static", "--network", "none", "--drive", &drive, "-v", &volume];
            let last = [&program, "--", "/files", rounds];
            let said = patient(options, &[&first[..], &side.words(), words, &last].concat())?;
            let figure = |of: &str| {
                let line = said.lines().find_map(|line| line.strip_prefix(of)?.strip_suffix(" ns"));
                line.and_then(|text| text.parse().ok()).ok_or_else(|| format!("the program printed: {said}"))
            };
            there[0].add(figure("open(2): ")?);
            there[1].add(figure("SHFS: ")?);
            missing[0].add(figure("open(2) of no file: ")?);
            missing[1].add(figure("SHFS of no file: ")?);
        }
        statistics::row(&format!("an open, {} machine", side.name()), unit, &there);
        statistics::row(&format!("an open of no file, {} machine", side.name()), unit, &missing);
    }
    Ok(())
}
