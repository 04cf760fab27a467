// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Papers: UKL (EuroSys '23), figures 3 and 4 and tables 2 to 8; HotOS '19, figure 1. Each level against `linux` from the same
//! source and configuration, in the same run and in turns.
//!
//! What is counted in instructions of the machine (QEMU's `-icount`) other work on this computer does not disturb; times and
//! rates want it for themselves. A part that fails says so with its level, and the other parts follow.

pub mod calls;
pub mod disk;
pub mod network;

use crate::{Experiment, Options, Result, Scratch, side, statistics::Samples};
use std::path::Path;

/// A value of `--ukl`; none is ordinary Linux.
type Level = &'static str;

/// Levels of Debian's unmodified programs; the first is what the others are measured against.
const UNMODIFIED: [Level; 6] =
    ["", "cpl0", "cpl0,byp", "cpl0,byp,ret", "cpl0,byp,call", "cpl0,byp,call,ret,shortcut"];
/// Levels of programs that are linked into Linux, as the papers' are.
const LINKED: [Level; 3] = ["base", "base,byp", "base,byp,shortcut"];
/// What servers and disks are measured at; the last for what there is a recipe for.
const SERVERS: [Level; 5] = ["", "cpl0", "cpl0,byp", "cpl0,byp,call,shortcut", "base,byp,shortcut"];

/// What the papers' figures and tables have instead, as parts of Linux's.
const PAPER: [(&str, &str); 43] = [
    ("getppid-0", "0.17 (fig. 3, byp)"),
    ("read-1", "0.51 (fig. 3, byp)"),
    ("write-1", "0.60 (fig. 3, byp)"),
    ("send-1", "0.63 (fig. 3, byp)"),
    ("recv-1", "0.63 (fig. 3, byp)"),
    ("read-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("write-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("send-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("recv-8192", "0.78 to 0.89 (fig. 4, byp)"),
    ("fault-1", "0.92 (table 2, ret)"),
    ("fault-2", "0.91 (table 2, ret)"),
    ("fault-3", "0.92 (table 2, ret)"),
    ("fault-4", "0.90 (table 2, ret)"),
    ("fault-5", "0.90 (table 2, ret)"),
    ("fault-6", "0.88 (table 2, ret)"),
    ("fault-7", "0.89 (table 2, ret)"),
    ("fault-8", "0.88 (table 2, ret)"),
    ("fault-9", "0.89 (table 2, ret)"),
    ("fault-10", "0.89 (table 2, ret)"),
    ("redis-set", "1.01 base, 1.00 byp, 0.87 shortcut (table 7)"),
    ("redis-get", "1.01 base, 1.00 byp, 0.87 shortcut (table 7)"),
    ("SET, 30 by 16, requests/s", "1.00 byp, 1.05 shortcut (table 4)"),
    ("GET, 30 by 16, requests/s", "1.00 byp, 1.07 shortcut (table 4)"),
    ("SET, 300, requests/s", "1.02 base, 1.12 byp, 1.26 shortcut (table 6)"),
    ("GET, 300, requests/s", "1.02 base, 1.12 byp, 1.26 shortcut (table 6)"),
    ("SET, 300, p99, ms", "1.00 base, 0.89 byp, 0.78 shortcut (table 6)"),
    ("GET, 300, p99, ms", "1.00 base, 0.89 byp, 0.78 shortcut (table 6)"),
    ("4 x 1, p99, ms", "1.00 (table 8, shortcut)"),
    ("4 x 2, p99, ms", "0.94 (table 8, shortcut)"),
    ("4 x 3, p99, ms", "0.89 (table 8, shortcut)"),
    ("4 x 4, p99, ms", "0.90 (table 8, shortcut)"),
    ("4 x 5, p99, ms", "0.93 (table 8, shortcut)"),
    ("4 x 6, p99, ms", "0.91 (table 8, shortcut)"),
    ("4 x 7, p99, ms", "0.90 (table 8, shortcut)"),
    ("4 x 8, p99, ms", "0.90 (table 8, shortcut)"),
    ("4 x 9, p99, ms", "0.89 (table 8, shortcut)"),
    ("4 x 10, p99, ms", "0.91 (table 8, shortcut)"),
    ("echo, mean, ms", "0.46 (HotOS fig. 1, base)"),
    ("echo, p99, ms", "0.59 (HotOS fig. 1, base)"),
    ("reads/s", "1.36 (table 3, byp,ret)"),
    ("writes/s", "1.36 (table 3, byp,ret)"),
    ("read, mean, us", "0.73 (table 3, byp,ret)"),
    ("write, mean, us", "0.74 (table 3, byp,ret)"),
];

const PARTS: [(&str, Experiment); 7] = [
    ("ukl-calls", calls::in_instructions),
    ("ukl-request", calls::request),
    ("ukl-time", calls::in_time),
    ("ukl-redis", network::redis),
    ("ukl-memcached", network::memcached),
    ("ukl-echo", network::echo),
    ("ukl-fio", disk::run),
];

/// All parts; one that fails does not keep the others from being measured.
pub fn run(options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for (name, part) in PARTS {
        println!("### {name}\n");
        if let Err(e) = part(options) {
            println!("Not measured: {e}\n");
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", "))) }
}

