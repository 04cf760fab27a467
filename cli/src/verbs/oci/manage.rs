// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to containers that exist.

use crate::{
    fault::{Fault, Result},
    output::say,
};
use rustix::{process::Signal, thread::CapabilitySet};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    process::Command,
    time::{Duration, Instant},
};
use unilith_container::{
    ContainerError, cgroup, hooks, mounted,
    record::{Containers, Record, Status},
    scope::Scope,
};
use unilith_image::signal_number;
use unilith_machine::{
    accounts::name_of,
    process::Process,
    store::{Machine, Store},
};

/// How long what was killed may take to end.
const LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// The newest version of the specification that this runtime knows.
pub const VERSION: &str = "1.2.0";

fn process(record: &Record) -> Process {
    Process { pid: record.pid, start: record.start }
}

/// The machine that it is, or is in.
pub fn machine(record: &Record) -> Option<Machine> {
    Store::open().ok()?.find(record.machine()).ok()
}

/// How a container does.
pub fn status(record: &Record) -> Status {
    if !is_alive(record) {
        return Status::Stopped;
    }
    if !record.started {
        return Status::Created;
    }
    let paused = machine(record).is_some_and(|machine| crate::verbs::pause::is_paused(&machine));
    if paused { Status::Paused } else { Status::Running }
}

/// Whether its process is there; one that has ended and waits for its engine is not.
fn is_alive(record: &Record) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", record.pid)).unwrap_or_default();
    let is_zombie = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    process(record).is_alive() && !is_zombie
}

pub fn state(all: &Containers, id: &str) -> Result<u8> {
    let record = all.find(id)?;
    let text = serde_json::to_string_pretty(&record.state(status(&record))).unwrap_or_default();
    say!("{text}");
    Ok(0)
}

#[derive(clap::Args, Clone, Debug)]
pub struct Kill {
    /// To all processes of the container
    #[arg(short, long)]
    all: bool,
    id: String,
    /// Name or number
    #[arg(default_value = "SIGTERM")]
    signal: String,
}

pub fn kill(all: &Containers, args: &Kill) -> Result<u8> {
    let record = all.find(&args.id)?;
    let unknown = || Fault::new(format!("unknown signal {:?}", args.signal));
    // 0 asks whether there is anybody to get a signal (kill(2)).
    let number =
        if args.signal == "0" { Some(0) } else { signal_number(&args.signal) }.ok_or_else(unknown)?;
    let status = status(&record);
    // Engines look for these words, and take it for done.
    let gone = || Fault::new(format!("container not running: {} is {}", record.id, status.word()));
    const KILL: u8 = 9;
    match status {
        // Asked before a container is deleted, whether it runs or not.
        Status::Stopped if args.all => return Ok(0),
        Status::Stopped => return Err(gone()),
        _ if number == 0 => {}
        // Nothing runs yet, and nothing of the container would take another signal.
        Status::Creating | Status::Created | Status::Running | Status::Paused
            if record.is_sandbox && !record.holds_machine || status == Status::Created =>
        {
            let signal = Signal::from_named_raw(i32::from(number)).ok_or_else(unknown)?;
            if !process(&record).signal(signal) {
                return Err(gone());
            }
        }
        _ if number == KILL => {
            // The supervisor ends the machine, the keeper of a pod's container that one, and itself with the program's exit code.
            if !process(&record).signal(Signal::QUIT) {
                return Err(gone());
            }
        }
        _ => send(all, &record, number)?,
    }
    Ok(0)
}

/// Sends a signal to the program, in its machine.
pub fn send(all: &Containers, record: &Record, number: u8) -> Result<()> {
    let first = match record.sandbox {
        Some(_) => super::member::first(all, record)?,
        None => 1,
    };
    let machine =
        machine(record).ok_or_else(|| Fault::new(format!("container not running: {}", record.id)))?;
    let client = unilith_overlay::Client::connect(&machine.folder)?;
    let answer = client.run(&["kill".to_string(), format!("-{number}"), first.to_string()], false)?;
    match (answer.code, answer.failures.first()) {
        (0, _) => Ok(()),
        (_, Some(failure)) => Err(Fault::new(format!("{}: {}", failure.subject, failure.text))),
        (code, None) => Err(Fault::new(format!("the machine refuses the signal ({code})"))),
    }
}

