// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The platform of a process: the kernel and its program as one ordinary, sandboxed process of Linux, at native speed and
//! without a hypervisor. Implements every symbol of `api-plat`; `docs/explanation/process.md` explains the design and
//! says what is guaranteed.
//!
//! Invariants this crate owns:
//!
//! - **Address space.** The program has everything below [`api_plat::USER_END`]; image, stacks and memory of the kernel
//!   lie above, at fixed places. The machine's memory is one memfd: the kernel sees all of it at [`api_plat::PHYS`], the
//!   program sees pages of it where `api_plat::pages` put them. Nothing of the kernel is writable and executable.
//! - **Stacks.** Every signal of the host comes on one alternate stack. What may block is moved to the thread's kernel
//!   stack first and leaves by a jump, never by sigreturn; no signal is ever masked.
//! - **Host calls** are made here and in device drivers (through [`host`]) only, and after [`confine`] the host
//!   refuses all but those that [`filter`] lists.
//! - **Host processes.** Each shows one address space, and all have the kernel's memory in common ([`host_processes`]).
//! - **GS base** points to the processor's [`plat_x86::cpu::Cpu`] block from boot on.
//! - **Processors** are threads of the host, of which one at a time is in the kernel ([`processors`]).
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod arguments;
#[cfg(not(test))]
mod boot;
mod calls;
#[cfg(not(test))]
mod clock;
#[cfg(not(test))]
mod code;
#[cfg(not(test))]
mod confine;
#[cfg(not(test))]
mod console;
#[cfg(not(test))]
mod domain;
mod filter;
pub mod host;
#[cfg(not(test))]
mod host_processes;
#[cfg(not(test))]
mod idle;
#[cfg(all(not(test), panic = "abort"))]
mod image;
#[cfg(not(test))]
mod memory;
#[cfg(not(test))]
mod power;
#[cfg(not(test))]
mod processors;
#[cfg(not(test))]
mod signals;
#[cfg(not(test))]
mod stack;
#[cfg(not(test))]
mod template;

pub use arguments::{Arguments, Disk, Link, Network};
#[cfg(not(test))]
pub use boot::arguments;
pub use calls::CALLS;
#[cfg(not(test))]
pub use confine::confine;
#[cfg(not(test))]
pub use idle::{Watch, watch};
#[cfg(not(test))]
pub use plat_x86::asm::system_call_entry;
#[cfg(not(test))]
pub use plat_x86::crash::{panic, print_backtrace, warn};
#[cfg(not(test))]
pub use signals::trapped_calls;
