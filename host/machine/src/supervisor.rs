// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine from start to end: its process, its console, its status lines, its signals.
//!
//! Threads turn everything that can happen into one stream of [`Message`]s; [`supervise`] is the loop that reads it. The
//! machine is started by the thread that runs the loop, because the kernel's parent-death signal is bound to that thread.

use crate::{
    MachineError,
    engine::{self, Handle},
    link::Link,
    process::Process,
    qemu,
    record::{Connection, Helper, Listening, Module, Outcome, Phase, Ready, Spec, now_ms},
    store::{Held, Store},
};
use api_boot::{BootConfig, Status, Volume};
use rustix::process::WaitIdStatus;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};
use unilith_network::ports::Protocol;

/// How long the program has to end itself after the machine was asked to stop. A second request ends it at once.
pub const GRACE: Duration = Duration::from_secs(10);
/// A machine that has said nothing for so long is not busy with its start any more.
const QUIET: Duration = Duration::from_millis(50);
/// Files a program may have mapped to be executed and be debugged with.
const MOST_MODULES: usize = 512;
/// Bytes of the process' own messages that are kept.
const MOST_MESSAGES: u64 = 64 << 10;

/// What the one who runs the machine gets to see. Called from the supervising thread.
pub trait Watcher {
    /// Bytes the program or the kernel printed.
    fn console(&mut self, bytes: &[u8]);
    /// The program runs.
    fn started(&mut self) {}
    /// The program serves; how long that took and how to reach it.
    fn ready(&mut self, text: &str);
    /// A line of the kernel's log.
    fn log(&mut self, text: &str);
    /// Something the user should know, one line.
    fn note(&mut self, text: &str);
}

/// What depends on the kernel: made when the machine's connection is known.
pub struct BootFiles {
    /// The initial RAM disk. One that is made for this machine alone goes into [`Held::initrd`].
    pub initrd: PathBuf,
    /// The kernel's command line.
    pub append: String,
}

/// Makes the [`BootFiles`]; the error is one line.
pub type Boot<'a> = &'a dyn Fn(&Held, &BootConfig) -> Result<BootFiles, String>;

/// What can happen to a machine.
enum Message {
    Console(Vec<u8>),
    /// A line, and when it came: what is done with others may take longer than the machine's start.
    Status(String, Instant),
    /// The process' own messages, all of them.
    Complaint(String),
    Signal(i32),
    /// How the process ended, where that is known.
    Ended(Option<WaitIdStatus>),
}

