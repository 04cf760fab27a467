// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith run`: in the foreground this process is the machine's supervisor; with `-d` a detached copy of it is.

use crate::output::say;
use crate::{
    backtrace, detach,
    fault::{Fault, Result, file},
    line::{Line, Program},
    names,
    prepare::{self, Flags},
    repository,
    verbs::supervise::Report,
};
use api_boot::Stream;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};
use unilith_image::Size;
use unilith_machine::{
    console_log::LogLimits,
    output::Sinks,
    record::{Outcome, Ready, Restart, Spec},
    store::{Held, Store},
    supervisor::{self, Watcher},
};

/// How long `run -d` waits for a server to serve before it leaves it alone.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// How long `run -d` looks whether a program that serves nothing ends at once.
const SOON: Duration = Duration::from_millis(250);
/// Lines that are shown of a program that ended at once.
const LAST_LINES: usize = 5;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    pub machine: RunFlags,
    #[command(flatten)]
    line: Line,
}

#[derive(clap::Args, Clone, Debug)]
pub struct RunFlags {
    /// Run in the background and print the machine's id
    #[arg(short, long)]
    detach: bool,
    /// The keys that leave a program on a terminal (-it) running in the background: characters or ctrl-LETTER, with commas
    #[arg(long, value_name = "KEYS", default_value = detach::DEFAULT)]
    detach_keys: detach::Keys,
    /// Remove the machine when it ends
    #[arg(long)]
    rm: bool,
    /// Write the machine's id to a file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    cidfile: Option<PathBuf>,
    /// Name of the machine
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Pass this command's input to the program
    #[arg(short, long)]
    interactive: bool,
    /// How much of the output is kept: max-size=20m (of one file), max-file=5 (files); may repeat
    #[arg(long, value_name = "KEY=VALUE")]
    log_opt: Vec<String>,
    /// Give the program a terminal
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    pub flags: Flags,
}

pub fn act(store: &Store, mut args: Args) -> Result<u8> {
    let program = args.line.program("run", &mut args.machine)?;
    let run = &args.machine;
    if run.interactive && run.tty && !run.detach && io::stdin().is_terminal() && detach::is_first() {
        return detach::wait_for_child().map_err(Fault::of_run);
    }
    start(store, &args.machine, &program, |_| {}).map_err(Fault::of_run)
}

/// Starts a machine, with what `change` does to its description; in the foreground its program's exit code is answered.
pub fn start(store: &Store, run: &RunFlags, program: &Program, change: impl FnOnce(&mut Spec)) -> Result<u8> {
    let machine = make(store, run, program, change)?;
    if run.detach {
        let id = machine.spec.id.clone();
        detach(machine, Some(&id))
    } else {
        foreground(machine, run)
    }
}

/// A machine that is ready to be started, with what `change` does to its description.
pub fn make(
    store: &Store,
    run: &RunFlags,
    program: &Program,
    change: impl FnOnce(&mut Spec),
) -> Result<Held> {
    if let Some(name) = run.name.as_deref().filter(|n| !names::is_valid(n)) {
        return Err(Fault::new(format!(
            "--name {name}: a name begins with a letter or digit and has letters, digits, _ . - only"
        )));
    }
    if let Some(name) = &run.name
        && let Some(other) = store.list()?.into_iter().find(|m| m.spec.name == *name)
    {
        // Asked again when the machine is made; here it saves the user a long build.
        let phase = other.state.phase.word();
        return Err(unilith_machine::MachineError::NameInUse(name.clone(), other.spec.id, phase).into());
    }
    let limits = log_limits(&run.log_opt)?;
    let mut spec = prepare::prepare(&run.flags, program)?;
    if run.flags.hostname.is_none() {
        // docker's; a name of the program's would hide another machine of this name in its networks.
        spec.hostname.clone_from(&spec.id);
    }
    spec.remove = run.rm;
    spec.tty = run.tty;
    // Without -i nobody types; a terminal is at its end then.
    spec.null_input = !run.interactive && !run.tty;
    spec.log_limits = limits;
    if run.tty && !spec.env.iter().any(|(key, _)| key == "TERM") {
        // docker's.
        spec.env.push(("TERM".into(), "xterm".into()));
    }
    if spec.restart != Restart::No && (run.rm || !run.detach) {
        let why = if run.rm { "--rm removes what it would start again" } else { "it needs -d" };
        return Err(Fault { code: 2, message: format!("--restart: {why}") });
    }
    super::system::keep_budget(store)?;
    change(&mut spec);
    unilith_machine::events::begin(store.shared());
    let mut noted = run.cidfile.as_deref().map(make_anew).transpose()?;
    let volumes = super::volume::make_anonymous(&mut spec)?;
    let made = match &run.name {
        Some(name) => store.create(Spec { name: name.clone(), ..spec })?,
        None => create_with_free_name(store, spec)?,
    };
    volumes.keep();
    if let (Some(note), Some(path)) = (&mut noted, &run.cidfile) {
        note.write_all(made.spec.id.as_bytes()).map_err(file("write", path))?;
    }
    Ok(made)
}

