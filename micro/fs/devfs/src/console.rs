// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's console: a terminal, or plain streams of bytes, as the host says.

use crate::control::{Control, read_group, shown};
use crate::line::{Effect, Line};
use crate::terminal::{
    FIONREAD, SIGWINCH, TCFLSH, TCIOFF, TCION, TCOOFF, TCOON, TCSBRK, TCXONC, TIOCGPGRP, TIOCGSID, TIOCNOTTY,
    TIOCOUTQ, TIOCSCTTY, TIOCSPGRP, TIOCSTI, Terminal, changes_settings,
};
use crate::{Machine, input, machine, output};
use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use api_boot::{Input, InputDecoder, Stream, encode_output, encoded_output_size};
use api_fs::{File, FileType, Inode, Sink, Source, Stat};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;

/// Plain input that nobody reads yet; more stays in the serial port.
const LIMIT: usize = 65536;
/// Most bytes that go to the console at a time, as the program writes them: encoded or with carriage returns they are a [`PIECE`].
const CHUNK: usize = 512;
/// Most bytes that the machine's console is given at once.
pub const PIECE: usize = encoded_output_size(CHUNK);

/// Those who write to the terminal.
static WRITER: SpinLock<()> = SpinLock::new(());

struct State {
    line: Line,
    plain: VecDeque<u8>,
    decoder: InputDecoder,
    ended: bool,
    /// The first session's, for as long as its leader wants it.
    control: Control,
}

struct Console {
    state: SpinLock<State>,
    queue: WaitQueue,
}

/// The first process leads the first session and its first group.
const FIRST: Control = Control { session: 1, group: 1 };

static CONSOLE: Console = Console {
    state: SpinLock::new(State {
        line: Line::new(),
        plain: VecDeque::new(),
        decoder: InputDecoder::new(),
        ended: false,
        control: FIRST,
    }),
    queue: WaitQueue::new(),
};

impl Terminal for Console {
    fn with_line<R>(&self, act: impl FnOnce(&mut Line) -> R) -> R {
        act(&mut self.state.lock().line)
    }

    fn changed(&self, effect: Effect) {
        echo(&effect.shown);
        effect.signals.iter().for_each(|signal| control().signal(*signal));
        self.queue.wake(Events::READABLE.with(Events::WRITABLE, effect.has_started));
    }

    fn resized(&self) {
        control().signal(SIGWINCH);
    }
}

/// Echoes what was typed. There may be no room for it: it is lost then, as in a terminal whose screen stands still.
fn echo(bytes: &[u8]) {
    let _writer = WRITER.lock();
    for piece in bytes.chunks(PIECE) {
        if output::write(piece).is_err() {
            return;
        }
    }
}

/// Takes what arrived and wakes readers, and writers that waited for room. Deferred work of the scheduler: called after the console's
/// interrupts; takes nothing while nobody waits for input of a plain console.
pub fn poll_console() {
    if output::has_room() {
        CONSOLE.queue.wake(Events::WRITABLE);
    }
    if machine().is_terminal || !CONSOLE.queue.is_empty() {
        take_input();
    }
}

/// Writes the kernel's words to the console. Where there is no room for a piece, `wait` has the queue that hears of room, and makes the second
/// argument until it answers; an error ends them.
pub fn print(text: &[u8], wait: impl Fn(&WaitQueue, &dyn Fn() -> Result<()>) -> Result<()>) -> Result<()> {
    text.chunks(PIECE).try_for_each(|piece| match output::write(piece) {
        Err(EAGAIN) => wait(&CONSOLE.queue, &|| output::write(piece)),
        done => done,
    })
}

fn take_input() {
    let machine = machine();
    if !machine.is_terminal {
        take_from_port();
    }
    let mut bytes = [0; 64];
    loop {
        if !machine.is_terminal && CONSOLE.state.lock().plain.len() >= LIMIT {
            return;
        }
        let n = (machine.read)(&mut bytes);
        if n == 0 {
            if (machine.ended)() && !machine.is_terminal {
                CONSOLE.state.lock().ended = true;
                CONSOLE.queue.wake(Events::READABLE | Events::HUP);
            }
            return;
        }
        if machine.is_terminal {
            let mut effect = Effect::default();
            CONSOLE.with_line(|line| {
                // What there is no room for is lost, as typing into a full terminal is.
                if line.reserve(n).is_ok() {
                    line.receive(&bytes[..n], &mut effect);
                }
            });
            CONSOLE.changed(effect);
        } else {
            let mut state = CONSOLE.state.lock();
            bytes[..n].iter().for_each(|byte| state.accept(*byte));
            drop(state);
            CONSOLE.queue.wake(Events::READABLE);
        }
    }
}

/// What comes by another way than the console.
fn take_from_port() {
    loop {
        if CONSOLE.state.lock().plain.len() >= LIMIT {
            return;
        }
        let has_come = input::receive(&mut |bytes| {
            let mut state = CONSOLE.state.lock();
            bytes.iter().for_each(|byte| state.accept(*byte));
        });
        if !has_come {
            return;
        }
        CONSOLE.queue.wake(Events::READABLE);
    }
}

