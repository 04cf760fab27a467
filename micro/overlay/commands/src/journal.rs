// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the kernel's log, and `log`, which shows it.
//!
//! What the kernel calls while it logs is inlined there: the rest of this crate may not have come yet (`link.ld` of the kernel).

use crate::arguments::Arguments;
use abi::Events;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_overlay::{Command, Completes, Failure, Outcome, Session, Stream, manual};
use api_sched::WaitQueue;
use log::LevelFilter;

pub const COMMANDS: [Command; 1] = [Command {
    name: "log",
    arguments: manual!("[-f] [-n LINES] [-l LEVEL]"),
    summary: manual!("Show the kernel's log"),
    help: manual!(
        "Shows the last lines of the kernel's log, with seconds since boot.\n\
           -f  go on with what is logged from now on, until interrupted\n\
           -n  so many lines and no more\n\
           -l  from now on log error, warn, info or debug messages and worse ones"
    ),
    completes: Completes::Nothing,
    run: log,
}];

/// Bytes of the log that are kept.
const KEPT: usize = 8 << 10;

struct Journal {
    bytes: VecDeque<u8>,
    /// Bytes that were logged since boot.
    position: u64,
}

static JOURNAL: SpinLock<Journal> = SpinLock::new(Journal { bytes: VecDeque::new(), position: 0 });
static MORE: WaitQueue = WaitQueue::new();

/// Begins to keep the log.
#[inline(always)]
pub fn start() {
    JOURNAL.lock().bytes.reserve_exact(KEPT);
}

/// Keeps a piece of the log. Called by the kernel's logger, in whatever context that is: what cannot be kept is lost.
#[inline(always)]
pub fn record(bytes: &[u8]) {
    let Some(mut journal) = JOURNAL.try_lock() else { return };
    // The logger must not need the heap.
    if journal.bytes.capacity() < KEPT || bytes.len() > KEPT {
        return;
    }
    let excess = (journal.bytes.len() + bytes.len()).saturating_sub(KEPT).min(journal.bytes.len());
    journal.bytes.drain(..excess);
    journal.bytes.extend(bytes);
    journal.position += bytes.len() as u64;
}

/// A line is complete; in thread context.
#[inline(always)]
pub fn wake() {
    if !MORE.is_empty() {
        MORE.wake_all(Events::IN);
    }
}

/// What was logged from `position` on, and where that ends.
fn since(position: u64) -> (Vec<u8>, u64) {
    let journal = JOURNAL.lock();
    let start = journal.position - journal.bytes.len() as u64;
    let skip = position.saturating_sub(start).min(journal.bytes.len() as u64) as usize;
    (journal.bytes.iter().skip(skip).copied().collect(), journal.position)
}

fn level(name: &[u8]) -> Option<LevelFilter> {
    Some(match name {
        b"off" => LevelFilter::Off,
        b"error" => LevelFilter::Error,
        b"warn" => LevelFilter::Warn,
        b"info" => LevelFilter::Info,
        b"debug" => LevelFilter::Debug,
        b"trace" => LevelFilter::Trace,
        _ => return None,
    })
}

/// The last `lines` lines.
fn tail(text: &[u8], lines: u64) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut breaks = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1);
    match usize::try_from(lines) {
        Ok(0) => &text[text.len()..],
        Ok(lines) => &text[breaks.nth(lines - 1).unwrap_or(0)..],
        Err(_) => text,
    }
}

fn log(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "f", "nl")?;
    options.no_operands()?;
    if let Some(name) = options.value(b'l') {
        let shown = String::from_utf8_lossy(name);
        let level = level(name)
            .ok_or_else(|| Failure::usage(format!("-l {shown}: off, error, warn, info or debug")))?;
        log::set_max_level(level);
        if options.value(b'n').is_none() && !options.has(b'f') {
            return Ok(0);
        }
    }
    let (text, mut position) = since(0);
    // What is kept begins in the middle of a line, unless nothing was dropped.
    let begin = if position > text.len() as u64 {
        text.iter().position(|b| *b == b'\n').map_or(0, |i| i + 1)
    } else {
        0
    };
    let lines = options.number(b'n')?.unwrap_or(u64::MAX);
    session.write(Stream::Out, tail(&text[begin..], lines))?;
    while options.has(b'f') {
        let key = MORE.add(api_sched::current(), Events::IN, false);
        let (text, now) = since(position);
        let slept = if text.is_empty() { session.sleep(u64::MAX) } else { Ok(()) };
        MORE.remove(key);
        position = now;
        session.write(Stream::Out, &text)?;
        slept?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_log_is_kept() {
        start();
        (0..2000).for_each(|i| record(format!("line {i}\n").as_bytes()));
        let (text, position) = since(0);
        assert_eq!(text.len(), KEPT);
        assert!(text.ends_with(b"line 1999\n"));
        assert_eq!(tail(&text, 2), b"line 1998\nline 1999\n");
        assert_eq!(tail(&text, 0), b"");
        assert_eq!(tail(b"a\nb", 1), b"b");
        record(b"more\n");
        assert_eq!(since(position).0, b"more\n");
    }
}
