// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith compose up`.

use super::{
    follow::{Follow, POLL, View},
    load::{Loaded, make_directory},
    machines::{self, HASH, NUMBER, PROJECT, SERVICE},
};
use crate::{
    fault::{Fault, Result, file},
    health,
    line::{self, Program},
    prepare::MachineKind,
    verbs::{network, run, start, stop, volume},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use unilith_compose::{
    project::{Kept, Text},
    service::{Condition, Service, Source},
};
use unilith_machine::{
    lines::printable,
    networks::Named,
    record::{Phase, Wellness, now_ms},
    store::{Machine, Store},
};
use unilith_network::members;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Do not show what services print, and leave them running
    #[arg(short, long)]
    detach: bool,
    /// Make machines anew that are as described
    #[arg(long)]
    force_recreate: bool,
    /// Remove machines of services that are not in the file any more
    #[arg(long)]
    remove_orphans: bool,
    /// How many machines a service has, instead of what the file says; may repeat
    #[arg(long, value_name = "SERVICE=COUNT")]
    scale: Vec<String>,
    /// End all when one has ended
    #[arg(long, conflicts_with = "detach")]
    abort_on_container_exit: bool,
    /// Exit with this service's code; as --abort-on-container-exit
    #[arg(long, value_name = "SERVICE", conflicts_with = "detach")]
    exit_code_from: Option<String>,
    /// Seconds programs have to end themselves
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Begin each line with the time at which it was printed
    #[arg(long)]
    timestamps: bool,
    /// Leave the machines' names out
    #[arg(long)]
    no_log_prefix: bool,
    /// Without colours
    #[arg(long)]
    no_color: bool,
    /// What the machines are
    #[arg(long, value_enum, default_value = "auto")]
    machine: MachineKind,
    /// Make the machines of services anew whose image is a directory or file, which may have changed
    #[arg(long)]
    build: bool,
    services: Vec<String>,
}

/// How long a server without a health check may take until it serves, after `run -d` has waited for it already.
const SERVING_LIMIT: Duration = Duration::from_secs(60);
/// The exit code of what Ctrl-C ended, as shells show it.
const INTERRUPTED: u8 = 130;

pub fn act(store: &Store, loaded: &Loaded, args: &Args) -> Result<u8> {
    let chosen = loaded.chosen(&args.services)?;
    if chosen.is_empty() {
        return Err(Fault::new(
            "no service is chosen: all have profiles; name one, or take a profile with --profile NAME",
        ));
    }
    if let Some(name) = &args.exit_code_from {
        loaded.service(name)?;
    }
    let scale = scale(loaded, args)?;
    let count = |s: &Service| scale.get(s.name.as_str()).copied().unwrap_or(s.replicas);
    // Ctrl-C from here on ends what was started; a second one ends it at once.
    let interrupts = Arc::new(AtomicUsize::new(0));
    if !args.detach {
        watch(&interrupts)?;
    }
    let since = now_ms();
    // What is wrong with the file is said before anything is made.
    for service in &chosen {
        Up { store, loaded, args, service, networks: &BTreeMap::new() }.program()?;
        loaded.environment(service)?;
    }
    let networks = networks(store, loaded, &chosen, chosen.iter().map(|s| count(s)).sum())?;
    for orphan in machines::orphans(store, loaded)? {
        if args.remove_orphans {
            machines::remove(store, &[orphan], args.timeout)?;
        } else {
            machines::say_orphan(&orphan);
        }
    }
    let is_interrupted = || interrupts.load(Ordering::Relaxed) > 0;
    'services: for service in &chosen {
        wait_for_others(store, loaded, service, &is_interrupted)?;
        let there = machines::of(store, loaded, std::slice::from_ref(&service.name))?;
        let surplus: Vec<Machine> =
            there.iter().filter(|m| machines::number(m) > count(service)).cloned().collect();
        machines::remove(store, &surplus, args.timeout)?;
        for n in 1..=count(service) {
            // What was started already is ended below.
            if is_interrupted() {
                break 'services;
            }
            let earlier = there.iter().find(|m| machines::number(m) == n);
            let up = Up { store, loaded, args, service, networks: &networks };
            up.ensure(n, earlier)?;
        }
    }
    if args.detach {
        return Ok(0);
    }
    let names: Vec<String> = chosen.iter().map(|s| s.name.clone()).collect();
    attend(store, &machines::of(store, loaded, &names)?, args, since, &interrupts)
}

