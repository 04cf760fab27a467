// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initial RAM disk: a cpio archive in the "newc" format (070701), read without touching file data.
//!
//! One pass over the headers notes for each entry where it is and which directory it is in; everything else is read
//! when a path leads there. The archive comes from outside: every offset and length is checked, what is malformed is
//! an error with its position, and whatever bytes the fields hold, the worst result is a strange tree.

use alloc::vec::Vec;
use core::fmt;
use ordered::Map;

const HEADER: usize = 110;
const MAGIC: [u8; 6] = *b"070701";
const TRAILER: &[u8] = b"TRAILER!!!";
/// Where the host puts the tables of system-call sites.
const SITES: &[u8] = b".unilith/sites";
const NONE: u32 = u32::MAX;
/// Directories nested deeper than Linux' PATH_MAX allows cannot be reached, so longer names are an error.
const NAME_LIMIT: usize = 4096 + 4096;

/// Why an archive could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArchive {
    /// Byte offset of the entry.
    pub offset: usize,
    pub problem: &'static str,
}

impl fmt::Display for BadArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the root file system (cpio archive) is damaged at byte {}: {}", self.offset, self.problem)
    }
}

/// What one header says.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub inode: u32,
    pub modified: u32,
    pub rdev: (u32, u32),
}

struct Entry {
    /// Offset of the header in units of four bytes.
    header: u32,
    /// Next entry of the same directory.
    sibling: u32,
    /// Index into `directories` when the entry is one.
    directory: u32,
}

struct Directory {
    path: &'static [u8],
    first: u32,
    /// The directory of the sites of this one's files.
    sites: u32,
}

impl Header {
    /// The attribute `security.capability` of a regular file whose device numbers say that it has one (`api-boot`):
    /// `struct vfs_cap_data`, version 2.
    pub fn capabilities(&self) -> Option<[u8; 20]> {
        const REVISION_2: u32 = 2 << 24;
        const EFFECTIVE: u32 = 1 << 31;
        let (low, high) = self.rdev;
        if self.mode & 0o170000 != 0o100000 || (low, high) == (0, 0) {
            return None;
        }
        let words = [REVISION_2 | high >> 31, low, 0, high & !EFFECTIVE, 0];
        let mut value = [0; 20];
        for (bytes, word) in value.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        Some(value)
    }
}

