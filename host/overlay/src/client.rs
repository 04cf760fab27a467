// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One session with a machine.

use crate::{LineError, Result, socket};
use abi::Errno;
use overlay_wire::{
    CONTAINERS_SINCE, Container, Decoder, ErrorReport, Exit, Frame, Hello, Kind, MAX_PAYLOAD,
    PRIVILEGES_SINCE, PROGRAMS_SINCE, Program, Refused, Run, Size, VERSION, Welcome, credit, frame,
    read_credit, read_started,
};
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

/// How long a machine may take to greet. Under software emulation and load it takes its time.
const GREETING: Duration = Duration::from_secs(10);

/// A failure that a command reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it is about; may be empty.
    pub subject: String,
    /// `ENOENT`, where there is an error number.
    pub errno: Option<&'static str>,
    pub text: String,
    pub is_usage: bool,
}

/// What a running command says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Out(Vec<u8>),
    Err(Vec<u8>),
    Failure(Failure),
    /// The program runs, under this number of the machine's.
    Started(u32),
    /// The last one.
    Exit(Exit),
    /// The machine or the session ended before the command did; why. The last one.
    Lost(String),
}

struct Pending {
    events: Sender<Event>,
    input: Arc<Credit>,
}

/// How much input may be sent.
struct Room {
    bytes: u32,
    /// The command has asked for input.
    wanted: bool,
}

struct Credit {
    /// `None`: the command has ended.
    room: Mutex<Option<Room>>,
    more: Condvar,
}

enum Greeting {
    Welcome { version: u16, window: u32, kernel: String },
    Refused(String),
}

struct Shared {
    writer: Mutex<UnixStream>,
    pending: Mutex<HashMap<u32, Pending>>,
    pongs: Mutex<Option<Sender<Vec<u8>>>>,
    /// Why there are no answers any more.
    over: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session. Several commands may run in it at once.
pub struct Client {
    shared: Arc<Shared>,
    next: AtomicU32,
    window: u32,
    version: u16,
    kernel: String,
}

impl Client {
    /// Opens a session with the machine whose state directory `folder` is.
    pub fn connect(folder: &Path) -> Result<Client> {
        let unreachable = |source| LineError::Unreachable { path: folder.join(socket::NAME), source };
        let stream = socket::connect(folder).map_err(unreachable)?;
        Client::over(stream)
    }

    /// Opens a session over a stream.
    pub fn over(stream: UnixStream) -> Result<Client> {
        let ended = |_| LineError::Ended;
        let reader = stream.try_clone().map_err(ended)?;
        let shared = Arc::new(Shared {
            writer: Mutex::new(stream),
            pending: Mutex::new(HashMap::new()),
            pongs: Mutex::new(None),
            over: Mutex::new(None),
        });
        let (greet, greeting) = channel();
        let listener = shared.clone();
        thread::spawn(move || listener.listen(reader, &greet));
        let hello = Hello { lowest: 1, highest: VERSION, client: b"unilith" }.encode();
        shared.send(&frame(Kind::HELLO, 0, 0, &hello))?;
        match greeting.recv_timeout(GREETING) {
            Ok(Greeting::Welcome { version, window, kernel }) => {
                Ok(Client { shared, next: AtomicU32::new(1), window, version, kernel })
            }
            Ok(Greeting::Refused(text)) => Err(LineError::Refused(text)),
            Err(RecvTimeoutError::Timeout) => {
                shared.hang_up();
                Err(LineError::Silent)
            }
            Err(RecvTimeoutError::Disconnected) => Err(LineError::Ended),
        }
    }

    /// The version of the protocol that is spoken.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Whether the machine says [`Event::Started`] of programs. One that was made by an older release does not, and gives a program the
    /// privileges of its first process whatever [`Program::privileges`] says.
    pub fn tells_starts(&self) -> bool {
        self.version >= PRIVILEGES_SINCE
    }

    /// What runs there.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Starts a command: its name and arguments. `columns` is the width of the terminal, 0 without one.
    pub fn start(&self, arguments: &[impl AsRef<[u8]>], json: bool, columns: u16) -> Result<Running> {
        let arguments: Vec<&[u8]> = arguments.iter().map(AsRef::as_ref).collect();
        if arguments.len() > Run::MAX_ARGUMENTS as usize {
            return Err(LineError::TooMany(Run::MAX_ARGUMENTS));
        }
        self.ask(Kind::RUN, &Run { json, columns, arguments }.encode())
    }

