// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service of a compose file.

use crate::{Line, Mistake, Result, fields::Field};

/// What a service needs of another one before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Started,
    Healthy,
    Completed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub service: String,
    pub condition: Condition,
    /// Where it is false, a service that is not there or fails is no mistake.
    pub required: bool,
    pub line: Line,
}

/// What a program finds at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory or file, as the file writes it.
    Bind(String),
    /// A volume of the file's.
    Volume(String),
    /// A volume that has no name.
    Nameless,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: Source,
    pub target: String,
    pub read_only: bool,
    pub line: Line,
}

/// A secret or config in a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub source: String,
    pub target: String,
    pub line: Line,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvFile {
    pub path: String,
    pub required: bool,
}

/// How a program is asked whether it is well. Milliseconds; `None`: docker's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// `None`: the image's own check is switched off.
    pub command: Option<Vec<String>>,
    pub interval: Option<u64>,
    pub timeout: Option<u64>,
    pub start_period: Option<u64>,
    pub start_interval: Option<u64>,
    pub retries: Option<u32>,
}

/// A membership and further names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub network: String,
    pub aliases: Vec<String>,
    pub line: Line,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub line: Line,
    pub image: String,
    pub image_line: Line,
    pub command: Vec<String>,
    pub entrypoint: Option<Vec<String>>,
    pub environment: Vec<(String, Option<String>)>,
    pub env_files: Vec<EnvFile>,
    /// As `-p` takes them.
    pub ports: Vec<String>,
    pub mounts: Vec<Mount>,
    /// As `--tmpfs` takes them.
    pub tmpfs: Vec<String>,
    /// `None`: the project's default network.
    pub networks: Option<Vec<Membership>>,
    /// A word of `--network` instead of networks.
    pub network_mode: Option<String>,
    pub depends_on: Vec<Dependency>,
    pub health: Option<Health>,
    pub restart: Option<String>,
    pub hostname: Option<String>,
    pub container_name: Option<String>,
    pub user: Option<String>,
    pub working_dir: Option<String>,
    pub read_only: bool,
    pub tty: bool,
    /// As `--ulimit` takes it.
    pub ulimit: Vec<String>,
    /// As `--cap-add`, `--cap-drop`, `--security-opt` and `--group-add` take them.
    pub cap_add: Vec<String>,
    pub cap_drop: Vec<String>,
    pub security_opt: Vec<String>,
    pub group_add: Vec<String>,
    pub stop_signal: Option<String>,
    /// Seconds.
    pub stop_grace: Option<u64>,
    pub labels: Vec<(String, String)>,
    pub memory: Option<String>,
    pub cpus: Option<u32>,
    pub replicas: u32,
    pub profiles: Vec<String>,
    pub extra_hosts: Vec<String>,
    pub dns: Vec<String>,
    pub secrets: Vec<Use>,
    pub configs: Vec<Use>,
}

/// Machines of one service.
pub const MAX_REPLICAS: u32 = 256;

/// Keys that change nothing here, and are true of every machine or of no matter to one.
const OF_NO_MATTER: [&str; 8] =
    ["annotations", "attach", "expose", "init", "platform", "pull_policy", "stdin_open", "cpu_shares"];

/// Keys that are not there, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "build",
        "nothing is built here: `docker build` and `docker save -o FILE` make what `image: oci:FILE` takes; a directory with a program is `image: ./DIRECTORY`",
    ),
    ("cgroup_parent", "leave it out: a machine has a kernel of its own; `mem_limit` and `cpus` limit it"),
    ("credential_spec", "leave it out"),
    ("device_cgroup_rules", "leave it out: there are no devices of this host in machines"),
    ("devices", "leave it out: there are no devices of this host in machines"),
    ("develop", "leave it out: nothing is built here"),
    ("dns_opt", "leave it out: `dns` names the servers"),
    ("dns_search", "leave it out, and use whole names"),
    ("domainname", "leave it out, or write it into `hostname`"),
    ("external_links", "give both machines one network with `networks`: they find each other by name"),
    ("gpus", "leave it out: there are no devices of this host in machines"),
    ("ipc", "leave it out: a machine has its own IPC only"),
    ("isolation", "leave it out: the machine is the boundary"),
    ("links", "leave it out: services of one network find each other by name"),
    ("logging", "leave it out: `unilith compose logs` shows what services print"),
    ("mac_address", "leave it out: addresses are chosen"),
    ("memswap_limit", "leave it out: machines do not swap; `mem_limit` is their memory"),
    ("oom_kill_disable", "leave it out: a machine that runs out of memory ends alone"),
    ("oom_score_adj", "leave it out: a machine that runs out of memory ends alone"),
    ("pid", "leave it out: a machine has its own processes only"),
    ("pids_limit", "leave it out: processes take the machine's own memory"),
    ("post_start", "run it with `unilith compose exec`"),
    ("pre_stop", "run it with `unilith compose exec`"),
    ("privileged", "leave it out: a machine has a kernel of its own and needs no rights on this host"),
    ("provider", "leave it out"),
    ("runtime", "leave it out: every service is a machine"),
    ("shm_size", "leave it out: /dev/shm is part of the machine's memory, `mem_limit`"),
    ("storage_opt", "leave it out: the root file system is in the machine's memory, `mem_limit`"),
    ("sysctls", "leave it out: the kernel's settings are its own"),
    ("userns_mode", "leave it out: a machine has its own users only"),
    ("uts", "leave it out: a machine has its own host name"),
    ("volumes_from", "give the same `volumes` to both services"),
];