/// An archive with its index.
pub struct Archive {
    bytes: &'static [u8],
    entries: Vec<Entry>,
    directories: Vec<Directory>,
    /// Directories by the hash of their path, and their path.
    by_path: Map<(u64, &'static [u8]), u32>,
    /// The entry that holds the data of a file with several names, by inode number.
    linked: Map<u32, u32>,
}

/// Eight hexadecimal digits, without a branch. Other characters give some number: bounds are checked by the caller.
fn hex(field: &[u8; 8]) -> u32 {
    let x = u64::from_le_bytes(*field);
    let letters = (x & 0x4040_4040_4040_4040) >> 6;
    let nibbles = (x & 0x0f0f_0f0f_0f0f_0f0f) + letters * 9;
    let nibbles = nibbles & 0x0f0f_0f0f_0f0f_0f0f;
    let v = ((nibbles << 4) | (nibbles >> 8)) & 0x00ff_00ff_00ff_00ff;
    let v = ((v << 8) | (v >> 16)) & 0x0000_ffff_0000_ffff;
    ((v << 16) | (v >> 32)) as u32
}

fn field(header: &[u8; HEADER], index: usize) -> u32 {
    let at = 6 + index * 8;
    match header[at..at + 8].first_chunk::<8>() {
        Some(f) => hex(f),
        None => 0,
    }
}

fn align4(n: usize) -> usize {
    (n + 3) & !3
}

/// Position of the first `byte`, eight bytes a step: the names of an archive are most of what booting reads.
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let x = u64::from_le_bytes(*word) ^ (ONES * byte as u64);
        let zeros = x.wrapping_sub(ONES) & !x & (ONES << 7);
        if zeros != 0 {
            return Some(i * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let start = words.len() * 8;
    rest.iter().position(|b| *b == byte).map(|i| start + i)
}

/// A hash and an equality that read eight bytes a step.
fn hash(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |h: u64, x: u64| (h.rotate_left(5) ^ x).wrapping_mul(MULTIPLIER);
    let h = words.iter().fold(bytes.len() as u64, |h, w| mix(h, u64::from_le_bytes(*w)));
    rest.iter().fold(h, |h, b| mix(h, *b as u64))
}

fn same(a: &[u8], b: &[u8]) -> bool {
    let ((a_words, a_rest), (b_words, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let equal = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) == u64::from_le_bytes(*b);
    a.len() == b.len()
        && a_words.iter().zip(b_words).all(equal)
        && a_rest.iter().zip(b_rest).all(|(a, b)| a == b)
}

/// The name as the tree has it: no leading `/` or `./`, no trailing slash, no NUL.
fn clean(mut name: &[u8]) -> &[u8] {
    if let Some(end) = find(name, 0) {
        name = &name[..end];
    }
    loop {
        match name {
            b"." => return b"",
            [b'/', rest @ ..] | [b'.', b'/', rest @ ..] | [rest @ .., b'/'] => name = rest,
            _ => return name,
        }
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (b"", path),
    }
}

/// [`split`], when the path is in `parent`, where the path before was.
fn split_below<'a>(path: &'a [u8], parent: &[u8]) -> Option<&'a [u8]> {
    let leaf = if parent.is_empty() {
        path
    } else {
        if path.get(parent.len()) != Some(&b'/') || !same(&path[..parent.len()], parent) {
            return None;
        }
        &path[parent.len() + 1..]
    };
    find(leaf, b'/').is_none().then_some(leaf)
}

impl Archive {
    /// Reads the headers. An archive may end without its trailer only at its very end.
    pub fn parse(bytes: &'static [u8]) -> Result<Archive, BadArchive> {
        let root = Directory { path: b"", first: NONE, sites: NONE };
        let mut archive = Archive {
            bytes,
            entries: Vec::with_capacity(4096),
            directories: alloc::vec![root],
            by_path: Map::new(),
            linked: Map::new(),
        };
        archive.by_path.insert((hash(b""), b""), 0);
        let (mut last_parent, mut last_directory): (&[u8], u32) = (b"", 0);
        let mut at = 0;
        while at < bytes.len() {
            let bad = |problem| Err(BadArchive { offset: at, problem });
            let Some(header) = bytes.get(at..).and_then(|b| b.first_chunk::<HEADER>()) else {
                return bad("it ends inside a header");
            };
            if header[..6] != MAGIC {
                return bad("no cpio header (format newc, 070701) where one should be");
            }
            let name_size = field(header, 11) as usize;
            let data_size = field(header, 6) as usize;
            let Some(name) = bytes.get(at + HEADER..).and_then(|b| b.get(..name_size)) else {
                return bad("it ends inside a name");
            };
            let data = align4(at + HEADER + name_size);
            if data.checked_add(data_size).is_none_or(|end| end > bytes.len()) {
                return bad("it ends inside a file");
            }
            let path = clean(name);
            if path.len() == TRAILER.len() && path == TRAILER {
                break;
            }
            if path.len() > NAME_LIMIT {
                return bad("a name of more than 8,192 bytes");
            }
            if (at / 4) as u64 >= NONE as u64 || archive.entries.len() as u64 >= NONE as u64 {
                return bad("more than 16 GiB");
            }
            let header_at = (at / 4) as u32;
            let mode = field(header, 1);
            at = align4(data + data_size);
            if path.is_empty() {
                continue;
            }
            let below_last = split_below(path, last_parent).map(|leaf| (last_parent, leaf));
            let (parent, leaf) = below_last.unwrap_or_else(|| split(path));
            if leaf == b".." || leaf == b"." || leaf.len() > api_fs::NAME_MAX {
                return Err(BadArchive {
                    offset: header_at as usize * 4,
                    problem: "a name that cannot be a file's",
                });
            }
            if below_last.is_none() {
                last_directory = archive.directory(parent);
                last_parent = parent;
            }
            let is_directory = mode & 0o170000 == 0o040000;
            if !is_directory && mode & 0o170000 == 0o100000 && field(header, 4) > 1 {
                archive.note_link(field(header, 0), data_size);
            }
            archive.add(header_at, path, last_directory, is_directory);
        }
        archive.pair_sites();
        Ok(archive)
    }

