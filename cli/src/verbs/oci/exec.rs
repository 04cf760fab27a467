// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `exec`: a further process in a container. For engines it is a process of the host as well, which stands for the one in the
//! machine: it has its streams and ends with its code.

use super::{
    create::Keeper,
    keeper::{Said, has_input, say},
    manage,
};
use crate::{
    fault::{Fault, Result, file},
    terminal::{cells, set_size, size_of, watch_size},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::Duration,
};
use unilith_container::{
    beneath::Root,
    bundle::{Capabilities, complete},
    fields::{self, Part},
    record::{Containers, Record, Status},
    terminal,
};
use unilith_overlay::{
    Client, Event, Exit, Input, Privileges, Program, Running,
    socket::{bind_at, connect_at},
};

/// The exit code of a process whose machine ended first, as one that was killed.
pub const ENDED_WITH_MACHINE: u8 = 137;
/// How often a paused container is looked at.
const POLL: Duration = Duration::from_millis(50);
/// Longest description of a process.
const MAX_PROCESS: u64 = 1 << 20;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The process as JSON (`process` of config.json)
    #[arg(short, long, value_name = "FILE")]
    process: Option<PathBuf>,
    /// Socket that gets the terminal of a process with one
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// Do not wait for its end
    #[arg(short, long)]
    detach: bool,
    /// File that gets the number of the host's process that stands for it
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Give it a terminal
    #[arg(short, long)]
    tty: bool,
    /// Its working directory
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set an environment variable; may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// The user it runs as
    #[arg(short, long, value_name = "UID[:GID]")]
    user: Option<String>,
    /// A further group of the user; may repeat
    #[arg(short = 'g', long, value_name = "GID")]
    additional_gids: Vec<u32>,
    /// The control group within the container's: there is one, /
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<String>,
    /// Descriptors to pass on: refused if there are any, a machine has none of the host's
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    preserve_fds: u32,
    /// Wait for a paused container to go on
    #[arg(long)]
    ignore_paused: bool,
    /// Accepted for engines that give it: no process of a machine becomes an orphan of the host's
    #[arg(long, hide = true)]
    no_subreaper: bool,
    id: String,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// The hidden half: what stands for the process.
#[derive(clap::Args, Clone, Debug)]
pub struct StandIn {
    #[arg(long)]
    number: u32,
    #[arg(long)]
    console_socket: Option<PathBuf>,
    id: String,
}

/// What runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Process {
    arguments: Vec<String>,
    environment: Vec<String>,
    working: String,
    user: String,
    terminal: bool,
    /// Columns and rows of its terminal, where it names them.
    #[serde(default)]
    size: Option<(u64, u64)>,
    /// The sets of capabilities, and whether there are new privileges for it; `None`: as in the container.
    #[serde(default)]
    privileges: Option<([u64; 5], bool)>,
}

impl Args {
    /// The user in the notation of a machine's commands.
    fn user(&self) -> String {
        let user = self.user.clone().unwrap_or_default();
        if self.additional_gids.is_empty() {
            return user;
        }
        let gids: Vec<String> = self.additional_gids.iter().map(u32::to_string).collect();
        let (user, group) = user.split_once(':').unwrap_or((&user, ""));
        let or_none = |id: &str| if id.is_empty() { "0".to_string() } else { id.to_string() };
        format!("{}:{}:{}", or_none(user), or_none(group), gids.join(","))
    }

    /// Refuses what a process of a machine cannot have.
    fn check(&self) -> Result<()> {
        if self.preserve_fds > 0 {
            return Err(Fault::new("--preserve-fds: a machine has no descriptors of the host's"));
        }
        match self.cgroup.iter().find(|path| path.as_str() != "/") {
            Some(path) => Err(Fault::new(format!("--cgroup {path}: a container has one control group, /"))),
            None => Ok(()),
        }
    }

