// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine sends: its console, its status lines, the messages of its process. Each has a thread that reads it and
//! stops reading while nobody takes what was read, so that a machine that sends much waits and the supervisor does not grow.

use crate::{
    console_log::ConsoleLog,
    lines::{Lines, printable},
    turns::Turns,
};
use api_boot::{OutputDecoder, Status, Stream};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, recv},
    process::WaitIdStatus,
};
use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Instant,
};

/// Messages that may wait for the supervisor. The largest holds a line.
const MAX_WAITING: usize = 64;
/// Bytes of the process' own messages that are kept.
const MAX_COMPLAINT: u64 = 64 << 10;
/// Bytes of the console read at once.
const PIECE: usize = 8192;

/// What can happen to a machine.
pub enum Message {
    /// The machine has printed or reported something for the first time.
    Spoke,
    /// The text that says that the program is ready was printed.
    Printed,
    /// A report, and when it came: what is done with others may take longer than the machine's start.
    Status(Status, Instant),
    /// A line that is no report.
    Unknown(String),
    /// The process' own messages, all of them.
    Complaint(String),
    Signal(i32),
    /// How the process ended, where that is known.
    Exited(Option<WaitIdStatus>),
    /// Console, status lines and messages have ended, and all of them was taken.
    Drained,
}

/// The way to the supervisor.
pub type Messages = SyncSender<Message>;

pub fn messages() -> (Messages, Receiver<Message>) {
    sync_channel(MAX_WAITING)
}

/// Takes a part of what the program or the kernel printed.
pub type ConsoleSink = Box<dyn FnMut(Stream, &[u8]) + Send>;
/// Takes a line of the kernel's log.
pub type LogSink = Box<dyn FnMut(&str) + Send>;

/// Where output goes besides the log. Either may block; only the machine waits for it.
pub struct Sinks {
    pub console: ConsoleSink,
    pub log: LogSink,
}

impl Sinks {
    /// Nobody looks.
    pub fn none() -> Sinks {
        Sinks { console: Box::new(|_, _| {}), log: Box::new(|_| {}) }
    }
}

/// All that a machine sends.
pub struct Sources {
    pub console: UnixStream,
    /// What the program prints after all that the console brought before the first of it.
    pub output: Option<UnixStream>,
    /// Standard error is marked on the console.
    pub own_error: bool,
    pub status: UnixStream,
    pub messages: Option<Box<dyn Read + Send>>,
}

/// Reads everything that comes from a machine, keeps it in `log` and passes it on. `wanted`: the text whose appearance on
/// the console is to be told.
pub fn watch(
    send: &Messages,
    sources: Sources,
    waiter: impl FnOnce() -> Option<WaitIdStatus> + Send + 'static,
    sinks: Sinks,
    log: ConsoleLog,
    wanted: Option<String>,
) {
    let Sources { console, output, own_error, status, messages } = sources;
    let Sinks { console: console_sink, log: log_sink } = sinks;
    let printer = Arc::new(Printer { log: Mutex::new(log), turns: Turns::default() });
    let to = send.clone();
    thread::spawn(move || {
        // Nobody waits for it any more where that fails; so below.
        let _ = to.send(Message::Exited(waiter()));
    });
    let (to, of_log) = (send.clone(), printer.clone());
    let status = thread::spawn(move || read_status(status, &to, &of_log, log_sink));
    let to = send.clone();
    let complaint = thread::spawn(move || read_complaint(messages, &to));
    let to = send.clone();
    thread::spawn(move || {
        let decoder = own_error.then(OutputDecoder::default);
        read_console(
            Printed { console: Some(console), output, has_moved: false },
            decoder,
            &to,
            &printer,
            console_sink,
            wanted,
        );
        printer.turns.end();
        // A thread that panicked has ended as well.
        let _ = (status.join(), complaint.join());
        let _ = to.send(Message::Drained);
    });
}

/// What the console and the kernel's log share.
struct Printer {
    log: Mutex<ConsoleLog>,
    turns: Turns,
}

