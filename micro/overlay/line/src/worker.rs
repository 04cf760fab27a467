// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that run commands, and what a command sees of its client.

use crate::requests::{Request, Wanted};
use crate::{BUDGET_NS, Line, Registration};
use abi::Events;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_overlay::{Command, Failure, News, Outcome, Remote, Session, Stop, Stream};
use api_sched::WaitQueue;
use core::cell::{Cell, RefCell};
use overlay_wire::{Container, ErrorReport, Exit, How, Kind, Program, credit, put_frame, started};

/// Output is collected up to this many bytes.
const COLLECT: usize = 16 << 10;
/// Credit for input is given back in pieces of at least this many bytes.
const CREDIT_PIECE: usize = 16 << 10;
/// Threads that stay for the next command.
const SPARE: usize = 1;

struct Job {
    line: Arc<Line>,
    request: Arc<Request>,
}

#[derive(Default)]
struct Pool {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: Vec<Arc<sched::Thread>>,
}

static POOL: SpinLock<Pool> = SpinLock::new(Pool { jobs: VecDeque::new(), idle: Vec::new() });

/// Runs the command on a thread of its own.
pub(crate) fn start(line: &Arc<Line>, request: Arc<Request>) {
    let idle = {
        let mut pool = POOL.lock();
        pool.jobs.push_back(Job { line: line.clone(), request: request.clone() });
        pool.idle.pop()
    };
    match idle.map_or_else(|| sched::spawn(false, sched::Start::Kernel(work)), Ok) {
        Ok(thread) => sched::unpark(&thread),
        Err(e) => {
            POOL.lock().jobs.retain(|job| !Arc::ptr_eq(&job.request, &request));
            let failure = Failure::new("").because("there is no room for another thread").errno(e);
            let client = Client::new(line.clone(), request);
            client.end(Err(failure.code(Failure::REFUSED)), None);
        }
    }
}

/// What such a thread does: jobs until there is none and another thread waits already.
fn work() {
    loop {
        let job = {
            let mut pool = POOL.lock();
            match pool.jobs.pop_front() {
                Some(job) => job,
                None if pool.idle.len() >= SPARE => return,
                None => {
                    pool.idle.push(sched::current_handle());
                    drop(pool);
                    sched::park(u64::MAX);
                    // Woken for another reason than a job: it is not idle twice.
                    let mut pool = POOL.lock();
                    pool.idle.retain(|thread| thread.index != sched::current().index);
                    continue;
                }
            }
        };
        let client = Client::new(job.line, job.request);
        let (outcome, command) = client.run();
        client.end(outcome, command);
    }
}

/// The client of a running command.
struct Client {
    line: Arc<Line>,
    request: Arc<Request>,
    /// Output that was not sent yet.
    output: RefCell<(Stream, Vec<u8>)>,
    /// Input that was read and not given back as credit.
    read: Cell<usize>,
    /// The client knows that input is wanted.
    asked: Cell<bool>,
    /// Since when this command has the processor.
    since: Cell<u64>,
}

impl Client {
    fn new(line: Arc<Line>, request: Arc<Request>) -> Client {
        let since = Cell::new(api_plat::now_ns());
        let output = RefCell::new((Stream::Out, Vec::new()));
        Client { line, request, output, read: Cell::new(0), asked: Cell::new(false), since }
    }

    fn run(&self) -> (Outcome, Option<&'static Command>) {
        let mut container = None;
        let (program, arguments) = match &self.request.wanted {
            Wanted::Program(payload) => (Program::decode(payload).ok(), Vec::new()),
            Wanted::Container(payload) => {
                container = Container::decode(payload).ok();
                (None, Vec::new())
            }
            Wanted::Command { arguments, .. } => {
                (None, arguments.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>())
            }
        };
        let command = arguments.first().and_then(|name| api_overlay::find(name));
        // A word that is no command may be a program of the image.
        let program = match command {
            Some(_) => None,
            None => Some(program.unwrap_or(Program { arguments: arguments.clone(), ..Program::default() })),
        };
        // What the thread needs for the command's time.
        let identity = match (self.line.setup.enter)() {
            Ok(identity) => identity,
            Err(text) => return (Err(Failure::new("").because(text).code(Failure::REFUSED)), None),
        };
        if let Err(e) = api_plat::load_tools() {
            let failure =
                Failure::new("").because("the host does not hand the overlay's commands over").errno(e);
            return (Err(failure.code(Failure::REFUSED)), None);
        }
        let outcome = match (command, program) {
            _ if let Some(container) = &container => (self.line.setup.container)(self, container),
            (Some(command), _) => (command.run)(self, &arguments[1..]),
            (None, Some(program)) => (self.line.setup.program)(self, &program),
            (None, None) => Err(Failure::usage("no command")),
        };
        drop(identity);
        (outcome, command)
    }

