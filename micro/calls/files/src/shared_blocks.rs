// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FICLONE and FICLONERANGE (ioctl_ficlonerange(2)), FIDEDUPERANGE (ioctl_fideduperange(2)): files that share blocks. No file system here can,
//! and `cp --reflink` is told so as on one of Linux' that cannot either, once there is nothing else that is wrong.

use abi::{PAGE_SIZE, Result, errno::*};
use api_fs::FileType;
use api_user::UserPtr;
use descriptors::Description;
use task::files;

pub const CLONE: u32 = 0x4004_9409;
pub const CLONE_RANGE: u32 = 0x4020_940d;
pub const DEDUPE_RANGE: u32 = 0xc018_9436;
const O_APPEND: u32 = 0o2000;
/// `struct file_dedupe_range` without its destinations: offset and length of the source, number of destinations and two that are reserved.
const DEDUPE: u64 = 24;
/// `struct file_dedupe_range_info`.
type Destination = [u64; 4];
const DESTINATION: u64 = 32;

/// One of the three commands above.
pub fn ioctl(description: &Description, command: u32, argument: u64) -> Result<usize> {
    match command {
        CLONE => refuse(description, argument as i32),
        // Its first member is the source.
        CLONE_RANGE => refuse(description, UserPtr::<[i64; 4]>::new(argument).read()?[0] as i32),
        _ => dedupe(description, argument),
    }
}

/// Linux' do_clone_file_range for a file system without `remap_file_range`.
fn refuse(to: &Description, from: i32) -> Result<usize> {
    let from = files::get(from)?;
    let stats = [from.file().stat()?, to.file().stat()?];
    let kinds = stats.each_ref().map(|stat| stat.kind);
    Err(match () {
        () if stats[0].device != stats[1].device => EXDEV,
        () if kinds.contains(&FileType::Directory) => EISDIR,
        () if kinds != [FileType::Regular; 2] => EINVAL,
        () if !from.may_read() || !to.may_write() || to.flags() & O_APPEND != 0 => EBADF,
        () => EOPNOTSUPP,
    })
}

/// Linux' vfs_dedupe_file_range for a file system without `remap_file_range`: no destination is looked at.
fn dedupe(from: &Description, argument: u64) -> Result<usize> {
    let [_, _, counts] = UserPtr::<[u64; 3]>::new(argument).read()?;
    let (count, reserved) = (counts & 0xffff, counts >> 16);
    if DEDUPE + count * DESTINATION > PAGE_SIZE as u64 {
        return Err(ENOMEM);
    }
    UserPtr::<Destination>::new(argument + DEDUPE).read_vec(count as usize)?;
    if !from.may_read() || reserved != 0 {
        return Err(EINVAL);
    }
    Err(match from.file().stat()?.kind {
        FileType::Directory => EISDIR,
        FileType::Regular => EOPNOTSUPP,
        _ => EINVAL,
    })
}
