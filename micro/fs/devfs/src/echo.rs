// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a terminal shows: output as its flags say, and the echo of input, which waits while the output is stopped.

use crate::line::Line;
use crate::termios::{ECHOCTL, IUTF8, OCRNL, OLCUC, ONLCR, ONLRET, ONOCR, OPOST, XTABS};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Echo that waits (Linux' N_TTY_BUF_SIZE); more is lost.
const MAX_BYTES: usize = 4096;
/// So much is shown without waiting for the end of what came in (Linux' ECHO_COMMIT_WATERMARK).
const AT_ONCE: usize = 256;

/// A step of an echo: how it looks depends on the column it is shown at.
#[derive(Clone, Copy)]
pub enum Step {
    /// As if the program had written it.
    Output(u8),
    /// ^X.
    Control(u8),
    /// As it is.
    Plain(u8),
    /// Back over a tab that so many columns lie before, counted from the tab before or else from the line's start.
    EraseTab { columns: usize, after_tab: bool },
    /// The line that is edited begins here.
    StartOfLine,
    /// What was shown last takes no place.
    MoveBack,
}

/// Columns, and the echo that was not shown yet.
pub struct Screen {
    /// Where on its line the next byte goes.
    column: usize,
    /// Where the line that is edited began.
    line_start: usize,
    waiting: Vec<Step>,
}

impl Screen {
    pub const fn new() -> Screen {
        Screen { column: 0, line_start: 0, waiting: Vec::new() }
    }

    /// A step more to be shown; lost where there is no room.
    pub fn push(&mut self, step: Step) {
        if self.waiting.len() < MAX_BYTES && self.waiting.reserve_fallibly(1).is_ok() {
            self.waiting.push(step);
        }
    }

    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// More waits than is to wait for the end of the input.
    pub fn is_urgent(&self) -> bool {
        self.waiting.len() >= AT_ONCE
    }
}

/// A letter or digit of Latin-1, as Linux has it.
pub fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0xc0 && byte != 0xd7 && byte != 0xf7
}

pub fn to_lower(byte: u8) -> u8 {
    let is_upper = byte.is_ascii_uppercase() || (0xc0..=0xde).contains(&byte) && byte != 0xd7;
    if is_upper { byte + 32 } else { byte }
}

fn to_upper(byte: u8) -> u8 {
    let is_lower = byte.is_ascii_lowercase() || byte >= 0xdf && byte != 0xf7;
    if is_lower { byte - 32 } else { byte }
}

impl Line {
    /// Something is done with output; else [`Line::output`] hands it on as it is.
    pub fn processes_output(&self) -> bool {
        self.termios.output & OPOST != 0
    }

    /// The rest of a character of UTF-8, which takes no place of its own.
    pub fn is_continuation(&self, byte: u8) -> bool {
        self.termios.input & IUTF8 != 0 && byte & 0xc0 == 0x80
    }

    /// What the terminal shows of a byte that the program writes (Linux' do_output_char).
    pub fn output(&mut self, byte: u8, put: &mut impl FnMut(u8)) {
        let flags = self.termios.output;
        let has = |flag: u32| flags & (OPOST | flag) == OPOST | flag;
        let continues = self.is_continuation(byte);
        let screen = &mut self.screen;
        match byte {
            b'\n' => {
                if has(ONLRET) || has(ONLCR) {
                    screen.column = 0;
                }
                screen.line_start = screen.column;
                if has(ONLCR) {
                    put(b'\r');
                }
                put(byte);
            }
            b'\r' if has(ONOCR) && screen.column == 0 => {}
            b'\r' if has(OCRNL) => {
                if has(ONLRET) {
                    (screen.column, screen.line_start) = (0, 0);
                }
                put(b'\n');
            }
            b'\r' => {
                (screen.column, screen.line_start) = (0, 0);
                put(byte);
            }
            b'\t' => {
                let spaces = 8 - screen.column % 8;
                screen.column += spaces;
                if has(XTABS) {
                    (0..spaces).for_each(|_| put(b' '));
                } else {
                    put(byte);
                }
            }
            8 => {
                screen.column = screen.column.saturating_sub(1);
                put(byte);
            }
            _ if byte.is_ascii_control() => put(byte),
            _ => {
                screen.column += usize::from(!continues);
                put(if has(OLCUC) { to_upper(byte) } else { byte });
            }
        }
    }

    /// Shows a character of the input: controls as ^X, where ECHOCTL is set.
    pub fn echo(&mut self, byte: u8) {
        self.screen.push(match byte {
            0xff => Step::Plain(byte),
            _ if self.termios.local & ECHOCTL != 0 && byte.is_ascii_control() && byte != b'\t' => {
                Step::Control(byte)
            }
            _ => Step::Output(byte),
        });
    }

    /// Shows bytes as if the program had written them.
    pub fn echo_output(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.screen.push(if *byte == 0xff { Step::Plain(*byte) } else { Step::Output(*byte) });
        }
    }

    /// Shows what waits, unless the output is stopped.
    pub fn show_echo(&mut self, put: &mut impl FnMut(u8)) {
        if self.is_stopped() {
            return;
        }
        for step in core::mem::take(&mut self.screen.waiting) {
            match step {
                Step::Output(byte) if self.processes_output() => self.output(byte, put),
                Step::Output(byte) => put(byte),
                Step::Plain(byte) => {
                    self.screen.column += 1;
                    put(byte);
                }
                Step::Control(byte) => {
                    self.screen.column += 2;
                    put(b'^');
                    put(byte ^ 0x40);
                }
                Step::EraseTab { columns, after_tab } => {
                    let before = if after_tab { 0 } else { self.screen.line_start };
                    for _ in 0..8 - (columns + before) % 8 {
                        self.screen.column = self.screen.column.saturating_sub(1);
                        put(8);
                    }
                }
                Step::StartOfLine => self.screen.line_start = self.screen.column,
                Step::MoveBack => self.screen.column = self.screen.column.saturating_sub(1),
            }
        }
    }
}
