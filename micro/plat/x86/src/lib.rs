// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What platforms on x86-64 share: the way from the program into the kernel and back, exceptions once they are off the
//! stack they came on, threads' registers, the clock page and the vDSO, random bytes, crash reports.
//!
//! A platform crate (`plat-pc`, `plat-process`) adds how it starts, where interrupts and exceptions come from, and the
//! functions of [`machine`]. `docs/explanation/entry.md` argues why entry and exit are right.
//!
//! Invariants this crate owns: GS base points to the processor's [`cpu::Cpu`] block once the platform set it; between
//! the labels of [`asm`] that name a way out, an interrupt sets RIP back to where pending work is looked for.
#![no_std]
extern crate alloc;

pub mod asm;
mod chacha;
pub mod clock;
mod context;
pub mod cpu;
pub mod crash;
pub mod entropy;
pub mod features;
#[cfg(all(not(test), panic = "abort"))]
mod image;
pub mod machine;
pub mod trap;

/// The time-stamp counter. Not ordered against other instructions.
#[inline]
pub fn rdtsc() -> u64 {
    // SAFETY: every 64-bit processor has it, and no platform takes it away from the kernel.
    unsafe { core::arch::x86_64::_rdtsc() }
}
