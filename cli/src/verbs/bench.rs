// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith bench NAME`: runs one experiment of `bench/`, both sides in one run.

use crate::output::say;
use crate::{
    boot,
    fault::{Fault, Result},
    repository,
};
use std::{collections::BTreeMap, path::PathBuf};
use unilith_bench::{
    Options,
    spectrum::{self, Spectrum},
};

mod report;

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith bench redis
  unilith bench spectrum redis                        # writes spectrum-redis.html
  unilith bench spectrum nginx --level micro --level process --runs 3 -o nginx.html
  unilith bench spectrum redis --build                # also builds UKL's kernel: half an hour
  sudo unilith bench --report this-computer.md        # what only a real processor shows, to send to the project")]
pub struct Args {
    /// The experiment; none: list them
    name: Option<String>,
    /// Of `spectrum`: redis, nginx, sqlite or memcached
    program: Option<String>,
    /// Of `spectrum`: the page that is written [default: spectrum-PROGRAM.html]
    #[arg(short, long, value_name = "FILE", requires = "program")]
    output: Option<PathBuf>,
    /// Of `spectrum`: only this level; may repeat
    #[arg(long, value_name = "LEVEL", requires = "program")]
    level: Vec<String>,
    /// Of `spectrum`: build Linux's kernels that are not built yet, which takes long
    #[arg(long, requires = "program")]
    build: bool,
    /// Write a page about this computer and what some experiments give on it, to be sent to the project: boot, syscall, fault,
    /// exits, redis and nginx, or the one that is named
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Leave the Linux guest out
    #[arg(long)]
    micro_only: bool,
}

pub fn act(args: &Args) -> Result<u8> {
    if let Some(path) = &args.report {
        return report::write(path, args);
    }
    let Some(name) = &args.name else {
        unilith_bench::experiments().for_each(|(name, what)| say!("{name:20} {what}"));
        say!("{SPECTRUM:20} one program at every level, as a page of plots: {}", known());
        return Ok(0);
    };
    let program = match (name.as_str(), &args.program) {
        (SPECTRUM, None) => {
            return Err(Fault::new(format!("bench {SPECTRUM}: name a program: {}", known())));
        }
        (SPECTRUM, Some(program)) if !spectrum::programs().any(|known| known == program) => {
            return Err(Fault::new(format!("bench {SPECTRUM} {program}: it is one of {}", known())));
        }
        (SPECTRUM, program) => program.as_ref(),
        (_, None) => None,
        (_, Some(program)) => {
            return Err(Fault::new(format!("bench {name} {program}: only {SPECTRUM} takes a program")));
        }
    };
    let command = repository::executable()?;
    let options = Options {
        command,
        root: repository::sources("unilith bench")?,
        runs: usize::from(args.runs),
        micro_only: args.micro_only,
    };
    let Some(program) = program else {
        unilith_bench::run(name, &options).map_err(Fault::new)?;
        return Ok(0);
    };
    let page = args.output.clone().unwrap_or_else(|| format!("{SPECTRUM}-{program}.html").into());
    let unbuilt = if args.build { BTreeMap::new() } else { unbuilt()? };
    let how = Spectrum { page, levels: args.level.clone(), unbuilt };
    spectrum::run(&options, program, &how).map_err(|e| Fault::new(format!("{SPECTRUM}: {e}")))?;
    Ok(0)
}

const SPECTRUM: &str = "spectrum";

fn known() -> String {
    spectrum::programs().collect::<Vec<_>>().join(", ")
}

/// The values of `--ukl` whose kernel is not in the cache, with what would build it.
fn unbuilt() -> Result<BTreeMap<String, String>> {
    let workshop = boot::workshop("")?;
    let mut unbuilt = BTreeMap::new();
    for level in spectrum::ukl_levels() {
        let is_built = workshop.is_built(&boot::options(level)?).map_err(|e| Fault::new(e.to_string()))?;
        if !is_built {
            let words = if level.is_empty() { String::new() } else { format!(" --ukl {level}") };
            let why = format!(
                "its kernel is not built: `unilith linux build{words}`, or --build, which takes half an hour"
            );
            unbuilt.insert(level.to_string(), why);
        }
    }
    Ok(unbuilt)
}