impl State {
    fn accept(&mut self, byte: u8) {
        if self.ended {
            return;
        }
        match self.decoder.push(byte) {
            Some(Input::Byte(byte)) => self.plain.push_back(byte),
            Some(Input::End) => self.ended = true,
            None => {}
        }
    }

    /// Bytes that may be read, 0 for the end of input; `None`: wait.
    fn readable(&self, is_terminal: bool) -> Option<usize> {
        if is_terminal {
            return self.line.readable();
        }
        (!self.plain.is_empty() || self.ended).then_some(self.plain.len())
    }
}

/// What the console controls; nothing where it is no terminal.
pub fn control() -> Control {
    if machine().is_terminal { CONSOLE.state.lock().control } else { Control::NOTHING }
}

/// It controls the running thread's session.
pub fn is_controlling() -> bool {
    control().session().is_ok()
}

/// It controls nothing any more.
pub fn release() {
    CONSOLE.state.lock().control = Control::NOTHING;
}

fn read(to: &mut Sink<'_>) -> Result<usize> {
    let is_terminal = machine().is_terminal;
    if is_terminal {
        control().check_read()?;
    }
    let readable = || CONSOLE.state.lock().readable(is_terminal);
    if readable().is_none() {
        take_input();
    }
    let most = to.remaining().min(4096);
    let bytes = {
        let mut state = CONSOLE.state.lock();
        let n = state.readable(is_terminal).ok_or(EAGAIN)?.min(most);
        if is_terminal { state.line.take(most) } else { state.plain.drain(..n).collect() }
    };
    to.put(&bytes)
}

fn write(stream: Stream, from: &mut Source<'_>) -> Result<usize> {
    let machine = machine();
    if machine.is_terminal && CONSOLE.with_line(|line| line.stops_background()) {
        control().check_change()?;
    }
    let processes = machine.is_terminal && CONSOLE.with_line(|line| line.processes_output());
    let mut done = 0;
    let mut chunk = [0; CHUNK];
    // What a line discipline makes of a byte is a tabulator's eight at most.
    let most = if processes { CHUNK / 4 } else { CHUNK };
    while from.remaining() > 0 {
        let before = from.clone();
        let n = match from.take(&mut chunk[..most]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        };
        if !show(&machine, stream, &chunk[..n], processes) {
            // Until there is room: what was taken is taken again.
            *from = before;
            return if done == 0 { Err(EAGAIN) } else { Ok(done) };
        }
        done += n;
    }
    Ok(done)
}

/// Writes a chunk to the console as it goes there: with carriage returns, or marked. In one piece, so that nothing comes between.
/// False: there is no room for it, or the terminal's output is stopped.
fn show(machine: &Machine, stream: Stream, chunk: &[u8], processes: bool) -> bool {
    if !machine.is_terminal {
        let mut room = [0; PIECE];
        let piece = if machine.own_error { encode_output(stream, chunk, &mut room) } else { chunk };
        return output::write(piece).is_ok();
    }
    let mut piece = Piece { bytes: [0; PIECE], length: 0 };
    // One at a time: the column moves only for what there is room for.
    let _writer = WRITER.lock();
    if is_stopped() || !output::has_room() {
        return false;
    }
    if !processes {
        return output::write(chunk).is_ok();
    }
    CONSOLE.with_line(|line| chunk.iter().for_each(|byte| line.output(*byte, &mut |byte| piece.put(byte))));
    output::write(&piece.bytes[..piece.length]).is_ok()
}

/// What a terminal makes of a chunk.
struct Piece {
    bytes: [u8; PIECE],
    length: usize,
}

