// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine from start to end: QEMU, its console, its status lines, its signals.
//!
//! Threads turn everything that can happen into one stream of [`Message`]s; [`supervise`] is the loop that reads it. QEMU
//! is started by the thread that runs the loop, because the kernel's parent-death signal is bound to that thread.

use crate::{
    MachineError,
    link::Link,
    process::Process,
    qemu,
    record::{Connection, Listening, Outcome, Phase, Ready, Spec, now_ms},
    store::{Held, Store},
};
use api_boot::{BootConfig, Status, Volume};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};
use unilith_network::ports::Protocol;

/// How long the program has to end itself after the machine was asked to stop. A second request ends it at once.
pub const GRACE: Duration = Duration::from_secs(10);
/// Bytes of QEMU's own messages that are kept.
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
    Status(String),
    /// QEMU's own messages, all of them.
    Complaint(String),
    Signal(i32),
    Ended,
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
    /// QEMU, pinned so that a signal cannot reach another process of the same number.
    qemu: OwnedFd,
    control: UnixStream,
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
        // Written before QEMU starts: whoever cleans up after us must know what there is.
        machine.save()?;

        let config = boot_config(&machine.spec, &link.connection);
        let files = boot(machine, &config).map_err(MachineError::Boot)?;
        let (send, messages) = channel();
        // Before QEMU, so that no signal finds the default action.
        watch_signals(send.clone())?;
        let pair =
            || UnixStream::pair().map_err(|e| MachineError::Qemu(format!("cannot make a socket pair: {e}")));
        let ((console, console_end), (status, status_end), (control, control_end)) =
            (pair()?, pair()?, pair()?);
        let line = qemu::Line {
            platform: machine.spec.platform,
            accel: machine.spec.accel,
            memory: machine.spec.memory,
            cpus: machine.spec.cpus,
            kernel_kind: machine.spec.kernel_kind,
            kernel: &machine.spec.kernel,
            initrd: &files.initrd,
            append: files.append,
            volumes: &machine.spec.volumes,
            link: link.for_qemu(),
            mac: qemu::mac_of(&machine.spec.id),
            console: qemu::Stream::Socket(console_end.as_raw_fd()),
            status: qemu::Stream::Socket(status_end.as_raw_fd()),
            control: Some(control_end.as_raw_fd()),
        };
        let mut inherited = vec![console_end.as_raw_fd(), status_end.as_raw_fd(), control_end.as_raw_fd()];
        if let qemu::Link::Tap(fd) | qemu::Link::Frames(fd) = line.link {
            inherited.push(fd);
        }
        let begin = Instant::now();
        let mut child = spawn(&line, inherited)?;
        let pid = child.id();
        drop((console_end, status_end, control_end));
        machine.state.qemu = Process::find(pid);
        machine.save()?;
        let qemu = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let qemu = qemu.ok_or(rustix::io::Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let qemu = qemu.map_err(|e| MachineError::Qemu(format!("cannot watch QEMU: {e}")))?;

        if let Some(input) = input {
            let writer = console
                .try_clone()
                .map_err(|e| MachineError::Qemu(format!("cannot share the console: {e}")))?;
            thread::spawn(move || feed(input, writer));
        }
        watch_output(send, &mut child, console, status);
        thread::spawn(move || child.wait());
        let mut supervision = Supervision {
            messages,
            qemu,
            control,
            link,
            log,
            begin,
            last: None,
            complaint: String::new(),
            tail: String::new(),
            stopping: None,
            killed: false,
        };
        supervision.link.serve()?;
        Ok(supervision)
    }

    fn run(&mut self, machine: &mut Held, watcher: &mut dyn Watcher) -> Result<Outcome, MachineError> {
        for note in std::mem::take(&mut self.link.notes) {
            self.tell(machine, watcher, note)?;
        }
        loop {
            let message = match self.stopping.filter(|_| !self.killed) {
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some((_, limit)) => {
                    self.messages.recv_timeout(limit.saturating_duration_since(Instant::now()))
                }
            };
            match message {
                Ok(Message::Console(bytes)) => {
                    // A full disk must not stop the program; what it prints is still shown.
                    let _ = self.log.write_all(&bytes);
                    watcher.console(&bytes);
                    self.look_for_ready_text(&bytes, machine, watcher)?;
                }
                Ok(Message::Status(line)) => self.status(&line, machine, watcher)?,
                Ok(Message::Complaint(text)) => self.complaint = text,
                Ok(Message::Signal(signal)) => self.stop(signal, machine, watcher)?,
                Ok(Message::Ended) => return Ok(self.outcome(&machine.spec)),
                Err(RecvTimeoutError::Timeout) => self.kill(),
                Err(RecvTimeoutError::Disconnected) => return Ok(self.outcome(&machine.spec)),
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
        machine: &mut Held,
        watcher: &mut dyn Watcher,
    ) -> Result<(), MachineError> {
        let memory = machine.spec.memory;
        match Status::parse(line) {
            Some(Status::Started { kernel_ns }) => {
                machine.state.kernel_ns = Some(kernel_ns);
                machine.state.phase = Phase::Running;
                machine.save()?;
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
                    self.ready(Some(Listening { udp, port }), machine, watcher)?;
                }
                machine.save()?;
            }
            Some(Status::Missing { number }) => {
                machine.state.missing_calls.insert(number);
                machine.save()?;
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
            return self.ready(None, machine, watcher);
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
        machine: &mut Held,
        watcher: &mut dyn Watcher,
    ) -> Result<(), MachineError> {
        if machine.state.ready_in_ms.is_some() {
            return Ok(());
        }
        let took = self.begin.elapsed().as_millis() as u64;
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
            && self.ask();
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

    /// Sends a break on the console, which the kernel turns into the program's stop signal.
    fn ask(&mut self) -> bool {
        const REQUEST: &str = concat!(
            r#"{"execute":"qmp_capabilities"}"#,
            "\n",
            r#"{"execute":"chardev-send-break","arguments":{"id":"console"}}"#,
            "\n"
        );
        self.control.write_all(REQUEST.as_bytes()).is_ok()
    }

    fn kill(&mut self) {
        self.killed = true;
        // It may have ended by itself in this moment.
        let _ = pidfd_send_signal(&self.qemu, Signal::KILL);
    }

    fn outcome(&mut self, spec: &Spec) -> Outcome {
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
        Outcome::failed(match complaint {
            Some(text) => format!("QEMU ended: {text}"),
            None => format!(
                "the machine ended without a word; `unilith logs {}` shows what it printed",
                spec.name
            ),
        })
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

fn spawn(line: &qemu::Line, inherited: Vec<RawFd>) -> Result<Child, MachineError> {
    let mut command = Command::new(qemu::QEMU);
    command.args(line.arguments()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C in the terminal is for the supervisor to act on.
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls; it allocates nothing
    // and takes no lock. The descriptors it names are open in the parent until `spawn` returns.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            for fd in &inherited {
                let fd = std::os::fd::BorrowedFd::borrow_raw(*fd);
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            }
            Ok(())
        });
    }
    command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => MachineError::NoQemu,
        _ => MachineError::Qemu(format!("cannot start {}: {e}", qemu::QEMU)),
    })
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

/// Reads console, status lines and QEMU's messages; [`Message::Ended`] follows when all three have ended.
fn watch_output(send: Sender<Message>, child: &mut Child, mut console: UnixStream, status: UnixStream) {
    let (to, messages) = (send.clone(), child.stderr.take());
    let status = thread::spawn(move || {
        for line in BufReader::new(status).lines().map_while(Result::ok) {
            if to.send(Message::Status(line)).is_err() {
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
        to.send(Message::Complaint(String::from_utf8_lossy(&text).into_owned()))
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
        send.send(Message::Ended)
    });
}

/// Copies the user's input to the console; at its end sends the character that means end of file to a terminal
/// (POSIX 11.1.9, EOF).
fn feed(mut input: Box<dyn Read + Send>, mut console: UnixStream) {
    const END_OF_FILE: u8 = 4;
    let mut buffer = [0; 4096];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => {
                // The machine may have ended already.
                let _ = console.write_all(&[END_OF_FILE]);
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
