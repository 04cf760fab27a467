// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The containers below `--root`: a directory each, with `container.json`, the bundle's description as it was at `create`, and the socket on which
//! `start` is said.

use crate::{
    ContainerError, Result,
    bundle::{self, Container, Group, Namespaces, Network, Place},
    file, namespace,
    scope::Scope,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The folder with the addresses of interfaces. No container has this name.
const INTERFACES: &str = ".interfaces";

/// What one call of the runtime leaves for the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub version: String,
    pub bundle: PathBuf,
    pub root: PathBuf,
    pub annotations: BTreeMap<String, String>,
    /// The process that is the container for its engine, and its start in clock ticks since boot.
    pub pid: u32,
    pub start: u64,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    pub cgroups: Vec<PathBuf>,
    /// Its control group is this one of systemd's.
    #[serde(default)]
    pub scope: Option<Scope>,
    pub is_sandbox: bool,
    /// It has a machine that other containers may join, as those of a pod join their sandbox's.
    #[serde(default)]
    pub holds_machine: bool,
    /// The sandbox in whose machine it is.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The id of the machine that it is, or is in. Two engines may call their containers the same.
    #[serde(default)]
    pub machine: Option<String>,
    #[serde(default)]
    pub hostname: Option<String>,
    /// The number of its network namespace, where that ends with it: of a sandbox, and of a container with a namespace of its own.
    #[serde(default)]
    pub network: Option<u64>,
    /// The limits that it has, `update`s included: of memory in bytes, and those that its control group shows.
    #[serde(default)]
    pub memory: Option<u64>,
    #[serde(default)]
    pub group: Group,
    /// What its hooks mounted in its root, which goes with it.
    #[serde(default)]
    pub mounts: Vec<PathBuf>,
    /// `start` was said.
    pub started: bool,
}

/// How a container does, in the specification's words and `paused`, as runc says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Creating => "creating",
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        }
    }
}

/// The folder of all containers of an engine.
#[derive(Clone, Debug)]
pub struct Containers(PathBuf);

impl Containers {
    pub fn at(root: &Path) -> Containers {
        Containers(root.into())
    }

