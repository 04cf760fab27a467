// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith rm`.

use crate::fault::Result;
use crate::output::say;
use std::time::{Duration, Instant};
use unilith_machine::{
    MachineError,
    store::{Held, Store},
};

/// How long a supervisor whose machine has ended may take to end itself.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// End machines that are running
    #[arg(short, long)]
    force: bool,
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        let held = match machine.try_hold()? {
            Some(held) => Some(held),
            None if args.force => hold_by_force(store, &machine.spec.id)?,
            // It has ended, and its supervisor is about to; unless that starts it again.
            None if machine.wait(Some(Instant::now()))?.is_some() => {
                machine.hold_when_free(Some(Instant::now() + SUPERVISOR_LIMIT))?
            }
            None => return Err(MachineError::Running(name.into()).into()),
        };
        match held {
            Some(held) => held.remove()?,
            None if machine.exists() => return Err(MachineError::Running(name.into()).into()),
            // Started with --rm: its supervisor has removed it.
            None => {}
        }
        say!("{name}");
        Ok(())
    })
}

/// Ends the machine and waits until its supervisor has let go; `None` if that removed it. The wish is noted again and again: one
/// that starts the machine anew at this very moment forgets what was noted before.
fn hold_by_force(store: &Store, id: &str) -> Result<Option<Held>> {
    loop {
        let machine = match store.find(id) {
            Ok(machine) => machine,
            Err(MachineError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(held) = machine.try_hold()? {
            return Ok(Some(held));
        }
        // Its supervisor may remove the folder meanwhile.
        if let Err(error) = machine.note_stop()
            && machine.exists()
        {
            return Err(error.into());
        }
        super::pause::resume(&machine);
        match machine.stop(store, true, Duration::ZERO) {
            Ok(()) | Err(MachineError::NotRunning(_) | MachineError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(held) = machine.hold_when_free(Some(Instant::now() + POLL))? {
            return Ok(Some(held));
        }
    }
}
