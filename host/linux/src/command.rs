// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running other programs: quietly, in the C locale, with the reason in the error when they fail.

use crate::{LinuxError, Result};
use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A command whose output can be parsed, that does not ask anything and does not inherit make's settings.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").env_remove("MAKEFLAGS");
    command.stdin(Stdio::null());
    command
}

/// Runs it and returns its standard output; the error names `doing` and the last line it wrote.
pub fn run(doing: &str, command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| start_error(command, &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [&output.stdout[..], b"\n", &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    // The first complaint names the cause; what follows are its consequences.
    let line = text.lines().find(|l| is_complaint(l)).or(text.lines().rev().find(|l| !l.trim().is_empty()));
    Err(LinuxError::new(format!("{doing} failed: {}", line.unwrap_or("no reason was given"))))
}

/// Runs something long: what it writes goes to the log as it comes, line by line to `each` too. Whether it ended well.
pub fn follow(command: &mut Command, log: &Path, each: &mut dyn FnMut(&str)) -> Result<bool> {
    let unusable = |e| LinuxError::io("write", log, &e);
    let mut file = fs::File::create(log).map_err(unusable)?;
    let (output, into) = io::pipe().map_err(unusable)?;
    let also = into.try_clone().map_err(unusable)?;
    let mut child = command.stdout(into).stderr(also).spawn().map_err(|e| start_error(command, &e))?;
    // The command holds ends of the pipe, which would never be at its end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while output.read_until(b'\n', &mut line).map_err(unusable)? > 0 {
        each(String::from_utf8_lossy(&line).trim_end());
        file.write_all(&line).map_err(unusable)?;
        line.clear();
    }
    child.wait().map(|status| status.success()).map_err(unusable)
}

/// The error of a command that could not be started.
pub fn start_error(command: &Command, error: &std::io::Error) -> LinuxError {
    LinuxError::new(format!("cannot run {}: {error}", command.get_program().to_string_lossy()))
}

/// Does this line of a build's or of apt's output say what went wrong?
pub fn is_complaint(line: &str) -> bool {
    ["error:", "Error:", "E: ", "*** ", "undefined reference", "FAILED"]
        .iter()
        .any(|word| line.contains(word))
}

/// Finds a program as the shell would.
pub fn which(program: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|p| p.join(program)).find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_cause() {
        let script = "echo first; echo 'x.c:1: error: no' >&2; echo 'make: *** stop' >&2; exit 2";
        let error = run("building", command("sh").args(["-c", script])).unwrap_err();
        assert_eq!(error.to_string(), "building failed: x.c:1: error: no");
    }

    #[test]
    fn the_log_of_something_long_has_all_that_it_wrote_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut seen = Vec::new();
        let mut shell = command("sh");
        shell.args(["-c", "echo one; echo two >&2; printf 'thr\\377ee'; exit 3"]);
        assert_eq!(follow(&mut shell, &log, &mut |line| seen.push(line.to_string())), Ok(false));
        assert_eq!(seen, ["one", "two", "thr\u{fffd}ee"]);
        assert_eq!(fs::read(&log).unwrap(), b"one\ntwo\nthr\xffee");
        assert_eq!(follow(&mut command("true"), &log, &mut |_| ()), Ok(true));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run("x", &mut command("no-such-program-here")).unwrap_err();
        assert!(error.to_string().starts_with("cannot run no-such-program-here:"));
    }
}
