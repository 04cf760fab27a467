// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bundle's `config.json` (runtime-spec 1.2, config.md), read into what a machine can be. What would weaken the container if
//! it were passed over in silence is refused; what has no meaning for a machine, which has a kernel of its own, is listed in
//! `docs/reference/oci.md`.

use crate::{
    ContainerError, Result,
    confinement::Confinement,
    fields::{self, Part},
    namespace,
    priority::Priority,
    scope::Scope,
    scratch::{SHARED_MEMORY, Scratch},
    users::Users,
};
use oci_spec::runtime::{
    Capability, Hook, Hooks, LinuxCapabilities, LinuxNamespaceType, LinuxPersonalityDomain, LinuxResources,
    PosixRlimitType, Spec,
};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

/// The description of a bundle.
pub const CONFIG: &str = "config.json";
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
/// The quota of processor time of a pod's containers together, and its period, in microseconds; 0 where one of them has none.
const SANDBOX_QUOTA: [&str; 2] =
    ["io.kubernetes.cri.sandbox-cpu-quota", "io.kubernetes.cri.sandbox-cpu-period"];
/// CRI-O's annotation with both, as JSON, and what its later releases call it.
const POD_RESOURCES: [&str; 2] = ["io.kubernetes.cri-o.PodLinuxResources", "pod-linux-resources.crio.io"];
/// How the name of the control group begins that all pods of a kubelet are in.
const KUBELETS_GROUPS: &str = "kubepods";
/// The choice (`dev.unilith.pod`) by which each container of a pod is a machine of its own.
const SEPARATE: &str = "separate";

/// Largest file mode creation mask.
const MAX_UMASK: u32 = 0o777;

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

