// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bundle's `config.json` (runtime-spec 1.2, config.md), read into what a machine can be. What would weaken the container if
//! it were passed over in silence is refused; what has no meaning for a machine, which has a kernel of its own, is listed in
//! `docs/reference/oci.md`.

use crate::{
    ContainerError, Result, namespace,
    scope::Scope,
    scratch::{SHARED_MEMORY, Scratch},
    seccomp,
    users::Users,
};
use oci_spec::runtime::{
    Capability, Hooks, LinuxCapabilities, LinuxNamespaceType, LinuxResources, PosixRlimitType, Spec,
};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

/// Longest `config.json`: those of Kubernetes have some 30 kB.
const MAX_CONFIG: u64 = 16 << 20;
/// The annotation by which the CRI plug-in of containerd and CRI-O say what a container is for.
const KIND: [&str; 2] = ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"];

/// The annotations by which they say what a container is called in its pod.
const NAME: [&str; 2] = ["io.kubernetes.cri.container-name", "io.kubernetes.container.name"];

/// The annotations by which they say which sandbox a container belongs to.
const SANDBOX: [&str; 2] = ["io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"];
/// What the containers of a pod may have together, in bytes; 0 where one of them has no limit.
const SANDBOX_MEMORY: &str = "io.kubernetes.cri.sandbox-memory";
/// How the name of the control group begins that all pods of a kubelet are in.
const KUBELETS_GROUPS: &str = "kubepods";
/// The choice (`dev.unilith.pod`) by which each container of a pod is a machine of its own.
const SEPARATE: &str = "separate";

/// Most paths in a list, most settings, and most bytes of all of them: engines name a dozen.
const MAX_CONFINED: usize = 1024;
const MAX_CONFINED_BYTES: usize = 24 << 10;

/// Where the container's network namespace comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The host's: a machine cannot be in it and gets an address of its own behind it.
    Host,
    New,
    At(PathBuf),
}

/// Where one of the container's other namespaces comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The host's, which for a machine is the machine's own.
    #[default]
    Host,
    New,
    At(PathBuf),
}

impl Place {
    /// The process whose namespace it is.
    pub fn process(&self) -> Option<u32> {
        match self {
            Place::At(path) => process_of(path),
            Place::Host | Place::New => None,
        }
    }
}

/// Namespaces that containers of a pod have in the pod's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    pub pid: Place,
    pub ipc: Place,
    pub uts: Place,
    pub cgroup: Place,
}

/// A file or directory of the host in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    pub source: PathBuf,
    pub destination: PathBuf,
    pub read_only: bool,
    /// What is mounted below the source stays as writable as it is: `rbind` with `ro`, not `rro`.
    pub keeps_below: bool,
    /// What is mounted below the source is seen as well (`rbind`).
    pub is_recursive: bool,
    /// What is mounted below the source later is not seen: no mount that is a slave of the host's, or its peer.
    pub is_private: bool,
    pub is_directory: bool,
}

/// Sets of capabilities(7), a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub bounding: u64,
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

impl Capabilities {
    /// A set that is left out is empty (config.md, "Linux Process").
    fn of(all: &LinuxCapabilities) -> Capabilities {
        let bits = |set: &Option<HashSet<Capability>>| {
            let each = set.iter().flatten().filter_map(|one| {
                // The crate knows the names as they are written.
                let name = serde_json::to_value(one).ok()?;
                CapabilitySet::from_name(name.as_str()?.strip_prefix("CAP_")?)
            });
            each.fold(CapabilitySet::empty(), CapabilitySet::union).bits()
        };
        Capabilities {
            bounding: bits(all.bounding()),
            permitted: bits(all.permitted()),
            effective: bits(all.effective()),
            inheritable: bits(all.inheritable()),
            ambient: bits(all.ambient()),
        }
    }
}

