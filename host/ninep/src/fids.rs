// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client's handles.

use crate::{
    Limits,
    export::{Export, MAX_ATTRIBUTE},
    watches::Watched,
};
use rustix::io::{Errno, Result};
use std::{
    collections::HashMap,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// Bytes of attributes that one client may hold at once: 16 of the largest.
const MAX_ATTRIBUTE_BYTES: usize = 16 * MAX_ATTRIBUTE;

/// What a handle is good for at the moment.
#[derive(Debug)]
pub enum Opened {
    No,
    File(File),
    Directory(OwnedFd),
    /// The value of an attribute, or the list of names, to be read.
    Attribute(Vec<u8>),
    /// An attribute that is being written, and is set when the handle is given back.
    NewAttribute {
        name: Vec<u8>,
        value: Vec<u8>,
        size: usize,
        flags: u32,
    },
}

/// A file the client has a number for.
pub struct Fid {
    /// The tree that it is in.
    pub export: Arc<Export>,
    /// `O_PATH`.
    pub path: OwnedFd,
    pub opened: Opened,
    /// Of a directory: the client is told what changes in it.
    pub watched: Option<Watched>,
    /// The client was given the open file, to read and write it by itself.
    pub is_given: bool,
}

impl Fid {
    pub fn new(export: Arc<Export>, path: OwnedFd) -> Fid {
        Fid { export, path, opened: Opened::No, watched: None, is_given: false }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    pub fn file(&self) -> Result<&File> {
        match &self.opened {
            Opened::File(file) => Ok(file),
            Opened::Directory(_) => Err(Errno::ISDIR),
            _ => Err(Errno::BADF),
        }
    }
}

/// What handles take of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    descriptors: usize,
    /// Of attributes, as long as they are or are to be.
    bytes: usize,
    /// Files that the client has itself.
    given: usize,
}

impl Fid {
    fn cost(&self) -> Cost {
        Cost { descriptors: 1, given: self.is_given.into(), ..Cost::default() } + self.opened.cost()
    }
}

impl Opened {
    fn cost(&self) -> Cost {
        match self {
            Opened::No => Cost::default(),
            Opened::File(_) | Opened::Directory(_) => Cost { descriptors: 1, ..Cost::default() },
            Opened::Attribute(value) => Cost { bytes: value.len(), ..Cost::default() },
            Opened::NewAttribute { name, size, .. } => Cost { bytes: name.len() + size, ..Cost::default() },
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            descriptors: self.descriptors + other.descriptors,
            bytes: self.bytes + other.bytes,
            given: self.given + other.given,
        }
    }
}

/// The handles of a client. What they take is counted whenever it changes and never exceeds the client's limits.
pub struct Fids {
    all: HashMap<u32, Fid>,
    taken: Cost,
    limits: Cost,
}

impl Fids {
    /// What the client may have.
    pub fn new(limits: Limits) -> Fids {
        let Limits { descriptors, given } = limits;
        let limits = Cost { descriptors, bytes: MAX_ATTRIBUTE_BYTES, given };
        Fids { all: HashMap::new(), taken: Cost::default(), limits }
    }

    pub fn get(&self, number: u32) -> Result<&Fid> {
        self.all.get(&number).ok_or(Errno::BADF)
    }

    /// The room for more, if there is.
    fn with(&self, more: Cost) -> Result<Cost> {
        let sum = self.taken + more;
        let limits = self.limits;
        let fits =
            sum.descriptors <= limits.descriptors && sum.bytes <= limits.bytes && sum.given <= limits.given;
        if fits { Ok(sum) } else { Err(Errno::NFILE) }
    }

    fn give_back(&mut self, cost: Cost) {
        self.taken.descriptors -= cost.descriptors;
        self.taken.bytes -= cost.bytes;
        self.taken.given -= cost.given;
    }

    /// The client may have another file itself.
    pub fn can_give(&self) -> bool {
        self.taken.given < self.limits.given
    }

    /// The client does not have this one after all.
    pub fn is_not_given(&mut self, number: u32) {
        if let Some(fid) = self.all.get_mut(&number) {
            self.taken.given -= usize::from(fid.is_given);
            fid.is_given = false;
        }
    }

    /// The number must be free.
    pub fn add(&mut self, number: u32, fid: Fid) -> Result<()> {
        let sum = self.with(fid.cost())?;
        if self.all.contains_key(&number) {
            return Err(Errno::BADF);
        }
        self.taken = sum;
        self.all.insert(number, fid);
        Ok(())
    }

    /// Opens what a handle stands for.
    pub fn open(&mut self, number: u32, opened: Opened) -> Result<()> {
        let sum = self.with(opened.cost())?;
        let fid = self.all.get_mut(&number).ok_or(Errno::BADF)?;
        let before = std::mem::replace(&mut fid.opened, opened);
        self.taken = sum;
        self.give_back(before.cost());
        Ok(())
    }

    /// Lets a handle stand for something else.
    pub fn replace(&mut self, number: u32, fid: Fid) -> Result<()> {
        let sum = self.with(fid.cost())?;
        let place = self.all.get_mut(&number).ok_or(Errno::BADF)?;
        let before = std::mem::replace(place, fid);
        self.taken = sum;
        self.give_back(before.cost());
        Ok(())
    }

    /// Adds to the value of an attribute that is being written, which has room for it since it was opened.
    pub fn extend_attribute(&mut self, number: u32, offset: u64, data: &[u8]) -> Result<()> {
        let fid = self.all.get_mut(&number).ok_or(Errno::BADF)?;
        let Opened::NewAttribute { value, size, .. } = &mut fid.opened else { return Err(Errno::BADF) };
        if offset != value.len() as u64 || value.len() + data.len() > *size {
            return Err(Errno::INVAL);
        }
        value.extend(data);
        Ok(())
    }

    pub fn remove(&mut self, number: u32) -> Result<Fid> {
        let fid = self.all.remove(&number).ok_or(Errno::BADF)?;
        self.give_back(fid.cost());
        Ok(fid)
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.taken = Cost::default();
    }

    /// Forgets all handles of a tree.
    pub fn clear_tree(&mut self, export: &Arc<Export>) {
        let of_it: Vec<u32> = self
            .all
            .iter()
            .filter(|(_, fid)| Arc::ptr_eq(&fid.export, export))
            .map(|(number, _)| *number)
            .collect();
        // They are all there.
        of_it.into_iter().for_each(|number| drop(self.remove(number)));
    }
}
