// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command as a Debian package installs it (`verbs/package`): no sources beside it, but the catalogue, and kernels that
//! were built when the package was.

use crate::fault::{Fault, Result, file};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// Where a package has the catalogue, below the directory that has `bin`: `/usr`.
pub const CATALOGUE: &str = "share/unilith/apps";
/// Where it has kernels: a directory for each, named by the kernel's hash.
pub const KERNELS: &str = "lib/unilith/kernels";
/// In a kernel's directory: the features it was built with, with commas between.
pub const FEATURES: &str = "features";

/// An installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    prefix: PathBuf,
}

impl Installed {
    /// The installation that an executable belongs to; `None`: it belongs to none.
    pub fn of(executable: &Path) -> Option<Installed> {
        let folder = executable.parent().filter(|folder| folder.file_name() == Some(OsStr::new("bin")))?;
        let installed = Installed { prefix: folder.parent()?.to_path_buf() };
        installed.catalogue().is_dir().then_some(installed)
    }

    pub fn catalogue(&self) -> PathBuf {
        self.prefix.join(CATALOGUE)
    }

    /// The directory of the kernel that was built with these features; `None`: the package has no such kernel.
    pub fn kernel(&self, features: &[&str]) -> Result<Option<PathBuf>> {
        let wanted = features.join(",");
        let kernels = self.prefix.join(KERNELS);
        let damaged = |fault: Fault| Fault::new(format!("{fault}; install the package unilith again"));
        for entry in fs::read_dir(&kernels).map_err(file("read", &kernels)).map_err(damaged)? {
            let folder = entry.map_err(file("read", &kernels)).map_err(damaged)?.path();
            let path = folder.join(FEATURES);
            let built_with = fs::read_to_string(&path).map_err(file("read", &path)).map_err(damaged)?;
            if built_with.trim_end() == wanted {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_found_from_its_executable_and_its_kernels_by_their_features() {
        let scratch = tempfile::tempdir().unwrap();
        let usr = scratch.path().join("usr");
        let (command, kernel) = (usr.join("bin/unilith"), usr.join(KERNELS).join("00ff"));
        assert_eq!(Installed::of(&command), None, "there is no catalogue");
        fs::create_dir_all(usr.join(CATALOGUE)).unwrap();
        let installed = Installed::of(&command).unwrap();
        assert_eq!(Installed::of(&usr.join("libexec/unilith")), None);
        assert!(installed.kernel(&["a"]).unwrap_err().message.contains("install the package"));
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join(FEATURES), "a,b\n").unwrap();
        assert_eq!(installed.kernel(&["a", "b"]).unwrap(), Some(kernel));
        assert_eq!(installed.kernel(&["a"]).unwrap(), None);
    }
}
