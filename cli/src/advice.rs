// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is missing, with what to do about it: a line below `ps`, a paragraph in `inspect`.

use unilith_machine::{record::KernelKind, store::Machine};

/// Calls that a line names.
const NAMED: usize = 4;

/// Names of the calls that the kernel refused.
fn refused(machine: &Machine) -> Vec<String> {
    let name = |number: &u32| syscall_table::row(*number).map_or(number.to_string(), |row| row.name.into());
    machine.state.missing_calls.iter().map(name).collect()
}

/// One line for `ps`, if the machine is missing something.
pub fn line(machine: &Machine) -> Option<String> {
    let name = &machine.spec.name;
    if let Some(reason) = machine.state.outcome.as_ref().and_then(|outcome| outcome.reason.as_ref()) {
        return Some(format!("{name}: {reason}"));
    }
    let calls = refused(machine);
    let more = match calls.len() {
        0 => return None,
        count if count > NAMED => format!(" and {} more", count - NAMED),
        _ => String::new(),
    };
    let named = calls[..calls.len().min(NAMED)].join(", ");
    let drops =
        if machine.state.phase.is_alive() { "; if it fails its clients, this may be why" } else { "" };
    Some(format!("{name}: the kernel refused {named}{more}{drops}: unilith inspect {name}"))
}

/// What to do, for `inspect`.
pub fn paragraph(machine: &Machine) -> Vec<String> {
    let mut advice: Vec<String> =
        machine.state.outcome.iter().filter_map(|outcome| outcome.reason.clone()).collect();
    let calls = refused(machine);
    if !calls.is_empty() {
        advice.push(format!(
            "the program asked for system calls that this kernel does not have, and was answered ENOSYS: {}",
            calls.join(", ")
        ));
        advice.push(
            "most programs have another way then; `unilith logs` shows what this one says, `unilith run --trace` when it asks".into(),
        );
        if machine.spec.kernel_kind == KernelKind::Micro {
            advice.push("`unilith run --kernel linux` runs it on Linux, which has them all".into());
        }
    }
    advice
}
