// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI configuration by ports 0xcf8 and 0xcfc (PCI Local Bus 3.0, 3.2.2.3.2): bus 0, and the buses behind bridges that firmware has
//! set up.

use crate::windows::Line;
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
const CLASS: u8 = 0x08;
const HEADER: u8 = 0x0c;
const HEADER_KIND: u32 = 0x7f << 16;
const HEADER_BRIDGE: u32 = 1 << 16;
/// The device has more functions than 0.
const HEADER_MANY: u32 = 1 << 23;
const FIRST_BAR: u8 = 0x10;
/// Of a bridge: the bus it is on, the one behind it, and the last one behind it.
const BUSES: u8 = 0x18;
const SUBSYSTEM: u8 = 0x2c;
const CAPABILITIES: u8 = 0x34;
const INTERRUPT: u8 = 0x3c;
/// Most capabilities that fit the configuration space: a longer list goes in circles.
const CAPABILITIES_MAX: usize = 48;

/// Windows that no firmware placed go here: below the I/O APIC, above what QEMU's firmware uses.
const WINDOWS: u32 = 0xfd00_0000;
const WINDOWS_END: u32 = 0xfe00_0000;
static NEXT_WINDOW: AtomicU32 = AtomicU32::new(WINDOWS);

/// A function of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    bus: u8,
    device: u8,
    function: u8,
}

/// True on a machine with PCI: every one has its host bridge at 0.
pub fn is_there() -> bool {
    !crate::xen::is_on() && Function { bus: 0, device: 0, function: 0 }.id().0 != 0xffff
}

/// All functions that firmware lets be reached; none on a machine without PCI.
pub fn functions() -> Vec<Function> {
    let mut found = Vec::new();
    let mut buses = Vec::new();
    if is_there() {
        buses.push(0);
    }
    let mut next = 0;
    while let Some(bus) = buses.get(next).copied() {
        next += 1;
        for device in 0..32 {
            let mut count = 1;
            let mut n = 0;
            while n < count {
                let function = Function { bus, device, function: n };
                n += 1;
                if function.id().0 == 0xffff {
                    // Without function 0 there is no device.
                    continue;
                }
                found.push(function);
                let header = function.read(HEADER);
                if n == 1 && header & HEADER_MANY != 0 {
                    count = 8;
                }
                if header & HEADER_KIND == HEADER_BRIDGE {
                    // 0 where no firmware has given it a number; a bridge that names a bus that is known leads in a circle.
                    let behind = (function.read(BUSES) >> 8) as u8;
                    if behind != 0 && !buses.contains(&behind) {
                        buses.push(behind);
                    }
                }
            }
        }
    }
    found
}

impl Function {
    fn select(self, register: u8) {
        let place = u32::from(self.bus) << 16
            | u32::from(self.device) << 11
            | u32::from(self.function) << 8
            | u32::from(register & !3);
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

    /// Base class, sub-class and programming interface, a byte each.
    pub fn class(self) -> u32 {
        self.read(CLASS) >> 8
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
        while at != 0 && list.len() < CAPABILITIES_MAX {
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

    /// Takes the device's way to memory away.
    pub fn disable(self) {
        let command = self.read(COMMAND) & 0xffff;
        self.write(COMMAND, command & !COMMAND_BUS_MASTER);
    }

    /// Lets a device without messages use its interrupt line; answers which input of the old interrupt controller firmware says it
    /// is. The I/O APIC has the same inputs on QEMU's PCs; elsewhere interrupts may never come.
    pub fn enable_line(self) -> Option<Line> {
        let line = self.read(INTERRUPT);
        let command = self.read(COMMAND) & 0xffff;
        self.write(COMMAND, command & !COMMAND_NO_INTX);
        // Bits 8 to 15 are the pin. The timer has 0, 2 is the second controller.
        (line & 0xff00 != 0 && matches!(line as u8, 3..=15)).then_some(Line(line as u8))
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

    /// Bytes of memory window `i`, 0 without one. The device answers nothing meanwhile: call before it is used.
    pub fn window_size(self, i: u8) -> u64 {
        if i >= 6 {
            return 0;
        }
        let register = FIRST_BAR + 4 * i;
        let low = self.read(register);
        if low & 1 != 0 {
            return 0;
        }
        let is_wide = low & 6 == 4 && i < 5;
        let high = if is_wide { self.read(register + 4) } else { 0 };
        let command = self.read(COMMAND) & 0xffff;
        self.write(COMMAND, command & !COMMAND_MEMORY);
        // The bits that can be written tell the size (PCI Local Bus 3.0, 6.2.5.1).
        self.write(register, !0);
        let mut bits = u64::from(self.read(register) & !15) | u64::from(u32::MAX) << 32;
        self.write(register, low);
        if is_wide {
            self.write(register + 4, !0);
            bits = bits & 0xffff_ffff | u64::from(self.read(register + 4)) << 32;
            self.write(register + 4, high);
        }
        self.write(COMMAND, command);
        (!bits).wrapping_add(1)
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