/// What the machine's kernel keeps a container's programs from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Instructions of the filter of system calls (`struct sock_filter`); none: no filter.
    pub filter: Vec<u64>,
    /// Absolute paths that show nothing, and those that may not be written to.
    pub masked: Vec<String>,
    pub read_only: Vec<String>,
    /// Names and values of /proc/sys.
    pub settings: Vec<(String, String)>,
}

impl Confinement {
    fn of(linux: &oci_spec::runtime::Linux) -> std::result::Result<Confinement, String> {
        let filter = linux.seccomp().as_ref().map(seccomp::compile).transpose()?.unwrap_or_default();
        let masked = linux.masked_paths().clone().unwrap_or_default();
        let read_only = linux.readonly_paths().clone().unwrap_or_default();
        for (list, paths) in [("linux.maskedPaths", &masked), ("linux.readonlyPaths", &read_only)] {
            if let Some(wrong) = paths.iter().find(|path| !path.starts_with('/') || path.contains('\0')) {
                return Err(format!("{list}: {wrong:?} is not an absolute path"));
            }
        }
        if let Some(root) = masked.iter().find(|path| Path::new(path) == Path::new("/")) {
            return Err(format!("linux.maskedPaths: {root}: nothing would be left"));
        }
        let mut settings: Vec<(String, String)> = Vec::new();
        for (name, value) in linux.sysctl().iter().flatten() {
            check_setting(name, value)?;
            settings.push((name.clone(), value.clone()));
        }
        settings.sort();
        let count = masked.len().max(read_only.len()).max(settings.len());
        let pairs = settings.iter().flat_map(|(name, value)| [name, value]);
        let bytes: usize = masked.iter().chain(&read_only).chain(pairs).map(String::len).sum();
        if count > MAX_CONFINED || bytes > MAX_CONFINED_BYTES {
            return Err(format!(
                "linux.maskedPaths, readonlyPaths and sysctl: {count} in a list, {bytes} bytes; {MAX_CONFINED} and \
                 {MAX_CONFINED_BYTES} at most"
            ));
        }
        Ok(Confinement { filter, masked, read_only, settings })
    }
}

/// What may be set is what belongs to a namespace that the container can have for itself, as runc has it. Whether the kernel of the
/// machine has it is known when that runs.
fn check_setting(name: &str, value: &str) -> std::result::Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name == "kernel.hostname" {
        return Err(format!("linux.sysctl: {name}: the name of a container is its hostname"));
    }
    let namespaced = ["net.", "fs.mqueue.", "kernel.shm", "kernel.msg"];
    let others = ["kernel.sem", "kernel.domainname"];
    if !name.chars().all(is_plain)
        || !namespaced.iter().any(|prefix| name.starts_with(prefix)) && !others.contains(&name)
    {
        return Err(format!("linux.sysctl: {name:?} is not in a separate kernel namespace"));
    }
    if value.contains('\0') {
        return Err(format!("linux.sysctl: {name}: the value holds a NUL byte"));
    }
    Ok(())
}

/// A container's control group, as its programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Most processes and threads.
    pub pids: Option<u64>,
    /// Microseconds of processor time, and the period that they are for.
    pub quota: Option<u64>,
    pub period: u64,
    /// There is a mount of type cgroup or cgroup2; `true`: to be read only.
    pub files: Option<bool>,
}

impl Default for Group {
    fn default() -> Group {
        Group { pids: None, quota: None, period: Group::PERIOD_US, files: None }
    }
}

impl Group {
    /// Linux' period where nobody names one.
    const PERIOD_US: u64 = 100_000;

    /// Takes the limits that resources name, and leaves the others.
    pub fn take(&mut self, resources: &LinuxResources) {
        // No limit is written as 0 or less.
        let limit = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0);
        if let Some(pids) = resources.pids() {
            self.pids = limit(pids.limit());
        }
        if let Some(cpu) = resources.cpu() {
            if let Some(quota) = cpu.quota() {
                self.quota = limit(quota);
            }
            self.period = cpu.period().filter(|period| *period > 0).unwrap_or(self.period);
        }
    }
}

