// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the hypervisor (`public/xen.h`), by the code that it writes for this processor: 32 bytes for each call's number.

use crate::{KERNEL_BASE, asm::unilith_hypercalls};
use core::arch::asm;

pub const MEMORY_OP: u64 = 12;
pub const SCHED_OP: u64 = 29;
pub const EVENT_CHANNEL_OP: u64 = 32;
pub const HVM_OP: u64 = 34;

/// The machine itself.
pub const DOMID_SELF: u16 = 0x7ff0;

const ENTRY: u64 = 32;

/// Physical address of the calls' code.
pub fn page() -> u64 {
    unilith_hypercalls.address() - KERNEL_BASE
}

/// Makes a call with two arguments; negative answers are errors.
///
/// # Safety
///
/// Xen has filled the page, and does by this call what keeps the kernel's invariants.
pub unsafe fn call2(number: u64, first: u64, second: u64) -> i64 {
    let answer;
    // SAFETY: by the caller's word. Xen may change the arguments' registers, and no others (`arch-x86/xen-x86_64.h`).
    unsafe {
        asm!("call {code}", code = in(reg) unilith_hypercalls.address() + number * ENTRY,
            inlateout("rdi") first => _, inlateout("rsi") second => _, out("rax") answer);
    }
    answer
}
