// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers of a pod: a client of the line starts each in this machine, with files of its own, and waits for its end.

use crate::program::{Streams, explain, refused};
use abi::errno::EEXIST;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_boot::{CapabilitySets, Rlimit};
use api_overlay::{Failure, Outcome, Remote};
use overlay_wire::{Container, Origin};
use posix::confinement::{self, Confinement};
use posix::mounts::{self, HostTree, Views, memory};
use posix::outside::{self, Place, Wanted};
use task::containers::{self, Known, Number, Parts};
use task::files::FIRST_UMASK;
use task::limits::Limits;
use task::pids::PidNamespace;
use task::process::{Credentials, NsProxy, Process};
use task::seccomp::Profile;
use task::users::UserNamespace;
use task::{auxiliary, cgroup, control_group, ipc};

/// How often it is looked whether the last process of a container has ended.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Starts the container and serves its first process to its end, which is that of all its processes.
pub fn run(remote: &dyn Remote, wanted: &Container<'_>) -> Outcome {
    let known = prepare(wanted)?;
    let outcome = start_and_serve(remote, wanted, &known);
    let container = &known.0;
    container.end();
    while container.is_populated() {
        api_sched::park(api_plat::now_ns() + LOOK_AGAIN_NS);
    }
    outcome
}

fn text<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, Failure> {
    core::str::from_utf8(bytes).map_err(|_| refused(format!("{what} is not UTF-8")))
}

fn host_tree<'a>(tree: &overlay_wire::Tree<'a>) -> Result<HostTree<'a>, Failure> {
    let path = text(tree.path, "a mount point")?;
    if !path.starts_with('/') {
        return Err(refused(format!("the mount point {path} is not an absolute path")));
    }
    let tag = text(tree.tag, "a mount tag")?;
    if tag.is_empty() && memory(path, tree.name).is_none() {
        return Err(refused(format!("the file system in memory at {path} has neither size nor mode")));
    }
    Ok(HostTree { tag, name: tree.name, path, read_only: tree.read_only })
}

/// Mounts its files and makes it known by its name.
fn prepare(wanted: &Container<'_>) -> Result<Known, Failure> {
    let first = auxiliary::program().map_err(|e| Failure::new("").errno(e))?;
    let trees = wanted.trees.iter().map(host_tree).collect::<Result<Vec<_>, Failure>>()?;
    let limit = |limit: &overlay_wire::Limit| Rlimit {
        resource: limit.resource,
        soft: limit.soft,
        hard: Some(limit.hard),
    };
    let limits: Vec<Rlimit> = wanted.limits.iter().map(limit).collect();
    let limits = Limits::of_container(&limits)
        .map_err(|e| Failure::new("its limits").errno(e).code(Failure::REFUSED))?;
    let profile = Profile::of(&wanted.filter)
        .map_err(|e| Failure::new("its filter of system calls").errno(e).code(Failure::REFUSED))?;
    let confinement = confinement(wanted)?;
    let (pids, nsproxy) = namespaces(&first, wanted)?;
    let other = match wanted.namespaces.ipc {
        Origin::Container(name) => Some(container_of("IPC", name)?),
        _ => None,
    };
    let number = Number::allocate();
    let views = Views {
        container: number.get(),
        group_files: wanted.group.files,
        pids: &pids,
        has_own_ipc: wanted.namespaces.ipc == Origin::New,
        ipc: &nsproxy.ipc,
        shares_ipc_with: other.as_ref().map(|other| &*other.namespace),
    };
    let namespace = mounts::namespace(&first, &trees, &views).map_err(refused)?;
    let confined = confinement::apply(&namespace, &confinement).map_err(refused);
    let working = confined.and_then(|()| match wanted.program.working {
        b"" => Ok(namespace.root().topmost()),
        path => text(path, "the working directory")
            .and_then(|path| confinement::working(&namespace, path).map_err(refused)),
    });
    let known = working.and_then(|working| {
        let environment = wanted.program.environment.iter().map(|entry| entry.to_vec()).collect();
        let credentials = credentials(wanted);
        let (namespace, group) = (namespace.clone(), group(wanted));
        let parts = Parts {
            namespace,
            pids,
            nsproxy,
            credentials,
            environment,
            working,
            umask: wanted.umask.unwrap_or(FIRST_UMASK),
            limits,
            profile,
            group,
            number,
        };
        Known::new(wanted.name, parts).map_err(|e| match e {
            EEXIST => refused("the machine has a container of that name already"),
            e => Failure::new("").errno(e).code(Failure::REFUSED),
        })
    });
    if known.is_err() {
        namespace.take_apart();
    }
    known
}

/// What its processes may have together.
fn group(wanted: &Container<'_>) -> control_group::Limits {
    let overlay_wire::ControlGroup { pids, cpu, .. } = wanted.group;
    control_group::Limits { memory: wanted.memory.unwrap_or(control_group::NO_LIMIT), pids, cpu }
}

