// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith stop` and `unilith kill`.

use crate::fault::{Fault, Result};
use crate::output::say;
use std::time::{Duration, Instant};
use unilith_machine::{
    MachineError, events,
    store::{Held, Machine, Store},
    supervisor,
};

/// How long a supervisor that was told to end has to let go of its machine before it is told again.
const POLL: Duration = Duration::from_millis(50);

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
    if machine.try_hold()?.is_some() {
        return Err(MachineError::NotRunning(machine.spec.name.clone()).into());
    }
    end(store, machine, false, grace(machine, seconds))?;
    events::note(store.shared(), &machine.spec, "stop", &[]);
    Ok(())
}

/// How long the program has to end itself: what this command was told, else what `run` was told, else docker's.
pub fn grace(machine: &Machine, seconds: Option<u64>) -> Duration {
    supervisor::grace(seconds.or(machine.spec.stop_timeout))
}

/// Ends the machine for good and waits until its supervisor has let go; `None` if that removed the machine. The wish is noted
/// again and again: a supervisor that starts the machine anew at this very moment forgets what was noted before.
pub fn end(store: &Store, machine: &Machine, hard: bool, grace: Duration) -> Result<Option<Held>> {
    loop {
        let machine = match store.find(&machine.spec.id) {
            Ok(machine) => machine,
            Err(MachineError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(held) = machine.try_hold()? {
            return Ok(Some(held));
        }
        // Its supervisor may remove the folder meanwhile.
        if let Err(error) = machine.note_stop(grace)
            && machine.exists()
        {
            return Err(error.into());
        }
        super::pause::resume(&machine);
        match machine.stop(store, hard, grace) {
            Ok(()) | Err(MachineError::NotRunning(_) | MachineError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(held) = machine.hold_when_free(Some(Instant::now() + POLL))? {
            return Ok(Some(held));
        }
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
        if machine.try_hold()?.is_some() {
            return Err(MachineError::NotRunning(machine.spec.name).into());
        }
        end(store, &machine, hard, Duration::from_secs(10))?;
        say!("{name}");
        Ok(())
    })
}
