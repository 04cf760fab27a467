// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of the overlay: what one is ([`Command`]), and what it is given to work with ([`Session`]).
//!
//! # Contract
//!
//! - Each command runs on a kernel thread of its own, next to the application's threads and to other commands. Kernel
//!   code is never preempted, so **every loop calls [`Session::checkpoint`]**: it gives the processor away when the time
//!   budget is used up, and ends the command when it was interrupted.
//! - A command blocks in the calls of its session, in `api_sched::park` and in file systems of the host, nowhere else.
//!   It holds no lock across them.
//! - Errors are data ([`Failure`]): what it is about, the error number, what is wrong. A command that can go on after
//!   one reports it with [`Session::fail`] and answers an exit code other than 0 in the end.
//! - What comes from the host (arguments, standard input) is untrusted: no command panics on it.
//! - Listings go through [`Listing`], which prints a table or, in the machine-readable mode, one JSON object a line.
//!
//! Command crates depend on this crate; the crate `overlay-line` runs them; the kernel image registers them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod failure;
mod listing;
mod sort;

pub use failure::{Failure, describe};
pub use listing::{Column, Listing, Value, json_string};
pub use sort::sort;

use alloc::vec::Vec;
use api_lock::SpinLock;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// The command is to end: it was interrupted, or its client went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop;

/// An exit code, or the failure that ended the command.
pub type Outcome = Result<u8, Failure>;

/// What a running command has of the client that asked for it.
pub trait Session {
    /// Writes all of `bytes`; waits while the client does not read.
    fn write(&self, stream: Stream, bytes: &[u8]) -> Result<(), Stop>;

    /// Reads standard input; waits for some. `Ok(0)` is its end.
    fn read(&self, to: &mut [u8]) -> Result<usize, Stop>;

    /// Sends on what was written. Reading, sleeping and ending do so as well.
    fn flush(&self) -> Result<(), Stop>;

    /// Reports a failure and goes on.
    fn fail(&self, failure: &Failure) -> Result<(), Stop>;

    /// To be called in every loop. Lets others run when this command has had its time.
    fn checkpoint(&self) -> Result<(), Stop>;

    /// Sleeps until `deadline_ns` on the monotonic clock (`u64::MAX`: for ever), or until somebody wakes the thread:
    /// callers that wait for something loop over their condition.
    fn sleep(&self, deadline_ns: u64) -> Result<(), Stop>;

    /// The client wants JSON.
    fn json(&self) -> bool;

    /// Width of the client's terminal; 0 when it has none.
    fn columns(&self) -> usize;
}

/// What the client of a program wants besides its streams, since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The client is gone: nobody reads what the program prints.
    pub is_gone: bool,
    /// Ctrl-C of a client without a terminal.
    pub interrupted: bool,
    /// Columns and rows of the client's terminal.
    pub size: Option<(u16, u16)>,
}

/// The client of a program of the image that runs as a process : unlike a [`Session`]'s, these calls do
/// not wait for the client, so that one thread serves all streams of the program.
pub trait Remote {
    /// Bytes of output that the client takes now.
    fn room(&self) -> usize;

    /// Sends output, of which there is [`Remote::room`].
    fn send(&self, stream: Stream, bytes: &[u8]);

    /// Takes input: `None` when there is none yet, `Some(0)` at its end.
    fn input(&self, to: &mut [u8]) -> Option<usize>;

    /// Tells the client that its program runs, under this number.
    fn started(&self, pid: u32);

    /// What else came.
    fn news(&self) -> News;

    /// Woken when input, room or news came.
    fn changed(&self) -> &api_sched::WaitQueue;

    /// To be called in every loop: lets others run when this thread has had its time.
    fn give_way(&self);
}

/// What an argument of a command may be, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completes {
    Nothing,
    Commands,
    Paths,
    /// Programs that `run` knows.
    Programs,
    /// Symbols of the application and the kernel.
    Symbols,
    /// Names of signals.
    Signals,
    /// Names of tracepoints and functions.
    Probes,
}

