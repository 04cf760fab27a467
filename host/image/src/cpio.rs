// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root archive: cpio "newc" (070701), as Linux reads its initial RAM disk
//! (Documentation/driver-api/early-userspace/buffer-format.rst), with the data of files of a page or more at page
//! boundaries (see `api-boot`).
//!
//! The alignment is NUL bytes behind the file's name, counted in `namesize`. Linux skips entries whose name field is
//! longer than PATH_MAX, so where name and padding would exceed that, an entry for the directory `.` goes before.
//! Hard links: the first name carries the data, the others have size 0 and the same inode number.

use crate::{
    error::{Result, fail},
    tree::{Capabilities, Kind, MAX_PATH, Meta, NodeId, Tree},
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

const HEADER: u64 = 110;
pub(crate) const PAGE: u64 = 4096;
/// In the field of a regular file's minor device number (`api-boot`).
const EFFECTIVE: u32 = 1 << 31;
const TRAILER: &[u8] = b"TRAILER!!!";

/// Where the archive goes.
pub(crate) trait Sink {
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

struct Entry<'a> {
    inode: u32,
    mode: u32,
    meta: Meta,
    links: u32,
    size: u32,
    name: &'a [u8],
    /// NUL bytes behind the name, the one that ends it included.
    padding: u64,
}

struct Writer<'a> {
    sink: &'a mut dyn Sink,
    offset: u64,
}

impl Writer<'_> {
    fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.offset += bytes.len() as u64;
        self.sink.write(bytes)
    }

    fn zeros(&mut self, count: u64) -> Result<()> {
        let zeros = [0; PAGE as usize];
        let mut left = count;
        while left > 0 {
            let part = left.min(PAGE);
            self.raw(&zeros[..part as usize])?;
            left -= part;
        }
        Ok(())
    }

    fn header(&mut self, e: &Entry) -> Result<()> {
        let name_size = e.name.len() as u64 + e.padding;
        let capabilities = e.meta.capabilities;
        let effective = if capabilities.is_effective { EFFECTIVE.into() } else { 0 };
        let fields: [u64; 13] = [
            e.inode.into(),
            e.mode.into(),
            e.meta.uid.into(),
            e.meta.gid.into(),
            e.links.into(),
            e.meta.mtime.into(),
            e.size.into(),
            0,
            0,
            capabilities.permitted & u64::from(u32::MAX),
            capabilities.permitted >> 32 | effective,
            name_size,
            0,
        ];
        let mut text = String::from("070701");
        for field in fields {
            text.push_str(&format!("{field:08X}"));
        }
        self.raw(text.as_bytes())?;
        self.raw(e.name)?;
        self.zeros(e.padding)
    }

    /// The padding that ends a name at a multiple of four, as the format wants.
    fn least_padding(name: &[u8]) -> u64 {
        let length = HEADER + name.len() as u64 + 1;
        1 + length.next_multiple_of(4) - length
    }

    /// Writes a header; the data that follows it starts at a page boundary if `aligned`.
    fn entry(&mut self, mut e: Entry, aligned: bool) -> Result<()> {
        e.padding = Self::least_padding(e.name);
        if aligned {
            let data = self.offset + HEADER + e.name.len() as u64 + e.padding;
            let gap = data.next_multiple_of(PAGE) - data;
            if e.name.len() as u64 + e.padding + gap <= MAX_PATH as u64 {
                e.padding += gap;
            } else {
                // The filler's own header and name need 112 bytes; another page makes room for them.
                let gap = if gap < HEADER + 2 { gap + PAGE } else { gap };
                let filler = Entry {
                    inode: 0,
                    mode: 0o040755,
                    meta: Meta::DIRECTORY,
                    links: 2,
                    size: 0,
                    name: b".",
                    padding: gap - HEADER - 1,
                };
                self.header(&filler)?;
            }
        }
        self.header(&e)
    }
}