/// A container as its bundle describes it.
#[derive(Clone, Debug)]
pub struct Container {
    pub version: String,
    pub bundle: PathBuf,
    pub root: PathBuf,
    pub read_only: bool,
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub working: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// `None`: root has all.
    pub capabilities: Option<Capabilities>,
    /// No program gets more rights than it has.
    pub no_new_privileges: bool,
    pub confinement: Confinement,
    /// Resource limits: Linux' number, soft, hard.
    pub limits: Vec<(u8, u64, u64)>,
    pub terminal: bool,
    pub hostname: Option<String>,
    pub binds: Vec<Bind>,
    pub scratch: Vec<Scratch>,
    pub network: Network,
    pub namespaces: Namespaces,
    pub users: Users,
    pub group: Group,
    /// Bytes.
    pub memory: Option<u64>,
    pub cgroup: Option<PathBuf>,
    pub resources: Option<LinuxResources>,
    /// How likely the host's kernel ends its process for want of memory, from -1000 to 1000 (proc(5), `oom_score_adj`).
    pub oom_score: Option<i32>,
    pub hooks: Option<Hooks>,
    pub annotations: BTreeMap<String, String>,
    /// It only holds a pod's namespaces.
    pub is_sandbox: bool,
    /// Its machine is a virtual one, which no other container joins.
    pub is_virtual: bool,
}

impl Container {
    /// Reads and checks the bundle.
    pub fn read(bundle: &Path) -> Result<Container> {
        let bundle = bundle.canonicalize().map_err(crate::file("cannot use the bundle", bundle))?;
        let path = bundle.join("config.json");
        let length = fs::metadata(&path).map_err(crate::file("cannot read", &path))?.len();
        if length > MAX_CONFIG {
            return Err(ContainerError::Config(
                path,
                format!("it has {length} bytes; no container needs as many"),
            ));
        }
        let text = fs::read_to_string(&path).map_err(crate::file("cannot read", &path))?;
        Container::parse(&text, &bundle).map_err(|why| ContainerError::Config(path, why))
    }

    fn parse(text: &str, bundle: &Path) -> std::result::Result<Container, String> {
        let mut spec: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        spec.get_mut("process").map(complete);
        let spec: Spec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
        let version = spec.version().clone();
        if !version.starts_with("1.") {
            return Err(format!("ociVersion {version:?}: this runtime knows 1.x"));
        }
        let root = spec.root().as_ref().ok_or("there is no root")?;
        let process = spec.process().as_ref().ok_or("there is no process")?;
        let args = process.args().clone().filter(|a| !a.is_empty()).ok_or("process.args names no program")?;
        if !process.cwd().is_absolute() {
            return Err(format!("process.cwd {:?} is not an absolute path", process.cwd()));
        }
        let nul = |text: &String| text.contains('\0');
        let env = process.env().clone().unwrap_or_default();
        if args.iter().chain(&env).any(nul) {
            return Err("an argument or environment variable holds a NUL byte".into());
        }
        let mut container = Container {
            version,
            bundle: bundle.into(),
            root: bundle.join(root.path()),
            read_only: root.readonly().unwrap_or(false),
            args,
            env,
            working: process.cwd().clone(),
            uid: process.user().uid(),
            gid: process.user().gid(),
            groups: process.user().additional_gids().clone().unwrap_or_default(),
            capabilities: process.capabilities().as_ref().map(Capabilities::of),
            no_new_privileges: process.no_new_privileges().unwrap_or(false),
            confinement: Confinement::default(),
            limits: limits(process),
            terminal: process.terminal().unwrap_or(false),
            hostname: spec.hostname().clone(),
            binds: Vec::new(),
            scratch: Vec::new(),
            network: Network::Host,
            namespaces: Namespaces::default(),
            users: Users::default(),
            group: Group::default(),
            memory: None,
            cgroup: None,
            resources: None,
            oom_score: process.oom_score_adj(),
            hooks: spec.hooks().clone(),
            annotations: spec.annotations().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
            is_sandbox: false,
            is_virtual: false,
        };
        container.is_sandbox =
            KIND.iter().any(|key| container.annotations.get(*key).is_some_and(|kind| kind == "sandbox"));
        for mount in spec.mounts().iter().flatten() {
            container.add_mount(mount)?;
        }
        if let Some(linux) = spec.linux() {
            container.add_linux(linux)?;
        }
        container.add_read_only_scratch();
        let in_container = container.hooks.as_ref().and_then(|hooks| hooks.start_container().as_ref());
        if let Some(hook) = in_container.and_then(|list| list.first()) {
            return Err(format!(
                "hooks.startContainer: {}: a machine runs nothing before its program; have it run by the program, or before the \
                 container's start by createContainer",
                hook.path().display()
            ));
        }
        match container.choice("pod") {
            None | Some(SEPARATE) => {}
            Some(other) => return Err(format!("annotation unilith.pod={other}: there is {SEPARATE} only")),
        }
        if container.holds_machine() {
            container.take_pods_resources();
        }
        Ok(container)
    }

