// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Leaving a program on this terminal running in the background: docker's detach keys.
//!
//! A process cannot leave what its shell waits for, so `run -it` is two: the one that the shell started waits
//! ([`wait_for_child`]), and its child is the machine's supervisor from the beginning, on the same terminal. At the keys the
//! child gives the terminal back, leaves its session and tells its parent, which ends.

use crate::fault::{Fault, Result};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal, setsid};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};
use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, Read},
    os::unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    path::PathBuf,
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Before the words of the child: `__attended PARENT WORDS...`.
const WORD: &str = "__attended";
/// docker's.
pub const DEFAULT: &str = "ctrl-p,ctrl-q";
/// A sequence of more keys is typed by nobody.
const MAX_KEYS: usize = 32;

/// The process that waits for this one.
static PARENT: OnceLock<Pid> = OnceLock::new();
static DETACHED: AtomicBool = AtomicBool::new(false);

/// The keys that detach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<u8>);

impl std::str::FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Keys, String> {
        let key = |word: &str| {
            let wrong = || {
                format!("`{word}` is no key: write a character, or ctrl- and a letter or one of @ [ \\ ] ^ _")
            };
            let (is_control, name) = match word.strip_prefix("ctrl-") {
                Some(name) => (true, name),
                None => (false, word),
            };
            let [byte] = name.as_bytes()[..] else { return Err(wrong()) };
            match (is_control, byte) {
                (false, b'!'..=b'~') => Ok(byte),
                (true, b'a'..=b'z' | b'A'..=b'Z' | b'@' | b'['..=b'_') => Ok(byte & 0x1f),
                _ => Err(wrong()),
            }
        };
        let keys: Vec<u8> = text.split(',').map(key).collect::<std::result::Result<_, _>>()?;
        match keys.len() <= MAX_KEYS {
            true => Ok(Keys(keys)),
            false => Err(format!("at most {MAX_KEYS} keys")),
        }
    }
}

fn is_child() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// This command's words as the user typed them.
pub fn words() -> impl Iterator<Item = OsString> {
    let own = if is_child() { 1..3 } else { 0..0 };
    std::env::args_os().enumerate().filter(move |(at, _)| !own.contains(at)).map(|(_, word)| word)
}

/// Whether `run` is in the process that only waits, and has to start the other one.
pub fn is_first() -> bool {
    PARENT.get().is_none()
}

/// Whether this process has left its terminal.
pub fn is_detached() -> bool {
    DETACHED.load(Ordering::Relaxed)
}

/// Starts this command again as a child and waits until it ends or detaches; answers the exit code.
pub fn wait_for_child() -> Result<u8> {
    let failed = |e: io::Error| Fault::new(format!("cannot start the supervisor: {e}"));
    // SIGINT, SIGQUIT and SIGHUP of a terminal are the child's as well.
    let mut signals = Signals::new([SIGTERM, SIGUSR1, SIGINT, SIGQUIT, SIGHUP]).map_err(failed)?;
    let me = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(me);
    command.arg(WORD).arg(std::process::id().to_string()).args(std::env::args_os().skip(1));
    let mut child = command.spawn().map_err(failed)?;
    let pid = Pid::from_child(&child);
    thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => std::process::exit(0),
                // It may have ended in this moment.
                SIGTERM => drop(kill_process(pid, Signal::TERM)),
                _ => {}
            }
        }
    });
    let status = child.wait().map_err(failed)?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.unwrap_or_default() as u8)
}

/// Where this process is the child of one that waits: asks its machine to end when that one is killed.
pub fn be_child() -> Result<()> {
    if !is_child() {
        return Ok(());
    }
    let parent = std::env::args_os().nth(2).and_then(|word| word.to_str()?.parse().ok()).unwrap_or_default();
    let failed = |e: io::Error| Fault::new(format!("cannot watch for the end of the parent: {e}"));
    let mut signals = Signals::new([SIGUSR2]).map_err(failed)?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if !is_detached() {
                let _ = kill_process(rustix::process::getpid(), Signal::TERM);
            }
        }
    });
    set_parent_process_death_signal(Some(Signal::USR2)).map_err(|e| failed(e.into()))?;
    match Pid::from_raw(parent).filter(|parent| getppid() == Some(*parent)) {
        Some(parent) => PARENT.set(parent).map_err(|_| Fault::new("it has a parent already")),
        None => Err(Fault::new("it is for `unilith run` alone")),
    }
}

