// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith inspect`.

use crate::{
    advice,
    fault::{Fault, Result},
    template::Template,
};
use serde::Serialize;
use serde_json::{Value, json};
use unilith_machine::{
    record::{Health, Mount, Spec, State},
    store::Store,
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Accepted for symmetry with the other listings: the output is JSON anyway
    #[arg(long)]
    json: bool,
    /// Only these fields, e.g. {{.State.Status}} {{.State.ExitCode}} {{.NetworkSettings.IPAddress}}
    #[arg(short, long, value_name = "TEMPLATE")]
    format: Option<String>,
    #[arg(required = true)]
    machines: Vec<String>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    spec: Spec,
    state: State,
    /// What health checks have found.
    #[serde(skip_serializing_if = "Option::is_none")]
    health_state: Option<Health>,
    /// Names of `state.missing_calls`.
    missing_calls: Vec<&'static str>,
    /// What the machine is missing, and what to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<String>,
    log: std::path::PathBuf,
}

/// The entry with the fields that docker's templates ask for most.
fn with_docker_names(entry: &Entry) -> Result<Value> {
    let mut value = serde_json::to_value(entry).map_err(|e| Fault::new(format!("cannot write JSON: {e}")))?;
    let state = &entry.state;
    let phase = state.phase;
    let more = json!({
        "status": if phase.is_alive() { "running" } else { phase.word() },
        "running": phase.is_alive(),
        "exit_code": state.outcome.as_ref().map_or(0, |o| o.code),
        "pid": state.process.map_or(0, |p| p.pid),
    });
    if let (Some(Value::Object(known)), Value::Object(more)) = (value.get_mut("state"), more) {
        known.extend(more);
        if let Some(health) = &entry.health_state {
            known.insert(
                "health".into(),
                json!({
                    "status": crate::health::word(health.status),
                    "failing_streak": health.failing_streak,
                }),
            );
        }
    }
    let address = state.address().filter(|_| phase.is_alive()).map(|a| a.to_string()).unwrap_or_default();
    // Docker's names, for these are what its users go through with `range` and print as JSON.
    let mut ports = serde_json::Map::new();
    for port in &state.published {
        let at = json!({"HostIp": port.address.to_string(), "HostPort": port.host.to_string()});
        let list = ports.entry(format!("{}/{}", port.guest, port.protocol)).or_insert_with(|| json!([]));
        list.as_array_mut().into_iter().for_each(|list| list.push(at.clone()));
    }
    let names = entry.spec.networks.iter().map(|network| (network.name.as_str(), &network.aliases[..]));
    // A machine without a network of its own is in what docker calls by this name.
    let alone = [("bridge", &[][..])].into_iter().filter(|_| entry.spec.networks.is_empty());
    let network = |(name, aliases)| (String::from(name), json!({"IPAddress": address, "Aliases": aliases}));
    let networks: serde_json::Map<String, Value> = names.chain(alone).map(network).collect();
    value["network_settings"] = json!({"ip_address": address, "ports": ports, "networks": networks});
    let mount = |mount: &Mount| json!({"Type": "bind", "Source": mount.host, "Destination": mount.guest, "RW": !mount.read_only});
    value["mounts"] = entry.spec.volumes.iter().map(mount).collect();
    value["image"] = json!(entry.spec.program);
    value["host_config"] = json!({
        "memory": entry.spec.memory,
        "nano_cpus": u64::from(entry.spec.cpus) * 1_000_000_000,
        "auto_remove": entry.spec.remove,
        "restart_policy": {"name": entry.spec.restart},
    });
    value["config"] = json!({
        "image": entry.spec.program,
        "cmd": entry.spec.args,
        "env": entry.spec.env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(),
        "hostname": entry.spec.hostname,
        "labels": entry.spec.labels,
    });
    Ok(value)
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let mut entries = Vec::new();
    let found = super::for_each_name(&args.machines, |name| {
        let machine = store.find(name)?;
        let name = |number: &u32| syscall_table::row(*number).map_or("no such call", |row| row.name);
        let missing_calls = machine.state.missing_calls.iter().map(name).collect();
        entries.push(Entry {
            missing_calls,
            advice: advice::paragraph(&machine),
            health_state: machine.health(),
            log: machine.console_log(),
            spec: machine.spec,
            state: machine.state,
        });
        Ok(())
    });
    match &args.format {
        None => super::print_json(&entries)?,
        Some(format) => {
            let template = Template::parse(format)?;
            let values = entries.iter().map(with_docker_names).collect::<Result<Vec<_>>>()?;
            super::print_formatted(&values, &template)?;
        }
    }
    found
}