pub fn read(name: &str, field: &Field) -> Result<Service> {
    let mut s = Service { name: name.into(), line: field.node.line, replicas: 1, ..Service::default() };
    let mut scale = None;
    for (key, f) in field.entries()? {
        if f.node.is_null() || key.starts_with("x-") || OF_NO_MATTER.contains(&key) {
            continue;
        }
        match key {
            "image" => (s.image, s.image_line) = (f.text()?, f.node.line),
            "command" => s.command = f.words()?,
            "entrypoint" => s.entrypoint = Some(f.words()?),
            "environment" => s.environment = f.pairs()?,
            "env_file" => s.env_files = env_files(&f)?,
            "ports" => s.ports = f.items()?.iter().map(port).collect::<Result<_>>()?,
            "volumes" => volumes(&f, &mut s)?,
            "tmpfs" => s.tmpfs.extend(f.texts()?),
            "networks" => s.networks = Some(memberships(&f)?),
            "network_mode" => s.network_mode = Some(network_mode(&f)?),
            "depends_on" => s.depends_on = dependencies(&f)?,
            "healthcheck" => s.health = Some(health(&f)?),
            "restart" => s.restart = Some(f.text()?),
            "hostname" => s.hostname = Some(f.text()?),
            "container_name" => s.container_name = Some(f.text()?),
            "user" => s.user = Some(f.text()?),
            "working_dir" => s.working_dir = Some(f.text()?),
            "read_only" => s.read_only = f.flag()?,
            "tty" => s.tty = f.flag()?,
            "ulimits" => s.ulimit = ulimit(&f)?,
            "cap_add" => s.cap_add = f.texts()?,
            "cap_drop" => s.cap_drop = f.texts()?,
            "security_opt" => s.security_opt = f.texts()?,
            "group_add" => s.group_add = f.texts()?,
            "stop_signal" => s.stop_signal = Some(f.text()?),
            "stop_grace_period" => s.stop_grace = Some(f.duration()?.div_ceil(1000)),
            "labels" => s.labels = f.pairs()?.into_iter().map(|(k, v)| (k, v.unwrap_or_default())).collect(),
            "mem_limit" => s.memory = Some(f.text()?),
            "mem_reservation" => s.memory = s.memory.or(Some(f.text()?)),
            "cpus" => s.cpus = Some(cpus(&f)?),
            "cpu_count" => s.cpus = Some(f.number()?),
            "deploy" => deploy(&f, &mut s)?,
            "scale" => scale = Some(f.number()?),
            "profiles" => s.profiles = f.texts()?,
            "extra_hosts" => s.extra_hosts = extra_hosts(&f)?,
            "dns" => s.dns = f.texts()?,
            "secrets" => s.secrets = uses(&f, "/run/secrets/")?,
            "configs" => s.configs = uses(&f, "/")?,
            "extends" => return Err(f.wrong("it was not resolved")),
            _ => {
                let advice = REFUSED.iter().find(|(refused, _)| *refused == key);
                return Err(f.wrong(advice.map_or(
                    "there is no such key of a service; see docs/how-to/compose.md",
                    |(_, advice)| advice,
                )));
            }
        }
    }
    s.replicas = scale.unwrap_or(s.replicas);
    if s.replicas > MAX_REPLICAS {
        return Err(field.wrong(format!("a service has at most {MAX_REPLICAS} machines")));
    }
    if s.image.is_empty() {
        return Err(field
            .wrong("say what runs: image: NAME of the catalogue, debian:PACKAGE, ./DIRECTORY or oci:FILE"));
    }
    if s.network_mode.is_some() && s.networks.is_some() {
        return Err(field.wrong("network_mode and networks exclude each other"));
    }
    if s.replicas > 1 && s.container_name.is_some() {
        return Err(field.wrong("several machines cannot have one container_name"));
    }
    Ok(s)
}

