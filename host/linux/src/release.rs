// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which Linux: the versions that the series is made for.

use crate::{
    LinuxError, Result,
    patches::{self, Patch},
};
use std::path::{Path, PathBuf};

/// A version of Linux. The first one is what machines get that ask for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    #[default]
    V6_1,
    V6_12,
}

impl Release {
    pub const ALL: [Release; 2] = [Release::V6_1, Release::V6_12];

    /// Reads the value of `--linux`.
    pub fn parse(text: &str) -> Result<Release> {
        Release::ALL.into_iter().find(|release| release.name() == text).ok_or_else(|| {
            let known = Release::ALL.map(Release::name).join(" and ");
            LinuxError::new(format!(
                "--linux {text}: the series is made for Linux {known}; write one of these"
            ))
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Release::V6_1 => "6.1",
            Release::V6_12 => "6.12",
        }
    }

    /// What tells this release's files and folders from those of the default.
    pub(crate) fn suffix(self) -> String {
        match self {
            Release::V6_1 => String::new(),
            other => format!("-{}", other.name()),
        }
    }

    /// The file that names Debian's package, in the folder `linux`.
    pub(crate) fn source_file(self, recipes: &Path) -> PathBuf {
        recipes.join(format!("source{}", self.suffix()))
    }

    /// What `unilith/tcp.h` asks for by `UNILITH_LINUX`: the definition for the compiler, where it is not the default.
    pub(crate) fn definition(self) -> Option<&'static str> {
        match self {
            Release::V6_1 => None,
            Release::V6_12 => Some("-DUNILITH_LINUX=612"),
        }
    }

    /// The error of an apt that has no such package. Debian 12 has the default's in its main archive.
    pub(crate) fn not_found(self, package: &str, error: LinuxError) -> LinuxError {
        match self {
            Release::V6_1 => error,
            Release::V6_12 => LinuxError::new(format!(
                "{error}; Debian 12 has {package} in bookworm-security and bookworm-backports: add one of these to apt's \
                 package sources, or leave out --linux"
            )),
        }
    }

    /// A fragment of the configuration over all others: what is named otherwise than in the default release.
    pub(crate) fn fragment(self) -> Option<String> {
        (self != Release::default()).then(|| format!("{}.config", self.name()))
    }

    /// The series: the patches of `linux/patches`, in whose place are those of the same name in the release's own
    /// folder, where the release needs another text.
    pub(crate) fn series(self, recipes: &Path) -> Result<Vec<Patch>> {
        let folder = recipes.join("patches");
        let mut series = patches::read(&folder)?;
        if self == Release::default() {
            return Ok(series);
        }
        let own = folder.join(self.name());
        for patch in patches::read(&own)? {
            let Some(shared) = series.iter_mut().find(|shared| shared.name == patch.name) else {
                return Err(LinuxError::new(format!(
                    "{} stands for no patch of {}: give it the name of one",
                    own.join(&patch.name).display(),
                    folder.display()
                )));
            };
            *shared = patch;
        }
        Ok(series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_release_is_named_as_on_the_command_line() {
        for release in Release::ALL {
            assert_eq!(Release::parse(release.name()).unwrap(), release);
        }
        let gone = LinuxError::new("apt has none");
        assert_eq!(Release::V6_1.not_found("p", gone.clone()), gone);
        assert!(
            Release::V6_12.not_found("p", gone).to_string().contains("Debian 12 has p in bookworm-security")
        );
        let error = Release::parse("6.6").unwrap_err().to_string();
        assert_eq!(error, "--linux 6.6: the series is made for Linux 6.1 and 6.12; write one of these");
    }

    #[test]
    fn a_patch_of_the_releases_own_takes_the_place_of_the_shared_one() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("patches/6.12");
        fs::create_dir_all(&own).unwrap();
        for (name, text) in [("0001-a.patch", "a"), ("0002-b.patch", "b"), ("6.12/0002-b.patch", "other")] {
            fs::write(folder.path().join("patches").join(name), text).unwrap();
        }
        let texts = |release: Release| {
            let series = release.series(folder.path()).unwrap();
            series.into_iter().map(|patch| patch.text).collect::<Vec<_>>()
        };
        assert_eq!(texts(Release::V6_1), ["a", "b"]);
        assert_eq!(texts(Release::V6_12), ["a", "other"]);
        fs::write(own.join("0003-c.patch"), "c").unwrap();
        let error = Release::V6_12.series(folder.path()).unwrap_err().to_string();
        assert!(error.contains("0003-c.patch stands for no patch of "), "{error}");
    }
}
