// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is, and how it does. Both are JSON files in the machine's directory and the output of
//! `unilith inspect`.

use crate::{console_log::LogLimits, contained::Isolation, process::Process};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    path::PathBuf,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};
use unilith_network::{interface::Interface, ports::Publish, subnet::Pair};
use unilith_ninep::{Access, Export, ids::Ids};

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// What the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// `-M microvm` with virtio-mmio: no PCI, quickest to boot.
    Microvm,
    /// `-M q35` with virtio-pci.
    Q35,
    /// Firecracker under KVM, with virtio-mmio.
    Firecracker,
    /// Cloud Hypervisor under KVM, with virtio-pci.
    #[serde(rename = "cloud-hypervisor")]
    CloudHypervisor,
    /// No virtual machine: one contained Linux process.
    Process,
}

impl Platform {
    /// Most directories of the host, the overlay's among them.
    pub const MAX_VOLUMES: usize = 16;
    /// Most processors.
    pub const MAX_CPUS: u32 = 16;

    pub fn is_process(self) -> bool {
        self == Platform::Process
    }

    /// Firecracker and Cloud Hypervisor, which are alike in what they lack beside QEMU.
    pub fn is_lean_monitor(self) -> bool {
        matches!(self, Platform::Firecracker | Platform::CloudHypervisor)
    }

    /// The monitor opens the machine's tap device by its name, and the device stays until it is removed.
    pub fn opens_tap_by_name(self) -> bool {
        self.is_lean_monitor()
    }

    /// Directories of the host are served by this command, and not by the monitor.
    pub fn is_served_files(self) -> bool {
        self.is_process() || self.is_lean_monitor()
    }

    /// What the process under the machine is called in messages.
    pub fn monitor(self) -> &'static str {
        match self {
            Platform::Microvm | Platform::Q35 => "QEMU",
            Platform::Firecracker => "Firecracker",
            Platform::CloudHypervisor => "Cloud Hypervisor",
            Platform::Process => "the machine",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    Kvm,
    /// QEMU's software emulation.
    Tcg,
    /// The same, with a clock that advances by a nanosecond for each instruction of the machine: for measuring.
    Icount,
}

/// The kernel under the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelKind {
    /// The micro-library OS.
    Micro,
    /// Debian's Linux.
    Linux,
}

/// How a machine is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// A tap device where this user may make one, else user-mode.
    #[default]
    Auto,
    Tap,
    User,
    None,
    /// It takes over the interface of the supervisor's network namespace.
    Interface {
        /// The file that its address is kept in.
        record: PathBuf,
        /// The name server on the namespace's loopback, if there is one: it answers at [`Interface::resolver`].
        server: Option<Ipv4Addr>,
        /// What of the host connects to the namespace's loopback reaches the machine.
        #[serde(default)]
        loopback: bool,
    },
}

/// A network that a machine is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    pub name: String,
    /// A network that is made again under the same name is another one.
    pub id: String,
    /// Names of the machine there, beside its own.
    pub aliases: Vec<String>,
}

/// A host directory in the machine, or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub host: PathBuf,
    pub guest: String,
    pub read_only: bool,
    /// What is mounted on the host below a directory that is read-only is as writable as it is there. The machine does not tell the two
    /// apart: the host's server answers.
    #[serde(default)]
    pub writable_below: bool,
    #[serde(default)]
    pub submounts: Submounts,
    /// Whom its files belong to in the machine; `None`: those whom they belong to on the host. Of directories that this command serves.
    #[serde(default)]
    pub ids: Option<Ids>,
}

/// What of the file systems that are mounted on the host below a directory is seen in the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submounts {
    /// Whatever is mounted at the time.
    #[default]
    Live,
    /// What was there when the machine was started.
    Then,
    Hidden,
}

impl Mount {
    /// With everything that is mounted below it, as it is on the host.
    pub fn new(host: impl Into<PathBuf>, guest: impl Into<String>, read_only: bool) -> Mount {
        let (host, guest) = (host.into(), guest.into());
        Mount { host, guest, read_only, writable_below: false, submounts: Submounts::default(), ids: None }
    }

    /// The whole of it is read-only, so that the machine's kernel may refuse by itself.
    pub fn is_read_only_throughout(&self) -> bool {
        self.read_only && !self.writable_below
    }

