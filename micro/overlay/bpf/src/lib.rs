// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF: verify a program, then run it. The instruction set of RFC 9669 (every conformance group but the legacy packet
//! access), the maps and helper functions of Linux that make sense here with Linux' numbers.
//!
//! # Contract
//!
//! - **Nothing in a [`Bundle`] is trusted.** Decoding, creating maps and verifying answer with an error that says in
//!   words what is wrong, never with a panic, and are bounded in time and memory.
//! - **Only a [`Verified`] program runs**, and only [`verify()`] makes one. A verified program ends within
//!   [`verify::MAX_STEPS`] instructions on any path, reads only what is initialised, touches only its stack, its
//!   context, values of its maps and records of its ring buffers, and calls helpers with arguments they accept.
//! - Running needs no memory: maps are allocated when they are created. Nothing blocks.
//! - The caller runs programs with interrupts off, one at a time on each processor ([`Program::run`]); maps may be
//!   read by others at any time through [`maps::Map`].
//!
//! The [`interpreter`] trusts the verifier with nothing: every access is checked against the pieces of memory the
//! program has, in an address space of its own. The [`jit`] is the one module with unsafe code.
//!
//! Depends on nothing; `micro/overlay/trace` attaches programs, `host/overlay` reads object files into bundles.
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bundle;
pub mod context;
pub mod helpers;
pub mod insn;
pub mod interpreter;
pub mod jit;
pub mod maps;
mod print;
pub mod verify;

pub use bundle::{Bundle, BundleError};
pub use context::Context;
pub use helpers::Environment;
pub use insn::Insn;
pub use verify::{Rejection, Verified, verify};

#[cfg(test)]
mod tests;
