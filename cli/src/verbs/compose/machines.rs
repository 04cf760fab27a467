// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines of a project that are there already.

use super::load::Loaded;
use crate::{
    fault::{Fault, Result, file},
    output::say,
    verbs::{self, stop},
};
use std::{collections::BTreeMap, fs, time::Duration};
use unilith_machine::{
    dirs, events,
    lines::printable,
    networks::Named,
    record::Phase,
    store::{Machine, Store},
};
use unilith_network::ports::Publish;

/// docker's labels.
pub const PROJECT: &str = "com.docker.compose.project";
pub const SERVICE: &str = "com.docker.compose.service";
pub const NUMBER: &str = "com.docker.compose.container-number";
pub const HASH: &str = "com.docker.compose.config-hash";
/// `True` of a machine of `compose run`, which is none of the service's own.
pub const ONE_OFF: &str = "com.docker.compose.oneoff";
pub const CONFIG_FILES: &str = "com.docker.compose.project.config_files";
pub const WORKING_DIR: &str = "com.docker.compose.project.working_dir";

fn label<'a>(machine: &'a Machine, key: &str) -> &'a str {
    machine.spec.labels.get(key).map_or("", String::as_str)
}

pub fn service(machine: &Machine) -> &str {
    label(machine, SERVICE)
}

pub fn number(machine: &Machine) -> u32 {
    label(machine, NUMBER).parse().unwrap_or(0)
}

pub fn hash(machine: &Machine) -> &str {
    label(machine, HASH)
}

fn is_one_off(machine: &Machine) -> bool {
    label(machine, ONE_OFF) == "True"
}

/// All machines of the project but those of `compose run`, those of one service by number.
pub fn all(store: &Store, project: &str) -> Result<Vec<Machine>> {
    let mut machines = store.list()?;
    machines.retain(|m| label(m, PROJECT) == project && !is_one_off(m));
    machines.sort_by_key(|m| (service(m).to_string(), number(m)));
    Ok(machines)
}

/// The machines that `compose run` has made of the project's services.
fn one_offs(store: &Store, project: &str) -> Result<Vec<Machine>> {
    let mut machines = store.list()?;
    machines.retain(|m| label(m, PROJECT) == project && is_one_off(m));
    Ok(machines)
}

/// A project: its machines that run, those that have ended, and its files.
#[derive(Default)]
struct Summary {
    running: usize,
    ended: usize,
    files: String,
}

/// The projects that have machines.
pub fn projects(store: &Store, with_ended: bool, quiet: bool, json: bool) -> Result<u8> {
    let mut found: BTreeMap<String, Summary> = BTreeMap::new();
    for machine in store.list()?.iter().filter(|m| !label(m, PROJECT).is_empty()) {
        let summary = found.entry(label(machine, PROJECT).to_string()).or_default();
        *(if is_alive(machine) { &mut summary.running } else { &mut summary.ended }) += 1;
        if !label(machine, CONFIG_FILES).is_empty() {
            summary.files = label(machine, CONFIG_FILES).into();
        }
    }
    found.retain(|_, summary| with_ended || summary.running > 0);
    let status = |summary: &Summary| {
        let counts = [("exited", summary.ended), ("running", summary.running)];
        let counts =
            counts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{word}({count})"));
        counts.collect::<Vec<_>>().join(", ")
    };
    if json {
        let rows = found.iter().map(|(name, summary)| {
            serde_json::json!({"Name": name, "Status": status(summary), "ConfigFiles": summary.files})
        });
        crate::verbs::print_json(&rows.collect::<Vec<_>>())?;
    } else if quiet {
        found.keys().for_each(|name| say!("{}", printable(name)));
    } else {
        let mut rows = vec![["NAME", "STATUS", "CONFIG FILES"].map(String::from).to_vec()];
        rows.extend(
            found
                .iter()
                .map(|(name, summary)| vec![printable(name), status(summary), printable(&summary.files)]),
        );
        crate::verbs::print_table(&rows);
    }
    Ok(0)
}

/// The processes of each machine.
pub fn processes(machines: &[Machine]) -> Result<u8> {
    for machine in machines.iter().filter(|m| m.state.phase.is_alive()) {
        say!("{}", machine.spec.name);
        crate::session::Session::open(machine)?.run(&["ps"], false)?;
        say!("");
    }
    Ok(0)
}