    fn add_mount(&mut self, mount: &oci_spec::runtime::Mount) -> std::result::Result<(), String> {
        let destination = mount.destination().clone();
        let wrong = |why: &str| format!("the mount at {}: {why}", destination.display());
        if !destination.is_absolute() {
            return Err(wrong("the destination is not an absolute path"));
        }
        let options = mount.options().clone().unwrap_or_default();
        let has = |word: &str| options.iter().any(|option| option == word);
        let kind = mount.typ().as_deref().unwrap_or("none");
        let is_bind = kind == "bind" || has("bind") || has("rbind");
        if ["cgroup", "cgroup2"].contains(&kind) {
            self.group.files = Some(has("ro"));
        }
        // The kernel of the machine has its own.
        if destination == Path::new(SHARED_MEMORY) {
            let source = is_bind.then(|| self.bundle.join(mount.source().clone().unwrap_or_default()));
            let scratch =
                Scratch::of_shared_memory(source.as_deref(), &options).map_err(|why| wrong(&why))?;
            self.scratch.extend(scratch);
            return Ok(());
        }
        let own = ["/proc", "/sys", "/dev/pts", SHARED_MEMORY, "/dev/mqueue"];
        if own.iter().any(|own| destination.starts_with(own)) || destination == Path::new("/dev") {
            return Ok(());
        }
        match kind {
            _ if is_bind => {
                let source = mount.source().clone().ok_or_else(|| wrong("a bind has no source"))?;
                let source = self.bundle.join(source);
                let found =
                    fs::metadata(&source).map_err(|e| wrong(&format!("{}: {e}", source.display())))?;
                if !found.is_dir() && !found.is_file() {
                    return Err(wrong(&format!(
                        "{} is neither a file nor a directory: devices, sockets and pipes of the host are not in a machine",
                        source.display()
                    )));
                }
                let (read_only, is_directory) = (has("ro") || has("rro"), found.is_dir());
                let keeps_below = has("rbind") && !has("rro");
                let is_private = !["shared", "rshared", "slave", "rslave"].into_iter().any(has);
                let is_recursive = has("rbind");
                self.binds.push(Bind {
                    source,
                    destination,
                    read_only,
                    keeps_below,
                    is_recursive,
                    is_private,
                    is_directory,
                });
            }
            "tmpfs" => {
                self.scratch.push(Scratch::of(destination.clone(), &options).map_err(|why| wrong(&why))?);
            }
            "proc" | "sysfs" | "devpts" | "mqueue" | "cgroup" | "cgroup2" => {}
            other => return Err(wrong(&format!("a machine has no file system of the type {other:?}"))),
        }
        Ok(())
    }

    /// A file system in the machine's memory is made read-only as the paths of `linux.readonlyPaths` are.
    fn add_read_only_scratch(&mut self) {
        let places = self.scratch.iter().filter(|scratch| scratch.read_only && scratch.is_in_memory());
        let places = places.map(|scratch| scratch.destination.to_string_lossy().into_owned());
        self.confinement.read_only.extend(places);
    }

