// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the firmware, and interrupts, which only it has.
//!
//! Firmware takes its timer's interrupts on the stack that it finds (UEFI 2.10, 2.3.4), and below the stack pointer of a function that
//! calls no other the compiler has variables (System V ABI for AMD64, 3.2.2, "the red zone"), also in the parts of the standard library, which come
//! compiled. So the stub runs with interrupts off, and has them on where it calls firmware: a function that calls has none there.

use core::arch::asm;

/// Makes a call of firmware's. Everything that firmware offers is called by this, which a test of this crate sees to.
#[inline(always)]
pub fn call<T>(call: impl FnOnce() -> T) -> T {
    allow_interrupts();
    let answer = call();
    forbid_interrupts();
    answer
}

/// The first thing that the stub does.
#[inline(always)]
pub fn forbid_interrupts() {
    // SAFETY: firmware runs everything at CPL 0, and what it has to do waits.
    unsafe { asm!("cli", options(nostack)) }
}

/// The last thing that the stub does, if it goes back to firmware.
#[inline(always)]
pub fn allow_interrupts() {
    // SAFETY: so firmware called the stub. Whoever does this calls firmware next or returns to it, so nothing is below the stack pointer.
    unsafe { asm!("sti", options(nostack)) }
}