    /// What the host's server serves of it.
    pub fn export(&self) -> std::io::Result<Export> {
        let export = match self.submounts {
            Submounts::Live => Export::open(&self.host, self.access()),
            Submounts::Then => Export::open_private(&self.host, self.access(), true),
            Submounts::Hidden => Export::open_private(&self.host, self.access(), false),
        };
        Ok(export?.with_ids(self.ids.clone()))
    }

    /// What the machine may do there.
    fn access(&self) -> Access {
        match (self.read_only, self.writable_below) {
            (false, _) => Access::All,
            (true, false) => Access::ReadOnly,
            (true, true) => Access::ReadOnlyAbove,
        }
    }
}

/// A file of the host that is a block device of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    pub file: PathBuf,
    pub read_only: bool,
    /// Where its file system is mounted; `None`: the program drives the device itself.
    #[serde(default)]
    pub guest: Option<String>,
}

/// A file system in the machine's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub guest: String,
    /// Bytes; `None`: half of the machine's memory.
    pub size: Option<u64>,
    /// Files and directories; `None`: one for each page.
    #[serde(default)]
    pub inodes: Option<u64>,
    pub mode: u32,
    /// Programs on it may be executed.
    pub exec: bool,
}

/// When a program counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// It listens on this TCP or UDP port.
    Listening(u16),
    /// It prints a line that holds this text.
    Prints(String),
    /// Any port it listens on will do.
    Any,
    /// It ends by itself and is never announced.
    Never,
}

/// Whether a machine that has ended is started again by its supervisor, as docker's `--restart` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    #[default]
    No,
    /// When it ended with another code than 0; at most so many times.
    OnFailure(Option<u32>),
    /// However it ended, unless a user ended it.
    Always,
}

impl Restart {
    /// Whether it is started again after `starts` times.
    pub fn again(self, outcome: &Outcome, starts: u32) -> bool {
        match self {
            Restart::No => false,
            Restart::OnFailure(most) => outcome.code != 0 && most.is_none_or(|most| starts < most),
            Restart::Always => true,
        }
    }
}

impl std::str::FromStr for Restart {
    type Err = String;

    fn from_str(text: &str) -> Result<Restart, String> {
        match text.split_once(':') {
            None if text == "no" => Ok(Restart::No),
            // Machines do not outlive the computer's restart, so the two are one.
            None if text == "always" || text == "unless-stopped" => Ok(Restart::Always),
            None if text == "on-failure" => Ok(Restart::OnFailure(None)),
            Some(("on-failure", most)) if most.parse::<u32>().is_ok() => {
                Ok(Restart::OnFailure(most.parse().ok()))
            }
            _ => Err("it is no, on-failure[:TIMES], always or unless-stopped".into()),
        }
    }
}

/// What a container's programs are kept from by the machine's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Instructions of the filter of system calls (`struct sock_filter`); none: no filter.
    pub filter: Vec<u64>,
    /// Names and values of /proc/sys.
    pub settings: Vec<(String, String)>,
    /// Absolute paths that show nothing, and those that may not be written to.
    pub masked: Vec<String>,
    pub read_only: Vec<String>,
}

/// A container's control group, as the machine shows it to its programs. `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroup {
    /// Bytes.
    pub memory: u64,
    /// Processes and threads, which the machine's kernel counts and holds.
    pub pids: u64,
    /// Microseconds of processor time in a period of so many.
    pub cpu: (u64, u64),
    /// Its files are at /sys/fs/cgroup; `true`: to be read only.
    pub files: Option<bool>,
}

/// Sets of capabilities(7), a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub bounding: u64,
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

impl Capabilities {
    /// Of root that is limited to these: other users have none, and can get no others.
    pub fn bound(set: u64) -> Capabilities {
        Capabilities { bounding: set, permitted: set, effective: set, inheritable: 0, ambient: 0 }
    }
}

