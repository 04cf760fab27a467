// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI transport (virtio 1.2, 4.1), modern devices with MSI-X.

use crate::device::{Device, Transport, queue_size};
use crate::queue::Queue;
use abi::{Result, errno::ENODEV};
use alloc::boxed::Box;
use alloc::vec::Vec;
use api_sched::DeferredWork;
use plat_pc::messages::{CAPABILITY_MSIX, MessageTable};
use plat_pc::{pci::Function, physical_to_virtual};

const VENDOR_VIRTIO: u16 = 0x1af4;
/// Device numbers from here on: 0x1040 and the kind. Below are transitional devices, whose subsystem number is it.
const MODERN: u16 = 0x1040;
const CAPABILITY_VENDOR: u8 = 0x09;

/// `struct virtio_pci_cap.cfg_type`
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;

// Common configuration (4.1.4.3).
const DEVICE_FEATURE_SELECT: u64 = 0x00;
const DEVICE_FEATURE: u64 = 0x04;
const DRIVER_FEATURE_SELECT: u64 = 0x08;
const DRIVER_FEATURE: u64 = 0x0c;
const CONFIG_VECTOR: u64 = 0x10;
const STATUS: u64 = 0x14;
const GENERATION: u64 = 0x15;
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE: u64 = 0x18;
const QUEUE_VECTOR: u64 = 0x1a;
const QUEUE_ENABLE: u64 = 0x1c;
const QUEUE_NOTIFY: u64 = 0x1e;
const QUEUE_DESCRIPTORS: u64 = 0x20;
const QUEUE_DRIVER: u64 = 0x28;
const QUEUE_DEVICE: u64 = 0x30;

const NO_VECTOR: u16 = 0xffff;

pub(crate) struct Pci {
    /// Physical addresses of the structures.
    common: u64,
    notify: u64,
    notify_multiplier: u32,
    config: u64,
    messages: MessageTable,
}

/// The virtio devices on PCI.
pub(crate) fn discover() -> Vec<Device> {
    let mut found = Vec::new();
    for function in plat_pc::pci::functions() {
        let (vendor, id) = function.id();
        if vendor != VENDOR_VIRTIO {
            continue;
        }
        let kind = if id >= MODERN { id - MODERN } else { function.subsystem() };
        match Pci::new(function) {
            Ok(transport) => found.push(Device::new(kind, Transport::Pci(transport))),
            Err(missing) => log::warn!("virtio: {function:?} left alone: it has no {missing}"),
        }
    }
    found
}

