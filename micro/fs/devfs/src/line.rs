// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line discipline of a terminal (termios(3)): editing, echo, signal keys.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::{NoMemory, Reserve};

const ISTRIP: u32 = 0o40;
const INLCR: u32 = 0o100;
const IGNCR: u32 = 0o200;
pub const ICRNL: u32 = 0o400;
const IUTF8: u32 = 0o40000;
pub const OPOST: u32 = 1;
pub const ONLCR: u32 = 4;
const OCRNL: u32 = 0o10;
const ONOCR: u32 = 0o20;
const ONLRET: u32 = 0o40;
pub const ISIG: u32 = 1;
pub const ICANON: u32 = 2;
pub const ECHO: u32 = 0o10;
const ECHOE: u32 = 0o20;
const ECHOK: u32 = 0o40;
const TOSTOP: u32 = 0o400;
const ECHOCTL: u32 = 0o1000;
const ECHOKE: u32 = 0o4000;
const IEXTEN: u32 = 0o100000;
const IXON: u32 = 0o2000;
/// B38400, CS8, CREAD.
const CFLAG: u32 = 0o277;
const HUPCL: u32 = 0o2000;
pub const CLOCAL: u32 = 0o4000;
const VINTR: usize = 0;
const VQUIT: usize = 1;
const VERASE: usize = 2;
const VKILL: usize = 3;
const VEOF: usize = 4;
const VMIN: usize = 6;
const VSUSP: usize = 10;
const VEOL: usize = 11;
const VWERASE: usize = 14;
const VEOL2: usize = 16;
pub const SIGINT: i32 = 2;
pub const SIGQUIT: i32 = 3;
pub const SIGTSTP: i32 = 20;
/// Input that nobody reads (Linux N_TTY_BUF_SIZE).
const LIMIT: usize = 4096;

/// struct termios as the kernel has it: four words of flags, the line, 19 control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    pub input: u32,
    pub output: u32,
    pub control: u32,
    pub local: u32,
    pub line: u8,
    pub keys: [u8; 19],
}

/// Bytes of struct termios.
pub const TERMIOS_SIZE: usize = 36;

impl Termios {
    const START: Termios = Termios {
        input: ICRNL | IXON,
        output: OPOST | ONLCR,
        control: CFLAG | HUPCL,
        local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
        line: 0,
        // INTR QUIT ERASE KILL EOF TIME MIN SWTC START STOP SUSP EOL REPRINT DISCARD WERASE LNEXT EOL2
        keys: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
    };

    /// As a mask of [`Termios::with_locked`], it locks nothing.
    const UNLOCKED: Termios = Termios { input: 0, output: 0, control: 0, local: 0, line: 0, keys: [0; 19] };

    /// These settings, where the bits and control characters that `locked` names stay as they are `before`
    /// (ioctl_tty(2), TIOCSLCKTRMIOS).
    fn with_locked(self, locked: &Termios, before: &Termios) -> Termios {
        let word = |new: u32, locked: u32, before: u32| new & !locked | before & locked;
        let byte = |new: u8, locked: u8, before: u8| if locked == 0 { new } else { before };
        Termios {
            input: word(self.input, locked.input, before.input),
            output: word(self.output, locked.output, before.output),
            control: word(self.control, locked.control, before.control),
            local: word(self.local, locked.local, before.local),
            line: byte(self.line, locked.line, before.line),
            keys: core::array::from_fn(|i| byte(self.keys[i], locked.keys[i], before.keys[i])),
        }
    }

