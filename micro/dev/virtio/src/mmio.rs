// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory-mapped transport (virtio 1.2, 4.2), modern and legacy.

use crate::device::{Device, Transport, queue_size};
use crate::queue::Queue;
use abi::Result;
use alloc::boxed::Box;
use alloc::vec::Vec;
use api_sched::DeferredWork;
use plat_pc::{Line, VirtioWindow, physical_to_virtual};

const MAGIC: usize = 0x00;
const VERSION: usize = 0x04;
const DEVICE_ID: usize = 0x08;
const DEVICE_FEATURES: usize = 0x10;
const DEVICE_FEATURES_SELECT: usize = 0x14;
const DRIVER_FEATURES: usize = 0x20;
const DRIVER_FEATURES_SELECT: usize = 0x24;
const LEGACY_PAGE_SIZE: usize = 0x28;
const QUEUE_SELECT: usize = 0x30;
const QUEUE_SIZE_MAX: usize = 0x34;
const QUEUE_SIZE: usize = 0x38;
const LEGACY_QUEUE_ALIGN: usize = 0x3c;
const LEGACY_QUEUE_PAGE: usize = 0x40;
const QUEUE_READY: usize = 0x44;
const QUEUE_NOTIFY: usize = 0x50;
const INTERRUPT_ACKNOWLEDGE: usize = 0x64;
const STATUS: usize = 0x70;
const QUEUE_DESCRIPTORS: usize = 0x80;
const QUEUE_DRIVER: usize = 0x90;
const QUEUE_DEVICE: usize = 0xa0;
const CONFIG_GENERATION: usize = 0xfc;
const CONFIG: usize = 0x100;

// Causes of an interrupt.
const USED_BUFFER: u32 = 1;
const CONFIGURATION_CHANGED: u32 = 1 << 1;

/// "virt"
const MAGIC_VALUE: u32 = 0x7472_6976;

pub(crate) struct Mmio {
    base: u64,
    line: Line,
    legacy: bool,
}

fn read(base: u64, register: usize) -> u32 {
    // SAFETY: `base` is a window that the platform named, mapped by the physical map; registers may be read.
    unsafe { physical_to_virtual::<u32>(base + register as u64).read_volatile() }
}

fn write(base: u64, register: usize, value: u32) {
    // SAFETY: as above; what is written follows 4.2.2.
    unsafe { physical_to_virtual::<u32>(base + register as u64).write_volatile(value) }
}

/// The devices in those windows that have one, in the order in which the monitor was told of them: that of the windows. Windows
/// that `are_guessed` are filled from the last one on, as QEMU does it, so theirs is the other way round, and the first empty
/// one ends the search: a window costs an exit to the monitor.
pub(crate) fn discover(windows: &[VirtioWindow], are_guessed: bool) -> Vec<Device> {
    let mut found = Vec::new();
    for window in windows.iter().rev() {
        let base = window.base;
        // An empty window has device 0.
        let kind = read(base, DEVICE_ID);
        if kind == 0 && are_guessed && !found.is_empty() {
            break;
        }
        if kind == 0 || kind > u32::from(u16::MAX) || read(base, MAGIC) != MAGIC_VALUE {
            continue;
        }
        let legacy = match read(base, VERSION) {
            1 => true,
            2 => false,
            other => {
                log::warn!("virtio: device at {base:#x} has interface version {other}: left alone");
                continue;
            }
        };
        let transport = Mmio { base, line: window.line, legacy };
        found.push(Device::new(kind as u16, Transport::Mmio(transport)));
    }
    if !are_guessed {
        found.reverse();
    }
    found
}

impl Mmio {
    fn read(&self, register: usize) -> u32 {
        read(self.base, register)
    }

    fn write(&self, register: usize, value: u32) {
        write(self.base, register, value);
    }

    fn write_wide(&self, register: usize, value: u64) {
        self.write(register, value as u32);
        self.write(register + 4, (value >> 32) as u32);
    }

    pub fn status(&self) -> u8 {
        self.read(STATUS) as u8
    }

    pub fn set_status(&self, status: u8) {
        self.write(STATUS, status.into());
    }

    pub fn offered_features(&self) -> u64 {
        self.write(DEVICE_FEATURES_SELECT, 0);
        let low = self.read(DEVICE_FEATURES);
        if self.legacy {
            return low.into();
        }
        self.write(DEVICE_FEATURES_SELECT, 1);
        u64::from(self.read(DEVICE_FEATURES)) << 32 | u64::from(low)
    }

    pub fn accept_features(&self, features: u64) {
        self.write(DRIVER_FEATURES_SELECT, 0);
        self.write(DRIVER_FEATURES, features as u32);
        if self.legacy {
            return self.write(LEGACY_PAGE_SIZE, 4096);
        }
        self.write(DRIVER_FEATURES_SELECT, 1);
        self.write(DRIVER_FEATURES, (features >> 32) as u32);
    }

    pub fn make_queue(&self, index: u16, most: u16, event_index: bool) -> Result<Queue> {
        self.write(QUEUE_SELECT, index.into());
        let size = queue_size(self.read(QUEUE_SIZE_MAX).min(u32::from(u16::MAX)) as u16, most)?;
        let bell = physical_to_virtual(self.base + QUEUE_NOTIFY as u64);
        let queue = Queue::new(index, size, event_index, bell, true)?;
        self.write(QUEUE_SIZE, size.into());
        if self.legacy {
            self.write(LEGACY_QUEUE_ALIGN, 4096);
            self.write(LEGACY_QUEUE_PAGE, (queue.descriptors_physical() >> 12) as u32);
        } else {
            self.write_wide(QUEUE_DESCRIPTORS, queue.descriptors_physical());
            self.write_wide(QUEUE_DRIVER, queue.available_physical());
            self.write_wide(QUEUE_DEVICE, queue.used_physical());
            self.write(QUEUE_READY, 1);
        }
        Ok(queue)
    }

    pub fn on_interrupt(&self, work: DeferredWork) -> Result<()> {
        // Lives as long as the machine.
        let target = Box::leak(Box::new(Target { base: self.base, work }));
        plat_pc::route(self.line, interrupt, core::ptr::from_ref(target) as usize)
    }

    pub fn config_generation(&self) -> u32 {
        if self.legacy { 0 } else { self.read(CONFIG_GENERATION) }
    }

    pub fn config_u8(&self, offset: usize) -> u8 {
        let address = physical_to_virtual::<u8>(self.base + (CONFIG + offset) as u64);
        // SAFETY: the configuration is part of the window.
        unsafe { address.read_volatile() }
    }

    /// A number at a multiple of four.
    pub fn config_u32(&self, offset: usize) -> u32 {
        self.read(CONFIG + offset)
    }

    pub fn set_config_u8(&self, offset: usize, value: u8) {
        let address = physical_to_virtual::<u8>(self.base + (CONFIG + offset) as u64);
        // SAFETY: as above.
        unsafe { address.write_volatile(value) }
    }
}

struct Target {
    base: u64,
    work: DeferredWork,
}

/// Interrupt context. The line is acknowledged before the deferred work looks at the queues, so what the device adds later
/// raises it again. The line is the device's own, so its status is not read first: each register costs an exit to the
/// monitor, and acknowledging what is not there changes nothing.
fn interrupt(target: usize) {
    // SAFETY: `on_interrupt` registered a target that lives for ever.
    let target = unsafe { &*(target as *const Target) };
    write(target.base, INTERRUPT_ACKNOWLEDGE, USED_BUFFER | CONFIGURATION_CHANGED);
    api_sched::raise(target.work);
}
