// SPDX-License-Identifier: Apache-2.0 OR MIT
//! virtio 1.2: finding devices, the transports (memory-mapped and PCI), queues, and the drivers.
//!
//! A driver gets a [`Device`], negotiates with [`Device::begin`], makes its queues with [`Device::queue`], registers
//! the deferred work that interrupts raise with [`Device::on_interrupt`], and calls [`Device::start`]. Everything a device
//! writes is untrusted: [`Queue`] checks every index and length before it hands them up.
//!
//! Invariants this crate owns: memory given to a device lies in the kernel heap (physically contiguous, seen at
//! `PHYS`) or is pages whose handles the driver keeps, and stays allocated until the device gave it back.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
pub mod console;
mod device;
mod direction;
pub mod entropy;
mod mmio;
pub mod net;
#[cfg(feature = "ninep")]
pub mod ninep;
mod pci;
mod queue;
#[cfg(feature = "vsock")]
pub mod vsock;

pub use device::{Device, Kind, discover};
pub use queue::{Area, Full, Queue, Used};

use abi::Errno;
use alloc::vec::Vec;

/// Finds all devices and starts that which needs nobody else: entropy. Those of 9p wait for [`ninep::start`]. Answers the rest,
/// for the kernel image to give to the drivers it has.
pub fn start() -> Vec<Device> {
    let mut rest = Vec::new();
    for device in discover() {
        let kind = device.kind();
        let started = match kind {
            Kind::ENTROPY => entropy::start(device),
            #[cfg(feature = "ninep")]
            Kind::NINEP => {
                ninep::found(device);
                Ok(())
            }
            _ => {
                rest.push(device);
                Ok(())
            }
        };
        if let Err(e) = started {
            does_not_start(kind, e);
        }
    }
    rest
}

fn does_not_start(kind: Kind, why: Errno) {
    log::error!("virtio: a device of kind {} does not start: {why:?}", kind.0);
}

/// Feature bits of every device (virtio 1.2, 6).
pub mod feature {
    /// Descriptors may point to tables of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Queues say at which index they want to be told.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The device follows version 1 of the standard.
    pub const VERSION_1: u64 = 1 << 32;
}