    /// The folder of one. The id becomes a file's name, so it is checked first.
    pub fn folder(&self, id: &str) -> Result<PathBuf> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "_+-.".contains(c);
        if id.is_empty() || id.len() > 255 || !id.chars().all(fine) || id == "." || id == ".." {
            return Err(ContainerError::BadId(id.into()));
        }
        Ok(self.0.join(id))
    }

    /// Where the address of the interface of the calling thread's network namespace is kept.
    pub fn interface_record(&self) -> Result<PathBuf> {
        let folder = self.0.join(INTERFACES);
        make_private(&folder)?;
        Ok(folder.join(namespace::number()?.to_string()))
    }

    /// Forgets the address of the interface of a namespace that ends with this container: another one will have its number.
    pub fn forget_interface(&self, record: &Record) {
        if let Some(number) = record.network {
            // There is none where no machine ran.
            let _ = fs::remove_file(self.0.join(INTERFACES).join(number.to_string()));
        }
    }

    /// Makes the folder of a new container; the id must be free.
    pub fn reserve(&self, id: &str) -> Result<PathBuf> {
        let folder = self.folder(id)?;
        make_private(&self.0)?;
        match fs::DirBuilder::new().mode(0o711).create(&folder) {
            Ok(()) => Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(ContainerError::Exists(id.into())),
            Err(e) => Err(file("cannot make", &folder)(e)),
        }
    }

    /// Keeps the description of a bundle for as long as its container is there: what becomes of the bundle's after `create` is nothing to
    /// it (runtime.md, "Lifecycle").
    pub fn keep_description(&self, id: &str, bundle: &Path) -> Result<()> {
        let (from, to) = (bundle.join(bundle::CONFIG), self.folder(id)?.join(bundle::CONFIG));
        let text = fs::read(&from).map_err(file("cannot read", &from))?;
        // Environments hold passwords.
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to);
        made.and_then(|mut made| made.write_all(&text)).map_err(file("cannot write", &to))
    }

    /// The container as its bundle described it when it was created.
    pub fn description(&self, id: &str, bundle: &Path) -> Result<Container> {
        Container::read_from(&self.folder(id)?.join(bundle::CONFIG), bundle)
    }

    pub fn find(&self, id: &str) -> Result<Record> {
        let path = self.folder(id)?.join("container.json");
        let text = match fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(ContainerError::NotFound(id.into()));
            }
            other => other.map_err(file("cannot read", &path))?,
        };
        serde_json::from_slice(&text).map_err(|e| ContainerError::Config(path, e.to_string()))
    }

    pub fn list(&self) -> Vec<Record> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut all: Vec<Record> =
            entries.filter_map(|e| self.find(&e.file_name().to_string_lossy()).ok()).collect();
        all.sort_by_key(|record| record.created_ms);
        all
    }

    /// The host name of a container: its own, or that of the container whose process it shares it with.
    pub fn hostname(&self, container: &Container) -> Option<String> {
        let shared = || self.of_namespace(&container.namespaces.uts, |of| &of.uts)?.hostname;
        container.hostname.clone().or_else(shared)
    }

    /// The container that has the namespace at this place, of the kind that `of` picks: the one whose process the place names
    /// (`/proc/PID/ns/ipc`), or the first one whose bundle names the same file, for some engines make a pod's namespaces before its
    /// containers and bind them to files (CRI-O).
    pub fn of_namespace(&self, place: &Place, of: impl Fn(&Namespaces) -> &Place) -> Option<Record> {
        if let Some(pid) = place.process() {
            return self.of_process(pid);
        }
        let Place::At(_) = place else { return None };
        let has = |record: &Record| {
            self.description(&record.id, &record.bundle).is_ok_and(|found| of(&found.namespaces) == place)
        };
        self.list().into_iter().filter(has).min_by_key(|record| record.created_ms)
    }

    /// The container that an engine knows by the number of this process of the host.
    pub fn of_process(&self, pid: u32) -> Option<Record> {
        self.list().into_iter().find(|record| record.pid == pid)
    }

    /// Takes the interface of the calling thread's network namespace for one machine, until the file is closed.
    pub fn claim_interface(&self) -> Result<fs::File> {
        let path = self.interface_record()?;
        let opened = fs::File::options().read(true).append(true).create(true).open(&path);
        let file = opened.map_err(file("cannot open", &path))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ContainerError::InterfaceTaken),
            Err(e) => Err(ContainerError::Namespace("network", e.into())),
        }
    }

    pub fn remove(&self, id: &str) -> Result<()> {
        let folder = self.folder(id)?;
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(file("cannot remove", &folder)(e)),
            _ => Ok(()),
        }
    }

    /// Writes the record as a whole.
    pub fn save(&self, record: &Record) -> Result<()> {
        let path = self.folder(&record.id)?.join("container.json");
        let new = path.with_extension("new");
        let text =
            serde_json::to_vec(record).map_err(|e| ContainerError::Config(path.clone(), e.to_string()))?;
        let mut options = fs::OpenOptions::new();
        let written = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = written.and_then(|mut f| f.write_all(&text)).and_then(|()| fs::rename(&new, &path));
        written.map_err(file("cannot write", &path))
    }
}

impl Record {
    /// The container whose machine it is in: itself, or its sandbox.
    pub fn host(&self) -> &str {
        self.sandbox.as_deref().unwrap_or(&self.id)
    }

    /// What its machine is found by.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or_else(|| self.host())
    }

    pub fn new(id: &str, container: &Container, pid: u32, start: u64, cgroups: Vec<PathBuf>) -> Record {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let ends_with_it = container.is_sandbox || container.network == Network::New;
        Record {
            id: id.into(),
            version: container.version.clone(),
            bundle: container.bundle.clone(),
            root: container.root.clone(),
            annotations: container.annotations.clone(),
            pid,
            start,
            created_ms: now,
            cgroups,
            scope: None,
            is_sandbox: container.is_sandbox,
            holds_machine: container.may_be_joined(),
            sandbox: None,
            machine: None,
            hostname: container.hostname.clone(),
            network: ends_with_it.then(|| namespace::number_of(pid)).flatten(),
            memory: container.memory,
            group: container.group,
            mounts: Vec::new(),
            started: false,
        }
    }

    /// The state as the specification has it (runtime.md, "State"), with what runc adds.
    pub fn state(&self, status: Status) -> State<'_> {
        let created = i64::try_from(self.created_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        State {
            version: &self.version,
            id: &self.id,
            // A process that has ended has no number.
            pid: if status == Status::Stopped { 0 } else { self.pid },
            status: status.word(),
            bundle: &self.bundle,
            root: &self.root,
            created: format!("{:.3}", created.unwrap_or_default()),
            annotations: &self.annotations,
            owner: "",
        }
    }
}

/// The time, as it is in files that engines read.
pub fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

