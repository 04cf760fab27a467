// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith logs`: what the program and the kernel printed, and what the user was told.

use crate::fault::{Result, file};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    time::{Duration, Instant},
};
use unilith_machine::store::Store;

/// How often `-f` looks for more.
const POLL: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Go on with what is printed from now on, until the machine ends
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<usize>,
    machine: String,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = store.find(&args.machine)?;
    let path = machine.console_log();
    let mut log = match File::open(&path) {
        Ok(log) => log,
        // It failed before it could print anything.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(file("read", &path)(e)),
    };
    if let Some(lines) = args.tail {
        let mut text = Vec::new();
        log.read_to_end(&mut text).map_err(file("read", &path))?;
        log.seek(SeekFrom::Start(start_of_last(lines, &text) as u64)).map_err(file("read", &path))?;
    }
    loop {
        // Asked before reading: what an ended machine has printed is in the file.
        let ended = !args.follow || machine.wait(Some(Instant::now()))?.is_some();
        match io::copy(&mut log, &mut io::stdout()).and_then(|_| io::stdout().flush()) {
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

/// Where the last `lines` lines begin.
fn start_of_last(lines: usize, text: &[u8]) -> usize {
    if lines == 0 {
        return text.len();
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let breaks = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    breaks.map(|(i, _)| i + 1).nth(lines - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        let text = b"a\nb\nc\n";
        assert_eq!([0, 1, 2, 3, 9].map(|n| start_of_last(n, text)), [6, 4, 2, 0, 0]);
        assert_eq!(start_of_last(1, b"a\nb"), 2);
    }
}