impl Bind {
    /// What a path that this covers is called in the source; empty: the source itself. `None`: it does not cover it.
    pub fn below<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.destination).ok()
    }

    /// The bind that covers a path: the deepest of them.
    pub fn covering<'a>(binds: &'a [Bind], path: &Path) -> Option<&'a Bind> {
        let covers = binds.iter().filter(|bind| bind.below(path).is_some());
        covers.max_by_key(|bind| bind.destination.components().count())
    }

    /// Where on the host what is at a path is that this covers.
    pub fn on_host(&self, path: &Path) -> Option<PathBuf> {
        let rest = self.below(path)?;
        Some(if rest.as_os_str().is_empty() { self.source.clone() } else { self.source.join(rest) })
    }
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
    pub fn of(all: &LinuxCapabilities) -> Capabilities {
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

    /// In the order in which the kernels' interfaces have them.
    pub fn sets(&self) -> [u64; 5] {
        [self.bounding, self.permitted, self.effective, self.inheritable, self.ambient]
    }
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

/// How many numbers are in a list as control groups have it: `0-3,8`. What is no number counts for none: the host refuses it.
fn count(list: &str) -> u64 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').filter_map(range).fold(0, u64::saturating_add)
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
    /// File mode creation mask; `None`: 022.
    pub umask: Option<u32>,
    pub priority: Priority,
    /// `None`: root has all.
    pub capabilities: Option<Capabilities>,
    /// No program gets more rights than it has.
    pub no_new_privileges: bool,
    pub confinement: Confinement,
    /// Resource limits: Linux' number, soft, hard.
    pub limits: Vec<(u8, u64, u64)>,
    pub terminal: bool,
    /// Columns and rows of its terminal, where it names them.
    pub console_size: Option<(u64, u64)>,
    pub hostname: Option<String>,
    pub binds: Vec<Bind>,
    pub scratch: Vec<Scratch>,
    /// File systems of the machine's kernel that are not to be written to.
    read_only_kernel: Vec<String>,
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
        Container::read_from(&bundle.join(CONFIG), bundle)
    }

    /// Reads and checks the description of a bundle that is in another file than the bundle's.
    pub fn read_from(path: &Path, bundle: &Path) -> Result<Container> {
        let bundle = bundle.canonicalize().map_err(crate::file("cannot use the bundle", bundle))?;
        let path = path.to_path_buf();
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

    pub(crate) fn parse(text: &str, bundle: &Path) -> std::result::Result<Container, String> {
        let mut spec: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        spec.get_mut("process").map(complete);
        fields::check(Part::Whole, &spec)?;
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
        let start_hooks = || spec.hooks().iter().flat_map(|hooks| hooks.start_container().iter().flatten());
        for hook in start_hooks() {
            check_start_hook(hook)?;
        }
        let umask = process.user().umask();
        if let Some(wrong) = umask.filter(|umask| *umask > MAX_UMASK) {
            return Err(format!(
                "process.user.umask: {wrong:#o} is no mask of permissions, which are {MAX_UMASK:#o}"
            ));
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
            umask,
            priority: Priority::of(process)?,
            capabilities: process.capabilities().as_ref().map(Capabilities::of),
            no_new_privileges: process.no_new_privileges().unwrap_or(false),
            confinement: Confinement::default(),
            limits: limits(process)?,
            terminal: process.terminal().unwrap_or(false),
            console_size: process.console_size().map(|size| (size.width(), size.height())),
            hostname: spec.hostname().clone(),
            binds: Vec::new(),
            scratch: Vec::new(),
            read_only_kernel: Vec::new(),
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
        if let Some(name) = spec.domainname() {
            container.confinement.set_domain_name(name)?;
        }
        container.add_read_only_mounts();
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
            // What is written to devices is not theirs to refuse.
            if has("ro") && own.iter().any(|own| destination == Path::new(own)) {
                self.read_only_kernel.push(destination.to_string_lossy().into_owned());
            }
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

    /// A file system in the machine's memory, or one of its kernel's, is made read-only as the paths of `linux.readonlyPaths` are.
    fn add_read_only_mounts(&mut self) {
        self.confinement.read_only.append(&mut self.read_only_kernel);
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
                (LinuxNamespaceType::Mount | LinuxNamespaceType::Time, None) => {}
                (kind @ (LinuxNamespaceType::Mount | LinuxNamespaceType::Time), Some(path)) => {
                    return Err(format!(
                        "linux.namespaces.path: {kind} namespace {}: a machine has mounts and clocks of its own; leave the path out",
                        path.display()
                    ));
                }
            }
        }
        let domain = linux.personality().as_ref().map(|personality| personality.domain());
        if domain == Some(LinuxPersonalityDomain::PerLinux32) {
            return Err(
                "linux.personality: LINUX32: a machine runs programs for x86-64 alone; leave it out".into()
            );
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

    /// A number that a sandbox is told of its pod: by an annotation of containerd's, or as a part of CRI-O's. 0 and less is none.
    fn of_pod(&self, annotation: &str, part: &str) -> Option<u64> {
        let of_crio = || {
            let text = POD_RESOURCES.iter().find_map(|key| self.annotations.get(*key))?;
            serde_json::from_str::<serde_json::Value>(text).ok()?.get(part)?.as_u64()
        };
        let told = self.annotations.get(annotation).and_then(|text| text.parse().ok()).or_else(of_crio);
        told.filter(|number| *number > 0)
    }

    /// The pod's machine has the memory of all its containers. Engines give a sandbox the least share of processors, for a process
    /// that sleeps; here it is what runs.
    fn take_pods_resources(&mut self) {
        self.memory = self.of_pod(SANDBOX_MEMORY, "memory_limit_in_bytes").or(self.memory);
        if let Some(cpu) = self.resources.as_mut().and_then(|resources| resources.cpu_mut().as_mut()) {
            cpu.set_shares(None);
        }
    }

    /// How many processors its limits are worth: its quota of processor time, or its pod's, rounded up, and no more than are in its set.
    /// `None`: it has no such limit.
    pub fn processors(&self) -> Option<u32> {
        let of_pod = || {
            let [quota, period] = SANDBOX_QUOTA;
            Some((self.of_pod(quota, "cpu_quota")?, self.of_pod(period, "cpu_period")?))
        };
        let quota = self.group.quota.map(|quota| (quota, self.group.period)).or_else(of_pod);
        let by_quota = quota.map(|(quota, period)| quota.div_ceil(period));
        let set = self.resources.as_ref().and_then(|resources| resources.cpu().as_ref()?.cpus().as_deref());
        let by_set = set.filter(|list| !list.trim().is_empty()).map(count);
        let all = [by_quota, by_set].into_iter().flatten().min();
        all.map(|count| u32::try_from(count).unwrap_or(u32::MAX).max(1))
    }

    /// Hooks that run in the container before its program.
    pub fn start_hooks(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().flat_map(|hooks| hooks.start_container().iter().flatten())
    }

    /// The word of an annotation of ours, `unilith.KEY` or `dev.unilith.KEY`.
    pub fn choice(&self, key: &str) -> Option<&str> {
        let names = [format!("unilith.{key}"), format!("dev.unilith.{key}")];
        names.iter().find_map(|name| self.annotations.get(name)).map(String::as_str)
    }
}

/// One that the machine is told of.
fn check_start_hook(hook: &Hook) -> std::result::Result<(), String> {
    let wrong = |why: &str| Err(format!("hooks.startContainer: {}: {why}", hook.path().display()));
    if !hook.path().is_absolute() {
        return wrong("the path is not absolute");
    }
    let words = || hook.args().iter().flatten().chain(hook.env().iter().flatten());
    if words().any(|word| word.contains('\0')) || hook.path().to_string_lossy().contains('\0') {
        return wrong("an argument or environment variable holds a NUL byte");
    }
    match hook.timeout() {
        Some(seconds) if seconds <= 0 => wrong("the timeout must be greater than 0"),
        _ => Ok(()),
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

fn limits(process: &oci_spec::runtime::Process) -> std::result::Result<Vec<(u8, u64, u64)>, String> {
    let mut limits: Vec<(u8, u64, u64)> = Vec::new();
    for limit in process.rlimits().iter().flatten() {
        let (name, soft, hard) = (limit.typ(), limit.soft(), limit.hard());
        let number = resource(name);
        if limits.iter().any(|(other, ..)| *other == number) {
            return Err(format!("process.rlimits: {name} is there twice"));
        }
        if soft > hard {
            return Err(format!(
                "process.rlimits: {name}: the soft limit {soft} is above the hard one {hard}"
            ));
        }
        limits.push((number, soft, hard));
    }
    Ok(limits)
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
mod tests;