/// The machines of these services, in the order in which services start; none named: of all in the file.
pub fn of(store: &Store, loaded: &Loaded, services: &[String]) -> Result<Vec<Machine>> {
    for name in services {
        loaded.service(name)?;
    }
    let all = all(store, &loaded.name)?;
    let order = loaded.project.services.iter().map(|s| &s.name);
    let meant = order.filter(|name| services.is_empty() || services.contains(name));
    Ok(meant.flat_map(|name| all.iter().filter(move |m| service(m) == name.as_str())).cloned().collect())
}

/// Machines of the project whose services are not in the file any more.
pub fn orphans(store: &Store, loaded: &Loaded) -> Result<Vec<Machine>> {
    let mut all = all(store, &loaded.name)?;
    all.retain(|m| !loaded.project.services.iter().any(|s| s.name == service(m)));
    Ok(all)
}

pub fn one(store: &Store, loaded: &Loaded, name: &str, wanted: u32) -> Result<Machine> {
    let found = of(store, loaded, &[name.to_string()])?;
    let machine = found.into_iter().find(|m| number(m) == wanted && m.state.phase.is_alive());
    machine.ok_or_else(|| {
        Fault::new(format!(
            "service {name} has no machine {wanted} that runs; `unilith compose ps -a` lists them"
        ))
    })
}

/// Whether the machine runs, is being started, or waits for its restart policy to start it again.
pub fn is_alive(machine: &Machine) -> bool {
    machine.state.outcome.is_none() && machine.state.phase != Phase::Exited || machine.is_restarting()
}

pub fn list(
    store: &Store,
    loaded: &Loaded,
    with_ended: bool,
    quiet: bool,
    services: &[String],
) -> Result<u8> {
    let mut rows = vec![["NAME", "PROGRAM", "SERVICE", "STATUS", "PORTS"].map(String::from).to_vec()];
    let mut found = of(store, loaded, services)?;
    found.retain(|m| with_ended || is_alive(m));
    if with_ended {
        let is_meant = |m: &Machine| services.is_empty() || services.iter().any(|name| name == service(m));
        found.extend(one_offs(store, &loaded.name)?.into_iter().filter(is_meant));
    }
    for machine in &found {
        if quiet {
            say!("{}", machine.spec.id);
            continue;
        }
        let ports = machine.state.published.iter().map(ToString::to_string).collect::<Vec<_>>();
        let ports = if is_alive(machine) { ports.join(", ") } else { String::new() };
        let (name, program) = (machine.spec.name.clone(), machine.spec.program.clone());
        rows.push(vec![name, program, service(machine).into(), crate::verbs::ps::status(machine), ports]);
    }
    if !quiet {
        crate::verbs::print_table(&rows);
    }
    Ok(0)
}

/// Asks those that run to end, the last service first.
pub fn stop(store: &Store, machines: &[Machine], timeout: Option<u64>) -> Result<()> {
    for machine in machines.iter().rev() {
        // Asked again: one may have ended meanwhile, or waits for its next start.
        let Some(machine) = machine.again().filter(is_alive) else { continue };
        drop(stop::end(store, &machine, false, stop::grace(&machine, timeout))?);
        events::note(store.shared(), &machine.spec, "stop", &[]);
        eprintln!("unilith: {} stopped", machine.spec.name);
    }
    Ok(())
}

/// Stops the processes of machines that run, or lets those go on that are stopped.
pub fn pause(store: &Store, machines: &[Machine], pause: bool) -> Result<u8> {
    let is_meant = |m: &&Machine| m.state.phase.is_alive() && verbs::pause::is_paused(m) != pause;
    for machine in machines.iter().filter(is_meant) {
        verbs::pause::set(store, machine, pause)?;
        eprintln!("unilith: {} {}", machine.spec.name, if pause { "paused" } else { "goes on" });
    }
    Ok(0)
}

pub fn kill(store: &Store, machines: &[Machine]) -> Result<u8> {
    for machine in machines.iter().rev().filter_map(Machine::again).filter(is_alive) {
        drop(stop::end(store, &machine, true, Duration::ZERO)?);
        eprintln!("unilith: {} ended", machine.spec.name);
    }
    Ok(0)
}

