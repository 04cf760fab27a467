// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files that no file system has, a pipe, a socket, an event's counter, where an inode is wanted: behind their links in /proc, and
//! for calls that change attributes by a descriptor.

use crate::Dentry;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, Inode, SetAttr, Stat};
use core::any::Any;

/// The inode of such a file.
pub struct OpenFile(Arc<dyn File>);

impl OpenFile {
    /// The file's own inode where it has one.
    pub fn inode(file: &Arc<dyn File>) -> Arc<dyn Inode> {
        file.inode().cloned().unwrap_or_else(|| Arc::new(OpenFile(file.clone())))
    }

    /// [`File::protocol_name`] of what an inode stands for.
    pub fn protocol_name(inode: &dyn Inode) -> Option<&'static str> {
        inode.as_any().downcast_ref::<OpenFile>()?.0.protocol_name()
    }
}

impl Dentry {
    /// Whether this stands for a file that has no inode of its own, a pipe without a name for one: no path says what it is.
    pub fn is_open_file(&self) -> bool {
        self.inode().as_any().is::<OpenFile>()
    }
}

impl Inode for OpenFile {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn open(&self, _this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        self.0.clone().open_anew(flags)
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        match change.size {
            Some(size) => self.0.truncate(size),
            None => self.0.set_attr(change),
        }
    }

    // Attributes of users' are for files and directories (xattr(7)).
    fn get_xattr(&self, _name: &[u8]) -> Result<Vec<u8>> {
        Err(ENODATA)
    }

    fn set_xattr(&self, _name: &[u8], _value: &[u8], _flags: u32) -> Result<()> {
        Err(EPERM)
    }

    fn remove_xattr(&self, _name: &[u8]) -> Result<()> {
        Err(EPERM)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
