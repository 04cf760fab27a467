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

/// The longest file in the repository, in bytes.
const LONGEST: u64 = 256 << 10;

/// The paths that git keeps.
fn tracked(root: &Path) -> Result<String> {
    let listed = command(root, "git").args(["ls-files"]).output();
    let listed = listed.map_err(|e| Fault::new(format!("cannot run git: {e}")))?;
    Ok(String::from_utf8_lossy(&listed.stdout).into_owned())
}

/// What is built, fetched or generated is in no commit: every file of the repository is text, of a length that somebody can have written.
pub fn texts(root: &Path) -> Result<Count> {
    say!("== every tracked file is text of {} KiB at most", LONGEST >> 10);
    let mut count = Count::default();
    for path in tracked(root)?.lines() {
        let why = match std::fs::symlink_metadata(root.join(path)) {
            // Removed, and not yet committed.
            Err(_) => continue,
            Ok(about) if about.is_symlink() => continue,
            Ok(about) if about.len() > LONGEST => Some("is too long to have been written"),
            Ok(_) => {
                let is_text =
                    std::fs::read(root.join(path)).is_ok_and(|bytes| std::str::from_utf8(&bytes).is_ok());
                (!is_text).then_some("is no text")
            }
        };
        if let Some(why) = why {
            say!("{path} {why}: `git rm --cached {path}`, and name it in .gitignore");
            count.failed += 1;
        }
    }
    count.passed = u32::from(count.failed == 0);
    Ok(count)
}

/// shellcheck on every script of the repository.
pub fn scripts(root: &Path) -> Result<Count> {
    let listed = tracked(root)?;
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
