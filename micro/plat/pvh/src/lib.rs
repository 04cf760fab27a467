// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What whoever boots a PC kernel hands to it: the PVH start information (Xen `public/arch-x86/hvm/start_info.h`). Its
//! physical address is in EBX at the kernel's first instruction, which runs in 32 bits without paging. The kernel reads it,
//! and our own loaders write it.
#![no_std]
#![forbid(unsafe_code)]

/// [`StartInfo::magic`].
pub const MAGIC: u32 = 0x336e_c578;
/// The version that has a memory map.
pub const VERSION: u32 = 1;

/// `XEN_HVM_MEMMAP_TYPE_RAM`, `_RESERVED`, `_ACPI` and `_NVS`.
pub const RAM: u32 = 1;
pub const RESERVED: u32 = 2;
pub const ACPI: u32 = 3;
pub const NVS: u32 = 4;

/// `hvm_start_info`. Addresses are physical.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StartInfo {
    pub magic: u32,
    pub version: u32,
    pub flags: u32,
    pub modules: u32,
    pub module_list: u64,
    /// Ends with a NUL byte.
    pub command_line: u64,
    /// ACPI's root pointer, or 0.
    pub rsdp: u64,
    pub memory_map: u64,
    pub memory_map_entries: u32,
    pub reserved: u32,
}

/// `hvm_modlist_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Module {
    pub address: u64,
    /// Bytes.
    pub size: u64,
    pub command_line: u64,
    pub reserved: u64,
}

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    pub address: u64,
    /// Bytes.
    pub size: u64,
    pub kind: u32,
    pub reserved: u32,
}

/// [`Framebuffer::magic`]: "unilithf".
pub const FRAMEBUFFER: u64 = u64::from_le_bytes(*b"unilithf");

/// What our own loaders say of the screen, in a module of the start information behind the first one. Other loaders have none of
/// that size which begins like it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framebuffer {
    pub magic: u64,
    /// Physical.
    pub address: u64,
    /// Bytes from there on that are shown or may be written.
    pub bytes: u64,
    /// Pixels.
    pub width: u32,
    pub height: u32,
    /// Bytes from a row to the next one; a pixel has four.
    pub pitch: u32,
    /// The bits of a pixel that are of a colour.
    pub red: u32,
    pub green: u32,
    pub blue: u32,
}
