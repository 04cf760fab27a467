// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on files, descriptors and names.
//!
//! Handlers decode and check arguments, call one typed object, and return; rows of the table (`syscall-table`) name them by their path below
//! this crate. What a thread has of the file tree is [`task::files`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod acl;
#[cfg(feature = "aio")]
pub mod aio;
pub mod async_io;
pub mod attributes;
pub mod disks;
#[cfg(feature = "inotify")]
pub mod dnotify;
pub mod fcntl;
pub mod file_systems;
pub mod handles;
pub mod inode_flags;
#[cfg(feature = "inotify")]
pub mod inotify;
pub mod io;
pub mod leases;
pub mod names;
pub mod open;
pub mod poll;
mod shared_blocks;
pub mod special;
pub mod stat;
pub mod transfer;