    fn add_linux(&mut self, linux: &oci_spec::runtime::Linux) -> std::result::Result<(), String> {
        for namespace in linux.namespaces().iter().flatten() {
            let place = || namespace.path().clone().map_or(Place::New, Place::At);
            match (namespace.typ(), namespace.path()) {
                (LinuxNamespaceType::Network, Some(path)) if namespace::is_own(path) => {}
                (LinuxNamespaceType::Network, Some(path)) => self.network = Network::At(path.clone()),
                (LinuxNamespaceType::Network, None) => self.network = Network::New,
                (LinuxNamespaceType::User, None) => self.users = Users::of(linux)?,
                (LinuxNamespaceType::User, Some(path)) if namespace::is_own_users(path) => {}
                (LinuxNamespaceType::User, Some(path)) => self.users = Users::Of(path.clone()),
                (LinuxNamespaceType::Pid, _) => self.namespaces.pid = place(),
                (LinuxNamespaceType::Ipc, _) => self.namespaces.ipc = place(),
                (LinuxNamespaceType::Uts, _) => self.namespaces.uts = place(),
                (LinuxNamespaceType::Cgroup, _) => self.namespaces.cgroup = place(),
                _ => {}
            }
        }
        self.confinement = Confinement::of(linux)?;
        self.cgroup = linux.cgroups_path().clone();
        self.resources = linux.resources().clone();
        let memory = linux.resources().as_ref().and_then(|r| r.memory().as_ref()?.limit());
        if let Some(resources) = linux.resources() {
            self.group.take(resources);
        }
        // -1 is no limit, and so is 0 for some engines.
        self.memory = memory.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
        Ok(())
    }

    /// Takes the path of its control group for the name of a scope of systemd's.
    pub fn take_scope(&mut self, id: &str) -> Result<Scope> {
        let scope = Scope::of(self.cgroup.as_deref(), id)?;
        self.cgroup = Some(scope.path());
        Ok(scope)
    }

    /// Whether its pod's annotation `unilith.offline`, a list of names with commas between them, has its name: it gets no
    /// interface.
    pub fn is_offline(&self) -> bool {
        let name = NAME.iter().find_map(|key| self.annotations.get(*key));
        let names = self.choice("offline").unwrap_or_default();
        name.is_some_and(|name| names.split(',').any(|listed| listed.trim() == name))
    }

    /// Whether it is one of a pod's containers.
    pub fn is_in_pod(&self) -> bool {
        KIND.iter().any(|key| self.annotations.get(*key).is_some_and(|kind| kind == "container"))
    }

    /// The id of its pod's sandbox.
    pub fn sandbox(&self) -> Option<&str> {
        let id = SANDBOX.iter().find_map(|key| self.annotations.get(*key)).map(String::as_str);
        id.filter(|_| self.is_in_pod())
    }

    /// Whether it is a sandbox whose machine the containers of its pod join.
    pub fn holds_machine(&self) -> bool {
        self.is_sandbox && self.choice("pod") != Some(SEPARATE)
    }

    /// Whether other containers may join its machine: that of a sandbox, and of a container with a network of its own that names no
    /// limit of memory (a machine's memory cannot grow). Podman's pods and `--network container:NAME` make such.
    pub fn may_be_joined(&self) -> bool {
        let is_alone = !self.is_sandbox && !self.is_in_pod();
        let is_free = self.network != Network::Host && self.memory.is_none() && !self.is_virtual;
        self.holds_machine() || is_alone && is_free
    }

    /// Whether it is the sandbox of a pod of the kubelet, which gives the group of a pod a limit of memory when each container has one.
    /// The annotation is the sum of those that there are.
    pub fn is_kubelets_sandbox(&self) -> bool {
        let is_kubelets = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(KUBELETS_GROUPS);
        self.is_sandbox && self.cgroup.iter().flat_map(|path| path.iter()).any(is_kubelets)
    }