impl Pci {
    fn new(function: Function) -> core::result::Result<Pci, &'static str> {
        let (mut common, mut notify, mut config, mut multiplier) = (0, 0, 0, 0);
        let mut messages = None;
        function.enable();
        for (id, at) in function.capabilities() {
            if id == CAPABILITY_MSIX {
                messages = MessageTable::at(function, at);
            }
            if id != CAPABILITY_VENDOR {
                continue;
            }
            let kind = (function.read(at) >> 24) as u8;
            let (offset, length) = (function.read(at + 8), function.read(at + 12));
            let Some(address) = function.structure(function.read(at + 4) as u8, offset, length) else {
                continue;
            };
            match kind {
                COMMON if common == 0 => common = address,
                NOTIFY if notify == 0 => {
                    notify = address;
                    multiplier = function.read(at + 16);
                }
                DEVICE if config == 0 => config = address,
                _ => {}
            }
        }
        if common == 0 || notify == 0 {
            return Err("modern interface (disable-legacy=on makes one)");
        }
        let messages = messages.ok_or("MSI-X")?;
        Ok(Pci { common, notify, notify_multiplier: multiplier, config, messages })
    }

    /// SAFETY of all four: `common` was found in the device's capabilities, inside one of its windows, which the
    /// physical map shows.
    fn read8(&self, register: u64) -> u8 {
        // SAFETY: see above.
        unsafe { physical_to_virtual::<u8>(self.common + register).read_volatile() }
    }

    fn read16(&self, register: u64) -> u16 {
        // SAFETY: see above.
        unsafe { physical_to_virtual::<u16>(self.common + register).read_volatile() }
    }

    fn read32(&self, register: u64) -> u32 {
        // SAFETY: see above.
        unsafe { physical_to_virtual::<u32>(self.common + register).read_volatile() }
    }

    fn write<T>(&self, register: u64, value: T) {
        // SAFETY: see above.
        unsafe { physical_to_virtual::<T>(self.common + register).write_volatile(value) }
    }

    pub fn status(&self) -> u8 {
        self.read8(STATUS)
    }

    pub fn set_status(&self, status: u8) {
        self.write(STATUS, status);
    }

    pub fn offered_features(&self) -> u64 {
        self.write(DEVICE_FEATURE_SELECT, 0u32);
        let low = self.read32(DEVICE_FEATURE);
        self.write(DEVICE_FEATURE_SELECT, 1u32);
        u64::from(self.read32(DEVICE_FEATURE)) << 32 | u64::from(low)
    }

    pub fn accept_features(&self, features: u64) {
        self.write(DRIVER_FEATURE_SELECT, 0u32);
        self.write(DRIVER_FEATURE, features as u32);
        self.write(DRIVER_FEATURE_SELECT, 1u32);
        self.write(DRIVER_FEATURE, (features >> 32) as u32);
    }

    pub fn make_queue(&self, index: u16, most: u16, event_index: bool) -> Result<Queue> {
        self.write(QUEUE_SELECT, index);
        let size = queue_size(self.read16(QUEUE_SIZE), most)?;
        let offset = u64::from(self.read16(QUEUE_NOTIFY)) * u64::from(self.notify_multiplier);
        let queue = Queue::new(index, size, event_index, physical_to_virtual(self.notify + offset), false)?;
        self.write(QUEUE_SIZE, size);
        for (register, address) in [
            (QUEUE_DESCRIPTORS, queue.descriptors_physical()),
            (QUEUE_DRIVER, queue.available_physical()),
            (QUEUE_DEVICE, queue.used_physical()),
        ] {
            // As two halves: devices need not take 64 bits at once (4.1.3.1).
            self.write(register, address as u32);
            self.write(register + 4, (address >> 32) as u32);
        }
        // All queues share the first entry of the table.
        self.write(QUEUE_VECTOR, 0u16);
        if self.read16(QUEUE_VECTOR) == NO_VECTOR {
            return Err(ENODEV);
        }
        self.write(QUEUE_ENABLE, 1u16);
        Ok(queue)
    }

    pub fn on_interrupt(&self, work: DeferredWork) -> Result<()> {
        // Lives as long as the machine.
        let target = Box::leak(Box::new(work));
        let vector = plat_pc::allocate_vector(interrupt, core::ptr::from_ref(target) as usize)?;
        self.messages.set(0, vector);
        self.messages.enable();
        self.write(CONFIG_VECTOR, 0u16);
        Ok(())
    }

    pub fn config_generation(&self) -> u32 {
        self.read8(GENERATION).into()
    }

    pub fn config_u8(&self, offset: usize) -> u8 {
        if self.config == 0 {
            return 0;
        }
        // SAFETY: the device's configuration, inside one of its windows.
        unsafe { physical_to_virtual::<u8>(self.config + offset as u64).read_volatile() }
    }

    /// A number at a multiple of four.
    pub fn config_u32(&self, offset: usize) -> u32 {
        if self.config == 0 {
            return 0;
        }
        // SAFETY: the device's configuration, inside one of its windows.
        unsafe { physical_to_virtual::<u32>(self.config + offset as u64).read_volatile() }
    }

    pub fn set_config_u8(&self, offset: usize, value: u8) {
        if self.config != 0 {
            // SAFETY: as above.
            unsafe { physical_to_virtual::<u8>(self.config + offset as u64).write_volatile(value) }
        }
    }
}

/// Interrupt context. A message needs no acknowledgement.
fn interrupt(work: usize) {
    // SAFETY: `on_interrupt` registered deferred work that lives for ever.
    api_sched::raise(unsafe { *(work as *const DeferredWork) });
}
