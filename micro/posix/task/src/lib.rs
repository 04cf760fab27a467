// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads and processes are to Linux.
//!
//! - [`Task`] and [`process`] are a thread and a process, [`processes`] is all of them, [`children`] how parents hear of theirs;
//! - [`identity`], [`users`] and [`pids`] say who they are and what that permits;
//! - [`files`] is what a thread has of the file tree; [`ipc`], [`network`], [`uts`] and [`cgroup`] are the other namespaces;
//! - [`signals`] are sent to them and wait for them, [`time`] has their clocks and timers;
//! - [`limits`], [`scheduling`], [`control_group`] and [`containers`] hold them to what they may use;
//! - [`seccomp`] and [`tracing`] are who comes between them and the kernel, [`watch`] whether anybody does;
//! - [`wait`] is the only place where a call blocks.
//!
//! Families of system calls (`posix`) are built on this; nothing here knows of them. A family keeps what it has of a namespace by a type of
//! its own ([`ipc::Ipc::of`]).
#![no_std]
extern crate alloc;

pub mod auxiliary;
pub mod bandwidth;
pub mod blocked;
pub mod call;
pub mod cgroup;
pub mod children;
pub mod containers;
pub mod control_group;
pub mod cpu_time;
pub mod end;
pub mod fast;
#[cfg_attr(not(feature = "fail-nth"), path = "no_fault.rs")]
pub mod fault;
pub mod files;
pub mod identity;
pub mod io_priority;
pub mod ipc;
pub mod limits;
pub mod login;
pub mod network;
pub mod nsfs;
pub mod overlay;
pub mod pids;
pub mod prctl;
pub mod process;
pub mod processes;
pub mod registers;
pub mod restart;
pub mod rseq;
pub mod scheduling;
pub mod seccomp;
mod shared;
pub mod siblings;
pub mod signals;
mod thread;
pub mod time;
pub mod tracing;
pub mod users;
pub mod uts;
pub mod wait;
pub mod watch;

pub use call::Call;
pub use thread::{Current, Own, Runner, Task, current, leave, running};
