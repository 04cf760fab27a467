// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text on standard output and standard error.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};

unsafe extern "C" {
    fn write(file: c_int, bytes: *const c_void, length: usize) -> isize;
}

/// A file descriptor of a text stream.
pub struct Stream(c_int);

pub fn output() -> Stream {
    Stream(1)
}

pub fn error() -> Stream {
    Stream(2)
}

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the bytes are the text's.
            let written = unsafe { write(self.0, rest.as_ptr().cast(), rest.len()) };
            rest = usize::try_from(written).ok().and_then(|count| rest.get(count..)).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}

/// Prints a line on standard output.
#[macro_export]
macro_rules! println {
    ($($words:tt)*) => {{
        let _ = core::fmt::Write::write_fmt(&mut $crate::console::output(), format_args!("{}\n", format_args!($($words)*)));
    }};
}

/// The same on standard error.
#[macro_export]
macro_rules! eprintln {
    ($($words:tt)*) => {{
        let _ = core::fmt::Write::write_fmt(&mut $crate::console::error(), format_args!("{}\n", format_args!($($words)*)));
    }};
}
