// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a root file system archive (cpio "newc", `cpio(5)`), to look at the files of an image.

use std::collections::BTreeMap;

const HEADER: usize = 110;
const LINK: u32 = 0o120000;
const FILE: u32 = 0o100000;
const KIND: u32 = 0o170000;
/// Where in a header the size of the file is, in eight hexadecimal digits.
pub const FILE_SIZE: usize = 6 + 8 * 6;
/// As many symbolic links as Linux follows (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// The files and symbolic links of an archive, by absolute path.
pub struct Archive<'a> {
    entries: BTreeMap<String, Entry<'a>>,
}

enum Entry<'a> {
    File { at: Place, content: &'a [u8] },
    Link(String),
}

/// Where the header and the content of a file begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub header: usize,
    pub content: usize,
}

impl<'a> Archive<'a> {
    /// `None` if the archive is damaged.
    pub fn read(bytes: &'a [u8]) -> Option<Archive<'a>> {
        let mut entries = BTreeMap::new();
        let mut at = 0;
        loop {
            let header = bytes.get(at..at + HEADER)?;
            if !header.starts_with(b"070701") {
                return None;
            }
            let field = |n: usize| {
                let digits = std::str::from_utf8(header.get(6 + 8 * n..14 + 8 * n)?).ok()?;
                u32::from_str_radix(digits, 16).ok()
            };
            let (mode, size, name_size) = (field(1)?, field(6)? as usize, field(11)? as usize);
            let name = bytes.get(at + HEADER..at + HEADER + name_size)?;
            let name =
                String::from_utf8_lossy(name.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
            if name == "TRAILER!!!" {
                return Some(Archive { entries });
            }
            let data = (at + HEADER + name_size).next_multiple_of(4);
            let content = bytes.get(data..data + size)?;
            let path = format!("/{}", name.trim_start_matches("./").trim_start_matches('/'));
            match mode & KIND {
                FILE => {
                    let at = Place { header: at, content: data };
                    drop(entries.insert(path, Entry::File { at, content }));
                }
                LINK => {
                    drop(entries.insert(path, Entry::Link(String::from_utf8_lossy(content).into_owned())))
                }
                _ => {}
            }
            at = (data + size).next_multiple_of(4);
        }
    }

    /// The content of a file, following symbolic links.
    pub fn file(&self, path: &str) -> Option<&'a [u8]> {
        self.place(path).map(|(_, content)| content)
    }

    /// The same, and where it is in the archive.
    pub fn place(&self, path: &str) -> Option<(Place, &'a [u8])> {
        let mut path = path.to_string();
        for _ in 0..MAX_LINKS {
            if let Some(Entry::File { at, content }) = self.entries.get(&path) {
                return Some((*at, content));
            }
            path = self.follow(&path)?;
        }
        None
    }

    /// The path with its first symbolic link replaced; `None` if it has none.
    fn follow(&self, path: &str) -> Option<String> {
        let ends = path.match_indices('/').map(|(i, _)| i).skip(1).chain([path.len()]);
        for end in ends {
            let Some(Entry::Link(target)) = self.entries.get(&path[..end]) else { continue };
            let folder = if target.starts_with('/') { "" } else { path[..end].rsplit_once('/')?.0 };
            return Some(normal(&format!("{folder}/{target}{}", &path[end..])));
        }
        None
    }

    /// The files and links whose last name is `name`, of any folder.
    pub fn named(&self, name: &str) -> Option<&'a [u8]> {
        let path = self.entries.keys().find(|p| p.rsplit_once('/').is_some_and(|(_, last)| last == name))?;
        self.file(path)
    }
}

/// An absolute path without `.`, `..` and empty parts.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, mode: u32, data: &[u8]) -> Vec<u8> {
        let mut out = b"070701".to_vec();
        for field in [0, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0] {
            out.extend(format!("{field:08x}").bytes());
        }
        out.extend(name.bytes().chain([0]));
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(data);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn files_are_found_through_links_to_files_and_folders() {
        let parts = [
            entry("usr/lib/x", 0o100644, b"here"),
            entry("lib", 0o120777, b"usr/lib"),
            entry("bin/y", 0o120777, b"../lib/x"),
            entry("loop", 0o120777, b"loop"),
            entry("TRAILER!!!", 0, b""),
        ];
        let bytes = parts.concat();
        let archive = Archive::read(&bytes).unwrap();
        for path in ["/usr/lib/x", "/lib/x", "/bin/y"] {
            assert_eq!(archive.file(path), Some(&b"here"[..]), "{path}");
        }
        let (at, content) = archive.place("/bin/y").unwrap();
        assert_eq!(&bytes[at.content..][..content.len()], b"here");
        assert_eq!(&bytes[at.header + FILE_SIZE..][..8], b"00000004");
        assert_eq!(archive.named("x"), Some(&b"here"[..]));
        assert!(archive.file("/loop").is_none() && archive.file("/nothing").is_none());
    }

    #[test]
    fn a_truncated_archive_is_no_archive() {
        let bytes = entry("a", 0o100644, b"content");
        assert!((0..bytes.len()).all(|n| Archive::read(&bytes[..n]).is_none()));
    }
}
