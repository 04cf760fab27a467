// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why an image could not be gathered: one line for the user that says what to do next.

use std::{fmt, io, path::Path};

/// What went wrong, for callers that react to it; the text is in [`ImageError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The reference names nothing: no such file, package or catalogue entry.
    NotFound,
    /// The source is there but cannot be run: another architecture, a text file, no program, several programs.
    NotRunnable,
    /// The source is damaged: truncated, wrong digest, malformed.
    Corrupt,
    /// A settings file (`app.toml`, `unilith.toml`) does not follow its schema.
    Settings,
    /// apt or dpkg-deb failed or is missing.
    Packages,
    /// Not in the cache and not to be fetched.
    Offline,
    /// The disk of the cache is full.
    DiskFull,
    /// Anything else that reading or writing files met.
    Io,
}

/// An error of this crate. [`fmt::Display`] is one line.
#[derive(Clone, Debug)]
pub struct ImageError {
    pub kind: ErrorKind,
    pub message: String,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ImageError {}

impl ImageError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> ImageError {
        // Names from archives and output of apt may hold line breaks; the promise is one line.
        let message = message.into().replace(['\n', '\r'], " ");
        ImageError { kind, message }
    }

    /// An error of reading or writing `path`.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> ImageError {
        let path = path.display();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImageError::new(
                ErrorKind::DiskFull,
                format!(
                    "the disk is full: cannot {doing} {path}; free some space, or set XDG_CACHE_HOME to another disk"
                ),
            ),
            io::ErrorKind::NotFound => ImageError::new(
                ErrorKind::NotFound,
                format!("cannot {doing} {path}: no such file or directory"),
            ),
            _ => ImageError::new(ErrorKind::Io, format!("cannot {doing} {path}: {error}")),
        }
    }
}

pub type Result<T> = std::result::Result<T, ImageError>;

macro_rules! fail {
    ($kind:ident, $($text:tt)*) => {
        return Err($crate::error::ImageError::new($crate::error::ErrorKind::$kind, format!($($text)*)))
    };
}
pub(crate) use fail;
