// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small calls and page faults, in instructions of the machine and in time; one request of Redis in instructions.

use super::{LINKED, Level, Table, UNMODIFIED, build_linked, is_linked, level_words, link, name_of, prepare};
use crate::{Options, Result, Scratch, programs, side, side::Side};

/// Redis and its client in one machine, both Debian's own form of program.
const PROJECT: &str = r#"
from = "debian:redis-server"
program = "redis-server"
files = { "/usr/bin/request" = "request" }
"#;

/// How often a machine is started again whose host was too busy for it to find a good clock.
const PATIENCE: usize = 5;

pub fn in_instructions(options: &Options) -> Result<()> {
    println!("Instructions of the machine (QEMU -icount) for one call; in bold the part of `linux`.\n");
    // The count is the same each time but for what the timer interrupts, so two runs tell its spread.
    calls(options, options.runs.min(2), side::counted, &[])
}

pub fn in_time(options: &Options) -> Result<()> {
    println!("Nanoseconds for one call.\n");
    calls(options, options.runs, side::output, &["4000"])
}

/// How a machine runs to its end: what it prints.
type Run = fn(&Options, Side, &[&str]) -> Result<String>;

fn calls(options: &Options, runs: usize, run: Run, words: &[&str]) -> Result<()> {
    let scratch = prepare(options, "calls")?;
    let (unmodified, linked) = (scratch.path().join("calls"), scratch.path().join("linked"));
    programs::build(options, "ukl/calls.c", &unmodified)?;
    link(options, "ukl/calls.c", &linked, &[])?;
    let mut table = Table::new(&[&UNMODIFIED[..], &LINKED].concat());
    for _ in 0..runs {
        for level in table.levels.clone() {
            let program = if is_linked(level) { &linked } else { &unmodified };
            let program = program.display().to_string();
            let all = [&["--network", "none", &program], words].concat();
            measure(options, run, level, &all, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

pub fn request(options: &Options) -> Result<()> {
    println!("Instructions for one request of Redis over the loopback device, those of server and client.\n");
    let scratch = prepare(options, "request")?;
    let [unmodified, linked] = projects(options, &scratch)?;
    let mut table = Table::new(&[&UNMODIFIED[..], &LINKED].concat());
    for _ in 0..options.runs.min(2) {
        for level in table.levels.clone() {
            let project = if is_linked(level) { &linked } else { &unmodified };
            let all = ["--network", "none", "--entrypoint", "/usr/bin/request", project];
            measure(options, side::counted, level, &all, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

/// The project with Debian's Redis, and the one with the catalogue's recipe for it, whose client is linked to another place.
fn projects(options: &Options, scratch: &Scratch) -> Result<[String; 2]> {
    let recipe = options.root.join("apps/redis/app.toml");
    let recipe = std::fs::read_to_string(&recipe).map_err(|e| format!("{}: {e}", recipe.display()))?;
    let (_, recipe) = recipe.split_once("\n[linked]\n").ok_or("apps/redis/app.toml has no recipe")?;
    let make = |name: &str, text: &str| -> Result<String> {
        let folder = scratch.path().join(name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        scratch.write(&format!("{name}/unilith.toml"), text)?;
        Ok(folder.display().to_string())
    };
    let unmodified = make("unmodified", PROJECT)?;
    let linked = make("linked", &format!("{PROJECT}\n[linked]\n{recipe}"))?;
    programs::build(options, "ukl/request.c", &scratch.path().join("unmodified/request"))?;
    link(options, "ukl/request.c", &scratch.path().join("linked/request"), &["--place", "1"])?;
    // Redis is built when it is not in the cache, which no run has to wait for.
    build_linked(options, &linked)?;
    Ok([unmodified, linked])
}

/// Runs a program that prints lines of a name and a number.
fn measure(options: &Options, run: Run, level: Level, words: &[&str], table: &mut Table) -> Result<()> {
    let of_level = |e: String| format!("{}: {e}", name_of(level));
    let words = [&level_words(level), words].concat();
    for _ in 0..PATIENCE {
        let text = run(options, Side::Linux, &words).map_err(of_level)?;
        if text.contains("jiffies") {
            continue;
        }
        let figures = text.lines().filter_map(|line| line.split_once(' '));
        let figures: Vec<(&str, f64)> =
            figures.filter_map(|(name, n)| Some((name, n.parse().ok()?))).collect();
        if figures.is_empty() {
            return Err(of_level(format!("the program printed: {text}")));
        }
        figures.iter().for_each(|(name, value)| table.add(name, level, *value));
        return Ok(());
    }
    Err(of_level(
        "the machine finds no clock better than its timer's ticks: the host is too busy to measure".into(),
    ))
}