/// The container whose namespace another one joins.
fn container_of(kind: &str, name: &[u8]) -> Result<Arc<containers::Container>, Failure> {
    let running = containers::find(name).filter(|container| container.is_running());
    running.ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        refused(format!("the container {name}, whose {kind} namespace it is to join, does not run"))
    })
}

/// The namespaces that its programs begin in. The network is the pod's.
fn namespaces(first: &Process, wanted: &Container<'_>) -> Result<(PidNamespace, Arc<NsProxy>), Failure> {
    let origins = &wanted.namespaces;
    let failed = |e| Failure::new("its namespaces").errno(e).code(Failure::REFUSED);
    let owner = || UserNamespace::FIRST;
    let pids = match origins.pid {
        Origin::Machine => PidNamespace::FIRST,
        Origin::New => PidNamespace::FIRST.nest(owner()).map_err(failed)?,
        Origin::Container(name) => container_of("PID", name)?.pids.clone(),
    };
    let mut nsproxy = NsProxy::clone(&first.nsproxy.lock());
    match origins.ipc {
        Origin::Machine => {}
        Origin::New => nsproxy.ipc = ipc::empty(owner()).map_err(failed)?,
        Origin::Container(name) => nsproxy.ipc = container_of("IPC", name)?.nsproxy.ipc.clone(),
    }
    match origins.uts {
        Origin::Machine => {}
        Origin::New => nsproxy.uts = nsproxy.uts.copy(owner()).map_err(failed)?,
        Origin::Container(name) => nsproxy.uts = container_of("UTS", name)?.nsproxy.uts.clone(),
    }
    if origins.uts == Origin::New && !origins.host_name.is_empty() {
        nsproxy.uts.set_host_name(origins.host_name);
    }
    if let Some((_, name)) = wanted.settings.iter().find(|setting| is_own_domain(wanted, setting)) {
        nsproxy.uts.set_domain_name(name);
    }
    match origins.cgroup {
        Origin::Machine => {}
        Origin::New => nsproxy.cgroup = cgroup::another(owner()).map_err(failed)?,
        Origin::Container(name) => nsproxy.cgroup = container_of("cgroup", name)?.nsproxy.cgroup.clone(),
    }
    Ok((pids, Arc::new(nsproxy)))
}

/// Whether the setting is the domain name of a UTS namespace that the container has for itself. /proc/sys shows the machine's own.
fn is_own_domain(wanted: &Container<'_>, setting: &(&[u8], &[u8])) -> bool {
    wanted.namespaces.uts == Origin::New && setting.0 == b"kernel.domainname"
}

fn confinement<'a>(wanted: &Container<'a>) -> Result<Confinement<'a>, Failure> {
    let paths = |paths: &[&'a [u8]]| {
        let each = paths.iter().map(|path| text(path, "a path that is masked or read-only"));
        each.collect::<Result<Vec<_>, Failure>>()
    };
    let setting =
        |(name, value): &(&'a [u8], &'a [u8])| Ok((text(name, "a sysctl")?, text(value, "a sysctl")?));
    Ok(Confinement {
        settings: wanted
            .settings
            .iter()
            .filter(|setting| !is_own_domain(wanted, setting))
            .map(setting)
            .collect::<Result<Vec<_>, Failure>>()?,
        masked: paths(&wanted.masked)?,
        read_only: paths(&wanted.read_only)?,
    })
}

fn credentials(wanted: &Container<'_>) -> Credentials {
    let mut who = Credentials::of(wanted.uid, wanted.gid);
    who.groups = wanted.groups.clone().into();
    if let Some([bounding, permitted, effective, inheritable, ambient]) = wanted.capabilities {
        who = who.with_capabilities(&CapabilitySets { bounding, permitted, effective, inheritable, ambient });
    }
    who.no_new_privileges = wanted.no_new_privileges;
    who
}

fn start_and_serve(remote: &dyn Remote, wanted: &Container<'_>, known: &Known) -> Outcome {
    let first = auxiliary::program().map_err(|e| Failure::new("").errno(e))?;
    let (container, program) = (&known.0, &wanted.program);
    let mut streams = Streams::new(&container.namespace, program, (wanted.uid, wanted.gid))
        .map_err(|e| Failure::new("its standard streams").errno(e).code(Failure::REFUSED))?;
    let paths = outside::candidates(program.arguments[0], &container.environment);
    let asked = Wanted {
        arguments: program.arguments.iter().map(|word| word.to_vec()).collect(),
        environment: container.environment.clone(),
        working: container.working.clone(),
        credentials: container.credentials.clone(),
        streams: streams.take_programs()?,
        terminal: streams.terminal.as_deref(),
        place: Place::First(container),
    };
    let process = outside::start(&first, &asked, &paths).map_err(|refusal| explain(refusal, program))?;
    remote.started(process.pid.of_machine() as u32);
    let code = streams.serve(remote, &process, &|| container.end())?;
    if outside::was_out_of_memory(&process) {
        // Above 128, so that the client hears that the kernel ended it.
        return Err(Failure::new("").because("memory had run out, and the kernel ended it").code(code));
    }
    Ok(code)
}
