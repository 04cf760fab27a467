// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small calls and page faults, in instructions of the machine and in time; one request of Redis in instructions.

use super::{LINKED, Level, Table, UNMODIFIED, build_linked, is_linked, level_words, link, name_of, prepare};
use crate::{Options, Result, Scratch, programs, side, side::Side};
use std::{fs, path::Path};

/// Redis and its client in one machine, both Debian's own form of program.
const PROJECT: &str = r#"
from = "debian:redis-server"
program = "redis-server"
files = { "/usr/bin/request" = "request" }
"#;

/// Columns of a Redis whose own lines call the kernel's TCP (apps/redis/direct), and the levels it runs at.
const DIRECT: [(&str, Level); 2] =
    [("base,byp, direct", "base,byp"), ("base,byp,shortcut, direct", "base,byp,shortcut")];

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
            measure(options, run, (level, level), &all, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

pub fn request(options: &Options) -> Result<()> {
    println!("Instructions for one request of Redis over the loopback device, those of server and client.\n");
    let scratch = prepare(options, "request")?;
    let unmodified = scratch.path().join("unmodified");
    project(&unmodified, PROJECT)?;
    programs::build(options, "ukl/request.c", &unmodified.join("request"))?;
    let linked = linked_project(options, &scratch, "app.toml")?;
    let direct = linked_project(options, &scratch, "direct/unilith.toml")?;
    let unmodified = unmodified.display().to_string();
    let own = |level| (level, level, if is_linked(level) { &linked } else { &unmodified });
    let mut columns: Vec<_> = [&UNMODIFIED[..], &LINKED].concat().into_iter().map(own).collect();
    columns.extend(DIRECT.map(|(column, level)| (column, level, &direct)));
    let mut table = Table::new(&columns.iter().map(|(column, ..)| *column).collect::<Vec<_>>());
    for _ in 0..options.runs.min(2) {
        for (column, level, project) in &columns {
            let all = ["--network", "none", "--entrypoint", "/usr/bin/request", project];
            measure(options, side::counted, (column, level), &all, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

fn project(folder: &Path, text: &str) -> Result<()> {
    let of_folder = |e| format!("{}: {e}", folder.display());
    fs::create_dir_all(folder).map_err(of_folder)?;
    fs::write(folder.join("unilith.toml"), text).map_err(of_folder)
}

/// A project of Redis with the recipe of a settings file below apps/redis, whose client is linked to another place.
fn linked_project(options: &Options, scratch: &Scratch, settings: &str) -> Result<String> {
    let settings = options.root.join("apps/redis").join(settings);
    let of_settings = |e| format!("{}: {e}", settings.display());
    let text = fs::read_to_string(&settings).map_err(of_settings)?;
    let (_, recipe) =
        text.split_once("\n[linked]\n").ok_or_else(|| format!("{}: no recipe", settings.display()))?;
    let folder = scratch.path().join(settings.file_stem().unwrap_or_default());
    project(&folder, &format!("{PROJECT}\n[linked]\n{recipe}"))?;
    let patch = settings.with_file_name("tcp.patch");
    if patch.is_file() {
        fs::copy(&patch, folder.join("tcp.patch")).map_err(of_settings)?;
    }
    link(options, "ukl/request.c", &folder.join("request"), &["--place", "1"])?;
    let folder = folder.display().to_string();
    // Redis is built when it is not in the cache, which no run has to wait for.
    build_linked(options, &folder)?;
    Ok(folder)
}

/// Runs a program that prints lines of a name and a number, for a column of the table, at a level.
fn measure(
    options: &Options,
    run: Run,
    (column, level): (&'static str, Level),
    words: &[&str],
    table: &mut Table,
) -> Result<()> {
    let of_level = |e: String| format!("{}: {e}", name_of(column));
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
        figures.iter().for_each(|(name, value)| table.add(name, column, *value));
        return Ok(());
    }
    Err(of_level(
        "the machine finds no clock better than its timer's ticks: the host is too busy to measure".into(),
    ))
}
