// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of each field of `config.json`: one table, which the reader of bundles refuses by, from which
//! `docs/reference/oci-config.md` is made, and which the tests hold against the fields that the specification has (`tests.rs` beside this
//! file). A field that nobody knows is passed over, as the specification wants it (config.md, "Extensibility").

use serde_json::Value;

#[cfg(test)]
mod tests;

/// What is done with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has the effect that the specification describes, as far as `says` says nothing else.
    Honoured,
    /// A bundle that says it is refused by the field's name.
    Refused,
    /// What it is about does not exist for a machine, so that the container is the same with it and without it.
    NoMeaning,
    /// Of a process of `exec`: the container's own holds.
    Containers,
}

impl State {
    pub const fn word(self) -> &'static str {
        match self {
            State::Honoured => "honoured",
            State::Refused => "refused",
            State::NoMeaning => "without meaning",
            State::Containers => "the container's",
        }
    }
}

/// A field, and all that is below it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its path, with dots; elements of lists have no name, keys of maps are `*`.
    pub name: &'static str,
    pub state: State,
    /// How, why, or what to do instead.
    pub says: &'static str,
}

const fn honoured(name: &'static str, says: &'static str) -> Field {
    Field { name, state: State::Honoured, says }
}

const fn refused(name: &'static str, says: &'static str) -> Field {
    Field { name, state: State::Refused, says }
}

const fn no_meaning(name: &'static str, says: &'static str) -> Field {
    Field { name, state: State::NoMeaning, says }
}

const fn containers(name: &'static str, says: &'static str) -> Field {
    Field { name, state: State::Containers, says }
}

const OTHERS: &str = "this runtime makes containers of Linux: leave it out";
const OF_WINDOWS: &str = "of Windows";
const OWN_KERNEL: &str = "of the host's kernel, which runs no program of the container";
const NOT_OF_HOST: &str = "nothing of it that is the host's is in a machine";

