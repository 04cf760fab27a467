// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access control lists as extended attributes: `system.posix_acl_access` and `system.posix_acl_default` (acl(5)).

use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{AclKind, FileType, Inode, UncheckedAcl as Unchecked};
use task::files;
use vfs::Capability;

const S_ISGID: u32 = 0o2000;

/// Which list the attribute of that name is, if it is one.
pub fn kind(name: &[u8]) -> Option<AclKind> {
    match name {
        b"system.posix_acl_access" => Some(AclKind::Access),
        b"system.posix_acl_default" => Some(AclKind::Default),
        _ => None,
    }
}

/// The attribute's value; `ENODATA` without a list.
pub fn get(inode: &Arc<dyn Inode>, kind: AclKind) -> Result<Vec<u8>> {
    if inode.kind()? == FileType::Symlink {
        return Err(EOPNOTSUPP);
    }
    inode.acl(kind)?.ok_or(ENODATA)?.to_bytes()
}

/// Sets the list, or takes it away where the value has no entries. The owner may.
pub fn set(inode: &Arc<dyn Inode>, kind: AclKind, value: &[u8]) -> Result<()> {
    let acl = Unchecked::parse(value)?;
    let (stat, who) = (inode.stat()?, files::credentials());
    if stat.kind == FileType::Symlink {
        return Err(EOPNOTSUPP);
    }
    // A file system without lists says so before anything else.
    inode.acl(kind)?;
    // Whoever takes away what cannot be there need not be the owner.
    if kind == AclKind::Default && stat.kind != FileType::Directory {
        return if acl.is_some() { Err(EACCES) } else { Ok(()) };
    }
    if !who.owns(&stat) {
        return Err(EPERM);
    }
    let acl = acl.map(Unchecked::check).transpose()?;
    // A list that is taken away may cost the set-group-ID bit as well as one that is set.
    let permissions = (kind == AclKind::Access).then(|| {
        let keeps_group = who.has_over(Capability::Fsetid, &stat) || who.is_in_group(stat.gid);
        let kept = stat.permissions & if keeps_group { u32::MAX } else { !S_ISGID };
        acl.as_ref().map_or(kept, |acl| kept & 0o7000 | acl.mode())
    });
    // What the permission bits say alone is kept in them alone.
    let acl = acl.filter(|acl| kind == AclKind::Default || !acl.is_trivial());
    inode.set_acl(kind, acl.map(Arc::new), permissions)
}
