// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The raw APIs in Rust: network devices ([`netdev`]) and disks ([`blockdev`]) without a stack and without a VFS, the console
//! and the program's allocator, for programs that are linked with the micro kernel (docs/how-to/raw.md).
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! use unilith_raw::{netdev::Device, println, program, program::Arguments};
//!
//! program!(main);
//! fn main(_: Arguments) -> i32 {
//!     println!("{} network devices", Device::count());
//!     0
//! }
//! ```
//!
//! It calls the same functions as C does (`unilith/netdev.h`, `unilith/blockdev.h`), and what these ask of a program is kept by
//! types: a packet that was sent is gone, a buffer that a disk has is the disk's. It needs the host's target of rustc alone, and
//! no other crate.
#![no_std]

pub mod blockdev;
pub mod console;
pub mod memory;
pub mod netdev;
pub mod program;

use core::fmt;

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    pub const EINTR: Errno = Errno(4);
    pub const EIO: Errno = Errno(5);
    pub const ENOMEM: Errno = Errno(12);
    pub const EBUSY: Errno = Errno(16);
    pub const ENODEV: Errno = Errno(19);
    pub const EINVAL: Errno = Errno(22);
    pub const EROFS: Errno = Errno(30);
    pub const EMSGSIZE: Errno = Errno(90);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.0)
    }
}

impl core::error::Error for Errno {}

/// An answer of these functions: a count, or a negative error number.
fn answer(value: i32) -> Result<usize, Errno> {
    usize::try_from(value).map_err(|_| Errno(-value))
}

/// A time as these functions take it: negative for however long.
fn nanoseconds(timeout: Option<core::time::Duration>) -> i64 {
    timeout.map_or(-1, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}
