// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `update`: limits of a container that exists.

use super::{choices, events, manage, resources::Options};
use crate::fault::{Fault, Result, file};
use std::{fs, io::Read, path::PathBuf};
use unilith_container::{
    LinuxResources,
    bundle::Group,
    cgroup,
    fields::{self, Part},
    record::{Containers, Record, Status},
};
use unilith_machine::store::Machine;
use unilith_overlay::Client;

/// How the machine calls programs that are in no container of a pod: those of a container that is a machine.
const MACHINES: &str = "-";

#[derive(clap::Args, Clone, Debug)]
pub struct Update {
    /// Limits as JSON (LinuxResources); -: from standard input. The other options are for whoever has no JSON
    #[arg(short, long, value_name = "FILE")]
    resources: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    id: String,
}

pub fn update(all: &Containers, args: &Update) -> Result<u8> {
    let mut record = all.find(&args.id)?;
    let mut text = String::new();
    match &args.resources {
        Some(path) if path.as_os_str() == "-" => {
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|e| Fault::new(format!("standard input: {e}")))?;
        }
        Some(path) => text = fs::read_to_string(path).map_err(file("read", path))?,
        None => text = args.options.resources(&record.group).to_string(),
    }
    let wrong = |e: serde_json::Error| Fault::new(format!("these are no resources: {e}"));
    let resources: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    fields::check(Part::Resources, &resources).map_err(Fault::new)?;
    let resources: LinuxResources = serde_json::from_value(resources).map_err(wrong)?;
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
        let is_checked = resources.memory().as_ref().and_then(|memory| memory.check_before_update());
        if is_checked == Some(true) && status == Status::Running {
            events::check_use(&record, wanted)?;
        }
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
        // One that stands still hears of them when it goes on.
        Some(machine) if status == Status::Running => tell(&record, &machine),
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
pub fn name(record: &Record) -> &str {
    if record.sandbox.is_some() { &record.id } else { MACHINES }
}

/// Has the machine hold and show the limits that the record has.
pub fn tell(record: &Record, machine: &Machine) -> Result<()> {
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