fn scale<'a>(loaded: &Loaded, args: &'a Args) -> Result<BTreeMap<&'a str, u32>> {
    let mut scale = BTreeMap::new();
    for text in &args.scale {
        let most = unilith_compose::service::MAX_REPLICAS;
        let wrong = || Fault {
            code: 2,
            message: printable(&format!("--scale {text}: write SERVICE=COUNT, at most {most}")),
        };
        let (name, count) = text.split_once('=').ok_or_else(wrong)?;
        let service = loaded.service(name)?;
        let count = count.parse().ok().filter(|n| *n <= most).ok_or_else(wrong)?;
        if count > 1 && service.container_name.is_some() {
            return Err(Fault::new(format!(
                "service {name} has a container_name: several machines cannot have it"
            )));
        }
        scale.insert(name, count);
    }
    Ok(scale)
}

fn watch(interrupts: &Arc<AtomicUsize>) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch for Ctrl-C: {e}")))?;
    let count = interrupts.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Shows what the machines print until all have ended, and ends them at Ctrl-C.
fn attend(store: &Store, found: &[Machine], args: &Args, since: u64, interrupts: &AtomicUsize) -> Result<u8> {
    let view = View {
        tail: None,
        since: Some(since),
        timestamps: args.timestamps,
        prefix: !args.no_log_prefix,
        colours: !args.no_color,
    };
    let mut follow = Follow::open(found, &view)?;
    let aborts = args.abort_on_container_exit || args.exit_code_from.is_some();
    let mut told: Vec<String> = Vec::new();
    let mut code = 0;
    loop {
        let interrupted = interrupts.load(Ordering::Relaxed) > 0;
        let ended: Vec<(Machine, u8)> =
            follow.ended()?.into_iter().map(|(m, code)| (m.clone(), code)).collect();
        let is_read = follow.copy()?;
        for (machine, of_machine) in &ended {
            if !told.contains(&machine.spec.id) {
                eprintln!("unilith: {} ended with code {of_machine}", machine.spec.name);
                told.push(machine.spec.id.clone());
                let is_meant = args.exit_code_from.as_deref() == Some(machines::service(machine));
                if is_meant || args.exit_code_from.is_none() && aborts && told.len() == 1 {
                    code = *of_machine;
                }
            }
        }
        if ended.len() == found.len() {
            follow.finish()?;
            return Ok(if interrupted { INTERRUPTED } else { code });
        }
        if interrupted || !is_read || aborts && !ended.is_empty() {
            if interrupted {
                eprintln!("unilith: ending the project's machines; Ctrl-C again ends them at once");
            }
            end(store, found, args.timeout, interrupts)?;
            let ended: Vec<(Machine, u8)> =
                follow.ended()?.into_iter().map(|(m, c)| (m.clone(), c)).collect();
            let meant =
                |(m, _): &&(Machine, u8)| args.exit_code_from.as_deref() == Some(machines::service(m));
            if let Some((_, of_machine)) = ended.iter().find(meant) {
                code = *of_machine;
            }
            if is_read {
                follow.copy()?;
                follow.finish()?;
            }
            return Ok(if interrupted { INTERRUPTED } else { code });
        }
        std::thread::sleep(POLL);
    }
}