fn env_files(field: &Field) -> Result<Vec<EnvFile>> {
    let file = |f: &Field| {
        if !f.is_map() {
            return Ok(EnvFile { path: f.text()?, required: true });
        }
        f.only(&["path", "required"])?;
        let path = f.get("path").ok_or_else(|| f.wrong("say path: FILE"))?.text()?;
        Ok(EnvFile { path, required: f.get("required").map_or(Ok(true), |r| r.flag())? })
    };
    field.items()?.iter().map(file).collect()
}

/// As `-p` takes it; a port alone is reached on a free one of this host, so that several machines can have it.
pub(crate) fn port(field: &Field) -> Result<String> {
    if !field.is_map() {
        let text = field.text()?;
        return Ok(if text.contains(':') { text } else { format!("0.0.0.0::{text}") });
    }
    field.only(&["target", "published", "host_ip", "protocol", "mode", "name", "app_protocol"])?;
    let part = |key: &str| field.get(key).map(|f| f.text()).transpose();
    let target = part("target")?.ok_or_else(|| field.wrong("say target: PORT"))?;
    let mut out = match (part("host_ip")?, part("published")?) {
        (Some(address), published) => {
            let address = match address.contains(':') && !address.starts_with('[') {
                true => format!("[{address}]"),
                false => address,
            };
            format!("{address}:{}:{target}", published.unwrap_or_default())
        }
        (None, Some(published)) => format!("{published}:{target}"),
        (None, None) => format!("0.0.0.0::{target}"),
    };
    if let Some(protocol) = part("protocol")? {
        out.push('/');
        out.push_str(&protocol);
    }
    Ok(out)
}

fn volumes(field: &Field, s: &mut Service) -> Result<()> {
    for f in field.items()? {
        if f.is_map() {
            long_volume(&f, s)?;
            continue;
        }
        let text = f.text()?;
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, options) = match parts[..] {
            [target] => (None, target, ""),
            [source, target] => (Some(source), target, ""),
            [source, target, options] => (Some(source), target, options),
            _ => {
                return Err(
                    f.wrong(format!("`{text}` has too many colons; write SOURCE:PATH or SOURCE:PATH:ro"))
                );
            }
        };
        let mut read_only = false;
        for option in options.split(',').filter(|o| !o.is_empty()) {
            match option {
                "ro" => read_only = true,
                // Who may see the directory on this host is not the machine's matter.
                "rw" | "z" | "Z" | "cached" | "delegated" | "consistent" => {}
                _ => {
                    return Err(
                        f.wrong(format!("`{option}` is no option of a volume; write ro, or leave it out"))
                    );
                }
            }
        }
        let source = match source {
            None => Source::Nameless,
            Some(s) if s.starts_with(['/', '.', '~']) => Source::Bind(s.into()),
            Some(s) => Source::Volume(s.into()),
        };
        mount(&f, source, target, read_only, s)?;
    }
    Ok(())
}

fn long_volume(f: &Field, s: &mut Service) -> Result<()> {
    f.only(&["type", "source", "target", "read_only", "bind", "volume", "tmpfs", "consistency"])?;
    let part = |key: &str| f.get(key).map(|f| f.text()).transpose();
    let target = part("target")?.ok_or_else(|| f.wrong("say target: PATH"))?;
    let read_only = f.get("read_only").map_or(Ok(false), |r| r.flag())?;
    let source = part("source")?;
    match (part("type")?.as_deref(), source) {
        (Some("tmpfs"), None) => {
            let option = |key: &str| f.get("tmpfs").and_then(|t| t.get(key)).map(|f| f.text()).transpose();
            let size = option("size")?.map(|size| format!("size={size}"));
            let options: Vec<String> =
                size.into_iter().chain(option("mode")?.map(|mode| format!("mode={mode}"))).collect();
            s.tmpfs.push(if options.is_empty() { target } else { format!("{target}:{}", options.join(",")) });
            Ok(())
        }
        (Some("bind"), Some(source)) => mount(f, Source::Bind(source), &target, read_only, s),
        (Some("volume"), Some(source)) => mount(f, Source::Volume(source), &target, read_only, s),
        (Some("volume"), None) => mount(f, Source::Nameless, &target, read_only, s),
        (Some("bind"), None) => Err(f.wrong("say source: DIRECTORY")),
        _ => Err(f.wrong("type is bind or volume with a source, or tmpfs without one")),
    }
}