    /// Tells the client how it ended. The last output, the failure and the end travel together.
    fn end(&self, outcome: Outcome, command: Option<&Command>) {
        let mut last = Vec::new();
        let rest = self.output.borrow().1.len();
        if self.request.credit() >= rest {
            self.take_output(&mut last, rest);
        } else {
            // Output for a client that does not wait for it is dropped.
            let _ = self.flush();
        }
        let exit = match outcome {
            Ok(code) => Exit { code, how: How::Ended },
            Err(failure) if failure.is_stop => Exit { code: failure.code, how: How::Interrupted },
            Err(mut failure) => {
                if let (true, Some(command)) = (failure.is_usage, command) {
                    let usage = format!("{} (usage: {} {})", failure.text, command.name, command.arguments);
                    failure.text = usage.into();
                }
                self.put_failure(&mut last, &failure);
                let killed = failure.code > 128;
                Exit { code: failure.code, how: if killed { How::Killed } else { How::Ended } }
            }
        };
        self.put(&mut last, Kind::EXIT, &exit.encode());
        // The number is free when the client reads of the end.
        self.line.books.lock().remove(&self.request);
        if !self.request.is_abandoned() {
            self.line.send(last);
        }
    }

    fn put(&self, out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
        put_frame(out, kind, self.request.session, self.request.number, payload);
    }

    fn put_failure(&self, out: &mut Vec<u8>, failure: &Failure) {
        // Longer than any path and sentence.
        let cut = |text: &str| text.as_bytes()[..text.len().min(COLLECT)].to_vec();
        let (subject, text) = (cut(&failure.subject), cut(&failure.text));
        let errno = failure.errno.map_or(0, |e| e.0);
        let report = ErrorReport { errno, is_usage: failure.is_usage, subject: &subject, text: &text };
        self.put(out, Kind::ERROR, &report.encode());
    }

    /// Waits for credit: how many bytes, of `most`, may be sent.
    fn await_credit(&self, most: usize) -> Result<usize, Stop> {
        if self.request.credit() > 0 && !self.request.is_abandoned() {
            return Ok(self.request.credit().min(most));
        }
        let _registration = Registration::new(self.request.changed(), Events::OUT);
        loop {
            let credit = self.request.credit();
            if credit > 0 && !self.request.is_abandoned() {
                return Ok(credit.min(most));
            }
            // A client that does not read may still interrupt.
            if self.request.is_interrupted() {
                return Err(Stop);
            }
            api_sched::park(u64::MAX);
        }
    }

    /// Moves `count` bytes of the collected output into a frame; there is credit for them.
    fn take_output(&self, out: &mut Vec<u8>, count: usize) {
        let mut output = self.output.borrow_mut();
        let (stream, bytes) = &mut *output;
        if count > 0 {
            self.request.use_credit(count);
            self.put(out, kind_of(*stream), &bytes[..count]);
            bytes.drain(..count);
        }
    }

    fn give_back(&self) {
        let mut frame = Vec::new();
        self.put(&mut frame, Kind::CREDIT, &credit(self.read.take() as u32));
        self.line.send(frame);
    }
}

fn kind_of(stream: Stream) -> Kind {
    match stream {
        Stream::Out => Kind::STDOUT,
        Stream::Err => Kind::STDERR,
    }
}

