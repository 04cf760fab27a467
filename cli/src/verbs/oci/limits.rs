// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `update` and `events --stats`: limits of a container that exists, and what it uses.

use super::{choices, manage};
use crate::{
    fault::{Fault, Result, file},
    output::say,
};
use serde::Deserialize;
use serde_json::json;
use std::{fs, io::Read, path::PathBuf};
use unilith_container::{
    LinuxResources,
    bundle::Group,
    cgroup,
    record::{Containers, Record, Status},
};
use unilith_machine::store::Machine;
use unilith_overlay::Client;

/// How the machine calls programs that are in no container of a pod: those of a container that is a machine.
const MACHINES: &str = "-";

#[derive(clap::Args, Clone, Debug)]
pub struct Update {
    /// Limits as JSON (LinuxResources); -: from standard input
    #[arg(short, long, value_name = "FILE")]
    resources: PathBuf,
    id: String,
}

pub fn update(all: &Containers, args: &Update) -> Result<u8> {
    let mut record = all.find(&args.id)?;
    let mut text = String::new();
    if args.resources.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(|e| Fault::new(format!("standard input: {e}")))?;
    } else {
        text = fs::read_to_string(&args.resources).map_err(file("read", &args.resources))?;
    }
    let resources: LinuxResources =
        serde_json::from_str(&text).map_err(|e| Fault::new(format!("these are no resources: {e}")))?;
    let status = manage::status(&record);
    if status == Status::Stopped {
        return Err(Fault::new(format!("container not running: {}", record.id)));
    }
    // 0 is what engines say who leave the limit as it is.
    let memory = resources.memory().as_ref().and_then(|memory| memory.limit()).filter(|limit| *limit != 0);
    let memory = memory.map(|limit| u64::try_from(limit).ok());
    let machine = manage::machine(&record);
    if let (Some(Some(wanted)), Some(machine)) = (memory, &machine) {
        check_memory(&record, machine, wanted)?;
    }
    if let Some(scope) = &record.scope {
        scope.limit(&resources)?;
    }
    cgroup::limit(&record.cgroups, &resources)?;
    if let Some(memory) = memory {
        record.memory = memory;
    }
    record.group.take(&resources);
    all.save(&record)?;
    match machine {
        Some(machine) if status != Status::Created => tell(&record, &machine),
        // It begins with them.
        _ => Ok(()),
    }
    .map(|()| 0)
}

/// A machine has the memory that it began with. More than that can be given to no container in it.
fn check_memory(record: &Record, machine: &Machine, wanted: u64) -> Result<()> {
    let most = machine.spec.memory;
    let is_more = record.memory.is_none_or(|before| wanted > before);
    let spec = &machine.spec;
    let within = choices::within(wanted, spec.platform, spec.accel).unwrap_or(0);
    if !is_more || within <= most {
        return Ok(());
    }
    let whose = if record.sandbox.is_some() { "the machine of its pod" } else { "its machine" };
    Err(Fault::new(format!(
        "cannot give container {} {} MiB: {whose} has {} MiB since its start, and cannot grow",
        record.id,
        wanted >> 20,
        most >> 20
    )))
}

/// The name by which the machine knows it.
fn name(record: &Record) -> &str {
    if record.sandbox.is_some() { &record.id } else { MACHINES }
}

/// Has the machine hold and show the limits that the record has.
fn tell(record: &Record, machine: &Machine) -> Result<()> {
    let or_max = |limit: Option<u64>| limit.map_or("max".into(), |limit| limit.to_string());
    let Group { pids, quota, period, .. } = record.group;
    let words = [
        "containers".to_string(),
        "limit".into(),
        name(record).into(),
        format!("memory={}", or_max(record.memory)),
        format!("pids={}", or_max(pids)),
        format!("quota={}", or_max(quota)),
        format!("period={period}"),
    ];
    let answer = Client::connect(&machine.folder)?.run(&words, false)?;
    match answer.failures.first() {
        Some(failure) => Err(Fault::new(format!("cannot change the limits: {}", failure.text))),
        None => Ok(()),
    }
}

#[derive(clap::Args, Clone, Debug)]
pub struct Events {
    /// What it uses now, and nothing else
    #[arg(long)]
    stats: bool,
    /// Accepted as runc has it: nothing is shown a second time
    #[arg(long, default_value = "5s", hide = true)]
    interval: String,
    id: String,
}

/// A container as the machine's command `containers` shows it.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    pids: u64,
    max_pids: Option<u64>,
    memory_bytes: u64,
    max_memory_bytes: Option<u64>,
    user_ns: u64,
    system_ns: u64,
    periods: u64,
    throttled_periods: u64,
    throttled_ns: u64,
}

/// What a container uses, in runc's form.
pub fn events(all: &Containers, args: &Events) -> Result<u8> {
    if !args.stats {
        return Err(Fault::new("events: only --stats is there; engines watch the control groups"));
    }
    let record = all.find(&args.id)?;
    let machine = manage::machine(&record).filter(|_| manage::status(&record) == Status::Running);
    let machine = machine.ok_or_else(|| Fault::new(format!("container not running: {}", record.id)))?;
    let answer = Client::connect(&machine.folder)?.run(&["containers".to_string()], true)?;
    let rows = String::from_utf8_lossy(&answer.out);
    let mut rows = rows.lines().filter_map(|line| serde_json::from_str::<Row>(line).ok());
    let row = rows.find(|row| row.name == name(&record));
    let row = row.ok_or_else(|| Fault::new(format!("container not running: {}", record.id)))?;
    let usage = json!({"total": row.user_ns + row.system_ns, "kernel": row.system_ns, "user": row.user_ns});
    let throttling = json!({
        "periods": row.periods, "throttledPeriods": row.throttled_periods, "throttledTime": row.throttled_ns,
    });
    let memory = json!({"usage": row.memory_bytes, "limit": row.max_memory_bytes.unwrap_or(u64::MAX)});
    say!(
        "{}",
        json!({"type": "stats", "id": record.id, "data": {
            "cpu": {"usage": usage, "throttling": throttling},
            "memory": {"usage": memory, "raw": {"anon": row.memory_bytes}},
            "pids": {"current": row.pids, "limit": row.max_pids.unwrap_or(0)},
        }})
    );
    Ok(0)
}
