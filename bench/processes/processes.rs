// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What processes cost: the same static program in a process machine beside an ordinary process of this computer, and in the
//! micro kernel's virtual machine beside the Linux guest.

use crate::{
    Options, Result, Scratch, client, side,
    side::Side,
    statistics::{Samples, head, row},
};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Where each side's figures are; `None`: no machine.
const SIDES: [Option<Side>; 4] = [Some(Side::Process), None, Some(Side::Micro), Some(Side::Linux)];
const SHELL: &str = "/bin/dash";
const MEMORY: &str = "256M";

pub fn run(options: &Options) -> Result<()> {
    let scratch = Scratch::new("processes")?;
    let root = scratch.path();
    for file in shell()? {
        copy(&file, root)?;
    }
    for name in ["calls", "true"] {
        build(options, name, &root.join(name))?;
    }
    let image = format!("dir:{}", root.display());
    let words = ["-m", MEMORY, "--entrypoint", "/calls", &image, "--", "/true"];
    let path = |name: &str| root.join(name).display().to_string();
    let mut figures: BTreeMap<String, [Samples; 4]> = BTreeMap::new();
    for _ in 0..options.runs {
        for (column, side) in SIDES.into_iter().enumerate() {
            let text = match side {
                Some(Side::Linux) if options.micro_only => continue,
                Some(side) => side::output(options, side, &words)?,
                None => client::run_on(side::MACHINE_CPU, &[&path("calls"), &path("true")])?,
            };
            for line in text.lines() {
                let Some((name, value)) = line.split_once(' ') else { continue };
                let Ok(value) = value.trim().parse() else { continue };
                figures.entry(name.into()).or_default()[column].add(value);
            }
        }
    }
    for (first, names) in [(0, ["process", "native"]), (2, ["micro", "linux guest"])] {
        head(&names);
        figures.iter().for_each(|(name, sides)| row(name, "ns", &sides[first..first + 2]));
        println!();
    }
    Ok(())
}

/// The shell and its libraries, as ldd(1) lists them.
fn shell() -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(SHELL).output().map_err(|e| format!("cannot run ldd: {e}"))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    Ok([SHELL].into_iter().chain(words).map(String::from).collect())
}

/// Copies a file of this computer to the same place below `root`.
fn copy(file: &str, root: &Path) -> Result<()> {
    let to = root.join(file.trim_start_matches('/'));
    let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::copy(file, &to)).map(drop).map_err(|e| format!("{}: {e}", to.display()))
}

/// Builds a static program.
fn build(options: &Options, name: &str, program: &Path) -> Result<()> {
    let source = options.root.join("bench/processes").join(format!("{name}.c"));
    let status = Command::new("cc").args(["-O2", "-static", "-o"]).arg(program).arg(&source).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(_) => Err(format!("{} does not compile", source.display())),
        Err(e) => Err(format!("cannot run cc: {e}")),
    }
}