    /// Starts a program of the machine's image as a process of its own, as `docker exec` does. It ends as a command does: its
    /// exit code, or 128 and the number of the signal that ended it, is in [`Event::Exit`]; 127 with an [`Event::Failure`]
    /// says that the image has no such program, 126 that it cannot run. When the client goes, the program is sent SIGHUP.
    pub fn program(&self, program: &Program<'_>) -> Result<Running> {
        if self.version < PROGRAMS_SINCE {
            return Err(LineError::NoPrograms);
        }
        if !program.container.is_empty() && self.version < CONTAINERS_SINCE {
            return Err(LineError::NoContainers);
        }
        let words = program.arguments.len().max(program.environment.len());
        if words > Run::MAX_ARGUMENTS as usize {
            return Err(LineError::TooMany(Run::MAX_ARGUMENTS));
        }
        self.ask(Kind::PROGRAM, &program.encode())
    }

    /// Starts a container. [`Event::Started`] says that its program runs; what follows is as for [`Client::program`], but that the
    /// end is that of all processes of the container, which are killed when the client goes. [`How::Killed`] says that the kernel
    /// ended it for want of memory.
    ///
    /// [`How::Killed`]: overlay_wire::How::Killed
    pub fn container(&self, container: &Container<'_>) -> Result<Running> {
        if self.version < CONTAINERS_SINCE {
            return Err(LineError::NoContainers);
        }
        let program = &container.program;
        let words = program.arguments.len().max(program.environment.len());
        if words > Run::MAX_ARGUMENTS as usize {
            return Err(LineError::TooMany(Run::MAX_ARGUMENTS));
        }
        self.ask(Kind::CONTAINER, &container.encode())
    }

    fn ask(&self, kind: Kind, payload: &[u8]) -> Result<Running> {
        if payload.len() > MAX_PAYLOAD {
            return Err(LineError::TooLong(payload.len(), MAX_PAYLOAD));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, events) = channel();
        let input = Arc::new(Credit {
            room: Mutex::new(Some(Room { bytes: self.window, wanted: false })),
            more: Condvar::new(),
        });
        lock(&self.shared.pending).insert(number, Pending { events: send, input: input.clone() });
        self.shared.send(&frame(kind, 0, number, payload))?;
        let input = Input { shared: self.shared.clone(), number, credit: input };
        Ok(Running { events, input, read: AtomicU32::new(0), piece: self.window / 4 })
    }

    /// Runs a command without input to its end and collects what it says.
    pub fn run(&self, arguments: &[impl AsRef<[u8]>], json: bool) -> Result<Answer> {
        let running = self.start(arguments, json, 0)?;
        running.input().end()?;
        running.answer()
    }

    /// Sends bytes that come straight back; one at a time.
    pub fn ping(&self, payload: &[u8]) -> Result<Vec<u8>> {
        let (send, pong) = channel();
        *lock(&self.shared.pongs) = Some(send);
        self.shared.send(&frame(Kind::PING, 0, 0, &payload[..payload.len().min(MAX_PAYLOAD)]))?;
        pong.recv_timeout(GREETING).map_err(|_| LineError::Ended)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.hang_up();
    }
}

/// What a command said, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub code: u8,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub failures: Vec<Failure>,
}

impl Shared {
    fn send(&self, bytes: &[u8]) -> Result<()> {
        lock(&self.writer).write_all(bytes).map_err(|_| match lock(&self.over).take() {
            Some(text) => LineError::Refused(text),
            None => LineError::Ended,
        })
    }

    fn hang_up(&self) {
        // It may be closed already.
        let _ = lock(&self.writer).shutdown(Shutdown::Both);
    }