    pub fn encode(&self) -> [u8; TERMIOS_SIZE] {
        let mut out = [0; TERMIOS_SIZE];
        for (i, word) in [self.input, self.output, self.control, self.local].into_iter().enumerate() {
            out[i * 4..i * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        out[16] = self.line;
        out[17..].copy_from_slice(&self.keys);
        out
    }

    pub fn decode(raw: &[u8; TERMIOS_SIZE]) -> Termios {
        let word =
            |i: usize| u32::from_ne_bytes([raw[i * 4], raw[i * 4 + 1], raw[i * 4 + 2], raw[i * 4 + 3]]);
        let mut keys = [0; 19];
        keys.copy_from_slice(&raw[17..]);
        Termios { input: word(0), output: word(1), control: word(2), local: word(3), line: raw[16], keys }
    }
}

/// What became of a byte of input.
#[derive(Default)]
pub struct Effect {
    /// To be shown.
    pub echo: Vec<u8>,
    pub signal: Option<i32>,
}

/// State of one terminal.
pub struct Line {
    pub termios: Termios,
    /// What of them [`Line::set`] leaves as it is.
    pub locked: Termios,
    /// Rows, columns, and their pixels.
    pub size: [u16; 4],
    /// Bytes that may be read.
    ready: VecDeque<u8>,
    /// Ends of lines in `ready` (canonical mode reads one line at a time); an empty line is an end of file.
    ends: VecDeque<usize>,
    /// The line being edited.
    editing: Vec<u8>,
    /// Where on its line the next byte of output goes.
    column: usize,
}

impl Line {
    /// Something is done with output; else [`Line::output`] hands it on as it is.
    pub fn processes_output(&self) -> bool {
        self.termios.output & OPOST != 0
    }

    /// What the terminal shows of a byte that the program writes (Linux' do_output_char).
    pub fn output(&mut self, byte: u8, put: &mut impl FnMut(u8)) {
        let flags = self.termios.output;
        let has = |flag: u32| flags & (OPOST | flag) == OPOST | flag;
        match byte {
            b'\n' => {
                if has(ONLCR) {
                    put(b'\r');
                }
                if has(ONLCR) || has(ONLRET) {
                    self.column = 0;
                }
                put(byte);
            }
            b'\r' if has(ONOCR) && self.column == 0 => {}
            b'\r' if has(OCRNL) => {
                if has(ONLRET) {
                    self.column = 0;
                }
                put(b'\n');
            }
            b'\r' => {
                self.column = 0;
                put(byte);
            }
            b'\t' => {
                self.column = (self.column | 7) + 1;
                put(byte);
            }
            8 => {
                self.column = self.column.saturating_sub(1);
                put(byte);
            }
            // Neither controls nor the rest of a character take a place.
            _ => {
                let continues = self.termios.input & IUTF8 != 0 && byte & 0xc0 == 0x80;
                self.column += usize::from(!byte.is_ascii_control() && !continues);
                put(byte);
            }
        }
    }

    /// Background processes that write are stopped.
    pub fn stops_background(&self) -> bool {
        self.has(TOSTOP)
    }

    pub const fn new() -> Line {
        Line::with_size([24, 80, 0, 0])
    }

    /// Of a terminal of that many rows and columns.
    pub const fn with_size(size: [u16; 4]) -> Line {
        Line {
            termios: Termios::START,
            locked: Termios::UNLOCKED,
            size,
            ready: VecDeque::new(),
            ends: VecDeque::new(),
            editing: Vec::new(),
            column: 0,
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

    /// Bytes that may come in before somebody reads. A line that is too long loses its end, but the line that would
    /// end it is still taken.
    pub fn room(&self) -> usize {
        let used = self.ready.len() + self.editing.len();
        let unfinished = self.has(ICANON) && self.ends.is_empty();
        if unfinished { LIMIT } else { LIMIT.saturating_sub(used) }
    }

    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Makes room for that many bytes of input: [`Line::input`] of them asks for no memory.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), NoMemory> {
        self.editing.reserve_fallibly(bytes)?;
        self.ends.reserve_fallibly(bytes)?;
        self.ready.reserve_fallibly(self.editing.len() + bytes)
    }

    /// Takes one byte of input.
    pub fn input(&mut self, byte: u8, effect: &mut Effect) {
        let input = self.termios.input;
        let byte = if input & ISTRIP != 0 { byte & 0x7f } else { byte };
        let byte = match byte {
            b'\r' if input & IGNCR != 0 => return,
            b'\r' if input & ICRNL != 0 => b'\n',
            b'\n' if input & INLCR != 0 => b'\r',
            byte => byte,
        };
        let keys = self.termios.keys;
        if self.has(ISIG) && byte != 0 {
            for (key, signal) in [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)] {
                if byte == keys[key] {
                    self.echo(byte, effect);
                    self.editing.clear();
                    effect.signal = Some(signal);
                    return;
                }
            }
        }
        if !self.has(ICANON) {
            self.echo(byte, effect);
            if self.ready.len() < LIMIT {
                self.ready.push_back(byte);
            }
            return;
        }
        if byte == keys[VERASE] && byte != 0 {
            self.erase(effect);
        } else if byte == keys[VWERASE] && byte != 0 && self.has(IEXTEN) {
            self.erase_word(effect);
        } else if byte == keys[VKILL] && byte != 0 {
            for _ in 0..core::mem::take(&mut self.editing).len() {
                if self.has(ECHO) {
                    effect.echo.extend_from_slice(b"\x08 \x08");
                }
            }
        } else if byte == keys[VEOF] && byte != 0 {
            self.finish();
        } else if byte == b'\n'
            || byte != 0 && (byte == keys[VEOL] || byte == keys[VEOL2] && self.has(IEXTEN))
        {
            self.echo(byte, effect);
            self.editing.push(byte);
            self.finish();
        } else if self.editing.len() + self.ready.len() < LIMIT - 1 {
            // The last place is that of the end of the line.
            self.echo(byte, effect);
            self.editing.push(byte);
        }
    }

    /// Takes the last character of the line away.
    fn erase(&mut self, effect: &mut Effect) {
        // The first byte of a character is none that continues one.
        let continues = |byte: u8| self.termios.input & IUTF8 != 0 && byte & 0xc0 == 0x80;
        let Some(start) = self.editing.iter().rposition(|byte| !continues(*byte)) else { return };
        self.editing.truncate(start);
        if self.has(ECHO) {
            effect.echo.extend_from_slice(b"\x08 \x08");
        }
    }

    /// Takes the last word away, and what is behind it.
    fn erase_word(&mut self, effect: &mut Effect) {
        let mut seen = false;
        while let Some(last) = self.editing.last() {
            let in_word = last.is_ascii_alphanumeric() || *last == b'_' || !last.is_ascii();
            if seen && !in_word {
                break;
            }
            seen |= in_word;
            self.erase(effect);
        }
    }

    fn echo(&self, byte: u8, effect: &mut Effect) {
        if !self.has(ECHO) {
            return;
        }
        match byte {
            b'\n' if self.termios.output & (OPOST | ONLCR) == OPOST | ONLCR => {
                effect.echo.extend_from_slice(b"\r\n")
            }
            b'\n' => effect.echo.push(byte),
            b'\t' | 32.. if byte != 127 => effect.echo.push(byte),
            _ if !self.has(ECHOCTL) => effect.echo.push(byte),
            _ => effect.echo.extend_from_slice(&[b'^', byte ^ 0x40]),
        }
    }

    fn finish(&mut self) {
        self.ends.push_back(self.editing.len());
        self.ready.extend(&self.editing);
        self.editing.clear();
    }

    /// What may be read now: `None` means wait.
    pub fn readable(&self) -> Option<usize> {
        if self.has(ICANON) {
            return self.ends.front().copied();
        }
        let least = self.termios.keys[VMIN] as usize;
        (self.ready.len() >= least.max(1) || least == 0).then_some(self.ready.len())
    }

    /// Takes up to `most` bytes of what may be read.
    pub fn take(&mut self, most: usize) -> Vec<u8> {
        let n = self.readable().unwrap_or(0).min(most);
        let out: Vec<u8> = self.ready.drain(..n).collect();
        if let Some(end) = self.ends.front_mut() {
            *end = end.saturating_sub(n);
            if *end == 0 {
                self.ends.pop_front();
            }
        }
        out
    }

    /// Forgets unread input (TCFLSH).
    pub fn flush(&mut self) {
        self.ready.clear();
        self.ends.clear();
        self.editing.clear();
    }

    /// Changes the settings; lines that were finished stay readable in raw mode.
    pub fn set(&mut self, termios: Termios) {
        let was_canonical = self.has(ICANON);
        self.termios = termios.with_locked(&self.locked, &self.termios);
        if was_canonical && !self.has(ICANON) {
            self.ends.clear();
            let unfinished = core::mem::take(&mut self.editing);
            self.ready.extend(unfinished);
        } else if !was_canonical && self.has(ICANON) && !self.ready.is_empty() {
            self.ends.push_back(self.ready.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(line: &mut Line, bytes: &[u8]) -> Effect {
        let mut effect = Effect::default();
        bytes.iter().for_each(|b| line.input(*b, &mut effect));
        effect
    }

    #[test]
    fn lines_are_edited_and_echoed() {
        let mut line = Line::new();
        let effect = feed(&mut line, b"helo\x7flo");
        assert_eq!(effect.echo, b"helo\x08 \x08lo");
        assert_eq!(line.readable(), None);
        feed(&mut line, b"\rsecond\n");
        assert_eq!(line.take(3), b"hel");
        assert_eq!(line.take(100), b"lo\n");
        assert_eq!(line.take(100), b"second\n");
        assert_eq!(line.readable(), None);
        feed(&mut line, b"part\x04");
        assert_eq!(line.take(100), b"part");
        feed(&mut line, b"\x04");
        assert_eq!(line.readable(), Some(0), "end of file");
        assert_eq!(line.take(100), b"");
        assert_eq!(line.readable(), None);
    }

    #[test]
    fn words_and_characters_are_erased_and_lines_end_where_they_are_told() {
        let mut line = Line::new();
        feed(&mut line, b"one two  \x17x\n");
        assert_eq!(line.take(100), b"one x\n");
        feed(&mut line, "a\u{fc}\x7f\x7fb\n".as_bytes());
        assert_eq!(line.take(100), b"ab\n", "bytes are erased one by one");
        line.set(Termios { input: ICRNL | IUTF8, ..line.termios });
        feed(&mut line, "a\u{fc}\x7fb\n".as_bytes());
        assert_eq!(line.take(100), b"ab\n", "characters are erased as a whole");
        line.termios.keys[VEOL] = b'=';
        feed(&mut line, b"key=value");
        assert_eq!((line.take(100), line.readable()), (b"key=".to_vec(), None));
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
        assert_eq!(shown(ONLCR | OCRNL, b"a\n\r"), b"a\n\r", "not without OPOST");
    }

    #[test]
    fn signal_keys_raise_signals_and_raw_mode_passes_all() {
        let mut line = Line::new();
        let effect = feed(&mut line, b"abc\x03");
        assert_eq!((effect.signal, &effect.echo[..]), (Some(SIGINT), &b"abc^C"[..]));
        let raw = Termios { input: 0, local: 0, ..line.termios };
        line.set(Termios::decode(&raw.encode()));
        assert_eq!(feed(&mut line, b"\x03\r").signal, None);
        assert_eq!(line.take(10), b"\x03\r");
        line.set(Termios { output: 0, ..Termios::START });
        assert_eq!(feed(&mut line, b"\n").echo, b"\n", "what is echoed is output as any other");
    }
}
