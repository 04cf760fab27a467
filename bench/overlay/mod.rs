// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: uIO figures 4, 6, 7, 8 and 9. What the overlay costs a machine that has it: nothing asked of it, and commands
//! every second; how quick the line is against a channel that only echoes; and how quick files of the host are.

pub mod busiest;
pub mod files;
pub mod instructions;
pub mod line;
pub mod load;
pub mod loading;

use crate::side::{self, Machine};
use crate::{Options, Result, Side, statistics, statistics::Samples};

/// The kernel that has it and the one that has not; both are of the same sources.
pub const OFF: [&str; 2] = ["--set", "overlay=off"];
const ON: [&str; 2] = ["--set", "overlay=on"];
/// The line, its commands and files.
const SMALL: [&str; 4] = ["--set", "programs=off", "--set", "trace=off"];

pub fn run(options: &Options) -> Result<()> {
    load::run(options)?;
    println!();
    instructions::run(options)?;
    println!();
    line::run(options)?;
    println!();
    loading::run(options)?;
    println!();
    size(options)?;
    println!();
    files::run(options)
}

/// Bytes of the image, and memory that programs do not get.
pub fn size(options: &Options) -> Result<()> {
    side::build_kernels(options, &[&OFF, &ON, &SMALL])?;
    let mut image: [Samples; 2] = Default::default();
    let mut small: [Samples; 2] = Default::default();
    let mut guest: [Samples; 2] = Default::default();
    let mut host: [Samples; 2] = Default::default();
    for run in 0..options.runs {
        for (i, set) in [OFF, ON].into_iter().enumerate() {
            let words =
                [&set[..], &["--network", "none", "-m", "64M", "busybox", "cat", "/proc/meminfo"]].concat();
            let text = side::output(options, Side::Micro, &words)?;
            let free = text.lines().find_map(|l| l.strip_prefix("MemFree:"));
            let free: Option<f64> = free.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
            guest[i].add(free.ok_or("no MemFree in /proc/meminfo")?);
            let machine =
                Machine::start(options, Side::Micro, &[&set[..], &["-m", "64M", "redis"]].concat())?;
            host[i].add(machine.resident_mib()? * 1024.0);
            if run == 0 {
                image[i].add(machine.kernel_bytes()? as f64 / 1000.0);
            }
        }
    }
    let words = [&SMALL[..], &["-m", "64M", "redis"]].concat();
    small[0] = image[0].clone();
    small[1].add(Machine::start(options, Side::Micro, &words)?.kernel_bytes()? as f64 / 1000.0);
    let difference = |samples: &[Samples; 2]| {
        samples[0].median().zip(samples[1].median()).map_or(0.0, |(off, on)| on - off)
    };
    println!("| figure | unit | off | on | growth |");
    println!("| --- | --- | --- | --- | --- |");
    for (figure, unit, samples) in [
        ("kernel image", "kB", &image),
        ("the same without programs and tracing", "kB", &small),
        ("memory that is free for programs, of 64 MiB", "KiB", &guest),
        ("QEMU's resident memory with Redis", "KiB", &host),
    ] {
        println!(
            "| {figure} | {unit} | {} | {} | {:.0} |",
            samples[0].show(),
            samples[1].show(),
            difference(samples)
        );
    }
    Ok(())
}

/// A table of several sides, the first of which the others are compared to.
fn table(sides: &[&str], rows: &[(String, &str, Vec<Samples>)]) {
    println!("| figure | unit | {} |", sides.join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(sides.len()));
    for (figure, unit, samples) in rows {
        print!("| {figure} | {unit} |");
        for side in samples {
            print!(" {} |", statistics::against(side, &samples[0]));
        }
        println!();
    }
}
