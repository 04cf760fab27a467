// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root archive of a machine's image, with an index of its files.

use crate::{
    cpio::{Contents, Entry, Error, MAX_TARGET, Reader, Result, seek},
    is_own,
};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::Path,
};

/// SHA-256 of a file's contents.
pub type Sum = [u8; 32];

/// One file of an archive.
#[derive(Clone, Debug)]
pub struct Known {
    pub entry: Entry,
    /// A symbolic link's.
    pub target: Vec<u8>,
}

pub struct Image {
    pub files: BTreeMap<Vec<u8>, Known>,
    file: File,
    name: String,
}

/// The target of a link; empty for any other file.
pub fn target(entry: &Entry, data: &mut dyn Read) -> Result<Vec<u8>> {
    let mut target = Vec::new();
    if entry.kind() == crate::cpio::kind::LINK {
        let read = data.take(MAX_TARGET).read_to_end(&mut target);
        read.map_err(|e| Error::Io("reading a link".into(), e))?;
        if target.len() != entry.size as usize {
            return Err(Error::Damaged("the archive ends inside a link".into()));
        }
    }
    Ok(target)
}

/// The checksum of what is left to be read, and its length.
pub fn sum(data: &mut dyn Read) -> io::Result<(Sum, u64)> {
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = data.read(&mut buffer)?;
        if count == 0 {
            return Ok((hash.finalize().into(), length));
        }
        hash.update(&buffer[..count]);
        length += count as u64;
    }
}

impl Image {
    pub fn open(path: &Path) -> Result<Image> {
        let name = path.display().to_string();
        let open = || File::open(path).map_err(|e| Error::Io(format!("reading {name}"), e));
        let mut files = BTreeMap::new();
        // One name of several has the data of all of them.
        let mut data_of: HashMap<u32, (u32, u64)> = HashMap::new();
        let reader = Reader::new(BufReader::new(open()?), seek, Contents::Present, name.clone());
        reader.entries(|entry, data| {
            if is_own(&entry.path) || entry.path == b"/" {
                return Ok(());
            }
            if entry.is_linked() && entry.size > 0 {
                data_of.insert(entry.inode, (entry.size, entry.offset));
            }
            let target = target(&entry, data)?;
            files.insert(entry.path.clone(), Known { entry, target });
            Ok(())
        })?;
        for known in files.values_mut().filter(|known| known.entry.is_linked()) {
            if let Some((size, offset)) = data_of.get(&known.entry.inode) {
                (known.entry.size, known.entry.offset) = (*size, *offset);
            }
        }
        Ok(Image { files, file: open()?, name })
    }

    /// The contents of a regular file of it.
    pub fn contents(&self, entry: &Entry) -> impl Read + '_ {
        Part { file: &self.file, at: entry.offset, left: entry.size.into() }
    }

    pub fn sum(&self, entry: &Entry) -> Result<Sum> {
        let (sum, length) =
            sum(&mut self.contents(entry)).map_err(|e| Error::Io(format!("reading {}", self.name), e))?;
        match length == u64::from(entry.size) {
            true => Ok(sum),
            false => Err(Error::Damaged(format!("{}: the archive ends inside a file", self.name))),
        }
    }
}

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = to.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut to[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
