// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the engine's that are run at points of a container's life (runtime-spec, "POSIX-platform Hooks"). Each gets
//! the container's state on its standard input.

use crate::{ContainerError, Result};
use oci_spec::runtime::Hook;
use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// How long a hook may take that says nothing of it. The specification has no limit, and an engine would wait for ever.
const LIMIT: Duration = Duration::from_secs(60);
/// A year, which a clock can still count to.
const MAX_SECONDS: u64 = 365 * 24 * 60 * 60;
/// How often a running hook is looked at.
const POLL: Duration = Duration::from_millis(2);

/// How long one may take.
pub fn limit(hook: &Hook) -> Duration {
    let seconds = hook.timeout().and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(LIMIT, |seconds| Duration::from_secs(seconds.min(MAX_SECONDS)))
}

/// Runs the hooks in their order; the first that fails ends it. `folder`: where they begin; `None`: where this process is.
pub fn run(point: &str, hooks: &[Hook], state: &str, folder: Option<&Path>) -> Result<()> {
    hooks.iter().try_for_each(|hook| {
        one(hook, state, folder)
            .map_err(|why| ContainerError::Hook(format!("the {point} hook {}: {why}", hook.path().display())))
    })
}

fn one(hook: &Hook, state: &str, folder: Option<&Path>) -> std::result::Result<(), String> {
    let mut command = Command::new(hook.path());
    if let Some([name, arguments @ ..]) = hook.args().as_deref() {
        command.arg0(name).args(arguments);
    }
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    command.env_clear();
    for entry in hook.env().iter().flatten() {
        if let Some((key, value)) = entry.split_once('=') {
            command.env(key, value);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("cannot be started: {e}"))?;
    if let Some(mut input) = child.stdin.take() {
        // One that does not read it does not need it.
        let _ = input.write_all(state.as_bytes());
    }
    let limit = Instant::now() + limit(hook);
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("ended with {status}")),
            None if Instant::now() >= limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("did not end in its time".into());
            }
            None => std::thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(text: &str) -> Hook {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_hook_gets_the_state_its_arguments_and_no_other_environment() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let script =
            format!("cat; echo; env > {0}; cat - /dev/null >> {0}; echo $0 $1 >> {0}", out.display());
        let script = script.replace("cat; echo; ", "");
        let text = serde_json::json!({"path": "/bin/sh", "args": ["sh", "-c", script, "name", "word"], "env": ["A=b"]});
        run("createRuntime", &[hook(&text.to_string())], "{\"id\":\"x\"}", None).unwrap();
        let said = std::fs::read_to_string(out).unwrap();
        assert!(
            said.contains("A=b") && said.contains("{\"id\":\"x\"}") && said.contains("name word"),
            "{said}"
        );
        assert!(!said.contains("HOME="), "{said}");
    }

    #[test]
    fn hooks_that_fail_hang_or_are_missing_are_named() {
        for (text, says) in [
            (r#"{"path": "/bin/false"}"#, "the poststart hook /bin/false: ended with"),
            (r#"{"path": "/bin/sleep", "args": ["sleep", "60"], "timeout": 1}"#, "did not end in its time"),
            (r#"{"path": "/no/such/hook"}"#, "cannot be started"),
        ] {
            let error = run("poststart", &[hook(text)], "{}", None).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
