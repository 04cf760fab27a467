// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of a machine that is a process of Linux: descriptors the tender gave it. A network device is a tap or a stream
//! socket, a block device is a file, a volume is a stream socket with a 9p server behind it, the overlay's line is a stream socket.
//!
//! All descriptors are non-blocking; a driver that waits parks its thread and is woken through
//! [`plat_process::watch`]. What arrives is untrusted: lengths are checked before anything is handed up.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
pub mod frames;
mod given;
pub mod line;
pub mod net;
pub mod ninep;
mod pieces;
