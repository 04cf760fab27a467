// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes: those of files, without those by which the file system remembers.

use crate::Fs;
use crate::node::Node;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Inode;
use core::sync::atomic::Ordering;

/// Linux' `struct ovl_fb`, which tells what a file was copied from: version, magic, length, flags, the type of the handle, the UUID of the
/// lower file system, and the handle. Ours has the place of the file system among those of the union for a UUID, and the inode number for a
/// handle, with a type that Linux takes for one that it does not know.
const ORIGIN_LENGTH: usize = 21 + 8;
const ORIGIN_MAGIC: u8 = 0xfb;
const ORIGIN_TYPE: u8 = 0x7f;
const ORIGIN_PLACE: usize = 5;

/// The lower file that a file was copied from: the union goes on to show its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// Of the layer, not as it is shown.
    pub device: u64,
    pub number: u64,
}

impl Fs {
    /// What a file of the upper directory was copied from.
    pub(crate) fn origin(&self, upper: &Arc<dyn Inode>) -> Option<Origin> {
        if !self.has_xattrs {
            return None;
        }
        let value = upper.get_xattr(&self.xattr(b"origin")).ok()?;
        let is_ours = value.len() == ORIGIN_LENGTH && value[1] == ORIGIN_MAGIC && value[4] == ORIGIN_TYPE;
        let number = value.get(21..)?.try_into().ok()?;
        let (device, _) = self.devices.get(usize::from(value[ORIGIN_PLACE])).filter(|_| is_ours)?;
        Some(Origin { device: *device, number: u64::from_le_bytes(number) })
    }

    /// Remembers what a file was copied from; without attributes nobody does, and its number changes with the next mount.
    pub(crate) fn set_origin(&self, upper: &Arc<dyn Inode>, origin: Origin) -> Result<()> {
        let place = self.devices.iter().position(|(device, _)| *device == origin.device);
        let Some(place) = place.and_then(|place| u8::try_from(place).ok()).filter(|_| self.has_xattrs) else {
            return Ok(());
        };
        let mut value = [0; ORIGIN_LENGTH];
        (value[1], value[2], value[4]) = (ORIGIN_MAGIC, ORIGIN_LENGTH as u8, ORIGIN_TYPE);
        value[ORIGIN_PLACE] = place;
        value[21..].copy_from_slice(&origin.number.to_le_bytes());
        upper.set_xattr(&self.xattr(b"origin"), &value, 0)
    }

    pub(crate) fn is_impure(&self, upper: &Arc<dyn Inode>) -> bool {
        self.has_xattrs && upper.get_xattr(&self.xattr(b"impure")).is_ok()
    }
}

impl Node {
    /// What was copied from a lower file comes into this directory.
    pub(crate) fn set_impure(&self) -> Result<()> {
        if self.fs.has_xattrs && !self.is_impure.swap(true, Ordering::Relaxed) {
            let upper = self.upper().ok_or(EIO)?;
            upper.set_xattr(&self.fs.xattr(b"impure"), b"y", 0)?;
        }
        Ok(())
    }

    fn check_name(&self, name: &[u8]) -> Result<()> {
        if name.starts_with(self.fs.prefix) { Err(EOPNOTSUPP) } else { Ok(()) }
    }

    pub(crate) fn shown_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.check_name(name)?;
        self.real().get_xattr(name)
    }

    pub(crate) fn change_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.check_name(name)?;
        self.copy_up(true)?.set_xattr(name, value, flags)
    }

    pub(crate) fn take_xattr(&self, name: &[u8]) -> Result<()> {
        self.check_name(name)?;
        // What is not there is no reason to copy the file.
        self.real().get_xattr(name)?;
        self.copy_up(true)?.remove_xattr(name)
    }

    pub(crate) fn shown_xattrs(&self) -> Result<Vec<u8>> {
        let all = self.real().list_xattr()?;
        let mut shown = Vec::new();
        shown.reserve_exact_fallibly(all.len()).map_err(|_| ENOMEM)?;
        for name in all.split_inclusive(|b| *b == 0).filter(|name| !name.starts_with(self.fs.prefix)) {
            shown.extend_from_slice(name);
        }
        Ok(shown)
    }

    /// Gives a copy the attributes and access control lists of a lower file.
    pub(crate) fn copy_xattrs(&self, from: &Arc<dyn Inode>, to: &Arc<dyn Inode>) -> Result<()> {
        for kind in [api_fs::AclKind::Access, api_fs::AclKind::Default] {
            match from.acl(kind) {
                Ok(Some(acl)) => to.set_acl(kind, Some(acl), None)?,
                Ok(None) | Err(EOPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
        }
        let names = match from.list_xattr() {
            Err(EOPNOTSUPP) => return Ok(()),
            names => names?,
        };
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            if name.starts_with(self.fs.prefix) || name.starts_with(b"system.posix_acl_") {
                continue;
            }
            match to.set_xattr(name, &from.get_xattr(name)?, 0) {
                // Capabilities of a file that cannot be kept are lost, as are other attributes that the upper one has no place for.
                Ok(()) | Err(EOPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
