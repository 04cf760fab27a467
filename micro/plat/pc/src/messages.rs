// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device's interrupts as messages (MSI-X; PCI Local Bus 3.0, 6.8.2): the table that says which write to memory each of them is.

use crate::pci::Function;
use crate::physical_to_virtual;

/// The capability's number.
pub const CAPABILITY_MSIX: u8 = 0x11;
const ENABLE: u32 = 1 << 31;
const MASK_ALL: u32 = 1 << 30;
/// Bytes of an entry, and where it is masked.
const ENTRY: u64 = 16;
const CONTROL: u64 = 12;
const MASKED: u32 = 1;

/// The table of a function. After a reset all entries are masked, and no message is sent.
#[derive(Clone, Copy, Debug)]
pub struct MessageTable {
    function: Function,
    capability: u8,
    window: u8,
    offset: u32,
    /// Physical address of the first entry.
    start: u64,
    entries: u16,
}

impl MessageTable {
    /// The table that this capability describes; `None` where the kernel cannot see it.
    pub fn at(function: Function, capability: u8) -> Option<MessageTable> {
        let entries = ((function.read(capability) >> 16 & 0x7ff) + 1) as u16;
        let place = function.read(capability + 4);
        let (window, offset) = (place as u8 & 7, place & !7);
        let start = function.structure(window, offset, u32::from(entries) * ENTRY as u32)?;
        Some(MessageTable { function, capability, window, offset, start, entries })
    }

    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Whether all of it is where the device answers. Costs a look at the window's size, before the device is used.
    pub fn lies_in_its_window(&self) -> bool {
        let end = u64::from(self.offset) + u64::from(self.entries) * ENTRY;
        end <= self.function.window_size(self.window)
    }

    /// Whatever firmware did with the entries is forgotten.
    pub fn mask_all(&self) {
        (0..self.entries).for_each(|entry| self.write(entry, CONTROL, MASKED));
    }

    /// The entry interrupts by the processor's vector from now on.
    pub fn set(&self, entry: u16, vector: u8) {
        let (address, data) = crate::message(vector);
        let words = [(0, address as u32), (4, (address >> 32) as u32), (8, data), (CONTROL, 0)];
        words.into_iter().for_each(|(offset, word)| self.write(entry, offset, word));
    }

    /// Messages are sent, by entries that are set.
    pub fn enable(&self) {
        self.function.write(self.capability, self.function.read(self.capability) & !MASK_ALL | ENABLE);
    }

    fn write(&self, entry: u16, offset: u64, value: u32) {
        assert!(entry < self.entries, "outside of the table");
        let address = self.start + u64::from(entry) * ENTRY + offset;
        // SAFETY: a word of the device's table, which the physical map shows.
        unsafe { physical_to_virtual::<u32>(address).write_volatile(value) }
    }
}
