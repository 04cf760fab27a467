// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith top`: which functions of a running machine use the processor, now.

use crate::fault::Result;
use crate::session;
use crate::tracing::{self, Follow, Machinery, Output, Stop};
use rustix::termios::tcgetwinsize;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use unilith_machine::store::Store;
use unilith_trace::profile::{self, Sample, Sampler};
use unilith_trace::symbols::Names;

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith top redis
  unilith top redis -n 1 --json
  unilith exec redis top         the threads instead of the functions

What is missing to 100 per cent is idle time.")]
pub struct Args {
    machine: String,
    /// Seconds from one time to the next
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    delay: u64,
    /// So many times and no more
    #[arg(short = 'n', long, value_name = "TIMES")]
    times: Option<u64>,
    /// So many samples a second
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 499,
        value_parser = clap::value_parser!(u32).range(i64::from(*profile::RATES.start())..=i64::from(*profile::RATES.end())))]
    frequency: u32,
    /// One JSON object for each function
    #[arg(long)]
    json: bool,
}

/// Home, then clear to the end (ECMA-48 8.3.21, 8.3.39).
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = session::find(store, &args.machine)?;
    let client = session::connect(&machine)?;
    let machinery = Machinery::read(&machine, &client)?;
    let names = machinery.names();
    let name = tracing::own_name("top");
    let stop = Stop::watch()?;
    let sampler = Sampler::new(args.frequency, machinery.kernel.as_ref());
    let (send, samples) = channel();
    let follow = Follow::start(&client, &name, &sampler.script(false), &machinery, move |output| {
        if let Output::Record { map, bytes } = output
            && let Some(sample) = sampler.read(map, bytes)
        {
            // Only while somebody listens.
            let _ = send.send(sample);
        }
    })?;
    let mut left = args.times.unwrap_or(u64::MAX);
    let mut since = Instant::now();
    while left > 0 && stop.wait(Some(since + Duration::from_secs(args.delay)), &follow) {
        left -= 1;
        let taken: Vec<Sample> = samples.try_iter().collect();
        // What would have been taken of a processor that is never idle.
        let all =
            (since.elapsed().as_secs_f64() * f64::from(args.frequency)).max(taken.len() as f64).max(1.0);
        since = Instant::now();
        let rows = rows(&taken, &names);
        if show(&rows, taken.len(), all, args.json).is_err() {
            // Nobody reads it any more (`| head`).
            break;
        }
    }
    follow.end()?;
    Ok(0)
}

/// A function, by its name and the file it is in, and how often it was hit.
type Row = ((String, String), u64);

/// Most first.
fn rows(samples: &[Sample], names: &Names) -> Vec<Row> {
    let mut counts: HashMap<(String, String), u64> = HashMap::new();
    for sample in samples {
        let function = names.known(sample.address());
        let file = match sample.in_kernel {
            true => "kernel".to_string(),
            false => names.file(sample.address()).unwrap_or("-").to_string(),
        };
        *counts.entry((function, file)).or_default() += 1;
    }
    let mut rows: Vec<Row> = counts.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}

fn show(rows: &[Row], samples: usize, all: f64, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for ((function, file), count) in rows {
            let share = (*count as f64 / all * 1000.0).round() / 1000.0;
            let object = serde_json::json!({
                "share": share, "samples": count, "function": function, "file": file,
            });
            writeln!(out, "{object}")?;
        }
        return out.flush();
    }
    let screen = io::stdout().is_terminal().then(|| tcgetwinsize(io::stdout()).ok()).flatten();
    if screen.is_some() {
        write!(out, "{CLEAR}")?;
    }
    writeln!(out, "{samples} samples, {:.1} % idle", 100.0 - samples as f64 / all * 100.0)?;
    writeln!(out, "{:>5}  {:<16}  FUNCTION", "%CPU", "FILE")?;
    let most = screen.map_or(usize::MAX, |s| usize::from(s.ws_row).saturating_sub(3));
    let width = screen.map_or(usize::MAX, |s| usize::from(s.ws_col).saturating_sub(25));
    for ((function, file), count) in rows.iter().take(most) {
        let function: String = function.chars().take(width).collect();
        writeln!(out, "{:>5.1}  {file:<16}  {function}", *count as f64 / all * 100.0)?;
    }
    out.flush()
}
