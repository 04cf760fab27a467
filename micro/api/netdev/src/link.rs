// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link as others than the stack use it: they see every frame, and send frames of their own (packet(7)).
//!
//! # Contract
//!
//! - A [`Tap`] sees frames with the link's header, those that are sent and those that came in. What goes over loopback it
//!   sees twice, with the header that Linux puts there: sent, and received.
//! - [`Tap::frame`] is called under the stack's lock: it takes locks of its own at most, and neither calls the [`Link`] nor
//!   wakes anybody. [`Tap::settle`] comes without that lock after each burst of frames.
//! - Nobody is asked to look at frames before [`Link::watch`]: a stack that nobody watches tests one field for each frame.

use crate::Name;
use abi::Result;
use alloc::sync::Arc;
use api_sched::{TimerId, Waiter};

/// Bytes of an Ethernet header, which frames of loopback have, too.
pub const LINK_HEADER: usize = 14;
/// Hardware types (`linux/if_arp.h`).
pub const ARPHRD_ETHER: u16 = 1;
pub const ARPHRD_LOOPBACK: u16 = 772;
/// Packets without a link header (tun(4)).
pub const ARPHRD_NONE: u16 = 0xfffe;

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    pub name: Name,
    /// ARPHRD_*.
    pub hardware: u16,
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the link's header.
    pub mtu: usize,
}

/// What is known of the transport's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Unknown,
    Valid,
    /// It is not there yet: the device makes it, or nobody needs it.
    Pending,
}

/// A frame that passes.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    pub interface: &'a Interface,
    /// [`LINK_HEADER`] bytes at least, where the interface has a link header.
    pub bytes: &'a [u8],
    pub is_outgoing: bool,
    pub checksum: Verdict,
    /// Who sent it by [`Link::send`], where it is outgoing.
    pub sender: Option<u64>,
}

/// Whoever sees frames.
pub trait Tap: Send + Sync {
    /// A frame passes.
    fn frame(&self, frame: &Frame<'_>);

    /// The stack is not locked any more: wakes those for whom frames came.
    fn settle(&self);
}

/// The link of a stack.
pub trait Link: Send + Sync {
    fn interface(&self, index: u32) -> Option<Interface>;

    fn interface_named(&self, name: &[u8]) -> Option<Interface>;

    /// Sends a frame with its link header. `ENXIO`: there is no such interface; `ENOBUFS`: its queue is full, or there is no
    /// memory; `EINVAL`: it has no header. Taps see the frame as sent by `sender`.
    fn send(&self, interface: u32, frame: &[u8], sender: u64) -> Result<()>;

    /// Shows frames to the tap from now on, or no more, as `is_wanted` answers while the stack is locked.
    fn watch(&self, tap: Arc<dyn Tap>, is_wanted: &dyn Fn() -> bool);

    /// The monotonic clock.
    fn now_ns(&self) -> u64;

    /// Wakes the waiter at or after `at_ns`, once. `None` where there are no timers.
    fn alarm(&self, at_ns: u64, waiter: Arc<dyn Waiter>) -> Option<TimerId>;

    fn cancel_alarm(&self, id: TimerId);
}
