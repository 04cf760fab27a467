// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as data.

use crate::Stop;
use abi::Errno;
use abi::errno::*;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::ops::{Deref, DerefMut};

/// Why a command failed: a [`Report`] in a box. Failures are rare, and the code that hands results on, which is at every `?`,
/// is a third as long for one word as for nine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Box<Report>);

/// What is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it is about: a path, a symbol, a process. Empty when it is about nothing in particular.
    pub subject: String,
    pub errno: Option<Errno>,
    /// One sentence without a full stop.
    pub text: Cow<'static, str>,
    /// Exit code of a command that ends with it.
    pub code: u8,
    /// The command was called in a way it does not know: its usage helps.
    pub is_usage: bool,
    /// It is no failure but the answer to an interrupt.
    pub is_stop: bool,
}

impl Failure {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    /// It is there and cannot be run.
    pub const REFUSED: u8 = 126;
    /// There is no such command.
    pub const UNKNOWN: u8 = 127;
    /// 128 and the number of SIGINT, as shells have it.
    pub const INTERRUPTED: u8 = 130;

    /// A failure about `subject`; say what it is with [`Failure::errno`] or [`Failure::because`].
    pub fn new(subject: impl Into<String>) -> Failure {
        Failure::of(subject.into())
    }

    #[cold]
    #[inline(never)]
    fn of(subject: String) -> Failure {
        Failure(Box::new(Report {
            subject,
            errno: None,
            text: Cow::Borrowed(""),
            code: Failure::FAILED,
            is_usage: false,
            is_stop: false,
        }))
    }

    /// As [`Failure::new`] for bytes that came from the host or a file system.
    pub fn about(subject: &[u8]) -> Failure {
        Failure::new(String::from_utf8_lossy(subject))
    }

    /// Wrong usage; the text says what is wrong.
    pub fn usage(text: impl Into<Cow<'static, str>>) -> Failure {
        let mut failure = Failure::new("").because(text).code(Failure::USAGE);
        failure.is_usage = true;
        failure
    }

    /// With the error number, which also gives the text when there is none.
    #[cold]
    #[inline(never)]
    pub fn errno(mut self, errno: Errno) -> Failure {
        self.errno = Some(errno);
        if self.text.is_empty() {
            self.text = Cow::Borrowed(describe(errno));
        }
        self
    }

    pub fn because(mut self, text: impl Into<Cow<'static, str>>) -> Failure {
        self.text = text.into();
        self
    }

    pub fn code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }
}

impl Deref for Failure {
    type Target = Report;

    fn deref(&self) -> &Report {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Report {
        &mut self.0
    }
}

impl From<Stop> for Failure {
    #[cold]
    #[inline(never)]
    fn from(_: Stop) -> Failure {
        let mut failure = Failure::new("").because("interrupted").code(Failure::INTERRUPTED);
        failure.is_stop = true;
        failure
    }
}

impl From<core::fmt::Error> for Failure {
    fn from(_: core::fmt::Error) -> Failure {
        Failure::new("").because("cannot format the answer")
    }
}

/// What an error number means, in the words of the C library.
pub fn describe(errno: Errno) -> &'static str {
    match errno {
        EPERM => "Operation not permitted",
        ENOENT => "No such file or directory",
        ESRCH => "No such process",
        EINTR => "Interrupted system call",
        EIO => "Input/output error",
        ENXIO => "No such device or address",
        E2BIG => "Argument list too long",
        ENOEXEC => "Exec format error",
        EBADF => "Bad file descriptor",
        EAGAIN => "Resource temporarily unavailable",
        ENOMEM => "Cannot allocate memory",
        EACCES => "Permission denied",
        EFAULT => "Bad address",
        EBUSY => "Device or resource busy",
        EEXIST => "File exists",
        EXDEV => "Invalid cross-device link",
        ENODEV => "No such device",
        ENOTDIR => "Not a directory",
        EISDIR => "Is a directory",
        EINVAL => "Invalid argument",
        EMFILE => "Too many open files",
        ETXTBSY => "Text file busy",
        EFBIG => "File too large",
        ENOSPC => "No space left on device",
        ESPIPE => "Illegal seek",
        EROFS => "Read-only file system",
        EMLINK => "Too many links",
        EPIPE => "Broken pipe",
        ENAMETOOLONG => "File name too long",
        ENOSYS => "Function not implemented",
        ENOTEMPTY => "Directory not empty",
        ELOOP => "Too many levels of symbolic links",
        EOVERFLOW => "Value too large for defined data type",
        EOPNOTSUPP => "Operation not supported",
        ETIMEDOUT => "Connection timed out",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_number_gives_the_text_unless_there_is_a_better_one() {
        assert_eq!(Failure::new("/x").errno(ENOENT).text, "No such file or directory");
        assert_eq!(Failure::new("/x").because("is on the host").errno(ENOENT).text, "is on the host");
        assert_eq!(Failure::from(Stop).code, 130);
    }
}
