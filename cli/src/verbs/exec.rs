// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith exec`: one command in a running machine, for scripts.

use crate::{fault::Result, session};
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Answer in JSON, one object a line; failures as well, on standard error
    #[arg(long)]
    json: bool,
    machine: String,
    /// The command and its arguments; `help` lists the commands
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<std::ffi::OsString>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = session::find(store, &args.machine)?;
    let command: Vec<&[u8]> = args.command.iter().map(|word| word.as_encoded_bytes()).collect();
    session::Session::open(&machine)?.run(&command, args.json)
}
