// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same without the noise of a shared computer: QEMU counts instructions (`-icount shift=0`), the guest's clock advances
//! a nanosecond with each, and the programs' own processor time is the number of instructions they and the kernel took.

use super::{OFF, ON, table};
use crate::side::{Machine, build_kernels, output_of, qemu_with};
use crate::{Options, Result, Scratch, Side, client, statistics::Samples};

/// Redis requests of one run.
const REQUESTS: &str = "20000";
const SQL: &str = "create table t(id integer primary key, text text);\
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) insert into t select i, 'row ' || i from n;";

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&OFF, &ON])?;
    let scratch = Scratch::new("instructions")?;
    let path = qemu_with(&scratch, "-icount shift=0")?;
    let env = [("PATH", path.as_str())];
    let start = |set: [&str; 2]| {
        Machine::start_with(options, Side::Micro, &[&set[..], &["-m", "256M", "redis"]].concat(), &env)
    };
    let machines = [start(OFF)?, start(ON)?];
    let mut redis = vec![Samples::default(); 2];
    let mut sqlite = vec![Samples::default(); 2];
    for _ in 0..options.runs {
        for (machine, samples) in machines.iter().zip(&mut redis) {
            samples.add(requests(&machine.address()?)?);
        }
        for (set, samples) in [OFF, ON].into_iter().zip(&mut sqlite) {
            let words = [
                &["run", "--rm", "--machine", "microvm"][..],
                &set[..],
                &["--network", "none", "sqlite", "--", ":memory:", ".timer on", SQL],
            ];
            let text = output_of(options, &words.concat(), &env)?;
            samples.add(timed(&text).ok_or(format!("sqlite printed: {text}"))? * 1e3);
        }
    }
    table(
        &["off", "on, idle"],
        &[
            ("Redis SET, pipeline 16, each request".to_string(), "instructions", redis),
            ("SQLite, 60000 insertions in memory".to_string(), "million instructions", sqlite),
        ],
    );
    Ok(())
}

/// Instructions of Redis' threads for each request.
fn requests(address: &str) -> Result<f64> {
    let before = used(address)?;
    client::run(&[
        "redis-benchmark",
        "-h",
        address,
        "-c",
        "50",
        "-n",
        REQUESTS,
        "-P",
        "16",
        "-t",
        "set",
        "-q",
    ])?;
    let count: f64 = REQUESTS.parse().map_err(|e| format!("{REQUESTS}: {e}"))?;
    Ok((used(address)? - before) * 1e9 / count)
}

/// Seconds of processor time that Redis has used.
fn used(address: &str) -> Result<f64> {
    let text = client::run(&["redis-cli", "-h", address, "info", "cpu"])?;
    let part = |key: &str| {
        let value = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        value.and_then(|v| v.trim().parse::<f64>().ok()).ok_or(format!("redis-cli printed: {text}"))
    };
    Ok(part("used_cpu_sys")? + part("used_cpu_user")?)
}

/// The longest `Run Time` of SQLite's `.timer`: user and system time, in seconds.
fn timed(text: &str) -> Option<f64> {
    let seconds = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.strip_prefix("Run Time:")?.split_whitespace().collect();
        let after = |name: &str| -> Option<f64> {
            words.get(words.iter().position(|w| *w == name)? + 1)?.parse().ok()
        };
        Some(after("user")? + after("sys")?)
    });
    seconds.max_by(f64::total_cmp)
}