/// One command.
pub struct Command {
    pub name: &'static str,
    /// What follows the name, `[-l] [PATH...]`.
    pub arguments: &'static str,
    /// One line.
    pub summary: &'static str,
    /// The manual: sentences and options, for `help NAME` and the reference.
    pub help: &'static str,
    pub completes: Completes,
    /// The arguments without the name.
    pub run: fn(&dyn Session, &[&[u8]]) -> Outcome,
}

/// A text of a manual, as a static of its own: the linker script of a PC's kernel puts those where the commands' code is, which
/// is not in the image.
#[macro_export]
macro_rules! manual {
    ($text:expr) => {{
        const TEXT: &str = $text;
        static MANUAL: [u8; TEXT.len()] = $crate::bytes_of(TEXT);
        $crate::text_of(&MANUAL)
    }};
}

#[doc(hidden)]
pub const fn bytes_of<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(text.as_bytes());
    bytes
}

#[doc(hidden)]
pub const fn text_of(bytes: &'static [u8]) -> &'static str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a text is text"),
    }
}

static COMMANDS: SpinLock<Vec<&'static Command>> = SpinLock::new(Vec::new());

/// Finds what begins with a prefix and hands each on.
pub type Completer = fn(prefix: &[u8], found: &mut dyn FnMut(&[u8]));

static COMPLETERS: SpinLock<Vec<(Completes, Completer)>> = SpinLock::new(Vec::new());

/// Adds commands, in the order they come.
pub fn register(commands: &'static [Command]) {
    COMMANDS.lock().extend(commands);
}

/// All commands, by name.
pub fn commands() -> Vec<&'static Command> {
    let mut all = COMMANDS.lock().clone();
    sort(&mut all, |a, b| a.name < b.name);
    all
}

/// The command with this name.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.lock().iter().find(|c| c.name.as_bytes() == name).copied()
}

/// Says who completes arguments of that kind.
pub fn register_completer(what: Completes, completer: Completer) {
    COMPLETERS.lock().push((what, completer));
}

/// What begins with `prefix`, in order and each once, at most `most`.
pub fn complete(what: Completes, prefix: &[u8], most: usize) -> Vec<Vec<u8>> {
    let completers: Vec<Completer> =
        COMPLETERS.lock().iter().filter(|(kind, _)| *kind == what).map(|(_, c)| *c).collect();
    let mut found: Vec<Vec<u8>> = Vec::new();
    for completer in completers {
        completer(prefix, &mut |name| {
            if found.len() < most {
                found.push(name.to_vec());
            }
        });
    }
    sort(&mut found, |a, b| a < b);
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &dyn Session, _: &[&[u8]]) -> Outcome {
        Ok(0)
    }

    const fn command(name: &'static str) -> Command {
        Command { name, arguments: "", summary: "", help: "", completes: Completes::Nothing, run: nothing }
    }

    #[test]
    fn commands_are_found_by_name_and_listed_in_order() {
        static TWO: [Command; 2] = [command("zap"), command("aim")];
        register(&TWO);
        assert_eq!(find(b"zap").unwrap().name, "zap");
        assert!(find(b"za").is_none() && find(b"").is_none());
        let names: Vec<&str> = commands().iter().map(|c| c.name).collect();
        assert_eq!(names, ["aim", "zap"]);
    }

    #[test]
    fn completions_of_several_sources_are_sorted_and_unique() {
        register_completer(Completes::Symbols, |_, found| {
            ["b", "a"].iter().for_each(|s| found(s.as_bytes()))
        });
        register_completer(Completes::Symbols, |_, found| found(b"a"));
        assert_eq!(complete(Completes::Symbols, b"", 10), [b"a", b"b"]);
        assert_eq!(complete(Completes::Symbols, b"", 1).len(), 1);
    }
}
