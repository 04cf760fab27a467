// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith oci`, and the script `unilith-runc`: a container runtime as Podman, Docker, containerd and CRI-O call runc. Each
//! container is a machine that is a process: its root is the bundle's directory over 9p, its network the interface that the
//! engine made.
//!
//! The *keeper* is the process that engines take for the container: it is there after `create`, becomes the machine's
//! supervisor at `start` and ends with the program's exit code. A pod's machine is its sandbox's: the keepers of the pod's containers
//! stand for trees of processes in it ([`pod`], [`member`]).

mod choices;
mod create;
mod events;
mod exec;
mod files;
mod keeper;
mod limits;
mod manage;
mod member;
mod pod;
mod resources;
mod run;
mod spec;

use crate::{
    fault::{Fault, Result},
    repository,
};
use clap::Subcommand;
use create::Setting;
use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use unilith_container::{
    ContainerError, administrator::Administrator, descriptors, namespace, record, record::Containers,
};

/// Where containers are kept that nobody named a place for, as with runc.
const ROOT: &str = "/run/unilith-runc";
/// The same in the folder of an ordinary user's session ($XDG_RUNTIME_DIR).
const ROOT_OF_USER: &str = "unilith-runc";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// Options in front of the verb.
#[derive(clap::Args, Clone, Debug)]
pub struct Global {
    /// Where the records of containers are [default: /run/unilith-runc, of an ordinary user $XDG_RUNTIME_DIR/unilith-runc]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// File that errors are written to as well
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// How: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Accepted for engines that give it
    #[arg(long, hide = true)]
    debug: bool,
    /// The administrator's file: what containers are that say nothing, and what annotations may choose [default:
    /// /etc/unilith/runc.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Have systemd make the control groups
    #[arg(long)]
    systemd_cgroup: bool,
    /// Accepted for engines that give it: a machine needs no rights of the host inside
    #[arg(long, hide = true, value_name = "BOOL")]
    rootless: Option<String>,
}

#[derive(Subcommand, Clone, Debug)]
enum Verb {
    /// Make a container of a bundle and run its program
    Run(run::Args),
    /// Make a container of a bundle; its program waits for `start`
    Create(create::Args),
    /// Run the program of a container
    Start(Id),
    /// Show a container as JSON
    State(Id),
    /// Run a further process in a container
    Exec(exec::Args),
    /// Send a signal to a container's program
    Kill(manage::Kill),
    /// Remove what is left of a container
    Delete(manage::Delete),
    /// List containers
    List(manage::List),
    /// Show the host's processes of a container
    Ps(manage::Ps),
    /// Let a container stand still
    Pause(Id),
    /// Let a paused container go on
    Resume(Id),
    /// Change the limits of a container
    Update(limits::Update),
    /// Show what a container uses until it ends, and that it ran out of memory
    Events(events::Events),
    /// Say what this runtime knows, as JSON
    Features,
    /// Say which runtime this is, in runc's form
    Version,
    /// Write a config.json to begin with
    Spec(spec::Args),
    #[command(name = "__keep", hide = true)]
    Keep(keeper::Args),
    #[command(name = "__exec", hide = true)]
    StandIn(exec::StandIn),
    /// Everything else by its name
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(clap::Args, Clone, Debug)]
pub struct Id {
    id: String,
}

pub fn act(args: Args) -> Result<u8> {
    let global = args.global.clone();
    let result = run(args);
    if let (Err(fault), Some(log)) = (&result, &global.log) {
        note(log, global.log_format == "json", &fault.message);
    }
    result
}

fn run(args: Args) -> Result<u8> {
    let Args { global, verb } = args;
    let root = global.root.clone().unwrap_or_else(usual_root);
    let all = Containers::at(&root);
    let config = global.config.as_deref();
    let setting = || {
        let administrator = Administrator::read(config)?;
        Ok::<_, Fault>(Setting { root: &root, config, administrator, has_scope: global.systemd_cgroup })
    };
    descriptors::close_in_children()
        .map_err(|e| Fault::new(format!("cannot leave the engine's files: {e}")))?;
    match verb {
        Verb::Run(args) => run::act(&setting()?, &all, &args),
        Verb::Create(args) => create::act(&setting()?, &all, &args),
        Verb::Start(id) => create::start(&all, &id.id),
        Verb::State(id) => manage::state(&all, &id.id),
        Verb::Exec(args) => exec::act(&all, &root, &args),
        Verb::StandIn(args) => exec::stand_in(&all, &args),
        Verb::Kill(args) => manage::kill(&all, &args),
        Verb::Delete(args) => manage::delete(&all, &args),
        Verb::List(args) => manage::list(&all, &args),
        Verb::Ps(args) => manage::ps(&all, &args),
        Verb::Pause(id) => manage::pause(&all, &id.id, true),
        Verb::Resume(id) => manage::pause(&all, &id.id, false),
        Verb::Update(args) => limits::update(&all, &args),
        Verb::Events(args) => events::events(&all, &args),
        Verb::Features => manage::features(),
        Verb::Version => manage::version(),
        Verb::Spec(args) => spec::act(&args),
        Verb::Keep(args) => keeper::act(&all, &Administrator::read(config)?, &args),
        Verb::Other(words) => Err(Fault::new(format!(
            "{}: this runtime has no such command; it has run, create, start, state, exec, kill, delete, list, ps, pause, resume, \
            update, events, features and spec",
            words.first().map_or("", String::as_str)
        ))),
    }
}

/// Engines of ordinary users (rootless) call the runtime as the superuser of a user namespace of theirs, which cannot write where the
/// computer's own does.
fn usual_root() -> PathBuf {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    match runtime {
        Some(folder) if !namespace::is_superuser() => folder.join(ROOT_OF_USER),
        _ => ROOT.into(),
    }
}

/// Writes an error where the engine looks for it. Nobody can be told if that fails.
fn note(log: &Path, as_json: bool, message: &str) {
    let time = record::now();
    let line = match as_json {
        true => serde_json::json!({"level": "error", "msg": message, "time": time}).to_string(),
        false => format!("time={time:?} level=error msg={message:?}"),
    };
    let file = OpenOptions::new().create(true).append(true).open(log);
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

impl From<ContainerError> for Fault {
    fn from(error: ContainerError) -> Fault {
        Fault::new(error.to_string())
    }
}

/// This command once more, with a verb of its own use, as what stands for a process of the container on the host.
fn again(root: &Path, config: Option<&Path>, verb: &str, console_socket: Option<&Path>) -> Result<Command> {
    let me = repository::executable()?;
    let mut command = Command::new(me);
    command.arg("oci").arg("--root").arg(root);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    command.arg(verb);
    if let Some(socket) = console_socket {
        command.arg("--console-socket").arg(socket);
        // Containers' shims read what this command prints until nobody has it open any more.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    }
    Ok(command)
}
