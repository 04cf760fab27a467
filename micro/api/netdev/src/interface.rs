// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces that others than devices make (tun(4)): the stack has the interface with its addresses and routes, and a [`Port`] is
//! where its frames come out.
//!
//! # Contract
//!
//! - [`Port::transmit`] and [`Port::detached`] are called under the stack's lock: they queue, take locks of their own at most, call no
//!   function of [`Interfaces`] and wake nobody. [`Port::settle`] comes without that lock, once for a burst.
//! - A port's queue has a bound. What finds no room is dropped, and the interface counts it.
//! - An interface that is deleted by others tells its port by [`Port::detached`]; functions about it answer `ENODEV` from then on.

use crate::{Buffer, Name};
use abi::Result;
use alloc::sync::Arc;
use core::any::Any;

/// Where frames of an interface leave the stack.
pub trait Port: Any + Send + Sync {
    /// A frame leaves: with an Ethernet header, or without one where the interface has none. False when it was dropped.
    fn transmit(&self, frame: Buffer) -> bool;

    /// The stack is not locked any more: wakes those for whom frames were queued, or who are told that the interface is gone.
    fn settle(&self);

    /// The interface is gone.
    fn detached(&self);

    /// The interface is now that of another stack.
    fn moved(&self, to: Arc<dyn Interfaces>, index: u32);

    /// The user and the group that may open the port beside those who administer the network; `None`: everybody's.
    fn owners(&self) -> (Option<u32>, Option<u32>) {
        (None, None)
    }

    fn as_any(&self) -> &dyn Any;

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The interfaces of one stack.
pub trait Interfaces: Send + Sync {
    /// Makes an interface. In its name `%d` stands for the first number that is free. `EEXIST`, `EINVAL` for what is no name, `ENOMEM`,
    /// `ENFILE` when there are too many.
    fn add(&self, name: &Name, has_ethernet: bool, port: Arc<dyn Port>) -> Result<(u32, Name)>;

    /// Deletes it. Its port is not told.
    fn remove(&self, index: u32);

    /// The port of the interface of that name: `ENODEV` without one, `EINVAL` where it is none that was made by [`Interfaces::add`].
    fn port(&self, name: &Name) -> Result<(u32, Arc<dyn Port>)>;

    fn name(&self, index: u32) -> Result<Name>;

    /// Whether somebody is at the other end (IFF_RUNNING).
    fn set_carrier(&self, index: u32, is_on: bool);

    /// Takes a frame that came from the port. `EIO` where the interface is down.
    fn receive(&self, index: u32, frame: Buffer) -> Result<()>;

    /// A frame was dropped before it came so far.
    fn count_receive_drop(&self, index: u32);

    /// netdevice(7)'s requests about the interface of that index, whatever its request names.
    fn address(&self, index: u32) -> Result<[u8; 6]>;

    fn set_address(&self, index: u32, address: [u8; 6]) -> Result<()>;
}
