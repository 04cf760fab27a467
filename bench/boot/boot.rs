// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 10 and 11 (boot times). QEMU's start to the moment Redis listens, and the kernel's own part:
//! its first instruction to the program's.

use crate::{MICRO_AND_LINUX, Options, Result, side::Machine, side::Side, statistics, statistics::Samples};

pub fn run(options: &Options) -> Result<()> {
    let mut ready = [Samples::default(), Samples::default()];
    let mut kernel = [Samples::default(), Samples::default()];
    for _ in 0..options.runs {
        for side in options.sides() {
            let machine = Machine::start(options, side, &["redis"])?;
            let index = usize::from(side == Side::Linux);
            ready[index].add(machine.ready_ms().ok_or("inspect has no ready_in_ms")?);
            if let Some(ms) = machine.kernel_ms() {
                kernel[index].add(ms);
            }
        }
    }
    statistics::head(&MICRO_AND_LINUX);
    statistics::row("QEMU start to Redis listening", "ms", &ready);
    statistics::row("kernel entry to the program", "ms", &kernel);
    Ok(())
}
