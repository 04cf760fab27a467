// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One command that runs: its process, its streams, its end.

use super::{Line, commands, lock, programs};
use overlay_wire::{ErrorReport, Exit, How, Kind, Program, Run, WINDOW, credit, frame, read_credit, started};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsString,
    io::{Read, Write},
    os::unix::{
        ffi::OsStringExt,
        process::{CommandExt, ExitStatusExt},
    },
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

/// Output is sent in pieces of at most this many bytes.
const PIECE: usize = 16 << 10;
/// What shells answer for a command that was interrupted, and the base of those that a signal ended.
const INTERRUPTED: u8 = 130;
const SIGNALLED: i32 = 128;

#[derive(Default)]
struct Flow {
    /// Bytes of output the client still takes.
    credit: u32,
    /// Bytes of input it may still send.
    input_room: u32,
    /// To the thread that writes the command's input; `None` behind its end.
    input: Option<Sender<Vec<u8>>>,
    /// The command's process group, while it runs.
    group: Option<Pid>,
    interrupted: bool,
    /// Nobody waits for the answer any more.
    abandoned: bool,
}

/// What a client asked for.
pub enum Wanted {
    Command { json: bool, words: Vec<OsString> },
    Program(programs::Wanted),
}

impl Wanted {
    pub fn command(run: &Run<'_>) -> Wanted {
        let words = run.arguments.iter().map(|a| OsString::from_vec(a.to_vec())).collect();
        Wanted::Command { json: run.json, words }
    }

    pub fn program(program: &Program<'_>) -> Wanted {
        Wanted::Program(programs::Wanted::new(program))
    }
}

pub struct Request {
    pub session: u32,
    pub number: u32,
    wanted: Wanted,
    flow: Mutex<Flow>,
    /// Notified when there is credit, or nobody waits any more.
    changed: Condvar,
    /// What the input's thread takes, until it does.
    input: Mutex<Option<Receiver<Vec<u8>>>>,
}

impl Request {
    pub fn new(session: u32, number: u32, wanted: Wanted) -> Request {
        let (send, receive) = channel();
        let flow = Flow { credit: WINDOW, input_room: WINDOW, input: Some(send), ..Flow::default() };
        Request {
            session,
            number,
            wanted,
            flow: Mutex::new(flow),
            changed: Condvar::new(),
            input: Mutex::new(Some(receive)),
        }
    }

