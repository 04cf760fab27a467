// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A compose file as a whole.

use crate::{
    Line, Mistake, Result,
    fields::Field,
    merge, order, service,
    service::{Condition, Service, Source},
    variables::{self, Lookup},
    yaml::{self, Entry, Node, Value},
};

/// Files of one project.
pub const MAX_FILES: usize = 32;
/// Services of one project.
pub const MAX_SERVICES: usize = 512;

/// A network or volume of the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// As services call it.
    pub key: String,
    /// Its name on this host, where the file says one.
    pub name: Option<String>,
    /// It is there already, and stays.
    pub external: bool,
}

/// Where a secret's or config's text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    File(String),
    Environment(String),
    Content(String),
}

/// A secret or a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub key: String,
    pub text: Text,
    pub line: Line,
}

#[derive(Clone, Debug, Default)]
pub struct Project {
    pub name: Option<String>,
    /// In the order in which they start.
    pub services: Vec<Service>,
    pub networks: Vec<Shared>,
    pub volumes: Vec<Shared>,
    pub secrets: Vec<Kept>,
    pub configs: Vec<Kept>,
    /// Names of variables that nobody has set.
    pub unset: Vec<String>,
    /// The files as one, with everything resolved.
    pub resolved: String,
}

/// Reads the files' texts, each on top of those before it. `environment` says what variables are: those of `.env` and of this
/// host.
pub fn read(texts: &[&str], environment: &dyn Fn(&str) -> Option<String>) -> Result<Project> {
    let mut known = Known { environment, unset: Vec::new() };
    let mut room = MAX_FILLED;
    let mut root = Node::new(Line { file: 0, number: 1 }, Value::Map(Vec::new()));
    for (file, text) in texts.iter().enumerate() {
        if file >= MAX_FILES {
            return Err(Mistake::new(
                Line { file, number: 0 },
                format!("there are more than {MAX_FILES} files"),
            ));
        }
        let mut own = yaml::read(text, file)?;
        fill(&mut own, "", &mut known, &mut room)?;
        // As with docker a service extends those of its own file.
        extend(&mut own)?;
        if !own.is_map() {
            return Err(Mistake::new(
                own.line,
                "a compose file is a mapping: `services:` and what is below it",
            ));
        }
        merge::put(&mut root, own)?;
    }
    merge::settle(&mut root);
    let file = Field::new("", &root);
    let mut project = Project { unset: known.unset, resolved: yaml::write(&root), ..Project::default() };
    let mut services = Vec::new();
    for (key, field) in file.entries()? {
        match key {
            "services" => {
                for (name, field) in field.entries()? {
                    if !is_name(name) {
                        return Err(field.wrong("a service's name has letters, digits, _ . - only"));
                    }
                    services.push(service::read(name, &field)?);
                }
            }
            "name" => project.name = Some(field.text()?),
            "networks" => project.networks = shared(&field, "network")?,
            "volumes" => project.volumes = shared(&field, "volume")?,
            "secrets" => project.secrets = kept(&field)?,
            "configs" => project.configs = kept(&field)?,
            // Compose itself does nothing with it any more.
            "version" => {}
            "include" => {
                return Err(field.wrong("name all files instead: -f FILE -f FILE"));
            }
            key if key.starts_with("x-") => {}
            _ => {
                return Err(field.wrong(
                    "there is no such key; known are services, networks, volumes, secrets, configs and name",
                ));
            }
        }
    }
    if services.is_empty() {
        return Err(Mistake::new(root.line, "there are no services; write them under `services:`"));
    }
    if services.len() > MAX_SERVICES {
        return Err(Mistake::new(root.line, format!("there are more than {MAX_SERVICES} services")));
    }
    check(&services, &project)?;
    let order = order::order(&services)?;
    let mut services: Vec<Option<Service>> = services.into_iter().map(Some).collect();
    project.services = order.into_iter().filter_map(|n| services[n].take()).collect();
    Ok(project)
}

/// What docker takes for the name of a service.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// What all values may become together.
const MAX_FILLED: usize = 4 * variables::MAX_TEXT;

struct Known<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    unset: Vec<String>,
}

impl Lookup for Known<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.environment)(name)
    }

    fn unset(&mut self, name: &str) {
        if self.unset.len() < 100 && !self.unset.iter().any(|n| n == name) {
            self.unset.push(name.into());
        }
    }
}

