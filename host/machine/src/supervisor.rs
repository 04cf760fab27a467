// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine from start to end: its process, its reports, its signals.
//!
//! Threads turn everything that can happen into one stream of [`Message`]s ([`crate::output`]); [`supervise`] is the loop
//! that reads it, and waits for nothing else. The machine is started by the thread that runs the loop, because the kernel's
//! parent-death signal is bound to that thread. A state that cannot be saved is told once and tried again: it does not end
//! the machine.

use crate::{
    MachineError,
    boot::{Boot, boot_config},
    console_log::{self, ConsoleLog},
    descriptors::Shares,
    drives::Drives,
    engine::{self, Handle},
    events, file_volumes,
    lines::printable,
    link::Link,
    output::{self, Message, Messages, Sinks, Sources},
    process::Process,
    record::{Connection, Helper, Listening, Module, Outcome, Phase, Ready, now_ms},
    store::Held,
};
use api_boot::Status;
use rustix::process::WaitIdStatus;
use signal_hook::consts::{SIGQUIT, SIGTERM};
use std::{
    io::Read,
    net::IpAddr,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};
use unilith_network::{
    dns::Lookup,
    ports::{Protocol, Publish},
};

/// How long the program has to end itself after the machine was asked to stop. A second request ends it at once.
pub const GRACE: Duration = Duration::from_secs(10);

/// As long as `seconds` say, or [`GRACE`]; a year at most, which a clock can still count to.
pub fn grace(seconds: Option<u64>) -> Duration {
    const YEAR: u64 = 365 * 24 * 60 * 60;
    seconds.map_or(GRACE, |seconds| Duration::from_secs(seconds.min(YEAR)))
}

/// A machine that has said nothing for so long is not busy with its start any more.
const QUIET: Duration = Duration::from_millis(50);
/// How long after a failure the state is saved again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a reader may take for the last output of a machine that was told to stop.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// Files a program may have mapped to be executed and be debugged with.
const MAX_MODULES: usize = 512;
/// Ports, and numbers of missing calls, that are kept of what the machine reports.
const MAX_REPORTED: usize = 1024;
/// Notes that are kept of what the machine itself may cause.
const MAX_NOTES: usize = 64;
/// The end of the console's output in which an end is looked for that the machine did not report.
const LAST_WORDS_REACH: u64 = 64 << 10;

/// What the one who runs the machine gets to see. Called from the supervising thread.
pub trait Watcher {
    /// Where the machine's output goes.
    fn sinks(&mut self) -> Sinks;
    /// The program runs.
    fn started(&mut self) {}
    /// The program serves; how long that took and how to reach it.
    fn ready(&mut self, text: &str);
    /// Something the user should know, one line.
    fn note(&mut self, text: &str);
}

/// Input that has nowhere to go yet. It goes to the machine when that has said something, because a kernel that sets up its console loses what
/// came before; and where it may come by two ways, when the machine has said which.
struct Awaiting {
    begin: Sender<UnixStream>,
    console: UnixStream,
    port: Option<UnixStream>,
}

