// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel's gigabit network cards that virtual machine monitors emulate, behind `api-netdev`: the 82540EM (QEMU's and VirtualBox's
//! `e1000`), the 82545EM (VMware's `e1000`) and the 82574L (`e1000e` of QEMU and VMware).
//!
//! Registers and descriptors are those of Intel's *PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's
//! Manual* (317453, for the 8254x; "SDM" below) and *82574 GbE Controller Family Datasheet* (335553). What both have in
//! common is enough: one receive ring and one transmit ring of legacy descriptors, no offloads but the look at received
//! checksums. The 82574 interrupts by a message (MSI). The 8254x has an interrupt line only; `pci.rs` says what becomes of it.
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
#[cfg(test)]
mod model;
mod pci;
mod register;
mod ring;

pub use pci::start;
