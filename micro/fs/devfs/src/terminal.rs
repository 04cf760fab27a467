// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the console and pseudo-terminals answer alike (ioctl_tty(2)).

use crate::line::{Effect, Line};
use crate::machine;
use crate::termios::{CLOCAL, TERMIOS_SIZE, Termios};
use abi::{Result, errno::*};
use api_user::UserPtr;

pub const TCGETS: u32 = 0x5401;
pub const TCSETS: u32 = 0x5402;
pub const TCSETSF: u32 = 0x5404;
/// The same with `struct termios2`, which names the speeds as well.
pub const TCGETS2: u32 = 0x802c_542a;
pub const TCSETS2: u32 = 0x402c_542b;
pub const TCSETSF2: u32 = 0x402c_542d;
/// The same with System V's `struct termio`: flags of 16 bits and the first eight keys.
pub const TCGETA: u32 = 0x5405;
const TCSETA: u32 = 0x5406;
const TCSETAF: u32 = 0x5408;
/// Bytes of struct termio, the last of which is padding.
const TERMIO_SIZE: usize = 18;
const TERMIO_KEYS: usize = 8;
const TIOCSETD: u32 = 0x5423;
const TIOCGETD: u32 = 0x5424;
/// The one line discipline there is.
const N_TTY: i32 = 0;
/// Bytes of struct termios2; both speeds are behind struct termios.
const TERMIOS2_SIZE: usize = TERMIOS_SIZE + 8;
/// What B38400 stands for.
const SPEED: u32 = 38400;
pub const TCSBRK: u32 = 0x5409;
pub const TCXONC: u32 = 0x540a;
// Arguments of TCXONC (termios(3), tcflow).
pub const TCOOFF: u64 = 0;
pub const TCOON: u64 = 1;
pub const TCIOFF: u64 = 2;
pub const TCION: u64 = 3;
/// Typing for the terminal's reader, which Linux 6.2 and later refuse as well.
pub const TIOCSTI: u32 = 0x5412;
pub const TCFLSH: u32 = 0x540b;
pub const TIOCSCTTY: u32 = 0x540e;
pub const TIOCGPGRP: u32 = 0x540f;
pub const TIOCSPGRP: u32 = 0x5410;
pub const TIOCOUTQ: u32 = 0x5411;
pub const TIOCNOTTY: u32 = 0x5422;
pub const TIOCGWINSZ: u32 = 0x5413;
pub const TIOCSWINSZ: u32 = 0x5414;
pub const FIONREAD: u32 = 0x541b;
pub const TIOCGSID: u32 = 0x5429;
/// Which settings are locked.
const TIOCGLCKTRMIOS: u32 = 0x5456;
const TIOCSLCKTRMIOS: u32 = 0x5457;
/// The line needs no carrier: CLOCAL, by itself.
const TIOCGSOFTCAR: u32 = 0x5419;
const TIOCSSOFTCAR: u32 = 0x541a;
pub const SIGWINCH: i32 = 28;

/// Whether a request changes the settings.
pub fn changes_settings(command: u32) -> bool {
    matches!(command, TCSETS..=TCSETSF | TCSETS2..=TCSETSF2 | TCSETA..=TCSETAF)
}

/// `struct termio` of these settings.
fn encode_short(termios: &Termios) -> [u8; TERMIO_SIZE] {
    let mut out = [0; TERMIO_SIZE];
    for (i, word) in [termios.input, termios.output, termios.control, termios.local].into_iter().enumerate() {
        out[i * 2..i * 2 + 2].copy_from_slice(&(word as u16).to_ne_bytes());
    }
    out[8] = termios.line;
    out[9..9 + TERMIO_KEYS].copy_from_slice(&termios.keys[..TERMIO_KEYS]);
    out
}

/// These settings with what a `struct termio` says.
fn with_short(mut termios: Termios, raw: &[u8; TERMIO_SIZE]) -> Termios {
    let low = |before: u32, i: usize| {
        before & 0xffff_0000 | u32::from(u16::from_ne_bytes([raw[i * 2], raw[i * 2 + 1]]))
    };
    termios.input = low(termios.input, 0);
    termios.output = low(termios.output, 1);
    termios.control = low(termios.control, 2);
    termios.local = low(termios.local, 3);
    termios.line = raw[8];
    termios.keys[..TERMIO_KEYS].copy_from_slice(&raw[9..9 + TERMIO_KEYS]);
    termios
}

