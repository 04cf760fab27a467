// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine's root file system as one layer of an OCI image (image-spec layer.md): a tar archive.

use crate::{
    WRITTEN_AT_START,
    cpio::{Contents, Entry, Error, Reader, Result, drain, kind},
    image::{Image, target},
    is_below, is_own,
};
use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsStr,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};
use tar::{Builder, EntryType, Header};

/// Names that mean something else in a layer (layer.md, "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// Where GNU's tar puts a name that is too long for a header.
const LONG_NAME: &[u8] = b"././@LongLink";

/// What a layer was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub files: u64,
    /// Sockets, FIFOs, device files, and names that a layer cannot have.
    pub left_out: u64,
}

/// Whose inode numbers they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Image,
    Machine,
}

/// A file with several names.
enum Names {
    /// Of those that have come none had data.
    Waiting(Vec<(Vec<u8>, Entry)>),
    /// In the layer, by its first name.
    Written(Vec<u8>),
}

struct Layer<W: Write> {
    tar: Builder<W>,
    names: HashMap<(Side, u32), Names>,
    made: Made,
}

fn failed(e: io::Error) -> Error {
    Error::Io("writing the image".into(), e)
}

/// A path as a layer has it: without the slash at its beginning.
fn relative(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
}

fn header(entry: &Entry, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.mode & 0o7777);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(entry.modified.into());
    header.set_size(size);
    header
}

impl<W: Write> Layer<W> {
    /// Adds one file; `data` is a regular file's.
    fn add(&mut self, side: Side, entry: Entry, target: &[u8], data: &mut dyn Read) -> Result<()> {
        let last = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if last.starts_with(WHITEOUT) {
            self.made.left_out += 1;
            return Ok(());
        }
        match entry.kind() {
            kind::DIRECTORY => self.put(&entry, EntryType::Directory, 0, &mut io::empty()),
            kind::LINK => self.link(&entry, EntryType::Symlink, target),
            kind::FILE if entry.is_linked() => self.linked(side, entry, data),
            kind::FILE => self.put(&entry, EntryType::Regular, entry.size.into(), data),
            _ => {
                self.made.left_out += 1;
                Ok(())
            }
        }
    }

    fn put(&mut self, entry: &Entry, kind: EntryType, size: u64, data: &mut dyn Read) -> Result<()> {
        self.made.files += 1;
        let mut data = Counted { inner: data, count: 0 };
        self.tar
            .append_data(&mut header(entry, kind, size), relative(&entry.path), &mut data)
            .map_err(failed)?;
        match data.count == size {
            true => Ok(()),
            false => Err(Error::Damaged("the archive ends inside a file".into())),
        }
    }

    /// A link to `target`, byte for byte: the path of a header would be tidied.
    fn link(&mut self, entry: &Entry, kind: EntryType, target: &[u8]) -> Result<()> {
        self.made.files += 1;
        let mut header = header(entry, kind, 0);
        if header.set_link_name_literal(target).is_err() {
            let mut long = Header::new_gnu();
            long.set_entry_type(EntryType::GNULongLink);
            long.as_mut_bytes()[..LONG_NAME.len()].copy_from_slice(LONG_NAME);
            long.set_mode(0o644);
            long.set_uid(0);
            long.set_gid(0);
            long.set_mtime(0);
            long.set_size(target.len() as u64 + 1);
            long.set_cksum();
            self.tar.append(&long, target.chain(&[0][..])).map_err(failed)?;
        }
        self.tar.append_data(&mut header, relative(&entry.path), io::empty()).map_err(failed)
    }

    /// One of several names: the data may come with any of them.
    fn linked(&mut self, side: Side, entry: Entry, data: &mut dyn Read) -> Result<()> {
        let key = (side, entry.inode);
        let waiting = match self.names.remove(&key) {
            Some(Names::Written(first)) => {
                self.link(&entry, EntryType::Link, relative(&first).as_os_str().as_bytes())?;
                self.names.insert(key, Names::Written(first));
                return Ok(());
            }
            Some(Names::Waiting(waiting)) => waiting,
            None => Vec::new(),
        };
        let names = if entry.size == 0 {
            let mut waiting = waiting;
            waiting.push((entry.path.clone(), entry));
            Names::Waiting(waiting)
        } else {
            self.written(entry, waiting, data)?
        };
        self.names.insert(key, names);
        Ok(())
    }

    fn written(&mut self, entry: Entry, others: Vec<(Vec<u8>, Entry)>, data: &mut dyn Read) -> Result<Names> {
        self.put(&entry, EntryType::Regular, entry.size.into(), data)?;
        for (_, other) in others {
            self.link(&other, EntryType::Link, relative(&entry.path).as_os_str().as_bytes())?;
        }
        Ok(Names::Written(entry.path))
    }

    fn finish(mut self) -> Result<(Made, W)> {
        // Files with several names and nothing in them.
        for (_, names) in std::mem::take(&mut self.names) {
            if let Names::Waiting(mut waiting) = names
                && let Some((_, first)) = waiting.pop()
            {
                self.written(first, waiting, &mut io::empty())?;
            }
        }
        Ok((self.made, self.tar.into_inner().map_err(failed)?))
    }
}

struct Counted<'a> {
    inner: &'a mut dyn Read,
    count: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.count += count as u64;
        Ok(count)
    }
}

/// Writes the layer of what `archive` says of the machine. Where something is mounted it has the image's files, and the
/// mount point; it has the image's version of what every start writes.
pub fn write<W: Write>(image: &Image, archive: impl Read, to: W) -> Result<(Made, W)> {
    let mut layer = Layer { tar: Builder::new(to), names: HashMap::new(), made: Made::default() };
    let mut mounts = BTreeSet::new();
    let mut root = None;
    Reader::new(archive, drain, Contents::Present, "the machine").entries(|entry, data| {
        let device = *root.get_or_insert(entry.device);
        if entry.path == b"/" || is_own(&entry.path) || WRITTEN_AT_START.contains(&&entry.path[..]) {
            return Ok(());
        }
        if entry.device != device {
            if !image.files.contains_key(&entry.path) {
                let is_directory = entry.kind() == kind::DIRECTORY;
                let mode = if is_directory { kind::DIRECTORY | 0o755 } else { kind::FILE | 0o644 };
                let point = Entry { mode, uid: 0, gid: 0, size: 0, links: 1, ..entry.clone() };
                layer.add(Side::Machine, point, b"", &mut io::empty())?;
            }
            mounts.insert(entry.path);
            return Ok(());
        }
        let target = target(&entry, data)?;
        layer.add(Side::Machine, entry, &target, data)
    })?;
    for (path, known) in &image.files {
        let is_hidden = |mount: &Vec<u8>| mount == path || is_below(path, mount);
        if WRITTEN_AT_START.contains(&&path[..]) || mounts.iter().any(is_hidden) {
            let mut data = image.contents(&known.entry);
            layer.add(Side::Image, known.entry.clone(), &known.target, &mut data)?;
        }
    }
    layer.finish()
}
