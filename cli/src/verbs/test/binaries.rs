// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test binaries: cargo builds them and tells where each of them is.

use super::check::command;
use crate::{
    fault::{Fault, Result},
    output::say,
};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

/// An executable of tests, built.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Its package's name and its own: `posix`, `unilith-tests/redis`.
    pub name: String,
    pub executable: PathBuf,
    /// Its package's folder, in which cargo would start it.
    pub folder: PathBuf,
}

impl Binary {
    /// The file of tests that it was built from, without its package: `redis`.
    pub fn file(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

/// Has cargo build tests, `cargo test --no-run ARGS`. None of them if something does not compile, which cargo has said.
pub fn build(root: &Path, args: &[&str]) -> Result<Option<Vec<Binary>>> {
    let fixed = ["test", "--no-run", "--locked", "--message-format=json-render-diagnostics"];
    say!("== cargo {} {}", fixed.join(" "), args.join(" "));
    let mut cargo = command(root, "cargo");
    cargo.args(fixed).args(args).stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|e| Fault::new(format!("cannot run cargo: {e}")))?;
    let mut binaries = Vec::new();
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
            binaries.extend(binary(&line));
        }
    }
    let status = child.wait().map_err(|e| Fault::new(format!("cannot wait for cargo: {e}")))?;
    Ok(status.success().then_some(binaries))
}

/// The test binary that a line of cargo's `--message-format=json` tells of.
fn binary(line: &str) -> Option<Binary> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = message["target"]["name"].as_str()?;
    // The folder's name is the package's, but for the prefix that all packages of the host have.
    let package = folder.file_name()?.to_str()?;
    let is_of_tests = message["target"]["kind"][0] == "test";
    Some(Binary {
        name: if is_of_tests { format!("{package}/{target}") } else { target.into() },
        executable: executable.into(),
        folder: folder.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_are_taken_from_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/r/host/image/Cargo.toml","target":{"kind":["test"],"name":"tar"},"profile":{"test":true},"executable":"/r/target/debug/deps/tar-1"}"#;
        let found = binary(line).unwrap();
        assert_eq!((found.name.as_str(), found.file()), ("image/tar", "tar"));
        assert_eq!(found.folder, Path::new("/r/host/image"));
        assert!(binary(&line.replace("\"test\":true", "\"test\":false")).is_none());
        assert!(binary("Compiling image").is_none());
    }
}
