// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figure 12. `redis-benchmark` with 50 connections over tap, SET and GET, unpipelined and by 16.

use crate::{
    MICRO_AND_LINUX, Options, Result, client, side::Machine, side::Side, statistics, statistics::Samples,
};

const PIPELINES: [(&str, &str); 2] = [("1", "50000"), ("16", "400000")];

pub fn run(options: &Options) -> Result<()> {
    let mut machines = Vec::new();
    for side in options.sides() {
        let words = ["-m", "256M", "redis"];
        machines.push((side, Machine::start(options, side, &words)?));
    }
    let mut samples: [[[Samples; 2]; 2]; 2] = Default::default();
    for _ in 0..options.runs {
        for (p, (pipeline, requests)) in PIPELINES.iter().enumerate() {
            for (side, machine) in &machines {
                for (test, rate) in measure(&machine.address()?, pipeline, requests, &[])? {
                    let t = usize::from(test == "GET");
                    samples[p][t][usize::from(*side == Side::Linux)].add(rate);
                }
            }
        }
    }
    statistics::head(&MICRO_AND_LINUX);
    for (p, (pipeline, _)) in PIPELINES.iter().enumerate() {
        for (t, test) in ["SET", "GET"].iter().enumerate() {
            statistics::row(&format!("{test}, pipeline {pipeline}"), "requests/s", &samples[p][t]);
        }
    }
    Ok(())
}

/// What `redis-benchmark` says of one kind of request.
pub struct Measured {
    pub test: String,
    /// Requests a second.
    pub rate: f64,
    /// Percentiles of their time, in milliseconds.
    pub p50: f64,
    pub p99: f64,
}

/// SET and GET a second of 50 connections, with further words for `redis-benchmark`.
pub fn measure(address: &str, pipeline: &str, requests: &str, more: &[&str]) -> Result<Vec<(String, f64)>> {
    let measured = benchmark(address, "50", pipeline, requests, more)?;
    Ok(measured.into_iter().map(|m| (m.test, m.rate)).collect())
}

/// SET and GET, with further words for `redis-benchmark`.
pub fn benchmark(
    address: &str,
    connections: &str,
    pipeline: &str,
    requests: &str,
    more: &[&str],
) -> Result<Vec<Measured>> {
    let words = [
        "redis-benchmark",
        "-h",
        address,
        "-c",
        connections,
        "-n",
        requests,
        "-P",
        pipeline,
        "-t",
        "set,get",
        "--csv",
    ];
    let text = client::run(&[&words, more].concat())?;
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
    let measured = |line: &str| {
        let row: Vec<_> = line.split(',').map(|f| f.trim_matches('"')).collect();
        let test = row.first().filter(|test| matches!(**test, "SET" | "GET"))?.to_string();
        Some(Measured {
            test,
            rate: row.get(1)?.parse().ok()?,
            p50: row.get(4)?.parse().ok()?,
            p99: row.get(6)?.parse().ok()?,
        })
    };
    let out: Vec<_> = text.lines().filter_map(measured).collect();
    if out.len() == 2 { Ok(out) } else { Err(format!("redis-benchmark printed: {text}")) }
}
