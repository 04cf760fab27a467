// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 11 (least memory). The least memory Redis starts and answers in, by halving the interval,
//! and the resident memory of QEMU with 256 MiB.

use crate::{MICRO_AND_LINUX, Options, Result, side::Machine, side::Side, statistics, statistics::Samples};

/// The answer is exact to this many MiB.
const STEP: u32 = 2;

pub fn run(options: &Options) -> Result<()> {
    let mut least = [Samples::default(), Samples::default()];
    let mut resident = [Samples::default(), Samples::default()];
    for side in options.sides() {
        let index = usize::from(side == Side::Linux);
        least[index].add(f64::from(least_memory(options, side)?));
        for _ in 0..options.runs {
            let machine = Machine::start(options, side, &["-m", "256M", "redis"])?;
            resident[index].add(machine.resident_mib()?);
        }
    }
    statistics::head(&MICRO_AND_LINUX);
    statistics::row("least memory Redis answers in", "MiB", &least);
    statistics::row("QEMU's resident memory with -m 256M", "MiB", &resident);
    Ok(())
}

fn least_memory(options: &Options, side: Side) -> Result<u32> {
    let (mut fails, mut works) = (0, 256);
    let answers = |mib: u32| Machine::start(options, side, &["-m", &format!("{mib}M"), "redis"]).is_ok();
    if !answers(works) {
        return Err(format!("Redis does not start in {works} MiB"));
    }
    while works - fails > STEP {
        let middle = (fails + works) / 2;
        if answers(middle) {
            works = middle;
        } else {
            fails = middle;
        }
    }
    Ok(works)
}