/// A directory for a part's files, once both kernels are there.
fn prepare(options: &Options, part: &str) -> Result<Scratch> {
    for level in ["", "cpl0"] {
        side::patient(options, &["linux", "build", "--ukl", level])?;
    }
    Scratch::new(part)
}

fn level_words(level: Level) -> Vec<&'static str> {
    if level.is_empty() { Vec::new() } else { vec!["--ukl", level] }
}

fn is_linked(level: Level) -> bool {
    LINKED.contains(&level)
}

fn name_of(level: Level) -> &'static str {
    if level.is_empty() { "linux" } else { level }
}

/// Links a program of `bench/` into Linux, with further words for the compiler.
fn link(options: &Options, source: &str, program: &Path, more: &[&str]) -> Result<()> {
    let source = options.root.join("bench").join(source).display().to_string();
    let program = program.display().to_string();
    let words = [&["linux", "cc"][..], more, &["-O2", "-o", &program, &source]].concat();
    side::patient(options, &words).map(drop)
}

/// Builds the linked form of a program of the catalogue, or of a project, when it is not in the cache.
fn build_linked(options: &Options, program: &str) -> Result<()> {
    let words = [
        "run",
        "--rm",
        "--machine",
        "microvm",
        "--kernel",
        "linux",
        "--ukl",
        "base",
        program,
        "--",
        "--version",
    ];
    side::patient(options, &words).map(drop)
}

/// Figures in the order in which they came, each on all levels.
struct Table {
    levels: Vec<Level>,
    rows: Vec<(String, Vec<Samples>)>,
}

impl Table {
    fn new(levels: &[Level]) -> Table {
        Table { levels: levels.to_vec(), rows: Vec::new() }
    }

    fn add(&mut self, name: &str, level: Level, value: f64) {
        let Some(column) = self.levels.iter().position(|l| *l == level) else { return };
        let row = self.rows.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.rows.push((name.into(), vec![Samples::default(); self.levels.len()]));
            self.rows.len() - 1
        });
        self.rows[row].1[column].add(value);
    }

    fn print(&self) {
        let levels: Vec<_> = self.levels.iter().map(|l| name_of(l)).collect();
        println!("| figure | {} | paper |", levels.join(" | "));
        println!("|{}", " --- |".repeat(levels.len() + 2));
        for (name, samples) in &self.rows {
            let linux = samples[0].median();
            let cell = |(at, s): (usize, &Samples)| match (s.median(), linux) {
                (Some(here), Some(linux)) if at > 0 => format!("{} **{:.2}**", s.brief(), here / linux),
                _ => s.brief(),
            };
            let cells: Vec<_> = samples.iter().enumerate().map(cell).collect();
            let paper = PAPER.iter().find(|(known, _)| known == name).map_or("–", |(_, figure)| figure);
            println!("| {name} | {} | {paper} |", cells.join(" | "));
        }
        println!();
    }
}