impl Printer {
    fn keep(&self, stream: Stream, bytes: &[u8]) {
        // A panic of one thread must not take the log from the others.
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write(stream, bytes);
    }
}

/// What a machine prints by two ways. It goes the second one when all that went the first has arrived, so that what is there of the
/// first when something comes by the second is before it. Later only a kernel that crashes comes back to the first, when all that
/// went the second has arrived.
struct Printed {
    /// `None`: ended.
    console: Option<UnixStream>,
    output: Option<UnixStream>,
    /// Something has come by the second.
    has_moved: bool,
}

impl Printed {
    /// Waits for bytes; 0: both ways have ended.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (Some(console), Some(output)) = (&self.console, &self.output) else {
                let last = self.console.as_mut().or(self.output.as_mut());
                return last.map_or(Ok(0), |last| last.read(buffer));
            };
            let mut both = [PollFd::new(output, PollFlags::IN), PollFd::new(console, PollFlags::IN)];
            match poll(&mut both, None) {
                Err(Errno::INTR) => continue,
                done => done?,
            };
            let [has_output, has_console] = both.map(|one| !one.revents().is_empty());
            // Whatever is found in the later stream was sent after everything in the earlier one, so the earlier one is read first.
            let (earlier, later, has_later) = match self.has_moved {
                true => (&mut self.output, &mut self.console, has_console),
                false => (&mut self.console, &mut self.output, has_output),
            };
            let mut length = take(earlier, buffer)?;
            if length == 0 && has_later {
                length = take(later, buffer)?;
                self.has_moved |= length > 0;
            }
            if length > 0 {
                return Ok(length);
            }
        }
    }
}

