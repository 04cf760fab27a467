// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `log`, which shows the end of the kernel's log.

use crate::arguments::Arguments;
use abi::Events;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_overlay::{Command, Completes, Failure, Outcome, Session, Stream, manual};
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

/// The lines from this record on, and the sequence number of the next record.
fn since(mut number: u64) -> Result<(Vec<u8>, u64), Failure> {
    let mut out = Vec::new();
    let failed = |_| Failure::new("there is no memory for it");
    while let Some(record) = kmsg::at(number).map_err(failed)? {
        kmsg::line(&record, kmsg::level_word(record.priority), &mut out).map_err(failed)?;
        number = record.number + 1;
    }
    Ok((out, number))
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
    let (text, mut next) = since(0)?;
    let lines = options.number(b'n')?.unwrap_or(u64::MAX);
    session.write(Stream::Out, tail(&text, lines))?;
    while options.has(b'f') {
        let key = kmsg::changed().add(api_sched::current(), Events::IN, false);
        let come = since(next);
        let slept = match &come {
            Ok((text, _)) if text.is_empty() => session.sleep(u64::MAX),
            _ => Ok(()),
        };
        kmsg::changed().remove(key);
        let (text, end) = come?;
        next = end;
        session.write(Stream::Out, &text)?;
        slept?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown() {
        let text = b"line 1997\nline 1998\nline 1999\n";
        assert_eq!(tail(text, 2), b"line 1998\nline 1999\n");
        assert_eq!(tail(text, 0), b"");
        assert_eq!(tail(text, u64::MAX), text);
        assert_eq!(tail(b"a\nb", 1), b"b");
    }
}
