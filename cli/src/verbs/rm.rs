// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith rm`.

use crate::fault::Result;
use crate::output::say;
use std::time::{Duration, Instant};
use unilith_machine::{MachineError, store::Store};

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
            Some(held) => held,
            // It has ended, and its supervisor is about to.
            None if machine.wait(Some(Instant::now()))?.is_some() => match machine.hold_when_free()? {
                Some(held) => held,
                None => return done(name),
            },
            None if !args.force => return Err(MachineError::Running(name.into()).into()),
            None => {
                machine.note_stop()?;
                super::pause::resume(&machine);
                machine.stop(store, true, Duration::ZERO)?;
                match machine.hold_when_free()? {
                    Some(held) => held,
                    // Started with --rm: its supervisor has removed it.
                    None => return done(name),
                }
            }
        };
        held.remove()?;
        done(name)
    })
}

fn done(name: &str) -> Result<()> {
    say!("{name}");
    Ok(())
}