fn mount(f: &Field, source: Source, target: &str, read_only: bool, s: &mut Service) -> Result<()> {
    if !target.starts_with('/') {
        return Err(f.wrong(format!("`{target}` is no absolute path")));
    }
    s.mounts.push(Mount { source, target: target.into(), read_only, line: f.node.line });
    Ok(())
}

fn memberships(field: &Field) -> Result<Vec<Membership>> {
    if !field.is_map() {
        let one = |f: &Field| Ok(Membership { network: f.text()?, aliases: Vec::new(), line: f.node.line });
        return field.items()?.iter().map(one).collect();
    }
    let one = |(name, f): (&str, Field)| {
        let mut aliases = Vec::new();
        for (key, option) in f.entries()? {
            match key {
                "aliases" => aliases = option.texts()?,
                "priority" | "gw_priority" => {}
                "ipv4_address" | "ipv6_address" | "link_local_ips" | "mac_address" => {
                    return Err(option
                        .wrong("leave it out: addresses are chosen, and services find each other by name"));
                }
                key if key.starts_with("x-") => {}
                _ => return Err(option.wrong("there is no such key; known is aliases")),
            }
        }
        Ok(Membership { network: name.into(), aliases, line: f.node.line })
    };
    field.entries()?.into_iter().map(one).collect()
}

fn network_mode(field: &Field) -> Result<String> {
    match field.text()?.as_str() {
        "none" => Ok("none".into()),
        "bridge" | "default" => Ok("auto".into()),
        "user" => Ok("user".into()),
        "host" => Err(field
            .wrong("a machine has a network stack of its own: leave it out, `ports` publishes its ports")),
        _ => Err(field.wrong("it is none, bridge or user; services of one network find each other by name")),
    }
}

fn dependencies(field: &Field) -> Result<Vec<Dependency>> {
    if !field.is_map() {
        let one = |f: &Field| {
            Ok(Dependency {
                service: f.text()?,
                condition: Condition::Started,
                required: true,
                line: f.node.line,
            })
        };
        return field.items()?.iter().map(one).collect();
    }
    let one = |(name, f): (&str, Field)| {
        f.only(&["condition", "required", "restart"])?;
        let condition = match f.get("condition") {
            None => Condition::Started,
            Some(c) => {
                match c.text()?.as_str() {
                    "service_started" => Condition::Started,
                    "service_healthy" => Condition::Healthy,
                    "service_completed_successfully" => Condition::Completed,
                    other => {
                        return Err(c.wrong(format!("`{other}` is not service_started, service_healthy or service_completed_successfully")));
                    }
                }
            }
        };
        let required = f.get("required").map_or(Ok(true), |r| r.flag())?;
        Ok(Dependency { service: name.into(), condition, required, line: f.node.line })
    };
    field.entries()?.into_iter().map(one).collect()
}

fn health(field: &Field) -> Result<Health> {
    field.only(&["test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"])?;
    let time = |key: &str| field.get(key).map(|f| f.duration()).transpose();
    let disabled = field.get("disable").map_or(Ok(false), |f| f.flag())?;
    let mut command = None;
    if let Some(test) = field.get("test").filter(|_| !disabled) {
        let words = test.texts()?;
        let is_list = matches!(test.node.value, crate::yaml::Value::List(_));
        command = match (words.first().map(String::as_str), is_list) {
            (Some("NONE"), true) => None,
            (Some("CMD"), true) if words.len() > 1 => Some(words[1..].to_vec()),
            (Some("CMD-SHELL"), true) if words.len() == 2 => Some(shell(&words[1])),
            (Some(text), false) => Some(shell(text)),
            _ => return Err(test.wrong("write a command, [CMD, PROGRAM, …], [CMD-SHELL, COMMAND] or [NONE]")),
        };
    } else if !disabled {
        return Err(field.wrong("say test: COMMAND"));
    }
    let retries = field.get("retries").map(|f| f.number()).transpose()?;
    Ok(Health {
        command,
        interval: time("interval")?,
        timeout: time("timeout")?,
        start_period: time("start_period")?,
        start_interval: time("start_interval")?,
        retries,
    })
}