/// Writes the archive of a tree. The same tree always gives the same bytes.
pub(crate) fn write(tree: &Tree, sink: &mut dyn Sink) -> Result<u64> {
    let counts = tree.link_counts();
    let mut inodes: HashMap<NodeId, u32> = HashMap::new();
    let mut w = Writer { sink, offset: 0 };
    for (path, id) in tree.list() {
        let name = path.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or(path.as_os_str().as_bytes());
        let next = inodes.len() as u32 + 1;
        let first = !inodes.contains_key(&id);
        let inode = *inodes.entry(id).or_insert(next);
        let node = tree.node(id);
        let links = counts.get(&id).copied().unwrap_or(1);
        let mut e = Entry { inode, mode: node.meta.mode, meta: node.meta, links, size: 0, name, padding: 0 };
        match &node.kind {
            Kind::Directory(_) => {
                e.mode |= 0o040000;
                e.links = 2;
                w.entry(e, false)?;
            }
            Kind::Link(target) => {
                let target = target.as_os_str().as_bytes();
                e.mode |= 0o120000;
                // Each name of a symbolic link is a link of its own: Linux' reader knows no hard links to them.
                e.links = 1;
                e.size = target.len() as u32;
                w.entry(e, false)?;
                w.raw(target)?;
            }
            Kind::File(content) => {
                e.mode |= 0o100000;
                if first {
                    let data = content.read()?;
                    let Ok(size) = u32::try_from(data.len()) else {
                        fail!(
                            NotRunnable,
                            "{}: {} bytes; a root archive holds files below 4 GiB",
                            path.display(),
                            data.len()
                        );
                    };
                    e.size = size;
                    w.entry(e, data.len() as u64 >= PAGE)?;
                    w.raw(&data)?;
                } else {
                    w.entry(e, false)?;
                }
            }
        }
        w.zeros(w.offset.next_multiple_of(4) - w.offset)?;
    }
    let end = Entry {
        inode: 0,
        mode: 0,
        meta: Meta { mode: 0, uid: 0, gid: 0, mtime: 0, capabilities: Capabilities::NONE },
        links: 1,
        size: 0,
        name: TRAILER,
        padding: 0,
    };
    w.entry(end, false)?;
    // Loaders place what follows at page boundaries.
    w.zeros(w.offset.next_multiple_of(PAGE) - w.offset)?;
    Ok(w.offset)
}

/// Reads an archive of [`write`] back, for questions about an image that is in the cache already.
pub(crate) fn read(bytes: &[u8], name: &str) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut firsts: HashMap<u32, PathBuf> = HashMap::new();
    let mut at = 0;
    loop {
        let Some((entry, next)) = read_entry(bytes, at) else {
            fail!(Corrupt, "{name}: a damaged root archive; delete it and run again");
        };
        at = next;
        if entry.name == TRAILER {
            return Ok(tree);
        }
        if entry.name == b"." {
            continue;
        }
        let path = Path::new("/").join(OsStr::from_bytes(entry.name));
        match entry.mode & 0o170000 {
            0o040000 => tree.put_directory(&path, entry.meta, false)?,
            0o120000 => tree.put(&path, Kind::Link(OsStr::from_bytes(entry.data).into()), entry.meta)?,
            0o100000 => match firsts.get(&entry.inode).filter(|_| entry.links > 1) {
                Some(first) => tree.put_hard_link(&path, first)?,
                None => {
                    tree.put_bytes(&path, entry.data, entry.meta)?;
                    firsts.insert(entry.inode, path);
                }
            },
            _ => {}
        }
    }
}

struct Found<'a> {
    inode: u32,
    mode: u32,
    meta: Meta,
    links: u32,
    name: &'a [u8],
    data: &'a [u8],
}