/// Asks all machines to end; another interrupt ends them at once.
fn end(store: &Store, found: &[Machine], timeout: Option<u64>, interrupts: &AtomicUsize) -> Result<()> {
    let before = interrupts.load(Ordering::Relaxed);
    let (own, list) = (store.clone(), found.to_vec());
    let stopping = std::thread::spawn(move || machines::stop(&own, &list, timeout));
    while !stopping.is_finished() {
        if interrupts.load(Ordering::Relaxed) > before {
            for machine in found {
                drop(stop::end(store, machine, true, Duration::ZERO)?);
            }
        }
        std::thread::sleep(POLL);
    }
    stopping.join().unwrap_or(Ok(()))
}

/// Waits until the services that this one depends on are as far as it needs them.
fn wait_for_others(
    store: &Store,
    loaded: &Loaded,
    service: &Service,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<()> {
    for dependency in &service.depends_on {
        let is_there = loaded.project.services.iter().any(|s| s.name == dependency.service);
        if !is_there || dependency.condition == Condition::Started {
            continue;
        }
        let name = &dependency.service;
        for machine in machines::of(store, loaded, std::slice::from_ref(name))? {
            let begin = Instant::now();
            let mut is_told = false;
            let failed = loop {
                if is_interrupted() {
                    return Ok(());
                }
                let Some(machine) = machine.again() else { break Some("was removed".to_string()) };
                // As long as its supervisor lives, its restart policy may start it again.
                let is_for_good = machine.try_hold()?.is_some();
                let ended = machine.state.outcome.as_ref().filter(|_| is_for_good).map(|o| o.code);
                match (dependency.condition, ended) {
                    (Condition::Completed, Some(0)) | (Condition::Started, _) => break None,
                    (_, Some(code)) => {
                        break Some(format!(
                            "ended with code {code}; see `unilith logs {}`",
                            machine.spec.name
                        ));
                    }
                    (Condition::Healthy, None) => match (machine.health(), &machine.spec.health) {
                        (Some(found), Some(check)) => {
                            let why = health::failure(&found, &check.command);
                            match found.status {
                                Wellness::Healthy => break None,
                                Wellness::Unhealthy => {
                                    break Some(format!("is unhealthy: {}", why.unwrap_or_default()));
                                }
                                Wellness::Starting => {}
                            }
                            // It will not be better, but how often it is asked is the file's.
                            if let Some(why) = why.filter(|_| !is_told)
                                && found.log.last().is_some_and(health::never_ran)
                            {
                                eprintln!("unilith: {}: {}", machine.spec.name, printable(&why));
                                is_told = true;
                            }
                        }
                        // Without a check of its own a server is well when it serves.
                        _ if machine.state.phase == Phase::Ready => break None,
                        (_, None) if begin.elapsed() > SERVING_LIMIT => {
                            break Some(
                                "has no healthcheck and does not serve; write one, or condition: service_started"
                                    .into(),
                            );
                        }
                        _ => {}
                    },
                    (Condition::Completed, None) => {}
                }
                std::thread::sleep(POLL);
            };
            if let Some(why) = failed {
                let message = format!(
                    "service {} needs {name}, whose machine {} {why}",
                    service.name, machine.spec.name
                );
                let message = printable(&message);
                if dependency.required {
                    return Err(Fault::new(message));
                }
                eprintln!("unilith: {message}");
            }
        }
    }
    Ok(())
}

/// The networks that the services use, made where they are not there: what the file calls them, and they.
fn networks(
    store: &Store,
    loaded: &Loaded,
    chosen: &[&Service],
    count: u32,
) -> Result<BTreeMap<String, Named>> {
    let mut found = BTreeMap::new();
    let mut keys: Vec<&str> = Vec::new();
    for service in chosen.iter().filter(|s| s.network_mode.is_none()) {
        match &service.networks {
            None => keys.push("default"),
            Some(all) => keys.extend(all.iter().map(|m| m.network.as_str())),
        }
    }
    let is_alone = count <= 1 && loaded.project.networks.is_empty();
    if let Some(lack) = members::lack().filter(|_| !keys.is_empty()) {
        // A service alone has nobody to reach.
        if is_alone {
            return Ok(found);
        }
        return Err(Fault::new(format!("services cannot reach each other here: {lack}")));
    }
    for key in keys {
        if found.contains_key(key) {
            continue;
        }
        let shared = loaded.project.networks.iter().find(|n| n.key == key);
        let name = shared.map_or_else(|| format!("{}_{key}", loaded.name), |shared| loaded.real_name(shared));
        let network = match store.network(&name) {
            Ok(network) => network,
            Err(error) if shared.is_some_and(|s| s.external) => return Err(error.into()),
            Err(_) => {
                let network = network::create(store, &name, &[format!("{PROJECT}={}", loaded.name)])?;
                eprintln!("unilith: network {name} made");
                network
            }
        };
        found.insert(key.to_string(), network);
    }
    Ok(found)
}

struct Up<'a> {
    store: &'a Store,
    loaded: &'a Loaded,
    args: &'a Args,
    service: &'a Service,
    networks: &'a BTreeMap<String, Named>,
}