/// What is typed, without the keys that detach.
pub struct Typed<R> {
    inner: R,
    keys: Keys,
    /// Typed keys that may be the beginning of the sequence.
    held: Vec<u8>,
    /// Typed keys that are not.
    passed: Vec<u8>,
    is_complete: bool,
    leave: Leave,
}

impl<R: Read> Typed<R> {
    pub fn new(inner: R, keys: Keys, leave: Leave) -> Typed<R> {
        Typed { inner, keys, held: Vec::new(), passed: Vec::new(), is_complete: false, leave }
    }

    fn typed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.held.push(*byte);
            while !self.keys.0.starts_with(&self.held) {
                self.passed.push(self.held.remove(0));
            }
            if self.held == self.keys.0 {
                self.is_complete = true;
                return;
            }
        }
    }
}

impl<R: Read> Read for Typed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.passed.is_empty() {
            if self.is_complete {
                self.leave.now();
            }
            let count = self.inner.read(to)?;
            if count == 0 {
                self.passed.append(&mut self.held);
                break;
            }
            self.typed(&to[..count]);
        }
        let count = to.len().min(self.passed.len());
        to[..count].copy_from_slice(&self.passed[..count]);
        self.passed.drain(..count);
        Ok(count)
    }
}

/// How this process leaves its terminal.
pub struct Leave {
    /// Gives it back as it was.
    pub undo: Box<dyn Fn() + Send>,
    /// The machine.
    pub name: String,
    /// Where messages go from then on.
    pub log: PathBuf,
}

impl Leave {
    /// Leaves, and never returns: nobody types any more, which is not the end of the program's input.
    fn now(&self) -> ! {
        DETACHED.store(true, Ordering::Relaxed);
        (self.undo)();
        let name = &self.name;
        eprintln!(
            "\nunilith: {name} runs in the background; `unilith logs -f {name}` shows what it prints, `unilith stop {name}` ends it"
        );
        if let Err(e) = self.release() {
            eprintln!("unilith: it goes when this terminal does: {e}");
        }
        if let Some(parent) = PARENT.get() {
            let _ = kill_process(*parent, Signal::USR1);
        }
        loop {
            thread::park();
        }
    }

    fn release(&self) -> io::Result<()> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.log)?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        // Last, so that what fails is said.
        setsid()?;
        rustix::stdio::dup2_stderr(&log)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str, pieces: &[&str]) -> (String, bool) {
        let leave = Leave { undo: Box::new(|| {}), name: String::new(), log: PathBuf::new() };
        let mut typed = Typed::new(io::empty(), keys.parse().unwrap(), leave);
        for piece in pieces {
            if !typed.is_complete {
                typed.typed(piece.as_bytes());
            }
        }
        (String::from_utf8(typed.passed).unwrap(), typed.is_complete)
    }

    #[test]
    fn keys_are_written_as_docker_writes_them() {
        assert_eq!(DEFAULT.parse(), Ok(Keys(vec![16, 17])));
        assert_eq!("ctrl-@,ctrl-[,ctrl-_,a,~".parse(), Ok(Keys(vec![0, 27, 31, b'a', b'~'])));
        for text in ["", "ctrl-", "ctrl-1", "ab", "a,,b", "ä", "a,"] {
            assert!(text.parse::<Keys>().is_err(), "{text}");
        }
        assert!(["a"; 33].join(",").parse::<Keys>().is_err());
    }

    #[test]
    fn the_whole_sequence_detaches_and_what_only_begins_like_it_is_typed() {
        assert_eq!(typed(DEFAULT, &["ls\u{10}", "\u{11}never"]), ("ls".into(), true));
        assert_eq!(typed(DEFAULT, &["\u{10}x\u{10}\u{10}", "\u{11}"]), ("\u{10}x\u{10}".into(), true));
        assert_eq!(typed(DEFAULT, &["\u{11}\u{10}"]), ("\u{11}".into(), false));
        assert_eq!(typed("a,a,b", &["aaab"]), ("a".into(), true));
        assert_eq!(typed("x", &["abx"]), ("ab".into(), true));
    }

    #[test]
    fn what_is_held_is_typed_when_the_input_ends() {
        let leave = Leave { undo: Box::new(|| {}), name: String::new(), log: PathBuf::new() };
        let mut typed = Typed::new(&b"a\x10"[..], DEFAULT.parse().unwrap(), leave);
        let mut all = Vec::new();
        typed.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"a\x10");
    }
}
