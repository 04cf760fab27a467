// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `create` and `start`: this side of the keeper.

use super::{
    choices::{self, Choices},
    keeper::Said,
};
use crate::{
    fault::{Fault, Result, file},
    kernel::Kernel,
    names,
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};
use unilith_container::{
    administrator::Administrator,
    bundle::Container,
    cgroup::{self, Hierarchies},
    hooks, mounted, namespace,
    record::{Containers, Record, Status},
    scope::Scope,
};
use unilith_machine::process::Process;
use unilith_overlay::socket::{bind_at, connect_at};

/// The keeper's socket in the container's folder, on which `start` is said.
pub const START: &str = "start.sock";
/// The socket of `create`, on which the keeper says how far it is.
pub const CREATE: &str = "create.sock";
/// How long a keeper may take to prepare. A kernel that must be built first takes minutes.
const PREPARATION: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(2);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The directory with config.json
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub bundle: PathBuf,
    /// Socket that gets the terminal of a container with `process.terminal`
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// File that gets the number of the container's process
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Descriptors to pass on: refused if there are any, a machine has none of the host's
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    preserve_fds: u32,
    /// Accepted for engines that give it: a machine's root is no directory of the host's tree
    #[arg(long, hide = true)]
    no_pivot: bool,
    /// Accepted for engines that give it: a machine has no keyring of the host's
    #[arg(long, hide = true)]
    no_new_keyring: bool,
    pub id: String,
}

/// Where containers are, and what is decided for them.
pub struct Setting<'a> {
    /// Where the records of containers are.
    pub root: &'a Path,
    /// The administrator's file, if the engine named one.
    pub config: Option<&'a Path>,
    pub administrator: Administrator,
    /// systemd makes the control group.
    pub has_scope: bool,
}

pub fn act(setting: &Setting<'_>, all: &Containers, args: &Args) -> Result<u8> {
    if args.preserve_fds > 0 {
        return Err(Fault::new("--preserve-fds: a machine has no descriptors of the host's"));
    }
    let mut container = Container::read(&args.bundle)?;
    let scope = setting.has_scope.then(|| container.take_scope(&args.id)).transpose()?;
    if container.terminal != args.console_socket.is_some() && !container.is_sandbox {
        let why =
            if container.terminal { "--console-socket is missing" } else { "process.terminal is false" };
        return Err(Fault::new(format!("{why}: a terminal is given over the console socket")));
    }
    let home = home(all, &container)?;
    let administrator = &setting.administrator;
    let mut kernel = None;
    if container.holds_machine() || !container.is_sandbox && home.is_none() {
        kernel = Some(Choices::of(&mut container, administrator)?.kernel()?);
    } else if home.is_some() {
        choices::check_member(&container, administrator)?;
    }
    let folder = all.reserve(&args.id)?;
    let kept = all.keep_description(&args.id, &args.bundle).map_err(Fault::from);
    let made = kept.and_then(|()| make(setting, all, args, &container, &folder, home, kernel, scope));
    if made.is_err() {
        // The first error is the one to report.
        let _ = all.remove(&args.id);
    }
    made.map(|()| 0)
}