    /// Takes a frame about this request; an error is a breach of the protocol.
    pub fn heed(&self, kind: Kind, payload: &[u8]) -> Result<(), &'static str> {
        let mut flow = lock(&self.flow);
        match kind {
            Kind::STDIN => {
                let room = flow.input_room.checked_sub(payload.len() as u32);
                flow.input_room = room.ok_or("more input than there was credit for")?;
                let input = flow.input.as_ref().ok_or("input behind the end of input")?;
                // A command that reads no more input does not want it.
                let _ = input.send(payload.to_vec());
            }
            Kind::STDIN_END => flow.input = None,
            Kind::CREDIT => match read_credit(payload) {
                Ok(bytes) if bytes <= WINDOW - flow.credit.min(WINDOW) => flow.credit += bytes,
                _ => return Err("more credit than was used"),
            },
            Kind::INTERRUPT => {
                flow.interrupted = true;
                flow.input = None;
                signal(flow.group, Signal::INT);
            }
            // There is no terminal here.
            Kind::RESIZE => {}
            _ => return Err("a frame of an unknown kind"),
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Nobody waits for the answer any more: the command ends at once, and a program hears of it.
    pub fn abandon(&self) {
        let mut flow = lock(&self.flow);
        (flow.interrupted, flow.abandoned, flow.input) = (true, true, None);
        let ends = matches!(self.wanted, Wanted::Command { .. });
        signal(flow.group, if ends { Signal::KILL } else { Signal::HUP });
        self.changed.notify_all();
    }

    /// Runs the command to its end and says how that was.
    pub fn serve(self: Arc<Request>, line: &Arc<Line>) {
        let result = self.run(line);
        let is_interrupted = lock(&self.flow).interrupted;
        let exit = match result {
            _ if is_interrupted => Exit { code: INTERRUPTED, how: How::Interrupted },
            Ok(code) => Exit { code, how: How::Ended },
            Err((code, text)) => {
                self.complain(line, &text);
                Exit { code, how: How::Ended }
            }
        };
        line.remove(&self);
        if !lock(&self.flow).abandoned {
            line.send(&frame(Kind::EXIT, self.session, self.number, &exit.encode()));
        }
    }

    fn run(self: &Arc<Request>, line: &Arc<Line>) -> Result<u8, (u8, String)> {
        let (json, words) = match &self.wanted {
            Wanted::Command { json, words } => (*json, words),
            Wanted::Program(wanted) => {
                let mut command = wanted.prepare(line.program)?;
                if wanted.detached {
                    let pid = programs::detach(&mut command)?;
                    self.tell_started(line, pid);
                    return Ok(0);
                }
                return self.spawn(line, &mut command, wanted.input);
            }
        };
        let (name, arguments) = words.split_first().ok_or((2, "no command".to_string()))?;
        let prepared = commands::prepare(name, arguments, json, line.program)?;
        let (mut command, reads) = match prepared {
            commands::Prepared::Answer(text) => {
                self.pour(line, Kind::STDOUT, text.as_bytes());
                return Ok(0);
            }
            commands::Prepared::Process { command, reads } => (command, reads),
        };
        self.spawn(line, &mut command, reads)
    }

    fn spawn(
        self: &Arc<Request>,
        line: &Arc<Line>,
        command: &mut Command,
        reads: bool,
    ) -> Result<u8, (u8, String)> {
        command.stdin(if reads { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(programs::failed)?;
        if matches!(self.wanted, Wanted::Program(_)) {
            self.tell_started(line, child.id());
        }
        let group = Pid::from_child(&child);
        let is_interrupted = {
            let mut flow = lock(&self.flow);
            flow.group = Some(group);
            flow.interrupted
        };
        if is_interrupted {
            signal(Some(group), Signal::KILL);
        }
        let input = lock(&self.input).take();
        if let (Some(stdin), Some(input)) = (child.stdin.take(), input) {
            // Says that there is a reader at all.
            line.send(&frame(Kind::CREDIT, self.session, self.number, &credit(0)));
            let (request, line) = (self.clone(), line.clone());
            thread::spawn(move || request.feed(&line, stdin, &input));
        }
        let (out, err) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            scope.spawn(|| self.copy(line, Kind::STDOUT, out));
            scope.spawn(|| self.copy(line, Kind::STDERR, err));
        });
        let status = child.wait().map_err(|e| (126, format!("waiting for it: {e}")))?;
        lock(&self.flow).group = None;
        Ok(code(status))
    }

    fn tell_started(&self, line: &Line, pid: u32) {
        line.send(&frame(Kind::STARTED, self.session, self.number, &started(pid)));
    }

    /// Writes the client's input to the command.
    fn feed(&self, line: &Line, mut stdin: ChildStdin, input: &Receiver<Vec<u8>>) {
        for bytes in input {
            if stdin.write_all(&bytes).is_err() {
                return;
            }
            lock(&self.flow).input_room += bytes.len() as u32;
            line.send(&frame(Kind::CREDIT, self.session, self.number, &credit(bytes.len() as u32)));
        }
    }

    /// Sends what the command prints, until it ends or nobody wants it.
    fn copy(&self, line: &Line, kind: Kind, from: Option<impl Read>) {
        let Some(mut from) = from else { return };
        let mut buffer = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if !self.pour(line, kind, &buffer[..length]) {
                return;
            }
        }
    }

    /// Sends output as the client's credit allows; false when it wants no more.
    fn pour(&self, line: &Line, kind: Kind, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let count = {
                let idle = |flow: &mut Flow| flow.credit == 0 && !flow.interrupted;
                let waited = self.changed.wait_while(lock(&self.flow), idle);
                let mut flow = waited.unwrap_or_else(PoisonError::into_inner);
                if flow.abandoned || flow.credit == 0 {
                    return false;
                }
                let count = bytes.len().min(flow.credit as usize);
                flow.credit -= count as u32;
                count
            };
            let (head, tail) = bytes.split_at(count);
            line.send(&frame(kind, self.session, self.number, head));
            bytes = tail;
        }
        true
    }

    fn complain(&self, line: &Line, text: &str) {
        let report = ErrorReport { errno: 0, is_usage: false, subject: b"", text: text.as_bytes() };
        line.send(&frame(Kind::ERROR, self.session, self.number, &report.encode()));
    }
}

/// A group that has ended meanwhile needs no signal.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}

fn code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map(|signal| SIGNALLED + signal);
    status.code().or_else(signalled).unwrap_or_default() as u8
}
