// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Input of a machine whose standard streams are plain: any bytes, and an end, on a serial port that knows no end.

use alloc::vec::Vec;

/// Data link escape: the next byte means something else.
const DLE: u8 = 16;
/// End of transmission, behind DLE.
const EOT: u8 = 4;

/// Line feed, behind DLE: for monitors that turn a line feed which arrives alone into a carriage return.
const LINE_FEED: u8 = b'J';

/// What ends the input.
pub const INPUT_END: [u8; 2] = [DLE, EOT];

/// The bytes as they go to the machine's console.
pub fn encode_input(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if *byte == DLE {
            out.push(DLE);
        }
        out.push(*byte);
    }
    out
}

/// The same of bytes that are encoded already, without any line feed.
pub fn escape_line_feeds(encoded: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded.len());
    for byte in encoded {
        match byte {
            b'\n' => out.extend_from_slice(&[DLE, LINE_FEED]),
            byte => out.push(*byte),
        }
    }
    out
}

/// One thing that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Byte(u8),
    End,
}

/// Takes apart what arrives on the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputDecoder {
    is_escaped: bool,
}

impl InputDecoder {
    pub const fn new() -> InputDecoder {
        InputDecoder { is_escaped: false }
    }

    /// `None` for the first byte of two.
    pub fn push(&mut self, byte: u8) -> Option<Input> {
        if core::mem::take(&mut self.is_escaped) {
            return Some(match byte {
                EOT => Input::End,
                LINE_FEED => Input::Byte(b'\n'),
                byte => Input::Byte(byte),
            });
        }
        self.is_escaped = byte == DLE;
        (!self.is_escaped).then_some(Input::Byte(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_arrive_as_they_were_sent_and_then_the_end() {
        let all: Vec<u8> = (0..=255).chain([DLE, EOT, b'\n', EOT, DLE, b'J', b'\n', b'J']).collect();
        let sent = [&encode_input(&all)[..], &INPUT_END].concat();
        arrives(&sent, &all);
        let escaped = escape_line_feeds(&sent);
        assert!(!escaped.contains(&b'\n'));
        arrives(&escaped, &all);
    }

    fn arrives(sent: &[u8], all: &[u8]) {
        let mut decoder = InputDecoder::new();
        let arrived: Vec<Input> = sent.iter().filter_map(|byte| decoder.push(*byte)).collect();
        let (end, bytes) = arrived.split_last().unwrap();
        assert_eq!(*end, Input::End);
        let bytes: Vec<u8> =
            bytes.iter().map(|i| if let Input::Byte(b) = i { *b } else { unreachable!() }).collect();
        assert_eq!(bytes, all);
    }
}
