// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `export`: the root file system as an archive, for `unilith diff` and `unilith commit`.
//!
//! The format is cpio "newc" (Linux, Documentation/driver-api/early-userspace/buffer-format.rst), because the root file
//! system comes as one: a mode, an owner, a time, an inode number and a device for each file, names of any bytes. Numbers
//! that do not fit into 32 bits are cut off at the largest one; a file of 4 GiB or more is a failure when its contents are
//! asked for.

use crate::arguments::Arguments;
use crate::paths::{BATCH, O_RDONLY, Tree, failed, join, read};
use abi::PAGE_SIZE;
use abi::errno::{EFBIG, ENOENT, ENOMEM};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Stat};
use api_overlay::{Command, Completes, Failure, Outcome, Session, Stop, Stream, manual};
use vfs::{Credentials, Dentry, Walk};

pub const COMMANDS: [Command; 1] = [Command {
    name: "export",
    arguments: manual!("[-l]"),
    summary: manual!("Print the root file system as a cpio archive"),
    help: manual!(
        "Prints an archive (cpio, newc) of the root file system without what is mounted in it: a mount point is an entry \
           with another device number, and nothing below it is in the archive. Each of several names of a file has the file's \
           contents. Programs go on meanwhile: a file that shrinks while it is read is filled up with zeros.\n\
           -l  no contents of regular files, only their headers"
    ),
    completes: Completes::Nothing,
    run: export,
}];

const TRAILER: &[u8] = b"TRAILER!!!";
/// Bytes of a header.
const HEADER: usize = 110;
/// Contents are read in pieces of this size.
const PIECE: usize = 8 * PAGE_SIZE;

fn export(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "l", "")?;
    if !options.operands.is_empty() {
        return Err(Failure::usage("it takes no paths: the archive is the whole root file system"));
    }
    let tree = Tree::for_path(b"/")?;
    // The machine's root, also where the program has changed its own (chroot(2)).
    let root = tree.process.files.namespace().root().topmost();
    let who = Credentials::root();
    let mut buffer = Vec::new();
    if !options.has(b'l') {
        buffer.reserve_exact_fallibly(PIECE).map_err(|_| Failure::new("").errno(ENOMEM))?;
        buffer.resize(PIECE, 0);
    }
    let device = root.inode().stat().map_err(failed(b"/"))?.device;
    let walk = Walk::new(&root, &root, &who);
    let mut exporter = Exporter { session, walk, device, buffer, code: 0 };
    exporter.all(&root)?;
    Ok(exporter.code)
}

struct Exporter<'a> {
    session: &'a dyn Session,
    walk: Walk<'a>,
    /// The root file system's.
    device: u64,
    /// Empty: without contents.
    buffer: Vec<u8>,
    code: u8,
}

type Done = Result<(), Stop>;

/// The next multiple of four, at which every header and all data of the format start.
fn padding(length: usize) -> &'static [u8] {
    &[0; 3][..length.next_multiple_of(4) - length]
}

/// One header: its fields in the order of the format, the name's length last but one.
fn header(stat: &Stat, size: u32, name_size: usize) -> String {
    let cut = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let seconds = cut(u64::try_from(stat.modified.seconds).unwrap_or(0));
    let halves = |device: u64| ((device >> 32) as u32, device as u32);
    let (device, node) = (halves(stat.device), halves(stat.rdev));
    let fields = [
        // It wraps: only names of one file have to have the same number.
        stat.inode as u32,
        stat.mode(),
        stat.uid,
        stat.gid,
        cut(stat.links),
        seconds,
        size,
        device.0,
        device.1,
        node.0,
        node.1,
        cut(name_size as u64),
        0,
    ];
    let mut text = String::with_capacity(HEADER);
    text.push_str("070701");
    for field in fields {
        text.push_str(&format!("{field:08X}"));
    }
    text
}

