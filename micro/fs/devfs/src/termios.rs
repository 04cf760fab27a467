// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A terminal's settings (termios(3)).

// Input.
pub const ISTRIP: u32 = 0o40;
pub const INLCR: u32 = 0o100;
pub const IGNCR: u32 = 0o200;
pub const ICRNL: u32 = 0o400;
pub const IUCLC: u32 = 0o1000;
pub const IXON: u32 = 0o2000;
pub const IXANY: u32 = 0o4000;
pub const IUTF8: u32 = 0o40000;
pub const PARMRK: u32 = 0o10;
// Output.
pub const OPOST: u32 = 1;
pub const OLCUC: u32 = 2;
pub const ONLCR: u32 = 4;
pub const OCRNL: u32 = 0o10;
pub const ONOCR: u32 = 0o20;
pub const ONLRET: u32 = 0o40;
/// Tabs are spaces: all bits of TABDLY.
pub const XTABS: u32 = 0o14000;
// Local.
pub const ISIG: u32 = 1;
pub const ICANON: u32 = 2;
pub const ECHO: u32 = 0o10;
pub const ECHOE: u32 = 0o20;
pub const ECHOK: u32 = 0o40;
pub const ECHONL: u32 = 0o100;
pub const NOFLSH: u32 = 0o200;
pub const TOSTOP: u32 = 0o400;
pub const ECHOCTL: u32 = 0o1000;
pub const ECHOPRT: u32 = 0o2000;
pub const ECHOKE: u32 = 0o4000;
pub const IEXTEN: u32 = 0o100000;
pub const EXTPROC: u32 = 0o200000;
// Control.
const CSIZE: u32 = 0o60;
const CREAD: u32 = 0o200;
const PARENB: u32 = 0o400;
/// B38400, CS8, CREAD.
pub const CFLAG: u32 = 0o277;
const HUPCL: u32 = 0o2000;
pub const CLOCAL: u32 = 0o4000;
// Keys.
pub const VINTR: usize = 0;
pub const VQUIT: usize = 1;
pub const VERASE: usize = 2;
pub const VKILL: usize = 3;
pub const VEOF: usize = 4;
pub const VTIME: usize = 5;
pub const VMIN: usize = 6;
pub const VSTART: usize = 8;
pub const VSTOP: usize = 9;
pub const VSUSP: usize = 10;
pub const VEOL: usize = 11;
pub const VREPRINT: usize = 12;
pub const VWERASE: usize = 14;
pub const VLNEXT: usize = 15;
pub const VEOL2: usize = 16;

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
    pub const START: Termios = Termios {
        input: ICRNL | IXON,
        output: OPOST | ONLCR,
        control: CFLAG | HUPCL,
        local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
        line: 0,
        // INTR QUIT ERASE KILL EOF TIME MIN SWTC START STOP SUSP EOL REPRINT DISCARD WERASE LNEXT EOL2
        keys: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
    };

    /// As a mask of [`Termios::with_locked`], it locks nothing.
    pub const UNLOCKED: Termios =
        Termios { input: 0, output: 0, control: 0, local: 0, line: 0, keys: [0; 19] };

    /// These settings, where the bits and control characters that `locked` names stay as they are `before`
    /// (ioctl_tty(2), TIOCSLCKTRMIOS).
    pub fn with_locked(self, locked: &Termios, before: &Termios) -> Termios {
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

    /// Whether ^S and ^Q stop and start the output, as a terminal that looks at packets (TIOCPKT) wants to know.
    pub fn flows_by_usual_keys(&self) -> bool {
        self.input & IXON != 0 && (self.keys[VSTOP], self.keys[VSTART]) == (19, 17)
    }

    /// As a line without wires has it: eight bits, no parity, a receiver.
    pub fn without_wires(self) -> Termios {
        Termios { control: self.control & !(CSIZE | PARENB) | CFLAG & CSIZE | CREAD, ..self }
    }
}