    /// Finds for each directory the one below `/.unilith/sites` with the same path.
    fn pair_sites(&mut self) {
        for id in 0..self.directories.len() {
            let Some(rest) = self.directories[id].path.strip_prefix(SITES) else { continue };
            let mirrored = match rest.split_first() {
                None => Some(0),
                Some((b'/', rest)) => self.by_path.get(&(hash(rest), rest)).copied(),
                Some(_) => None,
            };
            if let Some(directory) = mirrored {
                self.directories[directory as usize].sites = id as u32;
            }
        }
    }

    fn add(&mut self, header: u32, path: &'static [u8], parent: u32, is_directory: bool) {
        let index = self.entries.len() as u32;
        let directory = if is_directory { self.directory(path) } else { NONE };
        let list = &mut self.directories[parent as usize];
        self.entries.push(Entry { header, sibling: list.first, directory });
        list.first = index;
    }

    /// The directory of that path; where the archive has no entry for it (yet), its children are kept all the same
    /// and appear when the entry comes.
    fn directory(&mut self, path: &'static [u8]) -> u32 {
        let new = self.directories.len() as u32;
        let id = *self.by_path.entry((hash(path), path)).or_insert(new);
        if id == new {
            self.directories.push(Directory { path, first: NONE, sites: NONE });
        }
        id
    }

    fn note_link(&mut self, inode: u32, size: usize) {
        let index = self.entries.len() as u32;
        if size > 0 {
            self.linked.insert(inode, index);
        } else {
            self.linked.entry(inode).or_insert(index);
        }
    }

    /// Number of entries.
    pub fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    fn raw(&self, index: u32) -> &'static [u8; HEADER] {
        let at = self.entries[index as usize].header as usize * 4;
        self.bytes[at..].first_chunk().expect("parse saw a whole header here")
    }

    pub fn header(&self, index: u32) -> Header {
        let raw = self.raw(index);
        let f = |i| field(raw, i);
        Header {
            inode: f(0),
            mode: f(1),
            uid: f(2),
            gid: f(3),
            links: f(4),
            modified: f(5),
            rdev: (f(9), f(10)),
        }
    }

