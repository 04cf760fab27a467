// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith pause` and `unilith unpause`: the machine's process stands still, with all its memory and connections.

use crate::{
    fault::{Fault, Result},
    output::say,
};
use rustix::process::Signal;
use unilith_machine::{
    MachineError, events,
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args, pause: bool) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        set(store, &store.find(name)?, pause)?;
        say!("{name}");
        Ok(())
    })
}

/// Stops a machine's process or lets it go on.
pub fn set(store: &Store, machine: &Machine, pause: bool) -> Result<()> {
    let process = machine.state.process.filter(|_| machine.state.phase.is_alive());
    let Some(process) = process else {
        return Err(MachineError::NotRunning(machine.spec.name.clone()).into());
    };
    if is_paused(machine) == pause {
        let what = if pause { "paused already" } else { "not paused" };
        return Err(Fault::new(format!("machine {} is {what}", machine.spec.name)));
    }
    if !process.signal(if pause { Signal::STOP } else { Signal::CONT }) {
        return Err(MachineError::NotRunning(machine.spec.name.clone()).into());
    }
    events::note(store.shared(), &machine.spec, if pause { "pause" } else { "unpause" }, &[]);
    Ok(())
}

/// Whether the machine's process is stopped (proc(5), the state of /proc/PID/stat).
pub fn is_paused(machine: &Machine) -> bool {
    let Some(process) = machine.state.process.filter(|_| machine.state.phase.is_alive()) else {
        return false;
    };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Lets a paused machine go on, so that it can be asked to end.
pub fn resume(machine: &Machine) {
    if is_paused(machine)
        && let Some(process) = machine.state.process
    {
        process.signal(Signal::CONT);
    }
}
