// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's APIs as products: what a program that is linked with the kernel (`--static`) drives itself, in place of what the
//! kernel would do with it.
//!
//! [`netdev`] is network devices, [`blockdev`] is disks, [`shfs`] a file system on one: `include/unilith/*.h` say what a program relies on. `program/` is the
//! program's side of the calls: `linked.s` leads to the kernel, `native-*.c` end a program that has no kernel in it.
//!
//! A program that calls none of this has none of it in its image, and one that does has no TCP/IP unless it calls socket(2)
//! as well. This crate may depend on the APIs of the micro-libraries; only the kernel image depends on it.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod blockdev;
pub mod netdev;
mod port;
pub mod shfs;