impl Up<'_> {
    fn wrong(&self, key: &str, line: usize, why: &str) -> Fault {
        let message = format!("line {line}: services.{}.{key}: {why}", self.service.name);
        Fault { code: 2, message: printable(&message) }
    }

    /// Sees to it that the service's n-th machine runs and is as described.
    fn ensure(&self, n: u32, earlier: Option<&Machine>) -> Result<()> {
        let service = self.service;
        let usual = || format!("{}-{}-{n}", self.loaded.name, service.name);
        let name = service.container_name.clone().unwrap_or_else(usual);
        let words = self.words(&name)?;
        let program = self.program()?;
        let mut hash = Sha256::new();
        let health = service.health.as_ref().and_then(|h| h.command.clone()).unwrap_or_default();
        let of_networks = self
            .memberships()
            .into_iter()
            .flat_map(|(network, aliases)| [vec![network.id], aliases].concat());
        for word in
            words.iter().chain(&program.words).chain(&program.name).chain(&health).cloned().chain(of_networks)
        {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        }
        let hash: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        if let Some(machine) = earlier {
            if machines::hash(machine) == hash && !self.is_made_anew() {
                if machines::is_alive(machine) {
                    eprintln!("unilith: {} runs already", machine.spec.name);
                    return Ok(());
                }
                start::start(machine, None)?;
                eprintln!("unilith: {} started again", machine.spec.name);
                return Ok(());
            }
            machines::remove(self.store, std::slice::from_ref(machine), self.args.timeout)?;
        }
        let mut flags: run::RunFlags = line::read(words).map_err(|fault| self.of_service(fault))?;
        flags.flags.machine = self.args.machine;
        // `disable: true`, or `test: NONE`.
        flags.flags.health.no_healthcheck = service.health.as_ref().is_some_and(|h| h.command.is_none());
        flags.flags.health.words = health;
        let labels = [
            (PROJECT, self.loaded.name.clone()),
            (SERVICE, service.name.clone()),
            (NUMBER, n.to_string()),
            (HASH, hash),
        ];
        let memberships = self.memberships();
        let machine = run::make(self.store, &flags, &program, |spec| {
            // As with docker only what the file says is published.
            spec.offer.clear();
            spec.labels.extend(labels.map(|(key, value)| (key.to_string(), value)));
            for joined in &mut spec.networks {
                let aliases = memberships.iter().find(|(network, _)| network.id == joined.id);
                joined.aliases.extend(aliases.into_iter().flat_map(|(_, aliases)| aliases.clone()));
            }
        });
        let machine = machine.map_err(|fault| self.of_service(fault))?;
        let name = machine.spec.name.clone();
        match run::detach(machine, None)? {
            0 => {
                eprintln!("unilith: {name} started");
                Ok(())
            }
            code => Err(Fault {
                code,
                message: format!("service {}: machine {name} did not start", service.name),
            }),
        }
    }

    /// Whether the user wants another machine even if nothing of the file has changed.
    fn is_made_anew(&self) -> bool {
        let is_file = |image: &str| {
            image.starts_with(['.', '/', '~'])
                || ["oci:", "dir:", "cpio:"].iter().any(|prefix| image.starts_with(prefix))
        };
        self.args.force_recreate || self.args.build && is_file(&self.service.image)
    }

    fn of_service(&self, fault: Fault) -> Fault {
        Fault { message: printable(&format!("service {}: {}", self.service.name, fault.message)), ..fault }
    }

    /// The service's networks and its further names there.
    fn memberships(&self) -> Vec<(Named, Vec<String>)> {
        let own = |aliases: &[String]| [&[self.service.name.clone()][..], aliases].concat();
        let of = |key: &str, aliases: &[String]| Some((self.networks.get(key)?.clone(), own(aliases)));
        match (&self.service.network_mode, &self.service.networks) {
            (Some(_), _) => Vec::new(),
            (None, None) => of("default", &[]).into_iter().collect(),
            (None, Some(all)) => all.iter().filter_map(|m| of(&m.network, &m.aliases)).collect(),
        }
    }

    /// What runs.
    fn program(&self) -> Result<Program> {
        let service = self.service;
        let image = service.image.as_str();
        let at = |prefix: &str, rest: &str| format!("{prefix}{}", self.loaded.path(rest).display());
        let name = match image.split_once(':') {
            _ if image.starts_with(['.', '/', '~']) => at("", image),
            Some((prefix @ ("oci" | "dir" | "cpio"), rest)) => at(&format!("{prefix}:"), rest),
            Some(("debian" | "deb", _)) => image.to_string(),
            None if !image.contains('/') => image.to_string(),
            _ => {
                let base =
                    image.rsplit('/').next().unwrap_or(image).split([':', '@']).next().unwrap_or(image);
                return Err(self.wrong(
                    "image",
                    service.image_line,
                    &format!(
                        "`{image}` is an image of a registry, and nothing is pulled: write `{base}` if `unilith apps` lists it, debian:PACKAGE, ./DIRECTORY, or oci:FILE with what `docker save -o FILE {image}` wrote"
                    ),
                ));
            }
        };
        let mut words: Vec<String> =
            service.entrypoint.iter().flat_map(|e| e.iter().skip(1).cloned()).collect();
        words.extend(service.command.iter().cloned());
        Ok(Program { name: Some(name), words })
    }

    /// The flags of `run` that make the machine.
    fn words(&self, name: &str) -> Result<Vec<String>> {
        let s = self.service;
        let mut words = vec!["--detach".to_string(), format!("--name={name}")];
        let mut flag = |flag: &str, value: &str| words.push(format!("--{flag}={value}"));
        for (network, _) in self.memberships() {
            flag("network", &network.id);
        }
        s.network_mode.iter().for_each(|mode| flag("network", mode));
        s.ports.iter().for_each(|port| flag("publish", port));
        for (key, value) in self.loaded.environment(s)? {
            flag("env", &format!("{key}={value}"));
        }
        for mount in &s.mounts {
            let host = self.mounted(name, &mount.source, &mount.target, mount.line)?;
            let host = host.to_str().filter(|h| !h.contains(':')).ok_or_else(|| {
                self.wrong(
                    "volumes",
                    mount.line,
                    "a path with a colon, or that is no text, cannot be mounted",
                )
            })?;
            flag("volume", &format!("{host}:{}{}", mount.target, if mount.read_only { ":ro" } else { "" }));
        }
        let texts = s.secrets.iter().map(|u| (u, &self.loaded.project.secrets));
        for (wanted, all) in texts.chain(s.configs.iter().map(|u| (u, &self.loaded.project.configs))) {
            let Some(kept) = all.iter().find(|k| k.key == wanted.source) else { continue };
            flag("volume", &format!("{}:{}:ro", self.text_of(kept)?.display(), wanted.target));
        }
        s.tmpfs.iter().for_each(|tmpfs| flag("tmpfs", tmpfs));
        s.extra_hosts.iter().for_each(|host| flag("add-host", host));
        s.dns.iter().for_each(|server| flag("dns", server));
        s.labels.iter().for_each(|(key, value)| flag("label", &format!("{key}={value}")));
        let optional = [
            ("restart", &s.restart),
            ("hostname", &s.hostname),
            ("user", &s.user),
            ("workdir", &s.working_dir),
            ("ulimit", &s.ulimit),
            ("stop-signal", &s.stop_signal),
            ("memory", &s.memory),
        ];
        for (name, value) in optional {
            value.iter().for_each(|value| flag(name, value));
        }
        if let Some(entrypoint) = s.entrypoint.as_ref().and_then(|e| e.first()) {
            flag("entrypoint", entrypoint);
        }
        s.cpus.iter().for_each(|cpus| flag("cpus", &cpus.to_string()));
        s.stop_grace.iter().for_each(|seconds| flag("stop-timeout", &seconds.to_string()));
        if let Some(health) = s.health.as_ref().filter(|h| h.command.is_some()) {
            let times = [
                ("health-interval", health.interval),
                ("health-timeout", health.timeout),
                ("health-start-period", health.start_period),
                ("health-start-interval", health.start_interval),
            ];
            for (name, ms) in times {
                ms.iter().for_each(|ms| flag(name, &format!("{ms}ms")));
            }
            health.retries.iter().for_each(|count| flag("health-retries", &count.to_string()));
        }
        if s.read_only {
            words.push("--read-only".into());
        }
        if s.tty {
            words.push("--tty".into());
        }
        Ok(words)
    }

    /// The directory or file of this host that is mounted.
    fn mounted(&self, machine: &str, source: &Source, target: &str, line: usize) -> Result<PathBuf> {
        match source {
            Source::Bind(path) => {
                let path = self.loaded.path(path);
                if !path.exists() {
                    make_directory(&path)?;
                }
                Ok(path)
            }
            Source::Volume(key) => {
                let all = &self.loaded.project.volumes;
                let Some(shared) = all.iter().find(|v| v.key == *key) else {
                    return Err(self.wrong("volumes", line, &format!("there is no volume `{key}`")));
                };
                let name = self.loaded.real_name(shared);
                if shared.external && !volume::exists(&name)? {
                    return Err(self.wrong(
                        "volumes",
                        line,
                        &format!("there is no volume {name}; make it first: unilith volume create {name}"),
                    ));
                }
                volume::make(&name)
            }
            Source::Nameless => {
                // The hash tells /a/b from /a_b.
                let hash: String =
                    Sha256::digest(target).iter().take(6).map(|b| format!("{b:02x}")).collect();
                volume::make(&format!("{}-nameless-{machine}-{hash}", self.loaded.name))
            }
        }
    }

    /// A file of this host with a secret's or config's text.
    fn text_of(&self, kept: &Kept) -> Result<PathBuf> {
        let text = match &kept.text {
            Text::File(path) => {
                let path = self.loaded.path(path);
                if !path.is_file() {
                    let message =
                        format!("line {}: {}: there is no file {}", kept.line, kept.key, path.display());
                    return Err(Fault { code: 2, message: printable(&message) });
                }
                return Ok(path);
            }
            Text::Environment(name) => std::env::var(name).map_err(|_| Fault {
                code: 2,
                message: printable(&format!("line {}: {}: variable {name} is not set", kept.line, kept.key)),
            })?,
            Text::Content(text) => text.clone(),
        };
        let folder = machines::kept_folder(self.store, &self.loaded.name);
        make_directory(&folder)?;
        let path = folder.join(&kept.key);
        write(&path, text.as_bytes())?;
        Ok(path)
    }
}

/// Writes a file if it is not so already: a machine may have it.
fn write(path: &Path, text: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(file("write", path))
}
