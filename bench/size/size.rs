// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 8 (image sizes): the kernel that is booted for Redis, without the program's files.

use crate::{MICRO_AND_LINUX, Options, Result, side, statistics, statistics::Samples};

pub fn run(options: &Options) -> Result<()> {
    let mut sizes = [Samples::default(), Samples::default()];
    for side in options.sides() {
        let bytes = side::kernel_bytes(options, side)?;
        sizes[usize::from(side == side::Side::Linux)].add(bytes as f64 / 1000.0);
    }
    statistics::head(&MICRO_AND_LINUX);
    statistics::row("kernel image", "kB", &sizes);
    Ok(())
}