/// The fields of `config.json`.
pub const FIELDS: &[Field] = &[
    honoured("ociVersion", "1.x; others are refused"),
    honoured("root.path", ""),
    honoured("root.readonly", ""),
    honoured(
        "mounts.destination",
        "the machine's kernel has its own /proc, /sys, /dev, /dev/pts and /dev/mqueue, whatever is to be mounted there; `ro` holds for all of them but /dev",
    ),
    honoured("mounts.type", "binds, tmpfs and the kernel's own file systems; others are refused"),
    honoured("mounts.source", "files and directories of the host; devices, sockets and pipes are refused"),
    honoured(
        "mounts.options",
        "`ro rw rro rbind`, propagation towards the machine, and those of tmpfs; `nodev nosuid noatime` and others of mount(2) change nothing",
    ),
    refused(
        "mounts.uidMappings",
        "mounts with users of their own do not exist in a machine; map them for the whole container (linux.uidMappings)",
    ),
    refused(
        "mounts.gidMappings",
        "mounts with groups of their own do not exist in a machine; map them for the whole container (linux.gidMappings)",
    ),
    honoured("process.terminal", ""),
    honoured("process.consoleSize", ""),
    honoured("process.user.uid", ""),
    honoured("process.user.gid", ""),
    honoured("process.user.umask", "without it 022"),
    honoured("process.user.additionalGids", ""),
    no_meaning("process.user.username", OF_WINDOWS),
    honoured("process.args", ""),
    no_meaning("process.commandLine", OF_WINDOWS),
    honoured("process.env", ""),
    honoured("process.cwd", ""),
    honoured("process.capabilities", "held by the machine's kernel"),
    honoured("process.rlimits", "all sixteen; one that is named twice is refused"),
    honoured("process.noNewPrivileges", ""),
    no_meaning("process.apparmorProfile", OWN_KERNEL),
    honoured("process.oomScoreAdj", "of the container's process on the host and of its machine"),
    no_meaning("process.selinuxLabel", OWN_KERNEL),
    honoured(
        "process.ioPriority",
        "of the container's process on the host and of its machine; refused for a container that is in the machine of a pod",
    ),
    honoured(
        "process.scheduler.policy",
        "of the container's process on the host and of its machine, but for SCHED_DEADLINE and SCHED_ISO, which are refused, as all of it is \
         for a container that is in the machine of a pod",
    ),
    honoured("process.scheduler.nice", ""),
    honoured("process.scheduler.priority", ""),
    refused(
        "process.scheduler.flags",
        "the container's process and its machine have one policy for as long as they live",
    ),
    refused(
        "process.scheduler.runtime",
        "it is for SCHED_DEADLINE, which a process that starts others cannot have",
    ),
    refused(
        "process.scheduler.deadline",
        "it is for SCHED_DEADLINE, which a process that starts others cannot have",
    ),
    refused(
        "process.scheduler.period",
        "it is for SCHED_DEADLINE, which a process that starts others cannot have",
    ),
    no_meaning("process.execCPUAffinity", "a machine's processors are threads that the host places"),
    honoured("hostname", ""),
    honoured("domainname", ""),
    honoured("hooks.prestart", "run in the host's namespaces"),
    honoured("hooks.createRuntime", "run in the host's namespaces"),
    honoured(
        "hooks.createContainer",
        "run in the container's network, with its root as the working directory",
    ),
    honoured(
        "hooks.startContainer",
        "run in the machine, with the rights, the filter of system calls and the working directory of the program; `pid` of their state is \
         that of the program. Refused for a container that is in the machine of a pod, and for a sandbox without a machine",
    ),
    honoured("hooks.poststart", "run in the host's namespaces"),
    honoured("hooks.poststop", "run in the host's namespaces"),
    honoured("annotations", "those of this runtime, and of engines for pods; all of them are in the state"),
    refused(
        "linux.netDevices",
        "a machine takes over the interface that its network namespace has: have the engine move it there before `create`",
    ),
    honoured("linux.uidMappings", ""),
    honoured("linux.gidMappings", ""),
    honoured("linux.sysctl", "of a network, of IPC and the domain name; others are refused"),
    no_meaning("linux.resources.devices", NOT_OF_HOST),
    honoured("linux.resources.memory.limit", "also the machine's memory"),
    honoured("linux.resources.memory.reservation", "where a control group has it"),
    honoured("linux.resources.memory.swap", "where a control group has it"),
    no_meaning("linux.resources.memory.kernel", OWN_KERNEL),
    no_meaning("linux.resources.memory.kernelTCP", OWN_KERNEL),
    honoured(
        "linux.resources.memory.swappiness",
        "version 1 of control groups has it; with version 2 it is refused",
    ),
    refused(
        "linux.resources.memory.disableOOMKiller",
        "a machine that runs out of memory ends; leave it out, or give the container more",
    ),
    no_meaning("linux.resources.memory.useHierarchy", "control groups have no others any more"),
    honoured("linux.resources.memory.checkBeforeUpdate", "of `update`"),
    honoured("linux.resources.cpu.shares", "where a control group has it"),
    honoured("linux.resources.cpu.quota", ""),
    honoured("linux.resources.cpu.period", ""),
    honoured("linux.resources.cpu.burst", "on the host, whose kernel must have it"),
    honoured("linux.resources.cpu.idle", "on the host, whose kernel must have it"),
    honoured(
        "linux.resources.cpu.realtimeRuntime",
        "version 1 of control groups has it; with version 2 it is refused",
    ),
    honoured(
        "linux.resources.cpu.realtimePeriod",
        "version 1 of control groups has it; with version 2 it is refused",
    ),
    honoured("linux.resources.cpu.cpus", ""),
    honoured("linux.resources.cpu.mems", ""),
    honoured(
        "linux.resources.pids.limit",
        "held by the machine; the host's threads of it may be 640 at least",
    ),
    honoured("linux.resources.blockIO.weight", "where a control group has it"),
    refused(
        "linux.resources.blockIO.leafWeight",
        "a container's control group has none below it, which alone it would be for; use weight",
    ),
    honoured("linux.resources.blockIO.weightDevice.major", ""),
    honoured("linux.resources.blockIO.weightDevice.minor", ""),
    honoured("linux.resources.blockIO.weightDevice.weight", "the host's kernel must have it (bfq)"),
    refused(
        "linux.resources.blockIO.weightDevice.leafWeight",
        "a container's control group has none below it, which alone it would be for; use weight",
    ),
    honoured(
        "linux.resources.blockIO.throttleReadBpsDevice",
        "of the host's disks, for the machine as a whole",
    ),
    honoured(
        "linux.resources.blockIO.throttleWriteBpsDevice",
        "of the host's disks, for the machine as a whole",
    ),
    honoured(
        "linux.resources.blockIO.throttleReadIOPSDevice",
        "of the host's disks, for the machine as a whole",
    ),
    honoured(
        "linux.resources.blockIO.throttleWriteIOPSDevice",
        "of the host's disks, for the machine as a whole",
    ),
    no_meaning("linux.resources.hugepageLimits", NOT_OF_HOST),
    refused(
        "linux.resources.network.classID",
        "packets of a machine come from no socket of the host's: shape them at the interface of its network namespace",
    ),
    refused(
        "linux.resources.network.priorities",
        "packets of a machine come from no socket of the host's: shape them at the interface of its network namespace",
    ),
    no_meaning("linux.resources.rdma", NOT_OF_HOST),
    honoured(
        "linux.resources.unified",
        "files that the container's group of version 2 has; others are refused",
    ),
    honoured("linux.cgroupsPath", ""),
    honoured("linux.namespaces.type", "a machine has a mount and a time namespace of its own in any case"),
    honoured(
        "linux.namespaces.path",
        "of a network, of users, and of containers of the same machine; those of mount and time namespaces are refused",
    ),
    no_meaning(
        "linux.devices",
        "a machine has the devices of its own kernel; none of the host's can be in it",
    ),
    honoured("linux.seccomp.defaultAction", "SCMP_ACT_NOTIFY and SCMP_ACT_TRACE are refused"),
    honoured("linux.seccomp.defaultErrnoRet", ""),
    honoured("linux.seccomp.architectures", "a machine has x86-64 and, where it is named, its x32"),
    no_meaning("linux.seccomp.flags", "a container has one filter, which is not logged"),
    refused(
        "linux.seccomp.listenerPath",
        "no process of the host can be asked about system calls of a machine's programs, which the host's kernel does not see; have the \
         profile allow or refuse those calls, or run this container with runc",
    ),
    refused(
        "linux.seccomp.listenerMetadata",
        "no process of the host can be asked about system calls of a machine's programs, which the host's kernel does not see; have the \
         profile allow or refuse those calls, or run this container with runc",
    ),
    honoured(
        "linux.seccomp.syscalls",
        "SCMP_ACT_NOTIFY and SCMP_ACT_TRACE are refused; SCMP_ACT_LOG writes no line",
    ),
    no_meaning("linux.rootfsPropagation", "a machine's mounts never reach the host"),
    honoured("linux.maskedPaths", ""),
    honoured("linux.readonlyPaths", ""),
    no_meaning("linux.mountLabel", OWN_KERNEL),
    refused(
        "linux.intelRdt",
        "the runtime makes no groups of resctrl: make one, and move the container's process, whose number is in the pid file, before `start`",
    ),
    refused(
        "linux.memoryPolicy",
        "a machine's memory follows none; give it nodes of memory with linux.resources.cpu.mems",
    ),
    honoured("linux.personality.domain", "LINUX; LINUX32 is refused"),
    refused("linux.personality.flags", "there are none that could be applied; leave them out"),
    refused(
        "linux.timeOffsets",
        "the clocks of a machine have no offsets; its time since boot begins with its start",
    ),
    refused("solaris", OTHERS),
    refused("windows", OTHERS),
    refused("zos", OTHERS),
    refused("freebsd", OTHERS),
    refused("vm", "the kernel and the machine are chosen by annotations (dev.unilith.machine): leave it out"),
];

