// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith inspect`.

use crate::fault::Result;
use serde::Serialize;
use unilith_machine::{
    record::{Spec, State},
    store::Store,
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Accepted for symmetry with the other listings: the output is JSON anyway
    #[arg(long)]
    json: bool,
    #[arg(required = true)]
    machines: Vec<String>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    spec: Spec,
    state: State,
    /// Names of `state.missing_calls`.
    missing_calls: Vec<&'static str>,
    log: std::path::PathBuf,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let mut entries = Vec::new();
    let found = super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        let name = |number: &u32| syscall_table::row(*number).map_or("no such call", |row| row.name);
        let missing_calls = machine.state.missing_calls.iter().map(name).collect();
        entries.push(Entry {
            missing_calls,
            log: machine.console_log(),
            spec: machine.spec,
            state: machine.state,
        });
        Ok(())
    });
    super::print_json(&entries)?;
    found
}
