// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages: little-endian integers, strings with a 16-bit length.

use abi::{Result, errno::EIO};
use alloc::vec::Vec;

/// Bytes of `size[4] type[1] tag[2]`.
pub const HEADER: usize = 7;

/// Message types (the T of each pair; its R is one more).
pub mod kind {
    pub const LERROR: u8 = 7;
    pub const STATFS: u8 = 8;
    pub const LOPEN: u8 = 12;
    pub const SYMLINK: u8 = 16;
    pub const MKNOD: u8 = 18;
    pub const READLINK: u8 = 22;
    pub const GETATTR: u8 = 24;
    pub const SETATTR: u8 = 26;
    pub const XATTRWALK: u8 = 30;
    pub const XATTRCREATE: u8 = 32;
    pub const READDIR: u8 = 40;
    pub const FSYNC: u8 = 50;
    pub const LINK: u8 = 70;
    pub const MKDIR: u8 = 72;
    pub const RENAMEAT: u8 = 74;
    pub const UNLINKAT: u8 = 76;
    pub const VERSION: u8 = 100;
    pub const ATTACH: u8 = 104;
    pub const WALK: u8 = 110;
    pub const READ: u8 = 116;
    pub const WRITE: u8 = 118;
    pub const CLUNK: u8 = 120;
    // What only a server of ours knows (`Transport::is_extended`).
    pub const LOOK: u8 = 130;
    pub const LIST: u8 = 132;
    pub const OPEN: u8 = 134;
    pub const CLUNKS: u8 = 136;
}

/// Bytes of a qid.
const QID: usize = 13;

/// A reply with which the server gives the file that it opened: a byte behind the qid says so.
pub fn gives(reply: &[u8]) -> bool {
    reply.get(4) == Some(&(kind::OPEN + 1)) && reply.get(HEADER + QID) == Some(&1)
}

/// A message being written.
pub struct Request(pub Vec<u8>);

impl Request {
    pub fn u8(mut self, value: u8) -> Request {
        self.0.push(value);
        self
    }

    pub fn u16(mut self, value: u16) -> Request {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u32(mut self, value: u32) -> Request {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Request {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Names and targets are at most a path long, which fits the 16-bit length.
    pub fn string(self, value: &[u8]) -> Request {
        let mut out = self.u16(value.len() as u16);
        out.0.extend_from_slice(value);
        out
    }
}

/// A message being read; everything that is not there is `EIO`.
pub struct Reply<'a>(pub &'a [u8]);

impl<'a> Reply<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(n).ok_or(EIO)?;
        self.0 = later;
        Ok(now)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| EIO)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.u16()?;
        self.take(length as usize)
    }

    pub fn qid(&mut self) -> Result<Qid> {
        Ok(Qid { kind: self.u8()?, version: self.u32()?, path: self.u64()? })
    }
}

/// The server's name for a file: the same path is the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qid {
    pub kind: u8,
    pub version: u32,
    pub path: u64,
}