    fn read(&self) -> Result<Process> {
        let Some(path) = &self.process else {
            if self.command.is_empty() {
                return Err(Fault::new("name a program, or a file with --process"));
            }
            return Ok(Process {
                arguments: self.command.clone(),
                environment: self.env.clone(),
                working: self.cwd.as_ref().map_or(String::new(), |path| path.display().to_string()),
                user: self.user(),
                terminal: self.tty,
                ..Process::default()
            });
        };
        let length = fs::metadata(path).map_err(file("read", path))?.len();
        if length > MAX_PROCESS {
            return Err(Fault::new(format!("{}: {length} bytes are no process", path.display())));
        }
        let text = fs::read(path).map_err(file("read", path))?;
        let wrong = |e: serde_json::Error| Fault::new(format!("{}: {e}", path.display()));
        let mut process: serde_json::Value = serde_json::from_slice(&text).map_err(wrong)?;
        complete(&mut process);
        let name = |why: String| Fault::new(format!("{}: {why}", path.display()));
        fields::check(Part::Exec, &process).map_err(name)?;
        let process: unilith_container::Process = serde_json::from_value(process).map_err(wrong)?;
        let arguments = process.args().clone().filter(|a| !a.is_empty());
        let privileges = |all| (Capabilities::of(all).sets(), process.no_new_privileges().unwrap_or(false));
        Ok(Process {
            arguments: arguments
                .ok_or_else(|| Fault::new(format!("{}: args names no program", path.display())))?,
            environment: process.env().clone().unwrap_or_default(),
            working: process.cwd().display().to_string(),
            user: user(process.user()),
            size: process.console_size().map(|size| (size.width(), size.height())),
            terminal: process.terminal().unwrap_or(false) || self.tty,
            privileges: process.capabilities().as_ref().map(privileges),
        })
    }
}

/// In the notation of a machine's commands.
fn user(user: &unilith_container::User) -> String {
    let gids: Vec<String> = user.additional_gids().iter().flatten().map(u32::to_string).collect();
    let further = if gids.is_empty() { String::new() } else { format!(":{}", gids.join(",")) };
    format!("{}:{}{further}", user.uid(), user.gid())
}

/// The exit code when not the process but this command failed: a process ends with others.
const FAILED: u8 = 255;

pub fn act(all: &Containers, root: &Path, args: &Args) -> Result<u8> {
    execute(all, root, args).map_err(|fault| Fault { code: FAILED, ..fault })
}

fn execute(all: &Containers, root: &Path, args: &Args) -> Result<u8> {
    args.check()?;
    let record = all.find(&args.id)?;
    let mut status = manage::status(&record);
    while status == Status::Paused && args.ignore_paused {
        thread::sleep(POLL);
        status = manage::status(&record);
    }
    if status == Status::Paused {
        return Err(Fault::new(format!(
            "cannot exec in a paused container: {}; --ignore-paused waits for it to go on",
            record.id
        )));
    }
    let is_holder = record.is_sandbox && !record.holds_machine;
    if status != Status::Running || is_holder {
        let what = if is_holder { "holds a pod's namespaces only" } else { status.word() };
        return Err(Fault::new(format!("cannot exec in container {}: it is {what}", record.id)));
    }
    let process = args.read()?;
    let working = if process.working.is_empty() { Path::new("/") } else { Path::new(&process.working) };
    // Said before anything is started, with the words that engines know.
    let container = all.description(&record.id, &record.bundle)?;
    let names_path = process.environment.iter().any(|entry| entry.starts_with("PATH="));
    let environment = if names_path { &process.environment } else { &container.env };
    let files = Root::open(&record.root)?;
    files.find_program(&container.binds, &process.arguments[0], environment, working)?;
    if !args.detach && args.console_socket.is_none() {
        // This process stands for the one in the machine.
        let written =
            |path: &PathBuf| fs::write(path, std::process::id().to_string()).map_err(file("write", path));
        args.pid_file.as_ref().map(written).transpose()?;
        return run(&record, &process, None, || Ok(()));
    }
    let folder = all.folder(&args.id)?;
    let number = std::process::id();
    let (description, socket) = (description(&folder, number), socket(&folder, number));
    let text = serde_json::to_vec(&process).map_err(|e| Fault::new(e.to_string()))?;
    fs::write(&description, text).map_err(file("write", &description))?;
    let started = bind_at(&socket).map_err(file("make", &socket)).and_then(|listener| {
        let mut child = Keeper(Some(spawn(root, args, number)?));
        let mut line = child.meet(&listener)?;
        line.expect()?;
        if let Some(path) = &args.pid_file {
            fs::write(path, child.id().to_string()).map_err(file("write", path))?;
        }
        Ok(child.0.take())
    });
    // Both were needed for the start only.
    let _ = (fs::remove_file(&description), fs::remove_file(&socket));
    let child = started?;
    match child {
        Some(mut child) if !args.detach => {
            let status = child.wait().map_err(|e| Fault::new(format!("cannot wait for the process: {e}")))?;
            Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ENDED_WITH_MACHINE))
        }
        _ => Ok(0),
    }
}

