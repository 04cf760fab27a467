// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: UKL (EuroSys '23) figures 3 and 4, tables 2, 4 and 6. Each level against `linux` from the same source and
//! configuration: small calls and page faults, in instructions of the machine and in time; Redis over tap.

use crate::{
    Options, Result, Scratch, programs, redis, side, side::Machine, side::Side, statistics::Samples,
};
use std::collections::BTreeMap;

/// Values of `--ukl`; the first is ordinary Linux.
const LEVELS: [&str; 6] =
    ["", "cpl0", "cpl0,byp", "cpl0,byp,ret", "cpl0,byp,call", "cpl0,byp,call,ret,shortcut"];

/// What the papers' figures and tables have instead, as parts of Linux's time.
const PAPER: [(&str, &str); 13] = [
    ("getppid-0", "0.17 (fig. 3, byp)"),
    ("read-1", "0.51 (fig. 3, byp)"),
    ("write-1", "0.60 (fig. 3, byp)"),
    ("send-1", "0.63 (fig. 3, byp)"),
    ("recv-1", "0.63 (fig. 3, byp)"),
    ("read-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("write-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("send-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("recv-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("redis-get", "0.87 (table 7, shortcut)"),
    ("fault-1", "0.92 (table 2, ret)"),
    ("fault-5", "0.90 (table 2, ret)"),
    ("fault-10", "0.89 (table 2, ret)"),
];

/// Redis with its client in one machine.
const PROJECT: &str = r#"
from = "debian:redis-server"
program = "/usr/bin/request"
files = { "/usr/bin/request" = "request" }
"#;

/// How often a machine is started again whose host was too busy for it to find a good clock.
const PATIENCE: usize = 5;

type Table = BTreeMap<(usize, String), [Samples; LEVELS.len()]>;

pub fn run(options: &Options) -> Result<()> {
    let scratch = Scratch::new("ukl")?;
    let folder = scratch.path().to_string_lossy().into_owned();
    let program = format!("{folder}/calls");
    programs::build(options, "ukl/calls.c", program.as_ref())?;
    programs::build(options, "ukl/request.c", &scratch.path().join("request"))?;
    std::fs::write(scratch.path().join("unilith.toml"), PROJECT).map_err(|e| format!("{folder}: {e}"))?;
    println!("Instructions of the machine (QEMU -icount) for one call; in bold the part of `linux`.\n");
    // The count is the same each time but for what the timer interrupts, so two runs tell its spread.
    let runs = options.runs.min(2);
    print(&calls(options, runs, &["--accel", "icount", &program])?);
    println!(
        "\nInstructions for one request of Redis over the loopback device, those of server and client.\n"
    );
    print(&calls(options, runs, &["--accel", "icount", "--network", "none", &folder])?);
    println!("\nNanoseconds for one call.\n");
    print(&calls(options, options.runs, &[&program, "4000"])?);
    println!(
        "\nRequests a second of Redis over tap, 50 connections (the paper: 100,000 requests by 16, tables 4 and 5:"
    );
    println!(
        "1.06 to 1.07 with shortcut; table 6, one by one from 300 connections: 1.12 without it, 1.26 with it).\n"
    );
    print(&requests(options)?);
    Ok(())
}

fn calls(options: &Options, runs: usize, words: &[&str]) -> Result<Table> {
    let mut table = Table::new();
    for _ in 0..runs {
        for (at, level) in LEVELS.iter().enumerate() {
            for (row, (name, value)) in measure(options, level, words)?.into_iter().enumerate() {
                table.entry((row, name)).or_default()[at].add(value);
            }
        }
    }
    Ok(table)
}

fn measure(options: &Options, level: &str, words: &[&str]) -> Result<Vec<(String, f64)>> {
    let words = [&level_words(level), words].concat();
    for _ in 0..PATIENCE {
        let text = side::output(options, Side::Linux, &words)?;
        if text.contains("jiffies") {
            continue;
        }
        let parse =
            |line: &str| Some((line.split_once(' ')?.0.into(), line.split_once(' ')?.1.parse().ok()?));
        let figures: Vec<_> = text.lines().filter_map(parse).collect();
        return if figures.is_empty() { Err(format!("the program printed: {text}")) } else { Ok(figures) };
    }
    Err("the machine finds no clock better than its timer's ticks: the host is too busy to measure".into())
}

fn requests(options: &Options) -> Result<Table> {
    let mut table = Table::new();
    for _ in 0..options.runs {
        for (at, level) in LEVELS.iter().enumerate() {
            let mut words = level_words(level);
            words.extend(["-m", "256M", "redis"]);
            let machine = Machine::start(options, Side::Linux, &words)?;
            for (row, (pipeline, requests)) in [("1", "20000"), ("16", "100000")].into_iter().enumerate() {
                for (test, rate) in redis::measure(&machine.address()?, pipeline, requests, &[])? {
                    let row = row * 2 + usize::from(test == "GET");
                    let name = format!("{test}, pipeline {pipeline}");
                    table.entry((row, name)).or_default()[at].add(rate);
                }
            }
        }
    }
    Ok(table)
}

fn level_words(level: &str) -> Vec<&str> {
    if level.is_empty() { Vec::new() } else { vec!["--ukl", level] }
}

fn print(table: &Table) {
    let levels: Vec<_> = LEVELS.iter().map(|l| if l.is_empty() { "linux" } else { l }).collect();
    println!("| figure | {} | paper |", levels.join(" | "));
    println!("|{}", " --- |".repeat(LEVELS.len() + 2));
    for ((_, name), samples) in table {
        let linux = samples[0].median();
        let cells: Vec<_> = samples
            .iter()
            .enumerate()
            .map(|(at, s)| match (s.median(), linux) {
                (Some(here), Some(linux)) if at > 0 => format!("{} **{:.2}**", s.brief(), here / linux),
                _ => s.brief(),
            })
            .collect();
        let paper = PAPER.iter().find(|(known, _)| known == name).map_or("–", |(_, figure)| figure);
        println!("| {name} | {} | {paper} |", cells.join(" | "));
    }
}
