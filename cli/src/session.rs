// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands in a running machine, with this process' streams: what `exec` and `attach` have in common.

use crate::{
    fault::{Fault, Result},
    object, terminal,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    termios::tcgetwinsize,
};
use std::{
    cell::RefCell,
    io::{self, IsTerminal, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread,
};
use unilith_machine::store::{Machine, Store};
use unilith_overlay::{Client, Event, Failure, How, Input, Program, Running};

/// What shells answer for a command that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// What docker answers for a program whose container ended first (SIGKILL).
const ENDED_WITH_MACHINE: u8 = 137;
/// What shells answer for a program that SIGPIPE ended.
const NOBODY_READS: u8 = 141;

/// A running machine that has an overlay.
pub fn find(store: &Store, name: &str) -> Result<Machine> {
    let machine = store.find(name)?;
    if !machine.state.phase.is_alive() {
        return Err(unilith_machine::MachineError::NotRunning(machine.spec.name).into());
    }
    if !machine.spec.overlay {
        let why = "it was started with --set overlay=off, or `run` said why";
        return Err(Fault::new(format!("machine {} has no overlay: {why}", machine.spec.name)));
    }
    Ok(machine)
}

pub fn connect(machine: &Machine) -> Result<Client> {
    Ok(Client::connect(&machine.folder)?)
}

/// Ctrl-C, for the command that runs.
#[derive(Clone)]
struct Interrupts(Arc<Mutex<Target>>);

#[derive(Default)]
struct Target {
    command: Option<Input>,
    /// The command was interrupted once and still runs.
    asked: bool,
}

impl Interrupts {
    /// From now on Ctrl-C is the command's; the second one for the same command ends this process.
    fn watch() -> Result<Interrupts> {
        let target = Arc::new(Mutex::new(Target::default()));
        let signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT]);
        let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch for Ctrl-C: {e}")))?;
        let watched = target.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                let mut target = watched.lock().unwrap_or_else(PoisonError::into_inner);
                match &target.command {
                    Some(input) if !target.asked => {
                        // A line that is gone ends the command anyway.
                        let _ = input.interrupt();
                        target.asked = true;
                    }
                    _ => std::process::exit(INTERRUPTED.into()),
                }
            }
        });
        Ok(Interrupts(target))
    }

    fn aim(&self, command: Option<Input>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Target { command, asked: false };
    }
}

/// A session whose commands have this process' streams.
pub struct Session {
    pub client: Client,
    interrupts: Interrupts,
    known: RefCell<object::Known>,
}

impl Session {
    pub fn open(machine: &Machine) -> Result<Session> {
        let client = connect(machine)?;
        Ok(Session { client, interrupts: Interrupts::watch()?, known: RefCell::default() })
    }

    /// Runs a command to its end and answers its exit code.
    pub fn run(&self, command: &[impl AsRef<[u8]>], json: bool) -> Result<u8> {
        let columns = match io::stdout().is_terminal() {
            true => tcgetwinsize(io::stdout()).map_or(80, |size| size.ws_col),
            false => 0,
        };
        let sent = object::send(command, &mut self.known.borrow_mut())?;
        let running = self.client.start(&sent.command, json, columns)?;
        self.interrupts.aim(Some(running.input()));
        let feeder = Feeder::start(running.input(), sent.input)?;
        let name = String::from_utf8_lossy(command.first().map_or(&b""[..], AsRef::as_ref)).into_owned();
        let code = match copy(&running, &name, json) {
            Ended::Code(code) => code,
            Ended::Unread => {
                // As SIGPIPE does it.
                running.input().interrupt()?;
                copy_no_more(&running)
            }
            Ended::Lost(why) => return Err(Fault::new(format!("{name}: {why}"))),
        };
        self.interrupts.aim(None);
        drop(feeder);
        Ok(code)
    }