/// Those of a process of `exec --process`, which are `process` of `config.json`, so far as they are not as there.
pub const FIELDS_OF_EXEC: &[Field] = &[
    containers("process.user.umask", ""),
    honoured("process.capabilities", "the container's where there are none"),
    containers("process.rlimits", ""),
    containers("process.oomScoreAdj", ""),
    refused(
        "process.ioPriority",
        "a process of `exec` is in the container's machine, which has one priority",
    ),
    refused("process.scheduler", "a process of `exec` is in the container's machine, which has one priority"),
];

/// What a part of `config.json` is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// `process`, of `exec`.
    Exec,
    /// `linux.resources`, of `update`.
    Resources,
}

impl Part {
    /// How the paths of its fields begin.
    const fn prefix(self) -> &'static str {
        match self {
            Part::Whole => "",
            Part::Exec => "process.",
            Part::Resources => "linux.resources.",
        }
    }

    fn fields(self) -> impl Iterator<Item = &'static Field> {
        let own = if self == Part::Exec { FIELDS_OF_EXEC } else { &[] };
        let is_other = |field: &&Field| own.iter().all(|own| own.name != field.name);
        own.iter().chain(FIELDS.iter().filter(is_other))
    }
}

/// Refuses what cannot be honoured, by its name.
pub fn check(part: Part, value: &Value) -> Result<(), String> {
    for field in part.fields().filter(|field| field.state == State::Refused) {
        let Some(below) = field.name.strip_prefix(part.prefix()) else { continue };
        if says(value, below) {
            return Err(format!("{}: {}", field.name, field.says));
        }
    }
    Ok(())
}

/// Whether the value says anything at that path. Engines write what they leave as it is as nothing, empty or false.
fn says(value: &Value, path: &str) -> bool {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(all) => all.iter().any(|one| says(one, path)),
        Value::Object(all) if path.is_empty() => all.values().any(|one| says(one, "")),
        Value::Object(all) => all.get(name).is_some_and(|found| says(found, rest)),
        Value::String(text) => path.is_empty() && !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => path.is_empty(),
    }
}
