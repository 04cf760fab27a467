// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line discipline of a terminal (termios(3)), as Linux' N_TTY: editing, echo, signal keys, flow control.

use crate::echo::{Screen, Step, is_alphanumeric, to_lower};
use crate::termios::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::{NoMemory, Reserve};

pub const SIGINT: i32 = 2;
pub const SIGQUIT: i32 = 3;
pub const SIGTSTP: i32 = 20;
/// Input that nobody reads (Linux' N_TTY_BUF_SIZE).
const LIMIT: usize = 4096;
const BACKSPACE: u8 = 8;

// What a master that reads packets is told (ioctl_tty(2), TIOCPKT).
const FLUSHREAD: u8 = 1;
pub const FLUSHWRITE: u8 = 2;
pub const STOP: u8 = 4;
pub const START: u8 = 8;
const NOSTOP: u8 = 16;
const DOSTOP: u8 = 32;
const IOCTL: u8 = 64;

/// What becomes of input, and of a change of the settings.
#[derive(Default)]
pub struct Effect {
    /// To be shown.
    pub shown: Vec<u8>,
    /// For the foreground, in order.
    pub signals: Vec<i32>,
    /// Bits of the status of packets that are set, and those that are taken away before.
    pub status: u8,
    pub status_over: u8,
    /// The output, which was stopped, goes on.
    pub has_started: bool,
}

impl Effect {
    fn tell(&mut self, status: u8, over: u8) {
        self.status = self.status & !over | status;
        self.status_over |= over;
    }
}

/// State of one terminal.
pub struct Line {
    pub termios: Termios,
    /// What of them [`Line::set`] leaves as it is.
    pub locked: Termios,
    /// Rows, columns, and their pixels.
    pub size: [u16; 4],
    pub(crate) screen: Screen,
    /// Input in the order in which it came. Where lines are edited, those that are finished come first; an end of file is a NUL
    /// that ends a line.
    input: VecDeque<u8>,
    /// How many bytes were taken out of `input` so far: places are counted from the terminal's beginning.
    tail: u64,
    /// Places of the bytes that end lines.
    ends: VecDeque<u64>,
    /// The place behind the last finished line.
    finished: u64,
    /// ^V was typed: the next byte is meant as it is.
    is_literal: bool,
    /// What ECHOPRT shows of erased characters is open.
    is_erasing: bool,
    /// The output is stopped, by a key or by tcflow(3).
    stopped_by_key: bool,
    stopped_by_call: bool,
}

impl Line {
    pub const fn new() -> Line {
        Line::with_size([24, 80, 0, 0])
    }

    /// Of a terminal of that many rows and columns.
    pub const fn with_size(size: [u16; 4]) -> Line {
        Line {
            termios: Termios::START,
            locked: Termios::UNLOCKED,
            size,
            screen: Screen::new(),
            input: VecDeque::new(),
            tail: 0,
            ends: VecDeque::new(),
            finished: 0,
            is_literal: false,
            is_erasing: false,
            stopped_by_key: false,
            stopped_by_call: false,
        }
    }

    /// Of a pseudo-terminal, which does not hang up.
    pub const fn of_pair(size: [u16; 4]) -> Line {
        let mut line = Line::with_size(size);
        line.termios.control = CFLAG;
        line
    }

    fn has(&self, flag: u32) -> bool {
        self.termios.local & flag != 0
    }

    fn takes(&self, flag: u32) -> bool {
        self.termios.input & flag != 0
    }

    /// Lines are edited here, and read one by one.
    fn edits(&self) -> bool {
        self.has(ICANON) && !self.has(EXTPROC)
    }

    fn is_key(&self, byte: u8, key: usize) -> bool {
        byte == self.termios.keys[key]
    }

    /// Background processes that write are stopped.
    pub fn stops_background(&self) -> bool {
        self.has(TOSTOP)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped_by_key || self.stopped_by_call
    }

