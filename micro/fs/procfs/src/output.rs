// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file's text, from when it is made until it was read.

use abi::{Result, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Sink;
use core::fmt;

/// Bytes of a piece: below the size from which the kernel heap takes whole pages.
const PIECE: usize = 16 * 1024;

/// A text in pieces. How long it is a program may decide (65,530 mappings have 5 MB of `maps`), and no block of the kernel's is
/// that large; where memory ends, making it answers `ENOMEM`.
#[derive(Default)]
pub struct Output {
    /// All but the last are [`PIECE`] long.
    pieces: Vec<Vec<u8>>,
    length: u64,
    /// Where the text begins, for who makes it a part at a time: 0 at the first, then what [`Output::go_on_at`] was told.
    from: u64,
    /// Where the next part begins.
    next: Option<u64>,
}

/// A part is long enough: what follows is made when it is read.
const PART: u64 = 64 * 1024;

impl Output {
    /// The part that begins where `from` says.
    pub(crate) fn part(from: u64) -> Output {
        Output { from, ..Output::default() }
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Where the text is to begin.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Told after each line where the next begins; true when this part is long enough and its maker is to return.
    pub fn go_on_at(&mut self, next: u64) -> bool {
        let enough = self.length >= PART;
        self.next = enough.then_some(next);
        enough
    }

    pub fn add(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
                self.pieces.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                self.pieces.push(Vec::new());
            }
            let Some(piece) = self.pieces.last_mut() else { return Err(ENOMEM) };
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - piece.len()));
            let room = piece.capacity() - piece.len();
            if room < now.len() {
                // Most texts are short: a piece grows by doubling.
                let more = now.len().max(piece.len().min(PIECE - piece.len()));
                piece.reserve_exact_fallibly(more).map_err(|_| ENOMEM)?;
            }
            piece.extend_from_slice(now);
            self.length += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Adds a formatted text; `ENOMEM` is the only error.
    pub fn print(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
        fmt::write(self, text).map_err(|_| ENOMEM)
    }

    /// Copies what is there from `offset` on.
    pub fn copy(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let Ok(offset) = usize::try_from(offset) else { return Ok(0) };
        let mut from = offset % PIECE;
        let mut done = 0;
        for piece in self.pieces.iter().skip(offset / PIECE) {
            match to.put(piece.get(from..).unwrap_or(&[])) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
            if to.remaining() == 0 {
                break;
            }
            from = 0;
        }
        Ok(done)
    }
}

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_pieces_reads_as_one() {
        let mut out = Output::default();
        let mut whole = Vec::new();
        for line in 0..9000u32 {
            out.print(format_args!("line {line}\n")).unwrap();
            whole.extend_from_slice(alloc::format!("line {line}\n").as_bytes());
        }
        assert!(whole.len() > 4 * PIECE);
        for offset in
            [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5, whole.len() - 1, whole.len(), whole.len() + 9]
        {
            for length in [1, 100, PIECE, 2 * PIECE + 3, whole.len()] {
                let mut read = alloc::vec![0; length];
                let n = out.copy(offset as u64, &mut Sink::kernel(&mut read)).unwrap();
                let rest = whole.get(offset..).unwrap_or(&[]);
                assert_eq!(read[..n], rest[..length.min(rest.len())], "{offset} {length}");
            }
        }
        assert_eq!(out.copy(u64::MAX, &mut Sink::kernel(&mut [0; 4])), Ok(0));
    }
}