    /// Whether it wants to be in the machine of its pod, or of the container whose network it shares.
    pub fn joins(&self) -> bool {
        !self.is_sandbox && !self.is_offline() && self.choice("pod") != Some(SEPARATE)
    }

    /// The process whose network namespace it shares.
    pub fn network_of(&self) -> Option<u32> {
        match &self.network {
            Network::At(path) => process_of(path),
            Network::Host | Network::New => None,
        }
    }

    /// The pod's machine has the memory of all its containers. Engines give a sandbox the least share of processors, for a process
    /// that sleeps; here it is what runs.
    fn take_pods_resources(&mut self) {
        let memory = self.annotations.get(SANDBOX_MEMORY).and_then(|text| text.parse().ok());
        self.memory = memory.filter(|bytes| *bytes > 0).or(self.memory);
        if let Some(cpu) = self.resources.as_mut().and_then(|resources| resources.cpu_mut().as_mut()) {
            cpu.set_shares(None);
        }
    }

    /// The word of an annotation of ours, `unilith.KEY` or `dev.unilith.KEY`.
    pub fn choice(&self, key: &str) -> Option<&str> {
        let names = [format!("unilith.{key}"), format!("dev.unilith.{key}")];
        names.iter().find_map(|name| self.annotations.get(name)).map(String::as_str)
    }
}

/// Gives a process that names no user the superuser, as runc does.
pub fn complete(process: &mut serde_json::Value) {
    if let Some(process) = process.as_object_mut() {
        process.entry("user").or_insert_with(|| serde_json::json!({"uid": 0, "gid": 0}));
    }
}

/// The process of a namespace's path in /proc (namespaces(7)).
pub fn process_of(namespace: &Path) -> Option<u32> {
    namespace.strip_prefix("/proc").ok()?.components().next()?.as_os_str().to_str()?.parse().ok()
}

fn limits(process: &oci_spec::runtime::Process) -> Vec<(u8, u64, u64)> {
    let limits = process.rlimits().iter().flatten();
    limits.map(|limit| (resource(limit.typ()), limit.soft(), limit.hard())).collect()
}

