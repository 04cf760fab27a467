// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith start` and `unilith restart`: a machine that has ended runs again, with the same image, name and settings.

use crate::fault::{Fault, Result};
use std::time::Duration;
use unilith_machine::{
    MachineError,
    record::Phase,
    store::{Machine, Store},
};

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
        if machine.state.phase.is_alive() {
            super::stop::stop(store, &machine, args.time)?;
        }
        again(&store.find(&machine.spec.id)?, name)
    })
}

/// Starts a machine that has ended; prints what the user called it, as docker does.
fn again(machine: &Machine, called: &str) -> Result<()> {
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
    let Some(mut held) = machine.hold_when_free(None)? else {
        return Err(MachineError::NotFound(machine.spec.name.clone()).into());
    };
    held.renew()?;
    match super::run::detach(held, called)? {
        0 => Ok(()),
        code => Err(Fault { code, message: format!("machine {} did not start", machine.spec.name) }),
    }
}

/// How long is waited between two starts by `--restart`: twice as long each time, as docker does.
pub fn pause_before(attempt: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(60);
    Duration::from_millis(100).saturating_mul(1 << attempt.min(16)).min(LONGEST)
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