/// Runs the machine to its end, records how it did, and returns the outcome. `input` is copied to the machine's console.
pub fn supervise(
    machine: &mut Held,
    boot: Boot,
    input: Option<Box<dyn Read + Send>>,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, MachineError> {
    machine.adopt()?;
    let result =
        Supervision::start(machine, boot, input, watcher.sinks()).and_then(|mut s| s.run(machine, watcher));
    let outcome = match &result {
        Ok(outcome) => outcome.clone(),
        Err(error) => Outcome::failed(error.to_string()),
    };
    machine.tear_down_network();
    machine.finish(outcome)?;
    result
}

struct Supervision {
    messages: Receiver<Message>,
    handle: Handle,
    link: Link,
    begin: Instant,
    /// The last words of the machine about itself.
    last: Option<Outcome>,
    complaint: String,
    /// The signal that asked for the end, and when patience runs out.
    stopping: Option<(i32, Instant)>,
    killed: bool,
    /// When the state is to be saved that has changed in a way that could wait, or could not be saved.
    unsaved: Option<Instant>,
    /// The last attempt to save failed.
    is_unsavable: bool,
    /// Lines that were no reports.
    unknown: u64,
    /// The end of the process, and until when its last output is waited for.
    exited: Option<(Option<WaitIdStatus>, Option<Instant>)>,
    awaiting: Option<Awaiting>,
    /// Locked as long as the machine is supervised.
    _drives: Drives,
}

impl Supervision {
    fn start(
        machine: &mut Held,
        boot: Boot,
        input: Option<Box<dyn Read + Send>>,
        sinks: Sinks,
    ) -> Result<Supervision, MachineError> {
        let log = ConsoleLog::open(&machine.folder, machine.spec.log_limits)
            .map_err(MachineError::file("cannot write", &machine.console_log()))?;
        // One that was removed since the machine was made.
        for network in &machine.spec.networks {
            let found = machine.store().network(&network.id);
            found.map_err(|_| MachineError::NoNetwork(network.name.clone()))?;
        }
        let link = Link::set_up(&machine.spec)?;
        machine.state.connection = Some(link.connection.clone());
        machine.state.published = link.published.clone();
        machine.state.phase = Phase::Starting;
        machine.state.started_ms = Some(now_ms());
        // Written before the machine starts: whoever cleans up after us must know what there is.
        machine.save()?;

        let mut config = boot_config(&machine.spec, &link.connection);
        // Here, where marks are read: what is built for a console that people look at has none.
        config.own_error = !machine.spec.tty;
        let files = boot(machine, &config).map_err(MachineError::Boot)?;
        let (send, messages) = output::messages();
        // Before the machine, so that no signal finds the default action.
        watch_signals(send.clone())?;
        let begin = Instant::now();
        let overlay = Overlay::set_up(machine)?;
        let line = overlay.as_ref().map(Overlay::for_machine);
        // The overlay's directory is one more.
        let shares = Shares::take(machine.spec.volumes.len() + 1 + files.pod.len());
        let (placed, mounts) = file_volumes::place(machine)?;
        let drives = Drives::open(&machine.spec)?;
        let engine = engine::start(&placed, mounts, &machine.folder, files, &link, line, &drives, shares)?;
        if let Some(overlay) = overlay {
            overlay.serve()?;
        }
        machine.state.process = Process::find(engine.pid);
        machine.state.isolation = engine.isolation;
        machine.save()?;

        let mut awaiting = None;
        if let Some(input) = input {
            let share = |stream: &UnixStream| {
                stream
                    .try_clone()
                    .map_err(|e| MachineError::Process(format!("cannot share the console: {e}")))
            };
            let console = share(&engine.console)?;
            let port = engine.output.as_ref().filter(|_| !machine.spec.tty).map(share).transpose()?;
            let begin = output::feed(input, machine.spec.tty, machine.spec.platform.is_process());
            awaiting = Some(Awaiting { begin, console, port });
        }
        let waiter = engine.handle.waiter();
        let waiter = waiter.map_err(|e| MachineError::Process(format!("cannot be watched: {e}")))?;
        let sources = Sources {
            console: engine.console,
            output: engine.output,
            own_error: config.own_error,
            status: engine.status,
            messages: engine.messages,
        };
        let wanted = match &machine.spec.ready {
            Ready::Prints(text) => Some(text.clone()),
            _ => None,
        };
        output::watch(&send, sources, waiter, sinks, log, wanted);
        let mut supervision = Supervision {
            messages,
            handle: engine.handle,
            link,
            begin,
            last: None,
            complaint: String::new(),
            stopping: None,
            killed: false,
            unsaved: None,
            is_unsavable: false,
            unknown: 0,
            exited: None,
            awaiting,
            _drives: drives,
        };
        // It may be made a member of networks while it runs.
        let (store, id) = (machine.store(), machine.spec.id.clone());
        let names = Box::new(move |name: &str| store.addresses_for(&id, name)) as Lookup;
        supervision.link.serve(shares.of_proxy(), &machine.spec.dns, Some(names))?;
        Ok(supervision)
    }

    fn run(&mut self, machine: &mut Held, watcher: &mut dyn Watcher) -> Result<Outcome, MachineError> {
        if let Some(choice) = machine.spec.choice.clone() {
            self.tell(machine, watcher, format!("the machine is {choice}"));
        }
        for note in std::mem::take(&mut self.link.notes) {
            self.tell(machine, watcher, note);
        }
        loop {
            let patience = self.stopping.filter(|_| !self.killed).map(|(_, limit)| limit);
            let drain = self.exited.and_then(|(_, limit)| limit);
            let message = match patience.into_iter().chain(self.unsaved).chain(drain).min() {
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.messages.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Spoke) => {
                    if let Some(Awaiting { begin, console, .. }) =
                        self.awaiting.take_if(|input| input.port.is_none())
                    {
                        // The thread waits for nothing else.
                        let _ = begin.send(console);
                    }
                }
                Ok(Message::Printed) => self.ready(None, Instant::now(), machine, watcher),
                Ok(Message::Status(status, came)) => self.status(status, came, machine, watcher),
                Ok(Message::Unknown(line)) => {
                    self.unknown += 1;
                    if self.unknown == 1 {
                        let note = format!("the kernel said something unknown (said once): {line}");
                        self.tell(machine, watcher, note);
                    }
                }
                Ok(Message::Complaint(text)) => self.complaint = text,
                Ok(Message::Signal(signal)) => self.stop(signal, machine, watcher),
                Ok(Message::Exited(status)) => {
                    let limit = self.stopping.map(|_| Instant::now() + LAST_OUTPUT);
                    self.exited = Some((status, limit));
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The process has ended as well, or is about to: it has closed everything it had.
                Ok(Message::Drained) => {
                    let status = self.exit_status();
                    return Ok(self.outcome(machine, status));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(self.outcome(machine, None)),
            }
            let now = Instant::now();
            if self.unsaved.is_some_and(|due| due <= now) {
                self.save(machine, watcher);
            }
            if let Some((status, Some(limit))) = self.exited
                && limit <= now
            {
                return Ok(self.outcome(machine, status));
            }
            if patience.is_some_and(|limit| limit <= now) {
                // `unilith stop`, whose patience ends at this very moment, tells it to end at once.
                self.stopping = self.stopping.map(|(signal, limit)| match signal {
                    SIGTERM => (SIGQUIT, limit),
                    other => (other, limit),
                });
                self.kill();
            }
        }
    }

    /// How the process ended, which it does soon.
    fn exit_status(&mut self) -> Option<WaitIdStatus> {
        if let Some((status, _)) = self.exited {
            return status;
        }
        loop {
            match self.messages.recv() {
                Ok(Message::Exited(status)) => return status,
                Ok(Message::Signal(_)) => self.kill(),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Saves the state; a failure is told and the state saved later.
    fn save(&mut self, machine: &Held, watcher: &mut dyn Watcher) {
        match machine.save() {
            Ok(()) => (self.unsaved, self.is_unsavable) = (None, false),
            Err(error) => {
                if !std::mem::replace(&mut self.is_unsavable, true) {
                    watcher.note(&format!("the machine runs on, but {error}; this is tried again"));
                }
                self.unsaved = Some(Instant::now() + RETRY);
            }
        }
    }

    fn tell(&mut self, machine: &mut Held, watcher: &mut dyn Watcher, note: String) {
        watcher.note(&note);
        if machine.state.notes.len() < MAX_NOTES {
            machine.state.notes.push(note);
            self.save(machine, watcher);
        }
    }

    fn status(&mut self, status: Status, came: Instant, machine: &mut Held, watcher: &mut dyn Watcher) {
        let memory = machine.spec.memory;
        match status {
            Status::Started { kernel_ns } => {
                if machine.state.phase != Phase::Starting {
                    return;
                }
                machine.state.kernel_ns = Some(kernel_ns);
                machine.state.phase = Phase::Running;
                self.save(machine, watcher);
                self.make_room(machine, watcher);
                events::note(machine.store().shared(), &machine.spec, "start", &[]);
                watcher.started();
            }
            Status::Input { by_port } => {
                if let Some(Awaiting { begin, console, port }) = self.awaiting.take() {
                    // The thread waits for nothing else.
                    let _ = begin.send(port.filter(|_| by_port).unwrap_or(console));
                }
            }
            Status::Listening { udp, port } => {
                let listening = &mut machine.state.listening;
                let is_new = listening.len() < MAX_REPORTED && listening.insert(Listening { udp, port });
                let awaited = match machine.spec.ready {
                    Ready::Any => true,
                    Ready::Listening(wanted) => wanted == port,
                    Ready::Prints(_) | Ready::Never => false,
                };
                if awaited {
                    self.ready(Some(Listening { udp, port }), came, machine, watcher);
                }
                if is_new {
                    self.save(machine, watcher);
                }
            }
            Status::Missing { number } => {
                let missing = &mut machine.state.missing_calls;
                if missing.len() < MAX_REPORTED && missing.insert(number) {
                    self.save(machine, watcher);
                }
            }
            Status::Trapped { count } => {
                if machine.state.trapped_calls.replace(count) != Some(count) {
                    self.save_when_quiet();
                }
            }
            Status::Mapped { address, offset, path } => {
                // What is mapped where another file was takes its place.
                machine.state.modules.retain(|m| m.address != address);
                if machine.state.modules.len() < MAX_MODULES {
                    machine.state.modules.push(Module { path, address, offset });
                    // Many come at once, and nobody waits for them.
                    self.save_when_quiet();
                }
            }
            // The thread that reads it keeps it.
            Status::Log { .. } => {}
            Status::Exit { code } => self.last = Some(Outcome { code, reason: None }),
            Status::Signal { number } => {
                let reason = format!("the program was ended by signal {number} ({})", signal_name(number));
                self.last = Some(Outcome { code: 128u8.wrapping_add(number), reason: Some(reason) });
            }
            Status::OutOfMemory { .. } => self.last = Some(Outcome::out_of_memory(memory)),
            Status::Failed { reason } => self.last = Some(Outcome::failed(reason)),
        }
    }

    /// Saves the state when the machine has said nothing of the kind for a moment.
    fn save_when_quiet(&mut self) {
        self.unsaved = Some(Instant::now() + QUIET);
    }

    /// QEMU's own network cannot take many clients at once by itself.
    fn make_room(&mut self, machine: &mut Held, watcher: &mut dyn Watcher) {
        let listens = matches!(machine.state.connection, Some(Connection::User { helper: Helper::Qemu }))
            && !machine.state.published.is_empty();
        let Some(process) = machine.state.process.filter(|_| listens) else { return };
        if let Err(error) = self.handle.widen_backlogs(process.pid) {
            self.tell(machine, watcher, format!("clients that come together may be reset: {error}"));
        }
    }

    /// The first time the program serves: the one line that says how to reach it.
    fn ready(&mut self, port: Option<Listening>, at: Instant, machine: &mut Held, watcher: &mut dyn Watcher) {
        if machine.state.ready_in_ms.is_some() {
            return;
        }
        let took = at.duration_since(self.begin).as_millis() as u64;
        machine.state.ready_in_ms = Some(took);
        machine.state.phase = Phase::Ready;
        self.save(machine, watcher);
        let reach = reach(machine, port);
        watcher.ready(&format!("{} is ready in {took} ms{reach}", machine.spec.label));
    }

    /// A signal to the supervisor: SIGQUIT ends the machine at once, the others ask first.
    fn stop(&mut self, signal: i32, machine: &Held, watcher: &mut dyn Watcher) {
        let again = self.stopping.is_some();
        let asked =
            !again && signal != SIGQUIT && machine.state.phase != Phase::Starting && self.handle.ask();
        // What ended it at once is what ended it, whoever asks once more.
        let told = match self.stopping {
            Some((SIGQUIT, _)) => SIGQUIT,
            _ => signal,
        };
        self.stopping = Some((told, Instant::now() + machine.grace()));
        if let Some((_, limit)) = &mut self.exited {
            // Only a slow reader of its output is left.
            *limit = Some(Instant::now() + LAST_OUTPUT);
        }
        if !asked {
            self.kill();
            return;
        }
        if signal == signal_hook::consts::SIGINT {
            watcher.note(&format!("stopping {} (Ctrl-C again ends it at once)", machine.spec.label));
        }
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
                SIGQUIT => signal_hook::consts::SIGKILL,
                other => other,
            };
            return Outcome { code: 128 + number as u8, reason: None };
        }
        // Cloud Hypervisor also warns there, of a tap device that it finds made, as it is to.
        let is_complaint = |line: &&str| !line.is_empty() && !line.contains("> WARN:");
        let complaint = self.complaint.lines().map(str::trim).find(is_complaint);
        let complaint = complaint.map(|l| l.trim_start_matches("qemu-system-x86_64: ").to_string());
        let who = spec.platform.monitor();
        let signal = status.and_then(|s| s.terminating_signal()).and_then(|n| u8::try_from(n).ok());
        if complaint.is_none() && signal.map(i32::from) == Some(signal_hook::consts::SIGKILL) {
            return Outcome::killed(who);
        }
        Outcome::failed(match (complaint, signal) {
            (Some(text), _) => format!("{who} ended: {text}"),
            (None, Some(number)) if i32::from(number) == signal_hook::consts::SIGSYS => {
                format!("{who} made a host call that its filter does not allow, and was ended")
            }
            (None, Some(number)) => format!("{who} was ended by {}", signal_name(number)),
            (None, None) => {
                let printed = console_log::end(&machine.folder, LAST_WORDS_REACH);
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
    const MAX_WORDS: usize = 200;
    let text = String::from_utf8_lossy(printed);
    let mut lines = text.lines().rev().map(str::trim).filter(|l| !l.is_empty());
    let line = lines.clone().find(|l| l.contains("panic")).or_else(|| lines.next())?;
    Some(printable(&line.chars().take(MAX_WORDS).collect::<String>()))
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
    let is_it = |p: &&Publish| p.guest == wanted.port && p.protocol == protocol;
    // More clients speak IPv4.
    let four = state.published.iter().filter(is_it).find(|p| p.address.is_ipv4());
    let published = four.or_else(|| state.published.iter().find(is_it));
    let direct = match &state.connection {
        Some(Connection::Tap { pair, .. }) => Some(pair.guest.to_string()),
        _ => None,
    };
    let host = published.map(|p| {
        let host = match p.address {
            IpAddr::V4(address) if address.is_unspecified() => "127.0.0.1".into(),
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) if address.is_unspecified() => "[::1]".into(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        (host, p.host)
    });
    let directly = direct.map(|address| (address, wanted.port));
    let command = |(host, port): &(String, u16)| match &machine.spec.reach {
        Some(template) => {
            // A port behind the address is told from it by brackets; alone the address has none.
            let bare = host.trim_matches(['[', ']']);
            let text = template.replace("{HOST}:", &format!("{host}:")).replace("{HOST}", bare);
            text.replace("{PORT}", &port.to_string())
        }
        None => format!("{host}:{port}"),
    };
    match (host, directly) {
        (Some(host), Some((address, port))) => format!(": {} (or {address}:{port} directly)", command(&host)),
        (Some(host), None) => format!(": {}", command(&host)),
        (None, Some(directly)) => format!(": {}", command(&directly)),
        (None, None) => format!(", but port {} is not published; add -p {0}", wanted.port),
    }
}

fn watch_signals(send: Messages) -> Result<(), MachineError> {
    use signal_hook::consts::{SIGHUP, SIGINT};
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
        assert_eq!(of("one\r\n\x1b[0mtwo\r\n\n").as_deref(), Some("\u{fffd}[0mtwo"));
        let panic = "[ 0.1] Kernel panic - not syncing: no root\nCPU: 0\nRebooting";
        assert_eq!(of(panic).as_deref(), Some("[ 0.1] Kernel panic - not syncing: no root"));
        assert_eq!(of(&"x".repeat(1000)).map(|l| l.len()), Some(200));
    }
}
