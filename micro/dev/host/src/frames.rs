// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a stream: each behind its length, four bytes, big-endian (QEMU's `-netdev stream`, passt).

use alloc::vec::Vec;
use api_alloc::Reserve;

/// Bytes in front of a frame.
pub const PREFIX: usize = 4;
/// Longest frame: IP's longest packet, and Ethernet's header. A longer one is not a frame.
pub const MAX_FRAME: usize = 65_535 + 14;

/// Cuts the bytes of a stream into frames.
pub struct Splitter {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// The stream says something that is no frame: nothing after it can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl Splitter {
    /// Room for a frame and as much again, so that one read takes many small frames.
    pub fn new() -> abi::Result<Splitter> {
        let size = 2 * (PREFIX + MAX_FRAME);
        let mut bytes = Vec::new();
        bytes.reserve_exact_fallibly(size).map_err(|_| abi::errno::ENOMEM)?;
        bytes.resize(size, 0);
        Ok(Splitter { bytes, start: 0, end: 0 })
    }

    /// Where the next bytes of the stream go; [`Splitter::filled`] says how many came. Never empty once all whole frames
    /// were taken.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.start < PREFIX + MAX_FRAME {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, Broken> {
        let here = &self.bytes[self.start..self.end];
        let Some(prefix) = here.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME {
            return Err(Broken);
        }
        if here.len() < PREFIX + length {
            return Ok(None);
        }
        let from = self.start + PREFIX;
        self.start = from + length;
        Ok(Some(&self.bytes[from..from + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize, fill: u8) -> Vec<u8> {
        let mut out = Vec::from((length as u32).to_be_bytes());
        out.resize(PREFIX + length, fill);
        out
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut() {
        let lengths = [0, 1, 60, 1514, MAX_FRAME, 3, 9000, MAX_FRAME, MAX_FRAME, 5];
        let mut stream = Vec::new();
        for (i, length) in lengths.iter().enumerate() {
            stream.extend(frame(*length, i as u8));
        }
        for step in [1, 7, 4096, usize::MAX] {
            let mut splitter = Splitter::new().unwrap();
            let (mut at, mut seen) = (0, Vec::new());
            while at < stream.len() {
                let room = splitter.room();
                let n = room.len().min(step).min(stream.len() - at);
                assert!(n > 0, "no room");
                room[..n].copy_from_slice(&stream[at..at + n]);
                splitter.filled(n);
                at += n;
                while let Some(frame) = splitter.next_frame().unwrap() {
                    assert!(frame.iter().all(|b| *b == seen.len() as u8));
                    seen.push(frame.len());
                }
            }
            assert_eq!(seen, lengths);
        }
    }

    #[test]
    fn a_length_that_no_frame_has_breaks_the_stream() {
        let mut splitter = Splitter::new().unwrap();
        splitter.room()[..4].copy_from_slice(&[1, 0, 0, 0]);
        splitter.filled(4);
        assert_eq!(splitter.next_frame(), Err(Broken));
    }
}
