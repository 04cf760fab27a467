// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `console.times`: when what is in `console.log` was printed, and to which stream.
//!
//! A file begins with the inode number of the log it belongs to, so that a reader which meets files that take turns finds
//! the right one. Pairs follow: an offset in the log, and the milliseconds since 1970 at which the bytes from there on came,
//! with the highest bit set for standard error. All numbers have 8 bytes, little-endian. A pair that cannot be written is
//! lost, and with it nothing but what it says: the bytes then count as part of what came before.

use crate::{console_log::LogLimits, private};
use api_boot::Stream;
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

const NAME: &str = "console.times";
/// Bytes of a pair.
const PAIR: u64 = 16;
/// Bytes of times that small logs have, too.
const LEAST_ROOM: u64 = 4096;
/// In a time: the bytes are of standard error.
const ERROR: u64 = 1 << 63;

fn numbered(folder: &Path, n: u32) -> PathBuf {
    folder.join(if n == 0 { NAME.into() } else { format!("{NAME}.{n}") })
}

/// Writes the times of one log.
#[derive(Debug)]
pub struct Clock {
    folder: PathBuf,
    file: Option<File>,
    /// What was written last: a time with its stream.
    last: Option<u64>,
    /// Bytes that may still be written: a machine that prints a byte each millisecond fills no disk with times.
    room: u64,
}

impl Clock {
    /// For the log with this inode number, which is `length` bytes long and holds at most `size`: its times take no more.
    pub fn begin(folder: &Path, inode: u64, length: u64, size: u64) -> Clock {
        let path = numbered(folder, 0);
        let goes_on = length > 0 && fs::read(&path).is_ok_and(|bytes| owner(&bytes) == Some(inode));
        let length = if goes_on { fs::metadata(&path).map_or(0, |m| m.len()) } else { 0 };
        let file = private::append(&path).and_then(|mut file| {
            if !goes_on {
                file.set_len(0)?;
                file.write_all(&inode.to_le_bytes())?;
            }
            Ok(file)
        });
        Clock {
            folder: folder.into(),
            file: file.ok(),
            last: None,
            room: size.max(LEAST_ROOM).saturating_sub(length),
        }
    }

    /// Bytes of that stream come now, to that offset. `false`: there is no room to say of which stream they are.
    pub fn tick(&mut self, offset: u64, now: u64, stream: Stream) -> bool {
        let Some(file) = &mut self.file else { return true };
        let time = now & !ERROR | if stream == Stream::Error { ERROR } else { 0 };
        if self.last == Some(time) {
            return true;
        }
        if self.room < PAIR {
            return self.last.is_some_and(|last| (last ^ time) & ERROR == 0);
        }
        let mut pair = [0; PAIR as usize];
        pair[..8].copy_from_slice(&offset.to_le_bytes());
        pair[8..].copy_from_slice(&time.to_le_bytes());
        if file.write_all(&pair).is_ok() {
            self.last = Some(time);
            self.room -= PAIR;
        }
        true
    }

    /// The log's files take turns, and their times with them.
    pub fn rotate(&self, files: u32) {
        for n in (0..files - 1).rev() {
            // Where one cannot be moved, its log has no times.
            let _ = fs::rename(numbered(&self.folder, n), numbered(&self.folder, n + 1));
        }
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap_or_default()))
}

fn owner(bytes: &[u8]) -> Option<u64> {
    numbers(bytes).next()
}

/// The times of one log, as far as they were read.
#[derive(Debug, Default)]
pub struct Times {
    file: Option<(u64, File)>,
    pairs: Vec<(u64, u64)>,
}

impl Times {
    /// Reads those of the log with this inode number, as far as they are new.
    pub fn read(&mut self, folder: &Path, inode: u64) {
        if self.file.as_ref().is_none_or(|(mine, _)| *mine != inode) {
            self.file = find(folder, inode).map(|file| (inode, file));
            self.pairs.clear();
        }
        let Some((_, file)) = &mut self.file else { return };
        // What cannot be read is a time that nobody knows.
        let _ = go_on(file, &mut self.pairs);
    }

