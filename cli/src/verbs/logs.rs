// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith logs`: what the program and the kernel printed, and what the user was told.

use crate::fault::{Fault, Result, file};
use api_boot::Stream;
use std::{
    io::{self, ErrorKind, Write},
    time::{Duration, Instant},
};
use unilith_machine::{
    console_log::{LogReader, Period},
    record::now_ms,
    store::Store,
    times,
};

/// How often `-f` looks for more.
const POLL: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Go on with what is printed from now on, until the machine ends
    #[arg(short, long)]
    follow: bool,
    /// Only so many of the last lines, or `all`
    #[arg(short = 'n', long, value_name = "LINES", value_parser = lines)]
    tail: Option<usize>,
    /// Begin each line with the time at which it was printed
    #[arg(short, long)]
    timestamps: bool,
    /// Only lines since then: 2026-11-23T01:02:03Z, seconds since 1970, or how long ago, as 10m
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only lines until then
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    machine: String,
}

/// Each stream goes where it went.
fn show(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Output => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
        Stream::Error => io::stderr().write_all(bytes),
    }
}

fn lines(text: &str) -> std::result::Result<usize, String> {
    if text == "all" {
        return Ok(usize::MAX);
    }
    text.parse().map_err(|_| "it is a number, or `all`".into())
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let now = now_ms();
    let time = |flag: &str, text: &Option<String>| {
        let parsed = text.as_ref().map(|text| times::parse(text, now)).transpose();
        parsed.map_err(|why| Fault { code: 2, message: format!("--{flag}: {why}") })
    };
    let period = Period {
        since: time("since", &args.since)?,
        until: time("until", &args.until)?,
        shown: args.timestamps,
    };
    let machine = store.find(&args.machine)?;
    let path = machine.console_log();
    // A machine that failed before it could print anything has no log: the reader finds nothing.
    let mut log = LogReader::open(&machine.folder, args.tail).map_err(file("read", &path))?.within(period);
    loop {
        // Asked before reading: what an ended machine has printed is in the file.
        let ended = !args.follow || machine.wait(Some(Instant::now()))?.is_some();
        match log.copy(show) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(0),
            Err(e) => return Err(file("print", &path)(e)),
        }
        if ended {
            return Ok(0);
        }
        std::thread::sleep(POLL);
    }
}
