// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keeps users from being led astray in directories where everybody may make names, /tmp for one (fs.protected_*, proc_sys_fs(5)).

use crate::access::Credentials;
use crate::dentry::Dentry;
use abi::setting::Setting;
use abi::{Result, errno::EACCES};
use alloc::sync::Arc;
use api_fs::{FileType, Stat};

/// Symbolic links are not followed there that are neither the caller's nor of the directory's owner.
pub static SYMLINKS: [Setting; 1] = [Setting::new(0, 0, 1)];
/// Files of others are given no more names, as Debian sets it.
pub static HARDLINKS: [Setting; 1] = [Setting::new(1, 0, 1)];
/// FIFOs of others are not opened with O_CREAT; 2: nor where a group may make names.
pub static FIFOS: [Setting; 1] = [Setting::new(0, 0, 2)];
/// The same for regular files.
pub static REGULAR: [Setting; 1] = [Setting::new(0, 0, 2)];

const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Whether the symbolic link at the end of a path may be followed (Linux' may_follow_link).
#[inline]
pub(crate) fn check_link(who: &Credentials, dir: &Arc<Dentry>, link: &Arc<Dentry>) -> Result<()> {
    if SYMLINKS[0].get() == 0 {
        return Ok(());
    }
    let (above, owner) = (dir.inode().stat()?, link.inode().stat()?.uid);
    let is_open = above.permissions & (STICKY | OTHERS_WRITE) == STICKY | OTHERS_WRITE;
    if is_open && owner != who.uid && owner != above.uid { Err(EACCES) } else { Ok(()) }
}

/// Whether a file that is there may be opened by a call that would make it (Linux' may_create_in_sticky).
#[inline]
pub(crate) fn check_existing(who: &Credentials, dir: &Arc<Dentry>, found: &Arc<Dentry>) -> Result<()> {
    let level = match found.kind() {
        FileType::Fifo => FIFOS[0].get(),
        FileType::Regular => REGULAR[0].get(),
        _ => 0,
    };
    if level == 0 {
        return Ok(());
    }
    let (above, owner): (Stat, u32) = (dir.inode().stat()?, found.inode().stat()?.uid);
    let writers = if level > 1 { OTHERS_WRITE | GROUP_WRITES } else { OTHERS_WRITE };
    let is_shared = above.permissions & STICKY != 0 && above.permissions & writers != 0;
    if is_shared && owner != above.uid && owner != who.uid { Err(EACCES) } else { Ok(()) }
}