#[derive(clap::Args, Clone, Debug)]
pub struct Delete {
    /// One that runs as well
    #[arg(short, long)]
    pub force: bool,
    pub id: String,
}

pub fn delete(all: &Containers, args: &Delete) -> Result<u8> {
    let record = match all.find(&args.id) {
        Ok(record) => record,
        // Asked again by engines that clean up: gone is what they want. Half a container goes as well.
        Err(ContainerError::NotFound(_)) if args.force => {
            all.remove(&args.id)?;
            return Ok(0);
        }
        Err(error) => return Err(error.into()),
    };
    let status = status(&record);
    if status != Status::Stopped {
        if !args.force {
            let message =
                format!("cannot delete container {} that is not stopped: {}", record.id, status.word());
            return Err(Fault::new(message));
        }
        if let Some(machine) = machine(&record) {
            crate::verbs::pause::resume(&machine);
        }
        let has_machine = !record.is_sandbox || record.holds_machine;
        let signal = if record.started && has_machine { Signal::QUIT } else { Signal::KILL };
        process(&record).signal(signal);
        let until = Instant::now() + LIMIT;
        while is_alive(&record) {
            if Instant::now() > until {
                process(&record).signal(Signal::KILL);
            }
            std::thread::sleep(POLL);
        }
    }
    let store = Store::open()?;
    store.sweep()?;
    if record.sandbox.is_none()
        && let Ok(machine) = store.find(record.machine())
        && let Some(held) = machine.hold_when_free(None)?
    {
        held.remove()?;
    }
    mounted::unmount(&record.mounts);
    record.scope.iter().for_each(Scope::stop);
    cgroup::remove(&record.cgroups)?;
    let container = all.description(&record.id, &record.bundle).ok();
    all.remove(&record.id)?;
    all.forget_interface(&record);
    // Hooks after the end are told of what is gone; one that fails is told and nothing more (runtime.md, "Lifecycle").
    let hooks = container.and_then(|container| container.hooks?.poststop().clone());
    if let Err(error) =
        hooks::run("poststop", &hooks.unwrap_or_default(), &record.state(Status::Stopped).to_string(), None)
    {
        eprintln!("unilith: {error}");
    }
    Ok(0)
}

#[derive(clap::Args, Clone, Debug)]
pub struct List {
    /// table or json
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    format: String,
    /// Ids only
    #[arg(short, long)]
    quiet: bool,
}

pub fn list(all: &Containers, args: &List) -> Result<u8> {
    let records = all.list();
    if args.quiet {
        records.iter().for_each(|record| say!("{}", record.id));
    } else if args.format == "json" {
        let states: Vec<_> = records.iter().map(|record| record.state(status(record))).collect();
        say!("{}", serde_json::to_string(&states).unwrap_or_default());
    } else {
        let states = records.iter().map(|record| (record, record.state(status(record))));
        let rows: Vec<_> = states
            .map(|(record, state)| {
                let bundle = record.bundle.display().to_string();
                [
                    state.id.into(),
                    state.pid.to_string(),
                    state.status.into(),
                    bundle,
                    state.created,
                    owner(record),
                ]
            })
            .collect();
        table(["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"], &rows);
    }
    Ok(0)
}

/// The user whose container it is: whoever owns its bundle.
fn owner(record: &Record) -> String {
    let user = fs::metadata(&record.bundle).map_or(0, |about| about.uid());
    let names = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(&names, user).map_or_else(|| format!("#{user}"), str::to_string)
}

/// Columns as wide as their longest entry.
fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) {
    let widths: [usize; N] = std::array::from_fn(|n| {
        rows.iter().map(|row| row[n].len()).chain([heads[n].len()]).max().unwrap_or(0)
    });
    let print = |row: [&str; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        say!("{}", cells.collect::<Vec<_>>().join("   ").trim_end());
    };
    print(heads);
    rows.iter().for_each(|row| print(std::array::from_fn(|n| row[n].as_str())));
}

