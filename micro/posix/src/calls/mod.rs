// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handlers, by families; rows of the table name them by their path below this module.

pub mod mount_contexts;
pub mod mount_trees;
pub mod mounts;

#[cfg(feature = "aio")]
pub use calls_files::aio;
#[cfg(feature = "inotify")]
pub use calls_files::inotify;
pub use calls_files::{
    attributes, fcntl, file_systems, handles, io, names, open, poll, special, stat, transfer,
};
pub use calls_ipc::futex;
#[cfg(feature = "mqueue")]
pub use calls_ipc::message_queues;
#[cfg(feature = "sysv-ipc")]
pub use calls_ipc::sysv;
#[cfg(feature = "keys")]
pub use calls_keys as keys;
#[cfg(feature = "landlock")]
pub use calls_landlock as landlock;
pub use calls_memory::{barriers, memory, numa, process_memory};
pub use calls_process::{
    arch, children, clone, descriptor_memory, end, exec, identity, kcmp, limits, namespaces, pidfd, prctl,
    ptrace, rseq, scheduling, seccomp, signals, system, time,
};
pub use calls_sockets as sockets;
#[cfg(feature = "io_uring")]
pub use calls_uring as uring;