    /// Runs a program of the image to its end and answers its exit code.
    pub fn program(&self, program: &Program<'_>) -> Result<u8> {
        let has_terminal = program.terminal.is_some();
        let raw = (has_terminal && program.input).then(terminal::Raw::enter).flatten();
        let running = self.client.program(program)?;
        if let Some(raw) = &raw {
            leave_raw_at_end(raw)?;
        }
        if has_terminal {
            terminal::watch_size(running.input(), terminal::size)?;
        }
        self.interrupts.aim(Some(running.input()));
        let feeder = program.input.then(|| Feeder::start(running.input(), Vec::new())).transpose()?;
        let name = String::from_utf8_lossy(program.arguments.first().copied().unwrap_or_default());
        let mut first = None;
        // What is printed of a failure is printed on a terminal that returns the carriage.
        let ended = loop {
            match running.next() {
                Event::Failure(failure) => {
                    first = Some(failure);
                    break None;
                }
                event => {
                    if let Some(ended) = one(event) {
                        break Some(ended);
                    }
                }
            }
        };
        drop(raw);
        if let Some(failure) = &first {
            complain(&name, failure, false);
        }
        self.interrupts.aim(None);
        let ended = ended.unwrap_or_else(|| copy(&running, &name, false));
        drop(feeder);
        match ended {
            Ended::Code(code) => Ok(code),
            // The session ends with this process, and the program hears of that.
            Ended::Unread => Ok(NOBODY_READS),
            Ended::Lost(why) => {
                Err(Fault { code: ENDED_WITH_MACHINE, ..Fault::new(format!("{name}: {why}")) })
            }
        }
    }
}

/// How a command or program ended, as this process sees it.
enum Ended {
    Code(u8),
    /// Nobody reads its output any more (`| head`).
    Unread,
    Lost(String),
}

/// Copies what one event brings; `None`: it goes on.
fn one(event: Event) -> Option<Ended> {
    match event {
        Event::Out(bytes) => {
            let written = io::stdout().write_all(&bytes).and_then(|()| io::stdout().flush());
            written.is_err().then_some(Ended::Unread)
        }
        Event::Err(bytes) => {
            // There is nowhere else to say that standard error is gone.
            let _ = io::stderr().write_all(&bytes);
            None
        }
        Event::Failure(_) | Event::Started(_) => None,
        Event::Exit(exit) => Some(Ended::Code(exit.code)),
        Event::Lost(why) => Some(Ended::Lost(why)),
    }
}

/// Copies output until the command ends.
fn copy(running: &Running, name: &str, json: bool) -> Ended {
    let mut explained = false;
    loop {
        match running.next() {
            Event::Failure(failure) => {
                complain(name, &failure, json);
                explained = true;
            }
            event => {
                let killed = matches!(&event, Event::Exit(exit) if exit.how == How::Killed);
                if killed && !explained {
                    eprintln!("unilith: {name} was ended by the kernel");
                }
                if let Some(ended) = one(event) {
                    return ended;
                }
            }
        }
    }
}

/// Waits for the end of a command whose output nobody reads.
fn copy_no_more(running: &Running) -> u8 {
    loop {
        match running.next() {
            Event::Exit(exit) => return exit.code,
            Event::Lost(_) => return INTERRUPTED,
            _ => {}
        }
    }
}

/// Signals that end this process give the user's terminal back first.
fn leave_raw_at_end(raw: &terminal::Raw) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    let undo = raw.undo();
    let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGTERM]);
    let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch for signals: {e}")))?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            undo();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn complain(command: &str, failure: &Failure, json: bool) {
    if json {
        let object = serde_json::json!({
            "error": {
                "command": command,
                "subject": failure.subject,
                "errno": failure.errno,
                "message": failure.text,
            }
        });
        eprintln!("{object}");
    } else if failure.subject.is_empty() {
        eprintln!("{command}: {}", failure.text);
    } else {
        eprintln!("{command}: {}: {}", failure.subject, failure.text);
    }
}

/// Copies standard input to a command that asks for it, until it is dropped.
struct Feeder {
    /// Closed to end it.
    _end: OwnedFd,
}

impl Feeder {
    /// `first` comes in front of standard input.
    fn start(input: Input, first: Vec<u8>) -> Result<Feeder> {
        let (ended, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| Fault::new(format!("cannot make a pipe: {e}")))?;
        thread::spawn(move || feed(&input, &first, &ended));
        Ok(Feeder { _end: end })
    }
}

fn feed(input: &Input, first: &[u8], ended: &OwnedFd) {
    if !input.wanted() || !first.is_empty() && !input.write(first).is_ok_and(|taken| taken) {
        return;
    }
    let stdin = io::stdin();
    let mut buffer = [0; 16 << 10];
    loop {
        // What the command does not read stays for the next one.
        let mut fds =
            [PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        let _ = poll(&mut fds, None);
        if !fds[0].revents().is_empty() {
            return;
        }
        match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) => {
                // The command may have ended in this moment.
                let _ = input.end();
                return;
            }
            Ok(length) => {
                if !input.write(&buffer[..length]).is_ok_and(|taken| taken) {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                let _ = input.end();
                return;
            }
        }
    }
}
