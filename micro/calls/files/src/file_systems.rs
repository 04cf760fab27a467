// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which file systems there are (sysfs(2), /proc/filesystems), and how much room one has (ustat(2)).

use abi::{Result, errno::*};
use alloc::string::String;
use api_user::UserPtr;
use task::call::Call;
use task::files;

/// By their numbers of sysfs(2).
const NAMES: &[&[u8]] = &[
    b"rootfs",
    b"tmpfs",
    b"devtmpfs",
    b"devpts",
    b"proc",
    b"sysfs",
    b"9p",
    b"ramfs",
    #[cfg(feature = "mqueue")]
    b"mqueue",
    #[cfg(feature = "overlayfs")]
    b"overlay",
    #[cfg(feature = "ext4")]
    ON_DISKS,
];
/// The one that needs a disk.
const ON_DISKS: &[u8] = b"ext4";
const MAX_NAME: usize = 4096;

/// /proc/filesystems: which there are, and whether they need a block device.
pub fn list() -> String {
    let line = |name: &'static [u8]| {
        let before = if name == ON_DISKS { "\t" } else { "nodev\t" };
        [before, core::str::from_utf8(name).unwrap_or_default(), "\n"]
    };
    NAMES.iter().copied().flat_map(line).collect()
}

/// sysfs(2): the number of a name, the name of a number, how many there are.
pub fn sysfs(call: &mut Call<'_>) -> Result<usize> {
    match call.int(0) {
        1 => {
            let name = call.ptr::<u8>(1).read_cstr(MAX_NAME, ENAMETOOLONG)?;
            NAMES.iter().position(|known| *known == &name[..]).ok_or(EINVAL)
        }
        2 => {
            let name = NAMES.get(call.uint(1) as usize).ok_or(EINVAL)?;
            let to = call.ptr::<u8>(2);
            to.write_slice(name)?;
            to.add(name.len() as u64).write(0).map(|()| 0)
        }
        3 => Ok(NAMES.len()),
        _ => Err(EINVAL),
    }
}

/// ustat(2): free blocks (as a number of 32 bits) and free inodes of the file system on that device. Its names, which Linux
/// leaves empty, too, are behind them.
pub fn ustat(call: &mut Call<'_>) -> Result<usize> {
    let device = u64::from(call.uint(0));
    for (_, root) in files::current().namespace().list() {
        if root.inode().stat()?.device == device {
            let fs = root.inode().stat_fs()?;
            let to: UserPtr<[u64; 4]> = call.ptr(1);
            return to.write([u64::from(fs.blocks_free as u32), fs.files_free, 0, 0]).map(|()| 0);
        }
    }
    Err(EINVAL)
}
