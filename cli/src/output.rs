// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines on standard output. `println!` panics when nobody reads them any more, as behind `| head`.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    process,
};

/// The exit code of a program that SIGPIPE ended, as shells show it.
const BROKEN_PIPE: i32 = 128 + 13;

/// Prints a line, as `println!` does.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub fn line(text: fmt::Arguments<'_>) {
    match writeln!(io::stdout().lock(), "{text}") {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => process::exit(BROKEN_PIPE),
        Err(e) => {
            eprintln!("unilith: cannot write to standard output: {e}");
            process::exit(1);
        }
    }
}
