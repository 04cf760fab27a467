// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith ps`.

use super::pause::is_paused;
use crate::advice;
use crate::fault::{Fault, Result};
use crate::output::say;
use crate::template::Template;
use serde::Serialize;
use unilith_machine::{
    record::{Phase, now_ms},
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Also machines that have ended
    #[arg(short, long)]
    all: bool,
    /// Only ids
    #[arg(short, long)]
    quiet: bool,
    /// Only machines that fit: name=TEXT, id=TEXT, program=TEXT, status=running|exited|paused|created, exited=CODE,
    /// label=KEY[=VALUE], health=healthy|unhealthy|starting|none; may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// Only these fields, e.g. {{.Names}} {{.Status}} {{.Ports}}; `table` before them prints a header
    #[arg(long, value_name = "TEMPLATE")]
    format: Option<String>,
    /// Only the last so many, ended ones too
    #[arg(short = 'n', long, value_name = "COUNT")]
    last: Option<usize>,
    /// Only the last one, ended or not
    #[arg(short, long)]
    latest: bool,
    /// Accepted for docker's users: nothing is shortened
    #[arg(long, hide = true)]
    no_trunc: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What `--filter` asks.
enum Filter {
    Name(String),
    Id(String),
    Program(String),
    Status(String),
    Exited(u8),
    Label(String, Option<String>),
    Health(String),
}

impl Filter {
    fn parse(text: &str) -> Result<Filter> {
        let wrong = |why: &str| Fault { code: 2, message: format!("--filter {text}: {why}") };
        let (key, value) = text.split_once('=').ok_or_else(|| wrong("write KEY=VALUE"))?;
        Ok(match key {
            "name" => Filter::Name(value.into()),
            "id" => Filter::Id(value.into()),
            "program" | "ancestor" => Filter::Program(value.into()),
            "status" => {
                let known = ["created", "starting", "running", "ready", "paused", "exited"];
                if !known.contains(&value) {
                    return Err(wrong(&format!("a status is one of {}", known.join(", "))));
                }
                Filter::Status(value.into())
            }
            "exited" => Filter::Exited(value.parse().map_err(|_| wrong("an exit code is 0 to 255"))?),
            "label" => match value.split_once('=') {
                Some((key, value)) => Filter::Label(key.into(), Some(value.into())),
                None => Filter::Label(value.into(), None),
            },
            "health" => {
                let known = ["starting", "healthy", "unhealthy", "none"];
                if !known.contains(&value) {
                    return Err(wrong(&format!("it is one of {}", known.join(", "))));
                }
                Filter::Health(value.into())
            }
            _ => return Err(wrong("the key is name, id, program, status, exited, label or health")),
        })
    }

    fn fits(&self, machine: &Machine) -> bool {
        let (spec, state) = (&machine.spec, &machine.state);
        match self {
            Filter::Name(text) => spec.name.contains(text.as_str()),
            Filter::Id(text) => spec.id.starts_with(text.as_str()),
            Filter::Program(text) => spec.program == *text || spec.label == *text,
            // As with docker a machine that is ready is running as well.
            Filter::Status(word) if word == "running" => state.phase.is_alive() && !is_paused(machine),
            Filter::Status(word) if word == "paused" => is_paused(machine),
            Filter::Status(word) => state.phase.word() == word,
            Filter::Health(word) => {
                machine.health().map_or("none", |h| crate::health::word(h.status)) == word.as_str()
            }
            Filter::Exited(code) => state.outcome.as_ref().is_some_and(|o| o.code == *code),
            Filter::Label(key, value) => {
                spec.labels.get(key).is_some_and(|v| value.as_ref().is_none_or(|wanted| wanted == v))
            }
        }
    }

    /// It asks for machines that have ended.
    fn wants_ended(&self) -> bool {
        matches!(self, Filter::Exited(_))
            || matches!(self, Filter::Status(word) if word == "exited" || word == "created")
    }
}

/// The fields of `--format`, as docker calls them.
#[derive(Serialize)]
struct Fields {
    id: String,
    names: String,
    name: String,
    image: String,
    program: String,
    command: String,
    status: String,
    state: String,
    address: String,
    ports: String,
    running_for: String,
    labels: String,
}

fn fields(machine: &Machine) -> Fields {
    let row = row(machine);
    let labels = machine.spec.labels.iter().map(|(k, v)| format!("{k}={v}"));
    Fields {
        id: row.id.into(),
        names: row.name.into(),
        name: row.name.into(),
        image: row.program.into(),
        program: row.program.into(),
        command: machine.spec.args.join(" "),
        status: status(machine),
        state: if is_paused(machine) { "paused".into() } else { row.phase.word().into() },
        address: row.address.clone().unwrap_or_default(),
        ports: row.ports.join(", "),
        running_for: format!("{} ago", duration(now_ms().saturating_sub(row.created_ms) / 1000)),
        labels: labels.collect::<Vec<_>>().join(","),
    }
}

/// One line of the listing.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    name: &'a str,
    program: &'a str,
    phase: Phase,
    exit_code: Option<u8>,
    created_ms: u64,
    ready_in_ms: Option<u64>,
    address: Option<String>,
    ports: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let mut machines = store.list()?;
    let filters = args.filter.iter().map(|f| Filter::parse(f)).collect::<Result<Vec<_>>>()?;
    let last = if args.latest { Some(1) } else { args.last };
    let all = args.all || last.is_some() || filters.iter().any(Filter::wants_ended);
    machines.retain(|m| all || m.state.phase != Phase::Exited);
    machines.retain(|m| filters.iter().all(|f| f.fits(m)));
    machines.reverse();
    machines.truncate(last.unwrap_or(usize::MAX));
    if args.json {
        super::print_json(&machines.iter().map(row).collect::<Vec<_>>())?;
    } else if args.quiet {
        machines.iter().for_each(|m| say!("{}", m.spec.id));
    } else if let Some(format) = &args.format {
        super::print_formatted(&machines.iter().map(fields).collect::<Vec<_>>(), &Template::parse(format)?)?;
    } else {
        let header = ["ID", "NAME", "PROGRAM", "STATUS", "ADDRESS", "PORTS"].map(String::from).to_vec();
        let line = |m: &Machine| {
            let row = row(m);
            let address = row.address.unwrap_or_else(|| "-".into());
            vec![row.id.into(), row.name.into(), row.program.into(), status(m), address, row.ports.join(", ")]
        };
        super::print_table(&std::iter::once(header).chain(machines.iter().map(line)).collect::<Vec<_>>());
        // Not part of the table, which scripts read.
        machines.iter().filter_map(advice::line).for_each(|line| eprintln!("unilith: {line}"));
    }
    Ok(0)
}

