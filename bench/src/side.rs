// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine on one side of a comparison, made and removed through the `unilith` command.

use crate::{Options, Result, Scratch};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Micro,
    Linux,
    /// The micro kernel as a process.
    Process,
    /// The micro kernel on an ordinary PC.
    MicroQ35,
}

impl Side {
    /// The head of its column.
    pub fn name(self) -> &'static str {
        match self {
            Side::Micro => "micro",
            Side::Linux => "linux",
            Side::Process => "process",
            Side::MicroQ35 => "micro, q35",
        }
    }

    /// The words for it.
    pub fn words(self) -> [&'static str; 4] {
        let (kernel, machine) = match self {
            Side::Micro => ("micro", "microvm"),
            Side::Linux => ("linux", "microvm"),
            Side::Process => ("micro", "process"),
            Side::MicroQ35 => ("micro", "qemu"),
        };
        ["--kernel", kernel, "--machine", machine]
    }
}

/// The processor machines and native servers run on.
pub const MACHINE_CPU: &str = "0";
/// The processor clients run on.
pub const CLIENT_CPU: &str = "1";

/// `unilith WORDS`, pinned to the machines' processor.
fn unilith(options: &Options, words: &[&str]) -> Result<Output> {
    unilith_with(options, None, words, &[])
}

/// As [`unilith`], in a folder and with variables of its environment.
fn unilith_with(
    options: &Options,
    folder: Option<&Path>,
    words: &[&str],
    env: &[(&str, &str)],
) -> Result<Output> {
    let mut command = unilith_command(options, words, env);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let output = command.output().map_err(|e| format!("cannot run taskset: {e}"))?;
    outcome(&output, words)?;
    Ok(output)
}

/// The error of a command that failed.
fn outcome(output: &Output, words: &[&str]) -> Result<()> {
    let words = words.join(" ");
    let error = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(()),
        // As timeout(1) says it.
        Some(124) => {
            Err(format!("unilith {words} did not end in time and was ended; it said: {}", error.trim()))
        }
        _ => Err(format!("unilith {words} failed: {}", error.trim())),
    }
}

/// `unilith WORDS` that may have to build Linux or a program first; what it prints.
pub fn patient(options: &Options, words: &[&str]) -> Result<String> {
    let mut command = Command::new("timeout");
    let output = command.arg("3600").arg(&options.command).args(words).output();
    let output = output.map_err(|e| format!("cannot run timeout: {e}"))?;
    outcome(&output, words)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `unilith WORDS` with variables of its environment, pinned to the machines' processor, ready to be started.
pub fn unilith_command(options: &Options, words: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["300", "taskset", "-c", MACHINE_CPU]).arg(&options.command).args(words);
    command.envs(env.iter().copied());
    command
}

/// Builds the micro kernels of these choices where they are not in the cache: what is measured has no such time in it.
pub fn build_kernels(options: &Options, choices: &[&[&str]]) -> Result<()> {
    let scratch = Scratch::new("kernels")?;
    for (n, words) in choices.iter().enumerate() {
        let folder = scratch.path().join(n.to_string());
        let mut command = Command::new("timeout");
        command.arg("1800").arg(&options.command).args(["build", "-o"]).arg(folder).args(*words);
        let output = command.arg("busybox").output().map_err(|e| format!("cannot run timeout: {e}"))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(format!("unilith build {} failed: {}", words.join(" "), error.trim()));
        }
    }
    Ok(())
}

/// Whether virtual machines run under KVM here, by what `doctor` found.
pub fn has_kvm(options: &Options) -> Result<bool> {
    let text = output_of(options, &["doctor", "--json"], &[]);
    // Its exit code says whether all is well, which is not the question.
    let found: Value = match text {
        Ok(text) => serde_json::from_str(&text).map_err(|e| format!("doctor: {e}"))?,
        Err(_) => return Ok(false),
    };
    Ok(found.as_array().into_iter().flatten().any(|f| f["what"] == "KVM" && f["state"] == "good"))
}

/// Runs a program to its end and returns what it printed.
pub fn output(options: &Options, side: Side, words: &[&str]) -> Result<String> {
    output_in(options, side, None, words)
}

/// The same for the program of a project (`unilith.toml` in a folder).
pub fn output_in(options: &Options, side: Side, project: Option<&Path>, words: &[&str]) -> Result<String> {
    let words = [&["run", "--rm"][..], &side.words(), words].concat();
    let output = unilith_with(options, project, &words, &[])?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same where the machine's clock counts its instructions (`--accel icount`): which processor it runs on, and what
/// else does, changes how long that takes and not what is counted.
pub fn counted(options: &Options, side: Side, words: &[&str]) -> Result<String> {
    patient(options, &[&["run", "--rm", "--accel", "icount"][..], &side.words(), words].concat())
}

/// What `unilith WORDS` prints, with variables of its environment.
pub fn output_of(options: &Options, words: &[&str], env: &[(&str, &str)]) -> Result<String> {
    let output = unilith_with(options, None, words, env)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A `PATH` on which QEMU is one that gets more words: the disk or the clock of an experiment.
pub fn qemu_with(scratch: &Scratch, words: &str) -> Result<String> {
    let folder = scratch.path().join("bin");
    let wrapper = folder.join("qemu-system-x86_64");
    let script = format!("#!/bin/sh\nPATH=${{PATH#*:}}\nexec qemu-system-x86_64 \"$@\" {words}\n");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&wrapper, script))
        .and_then(|()| std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)))
        .map_err(|e| format!("{}: {e}", wrapper.display()))?;
    Ok(format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default()))
}

