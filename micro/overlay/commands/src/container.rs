// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers of a pod: a client of the line starts each in this machine, with files of its own, and waits for its end.

use crate::program::{Streams, candidates, explain, refused};
use abi::errno::EEXIST;
use alloc::format;
use alloc::vec::Vec;
use api_boot::{CapabilitySets, Rlimit};
use api_overlay::{Failure, Outcome, Remote};
use overlay_wire::Container;
use posix::auxiliary;
use posix::calls::limits::Limits;
use posix::calls::seccomp::Profile;
use posix::confinement::{self, Confinement};
use posix::containers::{self, Known, Parts};
use posix::mounts::HostTree;
use posix::outside::{self, Place, Wanted};
use posix::process::Credentials;

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
    let namespace = containers::namespace(&first, &trees).map_err(refused)?;
    let confined = confinement::apply(&namespace, &confinement).map_err(refused);
    let working = confined.and_then(|()| match wanted.program.working {
        b"" => Ok(namespace.root().topmost()),
        path => text(path, "the working directory")
            .and_then(|path| confinement::working(&namespace, path).map_err(refused)),
    });
    let known = working.and_then(|working| {
        let environment = wanted.program.environment.iter().map(|entry| entry.to_vec()).collect();
        let credentials = credentials(wanted);
        let (namespace, memory) = (namespace.clone(), wanted.memory);
        let parts = Parts { namespace, credentials, environment, working, limits, profile, memory };
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

fn confinement<'a>(wanted: &Container<'a>) -> Result<Confinement<'a>, Failure> {
    let paths = |paths: &[&'a [u8]]| {
        let each = paths.iter().map(|path| text(path, "a path that is masked or read-only"));
        each.collect::<Result<Vec<_>, Failure>>()
    };
    let setting =
        |(name, value): &(&'a [u8], &'a [u8])| Ok((text(name, "a sysctl")?, text(value, "a sysctl")?));
    Ok(Confinement {
        settings: wanted.settings.iter().map(setting).collect::<Result<Vec<_>, Failure>>()?,
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
    let paths = candidates(program.arguments[0], &container.environment);
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