/// Takes what is there of a stream, which is `None` when it has ended; 0: nothing.
fn take(way: &mut Option<UnixStream>, buffer: &mut [u8]) -> io::Result<usize> {
    let Some(stream) = way else { return Ok(0) };
    loop {
        match recv(&*stream, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                *way = None;
                return Ok(0);
            }
            Ok((length, _)) => return Ok(length),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn read_console(
    mut printed: Printed,
    mut decoder: Option<OutputDecoder>,
    to: &Messages,
    printer: &Printer,
    mut sink: impl FnMut(Stream, &[u8]),
    wanted: Option<String>,
) {
    let mut search = wanted.map(Search::new);
    let mut buffer = [0; PIECE];
    let mut has_spoken = false;
    while let Ok(length) = printed.read(&mut buffer) {
        if length == 0 {
            return;
        }
        if !std::mem::replace(&mut has_spoken, true) && to.send(Message::Spoke).is_err() {
            return;
        }
        let bytes = &buffer[..length];
        let mut is_found = false;
        let mut take = |stream: Stream, bytes: &[u8]| {
            printer.turns.print(bytes, |bytes| {
                printer.keep(stream, bytes);
                sink(stream, bytes);
            });
            is_found |= search.as_mut().is_some_and(|search| search.finds(bytes));
        };
        match &mut decoder {
            Some(decoder) => decoder.push(bytes, take),
            None => take(Stream::Output, bytes),
        }
        if is_found {
            search = None;
            if to.send(Message::Printed).is_err() {
                return;
            }
        }
    }
}

fn read_status(status: UnixStream, to: &Messages, printer: &Printer, mut sink: impl FnMut(&str)) {
    let mut has_spoken = false;
    for line in Lines::new(status) {
        let came = Instant::now();
        if !std::mem::replace(&mut has_spoken, true) && to.send(Message::Spoke).is_err() {
            return;
        }
        let message = match Status::parse(&printable(&line)) {
            Some(Status::Log { text }) => {
                printer.turns.log(|| {
                    printer.keep(Stream::Error, format!("{text}\n").as_bytes());
                    sink(&text);
                });
                continue;
            }
            Some(status) => Message::Status(status, came),
            None => Message::Unknown(printable(&line)),
        };
        if to.send(message).is_err() {
            return;
        }
    }
}

fn read_complaint(messages: Option<Box<dyn Read + Send>>, to: &Messages) {
    let mut text = Vec::new();
    if let Some(mut messages) = messages {
        // What was read until an error is all there is.
        let _ = messages.by_ref().take(MAX_COMPLAINT).read_to_end(&mut text);
        // A pipe that nobody reads would stop the process when it is full.
        let _ = std::io::copy(&mut messages, &mut std::io::sink());
    }
    let lines: Vec<String> = String::from_utf8_lossy(&text).lines().map(printable).collect();
    let _ = to.send(Message::Complaint(lines.join("\n")));
}

/// Looks for a text in bytes that come in pieces.
struct Search {
    wanted: Vec<u8>,
    /// The end of what came so far that may be the beginning of the text.
    tail: Vec<u8>,
}

impl Search {
    fn new(wanted: String) -> Search {
        Search { wanted: wanted.into_bytes(), tail: Vec::new() }
    }

    fn finds(&mut self, bytes: &[u8]) -> bool {
        self.tail.extend_from_slice(bytes);
        let found = self.wanted.is_empty() || self.tail.windows(self.wanted.len()).any(|w| w == self.wanted);
        let keep = self.wanted.len().saturating_sub(1);
        self.tail.drain(..self.tail.len().saturating_sub(keep));
        found
    }
}

/// Copies the user's input to the stream that it is given, once it is, and tells of its end: plain streams as `api-boot` says, a
/// terminal (`tty`) by the character that means end of file to it (POSIX 11.1.9, EOF), twice where a line is not complete.
/// `hang_up`: and no more can follow; QEMU would take that for the end of the output as well.
pub fn feed(mut input: Box<dyn Read + Send>, tty: bool, hang_up: bool) -> Sender<UnixStream> {
    const END_OF_FILE: u8 = 4;
    let (begin, begun) = channel::<UnixStream>();
    thread::spawn(move || {
        use std::io::Write;
        // A machine that ends before it says anything reads nothing.
        let Ok(mut console) = begun.recv() else { return };
        let mut buffer = [0; 4096];
        let mut in_line = false;
        loop {
            match input.read(&mut buffer) {
                Ok(0) => {
                    let end: &[u8] = match (tty, in_line) {
                        (false, _) => &api_boot::INPUT_END,
                        (true, false) => &[END_OF_FILE],
                        (true, true) => &[END_OF_FILE, END_OF_FILE],
                    };
                    // The machine may have ended already.
                    let _ = console.write_all(end);
                    if hang_up {
                        let _ = console.shutdown(std::net::Shutdown::Write);
                    }
                    return;
                }
                Ok(length) => {
                    let bytes = &buffer[..length];
                    in_line = bytes.last() != Some(&b'\n');
                    let written = match tty {
                        true => console.write_all(bytes),
                        false => console.write_all(&api_boot::encode_input(bytes)),
                    };
                    if written.is_err() {
                        return;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console_log::LogLimits;
    use std::{io::Write, sync::mpsc};

    /// A machine's ends of what is watched.
    struct World {
        folder: tempfile::TempDir,
        console: UnixStream,
        output: UnixStream,
        status: UnixStream,
        messages: Receiver<Message>,
    }

    fn world(sinks: Sinks, wanted: Option<&str>) -> World {
        let folder = tempfile::tempdir().unwrap();
        let log = ConsoleLog::open(folder.path(), LogLimits { size: 4096, files: 2 }).unwrap();
        let pair = || UnixStream::pair().unwrap();
        let ((console, console_end), (output, output_end), (status, status_end)) = (pair(), pair(), pair());
        let (send, messages) = messages();
        let sources = Sources {
            console: console_end,
            output: Some(output_end),
            own_error: true,
            status: status_end,
            messages: None,
        };
        watch(&send, sources, || None, sinks, log, wanted.map(String::from));
        World { folder, console, output, status, messages }
    }

    /// How much a stream takes while nobody reads its other end, at most `limit` bytes.
    fn taken(stream: &mut UnixStream, piece: &[u8], limit: usize) -> usize {
        let timeout = std::time::Duration::from_secs(2);
        stream.set_write_timeout(Some(timeout)).unwrap();
        let mut sum = 0;
        while sum < limit {
            match stream.write(piece) {
                Ok(length) => sum += length,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return sum,
                Err(e) => panic!("{e}"),
            }
        }
        sum
    }

    #[test]
    fn what_comes_by_the_second_way_is_behind_all_that_came_by_the_first() {
        // As in a machine: the second way is taken when the first is empty.
        for _ in 0..20 {
            let ((mut console, console_end), (mut output, output_end)) =
                (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
            let mut printed =
                Printed { console: Some(console_end), output: Some(output_end), has_moved: false };
            let writer = std::thread::spawn(move || {
                for n in 0..3000 {
                    console.write_all(format!("{n}\n").as_bytes()).unwrap();
                }
                for n in 3000..6000 {
                    output.write_all(format!("{n}\n").as_bytes()).unwrap();
                }
                console.write_all(b"the kernel crashed\n").unwrap();
            });
            let (mut all, mut buffer) = (Vec::new(), [0; 500]);
            while let n @ 1.. = printed.read(&mut buffer).unwrap() {
                all.extend_from_slice(&buffer[..n]);
            }
            writer.join().unwrap();
            let said = (0..6000).map(|n| format!("{n}\n")).collect::<String>() + "the kernel crashed\n";
            assert_eq!(String::from_utf8(all).unwrap(), said);
        }
    }

    #[test]
    fn a_machine_waits_for_a_reader_that_is_slow() {
        let (go, wait) = mpsc::channel::<()>();
        let console = Box::new(move |_: Stream, _: &[u8]| {
            let _ = wait.recv();
        });
        let mut world = world(Sinks { console, ..Sinks::none() }, None);
        let taken = taken(&mut world.console, &[b'y'; 4096], 64 << 20);
        assert!(taken < 2 << 20, "{taken} bytes were taken that nobody read");
        drop(go);
    }

    #[test]
    fn status_lines_that_nobody_takes_wait_in_the_machine() {
        let mut world = world(Sinks::none(), None);
        let taken = taken(&mut world.status, b"listening tcp 80\n", 64 << 20);
        assert!(taken < 2 << 20, "{taken} bytes were taken that nobody read");
    }

    #[test]
    fn one_endless_line_is_cut_and_does_not_hide_the_next() {
        let world = world(Sinks::none(), None);
        let mut status = world.status;
        let writer = thread::spawn(move || {
            for _ in 0..1024 {
                status.write_all(&[b'x'; 64 << 10]).unwrap();
            }
            status.write_all(b"\x1b[2Jnothing known\nexit 3\n").unwrap();
        });
        let mut unknown = Vec::new();
        let code = loop {
            match world.messages.recv().unwrap() {
                Message::Unknown(line) => unknown.push(line),
                Message::Status(Status::Exit { code }, _) => break code,
                _ => {}
            }
        };
        writer.join().unwrap();
        assert_eq!((code, unknown.len(), unknown[0].len()), (3, 1, crate::lines::MAX_LINE));
    }

    #[test]
    fn the_text_of_a_ready_program_is_found_across_pieces_and_told_once() {
        let mut world = world(Sinks::none(), Some("is ready"));
        for piece in ["it is", " re", "ady, is", " ready\n"] {
            world.console.write_all(piece.as_bytes()).unwrap();
        }
        drop((world.console, world.output, world.status));
        let mut told = 0;
        loop {
            match world.messages.recv().unwrap() {
                Message::Printed => told += 1,
                Message::Drained => break,
                _ => {}
            }
        }
        assert_eq!(told, 1);
        assert_eq!(crate::console_log::end(world.folder.path(), 100), b"it is ready, is ready\n");
    }
}
