// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith test`: formatting, lints, host tests, then whole-system tests that boot machines.

use crate::output::say;
use crate::{
    fault::{Fault, Result},
    repository,
};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};
use unilith_machine::{record::Network, support};

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

/// Whole-system tests that run on process machines as well. The others are of QEMU, of the command with a guest of a few
/// bytes, of pages and packages, or would build further kernels (`kernel`, `overlay`: they pass there with
/// UNILITH_TEST_MACHINE=process).
const ON_PROCESS_MACHINES: [&str; 25] = [
    "debian",
    "exec",
    "forking",
    "languages",
    "lives",
    "memcached",
    "menu",
    "mounts",
    "network",
    "networks",
    "nginx",
    "overlay_programs",
    "processes",
    "profile",
    "programs",
    "ptrace",
    "raw",
    "redis",
    "registry",
    "servers",
    "snapshots",
    "sqlite",
    "static_image",
    "static_programs",
    "trace",
];

/// Tests of whole machines that have a module `long`.
const WITH_LONG: [&str; 6] = ["clients", "containers", "fuzz", "lives", "process_suites", "processors"];

/// Modules of tests that only `--long` runs: kernels that check themselves take half an hour each to build.
const LONG: &[&str] = &["--skip", "checks::", "--skip", "long::"];

/// What a part of the run came to.
#[derive(Clone, Copy, Default)]
struct Count {
    passed: u32,
    failed: u32,
}

pub fn act(args: &Args) -> Result<u8> {
    let root = repository::sources("unilith test")?;
    let mut total = Count::default();
    let mut part = |name: &str, count: Result<Count>| -> Result<()> {
        let count = count?;
        say!("== {name}: {} passed, {} failed", count.passed, count.failed);
        total.passed += count.passed;
        total.failed += count.failed;
        Ok(())
    };
    if args.kvm {
        let tests = ["test", "--locked", "--release", "-p", "unilith-tests", "--test", "kvm"];
        let harness = ["--test-threads=1", "--nocapture"];
        let programs = ON_PROCESS_MACHINES.join(" ");
        let filter = args.filter.as_deref();
        let mut asked = vec![
            ("UNILITH_TEST_KVM", if args.long { "suite" } else { "smoke" }),
            ("UNILITH_TEST_KVM_FILES", programs.as_str()),
        ];
        // The whole-system tests in there are told apart by kind of machine and file.
        let cargos = if args.long { Some("whole_system_tests") } else { filter };
        asked.extend(filter.filter(|_| args.long).map(|only| ("UNILITH_TEST_KVM_ONLY", only)));
        part("machines under KVM", tests_of(&root, &tests, cargos, &harness, &asked))?;
        say!("{} passed, {} failed", total.passed, total.failed);
        return Ok(u8::from(total.failed > 0));
    }
    let whole = args.filter.is_none();
    if !args.system {
        if whole {
            part("formatting", check(&root, "cargo", &["fmt", "--all", "--check"]))?;
            part("scripts", scripts(&root))?;
            let lints = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
            part("lints", check(&root, "cargo", &lints))?;
        }
        let tests = [
            "test",
            "--locked",
            "--workspace",
            "--exclude",
            "unilith-tests",
            "--exclude",
            "kernel",
            "--no-fail-fast",
        ];
        part("host tests", tests_of(&root, &tests, args.filter.as_deref(), &[], &[]))?;
    }
    if !args.host {
        let tests = ["test", "--locked", "--release", "-p", "unilith-tests", "--no-fail-fast"];
        // Two machines at a time on two processors: times stay meaningful.
        let one_by_one = ["--test-threads=1"];
        // What takes minutes under software emulation runs then, too.
        let slow: &[(&str, &str)] = if args.long { &[("UNILITH_TEST_LONG", "1")] } else { &[] };
        part("whole-system tests", tests_of(&root, &tests, args.filter.as_deref(), &one_by_one, slow))?;
        match support::lack_with(&Network::Auto) {
            Some(why) => say!("== process machines: skipped: {why}"),
            None => {
                let mut tests =
                    vec!["test", "--locked", "--release", "-p", "unilith-tests", "--no-fail-fast"];
                tests.extend(ON_PROCESS_MACHINES.iter().flat_map(|name| ["--test", name]));
                let machine = [("UNILITH_TEST_MACHINE", "process")];
                let filter = args.filter.as_deref();
                part("process machines", tests_of(&root, &tests, filter, &one_by_one, &machine))?;
            }
        }
        if args.long {
            let mut tests = vec!["test", "--locked", "--release", "-p", "unilith-tests", "--no-fail-fast"];
            tests.extend(WITH_LONG.iter().flat_map(|name| ["--test", name]));
            let harness = ["--ignored", "--test-threads=1", "--nocapture"];
            let machine: &[(&str, &str)] = match support::lack_with(&Network::Auto) {
                Some(_) => &[],
                None => &[("UNILITH_TEST_MACHINE", "process")],
            };
            part("what takes minutes", tests_of(&root, &tests, args.filter.as_deref(), &harness, machine))?;
        }
        // Marked so that `cargo test` alone does not build two kernels; they stay in the cache.
        let tests = ["test", "--locked", "-p", "unilith-linux", "--test", "machines", "--no-fail-fast"];
        let ignored = [&["--ignored", "--test-threads=1"], LONG].concat();
        let ignored = if args.long { &ignored[..2] } else { &ignored[..] };
        part("Linux's levels", tests_of(&root, &tests, args.filter.as_deref(), ignored, &[]))?;
        let tests = [
            "test",
            "--locked",
            "--release",
            "-p",
            "unilith-tests",
            "--test",
            "linked",
            "--test",
            "observers",
            "--test",
            "suites",
            "--test",
            "trial",
            "--no-fail-fast",
        ];
        part("programs of Linux's levels", tests_of(&root, &tests, args.filter.as_deref(), ignored, &[]))?;
    }
    say!("{} passed, {} failed", total.passed, total.failed);
    Ok(u8::from(total.failed > 0))
}

