// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith test`: formatting and lints, then all tests, side by side: those of the host, and whole-system tests that boot
//! machines.

mod binaries;
mod check;
mod plan;
mod pool;

use crate::{fault::Result, output::say, repository};
use pool::Count;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Only what needs no machine: formatting, lints, host tests
    #[arg(long)]
    host: bool,
    /// Only the whole-system tests
    #[arg(long, conflicts_with = "host")]
    system: bool,
    /// Only machines under KVM, in a machine that emulates one (docs/explanation/platforms.md); with --long all whole-system
    /// tests in it
    #[arg(long, conflicts_with_all = ["host", "system"])]
    kvm: bool,
    /// Also what takes hours: thousands of starts, kernels that check themselves
    #[arg(long, conflicts_with = "host")]
    long: bool,
    /// Only tests whose name contains this; with --kvm --long, only KIND/FILE that does (microvm/redis)
    filter: Option<String>,
}

/// How long each target of `fuzz` runs.
const FUZZ_SECONDS: &str = "300";

pub fn act(args: &Args) -> Result<u8> {
    let root = repository::sources("unilith test")?;
    let mut total = Count::default();
    let mut part = |name: &str, count: Count| {
        say!("== {name}: {} passed, {} failed", count.passed, count.failed);
        total.add(count);
    };
    if !args.kvm && !args.system && args.filter.is_none() {
        part("formatting", check::check(&root, "cargo", &["fmt", "--all", "--check"])?);
        part("files", check::texts(&root)?);
        part("scripts", check::scripts(&root)?);
        let lints = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
        part("lints", check::check(&root, "cargo", &lints)?);
        if args.long {
            part("fuzz targets", check::check(&root, "fuzz/run", &["all", FUZZ_SECONDS])?);
        }
    }
    let jobs = match plan::jobs(&root, args)? {
        Some(jobs) => jobs,
        None => {
            part("tests that compile", Count { passed: 0, failed: 1 });
            Vec::new()
        }
    };
    // What takes hours may be silent for hours.
    let max_silence = (!args.long && !args.kvm).then_some(pool::MAX_SILENCE);
    let outcome = pool::run(jobs, max_silence, &|line| say!("{line}"));
    for (name, count) in &outcome.counts {
        part(name, *count);
    }
    for failure in &outcome.failures {
        say!("failed: {}", failure.name);
        for line in &failure.reason {
            say!("    {line}");
        }
    }
    say!("{} passed, {} failed", total.passed, total.failed);
    Ok(u8::from(total.failed > 0))
}
