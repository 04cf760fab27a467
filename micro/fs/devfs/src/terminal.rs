// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the console and pseudo-terminals answer alike (ioctl_tty(2)).

use crate::line::{Line, TERMIOS_SIZE, Termios};
use abi::Result;
use api_user::UserPtr;

pub const TCGETS: u32 = 0x5401;
pub const TCSETS: u32 = 0x5402;
pub const TCSETSF: u32 = 0x5404;
pub const TCSBRK: u32 = 0x5409;
pub const TCXONC: u32 = 0x540a;
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
pub const SIGWINCH: i32 = 28;

/// A line discipline and who has to know of its changes.
pub trait Terminal {
    /// Under the terminal's lock: nothing of the program's memory is to be touched.
    fn with_line<R>(&self, act: impl FnOnce(&mut Line) -> R) -> R;

    /// The settings are others now: what waits may be readable.
    fn set(&self) {}

    fn resized(&self);

    /// Settings and size; `None`: another request.
    fn settings(&self, command: u32, argument: u64) -> Option<Result<usize>> {
        let done = match command {
            TCGETS => {
                let raw = self.with_line(|line| line.termios.encode());
                UserPtr::<u8>::new(argument).write_slice(&raw)
            }
            TCSETS..=TCSETSF => UserPtr::<[u8; TERMIOS_SIZE]>::new(argument).read().map(|raw| {
                self.with_line(|line| {
                    if command == TCSETSF {
                        line.flush();
                    }
                    line.set(Termios::decode(&raw));
                });
                self.set();
            }),
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