fn description(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("exec-{number}.json"))
}

fn socket(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("exec-{number}.sock"))
}

fn spawn(root: &Path, args: &Args, number: u32) -> Result<Child> {
    let mut command = super::again(root, None, "__exec", args.console_socket.as_deref())?;
    command.args(["--number", &number.to_string()]);
    command.arg(&args.id).spawn().map_err(|e| Fault::new(format!("cannot start a process: {e}")))
}

/// What stands for the process on the host.
pub fn stand_in(all: &Containers, args: &StandIn) -> Result<u8> {
    rustix::process::setsid().map_err(|e| Fault::new(format!("cannot leave the session: {e}")))?;
    let folder = all.folder(&args.id)?;
    let path = socket(&folder, args.number);
    let mut starter = connect_at(&path).map_err(file("reach", &path))?;
    let mut told = false;
    let result = (|| {
        let record = all.find(&args.id)?;
        let path = description(&folder, args.number);
        let text = fs::read(&path).map_err(file("read", &path))?;
        let process: Process = serde_json::from_slice(&text).map_err(|e| Fault::new(e.to_string()))?;
        let terminal = args.console_socket.as_deref().map(terminal::give).transpose()?;
        if let Some(terminal) = &terminal {
            // The engine's resizing reaches this process, and its hanging up ends it.
            let controlling = rustix::process::ioctl_tiocsctty(terminal);
            controlling.map_err(|e| Fault::new(format!("the terminal: {e}")))?;
        }
        run(&record, &process, terminal, || {
            told = true;
            say(&mut starter, &Said::Done);
            Ok(())
        })
    })();
    match result {
        Err(fault) if !told => {
            say(&mut starter, &Said::Failed { code: fault.code, message: fault.message });
            Ok(1)
        }
        result => result,
    }
}

/// Runs the process in the machine with the streams of this one, or with a terminal, to its end.
fn run(
    record: &Record,
    process: &Process,
    terminal: Option<File>,
    started: impl FnOnce() -> Result<()>,
) -> Result<u8> {
    let machine =
        manage::machine(record).ok_or_else(|| Fault::new(format!("container not running: {}", record.id)))?;
    let client = Client::connect(&machine.folder)?;
    if let (Some(terminal), Some(size)) = (&terminal, process.size) {
        set_size(terminal, cells(size))?;
    }
    let size = match &terminal {
        Some(terminal) => Some(size_of(terminal)),
        None => process.terminal.then(crate::terminal::size),
    };
    let bytes = |list: &'_ [String]| list.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let (arguments, environment) = (bytes(&process.arguments), bytes(&process.environment));
    let running = client.program(&Program {
        terminal: size,
        input: has_input(size.is_some()),
        detached: false,
        user: process.user.as_bytes(),
        working: process.working.as_bytes(),
        arguments: arguments.iter().map(Vec::as_slice).collect(),
        environment: environment.iter().map(Vec::as_slice).collect(),
        container: record.sandbox.as_ref().map_or(b"", |_| record.id.as_bytes()),
        privileges: process
            .privileges
            .map(|(capabilities, no_new_privileges)| Privileges { no_new_privileges, capabilities }),
    })?;
    if client.tells_starts() {
        await_start(&running, &process.arguments[0], &process.working)?;
    }
    started()?;
    let failed = |e: io::Error| Fault::new(format!("the terminal: {e}"));
    let out = match terminal {
        Some(terminal) => {
            let (input, sized) =
                (terminal.try_clone().map_err(failed)?, terminal.try_clone().map_err(failed)?);
            watch_size(running.input(), move || size_of(&sized))?;
            feed(input, running.input());
            Out::terminal(terminal)
        }
        None => {
            let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
            feed(File::from(input), running.input());
            Out::streams(io::stdout())
        }
    };
    Ok(copy(&running, out, &process.arguments[0]).map_or(ENDED_WITH_MACHINE, |exit| exit.code))
}

