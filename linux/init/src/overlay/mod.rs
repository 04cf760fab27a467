// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overlay of a Linux machine: the line's protocol (`overlay-wire`) over a virtio-console port, and an ordinary
//! process for each command.
//!
//! It is a process of its own, started by the first one: that one reaps whatever ends, this one waits for what it
//! started. Commands are tools of a busybox that is in no directory of the machine, or programs of the image.

mod commands;
mod programs;
mod request;

use overlay_wire::{Decoder, Frame, Hello, Kind, MAX_PAYLOAD, Program, Refused, Run, WINDOW, Welcome, frame};
use request::{Request, Wanted};
use rustix::process::Pid;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// The word that makes this program the overlay's process; the program's process id follows.
pub const WORD: &str = "overlay";
/// The port's name, which the host gives.
const PORT: &str = "unilith.overlay";
/// Sessions, and commands of one session, at once: as on the micro-library OS.
const MAX_SESSIONS: usize = 64;
const MAX_REQUESTS: usize = 16;
/// How long to wait before looking again whether the host has opened its side.
const AGAIN: Duration = Duration::from_millis(50);

/// A panic of one command's thread must not take the others' line away.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the overlay's process where the machine has the port. `tools` is the busybox.
pub fn start(program: Pid, tools: Option<File>) -> Result<(), String> {
    if port().is_none() {
        return Ok(());
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0("[overlay]").arg(WORD).arg(program.as_raw_pid().to_string()).current_dir("/");
    // The tools travel as its standard input, where its children find them.
    command.stdin(tools.map_or_else(Stdio::null, Stdio::from)).process_group(0);
    command.spawn().map(drop).map_err(|e| format!("the overlay: {e}"))
}

/// The device file of the port.
fn port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let is_ours = |folder: &PathBuf| fs::read_to_string(folder.join("name")).is_ok_and(|n| n.trim() == PORT);
    let found = ports.flatten().map(|entry| entry.path()).find(is_ours)?;
    Some(PathBuf::from("/dev").join(found.file_name()?))
}

/// What that process does until the machine ends.
pub fn serve(program: Option<&str>) -> Result<(), String> {
    let program = program.and_then(|id| Pid::from_raw(id.parse().ok()?)).ok_or("no program is named")?;
    // Tools run as on any Linux, whatever the program's level is.
    crate::level::set(0)?;
    let path = port().ok_or("the machine has no port for it")?;
    let open = || OpenOptions::new().read(true).write(true).open(&path);
    let mut reader = open().map_err(|e| format!("{}: {e}", path.display()))?;
    let writer = reader.try_clone().map_err(|e| format!("{}: {e}", path.display()))?;
    let line = Arc::new(Line { port: Mutex::new(writer), sessions: Mutex::new(BTreeMap::new()), program });
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; MAX_PAYLOAD];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => {
                // The host has closed its side: what it had begun to say is void.
                decoder.reset();
                line.close_all();
                thread::sleep(AGAIN);
            }
            Ok(length) => decoder.feed(&buffer[..length], |frame| line.heed(frame)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(format!("{}: {e}", path.display())),
        }
    }
}

/// The line and what runs on it.
pub struct Line {
    port: Mutex<File>,
    sessions: Mutex<BTreeMap<u32, BTreeMap<u32, Arc<Request>>>>,
    /// The machine's program.
    pub program: Pid,
}

impl Line {
    /// Sends frames in one piece.
    fn send(&self, bytes: &[u8]) {
        // A host that is gone shows when the port is read.
        let _ = lock(&self.port).write_all(bytes);
    }

    fn heed(self: &Arc<Line>, Frame { kind, session, request, payload }: Frame<'_>) {
        match kind {
            Kind::HELLO => self.welcome(session, payload),
            Kind::PING => self.send(&frame(Kind::PONG, session, request, payload)),
            Kind::CLOSE => self.close(session),
            Kind::RUN => {
                let command = Run::decode(payload).ok().map(|run| Wanted::command(&run));
                self.run(session, request, command);
            }
            Kind::PROGRAM => {
                let program = Program::decode(payload).ok().map(|program| Wanted::program(&program));
                self.run(session, request, program);
            }
            _ => {
                let found = lock(&self.sessions).get(&session).and_then(|r| r.get(&request)).cloned();
                // One that has just ended: what was on its way to it is void.
                let Some(found) = found else { return };
                if let Err(text) = found.heed(kind, payload) {
                    self.refuse(session, Refused::PROTOCOL, text);
                }
            }
        }
    }

    fn refuse(&self, session: u32, code: u16, text: &str) {
        self.close(session);
        self.send(&frame(Kind::REFUSED, session, 0, &Refused { code, text: text.as_bytes() }.encode()));
    }

    fn welcome(&self, session: u32, payload: &[u8]) {
        let Ok(hello) = Hello::decode(payload) else {
            return self.refuse(session, Refused::PROTOCOL, "a greeting that is none");
        };
        let Some(version) = hello.agree() else {
            return self.refuse(
                session,
                Refused::VERSION,
                "this machine does not speak the client's versions",
            );
        };
        // A client that died without a word may have had that number.
        self.close(session);
        let is_full = {
            let mut sessions = lock(&self.sessions);
            let is_full = sessions.len() >= MAX_SESSIONS;
            if !is_full {
                sessions.insert(session, BTreeMap::new());
            }
            is_full
        };
        if is_full {
            return self.refuse(session, Refused::CROWDED, "too many sessions: end one first");
        }
        let welcome = Welcome {
            version,
            requests: MAX_REQUESTS as u16,
            payload: MAX_PAYLOAD as u32,
            window: WINDOW,
            kernel: b"Linux",
        };
        self.send(&frame(Kind::WELCOME, session, 0, &welcome.encode()));
    }

    fn run(self: &Arc<Line>, session: u32, number: u32, wanted: Option<Wanted>) {
        let Some(wanted) = wanted else {
            return self.refuse(session, Refused::PROTOCOL, "a command that is none");
        };
        match self.add(session, number, wanted) {
            Ok(request) => {
                let line = self.clone();
                thread::spawn(move || request.serve(&line));
            }
            Err(text) => self.refuse(session, Refused::PROTOCOL, text),
        }
    }

    fn add(&self, session: u32, number: u32, wanted: Wanted) -> Result<Arc<Request>, &'static str> {
        let mut sessions = lock(&self.sessions);
        let requests = sessions.get_mut(&session).ok_or("a command before a greeting")?;
        if number == 0 || requests.contains_key(&number) {
            return Err("a command with a number that is in use");
        }
        if requests.len() >= MAX_REQUESTS {
            return Err("too many commands at once");
        }
        let request = Arc::new(Request::new(session, number, wanted));
        requests.insert(number, request.clone());
        Ok(request)
    }

    /// The command has ended: its number is free.
    fn remove(&self, request: &Arc<Request>) {
        if let Some(requests) = lock(&self.sessions).get_mut(&request.session)
            // A new session of the same number may have a request of the same number.
            && requests.get(&request.number).is_some_and(|other| Arc::ptr_eq(other, request))
        {
            requests.remove(&request.number);
        }
    }

    fn close(&self, session: u32) {
        let ended = lock(&self.sessions).remove(&session);
        ended.iter().flat_map(BTreeMap::values).for_each(|request| request.abandon());
    }

    fn close_all(&self) {
        let ended = std::mem::take(&mut *lock(&self.sessions));
        ended.values().flat_map(BTreeMap::values).for_each(|request| request.abandon());
    }
}
