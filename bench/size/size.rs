// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 8 (image sizes): the kernel that is booted for Redis, without the program's files.

use crate::{Options, Result, side, statistics, statistics::Samples};

pub fn run(options: &Options) -> Result<()> {
    let mut sizes = [Samples::default(), Samples::default()];
    for side in options.sides() {
        let bytes = side::kernel_bytes(options, side)?;
        sizes[usize::from(side == side::Side::Linux)].add(bytes as f64 / 1000.0);
    }
    statistics::head();
    statistics::row("kernel image", "kB", &sizes[0], &sizes[1]);
    Ok(())
}
