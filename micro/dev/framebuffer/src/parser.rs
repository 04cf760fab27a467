// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes of a program, taken apart as terminals do: UTF-8, control characters and escape sequences (ECMA-48; the states are those
//! that DEC's terminals have). A sequence that nothing is made of is swallowed as a whole, however long it is.

use crate::font::REPLACEMENT;

/// Numbers of a sequence that are kept, and the largest one.
const MAX_NUMBERS: usize = 16;
const MAX_NUMBER: u16 = 999;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 7;
/// CAN and SUB end a sequence.
const CANCEL: [u8; 2] = [0x18, 0x1a];

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Print(char),
    /// A control character (below 0x20).
    Control(u8),
    /// ESC and this byte.
    Escape(u8),
    /// A control sequence without marks of its own: its numbers (0 for one that was left out) and its last byte.
    Sequence(&'a [u16], u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    /// Behind ESC and bytes that say what the last one means (a character set).
    Intermediate,
    Sequence,
    /// With marks of its own, or broken.
    Foreign,
    /// Text for the terminal itself, such as its title, until BEL or ESC \.
    Text,
}

/// Where in the bytes it is.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    numbers: [u16; MAX_NUMBERS],
    count: usize,
    /// A character's first bytes.
    partial: [u8; 4],
    length: usize,
}

impl Parser {
    pub const fn new() -> Parser {
        Parser { state: State::Ground, numbers: [0; MAX_NUMBERS], count: 0, partial: [0; 4], length: 0 }
    }

    /// Takes a byte.
    pub fn push(&mut self, byte: u8, to: &mut impl FnMut(Event<'_>)) {
        if self.length > 0 || byte >= 0x80 && self.state == State::Ground {
            return self.push_utf8(byte, to);
        }
        match (self.state, byte) {
            (State::Text, BELL) => self.state = State::Ground,
            (_, ESCAPE) => self.state = State::Escape,
            (_, byte) if CANCEL.contains(&byte) => self.state = State::Ground,
            (State::Text, _) => {}
            // In the middle of a sequence, too.
            (_, 0..0x20) => to(Event::Control(byte)),
            (State::Ground, 0x7f) => {}
            (State::Ground, _) => to(Event::Print(byte.into())),
            (State::Escape, b'[') => {
                (self.state, self.count, self.numbers) = (State::Sequence, 0, [0; MAX_NUMBERS]);
            }
            // Operating system command, device control string, start of string, privacy message, application program command.
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => self.state = State::Text,
            (State::Escape | State::Intermediate, 0x20..0x30) => self.state = State::Intermediate,
            (State::Escape, _) => {
                self.state = State::Ground;
                to(Event::Escape(byte));
            }
            (State::Intermediate, _) => self.state = State::Ground,
            (State::Sequence, b'0'..=b'9') => {
                if let Some(number) = self.numbers.get_mut(self.count) {
                    *number = (*number * 10 + u16::from(byte - b'0')).min(MAX_NUMBER);
                }
            }
            (State::Sequence, b';') => self.count = (self.count + 1).min(MAX_NUMBERS),
            (State::Sequence, 0x40..0x7f) => {
                self.state = State::Ground;
                let count = (self.count + 1).min(MAX_NUMBERS);
                to(Event::Sequence(&self.numbers[..count], byte));
            }
            (State::Sequence, _) => self.state = State::Foreign,
            (State::Foreign, 0x40..0x7f) => self.state = State::Ground,
            (State::Foreign, _) => {}
        }
    }

    /// A character that is not valid is replaced by one for its longest part that could have begun one (Unicode 3.9).
    fn push_utf8(&mut self, byte: u8, to: &mut impl FnMut(Event<'_>)) {
        self.partial[self.length] = byte;
        self.length += 1;
        match core::str::from_utf8(&self.partial[..self.length]) {
            Ok(text) => text.chars().for_each(|character| to(Event::Print(character))),
            Err(error) if error.error_len().is_none() => return,
            Err(_) => {
                to(Event::Print(REPLACEMENT));
                // What was there before could have gone on, so this byte is none of that character's.
                if self.length > 1 {
                    self.length = 0;
                    return self.push(byte, to);
                }
            }
        }
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::String, vec::Vec};

    fn parsed(bytes: &[u8]) -> String {
        let (mut parser, mut said) = (Parser::new(), Vec::new());
        for byte in bytes {
            parser.push(*byte, &mut |event| {
                said.push(match event {
                    Event::Print(character) => format!("{character}"),
                    Event::Control(byte) => format!("<{byte}>"),
                    Event::Escape(byte) => format!("<ESC {}>", byte as char),
                    Event::Sequence(numbers, byte) => format!("<{numbers:?}{}>", byte as char),
                });
            });
        }
        said.concat()
    }

    #[test]
    fn text_and_what_is_not_text_are_told_apart() {
        assert_eq!(parsed("aäé€😀\n".as_bytes()), "aäé€😀<10>");
        assert_eq!(parsed(b"a\xffb\xe2\x82c\xc3\x1b[1mz\xe2\x82\xe2\x82\xac"), "a�b�c�<[1]m>z�€");
        assert_eq!(parsed(b"\xf0\x9f\x98\n\xed\xa0\x80"), "�<10>���");
        assert_eq!(parsed(b"\x1b[m\x1b[1;31mred\x1b[;5H\x1b[2J"), "<[0]m><[1, 31]m>red<[0, 5]H><[2]J>");
        assert_eq!(parsed(b"\x1b7\x1b8\x1bc\x1b(Bx"), "<ESC 7><ESC 8><ESC c>x");
        // Sequences of no meaning here, with text behind them.
        assert_eq!(parsed(b"\x1b[?25lA\x1b[>cB\x1b[1 qC\x1b[38:2:1:2:3mD"), "ABCD");
        assert_eq!(parsed(b"\x1b]0;a title\x07A\x1b]8;;http://x\x1b\\B\x1bPq\x1b\\C"), "A<ESC \\>B<ESC \\>C");
        assert_eq!(parsed(b"\x1b[12\x18A\x1b[1\n2mB\x1b\x1b[3mC"), "A<10><[12]m>B<[3]m>C");
    }

    #[test]
    fn sequences_without_an_end_take_no_memory() {
        let mut long = Vec::from(&b"\x1b["[..]);
        long.extend(b"99999999999;".repeat(1000));
        long.extend(b"m.");
        assert_eq!(parsed(&long), format!("<{:?}m>.", [999; MAX_NUMBERS]));
        let text = [&b"\x1b]"[..], &[b'x'; 100_000], b"\x07."].concat();
        assert_eq!(parsed(&text), ".");
    }
}