    /// Last component of the entry's path.
    pub fn name(&self, index: u32) -> &'static [u8] {
        let at = self.entries[index as usize].header as usize * 4 + HEADER;
        let size = field(self.raw(index), 11) as usize;
        split(clean(&self.bytes[at..at + size])).1
    }

    /// Offset and bytes of the entry's data.
    pub fn data(&self, index: u32) -> (usize, &'static [u8]) {
        let raw = self.raw(index);
        let at = self.entries[index as usize].header as usize * 4;
        let start = align4(at + HEADER + field(raw, 11) as usize);
        (start, &self.bytes[start..start + field(raw, 6) as usize])
    }

    /// The directory an entry is; `None` for other files.
    pub fn directory_of(&self, index: u32) -> Option<u32> {
        let directory = self.entries[index as usize].directory;
        (directory != NONE).then_some(directory)
    }

    /// The entry that holds the data of this one, for a file with several names.
    pub fn data_entry(&self, index: u32, header: &Header) -> Option<u32> {
        if header.mode & 0o170000 != 0o100000 || header.links <= 1 {
            return None;
        }
        self.linked.get(&header.inode).copied().filter(|i| *i < self.count()).or(Some(index))
    }

    /// Entries of a directory, the last first.
    pub fn children(&self, directory: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.directories.get(directory as usize).map_or(NONE, |d| d.first);
        core::iter::from_fn(move || {
            let index = next;
            let entry = self.entries.get(index as usize)?;
            next = entry.sibling;
            Some(index)
        })
    }

    /// The directory below `/.unilith/sites` that mirrors this one.
    pub fn sites_directory(&self, directory: u32) -> Option<u32> {
        self.directories.get(directory as usize).map(|d| d.sites).filter(|id| *id != NONE)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::{format, vec::Vec};

    /// Writes an archive; the data of files of 4 KiB or more starts at a page, as the host has it.
    pub struct Writer(pub Vec<u8>);

    impl Writer {
        pub fn new() -> Writer {
            Writer(Vec::new())
        }

        pub fn add(&mut self, path: &str, mode: u32, data: &[u8]) -> &mut Writer {
            self.add_linked(path, mode, data, 7, 1)
        }

        pub fn add_linked(
            &mut self,
            path: &str,
            mode: u32,
            data: &[u8],
            inode: u32,
            links: u32,
        ) -> &mut Writer {
            let mut name = Vec::from(path.as_bytes());
            name.push(0);
            if data.len() >= 4096 {
                while !(self.0.len() + HEADER + name.len()).is_multiple_of(4096) {
                    name.push(0);
                }
            }
            let fields = [inode, mode, 1, 2, links, 99, data.len() as u32, 0, 0, 1, 3, name.len() as u32, 0];
            self.0.extend_from_slice(b"070701");
            for f in fields {
                self.0.extend_from_slice(format!("{f:08x}").as_bytes());
            }
            self.0.extend_from_slice(&name);
            self.pad();
            self.0.extend_from_slice(data);
            self.pad();
            self
        }

        fn pad(&mut self) {
            while !self.0.len().is_multiple_of(4) {
                self.0.push(0);
            }
        }

        /// The bytes, leaked, at a page boundary.
        pub fn finish(&mut self) -> &'static [u8] {
            self.add("TRAILER!!!", 0, b"");
            leak(&self.0)
        }
    }

    pub fn leak(bytes: &[u8]) -> &'static [u8] {
        let room: &'static mut [u8] = std::vec![0; bytes.len() + 4096].leak();
        let start = room.as_ptr().align_offset(4096);
        room[start..start + bytes.len()].copy_from_slice(bytes);
        &room[start..start + bytes.len()]
    }

    #[test]
    fn hexadecimal_fields_are_read_in_both_cases() {
        for n in [0u32, 1, 0x9a, 0xdead_beef, u32::MAX, 0x0123_4567, 0x89ab_cdef] {
            assert_eq!(hex(format!("{n:08x}").as_bytes().first_chunk().unwrap()), n);
            assert_eq!(hex(format!("{n:08X}").as_bytes().first_chunk().unwrap()), n);
        }
    }

    #[test]
    fn leading_dots_and_slashes_mean_the_root() {
        for name in ["./a/b", "/a/b", "a/b", "a/b/", ".//./a/b"] {
            assert_eq!(clean(name.as_bytes()), b"a/b");
        }
        assert_eq!(clean(b"./"), b"");
        assert_eq!(clean(b"."), b"");
    }

    #[test]
    fn word_wise_search_agrees_with_the_plain_one() {
        let text = b"usr/lib/python3/dist-packages/x\0\x80\xff/y";
        for start in 0..text.len() {
            for end in start..=text.len() {
                let part = &text[start..end];
                for byte in [b'/', 0, 0x80, 0xff, b'3', b'q'] {
                    assert_eq!(find(part, byte), part.iter().position(|b| *b == byte));
                }
                assert!(same(part, part) && !same(part, b"usr/lib/python3/dist-packages/z"));
            }
        }
        assert_eq!(split_below(b"a/b/c", b"a/b"), Some(&b"c"[..]));
        assert_eq!(split_below(b"a/b/c/d", b"a/b"), None);
        assert_eq!(split_below(b"a/bx/c", b"a/b"), None);
        assert_eq!(split_below(b"c", b""), Some(&b"c"[..]));
    }

    #[test]
    fn a_cut_archive_is_refused_with_its_position() {
        let whole = Writer::new().add("a", 0o100644, b"hello").add("b", 0o100644, &[1; 5000]).finish();
        for cut in 1..whole.len() - 4 {
            if let Err(bad) = Archive::parse(leak(&whole[..cut])) {
                assert!(bad.offset <= cut);
            } else {
                // Cut between two entries: all that came before is whole.
                assert!(Archive::parse(leak(&whole[..cut])).unwrap().count() <= 2);
            }
        }
        assert!(Archive::parse(leak(b"ELF, not cpio")).is_err());
    }
}
