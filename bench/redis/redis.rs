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

/// SET and GET a second, with further words for `redis-benchmark`.
pub fn measure(address: &str, pipeline: &str, requests: &str, more: &[&str]) -> Result<Vec<(String, f64)>> {
    let words = [
        "redis-benchmark",
        "-h",
        address,
        "-c",
        "50",
        "-n",
        requests,
        "-P",
        pipeline,
        "-t",
        "set,get",
        "--csv",
    ];
    let text = client::run(&[&words, more].concat())?;
    let mut out = Vec::new();
    for line in text.lines() {
        let mut fields = line.split(',').map(|f| f.trim_matches('"'));
        if let (Some(test @ ("SET" | "GET")), Some(Ok(rate))) = (fields.next(), fields.next().map(str::parse))
        {
            out.push((test.to_string(), rate));
        }
    }
    if out.len() == 2 { Ok(out) } else { Err(format!("redis-benchmark printed: {text}")) }
}
