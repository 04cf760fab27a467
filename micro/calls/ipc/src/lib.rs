// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls by which processes wait for each other and hand each other things without files: System V's and POSIX's message queues,
//! semaphores, shared memory, and futexes.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod futex;
#[cfg(feature = "mqueue")]
pub mod message_queues;
#[cfg(feature = "mqueue")]
mod queue_files;
#[cfg(feature = "sysv-ipc")]
pub mod sysv;
