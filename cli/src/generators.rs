// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines for programs of an image that make a part of it (`unilith-image`, `generate`): this command runs itself.

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
};
use unilith_image::MAX_PRINTED;
use unilith_machine::{record::Network, support};

/// Memory beside what the image takes.
const MEMORY: u64 = 1 << 30;
/// Bytes of what the command says of a failure.
const MAX_SAID: u64 = 4096;

/// Runs a script of /bin/sh as root in a machine of an archive, without a network; what it printed.
pub fn run(archive: &Path, script: &str) -> Result<Vec<u8>, String> {
    let program = std::env::current_exe().map_err(|e| format!("this command is not found again: {e}"))?;
    let size = archive.metadata().map_err(|e| format!("{}: {e}", archive.display()))?.len();
    let memory = (MEMORY + size).to_string();
    // A process is quickest where there may be one.
    let machine = if support::lack_with(&Network::None).is_none() { "process" } else { "auto" };
    let mut root = std::ffi::OsString::from("cpio:");
    root.push(archive);
    let mut command = Command::new(program);
    command.args(["run", "--rm", "--network", "none", "--machine", machine, "-m", &memory]).arg(root);
    command.args(["--", "/bin/sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("this command cannot be run again: {e}"))?;
    let said = child.stderr.take().map(|mut stderr| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // What is behind the beginning is read, so that nobody waits, and forgotten.
            let _ = stderr.by_ref().take(MAX_SAID).read_to_end(&mut text);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            text
        })
    });
    let mut printed = Vec::new();
    let mut read = Ok(0);
    if let Some(stdout) = child.stdout.take() {
        // One byte more tells what is too much; the reader's end then ends the writer.
        read = stdout.take(MAX_PRINTED + 1).read_to_end(&mut printed);
    }
    let status = child.wait().map_err(|e| format!("a machine cannot be waited for: {e}"))?;
    let said = said.and_then(|thread| thread.join().ok()).unwrap_or_default();
    read.map_err(|e| format!("what it printed cannot be read: {e}"))?;
    if printed.len() as u64 > MAX_PRINTED {
        return Err(format!("it is more than {} MiB", MAX_PRINTED >> 20));
    }
    if !status.success() {
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        return Err(format!("their machine failed: {}", last.trim_start_matches("unilith: ")));
    }
    Ok(printed)
}