/// Runs the machine to its end, records how it did, and returns the outcome. `input` is copied to the machine's console.
pub fn supervise(
    store: &Store,
    machine: &mut Held,
    boot: Boot,
    input: Option<Box<dyn Read + Send>>,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, MachineError> {
    machine.adopt()?;
    let result = Supervision::start(store, machine, boot, input).and_then(|mut s| s.run(machine, watcher));
    let outcome = match &result {
        Ok(outcome) => outcome.clone(),
        Err(error) => Outcome::failed(error.to_string()),
    };
    machine.tear_down_network(store);
    machine.finish(outcome)?;
    result
}

struct Supervision {
    messages: Receiver<Message>,
    handle: Handle,
    link: Link,
    log: File,
    begin: Instant,
    /// The last words of the machine about itself.
    last: Option<Outcome>,
    complaint: String,
    /// The end of the console output so far that may hold the text that says the program is ready.
    tail: String,
    /// The signal that asked for the end, and when patience runs out.
    stopping: Option<(i32, Instant)>,
    killed: bool,
    /// The state has changed in a way that can wait for a quiet moment.
    unsaved: bool,
    /// Input goes to the machine when it has said something: a kernel that sets up its console loses what came before.
    awaiting: Option<Sender<()>>,
}

impl Supervision {
    fn start(
        store: &Store,
        machine: &mut Held,
        boot: Boot,
        input: Option<Box<dyn Read + Send>>,
    ) -> Result<Supervision, MachineError> {
        let path = machine.console_log();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(MachineError::file("cannot write", &path))?;
        let link = Link::set_up(&machine.spec, store.shared())?;
        machine.state.connection = Some(link.connection.clone());
        machine.state.published = link.published.clone();
        machine.state.phase = Phase::Starting;
        machine.state.started_ms = Some(now_ms());
        // Written before the machine starts: whoever cleans up after us must know what there is.
        machine.save()?;

        let config = boot_config(&machine.spec, &link.connection);
        let files = boot(machine, &config).map_err(MachineError::Boot)?;
        let (send, messages) = channel();
        // Before the machine, so that no signal finds the default action.
        watch_signals(send.clone())?;
        let begin = Instant::now();
        let overlay = Overlay::set_up(machine)?;
        let line = overlay.as_ref().map(Overlay::for_machine);
        let engine = engine::start(&machine.spec, files, &link, line)?;
        if let Some(overlay) = overlay {
            overlay.serve()?;
        }
        machine.state.process = Process::find(engine.pid);
        machine.state.isolation = engine.isolation;
        machine.save()?;

        let console = engine.console;
        let mut awaiting = None;
        if let Some(input) = input {
            let writer = console
                .try_clone()
                .map_err(|e| MachineError::Process(format!("cannot share the console: {e}")))?;
            let hang_up = machine.spec.platform.is_process();
            let (begin, begun) = channel();
            awaiting = Some(begin);
            thread::spawn(move || {
                // A machine that ends before it says anything reads nothing.
                if begun.recv().is_ok() {
                    feed(input, writer, hang_up);
                }
            });
        }
        let waiter = engine.handle.waiter();
        let waiter = waiter.map_err(|e| MachineError::Process(format!("cannot be watched: {e}")))?;
        watch_output(send, engine.messages, waiter, console, engine.status);
        let mut supervision = Supervision {
            messages,
            handle: engine.handle,
            link,
            log,
            begin,
            last: None,
            complaint: String::new(),
            tail: String::new(),
            stopping: None,
            killed: false,
            unsaved: false,
            awaiting,
        };
        supervision.link.serve()?;
        Ok(supervision)
    }

    fn run(&mut self, machine: &mut Held, watcher: &mut dyn Watcher) -> Result<Outcome, MachineError> {
        if let Some(choice) = machine.spec.choice.clone() {
            self.tell(machine, watcher, format!("the machine is {choice}"))?;
        }
        for note in std::mem::take(&mut self.link.notes) {
            self.tell(machine, watcher, note)?;
        }
        loop {
            let patience = self.stopping.filter(|_| !self.killed).map(|(_, limit)| limit);
            let quiet = self.unsaved.then(|| Instant::now() + QUIET);
            let message = match patience.into_iter().chain(quiet).min() {
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.messages.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            if matches!(message, Ok(Message::Console(_) | Message::Status(..)))
                && let Some(begin) = self.awaiting.take()
            {
                // The thread waits for nothing else.
                let _ = begin.send(());
            }
            match message {
                Ok(Message::Console(bytes)) => {
                    // A full disk must not stop the program; what it prints is still shown.
                    let _ = self.log.write_all(&bytes);
                    watcher.console(&bytes);
                    self.look_for_ready_text(&bytes, machine, watcher)?;
                }
                Ok(Message::Status(line, came)) => self.status(&line, came, machine, watcher)?,
                Ok(Message::Complaint(text)) => self.complaint = text,
                Ok(Message::Signal(signal)) => self.stop(signal, machine, watcher)?,
                Ok(Message::Ended(status)) => return Ok(self.outcome(machine, status)),
                Err(RecvTimeoutError::Timeout) => {
                    if std::mem::take(&mut self.unsaved) {
                        machine.save()?;
                    }
                    if patience.is_some_and(|limit| limit <= Instant::now()) {
                        self.kill();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(self.outcome(machine, None)),
            }
        }
    }

    fn tell(&self, machine: &mut Held, watcher: &mut dyn Watcher, note: String) -> Result<(), MachineError> {
        watcher.note(&note);
        machine.state.notes.push(note);
        machine.save()
    }

    fn status(
        &mut self,
        line: &str,
        came: Instant,
        machine: &mut Held,
        watcher: &mut dyn Watcher,
    ) -> Result<(), MachineError> {
        let memory = machine.spec.memory;
        match Status::parse(line) {
            Some(Status::Started { kernel_ns }) => {
                machine.state.kernel_ns = Some(kernel_ns);
                machine.state.phase = Phase::Running;
                machine.save()?;
                self.make_room(machine, watcher)?;
                watcher.started();
            }
            Some(Status::Listening { udp, port }) => {
                machine.state.listening.insert(Listening { udp, port });
                let awaited = match machine.spec.ready {
                    Ready::Any => true,
                    Ready::Listening(wanted) => wanted == port,
                    Ready::Prints(_) | Ready::Never => false,
                };
                if awaited {
                    self.ready(Some(Listening { udp, port }), came, machine, watcher)?;
                }
                machine.save()?;
            }
            Some(Status::Missing { number }) => {
                machine.state.missing_calls.insert(number);
                machine.save()?;
            }
            Some(Status::Trapped { count }) => {
                machine.state.trapped_calls = Some(count);
                machine.save()?;
            }
            Some(Status::Mapped { address, offset, path }) => {
                // What is mapped where another file was takes its place.
                machine.state.modules.retain(|m| m.address != address);
                if machine.state.modules.len() < MOST_MODULES {
                    machine.state.modules.push(Module { path, address, offset });
                    // Many come at once, and nobody waits for them.
                    self.unsaved = true;
                }
            }
            Some(Status::Log { text }) => {
                // As with what the program prints: a full disk must not stop it.
                let _ = writeln!(self.log, "{text}");
                watcher.log(&text);
            }
            Some(Status::Exit { code }) => self.last = Some(Outcome { code, reason: None }),
            Some(Status::Signal { number }) => {
                let reason = format!("the program was ended by signal {number} ({})", signal_name(number));
                self.last = Some(Outcome { code: 128u8.wrapping_add(number), reason: Some(reason) });
            }
            Some(Status::OutOfMemory { .. }) => {
                let reason = format!(
                    "the machine ran out of memory: it had {} MiB; try -m {}M",
                    memory >> 20,
                    (memory >> 20).next_power_of_two() * 2
                );
                self.last = Some(Outcome { code: 137, reason: Some(reason) });
            }
            Some(Status::Failed { reason }) => self.last = Some(Outcome::failed(reason)),
            None => self.tell(machine, watcher, format!("the kernel said something unknown: {line}"))?,
        }
        Ok(())
    }

    /// QEMU's own network cannot take many clients at once by itself.
    fn make_room(&self, machine: &mut Held, watcher: &mut dyn Watcher) -> Result<(), MachineError> {
        let listens = matches!(machine.state.connection, Some(Connection::User { helper: Helper::Qemu }))
            && !machine.state.published.is_empty();
        let Some(process) = machine.state.process.filter(|_| listens) else { return Ok(()) };
        match self.handle.widen_backlogs(process.pid) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.tell(machine, watcher, format!("clients that come together may be reset: {error}"))
            }
        }
    }

    fn look_for_ready_text(
        &mut self,
        bytes: &[u8],
        machine: &mut Held,
        watcher: &mut dyn Watcher,
    ) -> Result<(), MachineError> {
        let Ready::Prints(wanted) = machine.spec.ready.clone() else { return Ok(()) };
        if machine.state.ready_in_ms.is_some() {
            return Ok(());
        }
        self.tail.push_str(&String::from_utf8_lossy(bytes));
        if self.tail.contains(&wanted) {
            return self.ready(None, Instant::now(), machine, watcher);
        }
        let mut keep = self.tail.len().saturating_sub(wanted.len());
        while !self.tail.is_char_boundary(keep) {
            keep -= 1;
        }
        self.tail.drain(..keep);
        Ok(())
    }

    /// The first time the program serves: the one line that says how to reach it.
    fn ready(
        &mut self,
        port: Option<Listening>,
        at: Instant,
        machine: &mut Held,
        watcher: &mut dyn Watcher,
    ) -> Result<(), MachineError> {
        if machine.state.ready_in_ms.is_some() {
            return Ok(());
        }
        let took = at.duration_since(self.begin).as_millis() as u64;
        machine.state.ready_in_ms = Some(took);
        machine.state.phase = Phase::Ready;
        machine.save()?;
        let reach = reach(machine, port);
        watcher.ready(&format!("{} is ready in {took} ms{reach}", machine.spec.label));
        Ok(())
    }

    /// A signal to the supervisor: SIGQUIT ends the machine at once, the others ask first.
    fn stop(
        &mut self,
        signal: i32,
        machine: &mut Held,
        watcher: &mut dyn Watcher,
    ) -> Result<(), MachineError> {
        let again = self.stopping.is_some();
        let asked = !again
            && signal != signal_hook::consts::SIGQUIT
            && machine.state.phase != Phase::Starting
            && self.handle.ask();
        self.stopping = Some((signal, Instant::now() + GRACE));
        if !asked {
            self.kill();
            return Ok(());
        }
        if signal == signal_hook::consts::SIGINT {
            watcher.note(&format!("stopping {} (Ctrl-C again ends it at once)", machine.spec.label));
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.killed = true;
        self.handle.kill();
    }

    fn outcome(&mut self, machine: &Held, status: Option<WaitIdStatus>) -> Outcome {
        let spec = &machine.spec;
        if let Some(last) = self.last.take() {
            return last;
        }
        if let Some((signal, _)) = self.stopping {
            // Ended by our SIGKILL: the code says which request led to it.
            let number = match signal {
                signal_hook::consts::SIGQUIT => signal_hook::consts::SIGKILL,
                other => other,
            };
            return Outcome { code: 128 + number as u8, reason: None };
        }
        let complaint = self.complaint.lines().map(str::trim).find(|l| !l.is_empty());
        let complaint = complaint.map(|l| l.trim_start_matches("qemu-system-x86_64: ").to_string());
        let who = if spec.platform.is_process() { "the machine" } else { "QEMU" };
        let signal = status.and_then(|s| s.terminating_signal()).and_then(|n| u8::try_from(n).ok());
        Outcome::failed(match (complaint, signal) {
            (Some(text), _) => format!("{who} ended: {text}"),
            (None, Some(number)) if i32::from(number) == signal_hook::consts::SIGSYS => {
                format!("{who} made a host call that its filter does not allow, and was ended")
            }
            (None, Some(number)) if i32::from(number) == signal_hook::consts::SIGKILL => {
                format!("{who} was killed from outside: by somebody, or by this computer for want of memory")
            }
            (None, Some(number)) => format!("{who} was ended by {}", signal_name(number)),
            (None, None) => {
                let printed = std::fs::read(machine.console_log()).unwrap_or_default();
                let last =
                    last_words(&printed).map_or("it printed nothing".into(), |l| format!("it printed: {l}"));
                format!(
                    "the machine ended without a word ({who} {}); {last}; `unilith logs {}` shows all of it",
                    ending(status, spec.platform.is_process()),
                    spec.name
                )
            }
        })
    }
}

/// How a process ended by itself, as far as that is known.
fn ending(status: Option<WaitIdStatus>, is_process: bool) -> String {
    match status.and_then(|s| s.exit_status()) {
        None => "ended".into(),
        // With -no-reboot that is all QEMU says of a machine that restarts: after a panic of Linux, or a triple fault.
        Some(0) if !is_process => "exited with 0: the machine restarted or switched itself off".into(),
        Some(code) => format!("exited with {code}"),
    }
}

/// What of the console's output tells most of an end: the last line of a panic, else the last line.
fn last_words(printed: &[u8]) -> Option<String> {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(printed);
    let mut lines = text.lines().rev().map(str::trim).filter(|l| !l.is_empty());
    let line = lines.clone().find(|l| l.contains("panic")).or_else(|| lines.next())?;
    Some(line.chars().filter(|c| !c.is_control()).take(MOST).collect())
}

/// The overlay's line before the machine has its end.
struct Overlay {
    port: UnixStream,
    end: UnixStream,
    listener: UnixListener,
    files: PathBuf,
}

impl Overlay {
    /// The socket and the directory in the machine's own, when it is to have an overlay.
    fn set_up(machine: &Held) -> Result<Option<Overlay>, MachineError> {
        if !machine.spec.overlay {
            return Ok(None);
        }
        let (port, end) =
            UnixStream::pair().map_err(|e| MachineError::Qemu(format!("cannot make a socket pair: {e}")))?;
        let listener = unilith_overlay::socket::listen(&machine.folder)?;
        let files = unilith_overlay::socket::files(&machine.folder)?;
        Ok(Some(Overlay { port, end, listener, files }))
    }

    fn for_machine(&self) -> engine::Overlay<'_> {
        engine::Overlay { socket: self.end.as_fd(), files: &self.files }
    }

    fn serve(self) -> Result<(), MachineError> {
        unilith_overlay::multiplexer::serve(self.port, self.listener)
            .map_err(|e| MachineError::Qemu(format!("cannot serve the overlay: {e}")))
    }
}

/// `: redis-cli -p 6379 (or 10.44.0.2:6379 directly)`.
fn reach(machine: &Held, port: Option<Listening>) -> String {
    let state = &machine.state;
    let wanted = port.or_else(|| match machine.spec.ready {
        Ready::Listening(port) => Some(Listening { udp: false, port }),
        _ => state.listening.first().copied(),
    });
    let Some(wanted) = wanted else { return String::new() };
    let protocol = if wanted.udp { Protocol::Udp } else { Protocol::Tcp };
    let published = state.published.iter().find(|p| p.guest == wanted.port && p.protocol == protocol);
    let direct = match &state.connection {
        Some(Connection::Tap { pair, .. }) => Some(pair.guest.to_string()),
        _ => None,
    };
    let host = published.map(|p| {
        (if p.address.is_unspecified() { "127.0.0.1".into() } else { p.address.to_string() }, p.host)
    });
    let directly = direct.map(|address| (address, wanted.port));
    let command = |(host, port): &(String, u16)| match &machine.spec.reach {
        Some(template) => template.replace("{HOST}", host).replace("{PORT}", &port.to_string()),
        None => format!("{host}:{port}"),
    };
    match (host, directly) {
        (Some(host), Some((address, port))) => format!(": {} (or {address}:{port} directly)", command(&host)),
        (Some(host), None) => format!(": {}", command(&host)),
        (None, Some(directly)) => format!(": {}", command(&directly)),
        (None, None) => format!(", but port {} is not published; add -p {0}", wanted.port),
    }
}

/// What the kernel is told about a machine.
pub fn boot_config(spec: &Spec, connection: &Connection) -> BootConfig {
    let volume = |(n, mount): (usize, &crate::record::Mount)| Volume {
        tag: qemu::volume_tag(n),
        path: mount.guest.clone(),
        read_only: mount.read_only,
    };
    let mut boot = BootConfig {
        hostname: Some(spec.hostname.clone()),
        env: spec.env.clone(),
        cwd: spec.cwd.clone(),
        uid: spec.uid,
        gid: spec.gid,
        volumes: spec.volumes.iter().enumerate().map(volume).collect(),
        epoch_ns: Some(now_ms() * 1_000_000),
        log: spec.log.clone(),
        trace: spec.trace,
        stop_signal: (spec.stop_signal != 15).then_some(spec.stop_signal),
        tty: spec.tty,
        args: spec.args.clone(),
        ..BootConfig::default()
    };
    crate::link::describe(connection, &mut boot);
    boot
}

fn watch_signals(send: Sender<Message>) -> Result<(), MachineError> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
    let mut signals = signals.map_err(|e| MachineError::Qemu(format!("cannot watch for signals: {e}")))?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if send.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Reads console, status lines and the process' messages; [`Message::Ended`] follows when all three and the process
/// have ended.
fn watch_output(
    send: Sender<Message>,
    messages: Option<Box<dyn Read + Send>>,
    waiter: impl FnOnce() -> Option<WaitIdStatus> + Send + 'static,
    mut console: UnixStream,
    status: UnixStream,
) {
    let waiter = thread::spawn(waiter);
    let to = send.clone();
    let status = thread::spawn(move || {
        for line in BufReader::new(status).lines().map_while(Result::ok) {
            if to.send(Message::Status(line, Instant::now())).is_err() {
                return;
            }
        }
    });
    let to = send.clone();
    let complaint = thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(messages) = messages {
            // What was read until an error is all there is.
            let _ = messages.take(MOST_MESSAGES).read_to_end(&mut text);
        }
        // Nobody waits for it any more where that fails.
        let _ = to.send(Message::Complaint(String::from_utf8_lossy(&text).into_owned()));
    });
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(length) = console.read(&mut buffer) {
            if length == 0 || send.send(Message::Console(buffer[..length].to_vec())).is_err() {
                break;
            }
        }
        // A thread that panicked has ended as well.
        let _ = (status.join(), complaint.join());
        let _ = send.send(Message::Ended(waiter.join().ok().flatten()));
    });
}

