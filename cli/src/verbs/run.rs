// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith run`: in the foreground this process is the machine's supervisor; with `-d` a detached copy of it is.

use crate::{
    backtrace,
    fault::{Fault, Result, file},
    names,
    prepare::{self, Flags},
    verbs::supervise::Report,
};
use clap::Parser;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};
use unilith_machine::{
    record::{Outcome, Ready},
    store::{Held, Store},
    supervisor::{self, Watcher},
};

/// How long `run -d` waits for a server to serve before it leaves it alone.
const READY_LIMIT: Duration = Duration::from_secs(10);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    pub machine: RunFlags,
    /// The program: an application of the catalogue, debian:PACKAGE, an ELF file, a directory, oci:FILE (none: the
    /// project here), and its arguments. As with docker every word behind the program is the program's.
    // One list: with two clap would look for its own flags between them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_names = ["PROGRAM", "ARGUMENTS"])]
    line: Vec<String>,
    #[arg(skip)]
    pub program: Option<String>,
    #[arg(skip)]
    pub words: Vec<String>,
}

#[derive(clap::Args, Clone, Debug)]
pub struct RunFlags {
    /// Run in the background and print the machine's id
    #[arg(short, long)]
    detach: bool,
    /// Remove the machine when it ends
    #[arg(long)]
    rm: bool,
    /// Name of the machine
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Pass this command's input to the program
    #[arg(short, long)]
    interactive: bool,
    /// Give the program a terminal
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    flags: Flags,
}

/// [`RunFlags`] alone, for flags that stand between the program and `--`.
#[derive(Parser, Debug)]
#[command(name = "unilith run", disable_help_flag = true)]
struct LateFlags {
    #[command(flatten)]
    flags: RunFlags,
}

impl Args {
    /// `run PROGRAM -p 80 -- ARGUMENTS`: flags may follow the program if `--` ends them. Without it every word behind the
    /// program is the program's, as with docker.
    ///
    /// `words` are those behind `run` on the command line; `line` is what remained of them behind the flags.
    fn sort_out_words(&mut self, words: &[String]) -> Result<()> {
        let early = &words[..words.len().saturating_sub(self.line.len())];
        let early = early.strip_suffix(&["--".to_string()]).unwrap_or(early);
        let mut line = std::mem::take(&mut self.line).into_iter();
        self.program = line.next();
        self.words = line.collect();
        if let Some(flag) = self.program.as_ref().filter(|p| p.starts_with('-')) {
            return Err(Fault {
                code: 2,
                message: format!("there is no flag {flag}; see unilith run --help"),
            });
        }
        if !self.words.first().is_some_and(|w| w.starts_with('-')) {
            return Ok(());
        }
        let Some(end) = self.words.iter().position(|w| w == "--") else {
            if LateFlags::try_parse_from(std::iter::once("run").chain(self.words.iter().map(String::as_str)))
                .is_ok()
            {
                eprintln!(
                    "unilith: `{}` goes to the program; for flags of unilith write them before it, or `--` after them",
                    self.words.join(" ")
                );
            }
            return Ok(());
        };
        let late: Vec<String> = self.words.drain(..=end).take(end).collect();
        // Read together with the flags before the program: clap's own update would set what is not repeated to its default.
        let words = std::iter::once("run".to_string()).chain(early.iter().cloned()).chain(late);
        let all = LateFlags::try_parse_from(words).map_err(|e| {
            let text = e.render().to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
            Fault { code: 2, message: line }
        })?;
        self.machine = all.flags;
        Ok(())
    }
}

pub fn act(store: &Store, mut args: Args) -> Result<u8> {
    // Behind the command's name and the verb, which has no flags before it.
    let words: Vec<String> = std::env::args().skip(2).collect();
    args.sort_out_words(&words)?;
    start(store, &args).map_err(Fault::of_run)
}

