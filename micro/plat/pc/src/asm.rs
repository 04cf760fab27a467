// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Rust sees of the assembly (`image.rs`).

use crate::KERNEL_BASE;
use crate::trap::Trap;
use api_plat::{FastCall, Frame, Vdso};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Bytes of the boot stack and of each IST stack.
pub const STACK_BOOT: usize = 32 << 10;
pub const STACK_IST: usize = 16 << 10;

/// Numbers the fast path looks up.
pub const FAST_NUMBERS: usize = 512;

/// Calls that are entered without a Frame, by number; null where there is none.
pub static FAST_CALLS: [AtomicPtr<()>; FAST_NUMBERS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; FAST_NUMBERS];

#[unsafe(no_mangle)]
unsafe fn unilith_plat_set_fast_call(number: u32, call: FastCall) {
    FAST_CALLS[number as usize].store(call as *mut (), Ordering::Relaxed);
}

// The processor pushes SS, RSP, RFLAGS, CS and RIP at a multiple of 16, and the stubs build the Frame around them.
const _: () = assert!(size_of::<Frame>().is_multiple_of(16));
const _: () = assert!(size_of::<Frame>() - offset_of!(Frame, rip) == 5 * 8);
const _: () = assert!(size_of::<Trap>().is_multiple_of(16));

/// An address in the assembly; only its address has a meaning.
#[repr(transparent)]
pub struct Label(u8);

impl Label {
    pub fn address(&'static self) -> u64 {
        core::ptr::from_ref(self) as u64
    }
}

unsafe extern "C" {
    pub safe static unilith_pml4: Label;
    pub safe static unilith_pdpt_physical: Label;
    pub safe static unilith_pdpt_kernel: Label;
    pub safe static unilith_pd_kernel: Label;
    pub safe static unilith_stack_boot_top: Label;
    pub safe static unilith_stack_interrupt_top: Label;
    pub safe static unilith_stack_exception_top: Label;
    pub safe static unilith_stack_fatal_top: Label;
    pub safe static unilith_first_tsc: u64;
    pub static mut unilith_gdt: [u64; 5];
    pub safe static unilith_entry: Label;
    pub safe static unilith_fast_check: Label;
    pub safe static unilith_fast_tail: Label;
    pub safe static unilith_call_check: Label;
    pub safe static unilith_call_tail: Label;
    pub safe static unilith_full_check: Label;
    pub safe static unilith_full_iret: Label;
    pub safe static unilith_vectors: Label;
    pub safe static unilith_thread_start: Label;
    safe static unilith_vdso: Label;
    // The linker script's.
    pub safe static __kernel_start: Label;
    pub safe static __text_end: Label;
    pub safe static __rodata_end: Label;
    pub safe static __kernel_end: Label;
}

/// The guard pages of the boot processor's stacks, lowest first.
pub fn stack_guards() -> [(u64, &'static str); 4] {
    let boot = STACK_BOOT as u64 + 4096;
    let ist = STACK_IST as u64 + 4096;
    [
        (unilith_stack_boot_top.address() - boot, "the boot stack"),
        (unilith_stack_interrupt_top.address() - ist, "the interrupt stack"),
        (unilith_stack_exception_top.address() - ist, "the exception stack"),
        (unilith_stack_fatal_top.address() - ist, "the stack of double faults"),
    ]
}

/// True when `length` bytes below `top` are inside the boot stack.
pub fn on_boot_stack(top: u64, length: u64) -> bool {
    let end = unilith_stack_boot_top.address();
    top <= end && top - length >= end - STACK_BOOT as u64
}

/// Where a patched system-call site jumps to, with the return address in RCX and the number in RAX; R11 is free.
pub fn system_call_entry() -> u64 {
    unilith_entry.address()
}

#[unsafe(no_mangle)]
fn unilith_plat_vdso() -> Vdso {
    let data = core::ptr::from_ref(crate::clock::page()) as u64 - KERNEL_BASE;
    Vdso { data, code: unilith_vdso.address() - KERNEL_BASE }
}
