// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux' system calls over the micro-libraries.
//!
//! - [`dispatch`] takes a call from the platform to its handler and does what is due on the way out;
//! - [`calls`] has one file for each family of calls; handlers decode and check arguments, call one typed object,
//!   and return;
//! - [`confinement`] is what containers are kept from before they begin;
//! - [`mounts`] is the tree at the start, [`proc`] what /proc and /sys say.
//!
//! What threads and processes are is the crate [`task`], and the table of calls is `syscall-table`. This crate may depend on every micro-library; only the kernel
//! image depends on it.
#![no_std]
extern crate alloc;

pub mod calls;
pub mod confinement;
pub mod disks;
// Of an image with a linked program most of this is left out by the linker.
#[cfg_attr(feature = "linked", allow(dead_code))]
pub mod dispatch;
pub mod exec;
pub mod futex;
#[cfg(feature = "linked")]
mod linked;
mod load;
pub mod mounts;
mod out_of_memory;
pub mod outside;
pub mod proc;
pub mod start;
mod terminals;

pub use task::Call;