/// What a machine is: written once, before it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Twelve hexadecimal digits.
    pub id: String,
    pub name: String,
    pub created_ms: u64,
    /// The program as the user named it: `redis`, `debian:memcached`, `./a.out`.
    pub program: String,
    /// The name in messages.
    pub label: String,
    /// Remove the machine when it has ended.
    pub remove: bool,
    pub platform: Platform,
    /// What was chosen for the user, and why: "a process, for there is no /dev/kvm".
    #[serde(default)]
    pub choice: Option<String>,
    /// What a monitor runs the machine with; a process has none.
    pub accel: Option<Accel>,
    pub kernel_kind: KernelKind,
    /// How Linux runs the program: the words of `--ukl`.
    #[serde(default)]
    pub ukl: String,
    /// Which Linux, as `--linux` says it; empty for the one of machines that ask for none.
    #[serde(default)]
    pub linux: String,
    pub kernel: PathBuf,
    /// The kernel with its symbols, for backtraces.
    pub symbols: Option<PathBuf>,
    /// The root file system, a cpio archive.
    pub initrd: PathBuf,
    /// Digest of the manifest, where the root file system is of an image of a registry.
    #[serde(default)]
    pub image: Option<String>,
    /// Bytes.
    pub memory: u64,
    pub cpus: u32,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    pub uid: u32,
    pub gid: u32,
    /// Further groups of the program's user.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// File mode creation mask of the program; `None`: 022.
    #[serde(default)]
    pub umask: Option<u32>,
    /// Programs of the image that run before it, and what each of them reads from its standard input.
    #[serde(default)]
    pub hooks: Vec<Hook>,
    #[serde(default)]
    pub hook_input: String,
    /// What the program is allowed; without it root is allowed everything.
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
    /// No program gets more rights than it has.
    #[serde(default)]
    pub no_new_privileges: bool,
    /// What the program, and all that it starts, is kept from.
    #[serde(default)]
    pub confinement: Confinement,
    /// Of the machine's own programs, where it is a container.
    #[serde(default)]
    pub group: Option<ControlGroup>,
    /// The users and groups that there are in the machine, and who they are on the host; `None`: all, and the same.
    #[serde(default)]
    pub ids: Option<Ids>,
    pub hostname: String,
    pub log: Option<String>,
    /// How much of its output is kept.
    #[serde(default)]
    pub log_limits: LogLimits,
    pub trace: bool,
    /// The signal that asks the program to end.
    pub stop_signal: u8,
    /// The program's standard streams are a terminal.
    pub tty: bool,
    /// Nobody is to type: standard input is /dev/null.
    #[serde(default)]
    pub null_input: bool,
    pub volumes: Vec<Mount>,
    #[serde(default)]
    pub drives: Vec<Drive>,
    #[serde(default)]
    pub tmpfs: Vec<Memory>,
    /// The program may not write to its root file system.
    #[serde(default)]
    pub read_only: bool,
    /// Names and addresses for the program's /etc/hosts.
    #[serde(default)]
    pub hosts: Vec<(String, String)>,
    /// DNS servers of the user's choice; none: those of this host.
    #[serde(default)]
    pub dns: Vec<std::net::Ipv4Addr>,
    /// `unilith exec` and `unilith attach` work.
    #[serde(default)]
    pub overlay: bool,
    /// Its network card's address, where a user chose it.
    #[serde(default)]
    pub mac: Option<[u8; 6]>,
    pub network: Network,
    /// Its kernel has IPv6, for a network that has it.
    #[serde(default)]
    pub ipv6: bool,
    /// Machines of these networks reach each other; the machine has a tap device then.
    #[serde(default)]
    pub networks: Vec<Joined>,
    /// Ports the user wants published: an error if they cannot be had.
    pub publish: Vec<Publish>,
    /// Ports the program is known to serve: published where they are free.
    pub offer: Vec<Publish>,
    pub ready: Ready,
    /// A command that reaches the program, with `{HOST}` and `{PORT}` to be filled in.
    pub reach: Option<String>,
    /// Words of the user's, for `ps --filter`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Seconds the program has to end itself when it is asked to; `None`: ten.
    #[serde(default)]
    pub stop_timeout: Option<u64>,
    #[serde(default)]
    pub restart: Restart,
    #[serde(default)]
    pub health: Option<HealthCheck>,
    /// What the kernel does not give by itself.
    #[serde(default)]
    pub limits: Vec<Rlimit>,
    /// Volumes that its image declares and the user gave no other place for.
    #[serde(default)]
    pub anonymous: Vec<AnonymousVolume>,
}

impl Spec {
    /// The address of its network card: the user's choice, else one of its own.
    pub fn mac(&self) -> [u8; 6] {
        self.mac.unwrap_or_else(|| crate::qemu::mac_of(&self.id))
    }
}

/// A volume without a name of the user's: a directory of this host that is the machine's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnonymousVolume {
    pub name: String,
    /// Where it is in the machine.
    pub guest: String,
}