fn start(store: &Store, args: &Args) -> Result<u8> {
    let run = &args.machine;
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
    let mut spec = prepare::prepare(&run.flags, args.program.as_deref(), &args.words)?;
    spec.remove = run.rm;
    spec.tty = run.tty;
    let machine = match &run.name {
        Some(name) => store.create(unilith_machine::record::Spec { name: name.clone(), ..spec })?,
        None => create_with_free_name(store, spec)?,
    };
    if run.detach { detach(machine) } else { foreground(store, machine, run) }
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

fn foreground(store: &Store, mut machine: Held, run: &RunFlags) -> Result<u8> {
    // Without -i the program finds its input at its end, as with docker.
    let input: Box<dyn Read + Send> =
        if run.interactive { Box::new(io::stdin()) } else { Box::new(io::empty()) };
    let raw = (run.tty && run.interactive).then(RawTerminal::enter).flatten();
    let mut terminal = Terminal { raw: raw.is_some() };
    let result = supervisor::supervise(store, &mut machine, &crate::boot::files, Some(input), &mut terminal);
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
    fn console(&mut self, bytes: &[u8]) {
        let mut out = io::stdout();
        // Nobody reads it any more (`| head`): the program goes on, its log is complete.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn ready(&mut self, text: &str) {
        self.say(text);
    }

    fn log(&mut self, text: &str) {
        eprint!("{text}{}", self.line_end());
    }

    fn note(&mut self, text: &str) {
        self.say(text);
    }
}

/// The user's terminal, passing every key on, until this is dropped.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> Option<RawTerminal> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(RawTerminal { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // There is nothing left to do for a terminal that is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Starts the supervisor and waits for its first reports.
fn detach(machine: Held) -> Result<u8> {
    let spec = machine.spec.clone();
    let own_log = machine.folder.join("supervisor.log");
    let log = File::create(&own_log).map_err(file("write", &own_log))?;
    let lock = machine
        .lock()
        .try_clone()
        .map_err(|e| Fault::new(format!("cannot share the machine's lock: {e}")))?;
    let me =
        std::env::current_exe().map_err(|e| Fault::new(format!("cannot find my own executable: {e}")))?;
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
    let limit = Instant::now() + READY_LIMIT;
    let mut started = false;
    loop {
        match reports.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(Report::Note(text)) => eprintln!("unilith: {text}"),
            Ok(Report::Started) => {
                started = true;
                if !serves {
                    break;
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
                break;
            }
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
    println!("{}", spec.id);
    if io::stdout().is_terminal() {
        eprintln!("unilith: it is called {0}; `unilith stop {0}` ends it", spec.name);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Args {
        let mut args = Cli::try_parse_from(std::iter::once(&"run").chain(words)).unwrap().args;
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        args.sort_out_words(&words).unwrap();
        args
    }

    #[test]
    fn words_behind_the_program_are_the_programs() {
        let args = parse(&["-d", "busybox", "ls", "-l", "--", "-d"]);
        assert!(args.machine.detach);
        assert_eq!(args.words, ["ls", "-l", "--", "-d"]);
    }

    #[test]
    fn flags_may_follow_the_program_when_a_double_dash_ends_them() {
        let args = parse(&[
            "-e",
            "A=b",
            "debian:memcached",
            "-p",
            "11211",
            "-m",
            "32M",
            "--",
            "memcached",
            "-m",
            "64",
        ]);
        assert_eq!(args.words, ["memcached", "-m", "64"]);
        assert_eq!(args.machine.flags.publish, ["11211"]);
        assert_eq!(args.machine.flags.memory, Some(unilith_image::Size(32 << 20)));
        assert_eq!(args.machine.flags.env, ["A=b"]);
    }

    #[test]
    fn a_double_dash_right_behind_the_program_is_not_an_argument() {
        let args = parse(&["-d", "-p", "1:2", "redis", "--", "--port", "1"]);
        assert_eq!(args.words, ["--port", "1"]);
        assert!(args.machine.detach, "the flags before the program hold");
        assert_eq!(args.machine.flags.publish, ["1:2"]);
    }
}
