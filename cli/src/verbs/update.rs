// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith update`: other limits and another restart policy for machines that there are.

use crate::{
    fault::{Fault, Result},
    output::say,
    prepare,
};
use unilith_image::Size;
use unilith_machine::{
    MachineError,
    record::{Phase, Platform, Restart, Spec},
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
The restart policy holds at once. Memory and processors are those of the machine's next start (`unilith restart NAME`).

Examples:
  unilith update --restart on-failure:3 web
  unilith update -m 256M --cpus 2 web && unilith restart web")]
pub struct Args {
    /// Start the program again when it has ended: no, on-failure[:TIMES], always or unless-stopped
    #[arg(long, value_name = "WHEN")]
    restart: Option<Restart>,
    /// Memory of the machine, e.g. 64M
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Processors of the machine
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Platform::MAX_CPUS))
    )]
    cpus: Option<u32>,
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    if args.restart.is_none() && args.memory.is_none() && args.cpus.is_none() {
        return Err(Fault { code: 2, message: "say what is to change: --restart, -m or --cpus".into() });
    }
    super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        let limits = wanted(args, &machine)?;
        let machine = store.amend(&machine, |spec| change(spec, args.restart, limits))?;
        say!("{name}");
        let waits = args.memory.is_some() || args.cpus.is_some();
        if waits && machine.state.phase != Phase::Exited {
            let name = &machine.spec.name;
            eprintln!(
                "unilith: memory and processors are chosen when a machine starts: {name} has these after `unilith restart {name}`"
            );
        }
        Ok(())
    })
}

/// Memory and processors that the machine can be started with.
fn wanted(args: &Args, machine: &Machine) -> Result<(Option<u64>, Option<u32>)> {
    let spec = &machine.spec;
    let memory = args.memory.map(|size| {
        let image = spec.initrd.metadata().map_or(0, |m| m.len());
        prepare::check_memory(size.0, image, spec.kernel_kind, &spec.label)
    });
    Ok((memory.transpose()?, args.cpus))
}

fn change(
    spec: &mut Spec,
    restart: Option<Restart>,
    (memory, cpus): (Option<u64>, Option<u32>),
) -> std::result::Result<(), MachineError> {
    if spec.remove && restart.is_some_and(|restart| restart != Restart::No) {
        return Err(MachineError::IsRemoved(spec.name.clone()));
    }
    spec.restart = restart.unwrap_or(spec.restart);
    spec.memory = memory.unwrap_or(spec.memory);
    spec.cpus = cpus.unwrap_or(spec.cpus);
    Ok(())
}
