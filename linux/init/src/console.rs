// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries bytes between the machine's console and the program.
//!
//! The program does not get the console itself: as plain streams (`isatty` is false) it has two pipes, and with `stderr=own` a
//! third, with `tty=1` a pseudo-terminal. So a break on the console, which asks the machine to stop, reaches init in either case.

use api_boot::{InputDecoder, Stream, encode_output, encoded_output_size};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags, fchmod, fcntl_setfl},
    process::{Pid, Signal, kill_process},
    pty,
    termios::{InputModes, OptionalActions, tcdrain, tcgetattr, tcsetattr},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

/// With PARMRK a terminal reports a break as 255, 0, 0, and the byte 255 as 255, 255 (termios(3)).
const MARK: u8 = 255;

/// The program's side of the console.
pub struct Ends {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Init's side.
pub struct Console {
    output: Arc<Mutex<Output>>,
    /// The program, once it runs; 0 before.
    program: Arc<AtomicI32>,
}

/// Where the program's output arrives.
struct Output {
    /// Not blocking. Standard error by itself where it is marked on the console.
    pipes: Vec<(Stream, File)>,
    marks: bool,
}

/// Bytes that are read at once.
const PIECE: usize = 4096;

/// One thing that arrived on the console.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    Byte(u8),
    End,
    Break,
}

/// Takes the console's bytes apart.
struct Decoder {
    /// Bytes of a mark seen so far.
    mark: Vec<u8>,
    /// Of plain streams; a terminal's line discipline sees all bytes itself.
    plain: Option<InputDecoder>,
}

impl Decoder {
    fn new(plain: bool) -> Decoder {
        Decoder { mark: Vec::new(), plain: plain.then(InputDecoder::new) }
    }

    fn push(&mut self, byte: u8) -> Option<Input> {
        if self.mark.is_empty() && byte != MARK {
            return self.decode(byte);
        }
        self.mark.push(byte);
        match self.mark[..] {
            [MARK] | [MARK, 0] => None,
            [MARK, 0, 0] => {
                self.mark.clear();
                Some(Input::Break)
            }
            // 255 itself, or a byte received with an error (255, 0, byte), which is passed on as it is.
            [.., last] => {
                self.mark.clear();
                self.decode(last)
            }
            [] => None,
        }
    }

    fn decode(&mut self, byte: u8) -> Option<Input> {
        let Some(plain) = &mut self.plain else { return Some(Input::Byte(byte)) };
        Some(match plain.push(byte)? {
            api_boot::Input::Byte(byte) => Input::Byte(byte),
            api_boot::Input::End => Input::End,
        })
    }
}

/// What the program is to have.
#[derive(Clone, Copy)]
pub enum Kind {
    Terminal,
    /// `own_error`: standard error is marked on the console.
    Plain {
        own_error: bool,
    },
}

/// Opens both sides.
pub fn open(kind: Kind, stop: Signal) -> io::Result<(Console, Ends)> {
    raw(io::stdin())?;
    let program = Arc::new(AtomicI32::new(0));
    let (input, pipes, ends) = match kind {
        Kind::Terminal => terminal()?,
        Kind::Plain { own_error } => plain(own_error)?,
    };
    for (_, output) in &pipes {
        fcntl_setfl(output, OFlags::NONBLOCK)?;
    }
    let marks = matches!(kind, Kind::Plain { own_error: true });
    let console = Console { output: Arc::new(Mutex::new(Output { pipes, marks })), program: program.clone() };
    let from_program = console.output.clone();
    thread::spawn(move || carry_output(&from_program));
    let is_plain = matches!(kind, Kind::Plain { .. });
    thread::spawn(move || carry_input(input, Decoder::new(is_plain), &program, stop));
    Ok((console, ends))
}

/// The console passes bytes as they are and marks a break. It may be no terminal where a machine has no serial port.
fn raw(console: impl AsFd) -> io::Result<()> {
    let Ok(mut modes) = tcgetattr(&console) else { return Ok(()) };
    modes.make_raw();
    modes.input_modes |= InputModes::PARMRK;
    modes.input_modes &= !(InputModes::IGNBRK | InputModes::BRKINT | InputModes::INPCK);
    Ok(tcsetattr(&console, OptionalActions::Now, &modes)?)
}

type Opened = (File, Vec<(Stream, File)>, Ends);

fn plain(own_error: bool) -> io::Result<Opened> {
    use rustix::pipe::{PipeFlags, pipe_with};
    let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
    fchmod(&stdin, Mode::from_raw_mode(0o644))?;
    let output = || -> io::Result<(File, OwnedFd)> {
        let (output, end) = pipe_with(PipeFlags::CLOEXEC)?;
        // A program that runs as somebody else opens /dev/stdout by name.
        fchmod(&end, Mode::from_raw_mode(0o622))?;
        Ok((output.into(), end))
    };
    let (from, stdout) = output()?;
    let mut pipes = vec![(Stream::Output, from)];
    let stderr = if own_error {
        let (from, stderr) = output()?;
        pipes.push((Stream::Error, from));
        stderr
    } else {
        stdout.try_clone()?
    };
    Ok((input.into(), pipes, Ends { stdin, stdout, stderr }))
}

