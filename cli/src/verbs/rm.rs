// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith rm`.

use crate::fault::Result;
use crate::output::say;
use std::time::{Duration, Instant};
use unilith_machine::{
    MachineError,
    store::{Machine, Store},
};

/// How long a supervisor whose machine has ended may take to end itself.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(10);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// End machines that are running
    #[arg(short, long)]
    force: bool,
    /// Also the volumes that were given no name: those that the image declares
    #[arg(short, long)]
    volumes: bool,
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        remove_with(store, &machine, name, args.force, args.volumes)?;
        say!("{name}");
        Ok(())
    })
}

/// Removes a machine, and ends it before if `force` says so.
pub fn remove(store: &Store, machine: &Machine, called: &str, force: bool) -> Result<()> {
    remove_with(store, machine, called, force, false)
}

fn remove_with(store: &Store, machine: &Machine, called: &str, force: bool, volumes: bool) -> Result<()> {
    let held = match machine.try_hold()? {
        Some(held) => Some(held),
        None if force => super::stop::end(store, machine, true, Duration::ZERO)?,
        // It has ended, and its supervisor is about to; unless that starts it again.
        None if machine.wait(Some(Instant::now()))?.is_some() => {
            machine.hold_when_free(Some(Instant::now() + SUPERVISOR_LIMIT))?
        }
        None => return Err(MachineError::Running(called.into()).into()),
    };
    match held {
        Some(held) if volumes => Ok(held.remove_with_volumes()?),
        Some(held) => Ok(held.remove()?),
        None if machine.exists() => Err(MachineError::Running(called.into()).into()),
        // Started with --rm: its supervisor has removed it.
        None => Ok(()),
    }
}