/// A program that runs in the machine before its own, which starts only if that ends with 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Absolute, in the machine.
    pub path: String,
    /// Its own name first.
    pub arguments: Vec<String>,
    /// `KEY=VALUE`; all that it has.
    pub environment: Vec<String>,
    /// Seconds.
    pub timeout: u64,
}

/// A resource limit of the program (getrlimit(2)); `u64::MAX` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Linux' number.
    pub resource: u8,
    pub soft: u64,
    /// `None`: the kernel's.
    pub hard: Option<u64>,
}

impl Rlimit {
    /// RLIMIT_NOFILE.
    pub const OPEN_FILES: u8 = 7;
    /// Names by number, as docker's `--ulimit` has them; docker lacks `as`.
    const NAMES: [&str; 16] = [
        "cpu",
        "fsize",
        "data",
        "stack",
        "core",
        "rss",
        "nproc",
        "nofile",
        "memlock",
        "as",
        "locks",
        "sigpending",
        "msgqueue",
        "nice",
        "rtprio",
        "rttime",
    ];
}

/// `NAME=SOFT[:HARD]`, -1 or `unlimited` for no limit; one number is both, as with docker.
impl FromStr for Rlimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Rlimit, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=SOFT[:HARD], for example nofile=4096")?;
        let resource = (0..).zip(Rlimit::NAMES).find(|(_, known)| *known == name);
        let (resource, _) = resource
            .ok_or_else(|| format!("there is no limit `{name}`, but {}", Rlimit::NAMES.join(", ")))?;
        let number = |text: &str| match text {
            "-1" | "unlimited" => Ok(u64::MAX),
            _ => text.parse().map_err(|_| format!("`{text}` is no number")),
        };
        let (soft, hard) = value.split_once(':').unwrap_or((value, value));
        let (soft, hard) = (number(soft)?, number(hard)?);
        if hard < soft {
            return Err("the hard limit is below the soft one".into());
        }
        Ok(Rlimit { resource, soft, hard: Some(hard) })
    }
}

/// How a program is asked whether it is well. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// A program of the image and its arguments; it is well when that ends with 0.
    pub command: Vec<String>,
    pub interval: u64,
    pub timeout: u64,
    /// How often in a row it may fail.
    pub retries: u32,
    /// As long after its start failures do not count.
    pub start_period: u64,
    /// As `interval`, within the start period.
    pub start_interval: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wellness {
    /// Nothing has been found out yet.
    #[default]
    Starting,
    Healthy,
    Unhealthy,
}

/// One question whether a program is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub started_ms: u64,
    pub finished_ms: u64,
    /// None: it did not end in time.
    pub exit_code: Option<i32>,
    /// The beginning of what it printed.
    pub output: String,
}

/// What checks found: `health.json`, written by the supervisor's checking thread alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub status: Wellness,
    /// Failures in a row.
    pub failing_streak: u32,
    /// The last ones.
    pub log: Vec<Checked>,
    /// The start of the machine that this is about.
    pub of_start_ms: Option<u64>,
}

/// How a machine came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What `unilith run` and `unilith wait` exit with: the program's code, 128+n after signal n, 125 if the machine failed.
    pub code: u8,
    /// One line, where there is more to say than the code.
    pub reason: Option<String>,
}

impl Outcome {
    /// The code of docker and podman for "the tool failed, not the program".
    pub const FAILED: u8 = 125;
    const OUT_OF_MEMORY: &str = "the machine ran out of memory";

    /// The end of a machine that nobody looked after any more.
    pub fn abandoned() -> Outcome {
        Outcome { code: 137, reason: Some("its supervisor was killed".into()) }
    }

    /// The program wanted more memory than the machine had: `memory`, in bytes.
    pub fn out_of_memory(memory: u64) -> Outcome {
        let (had, more) = (memory >> 20, (memory >> 20).next_power_of_two() * 2);
        let reason = format!("{}: it had {had} MiB; try -m {more}M", Outcome::OUT_OF_MEMORY);
        Outcome { code: 137, reason: Some(reason) }
    }

    /// The monitor, whose name this is, was ended by a SIGKILL that is not the supervisor's. The code is a killed program's.
    pub fn killed(monitor: &str) -> Outcome {
        let who = "by somebody, or by this computer for want of memory";
        Outcome { code: 137, reason: Some(format!("{monitor} was killed from outside: {who}")) }
    }

