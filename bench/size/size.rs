// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 8 (image sizes): the kernel that is booted for Redis, without the program's files; and the
//! smallest that serves it.

use crate::{MICRO_AND_LINUX, Options, Result, side::Machine, side::Side, statistics, statistics::Samples};

/// Redis with all left out that it does not use.
const LEAN: [&str; 15] = [
    "--set",
    "overlay=off",
    "--set",
    "volumes=off",
    "--set",
    "sysv-ipc=off",
    "--set",
    "aio=off",
    "--set",
    "mqueue=off",
    "--set",
    "inotify=off",
    "--set",
    "packet=off",
    "redis",
];

pub fn run(options: &Options) -> Result<()> {
    let mut sizes = [Samples::default(), Samples::default()];
    let mut lean = [Samples::default(), Samples::default()];
    for side in options.sides() {
        let index = usize::from(side == Side::Linux);
        sizes[index].add(kilobytes(options, side, &["redis"])?);
        if side == Side::Micro {
            lean[index].add(kilobytes(options, side, &LEAN)?);
        }
    }
    statistics::head(&MICRO_AND_LINUX);
    statistics::row("kernel image", "kB", &sizes);
    statistics::row("the same, with what Redis does not use left out", "kB", &lean);
    Ok(())
}

/// Size of the kernel image of a machine that serves.
fn kilobytes(options: &Options, side: Side, words: &[&str]) -> Result<f64> {
    Ok(Machine::start(options, side, words)?.kernel_bytes()? as f64 / 1000.0)
}