/// Linux' number (include/uapi/asm-generic/resource.h).
fn resource(name: PosixRlimitType) -> u8 {
    use PosixRlimitType::*;
    match name {
        RlimitCpu => 0,
        RlimitFsize => 1,
        RlimitData => 2,
        RlimitStack => 3,
        RlimitCore => 4,
        RlimitRss => 5,
        RlimitNproc => 6,
        RlimitNofile => 7,
        RlimitMemlock => 8,
        RlimitAs => 9,
        RlimitLocks => 10,
        RlimitSigpending => 11,
        RlimitMsgqueue => 12,
        RlimitNice => 13,
        RlimitRtprio => 14,
        RlimitRttime => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config() -> Value {
        json!({
            "ociVersion": "1.0.2-dev",
            "process": {
                "terminal": false,
                "capabilities": {"bounding": ["CAP_CHOWN", "CAP_NET_RAW"], "permitted": ["CAP_CHOWN"], "ambient": []},
                "noNewPrivileges": true,
                "user": {"uid": 999, "gid": 998, "additionalGids": [1, 2]},
                "args": ["redis-server", "--save", ""],
                "env": ["PATH=/usr/bin", "A=b"],
                "cwd": "/data",
                "rlimits": [{"type": "RLIMIT_NPROC", "soft": 1, "hard": 2}, {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 20000}]
            },
            "root": {"path": "rootfs", "readonly": true},
            "hostname": "c0",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
                {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"},
                {"destination": "/etc/x", "type": "bind", "source": "/etc/hostname", "options": ["rbind", "ro"]},
                {"destination": "/data", "source": "/tmp", "options": ["rbind", "rw"]},
                {"destination": "/run", "type": "tmpfs", "options": ["mode=755", "size=65536k"]}
            ],
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/a"}],
                "cgroupsPath": "/libpod_parent/libpod-c0",
                "resources": {"memory": {"limit": 134217728}},
                "seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["chmod"], "action": "SCMP_ACT_ERRNO"}]},
                "maskedPaths": ["/proc/kcore", "/sys/firmware"],
                "readonlyPaths": ["/proc/sys"],
                "sysctl": {"net.ipv4.ping_group_range": "0 2147483647", "kernel.shm_rmid_forced": "1"}
            },
            "annotations": {"unilith.machine": "process"}
        })
    }

    fn parse(config: &Value) -> std::result::Result<Container, String> {
        Container::parse(&config.to_string(), Path::new("/bundle"))
    }

    #[test]
    fn a_bundle_as_podman_writes_it_is_read() {
        let c = parse(&config()).unwrap();
        assert_eq!((c.root.to_str(), c.read_only, c.uid, c.gid), (Some("/bundle/rootfs"), true, 999, 998));
        assert_eq!((c.groups.as_slice(), c.memory), (&[1, 2][..], Some(128 << 20)));
        assert_eq!(
            c.capabilities,
            Some(Capabilities { bounding: 1 | 1 << 13, permitted: 1, ..Capabilities::default() })
        );
        assert!(c.no_new_privileges);
        assert!(!c.confinement.filter.is_empty());
        assert_eq!(c.confinement.masked, ["/proc/kcore", "/sys/firmware"]);
        assert_eq!(c.confinement.read_only, ["/proc/sys"]);
        let settings: Vec<&str> = c.confinement.settings.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(settings, ["kernel.shm_rmid_forced", "net.ipv4.ping_group_range"]);
        assert_eq!(c.limits, [(6, 1, 2), (7, 1024, 20_000)]);
        assert_eq!(c.network, Network::At("/run/netns/a".into()));
        let binds: Vec<_> = c.binds.iter().map(|b| (b.destination.to_str().unwrap(), b.read_only)).collect();
        assert_eq!(binds, [("/etc/x", true), ("/data", false)]);
        assert!(!c.binds[0].is_directory && c.binds[1].is_directory);
        let run = Scratch {
            destination: "/run".into(),
            mode: 0o755,
            size: Some(64 << 20),
            inodes: None,
            noexec: false,
            read_only: false,
            copies_up: false,
        };
        assert_eq!(c.scratch, [run]);
        assert_eq!(c.choice("machine"), Some("process"));
    }

    #[test]
    fn the_namespace_that_everybody_is_in_is_the_hosts() {
        let mut config = config();
        config["linux"]["namespaces"][1]["path"] = json!("/proc/self/ns/net");
        assert_eq!(parse(&config).unwrap().network, Network::Host);
    }

    #[test]
    fn a_container_of_a_pod_names_the_pods_process_and_may_be_offline() {
        let mut config = config();
        config["linux"]["namespaces"][0] = json!({"type": "uts", "path": "/proc/4711/ns/uts"});
        let annotations = [
            ("io.kubernetes.cri.container-type", "container"),
            ("io.kubernetes.cri.container-name", "shipper"),
            ("dev.unilith.offline", "reloader, shipper"),
        ];
        annotations.into_iter().for_each(|(key, value)| config["annotations"][key] = json!(value));
        let c = parse(&config).unwrap();
        assert_eq!(
            (c.namespaces.uts.process(), c.is_in_pod(), c.is_offline(), c.is_sandbox),
            (Some(4711), true, true, false)
        );
        assert!(!c.joins(), "without a network there is nothing to share");
        config["annotations"]["io.kubernetes.cri.container-name"] = json!("ship");
        let c = parse(&config).unwrap();
        assert!(!c.is_offline() && c.joins());
        assert_eq!(c.sandbox(), None);
        for path in ["/proc/self/ns/uts", "/run/utsns/4711", "/proc", ""] {
            assert_eq!(process_of(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_sandbox_holds_its_pods_machine_unless_the_pod_says_otherwise() {
        let mut config = config();
        config["linux"]["resources"] = json!({"cpu": {"shares": 2, "quota": 5}, "memory": {}});
        for (key, value) in
            [("container-type", "sandbox"), ("sandbox-id", "a1"), ("sandbox-memory", "33554432")]
        {
            config["annotations"][format!("io.kubernetes.cri.{key}")] = json!(value);
        }
        let c = parse(&config).unwrap();
        assert!(c.holds_machine() && !c.joins());
        assert_eq!((c.memory, c.sandbox()), (Some(32 << 20), None));
        let cpu = c.resources.as_ref().unwrap().cpu().as_ref().unwrap();
        assert_eq!(
            (cpu.shares(), cpu.quota()),
            (None, Some(5)),
            "the least share is for a process that sleeps"
        );
        config["annotations"]["io.kubernetes.cri.container-type"] = json!("container");
        assert_eq!(parse(&config).unwrap().sandbox(), Some("a1"));
        config["annotations"]["dev.unilith.pod"] = json!("separate");
        assert!(!parse(&config).unwrap().joins());
        config["annotations"]["io.kubernetes.cri.container-type"] = json!("sandbox");
        assert!(!parse(&config).unwrap().holds_machine());
        config["annotations"]["dev.unilith.pod"] = json!("other");
        assert!(parse(&config).unwrap_err().contains("unilith.pod=other"));
    }

    #[test]
    fn what_a_machine_cannot_be_is_refused_by_its_name() {
        for (pointer, value, says) in [
            ("/ociVersion", json!("2.0"), "ociVersion"),
            ("/process/args", json!([]), "names no program"),
            ("/process/cwd", json!("data"), "absolute"),
            ("/process/env", json!(["A=\0"]), "NUL"),
            ("/mounts/3/source", json!("/no/such/file"), "/etc/x"),
            ("/mounts/3/source", json!("/dev/null"), "devices"),
            ("/mounts/5/type", json!("overlay"), "overlay"),
            ("/mounts/5/options", json!(["mode=rw"]), "octal"),
            ("/mounts/5/options", json!(["size=half"]), "size=half"),
            ("/mounts/5/options", json!(["nr_inodes=99999999999999999999"]), "nr_inodes"),
            ("/linux/maskedPaths/1", json!("sys/firmware"), "maskedPaths"),
            ("/linux/maskedPaths/0", json!("//"), "maskedPaths"),
            ("/linux/readonlyPaths/0", json!("/a\0"), "readonlyPaths"),
            ("/linux/readonlyPaths/0", json!(format!("/{}", "x".repeat(30_000))), "at most"),
            ("/linux/sysctl", json!({"vm.swappiness": "1"}), "vm.swappiness"),
            ("/linux/sysctl", json!({"net.../../kernel/x": "1"}), "separate kernel namespace"),
            ("/linux/sysctl", json!({"kernel.hostname": "x"}), "kernel.hostname"),
            ("/linux/seccomp/defaultAction", json!("SCMP_ACT_NOTIFY"), "SCMP_ACT_NOTIFY"),
            ("/linux/seccomp/syscalls", json!(7), "invalid type"),
            ("/linux/namespaces/0/type", json!("user"), "uidMappings"),
        ] {
            let mut config = config();
            *config.pointer_mut(pointer).unwrap() = value;
            let error = parse(&config).unwrap_err();
            assert!(error.contains(says), "{pointer}: {error}");
        }
        for text in ["", "{", "[]", "{\"ociVersion\": 1}", "{\"ociVersion\": \"1.0.2\"}"] {
            assert!(Container::parse(text, Path::new("/")).is_err(), "{text}");
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_and_nothing_else() {
        let text = config().to_string();
        for at in (0..text.len()).step_by(3) {
            let _ = Container::parse(&text[..at], Path::new("/"));
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 0x15;
            if let Ok(text) = String::from_utf8(bytes) {
                let _ = Container::parse(&text, Path::new("/"));
            }
        }
    }
}
