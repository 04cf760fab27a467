// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading cpio "newc" (Linux, Documentation/driver-api/early-userspace/buffer-format.rst) from a stream that may say
//! anything.

use std::{
    fmt,
    io::{self, Read},
};

const HEADER: usize = 110;
const MAGIC: &[u8] = b"070701";
const TRAILER: &[u8] = b"TRAILER!!!";
/// A path of Linux' PATH_MAX with as many NUL bytes behind it: images align data with them.
const MAX_NAME: usize = 2 * 4096;
/// An image of a whole Debian desktop has a quarter of a million files.
const MAX_ENTRIES: usize = 4 << 20;
/// Contents of files: what an image may unpack to (`unilith-image`) and as much again.
const MAX_DATA: u64 = 4 << 30;
/// Longer targets cannot be links of Linux (PATH_MAX).
pub const MAX_TARGET: u64 = 4096;

/// Why a snapshot failed.
#[derive(Debug)]
pub enum Error {
    /// Reading or writing; what was done.
    Io(String, io::Error),
    /// The archive is not what it should be.
    Damaged(String),
    /// The archive is more than an image can hold.
    TooLarge(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(doing, e) => write!(f, "{doing}: {e}"),
            Error::Damaged(text) | Error::TooLarge(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// Whether the contents of regular files are in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    Present,
    /// Headers say how long they are, and nothing follows.
    Absent,
}

/// What a file is: the type bits of `st_mode`.
pub mod kind {
    pub const MASK: u32 = 0o170000;
    pub const DIRECTORY: u32 = 0o040000;
    pub const FILE: u32 = 0o100000;
    pub const LINK: u32 = 0o120000;
}

/// One header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Absolute, without a slash at its end; `/` is the root.
    pub path: Vec<u8>,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970.
    pub modified: u32,
    pub inode: u32,
    pub links: u32,
    pub size: u32,
    /// The file system's.
    pub device: (u32, u32),
    /// A device node's.
    pub node: (u32, u32),
    /// Where its data begins in the archive.
    pub offset: u64,
}

impl Entry {
    pub fn kind(&self) -> u32 {
        self.mode & kind::MASK
    }

    /// One of several names of a regular file.
    pub fn is_linked(&self) -> bool {
        self.kind() == kind::FILE && self.links > 1
    }
}

/// `/a/b` of what an archive calls `a/b`, `./a/b` or `/a/b`; `None` for names that no file can have.
fn absolute(name: &[u8]) -> Option<Vec<u8>> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut path = Vec::with_capacity(name.len() + 1);
    for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." || part.len() > 255 {
            return None;
        }
        path.push(b'/');
        path.extend_from_slice(part);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Some(path)
}

/// An archive that is read from its beginning to its end. `skip` passes over data that nobody reads.
pub struct Reader<R> {
    inner: R,
    skip: fn(&mut R, u64) -> io::Result<()>,
    contents: Contents,
    /// For messages.
    name: String,
    at: u64,
}