/// Where the machine's port is reached, as `80` or `53/udp`.
pub fn port(machine: &Machine, wanted: &str) -> Result<u8> {
    let (number, protocol) = wanted.split_once('/').unwrap_or((wanted, "tcp"));
    let is_it = |p: &&Publish| p.guest.to_string() == number && p.protocol.to_string() == protocol;
    let found = machine.state.published.iter().find(is_it).ok_or_else(|| {
        Fault::new(printable(&format!(
            "port {wanted} of {} is not published; write it under `ports:` of the service",
            machine.spec.name
        )))
    })?;
    say!("{}", found.at());
    Ok(0)
}

pub fn remove(store: &Store, machines: &[Machine], timeout: Option<u64>) -> Result<()> {
    let alive: Vec<Machine> = machines.iter().filter(|m| is_alive(m)).cloned().collect();
    stop(store, &alive, timeout)?;
    for machine in machines.iter().rev() {
        let Some(machine) = machine.again() else { continue };
        crate::verbs::rm::remove(store, &machine, &machine.spec.name, true)?;
        eprintln!("unilith: {} removed", machine.spec.name);
    }
    Ok(())
}

pub fn start(store: &Store, loaded: &Loaded, services: &[String]) -> Result<u8> {
    let found = of(store, loaded, services)?;
    if found.is_empty() {
        return Err(Fault::new(format!(
            "project {} has no machines; `unilith compose up` makes them",
            loaded.name
        )));
    }
    for machine in found.iter().filter(|m| !is_alive(m)) {
        crate::verbs::start::start(machine, None)?;
        eprintln!("unilith: {} started", machine.spec.name);
    }
    Ok(0)
}

pub fn down(
    store: &Store,
    loaded: &Loaded,
    volumes: bool,
    remove_orphans: bool,
    timeout: Option<u64>,
) -> Result<u8> {
    let mut found = of(store, loaded, &[])?;
    found.extend(one_offs(store, &loaded.name)?);
    let anonymous: Vec<_> =
        found.iter().flat_map(|m| m.spec.volumes.iter().map(|v| v.host.clone())).collect();
    let orphans = orphans(store, loaded)?;
    if remove_orphans {
        found.extend(orphans);
    } else {
        orphans.iter().for_each(say_orphan);
    }
    remove(store, &found, timeout)?;
    for network in of_project(store, &loaded.name)? {
        // An orphan's, which goes with it.
        if store.members(&network)?.iter().any(is_alive) {
            eprintln!("unilith: network {} is still used", network.name);
            continue;
        }
        store.remove_network(&network)?;
        eprintln!("unilith: network {} removed", network.name);
    }
    let kept = kept_folder(store, &loaded.name);
    if kept.exists() {
        fs::remove_dir_all(&kept).map_err(file("remove", &kept))?;
    }
    if !volumes {
        return Ok(0);
    }
    let folder = dirs::data()?.join("volumes");
    let names =
        loaded.project.volumes.iter().filter(|v| !v.external).map(|v| folder.join(loaded.real_name(v)));
    let nameless = format!("{}-nameless-", loaded.name);
    let is_nameless = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&nameless))
    };
    for path in names.chain(anonymous.into_iter().filter(is_nameless)).filter(|path| path.is_dir()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let user = store.list()?.into_iter().find(|m| m.spec.volumes.iter().any(|v| v.host == path));
        if let Some(user) = user {
            eprintln!("unilith: volume {name} is still used by {}", user.spec.name);
            continue;
        }
        fs::remove_dir_all(&path).map_err(file("remove", &path))?;
        eprintln!("unilith: volume {name} removed");
    }
    Ok(0)
}

pub fn say_orphan(machine: &Machine) {
    eprintln!(
        "unilith: {} is of the service {}, which is not in the file any more; --remove-orphans removes it",
        machine.spec.name,
        printable(service(machine))
    );
}

/// Where texts of secrets and configs are that have no file of their own.
pub fn kept_folder(store: &Store, project: &str) -> std::path::PathBuf {
    store.shared().join("compose").join(project)
}

/// The networks that were made for the project.
pub fn of_project(store: &Store, project: &str) -> Result<Vec<Named>> {
    let mut networks = store.networks()?;
    networks.retain(|n| n.labels.get(PROJECT).is_some_and(|p| p == project));
    Ok(networks)
}
