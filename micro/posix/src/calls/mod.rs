// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handlers, one file for each family of calls; rows of the table name them by their path below this module.

mod acl;
#[cfg(feature = "aio")]
pub mod aio;
pub mod arch;
pub mod async_io;
pub mod attributes;
pub mod children;
pub mod clone;
#[cfg(feature = "inotify")]
pub mod dnotify;
pub mod end;
pub mod exec;
pub mod fcntl;
pub mod file_systems;
pub mod futex;
pub mod handles;
pub mod identity;
pub mod inode_flags;
#[cfg(feature = "inotify")]
pub mod inotify;
pub mod io;
pub mod leases;
pub mod limits;
pub mod memory;
#[cfg(feature = "mqueue")]
pub mod message_queues;
pub mod names;
pub mod numa;
pub mod open;
pub mod pidfd;
pub mod poll;
pub mod prctl;
pub mod process_memory;
pub mod ptrace;
pub mod scheduling;
pub mod seccomp;
pub mod signals;
pub mod sockets;
pub mod special;
pub mod stat;
pub mod system;
#[cfg(feature = "sysv-ipc")]
pub mod sysv;
pub mod time;
pub mod transfer;
