// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands in a running machine, with this process' streams: what `exec` and `attach` have in common.

use crate::{
    fault::{Fault, Result},
    object,
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
use unilith_overlay::{Client, Event, Failure, How, Input};

/// What shells answer for a command that SIGINT ended.
const INTERRUPTED: u8 = 130;

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
        let mut explained = false;
        let code = loop {
            match running.next() {
                Event::Out(bytes) => {
                    if io::stdout().write_all(&bytes).and_then(|()| io::stdout().flush()).is_err() {
                        // Nobody reads it any more (`| head`): as SIGPIPE does it.
                        running.input().interrupt()?;
                    }
                }
                // There is nowhere else to say that standard error is gone.
                Event::Err(bytes) => drop(io::stderr().write_all(&bytes)),
                Event::Failure(failure) => {
                    complain(&name, &failure, json);
                    explained = true;
                }
                Event::Exit(exit) => {
                    if exit.how == How::Killed && !explained {
                        eprintln!("unilith: {name} was ended by the kernel");
                    }
                    break exit.code;
                }
                Event::Lost(why) => return Err(Fault::new(format!("{name}: {why}"))),
            }
        };
        self.interrupts.aim(None);
        drop(feeder);
        Ok(code)
    }
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