fn command(root: &Path, program: &str) -> Command {
    let mut command =
        if program == "cargo" { Command::new(repository::cargo()) } else { Command::new(program) };
    command.current_dir(root).stdin(Stdio::null()).env("UNILITH_ROOT", root);
    command
}

/// A check that passes or fails as a whole.
fn check(root: &Path, program: &str, args: &[&str]) -> Result<Count> {
    say!("== {program} {}", args.join(" "));
    let status = command(root, program).args(args).status();
    let status = status.map_err(|e| Fault::new(format!("cannot run {program}: {e}")))?;
    Ok(Count { passed: status.success().into(), failed: (!status.success()).into() })
}

/// shellcheck on every script of the repository.
fn scripts(root: &Path) -> Result<Count> {
    let listed = command(root, "git")
        .args(["ls-files"])
        .output()
        .map_err(|e| Fault::new(format!("cannot run git: {e}")))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let is_script = |path: &&str| {
        let begins =
            std::fs::read(root.join(path)).ok().map(|text| text.iter().take(32).copied().collect::<Vec<_>>());
        begins.is_some_and(|b| {
            b.starts_with(b"#!")
                && String::from_utf8_lossy(&b).lines().next().is_some_and(|l| l.ends_with("sh"))
        })
    };
    let scripts: Vec<&str> = listed.lines().filter(is_script).collect();
    check(root, "shellcheck", &scripts)
}

/// Runs cargo's tests and adds up what it prints. Cargo itself failing (a test that does not compile) counts as one.
fn tests_of(
    root: &Path,
    args: &[&str],
    filter: Option<&str>,
    harness: &[&str],
    env: &[(&str, &str)],
) -> Result<Count> {
    say!("== cargo {}", args.join(" "));
    let begin = Instant::now();
    let mut cargo = command(root, "cargo");
    cargo.args(args).args(filter).arg("--").args(harness).envs(env.iter().copied()).stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|e| Fault::new(format!("cannot run cargo: {e}")))?;
    let mut count = Count::default();
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
            say!("{line}");
            if let Some((passed, failed)) = summary(&line) {
                count.passed += passed;
                count.failed += failed;
            }
        }
    }
    let status = child.wait().map_err(|e| Fault::new(format!("cannot wait for cargo: {e}")))?;
    if !status.success() && count.failed == 0 {
        count.failed = 1;
    }
    say!("== took {} s", begin.elapsed().as_secs());
    Ok(count)
}

/// Reads `test result: ok. 3 passed; 1 failed; …`.
fn summary(line: &str) -> Option<(u32, u32)> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = rest.split("; ").map(|part| part.split(' ').next()?.parse().ok());
    Some((counts.next()??, counts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_summary_is_added_up() {
        let line = "test result: FAILED. 13 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.18s";
        assert_eq!(summary(line), Some((13, 1)));
        assert_eq!(summary("test x ... ok"), None);
    }
}