/// Copies the user's input to the console; at its end sends the character that means end of file to a terminal
/// (POSIX 11.1.9, EOF). `hang_up`: and no more can follow; QEMU would take that for the end of the output as well.
fn feed(mut input: Box<dyn Read + Send>, mut console: UnixStream, hang_up: bool) {
    const END_OF_FILE: u8 = 4;
    let mut buffer = [0; 4096];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => {
                // The machine may have ended already.
                let _ = console.write_all(&[END_OF_FILE]);
                if hang_up {
                    let _ = console.shutdown(std::net::Shutdown::Write);
                }
                return;
            }
            Ok(length) => {
                if console.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The name of a Linux signal, for messages.
pub fn signal_name(number: u8) -> String {
    signal_hook::low_level::signal_name(i32::from(number))
        .map_or_else(|| format!("signal {number}"), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_machine_are_its_panic_or_else_its_last_line() {
        let of = |text: &str| last_words(text.as_bytes());
        assert_eq!(of("\n \r\n"), None);
        assert_eq!(of("one\r\n\x1b[0mtwo\r\n\n").as_deref(), Some("[0mtwo"));
        let panic = "[ 0.1] Kernel panic - not syncing: no root\nCPU: 0\nRebooting";
        assert_eq!(of(panic).as_deref(), Some("[ 0.1] Kernel panic - not syncing: no root"));
        assert_eq!(of(&"x".repeat(1000)).map(|l| l.len()), Some(200));
    }
}