/// The number of the program in its machine, once it runs. Why it does not is said with runc's words, which engines read.
pub fn await_start(running: &Running, name: &str, working: &str) -> Result<u32> {
    let mut why = None;
    loop {
        match running.next() {
            Event::Started(pid) => return Ok(pid),
            Event::Failure(failure) => why = Some(failure),
            Event::Exit(exit) => {
                let code = exit.code.max(1);
                let Some(why) = why else {
                    return Err(Fault { code, message: format!("{name}: it did not start") });
                };
                let in_words = match why.errno {
                    Some("ENOENT") => "no such file or directory",
                    Some("ENOTDIR") => "not a directory",
                    Some("EACCES") => "permission denied",
                    _ => why.text.as_str(),
                };
                let message = match why.subject.as_str() {
                    "" if why.errno == Some("EACCES") => format!("exec: \"{name}\": {in_words}"),
                    "" => format!("{name}: {}", why.text),
                    subject if subject == working => {
                        format!("chdir to cwd (\"{working}\") set in config.json failed: {in_words}")
                    }
                    subject => format!("{name}: {subject}: {}", why.text),
                };
                return Err(Fault { code, message });
            }
            Event::Lost(why) => {
                let message = format!("the container's machine ended: {why}");
                return Err(Fault { code: ENDED_WITH_MACHINE, message });
            }
            Event::Out(_) | Event::Err(_) => {}
        }
    }
}

/// Where a program's output goes.
pub struct Out {
    out: Box<dyn Write>,
    /// `None`: where its other output goes.
    err: Option<Box<dyn Write>>,
}

impl Out {
    pub fn terminal(terminal: File) -> Out {
        Out { out: Box::new(terminal), err: None }
    }

    /// With this process' standard error.
    pub fn streams(out: impl Write + 'static) -> Out {
        Out { out: Box::new(out), err: Some(Box::new(io::stderr())) }
    }
}

/// Copies what a program prints, to its end; `None` when its machine ended first.
pub fn copy(running: &Running, to: Out, name: &str) -> Option<Exit> {
    let Out { mut out, mut err } = to;
    loop {
        match running.next() {
            // Whoever does not read any more does not want it.
            Event::Out(bytes) => drop(out.write_all(&bytes).and_then(|()| out.flush())),
            Event::Err(bytes) => drop(err.as_mut().unwrap_or(&mut out).write_all(&bytes)),
            Event::Failure(failure) => {
                let _ = writeln!(err.as_mut().unwrap_or(&mut out), "unilith: {name}: {}", failure.text);
            }
            Event::Started(_) => {}
            Event::Exit(exit) => return Some(exit),
            Event::Lost(_) => return None,
        }
    }
}

/// Passes input on from a thread of its own, to its end or the program's.
pub fn feed(mut from: impl Read + Send + 'static, to: Input) {
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        loop {
            match from.read(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(length) if length > 0 => {
                    if !to.write(&buffer[..length]).unwrap_or(false) {
                        return;
                    }
                }
                _ => {
                    // The program may have ended already.
                    let _ = to.end();
                    return;
                }
            }
        }
    });
}
