// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service of the file as a machine: the program and the flags of `run` that make it.

use super::{
    load::{Loaded, make_directory},
    machines::{self, CONFIG_FILES, PROJECT, SERVICE, WORKING_DIR},
};
use crate::{
    fault::{Fault, Result, file},
    line::{self, Program},
    prepare::MachineKind,
    verbs::{network, run, volume},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use unilith_compose::{
    Line,
    project::{Kept, Text},
    service::{Service, Source},
};
use unilith_machine::{lines::printable, networks::Named, record::Spec, store::Store};
use unilith_network::members;

/// The networks that the services use, made where they are not there: what the file calls them, and they.
pub fn networks(
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

/// A service, and where it is to be a machine.
pub struct Description<'a> {
    pub store: &'a Store,
    pub loaded: &'a Loaded,
    pub service: &'a Service,
    /// Those of the project, as the file calls them.
    pub networks: &'a BTreeMap<String, Named>,
}

impl Description<'_> {
    fn wrong(&self, key: &str, line: Line, why: &str) -> Fault {
        let line = self.loaded.shown(line);
        let message = format!("{line}: services.{}.{key}: {why}", self.service.name);
        Fault { code: 2, message: printable(&message) }
    }

    /// The flags that these words of `run` are.
    pub fn flags(&self, words: Vec<String>, machine: MachineKind) -> Result<run::RunFlags> {
        let mut flags: run::RunFlags = line::read(words).map_err(|fault| self.of_service(fault))?;
        flags.flags.machine = machine;
        let health = self.service.health.as_ref();
        // `disable: true`, or `test: NONE`.
        flags.flags.health.no_healthcheck = health.is_some_and(|h| h.command.is_none());
        flags.flags.health.words = health.and_then(|h| h.command.clone()).unwrap_or_default();
        Ok(flags)
    }

    /// What `run` does not say of a machine: docker's labels, and its further names in networks.
    pub fn complete(&self, spec: &mut Spec, memberships: &[(Named, Vec<String>)]) {
        // As with docker only what the file says is published.
        spec.offer.clear();
        let files: Vec<String> = self.loaded.files.iter().map(|path| path.display().to_string()).collect();
        let labels = [
            (PROJECT, self.loaded.name.clone()),
            (SERVICE, self.service.name.clone()),
            (CONFIG_FILES, files.join(",")),
            (WORKING_DIR, self.loaded.folder.display().to_string()),
        ];
        spec.labels.extend(labels.map(|(key, value)| (key.to_string(), value)));
        for joined in &mut spec.networks {
            let aliases = memberships.iter().find(|(network, _)| network.id == joined.id);
            joined.aliases.extend(aliases.into_iter().flat_map(|(_, aliases)| aliases.clone()));
        }
    }

    pub fn of_service(&self, fault: Fault) -> Fault {
        Fault { message: printable(&format!("service {}: {}", self.service.name, fault.message)), ..fault }
    }

    /// The service's networks and its further names there.
    pub fn memberships(&self) -> Vec<(Named, Vec<String>)> {
        let own = |aliases: &[String]| [&[self.service.name.clone()][..], aliases].concat();
        let of = |key: &str, aliases: &[String]| Some((self.networks.get(key)?.clone(), own(aliases)));
        match (&self.service.network_mode, &self.service.networks) {
            (Some(_), _) => Vec::new(),
            (None, None) => of("default", &[]).into_iter().collect(),
            (None, Some(all)) => all.iter().filter_map(|m| of(&m.network, &m.aliases)).collect(),
        }
    }

    /// What runs.
    pub fn program(&self) -> Result<Program> {
        let service = self.service;
        let image = service.image.as_str();
        let at = |prefix: &str, rest: &str| format!("{prefix}{}", self.loaded.path(rest).display());
        let name = match image.split_once(':') {
            _ if image.starts_with(['.', '/', '~']) => at("", image),
            Some((prefix @ ("oci" | "dir" | "cpio"), rest)) => at(&format!("{prefix}:"), rest),
            Some(("debian" | "deb", _)) => image.to_string(),
            None if !image.contains('/') => image.to_string(),
            // An image of a registry; a compose file's paths begin with a dot.
            _ => match unilith_registry::Name::parse(image) {
                Ok(name) => format!("docker://{name}"),
                Err(e) => return Err(self.wrong("image", service.image_line, &e.to_string())),
            },
        };
        let mut words: Vec<String> =
            service.entrypoint.iter().flat_map(|e| e.iter().skip(1).cloned()).collect();
        words.extend(service.command.iter().cloned());
        Ok(Program { name: Some(name), words })
    }

    /// The flags of `run` that make a machine of this name. `is_kept`: volumes without a name are the machine's, until it is
    /// removed with them; else they are in its memory.
    pub fn words(&self, name: &str, is_kept: bool) -> Result<Vec<String>> {
        let s = self.service;
        let mut words = vec![format!("--name={name}")];
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
            if mount.source == Source::Nameless && !is_kept {
                flag("tmpfs", &mount.target);
                continue;
            }
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
        let lists = [
            ("ulimit", &s.ulimit),
            ("cap-add", &s.cap_add),
            ("cap-drop", &s.cap_drop),
            ("security-opt", &s.security_opt),
            ("group-add", &s.group_add),
        ];
        for (name, values) in lists {
            values.iter().for_each(|value| flag(name, value));
        }
        s.dns.iter().for_each(|server| flag("dns", server));
        s.labels.iter().for_each(|(key, value)| flag("label", &format!("{key}={value}")));
        let optional = [
            ("restart", &s.restart),
            ("hostname", &s.hostname),
            ("user", &s.user),
            ("workdir", &s.working_dir),
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
    fn mounted(&self, machine: &str, source: &Source, target: &str, line: Line) -> Result<PathBuf> {
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
                    let message = format!(
                        "{}: {}: there is no file {}",
                        self.loaded.shown(kept.line),
                        kept.key,
                        path.display()
                    );
                    return Err(Fault { code: 2, message: printable(&message) });
                }
                return Ok(path);
            }
            Text::Environment(name) => std::env::var(name).map_err(|_| Fault {
                code: 2,
                message: printable(&format!(
                    "{}: {}: variable {name} is not set",
                    self.loaded.shown(kept.line),
                    kept.key
                )),
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
