// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments that are a small program of their own, run on both sides: it prints `name nanoseconds` lines.

use crate::{MICRO_AND_LINUX, Options, Result, Scratch, side, side::Side, statistics, statistics::Samples};
use std::collections::BTreeMap;
use std::process::Command;

pub fn system_calls(options: &Options) -> Result<()> {
    compare(options, "syscall/null.c")
}

pub fn faults(options: &Options) -> Result<()> {
    compare(options, "fault/fault.c")
}

fn compare(options: &Options, source: &str) -> Result<()> {
    let scratch = Scratch::new("program")?;
    let program = scratch.path().join("program");
    build(options, source, &program)?;
    measure(options, &program.to_string_lossy())
}

/// Builds a program. Dynamic, as programs from packages are: their system calls are libc's.
pub fn build(options: &Options, source: &str, program: &std::path::Path) -> Result<()> {
    let source = options.root.join("bench").join(source);
    let status = Command::new("cc").args(["-O2", "-o"]).arg(program).arg(&source).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(_) => Err(format!("{} does not compile", source.display())),
        Err(e) => Err(format!("cannot run cc: {e}")),
    }
}

fn measure(options: &Options, program: &str) -> Result<()> {
    let mut figures: BTreeMap<String, [Samples; 2]> = BTreeMap::new();
    for _ in 0..options.runs {
        for side in options.sides() {
            for line in side::output(options, side, &[program])?.lines() {
                let Some((name, value)) = line.split_once(' ') else { continue };
                let Ok(value) = value.trim().parse() else { continue };
                figures.entry(name.into()).or_default()[usize::from(side == Side::Linux)].add(value);
            }
        }
    }
    statistics::head(&MICRO_AND_LINUX);
    for (name, sides) in &figures {
        statistics::row(name, "ns", sides);
    }
    Ok(())
}