/// The file of `--cidfile`. One that is there belongs to another machine, as with docker.
fn make_anew(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Fault::new(format!("--cidfile {}: it is there already; remove it first", path.display()))
        }
        _ => file("write", path)(e),
    })
}

/// Reads `--log-opt`, whose names are docker's.
fn log_limits(options: &[String]) -> Result<LogLimits> {
    let mut limits = LogLimits::default();
    for option in options {
        let wrong = |why: &str| Fault::new(format!("--log-opt {option}: {why}"));
        match option.split_once('=') {
            Some(("max-size", size)) => {
                let size: Size = size.parse().map_err(|e: String| wrong(&e))?;
                if size.0 < 1 << 10 {
                    return Err(wrong("a file has at least 1k"));
                }
                limits.size = size.0;
            }
            Some(("max-file", count)) => {
                let most = LogLimits::MAX_FILES;
                let count = count.parse().ok().filter(|n| (1..=most).contains(n));
                limits.files = count.ok_or_else(|| wrong(&format!("it is a number from 1 to {most}")))?;
            }
            _ => return Err(wrong("write max-size=SIZE or max-file=NUMBER")),
        }
    }
    Ok(limits)
}

/// Generated names may meet; then another is tried.
fn create_with_free_name(store: &Store, mut spec: unilith_machine::record::Spec) -> Result<Held> {
    loop {
        match store.create(spec.clone()) {
            Err(unilith_machine::MachineError::NameInUse(..)) => spec.name = names::name(),
            other => return Ok(other?),
        }
    }
}

fn foreground(mut machine: Held, run: &RunFlags) -> Result<u8> {
    crate::health::watch(&machine.store(), &machine);
    // Without -i the program finds its input at its end, as with docker.
    let raw = (run.tty && run.interactive).then(crate::terminal::Raw::enter).flatten();
    let input: Box<dyn Read + Send> = match &raw {
        Some(raw) => {
            let (undo, log) = (Box::new(raw.undo()), machine.folder.join("supervisor.log"));
            let leave = detach::Leave { undo, name: machine.spec.name.clone(), log };
            Box::new(detach::Typed::new(io::stdin(), run.detach_keys.clone(), leave))
        }
        None if run.interactive => Box::new(io::stdin()),
        None => Box::new(io::empty()),
    };
    let mut terminal = Terminal { raw: raw.is_some() };
    let result = supervisor::supervise(&mut machine, &crate::boot::files, Some(input), &mut terminal);
    drop(raw);
    if let Ok(outcome) = &result {
        backtrace::explain(&machine, outcome).iter().for_each(|line| eprintln!("{line}"));
    }
    if machine.spec.remove {
        machine.remove()?;
    }
    let outcome = result?;
    if let Some(reason) = outcome.reason {
        eprintln!("unilith: {reason}");
    }
    Ok(outcome.code)
}

/// What happens to a machine in the foreground, for the user's eyes.
struct Terminal {
    raw: bool,
}

impl Terminal {
    fn say(&self, text: &str) {
        eprint!("unilith: {text}{}", self.line_end());
    }

    /// A raw terminal does not return the carriage by itself.
    fn line_end(&self) -> &'static str {
        if self.raw { "\r\n" } else { "\n" }
    }
}

