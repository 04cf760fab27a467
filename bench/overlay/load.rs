// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: uIO figure 9. nginx, Redis and SQLite: without the overlay, with it and idle, and with a command every second.

use super::{OFF, ON, table};
use crate::side::{Machine, build_kernels, folder_of, output};
use crate::{Options, Result, Side, nginx, redis, statistics::Samples};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unilith_overlay::Client;

/// What is compared, and the commands that run every second. Counters: memory, processor time of the threads, packets.
const SIDES: [(&str, Option<&[&[&str]]>); 4] = [
    ("off", None),
    ("on, idle", Some(&[])),
    ("`ls` every second", Some(&[&["ls", "-l", "/etc"]])),
    ("counters every second", Some(&[&["mem"], &["ps"], &["net", "-c"]])),
];

/// Rows that SQLite inserts, each by a statement of its own, as in the paper.
const ROWS: u32 = 60_000;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&OFF, &ON])?;
    let mut rows = Vec::new();
    rows.push(("nginx, 30 connections".to_string(), "requests/s", served(options, "nginx", nginx::rate)?));
    rows.push(("Redis SET, pipeline 16".to_string(), "requests/s", served(options, "redis", redis_set)?));
    rows.push((format!("SQLite, {ROWS} insertions in memory"), "ms", sqlite(options)?));
    table(&SIDES.map(|(name, _)| name), &rows);
    Ok(())
}

fn redis_set(address: &str) -> Result<f64> {
    let all = redis::measure(address, "16", "400000", &[])?;
    all.into_iter().find(|(test, _)| test == "SET").map(|(_, rate)| rate).ok_or("no SET was measured".into())
}

/// A server: two machines that run all the time, of which one is measured at a time.
fn served(options: &Options, program: &str, rate: fn(&str) -> Result<f64>) -> Result<Vec<Samples>> {
    let start =
        |set: &[&str]| Machine::start(options, Side::Micro, &[set, &["-m", "256M", program]].concat());
    let (off, on) = (start(&OFF)?, start(&ON)?);
    let mut samples = vec![Samples::default(); SIDES.len()];
    // What is only slow once.
    rate(&off.address()?)?;
    rate(&on.address()?)?;
    for _ in 0..options.runs {
        for ((_, commands), samples) in SIDES.iter().zip(&mut samples) {
            let value = match commands {
                None => rate(&off.address()?)?,
                Some(commands) => {
                    let folder = on.folder()?;
                    let address = on.address()?;
                    beside(commands, || Ok(folder.clone()), || rate(&address))?
                }
            };
            samples.add(value);
        }
    }
    Ok(samples)
}

/// SQLite runs to its end; each machine is measured by its own `.timer`.
fn sqlite(options: &Options) -> Result<Vec<Samples>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut script = String::from("create table t(id integer primary key, text text);\nbegin;\n");
    (0..ROWS).for_each(|n| script.push_str(&format!("insert into t(text) values('row {n}');\n")));
    script.push_str("commit;\n");
    let scratch = crate::Scratch::new("sqlite")?;
    scratch.write("script.sql", &script)?;
    let volume = format!("{}:/data:ro", scratch.path().display());
    let mut samples = vec![Samples::default(); SIDES.len()];
    for _ in 0..options.runs {
        for ((_, commands), samples) in SIDES.iter().zip(&mut samples) {
            let name =
                format!("bench-{}-sqlite-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let set = if commands.is_some() { ON } else { OFF };
            let words = ["--name", &name, "--network", "none", "-v", &volume, "sqlite", "--", ":memory:"];
            let all = [
                &set[..],
                &words,
                &["select 'begin', (julianday('now') - 2440587.5) * 86400000.0;"],
                &[".read /data/script.sql"],
                &["select 'end', (julianday('now') - 2440587.5) * 86400000.0;"],
            ]
            .concat();
            let run = || output(options, Side::Micro, &all);
            let text = beside(commands.unwrap_or(&[]), || folder_of(options, &name), run)?;
            let at = |word: &str| {
                let line = text.lines().find_map(|l| l.strip_prefix(word)?.strip_prefix('|'));
                line.and_then(|l| l.trim().parse::<f64>().ok()).ok_or(format!("sqlite printed: {text}"))
            };
            samples.add(at("end")? - at("begin")?);
        }
    }
    Ok(samples)
}

/// Does the work while the commands run every second in the machine at `folder`, over one session.
fn beside<T: Send>(
    commands: &[&[&str]],
    folder: impl Fn() -> Result<PathBuf> + Sync,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if commands.is_empty() {
        return work();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ticking = scope.spawn(|| tick(commands, &folder, &done));
        let result = work();
        done.store(true, Ordering::Relaxed);
        let ticked = ticking.join().map_err(|_| "the thread of the commands panicked".to_string())?;
        let result = result?;
        match ticked? {
            0 => Err("no command ran meanwhile: the work is too short".into()),
            _ => Ok(result),
        }
    })
}

/// Runs the commands until it is done; how often.
fn tick(commands: &[&[&str]], folder: &impl Fn() -> Result<PathBuf>, done: &AtomicBool) -> Result<u32> {
    let is_done = || done.load(Ordering::Relaxed);
    // A machine that was just started is not there yet.
    let client = loop {
        let tried = folder().and_then(|f| Client::connect(&f).map_err(|e| e.to_string()));
        match tried {
            Ok(client) => break client,
            Err(e) if is_done() => return Err(format!("no session: {e}")),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut count = 0;
    while !is_done() {
        let begin = Instant::now();
        for command in commands {
            match client.run(command, false) {
                Ok(answer) if answer.code == 0 => count += 1,
                // The program has ended, and its machine with it.
                Err(_) if count > 0 => return Ok(count),
                Ok(answer) => return Err(format!("{} answers {}", command.join(" "), answer.code)),
                Err(e) => return Err(e.to_string()),
            }
        }
        while !is_done() && begin.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(count)
}
