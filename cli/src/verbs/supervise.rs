// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The supervisor of a detached machine. Its standard input is the machine's lock file, already locked; its standard
//! output takes [`Report`]s, one JSON value a line, for as long as the `run -d` that started it listens.

use crate::{
    backtrace,
    fault::{Fault, Result},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    time::{Duration, Instant},
};
use unilith_machine::{
    output::Sinks,
    record::Outcome,
    store::{Held, Store},
    supervisor::{self, Watcher},
};

/// How often a supervisor that waits looks whether it still should.
const POLL: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    id: String,
}

/// What the one who started the machine is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    Started,
    Ready(String),
    Note(String),
    Ended(Outcome),
}

pub fn act(args: &Args) -> Result<u8> {
    // Out of the terminal's session: closing it, or Ctrl-C in it, is not meant for us. Fails only for a group's leader,
    // which `run -d` does not make us.
    rustix::process::setsid().map_err(|e| Fault::new(format!("cannot leave the terminal's session: {e}")))?;
    let lock =
        io::stdin().as_fd().try_clone_to_owned().map_err(|e| Fault::new(format!("no lock given: {e}")))?;
    let store = Store::open()?;
    let mut machine = Held::inherit(&store, &args.id, File::from(lock))?;
    crate::health::watch(&store, &machine);
    let mut starts = 0;
    let outcome = loop {
        let input: Option<Box<dyn io::Read + Send>> = Some(Box::new(io::empty()));
        let result = supervisor::supervise(&mut machine, &crate::boot::files, input, &mut Reporter);
        let outcome = result.unwrap_or_else(|error| Outcome::failed(error.to_string()));
        // `unilith update` may have changed its policy.
        machine.reload_spec();
        if machine.is_to_stay_ended() || !machine.spec.restart.again(&outcome, starts) {
            break outcome;
        }
        machine.state.restarting = true;
        machine.save()?;
        // For `unilith logs`.
        backtrace::explain(&machine, &outcome);
        if !pause(&mut machine, &outcome, starts) {
            machine.state.restarting = false;
            machine.save()?;
            break outcome;
        }
        starts += 1;
        machine.renew()?;
    };
    // For `unilith logs`.
    backtrace::explain(&machine, &outcome);
    let (code, removed) = (outcome.code, if machine.spec.remove { machine.remove() } else { Ok(()) });
    // Last: whoever hears of the end finds nothing left.
    report(&Report::Ended(outcome));
    removed?;
    Ok(code)
}

/// Waits before another start; `false`: a user wants the machine to stay ended, or has changed its policy.
fn pause(machine: &mut Held, outcome: &Outcome, starts: u32) -> bool {
    let until = Instant::now() + super::start::pause_before(starts);
    while Instant::now() < until {
        if machine.is_to_stay_ended() {
            return false;
        }
        std::thread::sleep(POLL);
    }
    machine.reload_spec();
    machine.spec.restart.again(outcome, starts)
}

fn report(report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else { return };
    line.push(b'\n');
    // Nobody listens any more once `run -d` has returned.
    let _ = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
}

struct Reporter;

impl Watcher for Reporter {
    fn sinks(&mut self) -> Sinks {
        Sinks::none()
    }

    fn started(&mut self) {
        report(&Report::Started);
    }

    fn ready(&mut self, text: &str) {
        report(&Report::Ready(text.into()));
    }

    fn note(&mut self, text: &str) {
        report(&Report::Note(text.into()));
    }
}
