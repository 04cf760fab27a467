// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two streams on one serial port: what the machine prints, and its status lines, for monitors that have no second port
//! (Firecracker). A machine does so where its command line says `status=console`.
//!
//! Bytes are the console's until DLE SOH, then those of the status lines until DLE STX. The byte DLE itself is sent twice in either
//! stream, so nothing that a program prints is taken for a status line.

use alloc::vec::Vec;

/// Data link escape: the next byte means something else.
const DLE: u8 = 16;
/// Start of heading, behind DLE: bytes of the status lines follow.
const SOH: u8 = 1;
/// Start of text, behind DLE: bytes of the console follow.
const STX: u8 = 2;

/// What comes before bytes of the status lines, and what comes behind them.
pub const STATUS_BEGIN: [u8; 2] = [DLE, SOH];
pub const STATUS_END: [u8; 2] = [DLE, STX];

/// Hands over the bytes of either stream as they go to the port, in pieces.
pub fn encode_port<'a>(bytes: &'a [u8], mut send: impl FnMut(&'a [u8])) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == DLE) {
        send(&rest[..=at]);
        send(&rest[at..=at]);
        rest = &rest[at + 1..];
    }
    if !rest.is_empty() {
        send(rest);
    }
}

/// Takes apart what the machine sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortDecoder {
    is_escaped: bool,
    is_status: bool,
}

impl PortDecoder {
    pub const fn new() -> PortDecoder {
        PortDecoder { is_escaped: false, is_status: false }
    }

    /// Adds each byte to the stream it belongs to; neither grows by more than there are bytes.
    pub fn push(&mut self, bytes: &[u8], console: &mut Vec<u8>, status: &mut Vec<u8>) {
        for byte in bytes {
            let is_escaped = core::mem::take(&mut self.is_escaped);
            match (is_escaped, *byte) {
                (false, DLE) => self.is_escaped = true,
                (true, SOH) => self.is_status = true,
                (true, STX) => self.is_status = false,
                // A machine that escapes anything else means that byte.
                (_, byte) if self.is_status => status.push(byte),
                (_, byte) => console.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(console: &[u8], status: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_port(console, |piece| out.extend_from_slice(piece));
        out.extend(STATUS_BEGIN);
        encode_port(status, |piece| out.extend_from_slice(piece));
        out.extend(STATUS_END);
        out
    }

    #[test]
    fn any_bytes_of_both_streams_arrive_however_they_are_cut() {
        let all: Vec<u8> = (0..=255).chain([DLE, SOH, DLE, STX, DLE]).collect();
        let sent = [sent(&all, b"listening tcp 80\n"), sent(b"", &all), sent(&[DLE], b"exit 3\n")].concat();
        for step in [1, 2, 3, 7, sent.len()] {
            let (mut decoder, mut console, mut status) = (PortDecoder::new(), Vec::new(), Vec::new());
            for piece in sent.chunks(step) {
                decoder.push(piece, &mut console, &mut status);
            }
            assert_eq!(console, [&all[..], &[DLE]].concat());
            assert_eq!(status, [b"listening tcp 80\n", &all[..], b"exit 3\n"].concat());
        }
    }

    #[test]
    fn what_a_program_prints_is_never_a_status_line() {
        let forged = [&STATUS_BEGIN[..], b"exit 0\n", &STATUS_END].concat();
        let mut bytes = Vec::new();
        encode_port(&forged, |piece| bytes.extend_from_slice(piece));
        let (mut console, mut status) = (Vec::new(), Vec::new());
        PortDecoder::new().push(&bytes, &mut console, &mut status);
        assert_eq!((console, status), (forged, Vec::new()));
    }
}
