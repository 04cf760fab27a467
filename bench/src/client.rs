// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients, each pinned to a processor of its own and bounded in time.

use crate::{Result, side::CLIENT_CPU};
use std::process::Command;

/// Runs a client and returns what it printed.
pub fn run(words: &[&str]) -> Result<String> {
    run_on(CLIENT_CPU, words)
}

/// The same for any program, on a processor.
pub fn run_on(processor: &str, words: &[&str]) -> Result<String> {
    let output = Command::new("timeout").args(["120", "taskset", "-c", processor]).args(words).output();
    let output = output.map_err(|e| format!("cannot run {}: {e}", words[0]))?;
    if !output.status.success() {
        let code = output.status.code().unwrap_or(-1);
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(match code {
            124 => format!("{} did not end in 120 s: the server stalls", words.join(" ")),
            127 => format!("{} is not installed: apt-get install redis-tools wrk", words[0]),
            _ => format!("{} failed ({code}): {}", words.join(" "), error.trim()),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
