// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `console.log`: what the program and the kernel print, in files that take turns.
//!
//! The newest bytes are in `console.log`. When that is full it becomes `console.log.1`, that one `console.log.2`, and the
//! oldest is removed, so that a machine that prints for ever takes no more of the disk than its [`LogLimits`] say. Beside
//! each file are the times of what is in it ([`crate::console_times`]).

use crate::{
    console_times::{Clock, Times},
    private,
};
use crate::{record::now_ms, times::timestamp};
use api_boot::Stream;
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
pub(crate) fn numbered(folder: &Path, n: u32) -> PathBuf {
    if n == 0 { newest(folder) } else { folder.join(format!("{NAME}.{n}")) }
}

/// The log of a machine that runs.
#[derive(Debug)]
pub struct ConsoleLog {
    folder: PathBuf,
    limits: LogLimits,
    file: File,
    length: u64,
    times: Clock,
}

impl ConsoleLog {
    pub fn open(folder: &Path, limits: LogLimits) -> io::Result<ConsoleLog> {
        let file = private::append(&newest(folder))?;
        let length = file.metadata()?.len();
        let times = Clock::begin(folder, file.metadata()?.ino(), length, limits.size);
        Ok(ConsoleLog { folder: folder.into(), limits, file, length, times })
    }

    /// Adds bytes. A failure loses them: a full disk must not stop the program.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.write_at(stream, bytes, now_ms());
    }

    fn write_at(&mut self, stream: Stream, bytes: &[u8], now: u64) {
        for part in bytes.chunks(usize::try_from(self.limits.size.max(1)).unwrap_or(usize::MAX)) {
            if self.length > 0 && self.length + part.len() as u64 > self.limits.size && self.rotate().is_err()
            {
                // Without a file for it the newest output is lost, not the limit.
                continue;
            }
            // Before the bytes: a reader that finds them finds their time.
            if !self.times.tick(self.length, now, stream) && self.rotate().is_ok() {
                // A fresh file has room.
                self.times.tick(self.length, now, stream);
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
            self.times = Clock::begin(&self.folder, self.file.metadata()?.ino(), 0, self.limits.size);
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
        self.times.rotate(self.limits.files);
        self.times = Clock::begin(&self.folder, file.metadata()?.ino(), 0, self.limits.size);
        (self.file, self.length) = (file, 0);
        Ok(())
    }
}

/// Reads a log from old to new, also while it is written and its files take turns.
#[derive(Debug)]
pub struct LogReader {
    folder: PathBuf,
    file: Option<File>,
    selection: Selection,
}

/// Takes a part of a log.
pub trait Show: FnMut(Stream, &[u8]) -> io::Result<()> {}
impl<F: FnMut(Stream, &[u8]) -> io::Result<()>> Show for F {}

/// Lines by their time.
#[derive(Clone, Debug, Default)]
pub struct Period {
    /// Milliseconds since 1970.
    pub since: Option<u64>,
    pub until: Option<u64>,
    /// Each line begins with its time.
    pub shown: bool,
}

/// Which lines are shown, and how.
#[derive(Debug, Default)]
struct Selection {
    period: Period,
    times: Times,
    /// Of either stream, whether the line that is being read is shown; `None`: the next byte begins a line.
    lines: [Option<bool>; 2],
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
        let mut reader = LogReader { folder: folder.into(), file: None, selection: Selection::default() };
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

    /// Only lines of a period, or lines with their times.
    pub fn within(mut self, period: Period) -> LogReader {
        self.selection.period = period;
        self
    }

    /// Shows what has been added since the last call.
    pub fn copy(&mut self, mut show: impl Show) -> io::Result<()> {
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
            self.selection.pour(file, &self.folder, &mut show)?;
            let Some(next) = self.successor()? else { return Ok(()) };
            // What was added between the last read and the change of files.
            if let Some(file) = &mut self.file {
                self.selection.pour(file, &self.folder, &mut show)?;
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

impl Selection {
    /// Shows the rest of a file.
    fn pour(&mut self, file: &mut File, folder: &Path, show: &mut impl Show) -> io::Result<()> {
        let mut at = file.stream_position()?;
        let inode = file.metadata()?.ino();
        let mut piece = vec![0; PIECE as usize];
        loop {
            let length = file.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            // After the bytes, whose times were written before them.
            self.times.read(folder, inode);
            let Selection { period, times, lines } = self;
            for (time, stream, bytes) in times.runs(at, &piece[..length]) {
                period.show(time, stream, bytes, &mut lines[stream as usize], show)?;
            }
            at += length as u64;
        }
    }
}

impl Period {
    /// Shows bytes of one time and stream, as far as they are wanted. `line`: what was decided of the line they go on.
    fn show(
        &self,
        time: u64,
        stream: Stream,
        mut bytes: &[u8],
        line: &mut Option<bool>,
        show: &mut impl Show,
    ) -> io::Result<()> {
        let Period { since, until, shown } = *self;
        if since.is_none() && until.is_none() && !shown {
            return show(stream, bytes);
        }
        while !bytes.is_empty() {
            let length = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| n + 1);
            let (text, rest) = bytes.split_at(length);
            let is_shown = match *line {
                Some(is_shown) => is_shown,
                None => {
                    let wanted = since.is_none_or(|s| time >= s) && until.is_none_or(|u| time <= u);
                    if wanted && shown {
                        show(stream, format!("{} ", timestamp(time)).as_bytes())?;
                    }
                    wanted
                }
            };
            if is_shown {
                show(stream, text)?;
            }
            *line = (!text.ends_with(b"\n")).then_some(is_shown);
            bytes = rest;
        }
        Ok(())
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

    fn into(out: &mut Vec<u8>) -> impl Show {
        |_, bytes: &[u8]| out.write_all(bytes)
    }

    fn read(folder: &Path, tail: Option<usize>) -> String {
        let mut out = Vec::new();
        LogReader::open(folder, tail).unwrap().copy(into(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_machine_that_prints_for_ever_takes_no_more_than_its_limits() {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { size: 100, files: 3 };
        let mut log = ConsoleLog::open(folder.path(), limits).unwrap();
        for n in 0..1000 {
            log.write(Stream::Output, format!("line {n}\n").as_bytes());
        }
        log.write(Stream::Output, &[b'z'; 1000]);
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap()).collect();
        for file in &files {
            let is_log = file.file_name().to_string_lossy().starts_with(NAME);
            let size = file.metadata().unwrap().len();
            assert!(size <= if is_log { 100 } else { 4096 + 8 }, "{file:?}: {size}");
        }
        assert_eq!(files.len(), 6, "three logs, and the times of each: {files:?}");
        assert_eq!(read(folder.path(), None), "z".repeat(300));
    }

    #[test]
    fn lines_have_the_time_at_which_they_began_in_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 16, files: 9 }).unwrap();
        for (n, text) in ["one\n", "tw", "o\nthree\n", "four\nfive\n", "six"].into_iter().enumerate() {
            log.write_at(Stream::Output, text.as_bytes(), 1000 * (n as u64 + 1));
        }
        let read = |period: Period| {
            let mut out = Vec::new();
            LogReader::open(folder.path(), None).unwrap().within(period).copy(into(&mut out)).unwrap();
            String::from_utf8(out).unwrap()
        };
        let shown = Period { shown: true, ..Period::default() };
        let seconds = |n: u32| format!("1970-01-01T00:00:0{n}.000Z");
        let expected = [(1, "one\n"), (2, "two\n"), (3, "three\n"), (4, "four\n"), (4, "five\n"), (5, "six")];
        let expected: String = expected.iter().map(|(n, text)| format!("{} {text}", seconds(*n))).collect();
        assert_eq!(read(shown), expected);
        assert_eq!(read(Period { since: Some(4000), ..Period::default() }), "four\nfive\nsix");
        assert_eq!(read(Period { until: Some(2000), ..Period::default() }), "one\ntwo\n");
        assert_eq!(read(Period::default()), "one\ntwo\nthree\nfour\nfive\nsix");
    }

    #[test]
    fn a_reader_that_follows_shows_each_line_once_with_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 64, files: 4 }).unwrap();
        let shown = Period { shown: true, ..Period::default() };
        let mut reader = LogReader::open(folder.path(), None).unwrap().within(shown);
        let (mut out, mut expected) = (Vec::new(), String::new());
        for n in 0..100 {
            let line = format!("{n}\n");
            log.write_at(Stream::Output, line.as_bytes(), n * 1000);
            expected += &format!("{} {line}", timestamp(n * 1000));
            if n % 7 == 0 {
                reader.copy(into(&mut out)).unwrap();
            }
        }
        reader.copy(into(&mut out)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_log_of_one_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 10, files: 1 }).unwrap();
        let mut reader = LogReader::open(folder.path(), None).unwrap();
        let mut out = Vec::new();
        for text in ["123456789\n", "abc\n"] {
            log.write(Stream::Output, text.as_bytes());
            reader.copy(into(&mut out)).unwrap();
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
            log.write(Stream::Output, line.as_bytes());
            expected += &line;
            // Sometimes two files are full before the reader comes again.
            if n % 17 == 0 {
                reader.copy(into(&mut out)).unwrap();
            }
        }
        reader.copy(into(&mut out)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end_over_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 8, files: 5 }).unwrap();
        for line in ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"] {
            log.write(Stream::Output, line.as_bytes());
        }
        let tails = [0, 1, 2, 3, 5, 6, 9].map(|n| read(folder.path(), Some(n)));
        assert_eq!(
            tails,
            ["", "f\n", "e\nf\n", "d\ne\nf\n", "b\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nf\n"]
        );
        log.write(Stream::Output, b"g");
        assert_eq!(read(folder.path(), Some(1)), "g");
        assert_eq!(end(folder.path(), 3), b"f\ng");
    }

    #[test]
    fn each_stream_is_told_from_the_other_also_where_there_is_little_room_to_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits { size: 4096, files: 9 }).unwrap();
        let mut reader = LogReader::open(folder.path(), None).unwrap();
        let (mut expected, mut seen) = ([String::new(), String::new()], [Vec::new(), Vec::new()]);
        let mut copy = |_: &mut ConsoleLog| {
            reader.copy(|stream: Stream, bytes: &[u8]| seen[stream as usize].write_all(bytes)).unwrap();
        };
        for n in 0..2000 {
            let stream = if n % 3 == 0 { Stream::Error } else { Stream::Output };
            let text = format!("{n} ");
            log.write(stream, text.as_bytes());
            expected[stream as usize] += &text;
            if n % 50 == 0 {
                copy(&mut log);
            }
        }
        copy(&mut log);
        assert_eq!(seen.map(|bytes| String::from_utf8(bytes).unwrap()), expected);
    }

    #[test]
    fn a_line_that_the_other_stream_interrupts_has_one_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = ConsoleLog::open(folder.path(), LogLimits::default()).unwrap();
        log.write_at(Stream::Output, b"one ", 1000);
        log.write_at(Stream::Error, b"bad\n", 2000);
        log.write_at(Stream::Output, b"line\n", 3000);
        let period = Period { shown: true, ..Period::default() };
        let mut seen = [Vec::new(), Vec::new()];
        let mut reader = LogReader::open(folder.path(), None).unwrap().within(period);
        reader.copy(|stream: Stream, bytes: &[u8]| seen[stream as usize].write_all(bytes)).unwrap();
        let (one, two) = (timestamp(1000), timestamp(2000));
        let expected = [format!("{one} one line\n"), format!("{two} bad\n")];
        assert_eq!(seen.map(|bytes| String::from_utf8(bytes).unwrap()), expected);
    }
}
