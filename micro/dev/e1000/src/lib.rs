// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel's gigabit network cards that virtual machine monitors emulate, behind `api-netdev`: the 82540EM (QEMU's and VirtualBox's
//! `e1000`), the 82545EM (VMware's `e1000`), the 82574L (`e1000e` of QEMU and VMware) and the 82576 (QEMU's `igb`).
//!
//! Registers and descriptors are those of Intel's *PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's
//! Manual* (317453, for the 8254x; "SDM" below), *82574 GbE Controller Family Datasheet* (335553) and *82576EB Gigabit Ethernet
//! Controller Datasheet* (320961). What all have in common is enough: one receive ring and one transmit ring, no offloads but the look
//! at received checksums. The 82576 has rings, causes and descriptors of its own (`register.rs`, `descriptor.rs`). It and the 82574
//! interrupt by a message (MSI). The 8254x has an interrupt line only; `pci.rs` says what becomes of it.
//!
//! Everything that a card writes is untrusted. The driver reads the ring's descriptors that the card has, in order, and nothing that
//! the card could use as an index; a length that exceeds the buffer ends the driver's work with this card in one line.
//!
//! Invariants this crate owns: memory given to a card lies in the kernel heap (physically contiguous, seen at `PHYS`) and stays
//! allocated until the card gave it back or was reset.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod card;
mod descriptor;
#[cfg(test)]
mod model;
mod pci;
mod register;
mod ring;

pub use pci::start;
