// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith ps`.

use crate::fault::Result;
use crate::output::say;
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
    /// As JSON
    #[arg(long)]
    json: bool,
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
    machines.retain(|m| args.all || m.state.phase != Phase::Exited);
    machines.reverse();
    if args.json {
        super::print_json(&machines.iter().map(row).collect::<Vec<_>>())?;
    } else if args.quiet {
        machines.iter().for_each(|m| say!("{}", m.spec.id));
    } else {
        let header = ["ID", "NAME", "PROGRAM", "STATUS", "ADDRESS", "PORTS"].map(String::from).to_vec();
        let line = |m: &Machine| {
            let row = row(m);
            let address = row.address.unwrap_or_else(|| "-".into());
            vec![row.id.into(), row.name.into(), row.program.into(), status(m), address, row.ports.join(", ")]
        };
        super::print_table(&std::iter::once(header).chain(machines.iter().map(line)).collect::<Vec<_>>());
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

fn status(machine: &Machine) -> String {
    let state = &machine.state;
    let since =
        |ms: Option<u64>| duration(now_ms().saturating_sub(ms.unwrap_or(machine.spec.created_ms)) / 1000);
    match (&state.outcome, state.phase) {
        (Some(outcome), _) => format!("exited ({}) {} ago", outcome.code, since(state.finished_ms)),
        (None, Phase::Created) => "created".into(),
        (None, phase) => format!("{} for {}", phase.word(), since(state.started_ms)),
    }
}

/// A number of seconds in the one unit that says most.
fn duration(seconds: u64) -> String {
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
