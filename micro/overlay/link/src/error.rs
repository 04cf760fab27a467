// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with an object, in one line.

use alloc::boxed::Box;
use alloc::fmt::format;
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::fmt;

/// Why objects cannot be linked: one line for the user that begins with the object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub(crate) Box<str>);

pub(crate) type Result<T> = core::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(object: &str, what: impl fmt::Display) -> Error {
        Error::of(format_args!("{}: {what}", Shown(object.as_bytes())))
    }

    /// The object is not what the ABI says.
    #[cold]
    #[inline(never)]
    pub(crate) fn malformed(object: &str, what: &str) -> Error {
        Error::new(object, format_args!("malformed: {what}"))
    }

    /// There is no memory for `what`.
    #[cold]
    #[inline(never)]
    pub(crate) fn memory(what: &str) -> Error {
        Error::of(format_args!("no memory for {what}"))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn of(text: fmt::Arguments<'_>) -> Error {
        Error(format(text).into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name from a file, fit for a line of text.
pub(crate) struct Shown<'a>(pub &'a [u8]);

/// A C++ name may be thousands of characters long.
const SHOWN_MAX: usize = 120;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.len().min(SHOWN_MAX);
        write!(f, "{}", self.0[..length].escape_ascii())?;
        if length < self.0.len() { f.write_str("...") } else { Ok(()) }
    }
}

/// A vector with room for `count`, or an error instead of the end of the kernel.
pub(crate) fn with_room<T>(count: usize, what: &str) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.reserve_exact_fallibly(count).map_err(|_| Error::memory(what))?;
    Ok(out)
}
