// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The platform of a PC: guest of QEMU (q35, microvm), Firecracker, Cloud Hypervisor or Xen, entered by PVH. Implements every symbol of
//! `api-plat`; `docs/explanation/entry.md` explains the design of boot, entry and exit.
//!
//! Invariants this crate owns:
//!
//! - **Address space.** The kernel's half (PML4 entries 256 to 511) is complete after boot and the same in every
//!   address space: the physical map at [`PHYS`], kernel stacks in the last GiB, the image 2 GiB below the top.
//!   Nothing of the kernel is writable and executable.
//! - **Stacks.** Every interrupt and exception starts on an IST stack, with interrupts off. What may block is moved to
//!   the thread's kernel stack first, so an IST stack never holds more than one frame.
//! - **GS base** points to the processor's [`plat_x86::cpu::Cpu`] block from boot on.
//!
//! It may depend on `api-*` crates and on what has no memory or device of its own (`framebuffer` draws where this crate lets it); nothing but the kernel image, device drivers and memory management (for the
//! facts in this file) may depend on it.
#![no_std]
// What only several processors need of a file that one needs as well.
#![cfg_attr(not(feature = "smp"), allow(dead_code))]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(any(test, feature = "acpi", feature = "smp"))]
#[cfg_attr(test, allow(dead_code))]
mod acpi;
#[cfg(any(test, feature = "acpi"))]
#[cfg_attr(test, allow(dead_code))]
mod acpi_power;
#[cfg_attr(test, allow(dead_code))]
mod apic;
#[cfg(not(test))]
mod asm;
#[cfg(feature = "smp")]
mod atomic;
#[cfg(not(test))]
mod boot;
#[cfg(not(test))]
mod clock;
#[cfg(not(test))]
mod code;
#[cfg(not(test))]
mod cpu;
#[cfg(not(test))]
mod descriptors;
#[cfg(not(test))]
mod domain;
#[cfg(not(test))]
mod fw_cfg;
#[cfg(feature = "smp")]
#[cfg_attr(test, allow(dead_code))]
mod gate;
#[cfg(all(not(test), panic = "abort"))]
mod image;
#[cfg(not(test))]
mod interrupt;
#[cfg(all(not(test), feature = "smp"))]
mod memory_types;
#[cfg(not(test))]
pub mod messages;
#[cfg(all(test, feature = "smp"))]
mod model;
#[cfg(all(not(test), not(feature = "acpi")))]
#[path = "no_off_switch.rs"]
mod off_switch;
#[cfg(all(not(test), feature = "acpi"))]
mod off_switch;
#[cfg(not(test))]
mod paging;
#[cfg(not(test))]
pub mod pci;
#[cfg(not(test))]
mod power;
#[cfg_attr(test, allow(dead_code))]
mod processor;
#[cfg(all(not(test), not(feature = "smp")))]
#[path = "one_processor.rs"]
mod processors;
#[cfg(all(not(test), feature = "smp"))]
mod processors;
#[cfg(not(test))]
mod pvh;
mod ranges;
#[cfg(feature = "smp")]
#[cfg_attr(test, allow(dead_code))]
mod round;
#[cfg_attr(test, allow(dead_code))]
mod rtc;
#[cfg(all(not(test), feature = "framebuffer"))]
mod screen;
#[cfg(all(not(test), not(feature = "framebuffer")))]
#[path = "no_screen.rs"]
mod screen;
#[cfg(not(test))]
mod serial;
#[cfg(not(test))]
mod stack;
#[cfg(test)]
mod strict;
#[cfg(not(test))]
mod timer;
#[cfg(not(test))]
mod tools;
#[cfg(feature = "smp")]
#[cfg_attr(test, allow(dead_code))]
mod topology;
#[cfg(not(test))]
mod trap;
#[cfg_attr(test, allow(dead_code))]
mod windows;
pub mod x86;
#[cfg(all(not(test), feature = "xen"))]
pub mod xen;
#[cfg(any(test, not(feature = "xen")))]
#[path = "no_xen.rs"]
#[cfg_attr(test, allow(dead_code))]
mod xen;

#[cfg(not(test))]
pub use apic::message;
#[cfg(not(test))]
pub use boot::virtio_windows;
#[cfg(not(test))]
pub use interrupt::{allocate_vector, route};
#[cfg(not(test))]
pub use paging::kernel_table;
#[cfg(not(test))]
pub use plat_x86::asm::system_call_entry;
#[cfg(not(test))]
pub use plat_x86::crash::{panic, print_backtrace, warn};
#[cfg(not(test))]
pub use plat_x86::entropy::add_entropy;
#[cfg(not(test))]
pub use power::before_reports;
#[cfg(all(not(test), feature = "smp"))]
pub use processors::start as start_processors;
#[cfg(not(test))]
pub use serial::request_end;
#[cfg(not(test))]
pub use tools::set_source as set_tools_source;
pub use windows::{Line, VirtioWindow, Windows};

pub use api_plat::PHYS;
/// Where the kernel image's physical address 0 would be.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// First of the kernel stacks: the last GiB.
pub const STACKS: u64 = 0xffff_ffff_c000_0000;

/// Where the kernel sees physical address `physical`.
pub const fn physical_to_virtual<T>(physical: u64) -> *mut T {
    (PHYS + physical) as *mut T
}

/// Physical address of memory of the kernel heap or image, as devices see it.
pub fn physical<T>(pointer: *const T) -> u64 {
    let address = pointer as u64;
    if address >= KERNEL_BASE {
        debug_assert!(address < STACKS, "a kernel stack is not contiguous");
        address - KERNEL_BASE
    } else {
        debug_assert!(address >= PHYS, "not kernel memory");
        address - PHYS
    }
}