    fn head(&self) -> u64 {
        self.tail + self.input.len() as u64
    }

    /// Bytes that may come in before somebody reads. A line that is too long loses its end, but the line that would
    /// end it is still taken.
    fn room(&self) -> usize {
        let free = LIMIT - self.input.len().min(LIMIT);
        // A byte may take three places.
        let free = if self.takes(PARMRK) { free.div_ceil(3) } else { free };
        free.saturating_sub(1)
    }

    /// Makes room for that many bytes of input: [`Line::receive`] of them asks for no memory to keep them.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), NoMemory> {
        self.ends.reserve_fallibly(bytes)?;
        self.input.reserve_fallibly(3 * bytes)
    }

    /// Takes bytes of input, as many as there is room for, and says how many.
    pub fn receive(&mut self, bytes: &[u8], effect: &mut Effect) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let mut room = self.room();
            if room == 0 && self.has(ICANON) && self.finished == self.tail {
                // Keys that erase and end the line go on working: the last byte gives way to the next.
                if self.input.len() >= LIMIT {
                    self.input.pop_back();
                }
                room = 1;
            }
            let now = room.min(bytes.len() - taken);
            if now == 0 {
                break;
            }
            bytes[taken..taken + now].iter().for_each(|byte| self.receive_byte(*byte, effect));
            taken += now;
        }
        if self.has(ECHO | ECHONL) {
            self.show_echo(&mut |byte| effect.shown.push(byte));
        }
        taken
    }

    fn receive_byte(&mut self, byte: u8, effect: &mut Effect) {
        let byte = if self.takes(ISTRIP) { byte & 0x7f } else { byte };
        let byte = if self.takes(IUCLC) && self.has(IEXTEN) { to_lower(byte) } else { byte };
        if core::mem::take(&mut self.is_literal) {
            self.ordinary(byte, effect);
        } else if self.has(EXTPROC) {
            self.input.push_back(byte);
        } else if self.is_special(byte) {
            self.special(byte, effect);
        } else {
            self.ordinary(byte, effect);
        }
        if self.screen.is_urgent() {
            self.show_echo(&mut |byte| effect.shown.push(byte));
        }
    }

    /// Something is to be done with it. NUL is how a key is switched off.
    fn is_special(&self, byte: u8) -> bool {
        let any = |keys: &[usize]| keys.iter().any(|key| self.is_key(byte, *key));
        let extended = self.has(IEXTEN);
        byte != 0
            && (byte == b'\r' && self.takes(IGNCR | ICRNL)
                || byte == b'\n' && (self.takes(INLCR) || self.has(ICANON))
                || self.has(ICANON) && any(&[VERASE, VKILL, VEOF, VEOL])
                || self.has(ICANON) && extended && any(&[VWERASE, VLNEXT, VEOL2])
                || self.has(ICANON) && extended && self.has(ECHO) && any(&[VREPRINT])
                || self.takes(IXON) && any(&[VSTART, VSTOP])
                || self.has(ISIG) && any(&[VINTR, VQUIT, VSUSP]))
    }

    fn special(&mut self, byte: u8, effect: &mut Effect) {
        if self.takes(IXON) && self.is_key(byte, VSTART) {
            return self.start(effect);
        }
        if self.takes(IXON) && self.is_key(byte, VSTOP) {
            return self.stop(effect);
        }
        if self.has(ISIG) {
            for (key, signal) in [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)] {
                if self.is_key(byte, key) {
                    return self.interrupt(byte, signal, effect);
                }
            }
        }
        self.start_by_any(effect);
        let byte = match byte {
            b'\r' if self.takes(IGNCR) => return,
            b'\r' if self.takes(ICRNL) => b'\n',
            b'\n' if self.takes(INLCR) => b'\r',
            byte => byte,
        };
        if self.has(ICANON) && self.edit(byte) {
            return;
        }
        if self.has(ECHO) {
            self.finish_erasing();
            if byte == b'\n' {
                self.echo_output(b"\n");
            } else {
                self.echo_first(byte);
            }
        }
        self.keep(byte);
    }

    fn ordinary(&mut self, byte: u8, effect: &mut Effect) {
        self.start_by_any(effect);
        if self.has(ECHO) {
            self.finish_erasing();
            self.echo_first(byte);
        }
        self.keep(byte);
    }

    fn keep(&mut self, byte: u8) {
        if byte == 0xff && self.takes(PARMRK) {
            self.input.push_back(byte);
        }
        self.input.push_back(byte);
    }

    /// Echoes a byte of the line, which may be its first.
    fn echo_first(&mut self, byte: u8) {
        if self.finished == self.head() {
            self.screen.push(Step::StartOfLine);
        }
        self.echo(byte);
    }

    fn interrupt(&mut self, byte: u8, signal: i32, effect: &mut Effect) {
        if !self.has(NOFLSH) {
            self.screen.forget();
            self.forget_input();
            effect.tell(FLUSHREAD | FLUSHWRITE, 0);
        }
        if effect.signals.reserve_fallibly(1).is_ok() {
            effect.signals.push(signal);
        }
        if self.takes(IXON) {
            self.start(effect);
        }
        if self.has(ECHO) {
            self.echo(byte);
        } else {
            self.show_echo(&mut |byte| effect.shown.push(byte));
        }
    }

    /// The keys that edit and end lines; false for what is a part of the line.
    fn edit(&mut self, byte: u8) -> bool {
        let extended = self.has(IEXTEN);
        if self.is_key(byte, VERASE) || self.is_key(byte, VKILL) || self.is_key(byte, VWERASE) && extended {
            self.erase(byte);
        } else if self.is_key(byte, VLNEXT) && extended {
            self.is_literal = true;
            if self.has(ECHO) {
                self.finish_erasing();
                if self.has(ECHOCTL) {
                    self.echo_output(&[b'^', BACKSPACE]);
                }
            }
        } else if self.is_key(byte, VREPRINT) && extended && self.has(ECHO) {
            self.finish_erasing();
            self.echo(byte);
            self.echo_output(b"\n");
            for place in self.finished..self.head() {
                self.echo(self.input[(place - self.tail) as usize]);
            }
        } else if byte == b'\n' {
            if self.has(ECHO | ECHONL) {
                self.echo_output(b"\n");
            }
            self.finish_line(byte);
        } else if self.is_key(byte, VEOF) {
            self.finish_line(0);
        } else if self.is_key(byte, VEOL) || self.is_key(byte, VEOL2) && extended {
            if self.has(ECHO) {
                self.echo_first(byte);
            }
            if byte == 0xff && self.takes(PARMRK) {
                self.input.push_back(byte);
            }
            self.finish_line(byte);
        } else {
            return false;
        }
        true
    }

    fn finish_line(&mut self, end: u8) {
        self.ends.push_back(self.head());
        self.input.push_back(end);
        self.finished = self.head();
    }

    fn finish_erasing(&mut self) {
        if core::mem::take(&mut self.is_erasing) {
            self.echo_output(b"/");
        }
    }

    /// Takes a character, a word or all of the line away.
    fn erase(&mut self, key: u8) {
        let kills = !(self.is_key(key, VERASE) || self.is_key(key, VWERASE) && self.has(IEXTEN));
        let one = self.is_key(key, VERASE);
        if self.head() == self.finished {
            return;
        }
        if kills {
            let visibly = [ECHOK, ECHOKE, ECHOE].into_iter().all(|flag| self.has(flag));
            if !self.has(ECHO) || !visibly {
                self.input.truncate((self.finished - self.tail) as usize);
                if self.has(ECHO) {
                    self.finish_erasing();
                    self.echo(self.termios.keys[VKILL]);
                    if self.has(ECHOK) {
                        self.echo_output(b"\n");
                    }
                }
                return;
            }
        }
        let mut in_word = false;
        while self.head() != self.finished {
            let start = (self.finished - self.tail) as usize;
            // The first byte of a character is none that continues one.
            let Some(at) = (start..self.input.len()).rev().find(|at| !self.is_continuation(self.input[*at]))
            else {
                break;
            };
            let first = self.input[at];
            if !kills && !one {
                if is_alphanumeric(first) || first == b'_' {
                    in_word = true;
                } else if in_word {
                    break;
                }
            }
            let rest: Vec<u8> = self.input.drain(at..).skip(1).collect();
            if self.has(ECHO) {
                self.show_erased(first, &rest, one);
            }
            if one {
                break;
            }
        }
        if self.head() == self.finished && self.has(ECHO) {
            self.finish_erasing();
        }
    }

    /// Shows that a character is gone.
    fn show_erased(&mut self, first: u8, rest: &[u8], one: bool) {
        if self.has(ECHOPRT) {
            if !core::mem::replace(&mut self.is_erasing, true) {
                self.echo_output(b"\\");
            }
            self.echo(first);
            for byte in rest {
                self.echo_output(&[*byte]);
                self.screen.push(Step::MoveBack);
            }
        } else if one && !self.has(ECHOE) {
            self.echo(self.termios.keys[VERASE]);
        } else if first == b'\t' {
            let (mut columns, mut after_tab) = (0, false);
            let start = (self.finished - self.tail) as usize;
            for byte in self.input.range(start..).rev() {
                match *byte {
                    b'\t' => {
                        after_tab = true;
                        break;
                    }
                    byte if byte.is_ascii_control() => columns += if self.has(ECHOCTL) { 2 } else { 0 },
                    byte => columns += usize::from(!self.is_continuation(byte)),
                }
            }
            self.screen.push(Step::EraseTab { columns, after_tab });
        } else {
            let places = match first.is_ascii_control() {
                true if self.has(ECHOCTL) => 2,
                true => 0,
                false => 1,
            };
            for _ in 0..places {
                self.echo_output(&[BACKSPACE, b' ', BACKSPACE]);
            }
        }
    }

    fn stop(&mut self, effect: &mut Effect) {
        if !self.is_stopped() {
            effect.tell(STOP, START);
        }
        self.stopped_by_key = true;
    }

    /// Output goes on, unless tcflow(3) has stopped it.
    fn start(&mut self, effect: &mut Effect) {
        if core::mem::take(&mut self.stopped_by_key) && !self.stopped_by_call {
            self.started(effect);
        }
    }

    fn started(&mut self, effect: &mut Effect) {
        effect.tell(START, STOP);
        effect.has_started = true;
        self.show_echo(&mut |byte| effect.shown.push(byte));
    }

    fn start_by_any(&mut self, effect: &mut Effect) {
        if self.stopped_by_key && self.takes(IXON) && self.takes(IXANY) {
            self.start(effect);
        }
    }

    /// The key that stops the output, or that lets it go on; `None` where there is none.
    pub fn flow_key(&self, stops: bool) -> Option<u8> {
        Some(self.termios.keys[if stops { VSTOP } else { VSTART }]).filter(|key| *key != 0)
    }

    /// tcflow(3) with TCOOFF and TCOON.
    pub fn hold(&mut self, holds: bool) -> Effect {
        let mut effect = Effect::default();
        let was_stopped = self.is_stopped();
        if core::mem::replace(&mut self.stopped_by_call, holds) != holds {
            if holds && !was_stopped {
                effect.tell(STOP, START);
            }
            if !holds {
                self.stopped_by_key = false;
                self.started(&mut effect);
            }
        }
        effect
    }

    /// Bytes that FIONREAD tells: of all finished lines, without the ends of files.
    pub fn unread(&self) -> usize {
        if !self.edits() {
            return self.input.len();
        }
        let ends_of_files = self.ends.iter().filter(|end| self.input[(**end - self.tail) as usize] == 0);
        (self.finished - self.tail) as usize - ends_of_files.count()
    }

    /// What may be read now: `None` means wait.
    pub fn readable(&self) -> Option<usize> {
        if self.edits() {
            return self.first_line().map(|(bytes, _)| bytes);
        }
        let there = self.input.len();
        match (self.termios.keys[VMIN] as usize, self.termios.keys[VTIME]) {
            (0, 0) => Some(there),
            // The time between two bytes is over as soon as the first has come.
            (least, 0) => (there >= least).then_some(there),
            _ => (there > 0).then_some(there),
        }
    }

    /// How long a read waits for the first byte; `None`: for ever.
    pub fn read_limit_ns(&self) -> Option<u64> {
        let is_limited = !self.edits() && self.termios.keys[VMIN] == 0;
        is_limited.then(|| u64::from(self.termios.keys[VTIME]) * 100_000_000)
    }

    /// Takes what there is, although a read would wait for more; `None`: there is nothing, or lines are edited.
    pub fn take_rest(&mut self, most: usize) -> Option<Vec<u8>> {
        (!self.edits() && !self.input.is_empty()).then(|| self.take(most))
    }

    /// There is something to read, as poll(2) means it.
    pub fn has_input(&self) -> bool {
        match self.edits() {
            true => self.finished != self.tail,
            false if self.termios.keys[VTIME] != 0 => !self.input.is_empty(),
            false => self.input.len() >= usize::from(self.termios.keys[VMIN]).max(1),
        }
    }

    /// Bytes of the first finished line, and whether an end of file is behind them.
    fn first_line(&self) -> Option<(usize, bool)> {
        if self.finished == self.tail {
            return None;
        }
        // Without an end of its own it is what came before lines were edited.
        let end = self.ends.front().map_or(self.finished - 1, |end| *end);
        let at = (end - self.tail) as usize;
        let is_end_of_file = self.ends.front().is_some() && self.input[at] == 0;
        Some((at + usize::from(!is_end_of_file), is_end_of_file))
    }

    /// Takes up to `most` bytes of what may be read.
    pub fn take(&mut self, most: usize) -> Vec<u8> {
        if most == 0 {
            return Vec::new();
        }
        if !self.edits() {
            let n = self.input.len().min(most);
            return self.drain(n);
        }
        let Some((bytes, is_end_of_file)) = self.first_line() else { return Vec::new() };
        let out = self.drain(bytes.min(most));
        if out.len() == bytes {
            if is_end_of_file {
                self.drain(1);
            }
            self.ends.pop_front();
        }
        out
    }

    fn drain(&mut self, bytes: usize) -> Vec<u8> {
        self.tail += bytes as u64;
        self.finished = self.finished.max(self.tail);
        self.input.drain(..bytes).collect()
    }

    fn forget_input(&mut self) {
        self.tail = self.head();
        self.finished = self.tail;
        self.input.clear();
        self.ends.clear();
        self.is_erasing = false;
    }

    /// Forgets unread input (TCFLSH).
    pub fn flush(&mut self) -> Effect {
        self.forget_input();
        Effect { status: FLUSHREAD, ..Effect::default() }
    }

    /// Changes the settings; lines that were finished stay readable in raw mode.
    pub fn set(&mut self, termios: Termios) -> Effect {
        self.change(termios, Effect::default())
    }

    /// The same, and what was not read is forgotten.
    pub fn set_and_flush(&mut self, termios: Termios) -> Effect {
        let effect = self.flush();
        self.change(termios, effect)
    }

    fn change(&mut self, termios: Termios, mut effect: Effect) -> Effect {
        let before = self.termios;
        self.termios = termios.with_locked(&self.locked, &before).without_wires();
        let flows = self.termios.flows_by_usual_keys();
        if flows != before.flows_by_usual_keys() {
            effect.tell(if flows { DOSTOP } else { NOSTOP }, DOSTOP | NOSTOP);
        }
        if (before.local | self.termios.local) & EXTPROC != 0 {
            effect.tell(IOCTL, 0);
        }
        if (before.local ^ self.termios.local) & (ICANON | EXTPROC) != 0 {
            self.ends.clear();
            self.finished = self.tail;
            if self.has(ICANON) && !self.input.is_empty() {
                // All that is there is one line.
                self.ends.push_back(self.head() - 1);
                self.finished = self.head();
            }
            (self.is_erasing, self.is_literal) = (false, false);
        }
        if before.input & IXON != 0 && !self.takes(IXON) && !self.stopped_by_call {
            self.start(&mut effect);
        }
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, as somebody types.
    fn type_in(line: &mut Line, bytes: &[u8]) -> Effect {
        let mut all = Effect::default();
        for byte in bytes {
            assert_eq!(line.receive(&[*byte], &mut all), 1);
        }
        all
    }

    #[test]
    fn lines_are_edited_and_echoed() {
        let mut line = Line::new();
        let effect = type_in(&mut line, b"helo\x7flo");
        assert_eq!(effect.shown, b"helo\x08 \x08lo");
        assert_eq!(line.readable(), None);
        type_in(&mut line, b"\rsecond\n");
        assert_eq!(line.unread(), 13);
        assert_eq!(line.take(3), b"hel");
        assert_eq!(line.take(100), b"lo\n");
        assert_eq!(line.take(100), b"second\n");
        assert_eq!(line.readable(), None);
        type_in(&mut line, b"part\x04");
        assert_eq!(line.take(4), b"part");
        assert_eq!(line.readable(), None, "the end of file is behind a line that was read in full");
        type_in(&mut line, b"\x04");
        assert_eq!((line.readable(), line.unread()), (Some(0), 0), "end of file");
        assert_eq!(line.take(100), b"");
        assert_eq!(line.readable(), None);
    }

    #[test]
    fn words_and_characters_are_erased_and_lines_end_where_they_are_told() {
        let mut line = Line::new();
        type_in(&mut line, b"one two  \x17x\n");
        assert_eq!(line.take(100), b"one x\n");
        type_in(&mut line, "a\u{fc}\x7f\x7fb\n".as_bytes());
        assert_eq!(line.take(100), b"ab\n", "bytes are erased one by one");
        line.set(Termios { input: ICRNL | IUTF8, ..line.termios });
        type_in(&mut line, "a\u{fc}\x7fb\n".as_bytes());
        assert_eq!(line.take(100), b"ab\n", "characters are erased as a whole");
        line.termios.keys[VEOL] = b'=';
        type_in(&mut line, b"key=value");
        assert_eq!((line.take(100), line.readable()), (b"key=".to_vec(), None));
        assert_eq!(type_in(&mut line, b"\x15ab\t\x7f\x03").shown[15..], *b"ab\t\x08\x08^C");
    }

    #[test]
    fn output_is_processed_as_its_flags_say() {
        let shown = |flags: u32, bytes: &[u8]| {
            let mut line = Line::new();
            line.termios.output = flags;
            let mut out = Vec::new();
            bytes.iter().for_each(|byte| line.output(*byte, &mut |b| out.push(b)));
            out
        };
        assert_eq!(shown(OPOST | ONLCR, b"a\nb"), b"a\r\nb");
        assert_eq!(shown(OPOST | OCRNL, b"a\rb"), b"a\nb");
        assert_eq!(shown(OPOST | ONOCR, b"\ra\r\rb"), b"a\rb");
        assert_eq!(shown(OPOST | XTABS | OLCUC, b"a\tb"), b"A       B");
        assert_eq!(shown(ONLCR | OCRNL, b"a\n\r"), b"a\n\r", "not without OPOST");
    }

    #[test]
    fn signal_keys_raise_signals_and_raw_mode_passes_all() {
        let mut line = Line::new();
        let effect = type_in(&mut line, b"abc\x03");
        assert_eq!((&effect.signals[..], &effect.shown[..]), (&[SIGINT][..], &b"abc^C"[..]));
        assert_eq!(effect.status, FLUSHREAD | FLUSHWRITE);
        let mut pasted = Effect::default();
        line.receive(b"abc\x03", &mut pasted);
        assert_eq!(pasted.shown, b"^C", "an echo that was not shown yet is forgotten");
        let raw = Termios { input: 0, local: 0, ..line.termios };
        line.set(Termios::decode(&raw.encode()));
        assert!(type_in(&mut line, b"\x03\r").signals.is_empty());
        assert_eq!(line.take(10), b"\x03\r");
        line.set(Termios { output: 0, ..Termios::START });
        assert_eq!(type_in(&mut line, b"\n").shown, b"\n", "what is echoed is output as any other");
    }

    #[test]
    fn output_stops_and_goes_on_and_a_key_is_taken_as_it_is() {
        let mut line = Line::new();
        let effect = type_in(&mut line, b"\x13ab");
        assert!(line.is_stopped() && effect.shown.is_empty() && effect.status == STOP);
        let effect = type_in(&mut line, b"\x11");
        assert!(!line.is_stopped() && effect.has_started);
        assert_eq!(effect.shown, b"ab");
        assert_eq!(type_in(&mut line, b"\x16\x03\n").shown, b"^\x08^C\r\n");
        assert_eq!(line.take(10), b"ab\x03\n");
        line.hold(true);
        type_in(&mut line, b"\x11");
        assert!(line.is_stopped(), "a key does not undo what a call did");
        assert!(line.hold(false).has_started && !line.is_stopped());
    }

    #[test]
    fn a_line_that_is_too_long_loses_its_end_and_can_be_ended() {
        let mut line = Line::new();
        let mut effect = Effect::default();
        assert_eq!(line.receive(&[b'a'; 5000], &mut effect), 5000);
        assert_eq!(line.receive(b"\n", &mut effect), 1);
        assert_eq!(line.take(10_000).len(), LIMIT);
        line.receive(&[b'b'; 3000], &mut effect);
        line.receive(b"\n", &mut effect);
        assert!(
            line.receive(&[b'c'; 3000], &mut effect) < 3000,
            "behind a finished line there is an end of room"
        );
    }

    #[test]
    fn reads_wait_as_min_and_time_say() {
        let mut line = Line::new();
        line.set(Termios { local: 0, ..line.termios });
        (line.termios.keys[VMIN], line.termios.keys[VTIME]) = (3, 0);
        type_in(&mut line, b"ab");
        assert_eq!((line.readable(), line.read_limit_ns(), line.has_input()), (None, None, false));
        assert_eq!(line.take_rest(10), Some(b"ab".to_vec()));
        (line.termios.keys[VMIN], line.termios.keys[VTIME]) = (0, 5);
        assert_eq!((line.readable(), line.read_limit_ns()), (None, Some(500_000_000)));
        line.termios.keys[VTIME] = 0;
        assert_eq!(line.readable(), Some(0));
        line.set(Termios::START);
        assert_eq!((line.read_limit_ns(), line.take_rest(10)), (None, None));
    }

    #[test]
    fn what_is_typed_while_lines_are_not_edited_becomes_one_line() {
        let mut line = Line::new();
        line.set(Termios { local: 0, ..line.termios });
        type_in(&mut line, b"ab");
        line.set(Termios::START);
        assert_eq!(line.take(10), b"ab");
        type_in(&mut line, b"c\x04d");
        line.set(Termios { local: 0, ..line.termios });
        assert_eq!(line.take(10), b"c\0d", "an end of file is a NUL to who does not edit lines");
    }
}
