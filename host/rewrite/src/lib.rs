// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the system-call sites of an ELF file with a real decoder, and chooses for each the instructions that a jump
//! to a stub replaces (`api-sites` is the contract).
//!
//! Never wrong is worth more than complete: a site that is left out still works, by the trap. So code is decoded from
//! the starts of functions (symbols, .eh_frame), data between functions is not taken for code, and an instruction is
//! only overwritten where nothing can jump into the middle of the jump that replaces it. Left out on purpose:
//! `rt_sigreturn`, whose bytes unwinders look for (libgcc, gdb).
//!
//! [`probe`] plans jumps at the beginning of functions of a running program. [`needs`] answers another question from the same decoding: which system calls a program and its libraries can make.
#![forbid(unsafe_code)]

mod code;
mod frames;
mod needs;
pub mod probe;
mod sites;
mod vectors;

pub use needs::{Needs, Object, needs};
pub use sites::{Missed, Scan, constant, writes};
pub use vectors::vector_use;

/// Changes when the same file would get another table.
pub const VERSION: &str = "3";

/// Where the exceptions of a function land (the language-specific data area of the Itanium C++ ABI's exception handling). `table` is
/// the section with such areas, `at` where in it that of the function is; addresses are relative to whatever `function` is.
/// `None`: it could not be read to its end.
pub fn landing_pads(table: &[u8], at: u64, function: u64, found: &mut dyn FnMut(u64)) -> Option<()> {
    frames::landing_pads(frames::Loaded { address: 0, bytes: table }, at, function, found)
}

/// Finds the sites of a file and what could not be made one. An error is one line and means that the file cannot be
/// read as a 64-bit x86 ELF file.
pub fn scan(elf: &[u8]) -> Result<Scan, String> {
    sites::scan(&code::Code::read(elf)?)
}
