// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client's handles.

use rustix::io::{Errno, Result};
use std::{
    collections::HashMap,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Handles of one client; each has one or two descriptors of this process.
const MOST_FIDS: usize = 65536;

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
#[derive(Debug)]
pub struct Fid {
    /// `O_PATH`.
    pub path: OwnedFd,
    pub opened: Opened,
}

impl Fid {
    pub fn new(path: OwnedFd) -> Fid {
        Fid { path, opened: Opened::No }
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

#[derive(Debug, Default)]
pub struct Fids(HashMap<u32, Fid>);

impl Fids {
    pub fn get(&self, number: u32) -> Result<&Fid> {
        self.0.get(&number).ok_or(Errno::BADF)
    }

    pub fn get_mut(&mut self, number: u32) -> Result<&mut Fid> {
        self.0.get_mut(&number).ok_or(Errno::BADF)
    }

    /// The number must be free.
    pub fn add(&mut self, number: u32, fid: Fid) -> Result<()> {
        if self.0.len() >= MOST_FIDS {
            return Err(Errno::NFILE);
        }
        if self.0.contains_key(&number) {
            return Err(Errno::BADF);
        }
        self.0.insert(number, fid);
        Ok(())
    }

    pub fn remove(&mut self, number: u32) -> Result<Fid> {
        self.0.remove(&number).ok_or(Errno::BADF)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
