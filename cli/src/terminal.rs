// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's terminal.

use crate::fault::{Fault, Result};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::{io, os::fd::AsFd, thread};
use unilith_overlay::{Input, Size};

/// The user's terminal, passing every key on, until this is dropped.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// `None` when standard input is no terminal.
    pub fn enter() -> Option<Raw> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Raw { before })
    }

    /// What leaves raw mode when this process ends without dropping it.
    pub fn undo(&self) -> impl Fn() + Send + use<> {
        let before = self.before.clone();
        move || restore(&before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

fn restore(before: &Termios) {
    // There is nothing left to do for a terminal that is gone.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
}

/// The user's terminal without an echo of what is typed, until this is dropped.
pub struct Silent {
    before: Termios,
}

impl Silent {
    /// `None` when standard input is no terminal.
    pub fn enter() -> Option<Silent> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Silent { before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

/// The size of the user's terminal, looked for at input first; that of a usual one where there is none.
pub fn size() -> Size {
    let found = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout()));
    found.map_or(Size { columns: 80, rows: 24 }, |size| Size { columns: size.ws_col, rows: size.ws_row })
}

/// Gives a terminal a size.
pub fn set_size(terminal: impl AsFd, size: Size) -> Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).map_err(|e| Fault::new(format!("the terminal: {e}")))
}

/// Columns and rows as a bundle has them; no terminal has more than 65535 of either.
pub fn cells((columns, rows): (u64, u64)) -> Size {
    let cells = |n: u64| u16::try_from(n).unwrap_or(u16::MAX);
    Size { columns: cells(columns), rows: cells(rows) }
}

/// Tells the machine each new size of a terminal, which `size` looks up.
pub fn watch_size(input: Input, size: impl Fn() -> Size + Send + 'static) -> Result<()> {
    let signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGWINCH]);
    let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch the terminal: {e}")))?;
    // It may have changed before the signal was watched.
    input.resize(size())?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if input.resize(size()).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// The size of a terminal; that of a usual one where nobody has set it.
pub fn size_of(terminal: impl AsFd) -> Size {
    let found = tcgetwinsize(terminal).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    found.map_or(Size { columns: 80, rows: 24 }, |size| Size { columns: size.ws_col, rows: size.ws_row })
}
