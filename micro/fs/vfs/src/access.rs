// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may do what: the permission bits, and root's right to ignore them.

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_fs::{FileType, Stat};

/// Rights asked for, with the bits of access(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    pub const EXISTS: Access = Access(0);
    pub const EXECUTE: Access = Access(1);
    pub const WRITE: Access = Access(2);
    pub const READ: Access = Access(4);
    /// What creating and removing names in a directory takes.
    pub const CHANGE: Access = Access(3);

    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// On whose behalf files are used: the file-system ids of the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Root has CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_CHOWN and the rest.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The owner, or root: who may change attributes (`EPERM` for others).
    pub fn owns(&self, stat: &Stat) -> bool {
        self.is_root() || self.uid == stat.uid
    }

    /// `EACCES` unless the permission bits, or root's privilege, allow it.
    pub fn check(&self, stat: &Stat, want: Access) -> Result<()> {
        if self.is_root() {
            // CAP_DAC_OVERRIDE does not make a file executable that nobody may execute.
            let may_execute = stat.kind == FileType::Directory || stat.permissions & 0o111 != 0;
            return if want.contains(Access::EXECUTE) && !may_execute { Err(EACCES) } else { Ok(()) };
        }
        let shift = if self.uid == stat.uid {
            6
        } else if self.is_in_group(stat.gid) {
            3
        } else {
            0
        };
        let allowed = Access(stat.permissions >> shift & 7);
        if allowed.contains(want) { Ok(()) } else { Err(EACCES) }
    }
}
