// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 13. `wrk` with 30 connections over tap for the catalogue's small page.

use crate::{
    MICRO_AND_LINUX, Options, Result, client, side::Machine, side::Side, statistics, statistics::Samples,
};

pub fn run(options: &Options) -> Result<()> {
    let mut machines = Vec::new();
    for side in options.sides() {
        machines.push((side, Machine::start(options, side, &["-m", "256M", "nginx"])?));
    }
    let mut rates = [Samples::default(), Samples::default()];
    for _ in 0..options.runs {
        for (side, machine) in &machines {
            rates[usize::from(*side == Side::Linux)].add(rate(&machine.address()?)?);
        }
    }
    statistics::head(&MICRO_AND_LINUX);
    statistics::row("30 connections, small page", "requests/s", &rates);
    Ok(())
}

/// Requests a second for the small page.
pub fn rate(address: &str) -> Result<f64> {
    let text = client::run(&["wrk", "-t", "1", "-c", "30", "-d", "10s", &format!("http://{address}/")])?;
    let rate = text.lines().find_map(|l| l.trim().strip_prefix("Requests/sec:"));
    rate.and_then(|r| r.trim().parse().ok()).ok_or(format!("wrk printed: {text}"))
}