fn terminal() -> io::Result<Opened> {
    let master = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY | pty::OpenptFlags::CLOEXEC)?;
    pty::unlockpt(&master)?;
    let name = pty::ptsname(&master, Vec::new())?;
    let name = name.into_string().map_err(io::Error::other)?;
    // Not with NOCTTY: init leads a session (program.rs), and the first terminal it opens becomes that session's.
    let slave: OwnedFd = OpenOptions::new().read(true).write(true).open(&name)?.into();
    fchmod(&slave, Mode::from_raw_mode(0o622))?;
    let ends = Ends { stdin: slave.try_clone()?, stdout: slave.try_clone()?, stderr: slave };
    let master = File::from(master);
    Ok((master.try_clone()?, vec![(Stream::Output, master)], ends))
}

impl Console {
    /// From now on a break reaches this process.
    pub fn program_is(&self, program: Pid) {
        self.program.store(program.as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// Passes on what the program left in its output and waits until the device has sent it.
    pub fn flush(&self) {
        pass_on(&self.output);
        // Fails only where the console is no terminal, and then there is nothing to wait for.
        let _ = tcdrain(io::stdout());
    }
}

/// Passes on everything that is there; whether more can come.
fn pass_on(from: &Mutex<Output>) -> bool {
    // Held until the bytes are written, so that `flush` does not overtake the thread.
    let mut from = from.lock().unwrap_or_else(PoisonError::into_inner);
    let marks = from.marks;
    from.pipes.retain_mut(|(stream, pipe)| {
        let mut buffer = [0; PIECE];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => show(marks, *stream, &buffer[..length]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    });
    !from.pipes.is_empty()
}

/// A console that takes no bytes loses them, as a serial port does.
fn show(marks: bool, stream: Stream, bytes: &[u8]) {
    let mut room = [0; encoded_output_size(PIECE)];
    let sent = match marks {
        true => encode_output(stream, bytes, &mut room),
        false => bytes,
    };
    drop(io::stdout().write_all(sent).and_then(|()| io::stdout().flush()));
}

/// Duplicates, so that what waits holds no lock.
fn waiting_for(from: &Mutex<Output>) -> io::Result<Vec<File>> {
    let from = from.lock().unwrap_or_else(PoisonError::into_inner);
    from.pipes.iter().map(|(_, pipe)| pipe.try_clone()).collect()
}

fn carry_output(from: &Mutex<Output>) {
    loop {
        let Ok(waiting) = waiting_for(from) else { return };
        let mut all: Vec<_> = waiting.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        let ready = poll(&mut all, None);
        if ready.is_err_and(|e| e != rustix::io::Errno::INTR) || !pass_on(from) {
            return;
        }
    }
}

fn carry_input(to: File, mut decoder: Decoder, program: &AtomicI32, stop: Signal) {
    let mut to = Some(to);
    let mut buffer = [0; 4096];
    loop {
        let length = match io::stdin().read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut bytes = Vec::with_capacity(length);
        let mut end = false;
        for input in buffer[..length].iter().filter_map(|b| decoder.push(*b)) {
            match input {
                Input::Byte(byte) if !end => bytes.push(byte),
                Input::Byte(_) => {}
                Input::End => end = true,
                Input::Break => {
                    if let Some(pid) = Pid::from_raw(program.load(Ordering::Relaxed)) {
                        // It may have ended just now.
                        let _ = kill_process(pid, stop);
                    }
                }
            }
        }
        // A program that closed its input does not want the rest.
        if to.as_mut().is_some_and(|to| to.write_all(&bytes).is_err()) || end {
            to = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(plain: bool, bytes: &[u8]) -> Vec<Input> {
        let mut decoder = Decoder::new(plain);
        bytes.iter().filter_map(|b| decoder.push(*b)).collect()
    }

    #[test]
    fn plain_input_is_any_bytes_up_to_its_end() {
        use Input::{Byte, End};
        assert_eq!(decode(true, b"\x10\x04"), [End]);
        assert_eq!(
            decode(true, b"\n\x04\x10\x10\xff\xff\x10\x04"),
            [Byte(b'\n'), Byte(4), Byte(16), Byte(255), End]
        );
        assert_eq!(decode(false, b"\x10\x04"), [Byte(16), Byte(4)]);
    }

    #[test]
    fn a_break_is_told_from_the_byte_255() {
        assert_eq!(decode(true, &[255, 0, 0]), [Input::Break]);
        assert_eq!(decode(true, &[255, 255, 0]), [Input::Byte(255), Input::Byte(0)]);
    }
}
