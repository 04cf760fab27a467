// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an executable file to an address space that is ready to run: what execve(2) does to memory.
//!
//! ELF programs (static, static PIE, dynamic with their interpreter) and `#!` scripts; segments, bss, stack with
//! arguments, environment and auxiliary vector. Nothing here runs code of the program or needs its space to be active.
//!
//! # Contract
//!
//! - **Nothing in a file is trusted.** Whatever the bytes say, the answer is an errno (those of Linux'
//!   fs/binfmt_elf.c and fs/binfmt_script.c), never a panic, and no mapping outside of the program's half.
//! - On an error the space is half filled: the caller drops it and the old one stays. The error says whether Linux would have found it
//!   before or behind the point of no return.
//! - Files are read through their pages and mapped in place; only the page a bss starts in is touched.
//!
//! Depends on `mem` and the API crates; the system-call layer calls it.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod elf;
mod image;
mod script;
mod stack;

pub use image::{Executable, Failure, Identity, Interpreter, Loaded, Machine, Open, load};

#[cfg(test)]
mod tests;
