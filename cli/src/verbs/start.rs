// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith start` and `unilith restart`: a machine that has ended runs again, with the same image, name and settings.

use crate::{
    fault::{Fault, Result},
    output::say,
};
use std::time::{Duration, Instant};
use unilith_machine::{
    MachineError,
    record::Phase,
    store::{Held, Machine, Store},
};

/// How often is looked whether a supervisor has let go of its machine.
const POLL: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        if machine.state.phase != Phase::Exited {
            return Err(Fault::new(format!("machine {} is running already", machine.spec.name)));
        }
        again(&machine, name)
    })
}

#[derive(clap::Args, Clone, Debug)]
pub struct RestartArgs {
    /// Seconds the program has to end itself (unless said: those of `run --stop-timeout`, else 10)
    #[arg(short, long, value_name = "SECONDS")]
    time: Option<u64>,
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn restart(store: &Store, args: &RestartArgs) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        if machine.spec.remove {
            return Err(Fault::new(format!(
                "machine {} was started with --rm and is removed when it ends: run it again instead",
                machine.spec.name
            )));
        }
        // One that its policy is about to start again is started at once.
        drop(super::stop::end(store, &machine, false, super::stop::grace(&machine, args.time))?);
        again(&store.find(&machine.spec.id)?, name)
    })
}

/// Starts a machine that has ended; prints what the user called it, as docker does.
fn again(machine: &Machine, called: &str) -> Result<()> {
    start(machine, Some(called))
}

/// Starts a machine that has ended.
pub fn start(machine: &Machine, shown: Option<&str>) -> Result<()> {
    for (what, path) in [("image", &machine.spec.initrd), ("kernel", &machine.spec.kernel)] {
        if !path.exists() {
            return Err(Fault::new(format!(
                "the {what} of machine {} is no longer in the cache ({}): remove the machine and run {} again",
                machine.spec.name,
                path.display(),
                machine.spec.program
            )));
        }
    }
    let Some(mut held) = hold(machine)? else {
        // As with docker: its restart policy starts it again, and counts as running meanwhile.
        eprintln!("unilith: machine {} is being started again by its restart policy", machine.spec.name);
        if let Some(shown) = shown {
            say!("{shown}");
        }
        return Ok(());
    };
    held.renew()?;
    match super::run::detach(held, shown)? {
        0 => Ok(()),
        code => Err(Fault { code, message: format!("machine {} did not start", machine.spec.name) }),
    }
}

/// The machine once its supervisor, which is about to end, has let go; `None`: that starts it again by itself.
fn hold(machine: &Machine) -> Result<Option<Held>> {
    loop {
        if let Some(held) = machine.hold_when_free(Some(Instant::now() + POLL))? {
            return Ok(Some(held));
        }
        // Removed, by a supervisor or by a user.
        let gone = || MachineError::NotFound(machine.spec.name.clone());
        let machine = machine.again().ok_or_else(gone)?;
        if machine.state.phase != Phase::Exited || machine.is_restarting() {
            return Ok(None);
        }
    }
}

/// How long is waited between two starts by `--restart`: twice as long each time, as docker does.
pub fn pause_before(attempt: u32) -> Duration {
    const MAX_PAUSE: Duration = Duration::from_secs(60);
    Duration::from_millis(100).saturating_mul(1 << attempt.min(16)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let pauses = [0, 1, 5, 30].map(|n| pause_before(n).as_millis());
        assert_eq!(pauses, [100, 200, 3200, 60_000]);
    }
}