    pub fn is_out_of_memory(&self) -> bool {
        self.reason.as_ref().is_some_and(|reason| reason.starts_with(Outcome::OUT_OF_MEMORY))
    }

    pub fn failed(reason: impl Into<String>) -> Outcome {
        Outcome { code: Outcome::FAILED, reason: Some(reason.into()) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    #[default]
    Created,
    /// The machine runs, the program does not yet.
    Starting,
    /// The program runs.
    Running,
    /// The program serves.
    Ready,
    Exited,
}

impl Phase {
    pub fn word(self) -> &'static str {
        match self {
            Phase::Created => "created",
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Ready => "ready",
            Phase::Exited => "exited",
        }
    }

    pub fn is_alive(self) -> bool {
        matches!(self, Phase::Starting | Phase::Running | Phase::Ready)
    }
}

/// How the machine is connected, once it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "mode")]
pub enum Connection {
    /// `translated`: whether packets of the machine get out through nftables.
    Tap {
        device: String,
        #[serde(flatten)]
        pair: Pair,
        translated: bool,
    },
    User {
        #[serde(default)]
        helper: Helper,
    },
    /// The machine has an interface's place on its link.
    Interface {
        #[serde(flatten)]
        interface: Interface,
        /// Those behind the first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        further: Vec<Interface>,
    },
    None,
}

/// Whose user-mode network it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Helper {
    Passt,
    /// The same with IPv6.
    Passt6,
    #[default]
    Qemu,
}

/// A port the program listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listening {
    pub udp: bool,
    pub port: u16,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, if self.udp { "udp" } else { "tcp" })
    }
}

/// A file of the image in the machine's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    pub path: String,
    pub address: u64,
    /// Offset in the file of what is at the address.
    pub offset: u64,
}

/// How a machine does: rewritten by its supervisor whenever something changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub phase: Phase,
    pub supervisor: Option<Process>,
    /// The monitor, or the process that is the machine.
    pub process: Option<Process>,
    /// How far a process machine is set apart.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    pub connection: Option<Connection>,
    /// Ports that are published, with the numbers the system chose.
    pub published: Vec<Publish>,
    pub listening: BTreeSet<Listening>,
    /// Numbers of the system calls the program asked for and the kernel does not have.
    pub missing_calls: BTreeSet<u32>,
    /// Process machines: calls that were not at a patched site, each of which cost a signal.
    #[serde(default)]
    pub trapped_calls: Option<u64>,
    /// Process machines: what the program has mapped to be executed, for debuggers.
    #[serde(default)]
    pub modules: Vec<Module>,
    pub started_ms: Option<u64>,
    /// Nanoseconds from the kernel's first instruction to the program's.
    pub kernel_ns: Option<u64>,
    /// Milliseconds from the start of the machine until the program served.
    pub ready_in_ms: Option<u64>,
    pub finished_ms: Option<u64>,
    pub outcome: Option<Outcome>,
    /// It has ended, and its supervisor waits before it starts it again, as the restart policy says.
    #[serde(default)]
    pub restarting: bool,
    /// What the user was told and may want to read again.
    pub notes: Vec<String>,
}

impl State {
    /// The machine's own address, where the host can reach it.
    pub fn address(&self) -> Option<Ipv4Addr> {
        match &self.connection {
            Some(Connection::Tap { pair, .. }) => Some(pair.guest),
            Some(Connection::Interface { interface, .. }) => {
                Some(interface.address).filter(|address| !address.is_unspecified())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_dockers_words() {
        let of = |text: &str| text.parse().map(|Rlimit { resource, soft, hard }| (resource, soft, hard));
        assert_eq!(of("nofile=4096"), Ok((7, 4096, Some(4096))));
        assert_eq!(of("nproc=10:20"), Ok((6, 10, Some(20))));
        assert_eq!(of("core=-1"), Ok((4, u64::MAX, Some(u64::MAX))));
        assert_eq!(of("rttime=0:unlimited"), Ok((15, 0, Some(u64::MAX))));
        for (text, says) in
            [("nofile=2:1", "below"), ("nofile=x", "`x`"), ("cores=0", "`cores`"), ("core", "SOFT")]
        {
            assert!(of(text).unwrap_err().contains(says), "{text}");
        }
    }
}
