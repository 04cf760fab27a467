// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the process: its files, its identity, its first thread; then the program takes over.

use crate::{confinement, hooks};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_boot::Confinement;
use api_plat::{Boot, BootConfig, Status, TrapFrame};
use calls_process::program::{self, Prepared};
use calls_process::system;
use loader::Loaded;
use task::files::Files;
use task::pids::Pid;
use task::process::{Credentials, Process, Program};
use task::processes::{self, Claim};
use task::restart::First;
use task::seccomp::Profile;
use task::users::{self, Extent};
use task::{Task, limits, signals, uts};

/// Runs the program the host asked for on the calling kernel thread. Comes back only with the reason why it could
/// not start, one line for the user.
pub fn run(boot: Boot) -> Result<core::convert::Infallible, String> {
    let config = &boot.config;
    // As Linux' log begins: a note.
    kmsg::record(
        5,
        api_plat::now_ns(),
        format_args!("Linux version {} {}", system::RELEASE, system::VERSION),
    );
    for word in &config.unknown {
        log::warn!("boot setting {word} is not known: ignored");
    }
    task::watch::set_trace(config.trace);
    system::set_memory(boot.memory);
    proc::initialise();
    if let Some(name) = &config.hostname {
        uts::first().set_host_name(name.as_bytes());
    }
    if config.args.is_empty() {
        return Err("the boot command line names no program: put it after --".into());
    }
    let namespace = crate::mounts::tree(&boot)?;
    let files = Files::new(Arc::new(namespace), boot.memory);
    crate::mounts::prepare(&files, config.cwd.as_deref(), config.null_input)?;
    if let Some(api_boot::Ids { users, groups }) = &config.ids {
        let map = |lines: &[(u32, u32, u32)]| -> Vec<Extent> {
            lines.iter().map(|&(inside, outside, count)| Extent { inside, outside, count }).collect()
        };
        users::limit_first(&map(users), &map(groups))
            .map_err(|e| format!("the users of the machine: {e:?}"))?;
    }
    if let Some(umask) = config.umask {
        files.set_umask(umask);
    }
    let mut who = Credentials::of(config.uid, config.gid);
    who.groups = config.groups.clone().into();
    if let Some(sets) = &config.capabilities {
        who = who.with_capabilities(sets);
    }
    who.no_new_privileges = config.no_new_privileges;
    let process = Process::new(Pid::FIRST, who, files);
    limits::begin(&process, &config.limits).map_err(|e| format!("the first process's limits: {e:?}"))?;
    let tid =
        processes::allocate(Claim::Program).map_err(|_| String::from("the first process has no number"))?;
    debug_assert_eq!(tid, Pid::FIRST);
    process.group().charge_always();
    processes::add(&process);
    task::processes::set_foreground(&process);
    if config.group.is_some() {
        signals::spare_machines_first();
    }
    calls_process::load::start();
    let task = Task::new(process.clone(), tid, [0; 16], None);
    process.add(task.clone());
    // SAFETY: the process' table holds the task until the thread has left it.
    unsafe { task.attach(&sched::current_handle()) };
    confine(&process, config)?;
    execute(&process, config)
}

/// The last thing before the program: nobody else is to be kept from what it is kept from.
fn confine(process: &Process, config: &BootConfig) -> Result<(), String> {
    let Confinement { settings, masked, read_only, .. } = &config.confinement;
    let what = confinement::Confinement {
        settings: settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        masked: masked.iter().map(String::as_str).collect(),
        read_only: read_only.iter().map(String::as_str).collect(),
    };
    // As the superuser: most of it is what the program may not do itself.
    let programs = core::mem::replace(&mut *process.credentials.lock(), Credentials::of(0, 0));
    confinement::apply(&process.files.namespace(), &what)?;
    // It may be below what was covered.
    if let Some(path) = config.cwd.as_deref() {
        process.files.set_working(confinement::working(&process.files.namespace(), path)?);
    }
    *process.credentials.lock() = programs;
    Ok(())
}

fn execute(process: &Arc<Process>, config: &BootConfig) -> Result<core::convert::Infallible, String> {
    let path = &config.args[0];
    let bytes = |text: &String| text.clone().into_bytes();
    let arguments: Vec<Vec<u8>> = config.args.iter().map(bytes).collect();
    let environment = environment(config);
    let profile = Profile::of(&config.confinement.filter);
    let profile = profile.map_err(|e| format!("the program's filter of system calls: {e:?}"))?;
    process.restarts.set_first(First {
        arguments: arguments.clone(),
        environment: environment.clone(),
        credentials: process.credentials.lock().clone(),
        working: process.files.working(),
        umask: process.files.umask(),
        profile: profile.clone(),
    });
    hooks::run(process, config)?;
    let name = path.clone().into_bytes();
    let prepared = program::prepare_first(process, name, arguments, environment);
    let Prepared { space, loaded, file, comm, rights } =
        prepared.map_err(|failure| program::reason(path, failure.errno()))?;
    let users = program::start_as(process, rights);
    process.set_space(space);
    task::current().set_name(&comm);
    task::current().seccomp.begin(profile.as_ref());
    let Loaded { entry, stack, auxv, .. } = loaded;
    process.set_program(Program { file, users, auxv });
    let frame = TrapFrame::at_start(entry, stack);
    api_plat::status(&Status::Started { kernel_ns: api_plat::now_ns() });
    // SAFETY: the registers are those of a program at its start, in the space just activated.
    unsafe { api_plat::enter_program(&frame) }
}

/// The environment the host gave; later entries win.
fn environment(config: &BootConfig) -> Vec<Vec<u8>> {
    let mut out: Vec<(&str, Vec<u8>)> = Vec::new();
    for (key, value) in &config.env {
        out.retain(|(known, _)| known != key);
        out.push((key, format!("{key}={value}").into_bytes()));
    }
    out.into_iter().map(|(_, entry)| entry).collect()
}