/// The entry at an offset and the offset of the next; `None` if it is not whole.
fn read_entry(bytes: &[u8], at: usize) -> Option<(Found<'_>, usize)> {
    let header = bytes.get(at..at.checked_add(HEADER as usize)?)?;
    if !header.starts_with(b"070701") {
        return None;
    }
    let field =
        |n: usize| u32::from_str_radix(std::str::from_utf8(&header[6 + n * 8..14 + n * 8]).ok()?, 16).ok();
    let (size, name_size) = (field(6)? as usize, field(11)? as usize);
    let name_at = at + HEADER as usize;
    let name = bytes.get(name_at..name_at.checked_add(name_size)?)?;
    let name = name.split(|b| *b == 0).next()?;
    let data_at = (name_at + name_size).next_multiple_of(4);
    let data = bytes.get(data_at..data_at.checked_add(size)?)?;
    let permitted = u64::from(field(9)?) | u64::from(field(10)? & !EFFECTIVE) << 32;
    let capabilities = match field(1)? & 0o170000 {
        0o100000 => Capabilities { permitted, is_effective: field(10)? & EFFECTIVE != 0 },
        _ => Capabilities::NONE,
    };
    let meta =
        Meta { mode: field(1)? & 0o7777, uid: field(2)?, gid: field(3)?, mtime: field(5)?, capabilities };
    let found = Found { inode: field(0)?, mode: field(1)?, meta, links: field(4)?, name, data };
    Some((found, (data_at + size).next_multiple_of(4)))
}

impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Content, ROOT};
    use std::collections::BTreeMap;

    struct Seen {
        inode: u32,
        mode: u32,
        links: u32,
        data_at: usize,
        data: Vec<u8>,
    }

    /// A reader written from the format's description, apart from the writer.
    fn look(bytes: &[u8]) -> BTreeMap<String, Seen> {
        let mut out = BTreeMap::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + n * 8..at + 14 + n * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (size, name_size) = (field(6) as usize, field(11) as usize);
            assert!((1..=MAX_PATH).contains(&name_size), "Linux skips entries with longer names");
            let name = &bytes[at + 110..at + 110 + name_size];
            assert_eq!(name.last(), Some(&0));
            let name = std::str::from_utf8(name.split(|b| *b == 0).next().unwrap()).unwrap();
            let data_at = (at + 110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return out;
            }
            let entry = Seen {
                inode: field(0),
                mode: field(1),
                links: field(4),
                data_at,
                data: bytes[data_at..data_at + size].to_vec(),
            };
            if name != "." {
                assert!(out.insert(name.to_string(), entry).is_none());
            }
            at = (data_at + size).next_multiple_of(4);
        }
    }

    fn archive(tree: &Tree) -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(write(tree, &mut out).unwrap(), out.len() as u64);
        out
    }

    #[test]
    fn data_of_a_page_or_more_lies_at_page_boundaries_whatever_the_names() {
        let mut tree = Tree::new();
        let deep = format!("/{}", "d".repeat(250)).repeat(14);
        for (number, size) in [4096, 1, 5000, 4095, 0, 70_000].into_iter().cycle().take(60).enumerate() {
            let name = format!("{}/{number}{}", if number % 3 == 0 { &deep } else { "" }, "x".repeat(number));
            tree.put_bytes(Path::new(&name), vec![number as u8; size], Meta::FILE).unwrap();
        }
        let bytes = archive(&tree);
        assert_eq!(bytes.len() % PAGE as usize, 0);
        let entries = look(&bytes);
        for (path, id) in tree.list() {
            let entry = &entries[path.to_str().unwrap().trim_start_matches('/')];
            if let Kind::File(Content::Bytes(data)) = &tree.node(id).kind {
                assert_eq!(entry.data, &data[..]);
                assert!(data.len() < 4096 || entry.data_at.is_multiple_of(4096), "{path:?}");
            }
        }
        assert_eq!(tree.list().len(), entries.len());
    }

    #[test]
    fn every_gap_is_filled_within_the_length_that_linux_reads() {
        // Names of all lengths modulo a page, so that padding and filler take every size they can.
        for length in (2..4090).step_by(13) {
            let mut tree = Tree::new();
            let mut name = String::new();
            while name.len() < length {
                name.push('/');
                name.push_str(&"n".repeat((length - name.len()).min(200)));
            }
            tree.put_bytes(Path::new(&name), vec![1; 4096], Meta::FILE).unwrap();
            let entries = look(&archive(&tree));
            assert_eq!(entries[name.trim_matches('/')].data_at % 4096, 0);
        }
    }

    #[test]
    fn hard_links_have_one_inode_and_one_copy() {
        let mut tree = Tree::new();
        tree.put_bytes(Path::new("/a"), vec![7; 5000], Meta::PROGRAM).unwrap();
        tree.put_hard_link(Path::new("/b"), Path::new("/a")).unwrap();
        tree.put_link(Path::new("/c"), "a").unwrap();
        let entries = look(&archive(&tree));
        assert_eq!((entries["a"].inode, entries["a"].links), (entries["b"].inode, 2));
        assert_eq!((entries["a"].data.len(), entries["b"].data.len()), (5000, 0));
        assert_eq!((entries["c"].mode, &entries["c"].data[..]), (0o120777, &b"a"[..]));
        assert_eq!(entries["a"].mode, 0o100755);
    }

    #[test]
    fn the_same_tree_gives_the_same_bytes_whatever_the_order() {
        let build = |names: &[&str]| {
            let mut tree = Tree::new();
            names.iter().for_each(|n| tree.put_bytes(Path::new(n), *b"x", Meta::FILE).unwrap());
            archive(&tree)
        };
        assert_eq!(build(&["/a/b", "/c", "/a/d"]), build(&["/c", "/a/d", "/a/b"]));
        assert_eq!(ROOT, 0);
    }

    /// xorshift64* (Vigna): the same damage in every run.
    fn random(state: &mut u64, below: usize) -> usize {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }

    fn sample() -> Tree {
        let mut tree = Tree::new();
        tree.put_bytes(Path::new("/bin/a"), vec![7; 5000], Meta::PROGRAM).unwrap();
        tree.put_hard_link(Path::new("/b"), Path::new("/bin/a")).unwrap();
        tree.put_link(Path::new("/c"), "bin/a").unwrap();
        tree.put_bytes(Path::new("/d"), *b"text", Meta { uid: 3, gid: 4, ..Meta::FILE }).unwrap();
        let capabilities = Capabilities { permitted: 1 << 40 | 1 << 10, is_effective: true };
        tree.put_bytes(Path::new("/e"), *b"e", Meta { capabilities, ..Meta::PROGRAM }).unwrap();
        tree
    }

    #[test]
    fn an_archive_is_read_back_as_it_was_written() {
        let bytes = archive(&sample());
        let back = read(&bytes, "x").unwrap();
        assert_eq!(archive(&back), bytes);
        let (_, e) = back.walk(Path::new("/e"), true).unwrap();
        assert_eq!(
            back.node(e).meta.capabilities,
            Capabilities { permitted: 1 << 40 | 1 << 10, is_effective: true }
        );
        assert_eq!(
            back.walk(Path::new("/b"), true).unwrap().1,
            back.walk(Path::new("/bin/a"), true).unwrap().1
        );
    }

    #[test]
    fn damaged_archives_are_errors_and_never_panics() {
        let whole = archive(&sample());
        let mut state = 1;
        for round in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random(&mut state, 4) {
                // Mostly the headers: they decide.
                let at = random(&mut state, if round % 2 == 0 { 300 } else { whole.len() });
                bytes[at] = random(&mut state, 256) as u8;
            }
            bytes.truncate(if round % 3 == 0 { random(&mut state, whole.len()) } else { whole.len() });
            if let Ok(tree) = read(&bytes, "x") {
                archive(&tree);
            }
        }
    }
}
