// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flags of inodes: FS_IOC_GETFLAGS and FS_IOC_SETFLAGS (ioctl_iflags(2)), FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, as tmpfs has them.

use abi::{Result, errno::*};
use api_fs::InodeFlags;
use api_user::UserPtr;
use descriptors::Description;
use task::files;
use vfs::{Capability, notify, ops};

pub const GET: u32 = 0x8008_6601;
pub const SET: u32 = 0x4008_6602;
pub const GET_EXTENDED: u32 = 0x801c_581f;
pub const SET_EXTENDED: u32 = 0x401c_5820;

/// `struct fsxattr` as words: flags, extent size, extents, project, copy-on-write extent size, padding.
type Extended = [u32; 7];

/// One of the four commands above.
pub fn ioctl(description: &Description, command: u32, argument: u64) -> Result<usize> {
    let Some(now) = description.inode().and_then(|inode| inode.flags()) else {
        return description.file().ioctl(command, argument);
    };
    match command {
        GET => UserPtr::new(argument).write(now.bits())?,
        GET_EXTENDED => UserPtr::<Extended>::new(argument).write([now.extended(), 0, 0, 0, 0, 0, 0])?,
        SET => set(description, InodeFlags::from_bits(UserPtr::new(argument).read()?))?,
        _ => {
            let [flags, extent, _, project, copied, ..] = UserPtr::<Extended>::new(argument).read()?;
            let flags = InodeFlags::from_extended(flags).filter(|_| extent | project | copied == 0);
            set(description, flags)?;
        }
    }
    Ok(0)
}

/// `None` stands for flags that the file system does not have.
fn set(description: &Description, flags: Option<InodeFlags>) -> Result<()> {
    let inode = description.inode().ok_or(ENOTTY)?;
    if let Some(place) = description.place() {
        ops::may_change(place)?;
    }
    let (stat, who) = (inode.stat()?, files::credentials());
    if !who.owns(&stat) {
        return Err(EPERM);
    }
    let flags = flags.ok_or(EOPNOTSUPP)?;
    let changes = stat.flags.is_some_and(|now| now.changes_protection(flags));
    if changes && !who.has(Capability::LinuxImmutable) {
        return Err(EPERM);
    }
    inode.set_flags(flags)?;
    description.happened(notify::ATTRIB);
    Ok(())
}
