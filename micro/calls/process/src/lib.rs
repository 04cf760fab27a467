// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on processes and threads: how they begin, run programs, end and are waited for; signals, tracing and filters; who they are,
//! what they may use; clocks and timers; the machine's name and its end.
//!
//! What threads and processes are is the crate [`task`]. [`program`] is how a program gets into an address space, [`out_of_memory`] who has to
//! end where there is none left.
#![no_std]
extern crate alloc;

pub mod arch;
pub mod children;
pub mod clone;
pub mod descriptor_memory;
pub mod end;
pub mod exec;
pub mod identity;
pub mod kcmp;
pub mod limits;
#[cfg(feature = "linked")]
mod linked;
pub mod load;
mod mm_map;
pub mod namespaces;
pub mod out_of_memory;
pub mod pidfd;
pub mod prctl;
pub mod program;
pub mod ptrace;
pub mod rseq;
pub mod scheduling;
pub mod seccomp;
pub mod signals;
pub mod system;
pub mod terminals;
pub mod time;
