// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program: its start and its end.

use crate::{
    console::{self, Console},
    level,
};
use api_boot::{BootConfig, Status};
use rustix::process::{self, Signal};
use std::{
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus, Stdio},
};

/// What a program finds where the image sets no PATH: docker's default.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running program and its console.
pub struct Program {
    id: process::Pid,
    console: Console,
}

/// Starts the program that the configuration describes.
pub fn start(config: &BootConfig) -> Result<Program, String> {
    let Some((path, arguments)) = config.args.split_first() else {
        return Err("the boot configuration names no program".into());
    };
    let stop = match config.stop_signal {
        None => Signal::TERM,
        Some(number) => {
            Signal::from_named_raw(number.into()).ok_or(format!("{number} is not the number of a signal"))?
        }
    };
    // Process 1 leads no session yet; leading one, it gets the program's terminal as that session's.
    process::setsid().map_err(|e| format!("a session for the program: {e}"))?;
    let kind = match config.tty {
        true => console::Kind::Terminal,
        false => console::Kind::Plain { own_error: config.own_error },
    };
    let (console, ends) = console::open(kind, stop).map_err(|e| format!("the console: {e}"))?;
    let mut command = Command::new(path);
    let stdin = if config.null_input && !config.tty { Stdio::null() } else { ends.stdin.into() };
    command.stdin(stdin).stdout(ends.stdout).stderr(ends.stderr).args(arguments);
    command.env_clear().env("PATH", DEFAULT_PATH).env("HOME", "/root");
    if config.tty {
        command.env("TERM", "xterm");
    }
    if let Some(zone) = &config.tz {
        command.env("TZ", zone);
    }
    command.envs(config.env.iter().map(|(key, value)| (key, value)));
    command.current_dir(config.cwd.as_deref().unwrap_or("/"));
    if config.gid != 0 {
        command.gid(config.gid);
    }
    if config.uid != 0 {
        command.uid(config.uid);
    }
    match level::wanted()? {
        0 => {}
        flags => level::set(flags)?,
    }
    let child = command.spawn().map_err(|e| format!("{path}: {e}"))?;
    let id = process::Pid::from_child(&child);
    console.program_is(id);
    Ok(Program { id, console })
}

impl Program {
    pub fn id(&self) -> process::Pid {
        self.id
    }

    /// Waits for the program and reaps what it leaves behind; its children end with the machine.
    pub fn wait(self) -> Result<Status, String> {
        loop {
            match process::wait(process::WaitOptions::empty()) {
                Ok(Some((id, status))) if id == self.id => {
                    self.console.flush();
                    return Ok(end(ExitStatus::from_raw(status.as_raw())));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(format!("waiting for the program: {e}")),
            }
        }
    }
}

fn end(status: ExitStatus) -> Status {
    match status.signal() {
        Some(KILL) if out_of_memory() => Status::OutOfMemory { given: memory_given() },
        Some(signal) => Status::Signal { number: signal as u8 },
        None => Status::Exit { code: status.code().unwrap_or_default() as u8 },
    }
}

/// The signal of the kernel's out-of-memory killer.
const KILL: i32 = 9;

/// Has the kernel killed anything for want of memory?
fn out_of_memory() -> bool {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().any(|l| l.strip_prefix("oom_kill ").is_some_and(|n| n != "0"))
}

/// Bytes of memory the kernel manages.
fn memory_given() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes =
        text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.map_or(0, |kb: u64| kb * 1024)
}