    /// Hands what comes to those who wait for it, until the stream ends.
    fn listen(&self, mut reader: UnixStream, greet: &Sender<Greeting>) {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; MAX_PAYLOAD];
        while let Ok(length) = reader.read(&mut buffer) {
            if length == 0 {
                break;
            }
            decoder.feed(&buffer[..length], |frame| self.heed(frame, greet));
        }
        let why = lock(&self.over).clone().unwrap_or_else(|| "the machine ended".into());
        for (_, pending) in std::mem::take(&mut *lock(&self.pending)) {
            pending.input.close();
            let _ = pending.events.send(Event::Lost(why.clone()));
        }
        *lock(&self.pongs) = None;
    }

    fn heed(&self, frame: Frame<'_>, greet: &Sender<Greeting>) {
        let Frame { kind, request, payload, .. } = frame;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // Who waited may have given up.
        match kind {
            Kind::WELCOME => {
                if let Ok(w) = Welcome::decode(payload) {
                    let _ = greet.send(Greeting::Welcome {
                        version: w.version,
                        window: w.window,
                        kernel: text(w.kernel),
                    });
                }
            }
            Kind::REFUSED => {
                let why =
                    Refused::decode(payload).map_or_else(|_| "for no known reason".into(), |r| text(r.text));
                *lock(&self.over) = Some(why.clone());
                let _ = greet.send(Greeting::Refused(why));
                self.hang_up();
            }
            Kind::PONG => {
                if let Some(pong) = lock(&self.pongs).take() {
                    let _ = pong.send(payload.to_vec());
                }
            }
            Kind::CREDIT => {
                if let (Some(pending), Ok(bytes)) = (lock(&self.pending).get(&request), read_credit(payload))
                {
                    pending.input.add(bytes);
                }
            }
            Kind::EXIT => {
                let Some(pending) = lock(&self.pending).remove(&request) else { return };
                let event = match Exit::decode(payload) {
                    Ok(exit) => Event::Exit(exit),
                    Err(_) => Event::Lost("the machine's answer is malformed".into()),
                };
                // Before who waits for input is woken, who would only wait for this then.
                let _ = pending.events.send(event);
                pending.input.close();
            }
            Kind::STARTED => {
                if let Ok(pid) = read_started(payload) {
                    self.pass(request, Event::Started(pid));
                }
            }
            Kind::STDOUT => self.pass(request, Event::Out(payload.to_vec())),
            Kind::STDERR => self.pass(request, Event::Err(payload.to_vec())),
            Kind::ERROR => {
                if let Ok(report) = ErrorReport::decode(payload) {
                    self.pass(
                        request,
                        Event::Failure(Failure {
                            subject: text(report.subject),
                            errno: Errno(report.errno).name(),
                            text: text(report.text),
                            is_usage: report.is_usage,
                        }),
                    );
                }
            }
            _ => {}
        }
    }

    fn pass(&self, request: u32, event: Event) {
        if let Some(pending) = lock(&self.pending).get(&request) {
            let _ = pending.events.send(event);
        }
    }
}

impl Credit {
    fn add(&self, bytes: u32) {
        if let Some(room) = &mut *lock(&self.room) {
            room.bytes = room.bytes.saturating_add(bytes);
            room.wanted = true;
        }
        self.more.notify_all();
    }

    fn close(&self) {
        *lock(&self.room) = None;
        self.more.notify_all();
    }

    /// Waits until the command asks for input; false when it has ended.
    fn wait(&self) -> bool {
        let room = lock(&self.room);
        let idle = |room: &mut Option<Room>| room.as_ref().is_some_and(|room| !room.wanted);
        self.more.wait_while(room, idle).unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes up to `most`; waits for some. 0 when the command has ended.
    fn take(&self, most: usize) -> usize {
        let full = |room: &mut Option<Room>| room.as_ref().is_some_and(|room| room.bytes == 0);
        let mut room = self.more.wait_while(lock(&self.room), full).unwrap_or_else(PoisonError::into_inner);
        room.as_mut().map_or(0, |room| {
            let taken = (room.bytes as usize).min(most);
            room.bytes -= taken as u32;
            taken
        })
    }
}

/// A command that runs.
pub struct Running {
    events: Receiver<Event>,
    input: Input,
    /// Bytes of output that were read and not given back as credit.
    read: AtomicU32,
    piece: u32,
}

impl Running {
    /// What it says next.
    pub fn next(&self) -> Event {
        let event = self.events.recv().unwrap_or_else(|_| Event::Lost("the machine ended".into()));
        if let Event::Out(bytes) | Event::Err(bytes) = &event {
            let read = self.read.load(Ordering::Relaxed) + bytes.len() as u32;
            if read >= self.piece {
                self.read.store(0, Ordering::Relaxed);
                // A line that is gone shows in the next event.
                let _ = self.input.shared.send(&frame(Kind::CREDIT, 0, self.input.number, &credit(read)));
            } else {
                self.read.store(read, Ordering::Relaxed);
            }
        }
        event
    }