impl Piece {
    fn put(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

fn poll_input() -> Events {
    let is_terminal = machine().is_terminal;
    if CONSOLE.state.lock().readable(is_terminal).is_none() {
        take_input();
    }
    let state = CONSOLE.state.lock();
    let readable = if is_terminal { state.line.has_input() } else { state.readable(false).is_some() };
    Events::NONE.with(Events::READABLE, readable).with(Events::HUP, state.ended && state.plain.is_empty())
}

fn poll_output() -> Events {
    Events::NONE.with(Events::WRITABLE, !is_stopped() && output::has_room())
}

/// The terminal's output is stopped (Ctrl-S).
fn is_stopped() -> bool {
    machine().is_terminal && CONSOLE.with_line(|line| line.is_stopped())
}

/// The terminal's part of tty_ioctl(4).
fn ioctl(command: u32, argument: u64) -> Result<usize> {
    match command {
        FIONREAD => {
            let state = CONSOLE.state.lock();
            let n = if machine().is_terminal { state.line.unread() } else { state.plain.len() };
            drop(state);
            api_fs::write_user_int(argument, n as i32)?;
            return Ok(0);
        }
        _ if !machine().is_terminal => return Err(ENOTTY),
        TIOCGPGRP => api_fs::write_user_int(argument, shown(control().foreground()?))?,
        TIOCSPGRP => {
            let group = read_group(argument)?;
            let new = control().with_foreground(group)?;
            CONSOLE.state.lock().control = new;
        }
        TIOCGSID => api_fs::write_user_int(argument, shown(control().session()?))?,
        TIOCSCTTY => {
            let session = (machine().caller)().session;
            let has_terminal = crate::pty::terminal_of(session).is_some();
            let new = control().taken(has_terminal)?;
            CONSOLE.state.lock().control = new;
        }
        TIOCNOTTY => {
            if !is_controlling() {
                return Err(ENOTTY);
            }
            if (machine().caller)().leads {
                let before = control();
                release();
                before.hang_up();
            }
        }
        TIOCOUTQ => api_fs::write_user_int(argument, 0)?,
        TCFLSH => drop(CONSOLE.with_line(Line::flush)),
        TCSBRK => {}
        TCXONC => {
            control().check_change()?;
            match argument {
                TCOOFF | TCOON => CONSOLE.changed(CONSOLE.with_line(|line| line.hold(argument == TCOOFF))),
                TCIOFF | TCION => {
                    let key = CONSOLE.with_line(|line| line.flow_key(argument == TCIOFF));
                    echo(key.as_slice());
                }
                _ => return Err(EINVAL),
            }
        }
        TIOCSTI => return Err(EIO),
        _ if changes_settings(command) => {
            control().check_change()?;
            return CONSOLE.settings(command, argument).unwrap_or(Err(ENOTTY));
        }
        _ => return CONSOLE.settings(command, argument).unwrap_or(Err(ENOTTY)),
    }
    Ok(0)
}

/// /dev/console and /dev/tty.
struct Device(Arc<dyn Inode>);

/// The console as a device node.
pub fn device(inode: Arc<dyn Inode>) -> Arc<dyn File> {
    Arc::new(Device(inode))
}

impl File for Device {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        read(to)
    }
    fn read_limit_ns(&self) -> Option<u64> {
        if machine().is_terminal { CONSOLE.with_line(|line| line.read_limit_ns()) } else { None }
    }
    fn read_rest(&self, to: &mut Sink<'_>, has_waited: bool) -> Result<usize> {
        let most = to.remaining().min(4096);
        match CONSOLE.with_line(|line| line.take_rest(most)) {
            Some(bytes) => to.put(&bytes),
            None if has_waited => Ok(0),
            None => Err(EAGAIN),
        }
    }
    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        write(Stream::Output, from)
    }
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }
    fn poll(&self) -> Events {
        poll_input() | poll_output()
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&CONSOLE.queue)
    }
    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        ioctl(command, argument)
    }
    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.0)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A standard stream of a program without a terminal: looks like the pipe a container engine gives.
struct Pipe {
    /// `None`: it is read.
    written: Option<Stream>,
}

impl File for Pipe {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        if self.written.is_none() { read(to) } else { Err(EBADF) }
    }
    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        write(self.written.ok_or(EBADF)?, from)
    }
    fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::new(FileType::Fifo, 0o600);
        stat.inode = match self.written {
            None => 1,
            Some(Stream::Output) => 2,
            Some(Stream::Error) => 3,
        };
        Ok(stat)
    }
    fn poll(&self) -> Events {
        match self.written {
            None => poll_input(),
            Some(_) => poll_output(),
        }
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&CONSOLE.queue)
    }
    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        ioctl(command, argument)
    }
    /// Nothing ends when a stream is closed, so that it serves all who open it, in the direction that it has.
    fn open_anew(self: Arc<Self>, _: u32) -> Result<Arc<dyn File>> {
        Ok(self)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Standard input, output and error; `None` with a terminal, where all three are /dev/console.
pub fn standard_streams() -> Option<[Arc<dyn File>; 3]> {
    if machine().is_terminal {
        return None;
    }
    let pipe = |written| Arc::new(Pipe { written }) as Arc<dyn File>;
    Some([pipe(None), pipe(Some(Stream::Output)), pipe(Some(Stream::Error))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_input_is_any_bytes_up_to_its_end() {
        let mut state = State {
            line: Line::new(),
            plain: VecDeque::new(),
            decoder: InputDecoder::new(),
            ended: false,
            control: FIRST,
        };
        let mut feed = |bytes: &[u8]| {
            bytes.iter().for_each(|b| state.accept(*b));
            (state.plain.len(), state.readable(false))
        };
        assert_eq!(feed(b""), (0, None));
        assert_eq!(feed(b"\x04ab\n\x04c"), (6, Some(6)));
        assert_eq!(feed(b"\x10"), (6, Some(6)));
        assert_eq!(feed(b"\x10d"), (8, Some(8)));
        assert_eq!(feed(b"\x10\x04more"), (8, Some(8)));
        assert!(state.ended);
    }
}