#[derive(clap::Args, Clone, Debug)]
pub struct Ps {
    /// table or json
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    format: String,
    id: String,
    /// What ps(1) of the host, which knows nothing of what is in a machine, is asked for [default: -ef]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub fn ps(all: &Containers, args: &Ps) -> Result<u8> {
    let record = all.find(&args.id)?;
    let is_there = status(&record) != Status::Stopped;
    // The process of a pod's machine is the sandbox's.
    let engine = machine(&record).filter(|_| is_there && record.sandbox.is_none());
    let engine = engine.and_then(|machine| machine.state.process);
    let pids: Vec<u32> =
        is_there.then_some(record.pid).into_iter().chain(engine.map(|process| process.pid)).collect();
    if args.format == "json" {
        say!("{}", json!(pids));
        return Ok(0);
    }
    let usual = ["-ef".to_string()];
    let options = if args.options.is_empty() { &usual[..] } else { &args.options };
    let ran = Command::new("ps").args(options).output();
    let ran = ran.map_err(|e| Fault::new(format!("ps: {e}; --format json does without it")))?;
    if !ran.status.success() {
        return Err(Fault::new(format!("ps: {}", String::from_utf8_lossy(&ran.stderr).trim())));
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let column = head.split_whitespace().position(|word| word == "PID");
    let column = column.ok_or_else(|| Fault::new("ps: these options show no PID"))?;
    say!("{head}");
    let pid_of = |line: &str| line.split_whitespace().nth(column)?.parse().ok();
    lines.filter(|line| pid_of(line).is_some_and(|pid| pids.contains(&pid))).for_each(|line| say!("{line}"));
    Ok(0)
}

pub fn pause(all: &Containers, id: &str, pause: bool) -> Result<u8> {
    let record = all.find(id)?;
    let wanted = if pause { Status::Running } else { Status::Paused };
    let found = status(&record);
    if found != wanted {
        let (verb, is) = (if pause { "pause" } else { "resume" }, found.word());
        return Err(Fault::new(format!("cannot {verb} container {id}: it is {is}, not {}", wanted.word())));
    }
    if record.sandbox.is_some() {
        return Err(Fault::new(format!(
            "container {id} is in the machine of its pod, which stands still as a whole: pause its sandbox {}, or give the pod \
            the annotation dev.unilith.pod: separate",
            record.host()
        )));
    }
    let gone = || Fault::new(format!("container not running: {id}"));
    let machine = machine(&record).ok_or_else(gone)?;
    let signal = if pause { Signal::STOP } else { Signal::CONT };
    if !machine.state.process.as_ref().is_some_and(|process| process.signal(signal)) {
        return Err(gone());
    }
    if !pause {
        // `update` could not tell them to one that stood still.
        super::limits::tell(&record, &machine)?;
    }
    Ok(0)
}

pub fn version() -> Result<u8> {
    say!("unilith-runc version {0}\ncommit: {0}\nspec: {VERSION}", env!("CARGO_PKG_VERSION"));
    Ok(0)
}

pub fn features() -> Result<u8> {
    let features = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": VERSION,
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        "mountOptions": ["bind", "rbind", "ro", "rro", "rw"],
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "uts"],
            "capabilities": CapabilitySet::all().iter_names().map(|(name, _)| format!("CAP_{name}")).collect::<Vec<_>>(),
            "cgroup": {"v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": false},
            "seccomp": {
                "enabled": true,
                "actions": [
                    "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD",
                    "SCMP_ACT_LOG", "SCMP_ACT_TRAP",
                ],
                "operators": [
                    "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ",
                    "SCMP_CMP_NE",
                ],
                "archs": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"],
            },
            "apparmor": {"enabled": false},
            "selinux": {"enabled": false},
        },
        "annotations": {"dev.unilith.version": env!("CARGO_PKG_VERSION")},
    });
    say!("{}", serde_json::to_string_pretty(&features).unwrap_or_default());
    Ok(0)
}