    /// Takes bytes from that offset on apart where their time or stream changes; 0, standard output, where nobody knows.
    pub fn runs<'a>(
        &'a self,
        mut offset: u64,
        mut bytes: &'a [u8],
    ) -> impl Iterator<Item = (u64, Stream, &'a [u8])> {
        // How many pairs are of what comes before or at the offset.
        let mut next = self.pairs.partition_point(|(start, _)| *start <= offset);
        std::iter::from_fn(move || {
            while self.pairs.get(next).is_some_and(|(start, _)| *start <= offset) {
                next += 1;
            }
            let end = self.pairs.get(next).map_or(u64::MAX, |(start, _)| start - offset);
            let (run, rest) = bytes.split_at(bytes.len().min(usize::try_from(end).unwrap_or(usize::MAX)));
            let (time, stream) = self.before(next);
            (offset, bytes) = (offset + run.len() as u64, rest);
            (!run.is_empty()).then_some((time, stream, run))
        })
    }

    /// What the last of so many pairs says.
    fn before(&self, count: usize) -> (u64, Stream) {
        let time = count.checked_sub(1).map_or(0, |last| self.pairs[last].1);
        (time & !ERROR, if time & ERROR == 0 { Stream::Output } else { Stream::Error })
    }
}

fn find(folder: &Path, inode: u64) -> Option<File> {
    for n in 0..LogLimits::MAX_FILES {
        let mut file = File::open(numbered(folder, n)).ok()?;
        let mut first = [0; 8];
        if file.read_exact(&mut first).is_ok() && owner(&first) == Some(inode) {
            return Some(file);
        }
    }
    None
}

/// Reads the pairs that were added. A file that has become shorter began anew.
fn go_on(file: &mut File, pairs: &mut Vec<(u64, u64)>) -> io::Result<()> {
    let mut at = 8 + pairs.len() as u64 * PAIR;
    let length = file.metadata()?.len();
    if length < at {
        pairs.clear();
        at = 8;
    }
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length.saturating_sub(at)).read_to_end(&mut bytes)?;
    pairs.extend(
        bytes.chunks_exact(PAIR as usize).filter_map(|pair| Some((owner(pair)?, numbers(pair).nth(1)?))),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_apart_where_time_or_stream_changes_also_when_they_come_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let mut clock = Clock::begin(folder.path(), 7, 0, 1 << 20);
        let mut times = Times::default();
        assert!(clock.tick(0, 10, Stream::Output) && clock.tick(4, 10, Stream::Error));
        times.read(folder.path(), 7);
        assert!(clock.tick(6, 12, Stream::Error) && clock.tick(9, 12, Stream::Error));
        times.read(folder.path(), 7);
        let runs = |at, bytes: &'static str| -> Vec<_> {
            let runs = times.runs(at, bytes.as_bytes());
            runs.map(|(time, stream, run)| (time, stream, String::from_utf8_lossy(run).into_owned()))
                .collect()
        };
        let (out, err) = (Stream::Output, Stream::Error);
        assert_eq!(
            runs(1, "bcdEFGHIJ"),
            [(10, out, "bcd".into()), (10, err, "EF".into()), (12, err, "GHIJ".into())]
        );
        assert_eq!(runs(5, "F"), [(10, err, "F".into())]);
        assert_eq!(runs(8, ""), []);
        times.read(folder.path(), 8);
        let other: Vec<_> = times.runs(9, b"x").collect();
        assert_eq!(other, [(0, out, &b"x"[..])], "another log's");
    }

    #[test]
    fn a_stream_that_there_is_no_room_to_tell_is_reported_and_a_time_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut clock = Clock::begin(folder.path(), 7, 0, 0);
        let full = (0..LEAST_ROOM / PAIR).all(|n| clock.tick(n, n + 1, Stream::Output));
        assert!(full && clock.tick(1 << 20, 1 << 20, Stream::Output));
        assert!(!clock.tick(1 << 20, 1 << 20, Stream::Error));
    }
}