fn shell(command: &str) -> Vec<String> {
    ["/bin/sh", "-c", command].map(String::from).to_vec()
}

fn ulimit(field: &Field) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for (key, f) in field.entries()? {
        // -1 is no limit.
        out.push(if f.is_map() {
            f.only(&["soft", "hard"])?;
            let part =
                |key: &str| f.get(key).ok_or_else(|| f.wrong(format!("say {key}: NUMBER")))?.number::<i64>();
            format!("{key}={}:{}", part("soft")?, part("hard")?)
        } else {
            format!("{key}={0}:{0}", f.number::<i64>()?)
        });
    }
    Ok(out)
}

fn cpus(field: &Field) -> Result<u32> {
    let count: f64 = field.number()?;
    if !(count > 0.0 && count <= 1024.0) {
        return Err(field.wrong("it is a number of processors"));
    }
    Ok(count.ceil() as u32)
}

fn deploy(field: &Field, s: &mut Service) -> Result<()> {
    for (key, f) in field.entries()? {
        match key {
            "replicas" => s.replicas = f.number()?,
            "mode" if f.text()? == "replicated" => {}
            "resources" => {
                f.only(&["limits", "reservations"])?;
                // A machine's memory is its own from the beginning: what is reserved and the limit are one.
                for part in ["reservations", "limits"] {
                    let Some(limits) = f.get(part) else { continue };
                    for (key, f) in limits.entries()? {
                        match key {
                            "memory" => s.memory = Some(f.text()?),
                            "cpus" if part == "limits" => s.cpus = Some(cpus(&f)?),
                            "cpus" => {}
                            "pids" => {
                                return Err(f.wrong("leave it out: processes take the machine's own memory"));
                            }
                            "devices" => {
                                return Err(
                                    f.wrong("leave it out: there are no devices of this host in machines")
                                );
                            }
                            _ => return Err(f.wrong("there is no such key; known are cpus and memory")),
                        }
                    }
                }
            }
            "restart_policy" => {
                f.only(&["condition", "max_attempts", "delay", "window"])?;
                let most = f.get("max_attempts").map(|m| m.number::<u32>()).transpose()?;
                let condition = f.get("condition").map(|c| c.text()).transpose()?;
                s.restart = s.restart.take().or(Some(match (condition.as_deref(), most) {
                    (Some("none"), _) => "no".into(),
                    (Some("on-failure"), Some(most)) => format!("on-failure:{most}"),
                    (Some("on-failure"), None) => "on-failure".into(),
                    _ => "always".into(),
                }));
            }
            "labels" => {}
            key if key.starts_with("x-") => {}
            _ => {
                return Err(f.wrong(
                    "leave it out: there are no clusters; known are replicas, resources and restart_policy",
                ));
            }
        }
    }
    Ok(())
}

fn extra_hosts(field: &Field) -> Result<Vec<String>> {
    if field.is_map() {
        let one = |(name, f): (&str, Field)| Ok(format!("{name}:{}", f.text()?));
        return field.entries()?.into_iter().map(one).collect();
    }
    // `NAME=ADDRESS` is compose's newer way.
    Ok(field.texts()?.into_iter().map(|text| text.replacen('=', ":", 1)).collect())
}

fn uses(field: &Field, folder: &str) -> Result<Vec<Use>> {
    let one = |f: &Field| {
        let line = f.node.line;
        if !f.is_map() {
            let source = f.text()?;
            return Ok(Use { target: format!("{folder}{source}"), source, line });
        }
        f.only(&["source", "target", "uid", "gid", "mode"])?;
        let source = f.get("source").ok_or_else(|| f.wrong("say source: NAME"))?.text()?;
        let target = match f.get("target").map(|t| t.text()).transpose()? {
            Some(path) if path.starts_with('/') => path,
            Some(name) => format!("{folder}{name}"),
            None => format!("{folder}{source}"),
        };
        for key in ["uid", "gid", "mode"] {
            if let Some(f) = f.get(key) {
                return Err(f.wrong("leave it out: the file has the owner and mode that it has on this host"));
            }
        }
        Ok(Use { source, target, line })
    };
    field.items()?.iter().map(one).collect()
}

/// What is wrong with the names that a service uses.
pub fn unknown(path: &str, line: Line, what: &str, name: &str, known: &[&str]) -> Mistake {
    let known =
        if known.is_empty() { "there are none".into() } else { format!("there are {}", known.join(", ")) };
    Mistake::new(line, format!("{path}: there is no {what} `{name}`; {known}"))
}
