// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages: little-endian integers, strings with a 16-bit length.

use rustix::io::{Errno, Result};

/// Bytes of `size[4] type[1] tag[2]`.
pub const HEADER: usize = 7;
/// Bytes of a read or write message around its data.
pub const IO_HEADER: u32 = 24;

/// Types of requests; the answer's is one more.
pub mod kind {
    pub const LERROR: u8 = 6;
    pub const STATFS: u8 = 8;
    pub const LOPEN: u8 = 12;
    pub const LCREATE: u8 = 14;
    pub const SYMLINK: u8 = 16;
    pub const MKNOD: u8 = 18;
    pub const READLINK: u8 = 22;
    pub const GETATTR: u8 = 24;
    pub const SETATTR: u8 = 26;
    pub const XATTRWALK: u8 = 30;
    pub const XATTRCREATE: u8 = 32;
    pub const READDIR: u8 = 40;
    pub const FSYNC: u8 = 50;
    pub const LOCK: u8 = 52;
    pub const GETLOCK: u8 = 54;
    pub const LINK: u8 = 70;
    pub const MKDIR: u8 = 72;
    pub const RENAMEAT: u8 = 74;
    pub const UNLINKAT: u8 = 76;
    pub const VERSION: u8 = 100;
    pub const ATTACH: u8 = 104;
    pub const FLUSH: u8 = 108;
    pub const WALK: u8 = 110;
    pub const READ: u8 = 116;
    pub const WRITE: u8 = 118;
    pub const CLUNK: u8 = 120;
    // Of this server and the machine's kernel alone: what takes several of the above otherwise, beyond the protocol's own numbers.
    /// Twalk of one name at most, Tgetattr, and a watch.
    pub const LOOK: u8 = 130;
    /// Treaddir of a directory that is not open, with attributes if wanted.
    pub const LIST: u8 = 132;
    /// Twalk of one name at most, and Tlopen.
    pub const OPEN: u8 = 134;
    /// Several Tclunk.
    pub const CLUNKS: u8 = 136;
}

/// A request being read; what is not there is `EINVAL`.
pub struct Request<'a>(pub &'a [u8]);

impl<'a> Request<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(n).ok_or(Errno::INVAL)?;
        self.0 = later;
        Ok(now)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Errno::INVAL)
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

    /// Any bytes but NUL, which would end the name for the host.
    pub fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.u16()?;
        let text = self.take(length as usize)?;
        if text.contains(&0) { Err(Errno::INVAL) } else { Ok(text) }
    }

    /// The name of an entry of a directory: one component that leads nowhere else.
    pub fn name(&mut self) -> Result<&'a [u8]> {
        match self.string()? {
            b"" => Err(Errno::NOENT),
            b"." | b".." => Err(Errno::INVAL),
            name if name.contains(&b'/') => Err(Errno::INVAL),
            name => Ok(name),
        }
    }
}

/// The server's name for a file: the same path is the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qid {
    pub kind: u8,
    pub version: u32,
    pub path: u64,
}

impl Qid {
    pub const DIRECTORY: u8 = 0x80;
    pub const SYMLINK: u8 = 2;
    /// Bytes it takes in a message.
    pub const SIZE: usize = 13;
}

/// An answer being written, header included.
pub struct Answer<'a>(&'a mut Vec<u8>);

impl<'a> Answer<'a> {
    pub fn begin(buffer: &'a mut Vec<u8>, request: u8, tag: u16) -> Answer<'a> {
        buffer.clear();
        buffer.extend([0, 0, 0, 0, request.wrapping_add(1)]);
        buffer.extend(tag.to_le_bytes());
        Answer(buffer)
    }

    /// Fills in the size.
    pub fn end(self) {
        let size = self.0.len() as u32;
        self.0[..4].copy_from_slice(&size.to_le_bytes());
    }

    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn qid(&mut self, qid: Qid) -> &mut Self {
        self.u8(qid.kind).u32(qid.version).u64(qid.path)
    }

    /// At most 65,535 bytes: names and link targets are at most a path long.
    pub fn string(&mut self, value: &[u8]) -> &mut Self {
        self.u16(value.len() as u16).bytes(value)
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend(value);
        self
    }

    /// `count[4] data[count]`, filled in place by `fill`, which answers how much it wrote.
    pub fn counted(&mut self, most: u32, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let at = self.0.len();
        self.0.resize(at + 4 + most as usize, 0);
        let length = fill(&mut self.0[at + 4..])?;
        self.0.truncate(at + 4 + length);
        self.0[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
        Ok(())
    }
}
