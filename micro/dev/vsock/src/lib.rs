// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream connections to the host over virtio-vsock (virtio 1.2, 5.10): the protocol without the device, which
//! `virtio::vsock` drives.
//!
//! An [`Endpoint`] takes the packets that came ([`Endpoint::receive`]) and writes those that are to go
//! ([`Endpoint::transmit`]). This machine connects; of the host's own connections it takes one kind only, to the port on which
//! the host asks for the machine's end ([`Endpoint::take_request_to_end`]).
//!
//! The host is not trusted: a packet that is not in order resets its connection or is dropped, a connection buffers
//! [`BUFFER`] bytes at most, and there are [`MAX_CONNECTIONS`] of them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod connection;
mod endpoint;
mod header;

pub use connection::{BUFFER, State};
pub use endpoint::{Endpoint, Id, MAX_CONNECTIONS};
pub use header::{HEADER, HOST_CID, Header, Operation, STREAM};
