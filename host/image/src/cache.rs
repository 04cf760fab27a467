// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cache: packages and apt's lists, gathered root archives, site tables. Everything in it can be deleted at any
//! time and comes back; every file is written under another name and renamed when it is whole.

use crate::error::{ErrorKind, ImageError, Result};
use sha2::{Digest, Sha256};
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// A folder of the user's.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// Numbers the temporary files of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Cache {
    /// A cache in that folder, which is made when it is needed.
    pub fn new(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// `$XDG_CACHE_HOME/unilith`, else `$HOME/.cache/unilith` (XDG Base Directory 0.8: relative values are ignored).
    pub fn of_user() -> Result<Cache> {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        match base {
            Some(base) => Ok(Cache::new(base.join("unilith"))),
            None => Err(ImageError::new(
                ErrorKind::Io,
                "no HOME and no XDG_CACHE_HOME: set one of them to a folder for the cache",
            )),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A folder of the cache, made if it is not there.
    pub(crate) fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(|e| ImageError::io("make the cache folder", &path, &e))?;
        Ok(path)
    }

    /// A file that becomes `folder/name` when it is whole, and nothing otherwise.
    pub(crate) fn begin(&self, folder: &str, name: &str) -> Result<Pending> {
        let folder = self.sub(folder)?;
        let temporary =
            folder.join(format!(".new.{}.{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = fs::File::create(&temporary).map_err(|e| ImageError::io("write", &temporary, &e))?;
        Ok(Pending { temporary, target: folder.join(name), file })
    }

    /// Keeps the packages of the cache where they are for as long as the lease is held; waits while somebody removes some.
    pub(crate) fn lease_packages(&self) -> Result<Lease> {
        let (path, file) = self.packages_lock()?;
        file.lock_shared().map_err(|e| ImageError::io("lock", &path, &e))?;
        Ok(Lease { _lock: file })
    }

    /// The right to remove packages; `None` while somebody unpacks them, or where nothing can be locked.
    pub(crate) fn may_remove_packages(&self) -> Option<Lease> {
        let (_, file) = self.packages_lock().ok()?;
        file.try_lock().is_ok().then(|| Lease { _lock: file })
    }

    fn packages_lock(&self) -> Result<(PathBuf, fs::File)> {
        let path = self.sub("debian")?.join("archives.lock");
        let file = fs::File::create(&path).map_err(|e| ImageError::io("lock", &path, &e))?;
        Ok((path, file))
    }

    /// Writes a whole small file.
    pub(crate) fn put(&self, folder: &str, name: &str, data: &[u8]) -> Result<PathBuf> {
        let mut pending = self.begin(folder, name)?;
        pending.write(data)?;
        pending.finish()
    }
}

/// A lock on the cache's packages, released when it is dropped.
pub(crate) struct Lease {
    _lock: fs::File,
}

/// A file of the cache while it is written; dropped before [`Pending::finish`], it is gone.
pub(crate) struct Pending {
    temporary: PathBuf,
    target: PathBuf,
    file: fs::File,
}

impl Pending {
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<()> {
        self.file.write_all(data).map_err(|e| ImageError::io("write", &self.target, &e))
    }

    /// Where the bytes are meanwhile.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    pub(crate) fn rename(&mut self, name: &str) {
        self.target.set_file_name(name);
    }

    pub(crate) fn finish(self) -> Result<PathBuf> {
        fs::rename(&self.temporary, &self.target).map_err(|e| ImageError::io("write", &self.target, &e))?;
        Ok(self.target.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // After `finish` the name is gone already; nothing can be done about any other failure.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn digest(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let mut pending = cache.begin("roots", "x").unwrap();
        pending.write(b"half").unwrap();
        drop(pending);
        assert_eq!(fs::read_dir(folder.path().join("roots")).unwrap().count(), 0);
        let path = cache.put("roots", "x", b"whole").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path().join("roots")).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_is_said_plainly() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let target = PathBuf::from("/nowhere/x");
        let mut pending = Pending { temporary: "/nowhere/.x".into(), target, file: full };
        let error = pending.write(b"x").unwrap_err();
        assert_eq!(error.kind, ErrorKind::DiskFull);
        assert!(error.message.contains("disk is full"));
    }
}
