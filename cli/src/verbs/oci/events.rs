// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `events`: what a container uses, once or again and again, and that it ran out of memory.

use super::{limits, manage};
use crate::{
    fault::{Fault, Result},
    output::say,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};
use unilith_container::{
    cgroup,
    record::{Containers, Record, Status},
};
use unilith_overlay::Client;

/// How soon the end of a container, and that it ran out of memory, is seen.
const POLL: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Events {
    /// What it uses now, and nothing else
    #[arg(long)]
    stats: bool,
    /// How often what it uses is shown, as Go writes durations (1m30s, 100ms)
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = interval)]
    interval: Duration,
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

/// An event in runc's form and order.
#[derive(Debug, Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

impl Event<'_> {
    fn show(&self) {
        say!("{}", serde_json::to_string(self).unwrap_or_default());
    }
}

pub fn events(all: &Containers, args: &Events) -> Result<u8> {
    let record = all.find(&args.id)?;
    show_usage(&record)?;
    if args.stats {
        return Ok(0);
    }
    let (mut shown, mut kills) = (Instant::now(), cgroup::out_of_memory(&record.cgroups));
    loop {
        // In this order, so that why it ended is not missed.
        let is_there = manage::status(&record) != Status::Stopped;
        let now = cgroup::out_of_memory(&record.cgroups);
        if now > kills {
            Event { kind: "oom", id: &record.id, data: None }.show();
            kills = now;
        }
        if !is_there {
            return Ok(0);
        }
        if shown.elapsed() >= args.interval && manage::status(&record) == Status::Running {
            shown = Instant::now();
            // One that ends meanwhile is seen to have ended next.
            let _ = show_usage(&record);
        }
        thread::sleep(POLL.min(args.interval));
    }
}

fn show_usage(record: &Record) -> Result<()> {
    let data = usage(record)?;
    Event { kind: "stats", id: &record.id, data: Some(data) }.show();
    Ok(())
}

/// Refuses a limit of memory that is below what the container has in use.
pub fn check_use(record: &Record, limit: u64) -> Result<()> {
    let used = row(record)?.memory_bytes;
    if used <= limit {
        return Ok(());
    }
    Err(Fault::new(format!(
        "cannot give container {} {limit} bytes of memory: it uses {used} (linux.resources.memory.checkBeforeUpdate)",
        record.id
    )))
}

/// What the machine says of a container.
fn row(record: &Record) -> Result<Row> {
    let machine = manage::machine(record).filter(|_| manage::status(record) == Status::Running);
    let machine = machine.ok_or_else(|| Fault::new(format!("container not running: {}", record.id)))?;
    let answer = Client::connect(&machine.folder)?.run(&["containers".to_string()], true)?;
    let rows = String::from_utf8_lossy(&answer.out);
    let mut rows = rows.lines().filter_map(|line| serde_json::from_str::<Row>(line).ok());
    let row = rows.find(|row| row.name == limits::name(record));
    row.ok_or_else(|| Fault::new(format!("container not running: {}", record.id)))
}

/// What a container uses, by the count of its machine.
fn usage(record: &Record) -> Result<Value> {
    let row = row(record)?;
    let usage = json!({"total": row.user_ns + row.system_ns, "kernel": row.system_ns, "user": row.user_ns});
    let throttling = json!({
        "periods": row.periods, "throttledPeriods": row.throttled_periods, "throttledTime": row.throttled_ns,
    });
    let memory = json!({"usage": row.memory_bytes, "limit": row.max_memory_bytes.unwrap_or(u64::MAX)});
    Ok(json!({
        "cpu": {"usage": usage, "throttling": throttling},
        "memory": {"usage": memory, "raw": {"anon": row.memory_bytes}},
        "pids": {"current": row.pids, "limit": row.max_pids.unwrap_or(0)},
    }))
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    match unilith_compose::fields::duration(text) {
        Some(Duration::ZERO) => Err("the interval must be greater than 0".into()),
        Some(duration) => Ok(duration),
        None => Err(format!("{text:?} is no duration: write numbers with h, m, s, ms or us behind them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_durations_as_go_writes_them() {
        assert_eq!(interval("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "5", "0s"] {
            assert!(interval(wrong).is_err(), "{wrong:?}");
        }
    }
}
