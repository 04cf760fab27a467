// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two rings of io_uring(7), which a program and the kernel share.
//!
//! [`Params`] are what a program asks for, [`Rings`] the memory: submissions are taken out of it, completions go into it, and
//! completions that find no room wait outside ([`Rings::post`]). Heads and tails that the program writes are masked and never
//! trusted; the kernel's own are kept outside of that memory. What a submission means is the system-call layer's business.
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod memory;
mod params;
mod rings;

pub use memory::Memory;
pub use params::*;
pub use rings::{Cqe, Mapping, Rings, SQ_CQ_OVERFLOW, SQ_NEED_WAKEUP, SQ_TASKRUN, Sqe, Taken};