impl Session for Client {
    fn write(&self, stream: Stream, mut bytes: &[u8]) -> Result<(), Stop> {
        if self.output.borrow().0 != stream {
            self.flush()?;
            self.output.borrow_mut().0 = stream;
        }
        while !bytes.is_empty() {
            let room = COLLECT - self.output.borrow().1.len().min(COLLECT);
            let (head, tail) = bytes.split_at(room.min(bytes.len()));
            self.output.borrow_mut().1.extend_from_slice(head);
            bytes = tail;
            if !bytes.is_empty() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn read(&self, to: &mut [u8]) -> Result<usize, Stop> {
        self.flush()?;
        let _registration = Registration::new(self.request.changed(), Events::IN);
        loop {
            if self.request.is_interrupted() {
                return Err(Stop);
            }
            if let Some(count) = self.request.take_input(to) {
                self.read.set(self.read.get() + count);
                if self.read.get() >= CREDIT_PIECE {
                    self.give_back();
                }
                return Ok(count);
            }
            // Whoever waits for input has read all of it: the client may send that much again. The first time says that
            // there is a reader at all, so that clients do not take input from others who want it.
            if self.read.get() > 0 || !self.asked.replace(true) {
                self.give_back();
                // Sending may have slept, and so taken the wake-up that was for this.
                continue;
            }
            api_sched::park(u64::MAX);
            self.since.set(api_plat::now_ns());
        }
    }

    fn flush(&self) -> Result<(), Stop> {
        loop {
            let rest = self.output.borrow().1.len();
            if rest == 0 {
                return Ok(());
            }
            let count = self.await_credit(rest)?;
            let mut frame = Vec::with_capacity(overlay_wire::HEADER + count);
            self.take_output(&mut frame, count);
            self.line.send(frame);
        }
    }

    fn fail(&self, failure: &Failure) -> Result<(), Stop> {
        self.flush()?;
        let mut frame = Vec::new();
        self.put_failure(&mut frame, failure);
        self.line.send(frame);
        self.checkpoint()
    }

    fn checkpoint(&self) -> Result<(), Stop> {
        if api_plat::now_ns().saturating_sub(self.since.get()) > BUDGET_NS {
            sched::yield_now();
            self.since.set(api_plat::now_ns());
        }
        if self.request.is_interrupted() { Err(Stop) } else { Ok(()) }
    }

    fn sleep(&self, deadline_ns: u64) -> Result<(), Stop> {
        let sent = !self.output.borrow().1.is_empty();
        self.flush()?;
        let _registration = Registration::new(self.request.changed(), Events::IN);
        if self.request.is_interrupted() {
            return Err(Stop);
        }
        // Sending may have slept, and so taken the wake-up that the caller waits for: it looks first.
        if !sent {
            api_sched::park(deadline_ns);
        }
        self.since.set(api_plat::now_ns());
        if self.request.is_interrupted() { Err(Stop) } else { Ok(()) }
    }

    fn json(&self) -> bool {
        matches!(self.request.wanted, Wanted::Command { json: true, .. })
    }

    fn columns(&self) -> usize {
        match self.request.wanted {
            Wanted::Command { columns, .. } => columns,
            Wanted::Program(_) | Wanted::Container(_) => 0,
        }
    }
}

impl Remote for Client {
    fn room(&self) -> usize {
        if self.request.is_abandoned() { 0 } else { self.request.credit().min(overlay_wire::MAX_PAYLOAD) }
    }

    fn send(&self, stream: Stream, bytes: &[u8]) {
        self.request.use_credit(bytes.len());
        let mut frame = Vec::with_capacity(overlay_wire::HEADER + bytes.len());
        self.put(&mut frame, kind_of(stream), bytes);
        self.line.send(frame);
    }

    fn input(&self, to: &mut [u8]) -> Option<usize> {
        let taken = self.request.take_input(to);
        self.read.set(self.read.get() + taken.unwrap_or(0));
        // The first credit, of nothing, says that there is a reader at all.
        let is_due = match taken {
            None => self.read.get() > 0 || !self.asked.replace(true),
            Some(_) => self.read.get() >= CREDIT_PIECE,
        };
        if is_due {
            self.give_back();
        }
        taken
    }

    fn started(&self, pid: u32) {
        let mut frame = Vec::new();
        self.put(&mut frame, Kind::STARTED, &started(pid));
        self.line.send(frame);
    }

    fn news(&self) -> News {
        self.request.take_news()
    }

    fn changed(&self) -> &WaitQueue {
        self.request.changed()
    }

    fn give_way(&self) {
        if api_plat::now_ns().saturating_sub(self.since.get()) > BUDGET_NS {
            sched::yield_now();
            self.since.set(api_plat::now_ns());
        }
    }
}
