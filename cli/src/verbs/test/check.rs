// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that pass or fail as a whole: formatting, lints, scripts.

use super::pool::Count;
use crate::{
    fault::{Fault, Result},
    output::say,
    repository,
};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// A program of the developer's, started in the repository.
pub fn command(root: &Path, program: &str) -> Command {
    let mut command =
        if program == "cargo" { Command::new(repository::cargo()) } else { Command::new(program) };
    command.current_dir(root).stdin(Stdio::null()).env("UNILITH_ROOT", root);
    command
}

/// Runs a check.
pub fn check(root: &Path, program: &str, args: &[&str]) -> Result<Count> {
    say!("== {program} {}", args.join(" "));
    let status = command(root, program).args(args).status();
    let status = status.map_err(|e| Fault::new(format!("cannot run {program}: {e}")))?;
    Ok(Count { passed: status.success().into(), failed: (!status.success()).into() })
}

/// shellcheck on every script of the repository.
pub fn scripts(root: &Path) -> Result<Count> {
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
