// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux' system calls over the micro-libraries.
//!
//! - [`dispatch`] takes a call from the platform to its handler and does what is due on the way out;
//! - [`calls`] has one file for each family of calls; handlers decode and check arguments, call one typed object,
//!   and return;
//! - [`task`] and [`process`] are what a thread and a process are to Linux, [`processes`] is all of them;
//! - [`confinement`] is what containers are kept from before they begin;
//! - [`containers`] are trees of processes with files of their own;
//! - [`files`] is what a process has of the file tree;
//! - [`mounts`] is the tree at the start, [`proc`] what /proc and /sys say;
//! - [`wait`] is the only place where a call blocks.
//!
//! The table of calls is the crate `syscall-table`. This crate may depend on every micro-library; only the kernel
//! image depends on it.
#![no_std]
extern crate alloc;

pub mod auxiliary;
pub mod call;
pub mod calls;
pub mod cgroup;
pub mod confinement;
pub mod containers;
pub mod control_group;
pub mod cpu_time;
pub mod disks;
// Of an image with a linked program most of this is left out by the linker.
#[cfg_attr(feature = "linked", allow(dead_code))]
pub mod dispatch;
pub mod exec;
#[cfg_attr(feature = "linked", allow(dead_code))]
mod fast;
#[cfg_attr(not(feature = "fail-nth"), path = "no_fault.rs")]
mod fault;
pub mod files;
pub mod futex;
pub mod ipc;
#[cfg(feature = "linked")]
mod linked;
mod load;
pub mod mounts;
pub mod network;
mod out_of_memory;
pub mod outside;
pub mod overlay;
pub mod pids;
pub mod proc;
pub mod process;
pub mod processes;
pub mod restart;
pub mod settings;
mod shared;
mod siblings;
pub mod start;
pub mod task;
mod terminals;
pub mod users;
pub mod uts;
pub mod wait;

pub use call::Call;
pub use task::current;
