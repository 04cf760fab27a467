// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith compose run`: a machine beside those of a service, for one program.

use super::{
    load::Loaded,
    machines::ONE_OFF,
    service::{self, Description},
    up,
};
use crate::{
    detach,
    fault::{Fault, Result},
    prepare::MachineKind,
    verbs,
};
use sha2::{Digest, Sha256};
use std::{
    io::{self, IsTerminal},
    time::SystemTime,
};
use unilith_compose::service::Service;
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Run in the background and print the machine's id
    #[arg(short, long)]
    detach: bool,
    /// Remove the machine when it ends
    #[arg(long)]
    rm: bool,
    /// Name of the machine
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Set an environment variable; may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Instead of the program that the image or the service names
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,
    /// A further directory or volume; may repeat
    #[arg(short, long, value_name = "SOURCE:PATH")]
    volume: Vec<String>,
    /// Publish a port; may repeat
    #[arg(short, long, value_name = "HOST:PORT")]
    publish: Vec<String>,
    /// A label; may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Publish the service's ports as well
    #[arg(short = 'P', long)]
    service_ports: bool,
    /// Be found by the service's names in its networks
    #[arg(long)]
    use_aliases: bool,
    /// Without starting what the service needs
    #[arg(long)]
    no_deps: bool,
    /// Without a terminal
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// Accepted for docker's users: input is passed unless -d is given
    #[arg(short, long, hide = true)]
    interactive: bool,
    /// What the machines are
    #[arg(long, value_enum, default_value = "auto")]
    machine: MachineKind,
    service: String,
    /// The program's arguments; none: the service's
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Args {
    fn has_terminal(&self) -> bool {
        !self.no_tty && !self.detach && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Whether another process is to attend the machine, which can be left in the background.
    pub fn is_to_wait(&self) -> bool {
        self.has_terminal() && detach::is_first()
    }

    /// The service as this machine has it.
    fn changed(&self, service: &Service) -> Service {
        let mut it = service.clone();
        // It ends when its program does.
        (it.restart, it.container_name, it.replicas) = (None, None, 1);
        if !self.service_ports {
            it.ports.clear();
        }
        it.ports.extend(self.publish.iter().cloned());
        it.tty = self.has_terminal();
        let pair = |text: &String| match text.split_once('=') {
            Some((key, value)) => (key.to_string(), Some(value.to_string())),
            None => (text.clone(), None),
        };
        it.environment.extend(self.env.iter().map(pair));
        it.labels.extend(self.label.iter().map(pair).map(|(key, value)| (key, value.unwrap_or_default())));
        if let Some(entrypoint) = &self.entrypoint {
            (it.entrypoint, it.command) = (Some(vec![entrypoint.clone()]), Vec::new());
        }
        if !self.command.is_empty() {
            it.command = self.command.clone();
        }
        it.user = self.user.clone().or(it.user);
        it.working_dir = self.workdir.clone().or(it.working_dir);
        it
    }
}

/// As docker has it: the service's name and a number that nobody else has.
fn name(loaded: &Loaded, service: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let hash = Sha256::digest(format!("{now} {}", std::process::id()));
    let hash: String = hash.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("{}-{service}-run-{hash}", loaded.name)
}

pub fn act(store: &Store, loaded: &Loaded, args: &Args) -> Result<u8> {
    let service = args.changed(loaded.service(&args.service)?);
    let mut needed = loaded.chosen(std::slice::from_ref(&args.service))?;
    needed.retain(|s| s.name != service.name && !args.no_deps);
    let mut all = needed.clone();
    all.push(&service);
    up::check(store, loaded, &all)?;
    let count = |s: &Service| s.replicas;
    let networks = service::networks(store, loaded, &all, all.iter().map(|s| count(s)).sum())?;
    let how = up::How { machine: args.machine, force_recreate: false, build: false, timeout: None };
    let counted: Vec<(&Service, u32)> = needed.iter().map(|s| (*s, count(s))).collect();
    up::start_all(store, loaded, &counted, &networks, &how, &|| false)?;
    if !args.no_deps {
        up::wait_for_others(store, loaded, &service, &|| false)?;
    }
    let it = Description { store, loaded, service: &service, networks: &networks };
    let name = args.name.clone().unwrap_or_else(|| name(loaded, &service.name));
    let mut words = it.words(&name, false)?;
    words.extend(args.volume.iter().map(|volume| format!("--volume={volume}")));
    let flags = [("--detach", args.detach), ("--rm", args.rm), ("--interactive", !args.detach)];
    words.extend(flags.iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag.to_string()));
    let program = it.program()?;
    let mut memberships = it.memberships();
    if !args.use_aliases {
        memberships.iter_mut().for_each(|(_, aliases)| aliases.clear());
    }
    let ran = verbs::run::start(store, &it.flags(words, args.machine)?, &program, |spec| {
        it.complete(spec, &memberships);
        spec.labels.insert(ONE_OFF.into(), "True".into());
    });
    ran.map_err(|fault| Fault::of_run(it.of_service(fault)))
}
