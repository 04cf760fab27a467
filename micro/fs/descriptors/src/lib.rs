// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a descriptor number stands for.
//!
//! - [`Description`] is POSIX' open file description: a file, its position and its status flags. dup shares it.
//! - [`Descriptors`] is the table from numbers to descriptions, lowest number first.
//! - [`locks`] are the advisory record locks of fcntl and flock.
//!
//! Nothing here waits. The last descriptor of a description closes the file; who watches it (epoll) is told.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod description;
mod held;
pub mod locks;
mod table;
pub mod writers;

pub use description::{Description, Moving, Owned, OwnedBy, OwnerKind, Watcher, check_range};
pub use table::{Descriptors, NR_OPEN};