impl Exporter<'_> {
    fn out(&self, bytes: &[u8]) -> Done {
        self.session.write(Stream::Out, bytes)
    }

    fn complain(&mut self, path: &[u8], e: abi::Errno) -> Done {
        self.code = Failure::FAILED;
        self.session.fail(&failed(path)(e))
    }

    /// The root and everything below it; a directory before what is in it.
    fn all(&mut self, root: &Arc<Dentry>) -> Done {
        self.entry(root, b".")?;
        let mut directories = alloc::vec![(root.clone(), Vec::new())];
        while let Some((directory, path)) = directories.pop() {
            let mut cookie = 0;
            loop {
                self.session.checkpoint()?;
                let entries = match directory.inode().list(cookie, BATCH) {
                    Ok(entries) => entries,
                    Err(e) => {
                        self.complain(&path, e)?;
                        break;
                    }
                };
                let Some(last) = entries.last() else { break };
                cookie = last.next;
                for entry in entries.iter().filter(|e| e.name != b"." && e.name != b"..") {
                    let path = join(&path, &entry.name);
                    match self.walk.child(&directory, &entry.name) {
                        Ok(child) => {
                            if self.entry(&child, &path)? && child.is_directory() {
                                directories.push((child, path));
                            }
                        }
                        // It was removed in this moment.
                        Err(ENOENT) => {}
                        Err(e) => self.complain(&path, e)?,
                    }
                }
            }
        }
        let end = Stat::new(FileType::Regular, 0);
        self.head(&end, 0, TRAILER)
    }

    fn head(&self, stat: &Stat, size: u32, name: &[u8]) -> Done {
        self.out(header(stat, size, name.len() + 1).as_bytes())?;
        self.out(name)?;
        self.out(&[0])?;
        self.out(padding(HEADER + name.len() + 1))
    }

    /// Writes one file; whether it is of the root file system.
    fn entry(&mut self, dentry: &Arc<Dentry>, path: &[u8]) -> Result<bool, Stop> {
        let stat = match dentry.inode().stat() {
            Ok(stat) => stat,
            Err(e) => return self.complain(path, e).map(|()| false),
        };
        if stat.device != self.device {
            return self.head(&stat, 0, path).map(|()| false);
        }
        match stat.kind {
            FileType::Symlink => match dentry.inode().read_link() {
                Ok(target) => {
                    self.head(&stat, target.len() as u32, path)?;
                    self.out(&target)?;
                    self.out(padding(target.len()))?;
                }
                Err(e) => self.complain(path, e)?,
            },
            FileType::Regular if self.buffer.is_empty() => {
                self.head(&stat, u32::try_from(stat.size).unwrap_or(u32::MAX), path)?;
            }
            FileType::Regular => self.file(dentry, &stat, path)?,
            _ => self.head(&stat, 0, path)?,
        }
        self.session.checkpoint()?;
        Ok(true)
    }

    fn file(&mut self, dentry: &Arc<Dentry>, stat: &Stat, path: &[u8]) -> Done {
        let Ok(size) = u32::try_from(stat.size) else { return self.complain(path, EFBIG) };
        let file = match posix::calls::open::open_inode(dentry, O_RDONLY) {
            Ok(file) => file,
            Err(e) => return self.complain(path, e),
        };
        self.head(stat, size, path)?;
        let mut buffer = core::mem::take(&mut self.buffer);
        let mut at = 0;
        while at < size as usize {
            let part = buffer.len().min(size as usize - at);
            let count = match read(self.session, &file, at as u64, &mut buffer[..part])? {
                Ok(count) => count,
                Err(e) => {
                    self.complain(path, e)?;
                    0
                }
            };
            // What the header has announced comes, whatever has become of the file.
            if count == 0 {
                buffer[..part].fill(0);
            }
            let count = if count == 0 { part } else { count };
            self.out(&buffer[..count])?;
            self.session.checkpoint()?;
            at += count;
        }
        self.buffer = buffer;
        if let Err(e) = file.close() {
            self.complain(path, e)?;
        }
        self.out(padding(size as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_fields_of_the_format_and_large_numbers_are_cut_off() {
        let mut stat = Stat::new(FileType::Regular, 0o4755);
        (stat.inode, stat.uid, stat.gid, stat.links) = (7, 1000, 100, 2);
        stat.modified.seconds = 1_000_000_000;
        (stat.device, stat.rdev) = (1 << 32 | 2, 0);
        let text = header(&stat, 4096, 6);
        assert_eq!(text.len(), HEADER);
        let words: Vec<&str> = (0..13).map(|n| &text[6 + 8 * n..14 + 8 * n]).collect();
        let wanted = "00000007 000089ED 000003E8 00000064 00000002 3B9ACA00 00001000 00000001 00000002 00000000 \
                      00000000 00000006 00000000";
        assert_eq!(words.join(" "), wanted);
        stat.inode = u64::MAX;
        stat.modified.seconds = -1;
        let text = header(&stat, 0, 2);
        assert_eq!((&text[6..14], &text[46..54]), ("FFFFFFFF", "00000000"));
    }

    #[test]
    fn names_and_data_end_at_multiples_of_four() {
        for length in 0..9 {
            assert_eq!((length + padding(length).len()) % 4, 0);
            assert!(padding(length).len() < 4);
        }
    }
}