/// The container whose machine this one joins: its pod's sandbox, or whoever has the network that it shares. `None`: it becomes a
/// machine of its own.
fn home(all: &Containers, container: &Container) -> Result<Option<String>> {
    if !container.joins() {
        return Ok(None);
    }
    let sandbox = container.sandbox().and_then(|id| all.find(id).ok());
    let shared = || container.network_of().and_then(|pid| all.of_process(pid));
    let Some(record) = sandbox.or_else(shared) else { return Ok(None) };
    let record = match &record.sandbox {
        Some(sandbox) => all.find(sandbox)?,
        None => record,
    };
    // One that another runtime made, or that was made for machines apart.
    if !record.holds_machine {
        return Ok(None);
    }
    match super::manage::status(&record) {
        Status::Running => Ok(Some(record.id)),
        other => {
            let (id, is) = (&record.id, other.word());
            Err(Fault::new(format!("the sandbox {id} of the container's pod is {is}")))
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "what a container is made of, each once")]
fn make(
    setting: &Setting<'_>,
    all: &Containers,
    args: &Args,
    container: &Container,
    folder: &Path,
    home: Option<String>,
    kernel: Option<Kernel>,
    scope: Option<Scope>,
) -> Result<()> {
    let socket = folder.join(CREATE);
    let listener = bind_at(&socket).map_err(file("make", &socket))?;
    let machine = match &home {
        Some(sandbox) => all.find(sandbox)?.machine().to_string(),
        None => names::id(),
    };
    let mut keeper = Keeper(Some(spawn(setting, args, home.as_deref(), &machine, kernel.as_ref())?));
    let pid = keeper.id();
    let mut groups = Vec::new();
    let before = mounted::below(&container.root)?;
    let mounts = || {
        let mut now = mounted::below(&container.root).unwrap_or_default();
        now.retain(|point| !before.contains(point));
        now
    };
    let result = (|| {
        let path = match &scope {
            Some(scope) => Some(scope.start(&args.id, pid, container.resources.as_ref())?),
            None => container.cgroup.clone(),
        };
        match &path {
            Some(path) => Hierarchies::of_host().join(path, pid, &mut groups)?,
            None => join_own(container, &args.id, &machine, pid, &mut groups)?,
        }
        if let Some(resources) = &container.resources {
            cgroup::limit(&groups, resources)?;
        }
        if let Some(score) = container.oom_score {
            let path = PathBuf::from(format!("/proc/{pid}/oom_score_adj"));
            fs::write(&path, score.to_string()).map_err(file("write", &path))?;
        }
        let mut line = keeper.meet(&listener)?;
        // It is in its namespaces.
        line.expect()?;
        let process = Process::find(pid).ok_or_else(|| Fault::new("the container's process has ended"))?;
        let mut record = Record::new(&args.id, container, pid, process.start, groups.clone());
        record.sandbox = home;
        record.machine = Some(machine);
        record.scope = scope.clone();
        run_hooks(container, &record)?;
        line.say("go")?;
        // Everything is ready for the program.
        line.expect()?;
        record.mounts = mounts();
        if let Some(path) = &args.pid_file {
            fs::write(path, pid.to_string()).map_err(file("write", path))?;
        }
        Ok(all.save(&record)?)
    })();
    match &result {
        Ok(()) => keeper.0 = None,
        Err(_) => {
            drop(keeper);
            mounted::unmount(&mounts());
            scope.iter().for_each(Scope::stop);
            let _ = cgroup::remove(&groups);
        }
    }
    result
}

/// A container that names no control group gets one of its name, as with runc: nothing else would hold its limits. Where another
/// engine's container has that, the machine's id tells them apart.
fn join_own(
    container: &Container,
    id: &str,
    machine: &str,
    pid: u32,
    groups: &mut Vec<PathBuf>,
) -> Result<()> {
    if !namespace::is_superuser() {
        return Ok(());
    }
    let hierarchies = Hierarchies::of_host();
    let mut path = Path::new("/").join(id);
    if hierarchies.has(&path) {
        path = Path::new("/").join(format!("{id}-{machine}"));
    }
    let joined = hierarchies.join(&path, pid, groups);
    match joined {
        // Where nobody may make one, only limits need it, and they say so.
        Err(_) if container.resources.is_none() => Ok(()),
        other => Ok(other?),
    }
}

/// Those that are to be run when the namespaces are there and the program is not.
fn run_hooks(container: &Container, record: &Record) -> Result<()> {
    let Some(hooks) = &container.hooks else { return Ok(()) };
    let state = record.state(Status::Created).to_string();
    // Deprecated, and what Docker's network is made by.
    #[allow(deprecated)]
    let prestart = hooks.prestart();
    for (point, list) in [("prestart", prestart), ("createRuntime", hooks.create_runtime())] {
        hooks::run(point, list.as_deref().unwrap_or_default(), &state, None)?;
    }
    Ok(())
}

fn spawn(
    setting: &Setting<'_>,
    args: &Args,
    home: Option<&str>,
    machine: &str,
    kernel: Option<&Kernel>,
) -> Result<Child> {
    let mut command = super::again(setting.root, setting.config, "__keep", args.console_socket.as_deref())?;
    if setting.has_scope {
        command.arg("--scope");
    }
    if let Some(sandbox) = home {
        command.arg("--pod").arg(sandbox);
    }
    if let Some(Kernel { boot, symbols }) = kernel {
        command.arg("--kernel").arg(boot).arg("--symbols").arg(symbols);
    }
    // Its standard streams are the container's: those the engine gave us. Its threads do little: glibc need not keep memory for each, nor
    // keep what the start took (mallopt(3)).
    command
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TRIM_THRESHOLD_", "65536")
        .args(["--machine", machine])
        .arg("--bundle")
        .arg(&args.bundle)
        .arg(&args.id)
        .spawn()
        .map_err(|e| Fault::new(format!("cannot start the container's process: {e}")))
}

/// The keeper until it is the engine's: ended if something fails.
pub struct Keeper(pub Option<Child>);

impl Keeper {
    pub fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Waits until it connects.
    pub fn meet(&mut self, listener: &UnixListener) -> Result<Line> {
        let failed = |e: std::io::Error| Fault::new(format!("cannot hear of the container's process: {e}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let until = Instant::now() + PREPARATION;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(failed)?;
                    stream.set_read_timeout(Some(PREPARATION)).map_err(failed)?;
                    return Ok(Line(BufReader::new(stream)));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(failed(e)),
            }
            let ended = self.0.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(Fault::new(format!("the container's process ended at once: {status}")));
            }
            if Instant::now() > until {
                return Err(Fault::new("the container's process says nothing"));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The conversation with the keeper: lines.
pub struct Line(BufReader<UnixStream>);

impl Line {
    fn say(&mut self, word: &str) -> Result<()> {
        let said = self.0.get_mut().write_all(format!("{word}\n").as_bytes());
        said.map_err(|e| Fault::new(format!("the container's process does not listen: {e}")))
    }

    /// Waits until it has done its next step.
    pub fn expect(&mut self) -> Result<()> {
        let mut text = String::new();
        let read = self.0.read_line(&mut text);
        match serde_json::from_str(&text) {
            Ok(Said::Done) => Ok(()),
            Ok(Said::Failed { code, message }) => Err(Fault { code, message }),
            Err(_) => {
                let why = read.err().map_or("it ended".into(), |e| e.to_string());
                Err(Fault::new(format!("the container's process did not come so far: {why}")))
            }
        }
    }
}

/// Says `start` to the keeper and waits until the program runs.
pub fn start(all: &Containers, id: &str) -> Result<u8> {
    let mut record = all.find(id)?;
    match super::manage::status(&record) {
        Status::Created => {}
        Status::Stopped => {
            return Err(Fault::new(format!("cannot start a container that has stopped: {id}")));
        }
        other => {
            return Err(Fault::new(format!("cannot start a container that is {}: {id}", other.word())));
        }
    }
    let socket = all.folder(id)?.join(START);
    let stream = connect_at(&socket).map_err(file("reach the container by", &socket))?;
    let mut line = Line(BufReader::new(stream));
    record.started = true;
    all.save(&record)?;
    line.say("start")?;
    line.expect()?;
    let container = all.description(id, &record.bundle)?;
    if let Some(list) = container.hooks.as_ref().and_then(|hooks| hooks.poststart().as_ref()) {
        // The program runs: a hook that fails is told, and does not end it (runtime.md, "Lifecycle").
        if let Err(error) = hooks::run("poststart", list, &record.state(Status::Running).to_string(), None) {
            eprintln!("unilith: {error}");
        }
    }
    Ok(0)
}