/// Fills variables into all values; keys stay as they are.
fn fill(node: &mut Node, path: &str, known: &mut Known, room: &mut usize) -> Result<()> {
    match &mut node.value {
        Value::Scalar { text, plain } => {
            if text.contains('$') {
                let filled = variables::fill(text, known);
                *text = filled.map_err(|why| Mistake::new(node.line, format!("{path}: {why}")))?;
                // A variable's text is no `null`, and `${EMPTY}` is a text without letters.
                *plain = *plain && !text.is_empty();
            }
            *room = room.checked_sub(text.len()).ok_or_else(|| {
                Mistake::new(
                    node.line,
                    format!("variables make the file longer than {} KiB", MAX_FILLED >> 10),
                )
            })?;
        }
        Value::List(items) => {
            for (n, item) in items.iter_mut().enumerate() {
                fill(item, &format!("{path}[{n}]"), known, room)?;
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let path = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                fill(&mut entry.value, &path, known, room)?;
            }
        }
    }
    Ok(())
}

/// Resolves `extends` of services of the same file.
fn extend(root: &mut Node) -> Result<()> {
    let Value::Map(entries) = &mut root.value else { return Ok(()) };
    let Some(services) = entries.iter_mut().find(|e| e.key == "services") else { return Ok(()) };
    let Value::Map(services) = &mut services.value.value else { return Ok(()) };
    if services.len() > MAX_SERVICES {
        return Err(Mistake::new(root.line, format!("there are more than {MAX_SERVICES} services")));
    }
    let mut room = yaml::MAX_NODES;
    for n in 0..services.len() {
        let mut seen = vec![services[n].key.clone()];
        // A base that extends another one in its turn.
        while let Some((base, line)) = take_extends(&mut services[n])? {
            if seen.contains(&base) {
                seen.push(base);
                return Err(Mistake::new(line, format!("services extend each other: {}", seen.join(" -> "))));
            }
            let names: Vec<&str> = services.iter().map(|e| e.key.as_str()).collect();
            let path = format!("services.{}.extends", seen[0]);
            let found = services.iter().find(|e| e.key == base);
            let found = found.ok_or_else(|| service::unknown(&path, line, "service", &base, &names))?;
            room = room
                .checked_sub(found.value.size())
                .ok_or_else(|| Mistake::new(line, "services extend too many others"))?;
            let from = found.value.clone();
            seen.push(base);
            inherit(&mut services[n], from)?;
        }
    }
    Ok(())
}

fn take_extends(entry: &mut Entry) -> Result<Option<(String, Line)>> {
    let path = format!("services.{}.extends", entry.key);
    let Value::Map(own) = &mut entry.value.value else { return Ok(None) };
    let Some(at) = own.iter().position(|e| e.key == "extends") else { return Ok(None) };
    let taken = own.remove(at);
    let field = Field::new(path, &taken.value);
    if !field.is_map() {
        return Ok(Some((field.text()?, taken.line)));
    }
    if let Some(file) = field.get("file") {
        return Err(file.wrong("services of other files are not read: write the base into this file, for example as a YAML anchor"));
    }
    let base = field.get("service").ok_or_else(|| field.wrong("say service: NAME"))?;
    Ok(Some((base.text()?, taken.line)))
}

/// What the base says, with what the service says on top of it. As compose has it, what needs other services (`depends_on`) is
/// not inherited.
fn inherit(service: &mut Entry, mut base: Node) -> Result<()> {
    let Value::Map(entries) = &mut base.value else { return Ok(()) };
    entries.retain(|entry| entry.key != "depends_on");
    let own = std::mem::replace(&mut service.value, base);
    let (line, onto) = (own.line, own.onto);
    merge::put_service(&mut service.value, own, &service.key)?;
    (service.value.line, service.value.onto) = (line, onto);
    Ok(())
}