/// The state of a container, in the order in which runc prints it.
#[derive(Clone, Debug, Serialize)]
pub struct State<'a> {
    #[serde(rename = "ociVersion")]
    pub version: &'a str,
    pub id: &'a str,
    pub pid: u32,
    pub status: &'static str,
    pub bundle: &'a Path,
    #[serde(rename = "rootfs")]
    pub root: &'a Path,
    pub created: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: &'a BTreeMap<String, String>,
    pub owner: &'a str,
}

impl std::fmt::Display for State<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Nothing in it is a map with keys other than strings, which alone cannot be written.
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

fn make_private(folder: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o711).create(folder).map_err(file("cannot make", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str) -> Record {
        Record {
            id: id.into(),
            version: "1.0.2".into(),
            bundle: "/bundle".into(),
            root: "/bundle/rootfs".into(),
            annotations: BTreeMap::new(),
            pid: 7,
            start: 8,
            created_ms: 951_782_400_123,
            cgroups: Vec::new(),
            scope: None,
            is_sandbox: false,
            holds_machine: false,
            sandbox: None,
            machine: None,
            hostname: Some("pod".into()),
            network: None,
            memory: None,
            group: Group::default(),
            mounts: Vec::new(),
            started: false,
        }
    }

    #[test]
    fn containers_are_kept_found_and_removed_and_an_id_is_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let all = Containers::at(&folder.path().join("root"));
        all.reserve("one").unwrap();
        assert!(all.reserve("one").unwrap_err().to_string().contains("container with id exists"));
        assert!(all.find("one").unwrap_err().to_string().contains("does not exist"), "half made");
        all.save(&record("one")).unwrap();
        assert_eq!((all.find("one").unwrap().pid, all.list().len()), (7, 1));
        for id in ["", ".", "..", "../one", "a/b", "a b", "a\n", "\u{e9}"] {
            assert!(all.reserve(id).unwrap_err().to_string().contains("invalid id"), "{id:?}");
        }
        all.remove("one").unwrap();
        all.remove("one").unwrap();
        assert!(all.find("one").is_err() && all.list().is_empty());
    }

    /// CRI-O makes the namespaces of a pod before its sandbox, and binds them to files.
    #[test]
    fn a_namespace_is_found_by_its_process_and_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let all = Containers::at(&folder.path().join("root"));
        let bundle = folder.path().join("bundle");
        fs::create_dir_all(bundle.join("rootfs")).unwrap();
        let at = |path: &str| Place::At(path.into());
        for (id, pid, created_ms, ipc, uts) in [
            ("second", 8, 2, "/run/ipcns/1", "/run/utsns/2"),
            ("sandbox", 7, 1, "/run/ipcns/1", "/run/utsns/1"),
        ] {
            let spec = serde_json::json!({
                "ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"args": ["/true"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
                "linux": {"namespaces": [{"type": "mount"}, {"type": "ipc", "path": ipc}, {"type": "uts", "path": uts}]},
            });
            fs::write(bundle.join(bundle::CONFIG), spec.to_string()).unwrap();
            all.reserve(id).unwrap();
            all.keep_description(id, &bundle).unwrap();
            all.save(&Record { pid, created_ms, bundle: bundle.clone(), ..record(id) }).unwrap();
        }
        let ipc = |place| all.of_namespace(&place, |of| &of.ipc).map(|found| found.id);
        let uts = |place| all.of_namespace(&place, |of| &of.uts).map(|found| found.id);
        assert_eq!(ipc(at("/proc/8/ns/ipc")).as_deref(), Some("second"));
        assert_eq!(ipc(at("/run/ipcns/1")).as_deref(), Some("sandbox"));
        assert_eq!(uts(at("/run/utsns/2")).as_deref(), Some("second"));
        for place in [at("/proc/9/ns/ipc"), at("/run/ipcns/2"), at("/run/utsns/1"), Place::New, Place::Host] {
            assert_eq!(ipc(place.clone()), None, "{place:?}");
        }
    }

    #[test]
    fn the_state_is_the_specifications() {
        let record = record("one");
        let text = record.state(Status::Running).to_string();
        assert!(
            text.starts_with(r#"{"ociVersion":"1.0.2","id":"one","pid":7,"status":"running","bundle":"#),
            "{text}"
        );
        let state: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((state["status"].as_str(), state["pid"].as_u64()), (Some("running"), Some(7)));
        assert_eq!((state["id"].as_str(), state["ociVersion"].as_str()), (Some("one"), Some("1.0.2")));
        assert_eq!(state["created"], "2000-02-29T00:00:00.123Z");
        assert_eq!(record.state(Status::Stopped).pid, 0);
    }
}
