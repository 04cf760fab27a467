// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith stop` and `unilith kill`.

use crate::fault::{Fault, Result};
use crate::output::say;
use std::time::{Duration, Instant};
use unilith_machine::{
    MachineError,
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Seconds the program has to end itself (unless said: those of `run --stop-timeout`, else 10)
    #[arg(short, long, value_name = "SECONDS")]
    time: Option<u64>,
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        stop(store, &store.find(name)?, args.time)?;
        say!("{name}");
        Ok(())
    })
}

/// Asks the program of a machine to end, and ends the machine when it does not.
pub fn stop(store: &Store, machine: &Machine, seconds: Option<u64>) -> Result<()> {
    machine.note_stop()?;
    super::pause::resume(machine);
    let seconds = seconds.or(machine.spec.stop_timeout).unwrap_or(10);
    match machine.stop(store, false, Duration::from_secs(seconds)) {
        // It has ended, and its supervisor was about to start it again.
        Err(MachineError::NotRunning(_)) if machine.try_hold()?.is_none() => {
            machine.hold_when_free(Some(Instant::now() + Duration::from_secs(seconds)))?;
            Ok(())
        }
        result => Ok(result?),
    }
}

#[derive(clap::Args, Clone, Debug)]
pub struct KillArgs {
    /// KILL ends the machine; TERM asks the program, as `stop` does
    #[arg(short, long, default_value = "KILL")]
    signal: String,
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn kill(store: &Store, args: &KillArgs) -> Result<u8> {
    let hard = match args.signal.to_ascii_uppercase().trim_start_matches("SIG") {
        "KILL" | "9" => true,
        "TERM" | "15" => false,
        other => return Err(Fault::new(format!("-s {other}: a machine can be sent KILL and TERM only"))),
    };
    super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        machine.note_stop()?;
        super::pause::resume(&machine);
        machine.stop(store, hard, Duration::from_secs(10))?;
        say!("{name}");
        Ok(())
    })
}