/// Passes over data of a stream.
pub fn drain(reader: &mut impl Read, length: u64) -> io::Result<()> {
    let passed = io::copy(&mut reader.take(length), &mut io::sink())?;
    if passed == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Passes over data of a file.
pub fn seek(reader: &mut io::BufReader<std::fs::File>, length: u64) -> io::Result<()> {
    reader.seek_relative(length as i64)
}

impl<R: Read> Reader<R> {
    pub fn new(
        inner: R,
        skip: fn(&mut R, u64) -> io::Result<()>,
        contents: Contents,
        name: impl Into<String>,
    ) -> Reader<R> {
        Reader { inner, skip, contents, name: name.into(), at: 0 }
    }

    fn damaged<T>(&self, why: &str) -> Result<T> {
        Err(Error::Damaged(format!("{}: a damaged archive, at byte {}: {why}", self.name, self.at)))
    }

    fn read(&mut self, to: &mut [u8]) -> Result<()> {
        self.inner.read_exact(to).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::Damaged(format!("{}: the archive ends early, at byte {}", self.name, self.at))
            }
            _ => Error::Io(format!("reading {}", self.name), e),
        })?;
        self.at += to.len() as u64;
        Ok(())
    }

    fn pass(&mut self, length: u64) -> Result<()> {
        (self.skip)(&mut self.inner, length).map_err(|e| Error::Io(format!("reading {}", self.name), e))?;
        self.at += length;
        Ok(())
    }

    /// Passes over what aligns the next thing at a multiple of four.
    fn align(&mut self) -> Result<()> {
        self.pass(self.at.next_multiple_of(4) - self.at)
    }

    /// Hands each entry to `each`, with its data: a regular file's, a link's target.
    pub fn entries(mut self, mut each: impl FnMut(Entry, &mut dyn Read) -> Result<()>) -> Result<()> {
        let (mut count, mut total) = (0, 0);
        loop {
            let mut header = [0; HEADER];
            self.read(&mut header)?;
            if !header.starts_with(MAGIC) {
                return self.damaged("no header where one should be");
            }
            let field = |n: usize| {
                let digits = std::str::from_utf8(&header[6 + 8 * n..14 + 8 * n]).ok()?;
                u32::from_str_radix(digits, 16).ok()
            };
            let fields: Option<Vec<u32>> = (0..13).map(field).collect();
            let Some(fields) = fields else { return self.damaged("a number that is none") };
            let name_size = fields[11] as usize;
            if name_size > MAX_NAME {
                return self.damaged("a name that is too long");
            }
            let mut name = vec![0; name_size];
            self.read(&mut name)?;
            self.align()?;
            if name.split(|byte| *byte == 0).next() == Some(TRAILER) {
                return Ok(());
            }
            let Some(path) = absolute(&name) else { return self.damaged("a name that no file can have") };
            count += 1;
            if count > MAX_ENTRIES {
                return Err(Error::TooLarge(format!("{}: more than {MAX_ENTRIES} files", self.name)));
            }
            let entry = Entry {
                path,
                inode: fields[0],
                mode: fields[1],
                uid: fields[2],
                gid: fields[3],
                links: fields[4],
                modified: fields[5],
                size: fields[6],
                device: (fields[7], fields[8]),
                node: (fields[9], fields[10]),
                offset: self.at,
            };
            let is_left_out = self.contents == Contents::Absent && entry.kind() == kind::FILE;
            let size = if is_left_out { 0 } else { u64::from(entry.size) };
            if entry.kind() == kind::LINK && size > MAX_TARGET {
                return self.damaged("the target of a link is too long");
            }
            total += size;
            if total > MAX_DATA {
                return Err(Error::TooLarge(format!("{}: more than {} GiB", self.name, MAX_DATA >> 30)));
            }
            let mut data = (&mut self.inner).take(size);
            each(entry, &mut data)?;
            let left = data.limit();
            self.at += size - left;
            self.pass(left)?;
            self.align()?;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An entry of a test's archive: path, mode, time and data.
    #[derive(Clone)]
    pub struct Given<'a> {
        pub path: &'a str,
        pub mode: u32,
        pub modified: u32,
        pub data: &'a [u8],
        pub inode: u32,
        pub links: u32,
        pub owner: (u32, u32),
        pub device: u32,
    }

    pub fn given<'a>(path: &'a str, mode: u32, modified: u32, data: &'a [u8]) -> Given<'a> {
        Given { path, mode, modified, data, inode: 1, links: 1, owner: (0, 0), device: 0 }
    }

    pub fn archive(entries: &[Given<'_>], contents: Contents) -> Vec<u8> {
        let mut out = Vec::new();
        let end = given("TRAILER!!!", 0, 0, b"");
        for e in entries.iter().chain([&end]) {
            let size = e.data.len() as u32;
            let name_size = e.path.len() as u32 + 1;
            let fields = [
                e.inode, e.mode, e.owner.0, e.owner.1, e.links, e.modified, size, 0, e.device, 0, 0,
                name_size, 0,
            ];
            out.extend_from_slice(MAGIC);
            fields.iter().for_each(|f| out.extend_from_slice(format!("{f:08X}").as_bytes()));
            out.extend_from_slice(e.path.as_bytes());
            out.push(0);
            out.resize(out.len().next_multiple_of(4), 0);
            if contents == Contents::Present || e.mode & kind::MASK != kind::FILE {
                out.extend_from_slice(e.data);
                out.resize(out.len().next_multiple_of(4), 0);
            }
        }
        out
    }

    fn read(bytes: &[u8], contents: Contents) -> Result<Vec<(String, Vec<u8>)>> {
        let mut out = Vec::new();
        Reader::new(bytes, drain, contents, "test").entries(|entry, data| {
            let mut all = Vec::new();
            data.read_to_end(&mut all).unwrap();
            out.push((String::from_utf8_lossy(&entry.path).into_owned(), all));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn entries_come_with_their_data_or_without_where_it_is_left_out() {
        let entries = [
            given(".", kind::DIRECTORY, 0, b""),
            given("./a", kind::FILE, 0, b"12345"),
            given("/b/c", kind::LINK, 0, b"a"),
        ];
        let pair = |path: &str, data: &str| (path.to_string(), data.as_bytes().to_vec());
        let present = read(&archive(&entries, Contents::Present), Contents::Present).unwrap();
        assert_eq!(present, [pair("/", ""), pair("/a", "12345"), pair("/b/c", "a")]);
        let absent = read(&archive(&entries, Contents::Absent), Contents::Absent).unwrap();
        assert_eq!(absent, [pair("/", ""), pair("/a", ""), pair("/b/c", "a")]);
    }

    #[test]
    fn names_that_lead_elsewhere_and_archives_without_an_end_are_damaged() {
        for name in ["../x", "a/../../x", ".."] {
            let bytes = archive(&[given(name, kind::FILE, 0, b"")], Contents::Present);
            assert!(read(&bytes, Contents::Present).is_err(), "{name}");
        }
        let whole = archive(&[given("a", kind::FILE, 0, b"123")], Contents::Present);
        for cut in 0..whole.len() - 1 {
            assert!(read(&whole[..cut], Contents::Present).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(at in 0usize..240, value: u8, rest in proptest::collection::vec(any::<u8>(), 0..300)) {
            let entries = [given("a/b", kind::FILE, 0, b"12345"), given("l", kind::LINK, 0, b"a")];
            let mut bytes = archive(&entries, Contents::Present);
            bytes[at] = value;
            bytes.extend_from_slice(&rest);
            let _ = read(&bytes, Contents::Present);
            let _ = read(&rest, Contents::Absent);
        }
    }
}
