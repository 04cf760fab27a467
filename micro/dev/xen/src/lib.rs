// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of a guest of Xen: xenstore, where they are described and agreed on (`store.rs`, `bus.rs`), the network device
//! (`net.rs`) and disks (`block.rs`). Numbers and layouts are those of Xen's `public/io/*.h`; hypercalls and event channels are the platform's.
//!
//! The domain at a device's other end sees the pages of its rings and buffers and nothing else of the machine: they are granted once,
//! when the device starts, and packets are copied. So nothing need be taken back from it, and what it writes at the wrong
//! time changes what is in a packet at most. Everything that it writes is read once and checked; a counter that cannot be
//! ends the work with its device in one line.
//!
//! Invariant this crate owns: a granted page is never freed and never used for anything else.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
mod bus;
mod control;
mod grant;
mod message;
pub mod net;
mod page;
mod ring;
mod store;

pub use control::start;
