// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `containers`: the containers of a pod that run in this machine, what each uses, and what it may.

use crate::arguments::number;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use api_overlay::{Column, Command, Completes, Failure, Listing, Outcome, Session, Value, manual};
use task::containers::{self, Container};
use task::control_group::{ControlGroup, Limits, MACHINE, NO_LIMIT};

pub const COMMANDS: [Command; 1] = [Command {
    name: "containers",
    arguments: manual!("[limit NAME SETTING=NUMBER...]"),
    summary: manual!("List the containers of this machine, or change the limits of one"),
    help: manual!(
        "Lists the containers of a pod that run in this machine, with the machine's own programs in front: processes and \
           threads and the most there may be, memory of their own and the most it may be, processor time in user mode and in the kernel; \
           periods of the quota of processor time in which it ran, in how many the quota was used up, and how long it waited then.\n\
           limit  changes limits of the container of that name, or of the machine's own programs (-): memory in bytes, pids, quota and \
           period in microseconds. `max` is no limit. The host holds the quota of the machine's own programs"
    ),
    completes: Completes::Nothing,
    run: act,
}];

/// How the machine's own programs are called.
const MACHINES: &[u8] = b"-";

const COLUMNS: [Column; 10] = [
    Column::left("name", "NAME", 12),
    Column::right("pids", "PIDS", 5),
    Column::right("max_pids", "MAX", 5),
    Column::right("memory_bytes", "MEMORY", 9),
    Column::right("max_memory_bytes", "MAX", 9),
    Column::right("user_ns", "USER", 9),
    Column::right("system_ns", "SYSTEM", 9),
    Column::right("periods", "PERIODS", 8),
    Column::right("throttled_periods", "THROTTLED", 9),
    Column::right("throttled_ns", "FOR", 9),
];

fn act(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    match arguments {
        [] => list(session),
        [b"limit", name, settings @ ..] if !settings.is_empty() => limit(name, settings),
        _ => Err(Failure::usage("containers, or containers limit NAME SETTING=NUMBER...")),
    }
}

fn list(session: &dyn Session) -> Outcome {
    // Whoever asks for times gets exact ones from then on.
    task::cpu_time::start();
    let mut list = Listing::new(session, &COLUMNS);
    let mut row = |name: &[u8], group: &ControlGroup| {
        let (limits, used, throttling) = (group.limits(), group.usage(), group.throttling());
        let most = |limit: u64| if limit == NO_LIMIT { Value::None } else { Value::Number(limit) };
        list.row(&[
            Value::Text(&String::from_utf8_lossy(name)),
            Value::Number(group.count()),
            most(limits.pids),
            Value::Number(group.memory()),
            most(limits.memory),
            Value::Nanoseconds(used.user_ns),
            Value::Nanoseconds(used.system_ns),
            Value::Number(throttling.periods),
            Value::Number(throttling.throttled),
            Value::Nanoseconds(throttling.throttled_ns),
        ])
    };
    row(MACHINES, &MACHINE)?;
    for container in containers::all() {
        row(&container.name, &container.group)?;
    }
    Ok(0)
}

/// Whose limits are changed.
enum Whose {
    Machine,
    Container(Arc<Container>),
}

impl Whose {
    fn limits(&self) -> Limits {
        match self {
            Whose::Machine => MACHINE.limits(),
            Whose::Container(container) => container.group.limits(),
        }
    }

    fn set_limits(&self, limits: Limits) {
        match self {
            Whose::Machine => MACHINE.set_limits(limits),
            Whose::Container(container) => container.set_limits(limits),
        }
    }
}

fn limit(name: &[u8], settings: &[&[u8]]) -> Outcome {
    let whose = match name {
        MACHINES => Whose::Machine,
        name => {
            let found = containers::find(name);
            Whose::Container(found.ok_or_else(|| Failure::about(name).because("no such container runs"))?)
        }
    };
    let mut limits = whose.limits();
    for setting in settings {
        change(&mut limits, setting).ok_or_else(|| {
            let shown = String::from_utf8_lossy(setting);
            Failure::usage(format!("{shown}: memory, pids, quota or period, =, and a number or `max`"))
        })?;
    }
    whose.set_limits(limits);
    Ok(0)
}

/// Changes what a setting names; `None` when it is none.
fn change(limits: &mut Limits, setting: &[u8]) -> Option<()> {
    let equals = setting.iter().position(|byte| *byte == b'=')?;
    let value = match &setting[equals + 1..] {
        b"max" => NO_LIMIT,
        digits => number(digits)?,
    };
    *match &setting[..equals] {
        b"memory" => &mut limits.memory,
        b"pids" => &mut limits.pids,
        b"quota" => &mut limits.cpu.0,
        b"period" if value != NO_LIMIT => &mut limits.cpu.1,
        _ => return None,
    } = value;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_and_have_a_number_or_none() {
        let mut limits = Limits::NONE;
        for setting in ["memory=1048576", "pids=7", "quota=50000", "period=10000"] {
            assert!(change(&mut limits, setting.as_bytes()).is_some(), "{setting}");
        }
        assert_eq!(limits, Limits { memory: 1 << 20, pids: 7, cpu: (50_000, 10_000) });
        change(&mut limits, b"memory=max").unwrap();
        assert_eq!(limits.memory, NO_LIMIT);
        for setting in ["", "memory", "memory=", "pids=-1", "swap=1", "period=max", "=1"] {
            assert!(change(&mut limits, setting.as_bytes()).is_none(), "{setting}");
        }
    }
}
