// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One device, whatever its transport.

use crate::{Queue, feature, mmio::Mmio, pci::Pci};
use abi::{Result, errno::EIO, errno::ENODEV};
use alloc::vec::Vec;
use api_sched::DeferredWork;
use core::sync::atomic::{AtomicU8, Ordering};
use plat_pc::Windows;

/// What a device is (virtio 1.2, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u16);

impl Kind {
    pub const NETWORK: Kind = Kind(1);
    pub const BLOCK: Kind = Kind(2);
    pub const CONSOLE: Kind = Kind(3);
    pub const ENTROPY: Kind = Kind(4);
    pub const NINEP: Kind = Kind(9);
    pub const SOCKET: Kind = Kind(19);
}

/// Status bits (virtio 1.2, 2.1).
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const FAILED: u8 = 128;

pub(crate) enum Transport {
    Mmio(Mmio),
    Pci(Pci),
}

/// A device that was found. Dropping it leaves the device as it is.
pub struct Device {
    kind: Kind,
    transport: Transport,
    /// What was last written to its status: reading it back costs an exit to the monitor.
    status: AtomicU8,
}

macro_rules! on {
    ($self:ident, $t:ident => $e:expr) => {
        match &$self.transport {
            Transport::Mmio($t) => $e,
            Transport::Pci($t) => $e,
        }
    };
}

impl Device {
    pub(crate) fn new(kind: u16, transport: Transport) -> Device {
        Device { kind: Kind(kind), transport, status: AtomicU8::new(0) }
    }

    fn set_status(&self, status: u8) {
        self.status.store(status, Ordering::Relaxed);
        on!(self, t => t.set_status(status));
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Resets the device and agrees on features: those of `wanted` that it offers, and version 1 where it has it.
    /// `ENODEV` when it refuses them.
    pub fn begin(&self, wanted: u64) -> Result<u64> {
        self.set_status(0);
        if let Transport::Pci(pci) = &self.transport {
            // A PCI device may take its time over a reset (4.1.4.3.1).
            while pci.status() != 0 {
                core::hint::spin_loop();
            }
        }
        // One bit at a time (3.1.1): Firecracker takes no other way.
        self.set_status(ACKNOWLEDGE);
        self.set_status(ACKNOWLEDGE | DRIVER);
        let features = on!(self, t => {
            let features = t.offered_features() & (wanted | feature::VERSION_1);
            t.accept_features(features);
            features
        });
        if features & feature::VERSION_1 != 0 {
            self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
            if on!(self, t => t.status()) & FEATURES_OK == 0 {
                self.set_status(FAILED);
                return Err(ENODEV);
            }
        }
        Ok(features)
    }

    /// Makes queue `index`, of at most `most` descriptors, a power of two. `features` is what [`Device::begin`]
    /// answered. `ENODEV` when the device has no such queue, `ENOMEM` without memory for it.
    pub fn queue(&self, index: u16, most: u16, features: u64) -> Result<Queue> {
        let event_index = features & feature::EVENT_IDX != 0;
        on!(self, t => t.make_queue(index, most, event_index))
    }

    /// Interrupts raise `work` from now on: call before [`Device::start`], once.
    pub fn on_interrupt(&self, work: DeferredWork) -> Result<()> {
        on!(self, t => t.on_interrupt(work))
    }

    /// The driver is ready.
    pub fn start(&self) {
        self.set_status(self.status.load(Ordering::Relaxed) | DRIVER_OK);
    }

    /// The driver gives up.
    pub fn fail(&self) {
        self.set_status(FAILED);
    }

    /// One byte of the device's configuration.
    pub fn config_u8(&self, offset: usize) -> u8 {
        on!(self, t => t.config_u8(offset))
    }

    /// A number of `N` bytes in the device's configuration, of one moment.
    fn config<const N: usize>(&self, offset: usize) -> [u8; N] {
        on!(self, t => loop {
            let before = t.config_generation();
            let bytes = core::array::from_fn(|i| t.config_u8(offset + i));
            if t.config_generation() == before {
                break bytes;
            }
        })
    }

    /// A number in the device's configuration.
    pub fn config_u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.config(offset))
    }

    /// A number in the device's configuration.
    pub fn config_u32(&self, offset: usize) -> u32 {
        on!(self, t => t.config_u32(offset))
    }

    /// A number in the device's configuration.
    pub fn config_u64(&self, offset: usize) -> u64 {
        // As two halves, as the standard has it (4.2.2.2, 4.1.3.1): the socket devices of Firecracker and Cloud Hypervisor
        // answer nothing to reads of bytes.
        on!(self, t => loop {
            let before = t.config_generation();
            let (low, high) = (t.config_u32(offset), t.config_u32(offset + 4));
            if t.config_generation() == before {
                break u64::from(high) << 32 | u64::from(low);
            }
        })
    }

    /// Writes one byte of the device's configuration.
    pub fn set_config_u8(&self, offset: usize, value: u8) {
        on!(self, t => t.set_config_u8(offset, value));
    }
}

/// What a transport does; the methods are those of `Device`.
pub(crate) fn queue_size(most_of_device: u16, most: u16) -> Result<u16> {
    let size = most_of_device.min(most);
    if size == 0 {
        return Err(ENODEV);
    }
    // The device's limit need not be a power of two (4.1.4.3), the queue's size must.
    let size = 1 << size.ilog2();
    if size < 2 { Err(EIO) } else { Ok(size) }
}

/// Finds all devices: those in memory-mapped windows, else those on the PCI bus.
pub fn discover() -> Vec<Device> {
    match plat_pc::virtio_windows() {
        Windows::Told(windows) => crate::mmio::discover(&windows, false),
        Windows::Guessed(windows) => crate::mmio::discover(&windows, true),
        Windows::None => crate::pci::discover(),
    }
}
