// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From bytes to frames, whatever the bytes.

use crate::{HEADER, Kind, MAGIC, MAX_PAYLOAD};
use alloc::vec::Vec;

/// CRC-32C (Castagnoli), four bits at a time. Every frame's header is checked twice on its way there and twice on its way
/// back, so a table is worth it; one of 1 KiB is not, in an image.
pub fn check(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    static TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut i = 0;
        while i < 16 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 4 {
                crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    let step = |crc: u32| crc >> 4 ^ TABLE[crc as usize & 15];
    !bytes.iter().fold(u32::MAX, |crc, byte| step(step(crc ^ u32::from(*byte))))
}

/// One frame as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: Kind,
    pub session: u32,
    pub request: u32,
    pub payload: &'a [u8],
}

struct Header {
    kind: Kind,
    session: u32,
    request: u32,
    length: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER)?;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = number(16) as usize;
        let is_right = bytes[..4] == MAGIC && length <= MAX_PAYLOAD && number(20) == check(&bytes[..20]);
        is_right.then(|| Header { kind: Kind(bytes[4]), session: number(8), request: number(12), length })
    }
}

/// Finds frames in a stream. What is no frame is skipped and counted.
#[derive(Default)]
pub struct Decoder {
    /// What came and was not delivered: at most one frame, and what was fed with its last bytes.
    pending: Vec<u8>,
    skipped: u64,
}

impl Decoder {
    pub const fn new() -> Decoder {
        Decoder { pending: Vec::new(), skipped: 0 }
    }

    /// Takes bytes and calls `deliver` for each frame they complete.
    pub fn feed(&mut self, bytes: &[u8], mut deliver: impl FnMut(Frame<'_>)) {
        if self.pending.is_empty() {
            // Whole frames are delivered from where they are.
            let used = self.scan(bytes, &mut deliver);
            self.pending.extend_from_slice(&bytes[used..]);
        } else {
            let mut all = core::mem::take(&mut self.pending);
            all.extend_from_slice(bytes);
            let used = self.scan(&all, &mut deliver);
            all.drain(..used);
            self.pending = all;
        }
        if self.pending.is_empty() {
            // A long frame's room is not kept while nothing comes.
            self.pending = Vec::new();
        }
    }

    /// Delivers the frames at the start of `bytes`; answers how many bytes are done with.
    fn scan(&mut self, bytes: &[u8], deliver: &mut impl FnMut(Frame<'_>)) -> usize {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if rest.len() < HEADER {
                // Only what may become a header is kept.
                let skip = (0..=rest.len()).find(|skip| may_begin(&rest[*skip..])).unwrap_or(rest.len());
                self.skipped += skip as u64;
                return at + skip;
            }
            match Header::read(rest) {
                Some(header) => {
                    let end = HEADER + header.length;
                    let Some(payload) = rest.get(HEADER..end) else { return at };
                    let Header { kind, session, request, .. } = header;
                    deliver(Frame { kind, session, request, payload });
                    at += end;
                }
                None => {
                    let next = rest[1..].iter().position(|b| *b == MAGIC[0]);
                    let skip = 1 + next.unwrap_or(rest.len() - 1);
                    self.skipped += skip as u64;
                    at += skip;
                }
            }
        }
    }

    /// Bytes that were no part of a frame since this was last asked.
    pub fn take_skipped(&mut self) -> u64 {
        core::mem::take(&mut self.skipped)
    }

    /// Forgets a frame that has not come as a whole: its sender is gone.
    pub fn reset(&mut self) {
        self.skipped += self.pending.len() as u64;
        self.pending = Vec::new();
    }
}

fn may_begin(bytes: &[u8]) -> bool {
    let n = bytes.len().min(MAGIC.len());
    bytes[..n] == MAGIC[..n]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frame, put_frame};
    use std::vec;

    type Owned = (u8, u32, u32, Vec<u8>);

    fn feed(decoder: &mut Decoder, bytes: &[u8], out: &mut Vec<Owned>) {
        decoder.feed(bytes, |f| out.push((f.kind.0, f.session, f.request, f.payload.to_vec())));
    }

    #[test]
    fn the_check_is_crc_32c() {
        // RFC 3720, B.4.
        assert_eq!(check(&[0; 32]), 0x8a91_36aa);
        assert_eq!(check(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn frames_arrive_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        put_frame(&mut stream, Kind::HELLO, 1, 0, b"");
        put_frame(&mut stream, Kind::RUN, 1, 7, b"payload");
        put_frame(&mut stream, Kind::STDIN, 2, 8, &[0x55; 3000]);
        for size in [1, 2, 23, 24, 25, 100, stream.len()] {
            let (mut decoder, mut got) = (Decoder::new(), Vec::new());
            stream.chunks(size).for_each(|part| feed(&mut decoder, part, &mut got));
            assert_eq!(got.len(), 3, "parts of {size}");
            assert_eq!(got[1], (2, 1, 7, b"payload".to_vec()));
            assert_eq!((decoder.take_skipped(), decoder.pending.len()), (0, 0));
        }
    }

    #[test]
    fn the_next_frame_is_found_behind_bytes_that_are_none() {
        let good = frame(Kind::PING, 3, 0, b"here");
        let mut wrong_check = frame(Kind::PING, 9, 9, b"");
        wrong_check[9] ^= 1;
        let mut too_long = frame(Kind::PING, 9, 9, b"");
        too_long[18] = 0xff;
        for noise in [&b"UU"[..], b"ULN\x01ULN", b"hello\n", &wrong_check, &too_long, &good[..20]] {
            for size in [1, 7, 4096] {
                let (mut decoder, mut got) = (Decoder::new(), Vec::new());
                let stream = [noise, &good].concat();
                stream.chunks(size).for_each(|part| feed(&mut decoder, part, &mut got));
                assert_eq!(got, [(8, 3, 0, b"here".to_vec())], "behind {noise:?}");
                assert_eq!(decoder.take_skipped(), noise.len() as u64);
            }
        }
    }

    #[test]
    fn a_frame_whose_sender_died_is_forgotten() {
        let (mut decoder, mut got) = (Decoder::new(), Vec::new());
        feed(&mut decoder, &frame(Kind::STDIN, 1, 1, &[7; 5000])[..100], &mut got);
        decoder.reset();
        feed(&mut decoder, &frame(Kind::HELLO, 2, 0, b""), &mut got);
        assert_eq!(got, [(1, 2, 0, vec![])]);
        assert_eq!(decoder.take_skipped(), 100);
    }

    #[test]
    fn hostile_streams_neither_panic_nor_grow() {
        crate::message::fuzz::rounds(|random| {
            let mut decoder = Decoder::new();
            for _ in 0..40 {
                let mut part = match random.below(4) {
                    0 => (0..random.below(200)).map(|_| random.byte()).collect(),
                    1 => MAGIC.to_vec(),
                    _ => {
                        let payload: Vec<u8> = (0..random.below(90)).map(|_| random.byte()).collect();
                        frame(Kind(random.byte()), random.byte().into(), 1, &payload)
                    }
                };
                if random.below(3) == 0 && !part.is_empty() {
                    let at = random.below(part.len());
                    part[at] = random.byte();
                }
                part.truncate(random.below(part.len() + 1).max(part.len() / 2));
                decoder.feed(&part, |f| assert!(f.payload.len() <= MAX_PAYLOAD));
                assert!(decoder.pending.len() < HEADER + MAX_PAYLOAD + 300);
            }
        });
    }
}
