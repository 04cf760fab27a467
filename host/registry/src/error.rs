// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why an image could not be had: one line for the user that says what to do next.

use std::{fmt, io, path::Path};

/// What went wrong, for callers that react to it; the text is in [`RegistryError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was written is no name of an image.
    Name,
    /// The registry, or the store, has no such image.
    NotFound,
    /// The registry wants credentials, or others.
    Denied,
    /// What was sent is not what was asked for: another digest, another size, no manifest.
    Corrupt,
    /// The image is for another computer, or no image.
    NotRunnable,
    /// Nobody answers, or the connection broke or stalled; another try may succeed.
    Network,
    /// A settings file or a credential helper.
    Settings,
    /// Something of this computer uses it.
    InUse,
    /// Reading or writing files.
    Io,
}

/// An error of this crate. [`fmt::Display`] is one line without control characters, whatever a registry answered.
#[derive(Clone, Debug)]
pub struct RegistryError {
    pub kind: ErrorKind,
    pub message: String,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RegistryError {}

impl RegistryError {
    pub(crate) fn new(kind: ErrorKind, message: impl AsRef<str>) -> RegistryError {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        RegistryError { kind, message: message.as_ref().chars().map(plain).collect() }
    }

    /// An error of reading or writing `path`.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> RegistryError {
        let path = path.display();
        let text = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
                "the disk is full: cannot {doing} {path}; free some space, or set XDG_CACHE_HOME to another disk"
            ),
            _ => format!("cannot {doing} {path}: {error}"),
        };
        RegistryError::new(ErrorKind::Io, text)
    }
}

pub type Result<T> = std::result::Result<T, RegistryError>;

macro_rules! fail {
    ($kind:ident, $($text:tt)*) => {
        return Err($crate::error::RegistryError::new($crate::error::ErrorKind::$kind, format!($($text)*)))
    };
}
pub(crate) use fail;
