// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith completions`.

use crate::fault::Result;
use clap_complete::Shell;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    shell: Shell,
}

pub fn act<C: clap::CommandFactory>(args: &Args) -> Result<u8> {
    clap_complete::generate(args.shell, &mut C::command(), "unilith", &mut std::io::stdout());
    Ok(0)
}
