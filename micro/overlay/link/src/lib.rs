// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links relocatable ELF objects (System V ABI chapters 4 and 5, AMD64 supplement) into a program that can be placed
//! anywhere in memory.
//!
//! # Contract
//!
//! - [`Plan::new`] reads the objects, settles which definition each symbol has (own, of the [`Resolver`], weak, common,
//!   one of several comdat groups) and how much room the program needs. [`Plan::place`] makes its bytes for an address.
//! - **Nothing in an object is trusted.** Every offset, index and size is checked; sizes are limited ([`OBJECT_MAX`],
//!   [`IMAGE_MAX`]); what is wrong is an [`Error`] of one line that names the object. `tests/damaged.rs` throws broken
//!   objects at it.
//! - **Nothing is writable and executable.** A program is three segments: text, read-only data, data. The tables that
//!   are filled at the start (addresses of indirect functions) are in the data segment.
//! - Calls out of the program go through stubs of its own, so it may lie anywhere; a data symbol that is out of reach of
//!   an instruction is an error that says how to compile instead.
//! - A program is single-threaded. Its thread-local variables lie in its data segment, below a thread control block to
//!   which FS has to point if [`Image::uses_fs`] says so (local-exec and initial-exec code); general-dynamic code goes
//!   without FS.
//!
//! It depends on nothing but `alloc` and the overlay's small sort, and runs on the host as well.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod apply;
mod code;
mod elf;
mod error;
mod image;
mod plan;
mod scan;
mod symbols;

pub use error::Error;
pub use image::{Image, Place, Symbol};
pub use plan::Plan;

/// Most bytes of one object: a program of the overlay is some kilobytes; this is a large one with debug information.
pub const OBJECT_MAX: usize = 2 << 20;
/// Most objects linked into one program.
pub const OBJECTS_MAX: usize = 64;
/// Most bytes of a program in memory.
pub const IMAGE_MAX: u64 = 4 << 20;

/// Interrupt vector by which a program calls the kernel: reserved by Intel, and raised by no processor.
pub const GATE: u8 = 31;
/// Number of the call that ends the program with the exit status in EDI.
pub const CALL_EXIT: u32 = 0;
/// Number of the call that ends the program because its stack canary was overwritten.
pub const CALL_SMASHED: u32 = 1;

/// An object to link.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// For messages.
    pub name: &'a str,
    pub bytes: &'a [u8],
}

/// What a symbol that no object defines is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// Code at an address.
    Function(u64),
    /// Data at an address.
    Data(u64),
    /// Code at the address that a function at this address answers (STT_GNU_IFUNC).
    Indirect(u64),
    /// The kernel call of this number.
    Call(u32),
    /// A thread-local variable of the application, which has no one address.
    ThreadLocal,
}

/// Knows the symbols that are not in the objects.
pub trait Resolver {
    fn resolve(&self, name: &[u8]) -> Option<Definition>;
}

impl<F: Fn(&[u8]) -> Option<Definition>> Resolver for F {
    fn resolve(&self, name: &[u8]) -> Option<Definition> {
        self(name)
    }
}