    /// Everything it says from now on, to its end.
    pub fn answer(&self) -> Result<Answer> {
        let mut answer = Answer::default();
        loop {
            match self.next() {
                Event::Out(bytes) => answer.out.extend(bytes),
                Event::Err(bytes) => answer.err.extend(bytes),
                Event::Failure(failure) => answer.failures.push(failure),
                Event::Started(_) => {}
                Event::Exit(exit) => {
                    answer.code = exit.code;
                    return Ok(answer);
                }
                Event::Lost(_) => return Err(LineError::Ended),
            }
        }
    }

    /// Its standard input, and what else it can be told.
    pub fn input(&self) -> Input {
        self.input.clone()
    }
}

/// What a command can be told while it runs.
#[derive(Clone)]
pub struct Input {
    shared: Arc<Shared>,
    number: u32,
    credit: Arc<Credit>,
}

impl Input {
    /// Waits until the command asks for input; `false` when it has ended without.
    pub fn wanted(&self) -> bool {
        self.credit.wait()
    }

    /// Sends input; waits while the command does not read. `false` when it has ended.
    pub fn write(&self, mut bytes: &[u8]) -> Result<bool> {
        while !bytes.is_empty() {
            let count = self.credit.take(bytes.len().min(MAX_PAYLOAD));
            if count == 0 {
                return Ok(false);
            }
            let (head, tail) = bytes.split_at(count);
            self.shared.send(&frame(Kind::STDIN, 0, self.number, head))?;
            bytes = tail;
        }
        Ok(true)
    }

    /// There is no more input.
    pub fn end(&self) -> Result<()> {
        self.shared.send(&frame(Kind::STDIN_END, 0, self.number, b""))
    }

    /// The client's terminal has another size.
    pub fn resize(&self, size: Size) -> Result<()> {
        self.shared.send(&frame(Kind::RESIZE, 0, self.number, &size.encode()))
    }

