// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of a machine whose standard error is to be told from its standard output, on a console that is one stream of bytes.

/// Data link escape: the next byte means something else.
const DLE: u8 = 16;
/// Start of text, behind DLE: what follows is standard error.
const STX: u8 = 2;
/// End of text, behind DLE: what follows is standard output again.
const ETX: u8 = 3;

/// Which of a program's streams bytes are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    #[default]
    Output,
    Error,
}

/// Room for the longest form of so many bytes.
pub const fn encoded_output_size(length: usize) -> usize {
    2 * length + 4
}

/// The bytes as they go to the machine's console: themselves, where nothing is to be marked, or their longer form in `room`,
/// which has [`encoded_output_size`]. What is behind them is standard output, so that whoever else writes to the console
/// need not know of marks.
pub fn encode_output<'a>(stream: Stream, bytes: &'a [u8], room: &'a mut [u8]) -> &'a [u8] {
    if stream == Stream::Output && !bytes.contains(&DLE) {
        return bytes;
    }
    let mut length = 0;
    let mut put = |byte: u8| {
        if let Some(place) = room.get_mut(length) {
            *place = byte;
            length += 1;
        }
    };
    if stream == Stream::Error {
        [DLE, STX].into_iter().for_each(&mut put);
    }
    for byte in bytes {
        if *byte == DLE {
            put(DLE);
        }
        put(*byte);
    }
    if stream == Stream::Error {
        [DLE, ETX].into_iter().for_each(&mut put);
    }
    &room[..length]
}

/// Takes apart what a console sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputDecoder {
    stream: Stream,
    is_escaped: bool,
}

impl OutputDecoder {
    /// Gives the bytes piece by piece to `take`, each with its stream. A DLE before any other byte than those above is itself:
    /// a kernel that crashes writes to the console without marks.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Stream, &[u8])) {
        while let Some((first, rest)) = bytes.split_first() {
            if core::mem::take(&mut self.is_escaped) {
                match *first {
                    STX => self.stream = Stream::Error,
                    ETX => self.stream = Stream::Output,
                    DLE => take(self.stream, &[DLE]),
                    other => take(self.stream, &[DLE, other]),
                }
                bytes = rest;
                continue;
            }
            let length = bytes.iter().position(|byte| *byte == DLE).unwrap_or(bytes.len());
            let (piece, rest) = bytes.split_at(length);
            if !piece.is_empty() {
                take(self.stream, piece);
            }
            self.is_escaped = !rest.is_empty();
            bytes = rest.get(1..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn decode(bytes: &[u8], piece: usize) -> [Vec<u8>; 2] {
        let mut decoder = OutputDecoder::default();
        let mut streams = [Vec::new(), Vec::new()];
        for piece in bytes.chunks(piece) {
            decoder.push(piece, |stream, bytes| streams[stream as usize].extend_from_slice(bytes));
        }
        streams
    }

    #[test]
    fn any_bytes_of_both_streams_arrive_in_pieces_of_any_length() {
        let all: Vec<u8> = (0..=255).chain([DLE, STX, DLE, DLE, ETX, DLE]).collect();
        let mut room = [0; encoded_output_size(300)];
        let mut sent = Vec::new();
        for stream in [Stream::Output, Stream::Error, Stream::Error, Stream::Output] {
            sent.extend_from_slice(encode_output(stream, &all, &mut room));
        }
        let twice = [&all[..], &all].concat();
        for piece in 1..=sent.len() {
            assert_eq!(decode(&sent, piece), [twice.clone(), twice.clone()], "{piece}");
        }
    }

    #[test]
    fn bytes_without_an_escape_are_sent_as_they_are() {
        let mut room = [0; encoded_output_size(8)];
        let plain = b"\x02text\x03";
        assert_eq!(encode_output(Stream::Output, plain, &mut room).as_ptr(), plain.as_ptr());
        assert_eq!(encode_output(Stream::Output, b"a\x10b", &mut room), b"a\x10\x10b");
    }

    #[test]
    fn a_mark_that_nobody_defined_loses_no_byte() {
        assert_eq!(decode(b"a\x10b\x10\x02c\x10d", 1), [b"a\x10b".to_vec(), b"c\x10d".to_vec()]);
    }
}
