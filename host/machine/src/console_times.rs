// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `console.times`: when what is in `console.log` was printed.
//!
//! A file begins with the inode number of the log it belongs to, so that a reader which meets files that take turns finds
//! the right one. Pairs follow: an offset in the log, and the milliseconds since 1970 at which the bytes from there on came.
//! All numbers have 8 bytes, little-endian. A time that cannot be written is lost, and with it nothing but that time: the
//! bytes then count as part of what came before.

use crate::{console_log::LogLimits, private};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

const NAME: &str = "console.times";
/// Bytes of a pair.
const PAIR: u64 = 16;
/// Bytes of times that small logs have, too.
const LEAST_ROOM: u64 = 4096;

fn numbered(folder: &Path, n: u32) -> PathBuf {
    folder.join(if n == 0 { NAME.into() } else { format!("{NAME}.{n}") })
}

/// Writes the times of one log.
#[derive(Debug)]
pub struct Clock {
    folder: PathBuf,
    file: Option<File>,
    /// The last time that was written.
    last: Option<u64>,
    /// Bytes that may still be written: a machine that prints a byte each millisecond fills no disk with times.
    room: u64,
}

impl Clock {
    /// For the log with this inode number, which goes on or is new, and holds at most `size` bytes: its times take no more.
    pub fn begin(folder: &Path, inode: u64, size: u64) -> Clock {
        let path = numbered(folder, 0);
        let goes_on = fs::read(&path).is_ok_and(|bytes| owner(&bytes) == Some(inode));
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

    /// Bytes come now, to that offset.
    pub fn tick(&mut self, offset: u64, now: u64) {
        let Some(file) = &mut self.file else { return };
        if self.last == Some(now) || self.room < PAIR {
            return;
        }
        let mut pair = [0; PAIR as usize];
        pair[..8].copy_from_slice(&offset.to_le_bytes());
        pair[8..].copy_from_slice(&now.to_le_bytes());
        if file.write_all(&pair).is_ok() {
            self.last = Some(now);
            self.room -= PAIR;
        }
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
    pairs: Vec<(u64, u64)>,
}

impl Times {
    /// Reads those of the log with this inode number.
    pub fn read(&mut self, folder: &Path, inode: u64) {
        for n in 0..LogLimits::MAX_FILES {
            let Ok(bytes) = fs::read(numbered(folder, n)) else { break };
            if owner(&bytes) == Some(inode) {
                let pairs = bytes[8..].chunks_exact(PAIR as usize);
                self.pairs = pairs.filter_map(|pair| Some((owner(pair)?, numbers(pair).nth(1)?))).collect();
                return;
            }
        }
        self.pairs.clear();
    }

    /// When the byte at that offset was printed; 0 where nobody knows.
    pub fn of(&self, offset: u64) -> u64 {
        let after = self.pairs.partition_point(|(start, _)| *start <= offset);
        after.checked_sub(1).map_or(0, |last| self.pairs[last].1)
    }
}
