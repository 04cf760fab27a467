// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links and modes of the directory that a machine's overlay shares with this host: there they are no links and modes of this
//! host's, but attributes of plain files (QEMU's `security_model=mapped-xattr`, which process machines follow for links) or, on
//! file systems without attributes, files of a folder beside them (`mapped-file`).

use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

/// The attribute with a file's mode: 32 bits, little-endian.
pub const MODE: &str = "user.virtfs.mode";
/// QEMU's folder for file systems without attributes.
pub const FOLDER: &str = ".virtfs_metadata";
const LINK: u32 = 0o120_777;
const KIND: u32 = 0o170_000;
/// Linux PATH_MAX.
const MAX_TARGET: u64 = 4096;
/// Bytes of a file of [`FOLDER`]: four short lines.
const MAX_LINES: u64 = 512;

/// The mode by which the machine sees a file, where that is not the file's own.
pub fn mode(path: &Path) -> Option<u32> {
    let mut bytes = [0; 4];
    match lgetxattr(path, MODE, &mut bytes) {
        Ok(4) => Some(u32::from_le_bytes(bytes)),
        _ => beside(path),
    }
}

/// The same from the folder: a line `virtfs.mode=NUMBER`.
fn beside(path: &Path) -> Option<u32> {
    let file = path.parent()?.join(FOLDER).join(path.file_name()?);
    let mut text = String::new();
    fs::File::open(file).ok()?.take(MAX_LINES).read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| line.strip_prefix("virtfs.mode=")?.parse().ok())
}

pub fn is_link(mode: u32) -> bool {
    mode & KIND == LINK & KIND
}

/// Where such a link leads.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    let mut target = Vec::new();
    fs::File::open(path)?.take(MAX_TARGET).read_to_end(&mut target)?;
    Ok(std::ffi::OsString::from_vec(target).into())
}

/// Makes a file that the machine sees as a link.
pub fn make_link(target: &Path, path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(OsStr::as_bytes(target.as_os_str()))?;
    setxattr(path, MODE, &LINK.to_le_bytes(), XattrFlags::CREATE).map_err(|_| {
        io::Error::other(
            "the file system of machines' state keeps no attributes, which links into a virtual machine need",
        )
    })
}
