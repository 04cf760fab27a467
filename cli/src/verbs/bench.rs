// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith bench NAME`: runs one experiment of `bench/`, both sides in one run.

use crate::output::say;
use crate::{
    fault::{Fault, Result},
    repository,
};
use unilith_bench::Options;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The experiment; none: list them
    name: Option<String>,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Leave the Linux guest out
    #[arg(long)]
    micro_only: bool,
}

pub fn act(args: &Args) -> Result<u8> {
    let Some(name) = &args.name else {
        unilith_bench::experiments().for_each(|(name, what)| say!("{name:20} {what}"));
        return Ok(0);
    };
    let command = repository::executable()?;
    let options = Options {
        command,
        root: repository::sources("unilith bench")?,
        runs: usize::from(args.runs),
        micro_only: args.micro_only,
    };
    unilith_bench::run(name, &options).map_err(Fault::new)?;
    Ok(0)
}