impl Watcher for Terminal {
    fn sinks(&mut self) -> Sinks {
        let mut out = io::stdout();
        let line_end = self.line_end();
        Sinks {
            // Nobody reads it any more (`| head`): the program goes on, its log is complete.
            console: Box::new(move |stream, bytes| {
                if !detach::is_detached() {
                    let _ = match stream {
                        Stream::Output => out.write_all(bytes).and_then(|()| out.flush()),
                        Stream::Error => io::stderr().write_all(bytes),
                    };
                }
            }),
            log: Box::new(move |text| drop(write!(io::stderr(), "{text}{line_end}"))),
        }
    }

    fn ready(&mut self, text: &str) {
        self.say(text);
    }

    fn note(&mut self, text: &str) {
        self.say(text);
    }
}

/// Says that a program ended before anybody could use it, with what it printed last.
fn say_ended(folder: &Path, spec: &Spec, code: u8) {
    // A machine that removes itself has left nothing to read.
    let Ok(printed) = std::fs::read(folder.join("console.log")) else {
        eprintln!("unilith: {} has ended already, with exit code {code}", spec.label);
        return;
    };
    let text = String::from_utf8_lossy(&printed);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    let what = if last.is_empty() { "and printed nothing" } else { "its last lines:" };
    eprintln!("unilith: {} has ended already, with exit code {code}, {what}", spec.label);
    for line in last {
        // What a program prints never reaches the terminal raw here.
        eprintln!("  {}", line.chars().filter(|c| !c.is_control()).collect::<String>());
    }
}

/// Starts the supervisor and waits for its first reports; prints `shown`, if anything, when the machine is there.
pub fn detach(machine: Held, shown: Option<&str>) -> Result<u8> {
    let (spec, folder) = (machine.spec.clone(), machine.folder.clone());
    let own_log = machine.folder.join("supervisor.log");
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&own_log);
    let log = log.map_err(file("write", &own_log))?;
    let lock = machine
        .lock()
        .try_clone()
        .map_err(|e| Fault::new(format!("cannot share the machine's lock: {e}")))?;
    let me = repository::executable()?;
    // The lock is its standard input: the same open file, so the machine is never without a holder.
    let mut child = Command::new(me)
        .args(["__supervise", &spec.id])
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|e| Fault::new(format!("cannot start the supervisor: {e}")))?;
    drop(machine);
    let (send, reports) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(io::Result::ok) {
                if let Ok(report) = serde_json::from_str::<Report>(&line)
                    && send.send(report).is_err()
                {
                    return;
                }
            }
        });
    }
    let serves = !spec.publish.is_empty()
        || !spec.offer.is_empty()
        || matches!(spec.ready, Ready::Listening(_) | Ready::Prints(_));
    let mut limit = Instant::now() + READY_LIMIT;
    let mut started = false;
    loop {
        match reports.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(Report::Note(text)) => eprintln!("unilith: {text}"),
            Ok(Report::Started) => {
                started = true;
                if !serves {
                    // Most mistakes end a program at once.
                    limit = Instant::now() + SOON;
                }
            }
            Ok(Report::Ready(text)) => {
                eprintln!("unilith: {text}");
                break;
            }
            Ok(Report::Ended(Outcome { code, reason })) => {
                if let Some(reason) = &reason {
                    eprintln!("unilith: {reason}");
                }
                if !started && code == Outcome::FAILED {
                    return Ok(code);
                }
                say_ended(&folder, &spec, code);
                break;
            }
            Err(RecvTimeoutError::Timeout) if !serves && started => break,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!(
                    "unilith: {} runs but does not serve yet; `unilith logs {}` shows what it prints",
                    spec.label, spec.name
                );
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::new(format!(
                    "the supervisor ended without a word; see {}",
                    own_log.display()
                )));
            }
        }
    }
    let Some(shown) = shown else { return Ok(0) };
    say!("{shown}");
    if io::stdout().is_terminal() {
        eprintln!("unilith: it is called {0}; `unilith stop {0}` ends it", spec.name);
    }
    Ok(0)
}