/// Where a running machine's socket is.
pub fn folder_of(options: &Options, name: &str) -> Result<PathBuf> {
    let files = output_of(options, &["overlay", "dir", name], &[])?;
    let folder = Path::new(files.trim()).parent().map(Path::to_path_buf);
    folder.ok_or_else(|| format!("unilith overlay dir {name} printed: {files}"))
}

/// A running machine; removed when dropped.
pub struct Machine<'a> {
    options: &'a Options,
    name: String,
    kernel: Option<String>,
    root: Option<String>,
    state: Value,
}

impl<'a> Machine<'a> {
    /// Starts the program and waits until it serves.
    pub fn start(options: &'a Options, side: Side, words: &[&str]) -> Result<Machine<'a>> {
        Machine::launch(options, side, None, words, &["ready"])
    }

    /// Starts any program, and waits until it runs.
    pub fn start_any(options: &'a Options, side: Side, words: &[&str]) -> Result<Machine<'a>> {
        Machine::launch(options, side, None, words, &["running", "ready"])
    }

    /// The same for the program of a project (`unilith.toml` in a folder).
    pub fn of_project(
        options: &'a Options,
        side: Side,
        project: Option<&Path>,
        words: &[&str],
    ) -> Result<Machine<'a>> {
        Machine::launch(options, side, project, words, &["ready"])
    }

    fn launch(
        options: &'a Options,
        side: Side,
        project: Option<&Path>,
        words: &[&str],
        phases: &[&str],
    ) -> Result<Machine<'a>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let all = [&["run", "-d", "--name", &name][..], &side.words(), words].concat();
        unilith_with(options, project, &all, &[])?;
        let mut machine = Machine { options, name, kernel: None, root: None, state: Value::Null };
        // `run -d` returns when the program serves or ten seconds have passed; a Linux guest may take longer.
        for _ in 0..300 {
            machine.refresh()?;
            match machine.text("phase").as_deref() {
                Some(phase) if phases.contains(&phase) => return Ok(machine),
                Some("exited") => {
                    let reason =
                        machine.state["outcome"]["reason"].as_str().unwrap_or("it ended").to_string();
                    return Err(format!("{}: {reason}", words.join(" ")));
                }
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        Err(format!("{} did not get ready in 30 s", words.join(" ")))
    }

    fn refresh(&mut self) -> Result<()> {
        let output = unilith(self.options, &["inspect", &self.name])?;
        let all: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("inspect: {e}"))?;
        self.kernel = all[0]["kernel"].as_str().map(str::to_string);
        self.root = all[0]["initrd"].as_str().map(str::to_string);
        self.state = all[0]["state"].clone();
        Ok(())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.state[key].as_str().map(str::to_string)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of its kernel image.
    pub fn kernel_bytes(&self) -> Result<u64> {
        let kernel = self.kernel.as_deref().ok_or("inspect does not name the kernel")?;
        Ok(std::fs::metadata(kernel).map_err(|e| format!("{kernel}: {e}"))?.len())
    }

    /// Bytes of its root file system, as it is kept.
    pub fn root_bytes(&self) -> Result<u64> {
        let root = self.root.as_deref().ok_or("inspect does not name the root file system")?;
        Ok(std::fs::metadata(root).map_err(|e| format!("{root}: {e}"))?.len())
    }

    /// Where its socket is.
    pub fn folder(&self) -> Result<PathBuf> {
        folder_of(self.options, &self.name)
    }

    /// Waits until the program has printed the text: so many times 100 ms.
    pub fn wait_for_output(&self, text: &str, patience: u32) -> Result<()> {
        for _ in 0..patience {
            let output = unilith(self.options, &["logs", &self.name])?;
            if String::from_utf8_lossy(&output.stdout).contains(text) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{} did not print `{text}`", self.name))
    }

    /// What the program has printed so far.
    pub fn output(&self) -> Result<String> {
        let output = unilith(self.options, &["logs", &self.name])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The machine's own address, reached over tap.
    pub fn address(&self) -> Result<String> {
        let address = self.state["connection"]["guest"].as_str();
        address
            .map(str::to_string)
            .ok_or_else(|| "the machine has no tap device: run the benchmark as root".into())
    }

    /// Milliseconds from the start of QEMU until the program served.
    pub fn ready_ms(&self) -> Option<f64> {
        self.state["ready_in_ms"].as_f64()
    }

    /// Milliseconds from the kernel's first instruction to the program's.
    pub fn kernel_ms(&self) -> Option<f64> {
        self.state["kernel_ns"].as_f64().map(|ns| ns / 1e6)
    }

    /// The process that is the machine, or QEMU.
    pub fn pid(&self) -> Result<u32> {
        let pid = self.state["process"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| "inspect does not name the machine's process".into())
    }

    /// Resident memory of QEMU in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        resident_mib(self.pid()?, "Rss:")
    }
}

/// A line of a process' smaps_rollup (proc(5)) in MiB: `Rss:`, `Pss:`.
pub fn resident_mib(pid: u32, line: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let value = text.lines().find_map(|l| l.strip_prefix(line)).ok_or(format!("no {line} in {path}"))?;
    let kib: f64 = value.trim().trim_end_matches(" kB").parse().map_err(|e| format!("{path}: {e}"))?;
    Ok(kib / 1024.0)
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if let Err(e) = unilith(self.options, &["rm", "-f", &self.name]) {
            eprintln!("{e}");
        }
    }
}
