// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run`: `create` and `start` in one; without --detach this process is the container's engine as well, and waits for its end.

use super::{
    create::{self, Setting},
    manage,
};
use crate::{
    fault::{Fault, Result},
    terminal::{self, Raw},
};
use rustix::process::{Pid, WaitOptions, waitpid};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH},
    iterator::Signals,
};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    thread::{self, JoinHandle},
};
use unilith_container::{
    bundle::Container,
    record::{Containers, Record},
    terminal as console,
};

/// What the shell says of a program that a signal ended, less the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

#[derive(clap::Args, Clone, Debug)]
// Two of one name are within each other.
#[group(id = "run")]
pub struct Args {
    #[command(flatten)]
    create: create::Args,
    /// Do not wait for its end
    #[arg(short, long)]
    detach: bool,
    /// Leave the container, once it has ended, to `delete`
    #[arg(long)]
    keep: bool,
    /// Accepted for engines that give it: no process of a machine becomes an orphan of the host's
    #[arg(long, hide = true)]
    no_subreaper: bool,
}

pub fn act(setting: &Setting<'_>, all: &Containers, args: &Args) -> Result<u8> {
    let mut create = args.create.clone();
    let has_terminal = Container::read(&create.bundle)?.terminal;
    match (has_terminal, args.detach, create.console_socket.is_some()) {
        (true, true, false) => {
            return Err(Fault::new("process.terminal with --detach: --console-socket is missing"));
        }
        (false, _, true) | (_, false, true) => {
            return Err(Fault::new(
                "--console-socket: there is no terminal to give (process.terminal and --detach)",
            ));
        }
        _ => {}
    }
    let console = (has_terminal && !args.detach).then(Console::make).transpose()?;
    if let Some(console) = &console {
        create.console_socket = Some(console.path());
    }
    // Before the program is there that they are for.
    let signals = (!args.detach).then(|| Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]));
    let signals = signals.transpose().map_err(|e| Fault::new(format!("cannot watch for signals: {e}")))?;
    create::act(setting, all, &create)?;
    let id = &create.id;
    let result = (|| {
        let terminal = console.as_ref().map(Console::join).transpose()?;
        create::start(all, id)?;
        let record = all.find(id)?;
        match signals {
            Some(signals) => {
                pass_on(all.clone(), record.clone(), signals);
                let code = wait(&record)?;
                terminal.into_iter().for_each(Terminal::finish);
                Ok(code)
            }
            None => Ok(0),
        }
    })();
    if result.is_err() || !args.detach && !args.keep {
        manage::delete(all, &manage::Delete { force: true, id: id.clone() })?;
    }
    result
}

/// The container's process is a child of this one, whoever of its threads made it.
fn wait(record: &Record) -> Result<u8> {
    let failed = |why: String| Fault::new(format!("cannot wait for the container: {why}"));
    let pid = i32::try_from(record.pid).ok().and_then(Pid::from_raw);
    loop {
        match waitpid(pid, WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let signalled = || status.terminating_signal().map(|signal| ENDED_BY_SIGNAL + signal);
                let code = status.exit_status().or_else(signalled);
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed(e.to_string())),
        }
    }
}

/// Sends the container's program the signals that this process gets.
fn pass_on(all: Containers, record: Record, mut signals: Signals) {
    thread::spawn(move || {
        for signal in signals.forever() {
            // A program that has ended needs none.
            let _ = u8::try_from(signal).map(|number| manage::send(&all, &record, number));
        }
    });
}

/// The console socket that this process listens on in place of an engine.
struct Console {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Console {
    fn make() -> Result<Console> {
        let failed = |e: io::Error| Fault::new(format!("no socket for the terminal: {e}"));
        let folder = tempfile::Builder::new().prefix("unilith-run-").tempdir().map_err(failed)?;
        let listener = UnixListener::bind(folder.path().join("console")).map_err(failed)?;
        Ok(Console { folder, listener })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    /// Joins the container's terminal to the streams of this process.
    fn join(&self) -> Result<Terminal> {
        let failed = |e: io::Error| Fault::new(format!("the terminal: {e}"));
        let master = console::take(&self.listener)?;
        let raw = Raw::enter();
        let again = || master.try_clone().map_err(failed);
        watch_size(again()?)?;
        let (mut input, mut output) = (again()?, again()?);
        // It ends with this process.
        thread::spawn(move || io::copy(&mut io::stdin(), &mut input));
        let copy = thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            // Once nobody has its other side, it cannot be read (EIO).
            while let Ok(length) = output.read(&mut buffer) {
                let mut out = io::stdout();
                if length == 0 || out.write_all(&buffer[..length]).and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
        });
        Ok(Terminal { copy, _raw: raw })
    }
}

/// Gives the container's terminal the size of this one, now and whenever it changes.
fn watch_size(master: File) -> Result<()> {
    let set = move || {
        // One that has ended has no size.
        let _ = terminal::set_size(&master, terminal::size());
    };
    let signals = Signals::new([SIGWINCH]);
    let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch the terminal: {e}")))?;
    set();
    thread::spawn(move || signals.forever().for_each(|_| set()));
    Ok(())
}

struct Terminal {
    copy: JoinHandle<()>,
    /// Restored when this is dropped.
    _raw: Option<Raw>,
}

impl Terminal {
    /// Waits for the last of what the program printed.
    fn finish(self) {
        let _ = self.copy.join();
    }
}
