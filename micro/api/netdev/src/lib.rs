// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network devices: bursts of packets, queues, offloads, and buffers that belong to the caller.
//!
//! # Contract
//!
//! What a caller must not rely on comes first.
//!
//! - A device never allocates a packet's memory: receive buffers are given to it with [`NetDevice::refill`],
//!   transmitted heads come back with [`NetDevice::reclaim`]. A device without receive buffers drops packets.
//! - [`NetDevice::transmit`] only queues. Nothing need leave the machine before [`NetDevice::flush`]: one doorbell
//!   for a burst (a doorbell is an exit to the hypervisor and dear). A caller that has transmitted must flush in
//!   bounded time.
//! - A queue that is full takes fewer packets than offered and leaves the rest with the caller. There is no
//!   interrupt for "room again": the caller offers them again when it polls.
//! - Packets of one queue stay in order; between queues there is no order.
//! - Interrupts are off until [`NetDevice::arm_interrupt`], and off again once one was raised. The device's
//!   interrupt handler touches atomics only and raises the deferred work registered with [`NetDevice::on_interrupt`].
//! - No function blocks. All may be called from any thread context; the device locks inside, one short lock per
//!   queue and call.
//! - Buffers are physically contiguous: they come from the kernel heap.
//! - What a device hands up is untrusted: lengths are within the buffers, nothing else is promised.
//!
//! Frames are Ethernet, without preamble and frame check sequence.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod buffer;
pub mod interface;
pub mod link;
mod name;

pub use buffer::{BUFFER_SIZE, Buffer, Fragment, HEADROOM};
pub use name::{IFNAMSIZ, Name};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The address of a device that has none of its own, made of random bytes: locally administered, and not a group (IEEE 802).
pub fn local_address(mut random: [u8; 6]) -> [u8; 6] {
    random[0] = random[0] & !1 | 2;
    random
}

/// What a device can do and how it wants its packets.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    pub mac: [u8; 6],
    /// Largest IP packet in bytes, segmentation offload aside.
    pub mtu: usize,
    /// Receive queues; each has a transmit queue of the same index.
    pub queues: usize,
    /// The device computes a checksum described by [`Checksum`].
    pub transmit_checksum: bool,
    /// Largest IPv4 TCP packet in bytes, IP header included, that the device cuts into segments; 0: it cannot.
    pub segmentation: usize,
    /// It cuts packets of IPv6 as well, as large ones.
    pub segments_ipv6: bool,
    /// Most [`Fragment`]s one packet may have.
    pub fragments: usize,
    /// Bytes in front of a frame that the device writes its own header to when it transmits; at most [`HEADROOM`]`.device`.
    pub headroom: usize,
    /// A packet interrupts the program at once while it computes. False where a timer looks for packets then.
    pub interrupts: bool,
}

/// A checksum left to the device: the ones' complement sum from `start` to the end of the packet goes to
/// `start + offset`, which holds the sum of the pseudo header already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// From the first byte of the frame.
    pub start: u16,
    pub offset: u16,
}

/// Segmentation left to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Ethernet, IP and TCP headers.
    pub header_length: u16,
    /// Most bytes of payload in a segment.
    pub segment_size: u16,
}

/// A frame to transmit: headers and small payloads in `head`, large payloads as references.
#[derive(Debug)]
pub struct Outgoing {
    /// Begins with the Ethernet header and has at least [`HEADROOM`]`.device` bytes of headroom.
    pub head: Buffer,
    /// Follow `head` in order; at most [`Info::fragments`]. They must not change until the packet is reclaimed.
    pub fragments: Vec<Fragment>,
    pub checksum: Option<Checksum>,
    pub segmentation: Option<Segmentation>,
}

impl Outgoing {
    /// A frame without offloads.
    pub fn plain(head: Buffer) -> Outgoing {
        Outgoing { head, fragments: Vec::new(), checksum: None, segmentation: None }
    }

    /// Whether its packet is one of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.head.bytes().get(12..14) == Some(&[0x86, 0xdd])
    }

    /// Bytes of the frame.
    pub fn length(&self) -> usize {
        self.head.len() + self.fragments.iter().map(|f| f.bytes().len()).sum::<usize>()
    }
}

/// A received frame: the first buffer holds at least the headers the sender put there; a packet that was put
/// together by the device or the host (receive offload) continues in `more`.
#[derive(Debug)]
pub struct Incoming {
    pub first: Buffer,
    pub more: Vec<Buffer>,
    /// The device or the host vouches for the transport checksum.
    pub checksum_valid: bool,
}

/// A network device. See the crate documentation for the contract.
pub trait NetDevice: Send + Sync {
    fn info(&self) -> &Info;

    /// Queues packets from the front; what does not fit stays. Returns how many were taken.
    fn transmit(&self, queue: usize, packets: &mut VecDeque<Outgoing>) -> usize;

    /// Rings the doorbell if packets were queued since and the device wants to know.
    fn flush(&self, queue: usize);

    /// Gives back heads of transmitted packets and drops their fragments.
    fn reclaim(&self, queue: usize, heads: &mut Vec<Buffer>);

    /// Appends up to `most` received packets and returns how many.
    fn receive(&self, queue: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize;

    /// How many receive buffers the queue would take.
    fn wanted(&self, queue: usize) -> usize;

    /// Takes up to [`NetDevice::wanted`] empty buffers of [`BUFFER_SIZE`] bytes.
    fn refill(&self, queue: usize, buffers: &mut Vec<Buffer>);

    /// Asks for an interrupt at the next packet. False when packets wait already: poll again instead.
    fn arm_interrupt(&self, queue: usize) -> bool;

    /// Registers the deferred work that interrupts raise.
    fn on_interrupt(&self, work: api_sched::DeferredWork);
}
