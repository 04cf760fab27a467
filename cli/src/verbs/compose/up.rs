// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith compose up`.

use super::{
    follow::{Follow, POLL, View},
    load::Loaded,
    machines::{self, HASH, NUMBER},
    service::{Description, networks},
};
use crate::{
    fault::{Fault, Result},
    health,
    prepare::MachineKind,
    verbs::{run, start, stop},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use unilith_compose::service::{Condition, Service};
use unilith_machine::{
    lines::printable,
    networks::Named,
    record::{Phase, Wellness, now_ms},
    store::{Machine, Store},
};
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
    check(store, loaded, &chosen)?;
    let networks = networks(store, loaded, &chosen, chosen.iter().map(|s| count(s)).sum())?;
    for orphan in machines::orphans(store, loaded)? {
        if args.remove_orphans {
            machines::remove(store, &[orphan], args.timeout)?;
        } else {
            machines::say_orphan(&orphan);
        }
    }
    let how = How {
        machine: args.machine,
        force_recreate: args.force_recreate,
        build: args.build,
        timeout: args.timeout,
    };
    let counted: Vec<(&Service, u32)> = chosen.iter().map(|s| (*s, count(s))).collect();
    // What was started already is ended below.
    start_all(store, loaded, &counted, &networks, &how, &|| interrupts.load(Ordering::Relaxed) > 0)?;
    if args.detach {
        return Ok(0);
    }
    let names: Vec<String> = chosen.iter().map(|s| s.name.clone()).collect();
    attend(store, &machines::of(store, loaded, &names)?, args, since, &interrupts)
}

/// Says what is wrong with services before anything is made.
pub fn check(store: &Store, loaded: &Loaded, services: &[&Service]) -> Result<()> {
    for service in services {
        Description { store, loaded, service, networks: &BTreeMap::new() }.program()?;
        loaded.environment(service)?;
    }
    Ok(())
}

/// Starts so many machines of each service, in this order, unless they run and are as described.
pub fn start_all(
    store: &Store,
    loaded: &Loaded,
    services: &[(&Service, u32)],
    networks: &BTreeMap<String, Named>,
    how: &How,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<()> {
    for (service, count) in services {
        wait_for_others(store, loaded, service, is_interrupted)?;
        let there = machines::of(store, loaded, std::slice::from_ref(&service.name))?;
        let surplus: Vec<Machine> = there.iter().filter(|m| machines::number(m) > *count).cloned().collect();
        machines::remove(store, &surplus, how.timeout)?;
        for n in 1..=*count {
            if is_interrupted() {
                return Ok(());
            }
            let earlier = there.iter().find(|m| machines::number(m) == n);
            let it = Description { store, loaded, service, networks };
            Up { it, how }.ensure(n, earlier)?;
        }
    }
    Ok(())
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
pub fn wait_for_others(
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

/// How machines are made.
pub struct How {
    pub machine: MachineKind,
    /// Make machines anew that are as described; those of files and directories.
    pub force_recreate: bool,
    pub build: bool,
    /// Seconds that a program has to end.
    pub timeout: Option<u64>,
}

struct Up<'a> {
    it: Description<'a>,
    how: &'a How,
}

impl Up<'_> {
    /// Sees to it that the service's n-th machine runs and is as described.
    fn ensure(&self, n: u32, earlier: Option<&Machine>) -> Result<()> {
        let service = self.it.service;
        let usual = || format!("{}-{}-{n}", self.it.loaded.name, service.name);
        let name = service.container_name.clone().unwrap_or_else(usual);
        let words = self.it.words(&name, true)?;
        let program = self.it.program()?;
        let mut hash = Sha256::new();
        let health = service.health.as_ref().and_then(|h| h.command.clone()).unwrap_or_default();
        let memberships = self.it.memberships();
        let of_networks =
            memberships.iter().flat_map(|(network, aliases)| std::iter::once(&network.id).chain(aliases));
        let unasked =
            service.health.as_ref().filter(|h| h.command.is_none()).map(|_| "--no-healthcheck".into());
        let all = words.iter().chain(&program.words).chain(&program.name).chain(&health).chain(of_networks);
        for word in all.chain(&unasked) {
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
            machines::remove(self.it.store, std::slice::from_ref(machine), self.how.timeout)?;
        }
        let mut flags = vec!["--detach".to_string()];
        flags.extend(words);
        let flags = self.it.flags(flags, self.how.machine)?;
        let machine = run::make(self.it.store, &flags, &program, |spec| {
            self.it.complete(spec, &memberships);
            spec.labels.insert(NUMBER.into(), n.to_string());
            spec.labels.insert(HASH.into(), hash);
        });
        let machine = machine.map_err(|fault| self.it.of_service(fault))?;
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
        self.how.force_recreate || self.how.build && is_file(&self.it.service.image)
    }
}