    /// Asks the command to end; a program without a terminal gets SIGINT.
    pub fn interrupt(&self) -> Result<()> {
        self.shared.send(&frame(Kind::INTERRUPT, 0, self.number, b""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overlay_wire::How;

    /// A machine that answers each frame with what `answer` says.
    fn machine(mut answer: impl FnMut(Frame<'_>) -> Vec<u8> + Send + 'static) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let (mut decoder, mut buffer) = (Decoder::new(), vec![0; 4096]);
            while let Ok(n @ 1..) = theirs.read(&mut buffer) {
                let mut out = Vec::new();
                decoder.feed(&buffer[..n], |f| out.extend(answer(f)));
                if theirs.write_all(&out).is_err() {
                    return;
                }
            }
        });
        ours
    }

    fn welcome() -> Vec<u8> {
        let w = Welcome { version: 1, requests: 4, payload: 9, window: 8, kernel: b"test" };
        frame(Kind::WELCOME, 0, 0, &w.encode())
    }

    #[test]
    fn streams_failures_and_the_end_of_a_command_arrive_in_order() {
        let stream = machine(|f| match f.kind {
            Kind::HELLO => welcome(),
            Kind::RUN => {
                let run = Run::decode(f.payload).unwrap();
                assert!(run.json && run.arguments == [b"cat".as_slice(), b"a b"]);
                let report =
                    ErrorReport { errno: 2, is_usage: false, subject: b"a b", text: b"No such file" };
                let exit = Exit { code: 3, how: How::Ended }.encode();
                [
                    frame(Kind::STDOUT, 0, f.request, b"out"),
                    frame(Kind::STDERR, 0, f.request, b"err"),
                    frame(Kind::ERROR, 0, f.request, &report.encode()),
                    frame(Kind::EXIT, 0, f.request, &exit),
                ]
                .concat()
            }
            _ => Vec::new(),
        });
        let client = Client::over(stream).unwrap();
        assert_eq!(client.kernel(), "test");
        let answer = client.run(&["cat", "a b"], true).unwrap();
        assert_eq!((answer.code, answer.out, answer.err), (3, b"out".to_vec(), b"err".to_vec()));
        assert_eq!(answer.failures[0].errno, Some("ENOENT"));
    }

    #[test]
    fn a_program_travels_with_its_terminal_and_an_older_machine_is_not_asked() {
        let speaking = |version| {
            machine(move |f| match f.kind {
                Kind::HELLO => {
                    let w = Welcome { version, requests: 4, payload: 9, window: 8, kernel: b"test" };
                    frame(Kind::WELCOME, 0, 0, &w.encode())
                }
                Kind::PROGRAM => {
                    let program = Program::decode(f.payload).unwrap();
                    frame(Kind::STDOUT, 0, f.request, program.arguments[0])
                }
                Kind::RESIZE => {
                    let columns = Size::decode(f.payload).unwrap().columns as u8;
                    frame(Kind::EXIT, 0, f.request, &Exit { code: columns, how: How::Ended }.encode())
                }
                _ => Vec::new(),
            })
        };
        let program = Program { arguments: vec![b"/bin/sh"], ..Program::default() };
        let old = Client::over(speaking(1)).unwrap();
        assert!(matches!(old.program(&program), Err(LineError::NoPrograms)));
        let client = Client::over(speaking(2)).unwrap();
        let running = client.program(&program).unwrap();
        assert_eq!(running.next(), Event::Out(b"/bin/sh".to_vec()));
        running.input().resize(Size { columns: 132, rows: 50 }).unwrap();
        assert_eq!(running.next(), Event::Exit(Exit { code: 132, how: How::Ended }));
    }

    #[test]
    fn input_waits_for_credit_and_ends_with_the_command() {
        let mut got = 0;
        let stream = machine(move |f| match f.kind {
            Kind::HELLO => welcome(),
            Kind::STDIN => {
                assert!(f.payload.len() <= 8);
                got += f.payload.len();
                match got {
                    24 => frame(Kind::EXIT, 0, f.request, &Exit { code: 0, how: How::Ended }.encode()),
                    _ => frame(Kind::CREDIT, 0, f.request, &credit(f.payload.len() as u32)),
                }
            }
            _ => Vec::new(),
        });
        let client = Client::over(stream).unwrap();
        let running = client.start(&["cat"], false, 80).unwrap();
        assert!(!running.input().write(&[0; 100]).unwrap());
        assert!(matches!(running.next(), Event::Exit(_)));
    }

    #[test]
    fn refusals_long_lines_and_lost_machines_are_errors() {
        let refused = Refused { code: Refused::CROWDED, text: b"full" }.encode();
        let stream = machine(move |_| frame(Kind::REFUSED, 0, 0, &refused));
        assert!(matches!(Client::over(stream), Err(LineError::Refused(text)) if text == "full"));
        let client =
            Client::over(machine(|f| if f.kind == Kind::HELLO { welcome() } else { Vec::new() })).unwrap();
        let long = vec![b'x'; 1 << 20];
        assert!(matches!(client.start(&[&long], false, 0), Err(LineError::TooLong(..))));
        let running = client.start(&["x"], false, 0).unwrap();
        client.shared.hang_up();
        assert!(matches!(running.next(), Event::Lost(_)));
    }

    #[test]
    fn whatever_a_machine_answers_the_client_goes_on() {
        let mut seed: u64 = 7;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u8
        };
        let rounds = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(300, |n| n.parse().unwrap());
        let stream = machine(move |f| match f.kind {
            Kind::HELLO => welcome(),
            Kind::RUN => {
                let payload: Vec<u8> = (0..random() % 40).map(|_| random()).collect();
                let mut bytes = frame(Kind(0x80 | (random() % 12)), 0, f.request, &payload);
                if random() % 4 == 0 {
                    let at = usize::from(random()) % bytes.len();
                    bytes[at] = random();
                }
                // The connection stays: a refusal would end the session.
                if bytes[4] == Kind::REFUSED.0 {
                    bytes.clear();
                }
                bytes.extend(frame(Kind::EXIT, 0, f.request, &[0, 0]));
                bytes
            }
            _ => Vec::new(),
        });
        let client = Client::over(stream).unwrap();
        for _ in 0..rounds {
            let running = client.start(&["x"], false, 0).unwrap();
            // A payload that swallows the end is followed by the next command's frames.
            while !matches!(
                running.events.recv_timeout(Duration::from_millis(300)),
                Ok(Event::Exit(_) | Event::Lost(_)) | Err(_)
            ) {}
        }
    }
}