fn shared(field: &Field, what: &str) -> Result<Vec<Shared>> {
    let one = |(key, f): (&str, Field)| {
        let mut shared = Shared { key: key.into(), name: None, external: false };
        if !is_name(key) {
            return Err(f.wrong(format!("a {what}'s name has letters, digits, _ . - only")));
        }
        for (option, f) in f.entries()? {
            match option {
                "name" => {
                    let name = f.text()?;
                    if !is_name(&name) {
                        return Err(f.wrong(format!("a {what}'s name has letters, digits, _ . - only")));
                    }
                    shared.name = Some(name);
                }
                "external" if f.is_map() => {
                    return Err(f.wrong("write `external: true`, and `name:` beside it"));
                }
                "external" => shared.external = f.flag()?,
                "driver" if ["bridge", "local", "default"].contains(&f.text()?.as_str()) => {}
                "driver" => return Err(f.wrong("leave it out: there is one kind")),
                "labels" | "attachable" | "enable_ipv4" => {}
                "internal" if !f.flag()? => {}
                "internal" => return Err(f.wrong("leave it out: machines of a network reach what this host reaches; `network_mode: none` gives a service no network")),
                "enable_ipv6" if !f.flag()? => {}
                "enable_ipv6" => return Err(f.wrong("leave it out: nothing on the wire is IPv6")),
                "ipam" => return Err(f.wrong("leave it out: addresses are chosen; UNILITH_NETWORK names the range for all machines")),
                "driver_opts" => return Err(f.wrong("leave it out; a directory of this host is mounted with ./DIRECTORY:/PATH")),
                option if option.starts_with("x-") => {}
                _ => return Err(f.wrong("there is no such key; known are name and external")),
            }
        }
        Ok(shared)
    };
    field.entries()?.into_iter().map(one).collect()
}

fn kept(field: &Field) -> Result<Vec<Kept>> {
    let one = |(key, f): (&str, Field)| {
        f.only(&["file", "environment", "content", "name", "external"])?;
        if !is_name(key) {
            return Err(f.wrong("a name has letters, digits, _ . - only"));
        }
        let part = |key: &str| f.get(key).map(|f| f.text()).transpose();
        let text = match (part("file")?, part("environment")?, part("content")?) {
            (Some(file), None, None) => Text::File(file),
            (None, Some(name), None) => Text::Environment(name),
            (None, None, Some(content)) => Text::Content(content),
            _ => return Err(f.wrong(
                "say one of file: FILE, environment: VARIABLE and content: TEXT; nothing keeps it elsewhere",
            )),
        };
        Ok(Kept { key: key.into(), text, line: f.node.line })
    };
    field.entries()?.into_iter().map(one).collect()
}

/// Names that services use and nobody has.
fn check(services: &[Service], project: &Project) -> Result<()> {
    let names: Vec<&str> = services.iter().map(|s| s.name.as_str()).collect();
    let keys = |shared: &'_ [Shared]| shared.iter().map(|s| s.key.clone()).collect::<Vec<_>>();
    let (networks, volumes) = (keys(&project.networks), keys(&project.volumes));
    let known = |list: &[String], name: &str| list.iter().any(|n| n == name);
    let words = |list: &'_ [String]| list.join(", ");
    for s in services {
        let path = |rest: &str| format!("services.{}.{rest}", s.name);
        let missing = |at: &str, line: Line, what: &str, name: &str, list: &[String]| {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            service::unknown(&path(at), line, what, name, &list)
        };
        for d in &s.depends_on {
            if d.required && !names.contains(&d.service.as_str()) {
                return Err(service::unknown(&path("depends_on"), d.line, "service", &d.service, &names));
            }
            let on = services.iter().find(|other| other.name == d.service);
            let off = |other: &&Service| other.health.as_ref().is_some_and(|h| h.command.is_none());
            if d.condition == Condition::Healthy && on.as_ref().is_some_and(off) {
                return Err(Mistake::new(
                    d.line,
                    format!(
                        "{}.{}: its healthcheck is disabled, so it is never healthy",
                        path("depends_on"),
                        d.service
                    ),
                ));
            }
        }
        for m in s.networks.iter().flatten() {
            if m.network != "default" && !known(&networks, &m.network) {
                return Err(missing("networks", m.line, "network", &m.network, &networks));
            }
        }
        for m in &s.mounts {
            if let Source::Volume(name) = &m.source
                && !known(&volumes, name)
            {
                let list = words(&volumes);
                let known =
                    if list.is_empty() { "there are none".into() } else { format!("there are {list}") };
                return Err(Mistake::new(
                    m.line,
                    format!(
                        "{}: there is no volume `{name}` under `volumes:` ({known}); a directory is written ./{name}",
                        path("volumes")
                    ),
                ));
            }
        }
        for (at, uses, all) in
            [("secrets", &s.secrets, &project.secrets), ("configs", &s.configs, &project.configs)]
        {
            let all: Vec<String> = all.iter().map(|k| k.key.clone()).collect();
            if let Some(wanted) = uses.iter().find(|u| !known(&all, &u.source)) {
                return Err(missing(at, wanted.line, at.trim_end_matches('s'), &wanted.source, &all));
            }
        }
    }
    Ok(())
}
