// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of an image, copied onto this host: what a volume holds at first.

use crate::{
    cpio::{Entry, Error, Result, kind},
    image::Image,
    is_below,
};
use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs::{self, File, FileTimes, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, PermissionsExt, fchown, lchown, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// `st_mode` without the type.
const PERMISSIONS: u32 = 0o7777;

impl Image {
    /// Copies what is in the image's directory `from` into the directory `to`, which is empty, and gives that the directory's
    /// owner and mode. An image without such a directory has nothing to copy. Device nodes, sockets and pipes are left out.
    /// Owners are kept where this user may give files away.
    ///
    /// # Errors
    /// An archive whose files are not in directories of it: behind a link could be any place of this host.
    pub fn populate(&self, from: &[u8], to: &Path) -> Result<()> {
        let Some(root) = self.files.get(from).filter(|known| known.entry.kind() == kind::DIRECTORY) else {
            return Ok(());
        };
        let mut made: HashSet<&[u8]> = HashSet::from([from]);
        let mut directories = vec![(to.to_path_buf(), &root.entry)];
        // The first name of each file that has several.
        let mut names: HashMap<u32, PathBuf> = HashMap::new();
        for (path, known) in &self.files {
            if !is_below(path, from) {
                continue;
            }
            let (parent, _) = path.split_at(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            if !made.contains(parent) {
                let path = String::from_utf8_lossy(path);
                return Err(Error::Damaged(format!("the image's {path} is in no directory of it")));
            }
            let place = to.join(OsStr::from_bytes(&path[from.len() + 1..]));
            let entry = &known.entry;
            let done = match entry.kind() {
                kind::DIRECTORY => {
                    made.insert(path);
                    directories.push((place.clone(), entry));
                    fs::create_dir(&place)
                }
                kind::LINK => symlink(OsStr::from_bytes(&known.target), &place)
                    .and_then(|()| owned(lchown(&place, Some(entry.uid), Some(entry.gid)))),
                kind::FILE => match names.get(&entry.inode).filter(|_| entry.is_linked()) {
                    Some(first) => fs::hard_link(first, &place),
                    None => {
                        if entry.is_linked() {
                            names.insert(entry.inode, place.clone());
                        }
                        self.copy(entry, &place)
                    }
                },
                _ => Ok(()),
            };
            done.map_err(|e| Error::Io(format!("making {}", place.display()), e))?;
        }
        // The innermost first: what is written into a directory changes its time, and its mode may forbid that.
        for (place, entry) in directories.iter().rev() {
            let done = File::open(place).and_then(|directory| settle(&directory, entry));
            done.map_err(|e| Error::Io(format!("making {}", place.display()), e))?;
        }
        Ok(())
    }

    fn copy(&self, entry: &Entry, place: &Path) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(place)?;
        let copied = io::copy(&mut self.contents(entry), &mut file)?;
        if copied != u64::from(entry.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        settle(&file, entry)
    }
}

/// Gives a file or directory what the image says of it. A change of the owner takes set-user-ID bits away, so it comes first.
fn settle(file: &File, entry: &Entry) -> io::Result<()> {
    owned(fchown(file, Some(entry.uid), Some(entry.gid)))?;
    file.set_permissions(Permissions::from_mode(entry.mode & PERMISSIONS))?;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(entry.modified.into());
    file.set_times(FileTimes::new().set_modified(modified))
}

/// Only root gives files away.
fn owned(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.kind() == io::ErrorKind::PermissionDenied { Ok(()) } else { Err(e) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::{
        Contents,
        tests::{Given, archive, given},
    };
    use std::os::unix::fs::MetadataExt;

    fn image(entries: &[Given<'_>]) -> (tempfile::TempDir, Image, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.cpio");
        fs::write(&file, archive(entries, Contents::Present)).unwrap();
        let to = folder.path().join("volume");
        fs::create_dir(&to).unwrap();
        (folder, Image::open(&file).unwrap(), to)
    }

    #[test]
    fn a_directory_of_an_image_is_copied_with_modes_times_and_links() {
        let (_folder, image, to) = image(&[
            given("data", 0o040750, 5, b""),
            given("data/link", 0o120777, 6, b"../etc/passwd"),
            given("data/sub", 0o040500, 7, b""),
            given("data/sub/file", 0o100640, 8, b"kept"),
            given("database", 0o100644, 9, b"another"),
        ]);
        image.populate(b"/data", &to).unwrap();
        assert_eq!(fs::read(to.join("sub/file")).unwrap(), b"kept");
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("../etc/passwd"));
        let of = |path: &str| {
            let found = to.join(path).metadata().unwrap();
            (found.mode() & PERMISSIONS, found.mtime())
        };
        assert_eq!((of(""), of("sub"), of("sub/file")), ((0o750, 5), (0o500, 7), (0o640, 8)));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
        image.populate(b"/none", &to).unwrap();
    }

    #[test]
    fn an_image_that_would_write_behind_a_link_is_refused() {
        let (folder, image, to) = image(&[
            given("data", 0o040755, 0, b""),
            given("data/out", 0o120777, 0, b"../outside"),
            given("data/out/file", 0o100644, 0, b"hostile"),
        ]);
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let error = image.populate(b"/data", &to).unwrap_err().to_string();
        assert!(error.contains("/data/out/file"), "{error}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
