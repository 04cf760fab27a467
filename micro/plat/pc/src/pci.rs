// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI configuration by ports 0xcf8 and 0xcfc, bus 0 (PCI Local Bus 3.0, 3.2.2.3.2).

use crate::x86::{inl, outl};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
const ENABLE: u32 = 1 << 31;

const COMMAND: u8 = 0x04;
const COMMAND_MEMORY: u32 = 1 << 1;
const COMMAND_BUS_MASTER: u32 = 1 << 2;
const COMMAND_NO_INTX: u32 = 1 << 10;
const STATUS_CAPABILITIES: u32 = 1 << 20;
const FIRST_BAR: u8 = 0x10;
const SUBSYSTEM: u8 = 0x2c;
const CAPABILITIES: u8 = 0x34;
/// Most capabilities that fit the configuration space: a longer list goes in circles.
const CAPABILITIES_MOST: usize = 48;

/// Windows that no firmware placed go here: below the I/O APIC, above what QEMU's firmware uses.
const WINDOWS: u32 = 0xfd00_0000;
const WINDOWS_END: u32 = 0xfe00_0000;
static NEXT_WINDOW: AtomicU32 = AtomicU32::new(WINDOWS);

/// A function of a device on bus 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    device: u8,
    function: u8,
}

/// True on a machine with PCI: every one has its host bridge at 0.
pub fn is_there() -> bool {
    Function { device: 0, function: 0 }.id().0 != 0xffff
}

/// All functions on bus 0; none on a machine without PCI.
pub fn functions() -> Vec<Function> {
    let mut found = Vec::new();
    for device in 0..if is_there() { 32 } else { 0 } {
        let first = Function { device, function: 0 };
        if first.id().0 == 0xffff {
            continue;
        }
        found.push(first);
        let many = first.read(0x0c) & 1 << 23 != 0;
        for function in 1..if many { 8 } else { 1 } {
            let next = Function { device, function };
            if next.id().0 != 0xffff {
                found.push(next);
            }
        }
    }
    found
}

impl Function {
    fn select(self, register: u8) {
        let place = u32::from(self.device) << 11 | u32::from(self.function) << 8 | u32::from(register & !3);
        // SAFETY: selects the register that the next access to the data port means.
        unsafe { outl(ADDRESS, ENABLE | place) };
    }

    /// A register, at a multiple of four.
    pub fn read(self, register: u8) -> u32 {
        self.select(register);
        // SAFETY: configuration registers may be read.
        unsafe { inl(DATA) }
    }

    /// Writes a register, at a multiple of four. One processor and thread context only: two accesses belong together.
    pub fn write(self, register: u8, value: u32) {
        self.select(register);
        // SAFETY: what the device does is the driver's business; its windows were placed by `enable`.
        unsafe { outl(DATA, value) };
    }

    /// Vendor and device.
    pub fn id(self) -> (u16, u16) {
        let id = self.read(0);
        (id as u16, (id >> 16) as u16)
    }

    /// Subsystem number.
    pub fn subsystem(self) -> u16 {
        (self.read(SUBSYSTEM) >> 16) as u16
    }

    /// Capabilities: number and where.
    pub fn capabilities(self) -> Vec<(u8, u8)> {
        let mut list = Vec::new();
        if self.read(COMMAND) & STATUS_CAPABILITIES == 0 {
            return list;
        }
        let mut at = self.read(CAPABILITIES) as u8 & !3;
        while at != 0 && list.len() < CAPABILITIES_MOST {
            let header = self.read(at);
            list.push((header as u8, at));
            at = (header >> 8) as u8 & !3;
        }
        list
    }

    /// Places windows that firmware left out, and lets the device answer and reach memory. No INTx: drivers use
    /// messages.
    pub fn enable(self) {
        let mut i = 0;
        while i < 6 {
            i += self.place(i);
        }
        let command = self.read(COMMAND) & 0xffff;
        self.write(COMMAND, command | COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_NO_INTX);
    }

    /// Places window `i` if it has no address; answers how many registers it takes.
    fn place(self, i: u8) -> u8 {
        let register = FIRST_BAR + 4 * i;
        let value = self.read(register);
        if value & 1 != 0 {
            return 1;
        }
        let registers = if value & 6 == 4 { 2 } else { 1 };
        let high = if registers == 2 { self.read(register + 4) } else { 0 };
        if value & !15 != 0 || high != 0 {
            return registers;
        }
        // The bits that can be written tell the size.
        self.write(register, !0);
        let size = (!(self.read(register) & !15)).wrapping_add(1);
        self.write(register, value);
        if size == 0 {
            return registers;
        }
        let start = NEXT_WINDOW.load(Ordering::Relaxed).next_multiple_of(size.max(4096));
        if size <= WINDOWS_END - WINDOWS && start <= WINDOWS_END - size {
            NEXT_WINDOW.store(start + size, Ordering::Relaxed);
            self.write(register, start);
        }
        registers
    }

    /// Physical address of a structure of so many bytes in memory window `i`, which the kernel sees from now on; `None` when
    /// there is no such window, or it lies where the kernel cannot see it.
    pub fn structure(self, i: u8, offset: u32, length: u32) -> Option<u64> {
        let start = self.bar(i)?.checked_add(offset.into())?;
        crate::paging::show_window(start, length.into()).then_some(start)
    }

    fn bar(self, i: u8) -> Option<u64> {
        if i >= 6 {
            return None;
        }
        let register = FIRST_BAR + 4 * i;
        let low = self.read(register);
        if low & 1 != 0 {
            return None;
        }
        let high = if low & 6 == 4 && i < 5 { self.read(register + 4) } else { 0 };
        let address = u64::from(high) << 32 | u64::from(low & !15);
        (address != 0).then_some(address)
    }
}
