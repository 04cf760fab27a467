// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket in a machine's directory.

use crate::{LineError, Result};
use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// Its name there.
pub const NAME: &str = "overlay.sock";
/// The directory whose files the machine sees at /overlay.
pub const FILES: &str = "overlay";

/// Makes the socket; only its owner may connect, from the first moment on.
pub fn listen(folder: &Path) -> Result<UnixListener> {
    let path = folder.join(NAME);
    let failed = |source| LineError::File { path: path.clone(), source };
    // Between bind and chmod anybody could connect: in a directory that nobody else enters nobody can.
    let hidden = folder.join(".overlay.new");
    let made = DirBuilder::new().mode(0o700).create(&hidden).and_then(|()| {
        let bound = hidden.join("s");
        let listener = bind_at(&bound)?;
        fs::set_permissions(&bound, Permissions::from_mode(0o600))?;
        fs::rename(&bound, &path)?;
        fs::remove_dir(&hidden)?;
        Ok(listener)
    });
    made.map_err(failed)
}

/// Makes the directory of files, for its owner only.
pub fn files(folder: &Path) -> Result<PathBuf> {
    let path = folder.join(FILES);
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(path),
        Err(source) => Err(LineError::File { path, source }),
        Ok(()) => Ok(path),
    }
}

/// Connects to a machine's socket.
pub fn connect(folder: &Path) -> io::Result<UnixStream> {
    connect_at(&folder.join(NAME))
}

/// Makes a socket at a path of any length.
pub fn bind_at(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(Short::new(path)?.path())
}

/// Connects to a socket at a path of any length.
pub fn connect_at(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(Short::new(path)?.path())
}

/// A short name for a file: the address of a socket has room for 107 bytes (unix(7)), and directories of machines and
/// containers are where users and engines want them.
struct Short {
    path: PathBuf,
    _folder: File,
}

impl Short {
    fn new(path: &Path) -> io::Result<Short> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Short { path, _folder: folder })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_may_open_the_socket_and_long_paths_work() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let _listener = listen(&deep).unwrap();
        let mode = fs::metadata(deep.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        connect(&deep).unwrap();
        let names: Vec<_> = fs::read_dir(&deep).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
        let files = files(&deep).unwrap();
        assert_eq!(fs::metadata(files).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
