// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith cc`: a C compiler for programs that are linked with the micro kernel later.

use crate::{
    fault::{Fault, Result},
    linked,
    progress::Progress,
};
use std::ffi::OsString;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The compiler's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub fn act(args: &Args) -> Result<u8> {
    let progress = Progress::new();
    let outcome = linked::workshop()?.compile(&args.arguments, false, &progress);
    drop(progress);
    let outcome = outcome.map_err(|e| Fault::new(e.to_string()))?;
    eprint!("{}", outcome.messages);
    Ok(outcome.code)
}
