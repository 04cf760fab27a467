// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `console.log`: what the program and the kernel print, in files that take turns.
//!
//! The newest bytes are in `console.log`. When that is full it becomes `console.log.1`, that one `console.log.2`, and the
//! oldest is removed, so that a machine that prints for ever takes no more of the disk than its [`LogLimits`] say.

use crate::private;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The name of the newest file.
const NAME: &str = "console.log";
/// Bytes read at once when lines are counted from the end.
const PIECE: u64 = 64 << 10;

/// How much of a machine's output is kept: docker's `max-size` and `max-file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Bytes of one file.
    pub size: u64,
    /// Files, the newest included.
    pub files: u32,
}

impl LogLimits {
    /// Largest number of files that may be asked for.
    pub const MAX_FILES: u32 = 1000;
}

impl Default for LogLimits {
    /// Docker's `local` driver keeps as much.
    fn default() -> LogLimits {
        LogLimits { size: 20 << 20, files: 5 }
    }
}

/// The newest file of a machine's directory.
pub fn newest(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// The n-th file, counted from the newest, which is 0.
fn numbered(folder: &Path, n: u32) -> PathBuf {
    if n == 0 { newest(folder) } else { folder.join(format!("{NAME}.{n}")) }
}

/// The log of a machine that runs.
#[derive(Debug)]
pub struct ConsoleLog {
    folder: PathBuf,
    limits: LogLimits,
    file: File,
    length: u64,
}

impl ConsoleLog {
    pub fn open(folder: &Path, limits: LogLimits) -> io::Result<ConsoleLog> {
        let file = private::append(&newest(folder))?;
        let length = file.metadata()?.len();
        Ok(ConsoleLog { folder: folder.into(), limits, file, length })
    }

    /// Adds bytes. A failure loses them: a full disk must not stop the program.
    pub fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(usize::try_from(self.limits.size.max(1)).unwrap_or(usize::MAX)) {
            if self.length > 0 && self.length + part.len() as u64 > self.limits.size && self.rotate().is_err()
            {
                // Without a file for it the newest output is lost, not the limit.
                continue;
            }
            if self.file.write_all(part).is_ok() {
                self.length += part.len() as u64;
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.limits.files <= 1 {
            self.file.set_len(0)?;
            self.length = 0;
            return Ok(());
        }
        // Opened before anything is moved: without a descriptor to spare the old one stays in use.
        let fresh = self.folder.join(".console.log.new");
        let file = private::append(&fresh)?;
        for n in (0..self.limits.files - 1).rev() {
            match fs::rename(numbered(&self.folder, n), numbered(&self.folder, n + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        fs::rename(&fresh, newest(&self.folder))?;
        (self.file, self.length) = (file, 0);
        Ok(())
    }
}

/// Reads a log from old to new, also while it is written and its files take turns.
#[derive(Debug)]
pub struct LogReader {
    folder: PathBuf,
    file: Option<File>,
}

impl LogReader {
    /// At the beginning of the oldest file, or where the last `tail` lines begin.
    pub fn open(folder: &Path, tail: Option<usize>) -> io::Result<LogReader> {
        let mut files = Vec::new();
        for n in 0..LogLimits::MAX_FILES {
            match File::open(numbered(folder, n)) {
                Ok(file) => files.push(file),
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                Err(e) => return Err(e),
            }
        }
        let mut reader = LogReader { folder: folder.into(), file: None };
        let Some(mut wanted) = tail else {
            reader.file = files.pop();
            return Ok(reader);
        };
        let mut is_last = true;
        for mut file in files {
            match start_of_last(&mut file, &mut wanted, is_last)? {
                Some(at) => {
                    file.seek(SeekFrom::Start(at))?;
                    reader.file = Some(file);
                    return Ok(reader);
                }
                None => {
                    file.seek(SeekFrom::Start(0))?;
                    reader.file = Some(file);
                }
            }
            is_last = false;
        }
        Ok(reader)
    }

    /// Writes out what has been added since the last call.
    pub fn copy(&mut self, out: &mut impl Write) -> io::Result<()> {
        loop {
            let Some(file) = &mut self.file else {
                self.file = open_if_there(&newest(&self.folder))?;
                if self.file.is_none() {
                    return Ok(());
                }
                continue;
            };
            // A log of one file begins anew when it is full.
            if file.stream_position()? > file.metadata()?.len() {
                file.seek(SeekFrom::Start(0))?;
            }
            io::copy(file, out)?;
            let Some(next) = self.successor()? else { return Ok(()) };
            // What was added between the last read and the change of files.
            if let Some(file) = &mut self.file {
                io::copy(file, out)?;
            }
            self.file = Some(next);
        }
    }

    /// The file that was begun after the one being read; `None`: this is the newest.
    fn successor(&self) -> io::Result<Option<File>> {
        let Some(file) = &self.file else { return Ok(None) };
        let mine = file.metadata()?.ino();
        let mut newer = None;
        for n in 0..LogLimits::MAX_FILES {
            match open_if_there(&numbered(&self.folder, n))? {
                Some(file) if file.metadata()?.ino() == mine => return Ok(newer),
                // Removed meanwhile, with what was in it: the oldest that is left comes next.
                None => return Ok(newer),
                other => newer = other,
            }
        }
        Ok(newer)
    }
}

fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Where the last `wanted` lines of a file begin, or `None` and how many are still wanted if it has fewer. `is_last`: no
/// file follows, so that a newline at its end ends the last line instead of beginning another.
fn start_of_last(file: &mut File, wanted: &mut usize, is_last: bool) -> io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    if *wanted == 0 {
        return Ok(Some(length));
    }
    let mut at = length;
    let mut piece = Vec::new();
    while at > 0 {
        let begin = at.saturating_sub(PIECE);
        piece.clear();
        file.seek(SeekFrom::Start(begin))?;
        Read::by_ref(file).take(at - begin).read_to_end(&mut piece)?;
        for (n, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = begin + n as u64 + 1;
            if after == length && is_last {
                continue;
            }
            *wanted -= 1;
            if *wanted == 0 {
                return Ok(Some(after));
            }
        }
        at = begin;
    }
    Ok(None)
}

/// The last bytes of a log.
pub fn end(folder: &Path, most: u64) -> Vec<u8> {
    let mut text = Vec::new();
    let read = File::open(newest(folder)).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        file.take(most).read_to_end(&mut text)
    });
    // A machine that printed nothing has no log.
    read.map(|_| text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &Path, tail: Option<usize>) -> String {
        let mut out = Vec::new();
        LogReader::open(folder, tail).unwrap().copy(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_machine_that_prints_for_ever_takes_no_more_than_its_limits() {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { size: 100, files: 3 };
        let mut log = ConsoleLog::open(folder.path(), limits).unwrap();
        for n in 0..1000 {
            log.write(format!("line {n}\n").as_bytes());
        }
        log.write(&[b'z'; 1000]);
        let sizes: Vec<u64> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert!(sizes.len() == 3 && sizes.iter().all(|size| *size <= 100), "{sizes:?}");
        assert_eq!(read(folder.path(), None), "z".repeat(300));
    }

    #[test]
    fn a_log_of_one_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 10, files: 1 }).unwrap();
        let mut reader = LogReader::open(folder.path(), None).unwrap();
        let mut out = Vec::new();
        for text in ["123456789\n", "abc\n"] {
            log.write(text.as_bytes());
            reader.copy(&mut out).unwrap();
        }
        assert_eq!((out.as_slice(), read(folder.path(), None).as_str()), (&b"123456789\nabc\n"[..], "abc\n"));
    }

    #[test]
    fn a_reader_that_follows_loses_nothing_when_files_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 64, files: 4 }).unwrap();
        let mut reader = LogReader::open(folder.path(), None).unwrap();
        let (mut out, mut expected) = (Vec::new(), String::new());
        for n in 0..500 {
            let line = format!("{n}\n");
            log.write(line.as_bytes());
            expected += &line;
            // Sometimes two files are full before the reader comes again.
            if n % 17 == 0 {
                reader.copy(&mut out).unwrap();
            }
        }
        reader.copy(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end_over_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 8, files: 5 }).unwrap();
        for line in ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"] {
            log.write(line.as_bytes());
        }
        let tails = [0, 1, 2, 3, 5, 6, 9].map(|n| read(folder.path(), Some(n)));
        assert_eq!(
            tails,
            ["", "f\n", "e\nf\n", "d\ne\nf\n", "b\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nf\n"]
        );
        log.write(b"g");
        assert_eq!(read(folder.path(), Some(1)), "g");
        assert_eq!(end(folder.path(), 3), b"f\ng");
    }
}