/// A line discipline and who has to know of its changes.
pub trait Terminal {
    /// Under the terminal's lock: nothing of the program's memory is to be touched.
    fn with_line<R>(&self, act: impl FnOnce(&mut Line) -> R) -> R;

    /// What came of a change of the settings: what waits may be readable, and output go on.
    fn changed(&self, effect: Effect);

    fn resized(&self);

    /// Settings and size; `None`: another request.
    fn settings(&self, command: u32, argument: u64) -> Option<Result<usize>> {
        let done = match command {
            TCGETS => {
                let raw = self.with_line(|line| line.termios.encode());
                UserPtr::<u8>::new(argument).write_slice(&raw)
            }
            TCGETS2 => {
                let raw = self.with_line(|line| line.termios.encode());
                let mut with_speeds = [0; TERMIOS2_SIZE];
                with_speeds[..TERMIOS_SIZE].copy_from_slice(&raw);
                with_speeds[TERMIOS_SIZE..][..4].copy_from_slice(&SPEED.to_ne_bytes());
                with_speeds[TERMIOS_SIZE + 4..].copy_from_slice(&SPEED.to_ne_bytes());
                UserPtr::<u8>::new(argument).write_slice(&with_speeds)
            }
            TCGETA => {
                let raw = self.with_line(|line| encode_short(&line.termios));
                UserPtr::<u8>::new(argument).write_slice(&raw)
            }
            TCSETA..=TCSETAF => {
                let mut raw = [0; TERMIO_SIZE];
                api_user::read_bytes(argument, &mut raw).map(|()| {
                    self.changed(self.with_line(|line| match with_short(line.termios, &raw) {
                        new if command == TCSETAF => line.set_and_flush(new),
                        new => line.set(new),
                    }));
                })
            }
            TIOCGLCKTRMIOS => {
                let raw = self.with_line(|line| line.locked.encode());
                UserPtr::<u8>::new(argument).write_slice(&raw)
            }
            TIOCSLCKTRMIOS if !(machine().caller)().administers => Err(EPERM),
            TIOCSLCKTRMIOS => {
                let mut raw = [0; TERMIOS_SIZE];
                api_user::read_bytes(argument, &mut raw)
                    .map(|()| self.with_line(|line| line.locked = Termios::decode(&raw)))
            }
            TIOCGSOFTCAR => {
                let is_local = self.with_line(|line| line.termios.control & CLOCAL != 0);
                UserPtr::<i32>::new(argument).write(is_local.into())
            }
            TIOCSSOFTCAR => UserPtr::<i32>::new(argument).read().map(|value| {
                self.changed(self.with_line(|line| {
                    let control = line.termios.control & !CLOCAL | if value != 0 { CLOCAL } else { 0 };
                    line.set(Termios { control, ..line.termios })
                }));
            }),
            TIOCGETD => UserPtr::<i32>::new(argument).write(N_TTY),
            TIOCSETD => match UserPtr::<i32>::new(argument).read() {
                Ok(N_TTY) => Ok(()),
                Ok(_) => Err(EINVAL),
                Err(e) => Err(e),
            },
            // No line has a speed: what a program says of them is not kept.
            TCSETS..=TCSETSF | TCSETS2..=TCSETSF2 => {
                let has_speeds = (TCSETS2..=TCSETSF2).contains(&command);
                let size = if has_speeds { TERMIOS2_SIZE } else { TERMIOS_SIZE };
                let mut raw = [0; TERMIOS2_SIZE];
                api_user::read_bytes(argument, &mut raw[..size]).map(|()| {
                    let termios: [u8; TERMIOS_SIZE] = core::array::from_fn(|i| raw[i]);
                    self.changed(self.with_line(|line| match Termios::decode(&termios) {
                        new if matches!(command, TCSETSF | TCSETSF2) => line.set_and_flush(new),
                        new => line.set(new),
                    }));
                })
            }
            TIOCGWINSZ => {
                let size = self.with_line(|line| line.size);
                UserPtr::<[u16; 4]>::new(argument).write(size)
            }
            TIOCSWINSZ => UserPtr::<[u16; 4]>::new(argument).read().map(|size| {
                let before = self.with_line(|line| core::mem::replace(&mut line.size, size));
                if before != size {
                    self.resized();
                }
            }),
            _ => return None,
        };
        Some(done.map(|()| 0))
    }
}