fn row(machine: &Machine) -> Row<'_> {
    let (spec, state) = (&machine.spec, &machine.state);
    let alive = state.phase.is_alive();
    Row {
        id: &spec.id,
        name: &spec.name,
        program: &spec.program,
        phase: state.phase,
        exit_code: state.outcome.as_ref().map(|o| o.code),
        created_ms: spec.created_ms,
        ready_in_ms: state.ready_in_ms,
        address: state.address().filter(|_| alive).map(|a| a.to_string()),
        ports: if alive { state.published.iter().map(ToString::to_string).collect() } else { Vec::new() },
    }
}

pub fn status(machine: &Machine) -> String {
    let state = &machine.state;
    let since =
        |ms: Option<u64>| duration(now_ms().saturating_sub(ms.unwrap_or(machine.spec.created_ms)) / 1000);
    match (&state.outcome, state.phase) {
        (Some(outcome), _) if machine.is_restarting() => {
            format!("restarting ({}) {} ago", outcome.code, since(state.finished_ms))
        }
        (Some(outcome), _) => format!("exited ({}) {} ago", outcome.code, since(state.finished_ms)),
        (None, Phase::Created) => "created".into(),
        (None, phase) if is_paused(machine) => {
            format!("{} for {} (paused)", phase.word(), since(state.started_ms))
        }
        (None, phase) => {
            let health = machine.health().map_or("", |h| crate::health::words(h.status));
            format!("{} for {}{health}", phase.word(), since(state.started_ms))
        }
    }
}

/// A number of seconds in the one unit that says most.
pub fn duration(seconds: u64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    let (count, unit) =
        units.iter().find(|(n, _)| seconds >= *n).map_or((seconds, "second"), |(n, u)| (seconds / n, *u));
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_one_unit() {
        let told = [1, 59, 60, 7200, 90_000].map(duration);
        assert_eq!(told, ["1 second", "59 seconds", "1 minute", "2 hours", "1 day"]);
    }
}
