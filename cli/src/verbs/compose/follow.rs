// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several machines print, line by line, each behind its machine's name.

use crate::fault::{Result, file};
use api_boot::Stream;
use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    time::{Duration, Instant},
};
use unilith_machine::{
    console_log::{LogReader, Period},
    lines::printable,
    store::Machine,
};

/// How often is looked for more.
pub const POLL: Duration = Duration::from_millis(50);
/// A line that is longer is shown in pieces.
const MAX_LINE: usize = 64 << 10;
/// SGR numbers of the prefixes: cyan, yellow, green, magenta, blue, and the bright ones.
const COLOURS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];

pub struct View {
    pub tail: Option<usize>,
    pub since: Option<u64>,
    pub timestamps: bool,
    pub prefix: bool,
    pub colours: bool,
}

/// Machines whose output is shown.
pub struct Follow {
    all: Vec<(Machine, LogReader, Prefixed)>,
}

/// Shows what machines have printed; `go_on`: until all of them have ended.
pub fn show(machines: &[Machine], view: &View, go_on: bool) -> Result<u8> {
    let mut follow = Follow::open(machines, view)?;
    loop {
        let ended = !go_on || follow.ended()?.len() == machines.len();
        if !follow.copy()? || ended {
            follow.finish()?;
            return Ok(0);
        }
        std::thread::sleep(POLL);
    }
}

impl Follow {
    pub fn open(machines: &[Machine], view: &View) -> Result<Follow> {
        let width = machines.iter().map(|m| m.spec.name.len()).max().unwrap_or(0);
        let terminal = io::stdout().is_terminal();
        let colours = terminal && view.colours && std::env::var_os("NO_COLOR").is_none();
        let period = Period { since: view.since, until: None, shown: view.timestamps };
        let mut all = Vec::new();
        for (n, machine) in machines.iter().enumerate() {
            let log = LogReader::open(&machine.folder, view.tail);
            let log = log.map_err(file("read", &machine.console_log()))?.within(period.clone());
            let name = &machine.spec.name;
            let prefix = match (view.prefix, colours) {
                (false, _) => String::new(),
                (true, false) => format!("{name:width$}  | "),
                (true, true) => format!("\x1b[{}m{name:width$}  |\x1b[0m ", COLOURS[n % COLOURS.len()]),
            };
            all.push((machine.clone(), log, Prefixed { prefix, line: Vec::new(), terminal }));
        }
        Ok(Follow { all })
    }

    /// Prints what is new; `false`: nobody reads it any more.
    pub fn copy(&mut self) -> Result<bool> {
        for (machine, log, out) in &mut self.all {
            match log.copy(|_: Stream, bytes: &[u8]| out.write_all(bytes)).and_then(|()| io::stdout().flush())
            {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(false),
                Err(e) => return Err(file("print", &machine.console_log())(e)),
            }
        }
        Ok(true)
    }

    /// Prints lines that have no end.
    pub fn finish(&mut self) -> Result<()> {
        for (machine, _, out) in &mut self.all {
            match out.end() {
                Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                    return Err(file("print", &machine.console_log())(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The machines that have ended for good, with their exit codes.
    pub fn ended(&self) -> Result<Vec<(&Machine, u8)>> {
        let mut ended = Vec::new();
        for (machine, ..) in &self.all {
            // One that was removed has ended.
            let code = if machine.folder.exists() {
                match machine.try_hold()? {
                    // Its supervisor may be about to start it again.
                    None => continue,
                    Some(_) => machine.wait(Some(Instant::now()))?.map_or(0, |o| o.code),
                }
            } else {
                0
            };
            ended.push((machine, code));
        }
        Ok(ended)
    }
}

/// Writes whole lines behind a prefix, so that those of several machines do not mix.
struct Prefixed {
    prefix: String,
    line: Vec<u8>,
    terminal: bool,
}

impl Prefixed {
    fn end(&mut self) -> io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let mut out = io::stdout().lock();
        out.write_all(self.prefix.as_bytes())?;
        if self.terminal {
            out.write_all(clean(&String::from_utf8_lossy(&line)).as_bytes())?;
        } else {
            out.write_all(&line)?;
        }
        out.write_all(b"\n")
    }
}

impl Write for Prefixed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = MAX_LINE - self.line.len();
            let (piece, is_end) = match rest.iter().take(room).position(|b| *b == b'\n') {
                Some(at) => (at, true),
                None => (rest.len().min(room), false),
            };
            self.line.extend_from_slice(&rest[..piece]);
            rest = &rest[piece + usize::from(is_end)..];
            if is_end && self.line.is_empty() {
                self.line.push(b' ');
            }
            if is_end || self.line.len() >= MAX_LINE {
                self.end()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line for the terminal: colours stay, what moves the cursor or does anything else to the terminal does not.
fn clean(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim_end_matches('\r');
    let mut coloured = false;
    while let Some(at) = rest.find("\x1b[") {
        out.push_str(&printable(&rest[..at]));
        rest = &rest[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(rest.len());
        if rest[end..].starts_with('m') {
            out.push_str(&format!("\x1b[{}m", &rest[..end]));
            coloured = true;
            rest = &rest[end + 1..];
        } else {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
    out.push_str(&printable(rest));
    if coloured {
        out.push_str("\x1b[0m");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_colour_its_lines_and_nothing_else() {
        assert_eq!(clean("a\x1b[1;31mred\x1b[0mb\r"), "a\x1b[1;31mred\x1b[0mb\x1b[0m");
        assert_eq!(clean("\x1b[2Jx\x1b]0;t\x07\x1b[3"), "\u{fffd}2Jx\u{fffd}]0;t\u{fffd}\u{fffd}3");
    }
}
