// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and directories that nobody but their owner may open: a machine's record holds the values of `-e`, its log what
//! the program printed, and who may open a lock file may hold its lock.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// Makes a directory whose parent exists.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Makes a directory, and those above it as usual, and closes one that was there before and is open to others.
pub fn keep_directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match make_directory(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = fs::metadata(path)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let me = rustix::process::geteuid().as_raw();
    if found.uid() != me {
        return refused(format!("it belongs to user {}, and you are user {me}", found.uid()));
    }
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    if fs::symlink_metadata(path)?.is_symlink() {
        // The link may lead to a directory that has another purpose.
        return refused(
            "it is a link to a directory that others may enter; close that one: chmod 700".into(),
        );
    }
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY))
}

/// A new or emptied file for reading and writing.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(FILE).open(path)
}

/// A file for adding to its end.
pub fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(FILE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_open_to_all_is_closed() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state/unilith");
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        keep_directory(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_to_a_directory_of_all_is_refused_and_one_to_a_closed_directory_is_not() {
        let base = tempfile::tempdir().unwrap();
        let (open, closed) = (base.path().join("open"), base.path().join("closed"));
        for (target, mode) in [(&open, 0o777), (&closed, 0o700)] {
            fs::create_dir(target).unwrap();
            fs::set_permissions(target, Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::symlink(target, target.with_extension("link")).unwrap();
        }
        let refused = keep_directory(&open.with_extension("link")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o777);
        keep_directory(&closed.with_extension("link")).unwrap();
    }
}
