// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith stats`: what machines take of this computer.

use crate::{fault::Result, output::say, template::Template};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    termios::isatty,
};
use serde::Serialize;
use std::{
    fs, io,
    thread::sleep,
    time::{Duration, Instant},
};
use unilith_machine::{
    record::Connection,
    store::{Machine, Store},
};

/// From one measurement to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// The first measurement: short, so that `--no-stream` answers soon.
const FIRST: Duration = Duration::from_millis(250);
/// Home, then clear to the end (ECMA-48 8.3.21, 8.3.39).
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Once, not again and again
    #[arg(long)]
    no_stream: bool,
    /// Only these fields, e.g. {{.Name}} {{.CPUPerc}}
    #[arg(long, value_name = "TEMPLATE")]
    format: Option<String>,
    /// Accepted for docker's users: nothing is shortened
    #[arg(long, hide = true)]
    no_trunc: bool,
    /// As JSON, once
    #[arg(long)]
    json: bool,
    /// All that run, unless named
    machines: Vec<String>,
}

/// One line.
#[derive(Serialize)]
struct Row {
    id: String,
    name: String,
    /// Of one processor, as docker counts it.
    cpu_perc: String,
    mem_usage: String,
    mem_perc: String,
    net_io: String,
    pids: u64,
    cpu: f64,
    memory: u64,
    memory_limit: u64,
    received: Option<u64>,
    sent: Option<u64>,
}

/// Processor time, memory in use and threads of a process (proc(5)).
#[derive(Clone, Copy, Default)]
struct Usage {
    ticks: u64,
    resident: u64,
    threads: u64,
}

fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    // Fields 14, 15, 20 and 24, counted behind the second one.
    let resident = number(21)? * page_size() as u64;
    Some(Usage { ticks: number(11)? + number(12)?, resident, threads: number(17)? })
}

/// Bytes that the machine has received and sent, where it has a device of its own. What the host sends the machine receives.
fn traffic(machine: &Machine) -> Option<(u64, u64)> {
    let Some(Connection::Tap { device, .. }) = &machine.state.connection else { return None };
    let counter = |name: &str| {
        fs::read_to_string(format!("/sys/class/net/{device}/statistics/{name}")).ok()?.trim().parse().ok()
    };
    Some((counter("tx_bytes")?, counter("rx_bytes")?))
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let template = args.format.as_deref().map(Template::parse).transpose()?;
    let stream = !args.no_stream && !args.json && isatty(io::stdout());
    let mut interval = FIRST;
    loop {
        let machines = chosen(store, args)?;
        let before: Vec<Usage> =
            machines.iter().map(|m| m.state.process.and_then(|p| usage(p.pid)).unwrap_or_default()).collect();
        let begin = Instant::now();
        sleep(interval);
        let took = begin.elapsed().as_secs_f64();
        let rows: Vec<Row> =
            machines.iter().zip(before).filter_map(|(machine, before)| row(machine, before, took)).collect();
        if stream {
            say!("{CLEAR}");
        }
        show(&rows, args.json, template.as_ref())?;
        if !stream {
            return Ok(0);
        }
        interval = INTERVAL;
    }
}

fn chosen(store: &Store, args: &Args) -> Result<Vec<Machine>> {
    if args.machines.is_empty() {
        let mut all = store.list()?;
        all.retain(|m| m.state.phase.is_alive());
        return Ok(all);
    }
    let find = |name: &String| {
        let machine = store.find(name)?;
        match machine.state.phase.is_alive() {
            true => Ok(machine),
            false => Err(unilith_machine::MachineError::NotRunning(machine.spec.name).into()),
        }
    };
    args.machines.iter().map(find).collect()
}

fn row(machine: &Machine, before: Usage, took: f64) -> Option<Row> {
    let now = usage(machine.state.process?.pid)?;
    let seconds = now.ticks.saturating_sub(before.ticks) as f64 / clock_ticks_per_second() as f64;
    let cpu = (seconds / took * 1000.0).round() / 10.0;
    let limit = machine.spec.memory;
    let net = traffic(machine);
    Some(Row {
        id: machine.spec.id.clone(),
        name: machine.spec.name.clone(),
        cpu_perc: format!("{cpu:.1}%"),
        mem_usage: format!("{} / {}", bytes(now.resident), bytes(limit)),
        mem_perc: format!("{:.1}%", now.resident as f64 / limit.max(1) as f64 * 100.0),
        net_io: net.map_or("-".into(), |(received, sent)| format!("{} / {}", bytes(received), bytes(sent))),
        pids: now.threads,
        cpu,
        memory: now.resident,
        memory_limit: limit,
        received: net.map(|n| n.0),
        sent: net.map(|n| n.1),
    })
}

fn show(rows: &[Row], json: bool, template: Option<&Template>) -> Result<()> {
    if json {
        return super::print_json(&rows);
    }
    if let Some(template) = template {
        return super::print_formatted(rows, template);
    }
    let header =
        ["ID", "NAME", "CPU %", "MEM USAGE / LIMIT", "MEM %", "NET I/O", "THREADS"].map(String::from);
    let line = |r: &Row| {
        let cells = [&r.id, &r.name, &r.cpu_perc, &r.mem_usage, &r.mem_perc, &r.net_io];
        cells.into_iter().cloned().chain([r.pids.to_string()]).collect::<Vec<_>>()
    };
    super::print_table(&std::iter::once(header.to_vec()).chain(rows.iter().map(line)).collect::<Vec<_>>());
    Ok(())
}

/// A number of bytes as people read it.
pub fn bytes(count: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(n, _)| count >= *n) {
        Some((n, unit)) => format!("{:.1}{unit}", count as f64 / *n as f64),
        None => format!("{count}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_one_unit() {
        let told = [0, 1023, 1024, 3 << 20, 5 << 29].map(bytes);
        assert_eq!(told, ["0B", "1023B", "1.0KiB", "3.0MiB", "2.5GiB"]);
    }

    #[test]
    fn this_process_uses_memory_and_has_a_thread() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.resident > 0 && usage.threads > 0);
    }
}
