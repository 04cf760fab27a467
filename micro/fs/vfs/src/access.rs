// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may do what: the permission bits, and root's right to ignore them.

use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{Acl, AclKind, FileType, Inode, InodeFlags, Stat};
use core::ops::Deref;

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

/// A right to ignore rules, by its number in capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    Chown = 0,
    DacOverride = 1,
    DacReadSearch = 2,
    Fowner = 3,
    Fsetid = 4,
    LinuxImmutable = 9,
    SysChroot = 18,
    SysAdmin = 21,
    SysResource = 24,
    Mknod = 27,
    Lease = 28,
    Setfcap = 31,
}

/// Supplementary groups, which all that ask on behalf of a program share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Option<Arc<Vec<u32>>>);

impl Groups {
    pub const NONE: Groups = Groups(None);
}

impl From<Vec<u32>> for Groups {
    /// In ascending order, as Linux keeps and shows them.
    fn from(mut groups: Vec<u32>) -> Groups {
        groups.sort_unstable();
        Groups((!groups.is_empty()).then(|| Arc::new(groups)))
    }
}

impl Deref for Groups {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        self.0.as_ref().map_or(&[], |groups| groups)
    }
}

/// Which ids a user namespace has.
pub trait Ids: Send + Sync {
    fn has_user(&self, uid: u32) -> bool;
    fn has_group(&self, gid: u32) -> bool;
}

/// Where capabilities count: everywhere, or for files whose owners a user namespace has (user_namespaces(7)).
#[derive(Clone, Default)]
pub struct Scope(Option<Arc<dyn Ids>>);

impl Scope {
    pub const EVERYWHERE: Scope = Scope(None);

    pub fn of(ids: Arc<dyn Ids>) -> Scope {
        Scope(Some(ids))
    }

    fn has_user(&self, stat: &Stat) -> bool {
        self.0.as_ref().is_none_or(|ids| ids.has_user(stat.uid))
    }

    fn has(&self, stat: &Stat) -> bool {
        self.has_user(stat) && self.0.as_ref().is_none_or(|ids| ids.has_group(stat.gid))
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Scope) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Scope {}

impl core::fmt::Debug for Scope {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.0.is_some() { "Scope(namespace)" } else { "Scope(everywhere)" })
    }
}

/// On whose behalf files are used: the file-system ids of the thread, and its effective capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Groups,
    pub capabilities: u64,
    pub scope: Scope,
    /// What new files are not to allow, unless their directory has a default access control list.
    pub umask: u32,
    /// What the thread has given away of its rights.
    #[cfg(feature = "landlock")]
    pub domain: Option<Arc<crate::landlock::Domain>>,
}

impl Credentials {
    /// Root with every capability, as the kernel itself acts.
    pub const fn root() -> Credentials {
        Credentials {
            uid: 0,
            gid: 0,
            groups: Groups::NONE,
            capabilities: u64::MAX,
            scope: Scope::EVERYWHERE,
            umask: 0,
            #[cfg(feature = "landlock")]
            domain: None,
        }
    }

    /// Has it for the machine as a whole. (User id 0 by itself allows nothing.)
    pub fn has(&self, capability: Capability) -> bool {
        self.scope.0.is_none() && self.has_here(capability)
    }

    /// Has it for what belongs to its own user namespace.
    pub fn has_here(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u32 & 1 != 0
    }

    /// Has it for that file (Linux' `capable_wrt_inode_uidgid`).
    pub fn has_over(&self, capability: Capability, stat: &Stat) -> bool {
        self.has_here(capability) && self.scope.has(stat)
    }

    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The owner, or who has CAP_FOWNER: who may change attributes (`EPERM` for others).
    pub fn owns(&self, stat: &Stat) -> bool {
        self.uid == stat.uid || self.has_here(Capability::Fowner) && self.scope.has_user(stat)
    }

    /// `EPERM` for writing to an immutable file; `EACCES` unless the file's access control list, its permission bits, or a capability
    /// allow it, or a rule of its own does.
    pub fn check_file(&self, inode: &Arc<dyn Inode>, stat: &Stat, want: Access) -> Result<()> {
        if want.contains(Access::WRITE) && stat.flags.is_some_and(|f| f.has(InodeFlags::IMMUTABLE)) {
            return Err(EPERM);
        }
        if let Some(answer) = inode.own_rule(want.0) {
            return answer;
        }
        // As Linux has it, bits that give the group nothing leave the list out.
        let goes_by_list = stat.has_acl && self.uid != stat.uid && stat.permissions & 0o070 != 0;
        let acl = if goes_by_list { inode.acl(AclKind::Access)? } else { None };
        self.check_with(stat, acl.as_deref(), want)
    }

    /// `EACCES` unless the permission bits, or a capability, allow it.
    pub fn check(&self, stat: &Stat, want: Access) -> Result<()> {
        self.check_with(stat, None, want)
    }

    fn check_with(&self, stat: &Stat, acl: Option<&Acl>, want: Access) -> Result<()> {
        if self.has_over(Capability::DacOverride, stat) {
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
        let allowed = match acl {
            Some(acl) => acl.allows(self.uid, |gid| self.is_in_group(gid), stat.gid, want.0),
            None => Access(stat.permissions >> shift & 7).contains(want),
        };
        let searches = stat.kind == FileType::Directory && !want.contains(Access::WRITE);
        let reads = self.has_over(Capability::DacReadSearch, stat) && (searches || want == Access::READ);
        if allowed || reads { Ok(()) } else { Err(EACCES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_id_0_without_capabilities_is_held_to_the_permission_bits() {
        let mut stat = Stat::new(FileType::Regular, 0o040);
        stat.uid = 1;
        let root = Credentials::root();
        assert_eq!(root.check(&stat, Access::WRITE), Ok(()));
        assert_eq!(root.check(&stat, Access::EXECUTE), Err(EACCES));
        let bare = Credentials { capabilities: 0, ..Credentials::root() };
        assert_eq!(bare.check(&stat, Access::READ), Ok(()), "of its group");
        assert_eq!(bare.check(&stat, Access::WRITE), Err(EACCES));
        assert!(!bare.owns(&stat) && root.owns(&stat));
        let reader = Credentials { capabilities: 1 << 2, uid: 7, gid: 7, ..Credentials::default() };
        assert_eq!(reader.check(&stat, Access::READ), Ok(()));
        assert_eq!(reader.check(&stat, Access::READ | Access::WRITE), Err(EACCES));
        stat.kind = FileType::Directory;
        assert_eq!(reader.check(&stat, Access::READ | Access::EXECUTE), Ok(()));
        assert_eq!(reader.check(&stat, Access::CHANGE), Err(EACCES));
    }
}
