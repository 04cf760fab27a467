// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Rust sees of the assembly (`image.rs`).

use crate::KERNEL_BASE;
use api_plat::Vdso;
pub use plat_x86::asm::{
    __kernel_end, __kernel_start, __overlay_end, __overlay_start, __overlay_text_end, __text_end, Label,
    unilith_entry, unilith_vdso,
};

/// Bytes of the boot stack and of each IST stack.
pub const STACK_BOOT: usize = 32 << 10;
pub const STACK_IST: usize = 16 << 10;

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
    pub safe static unilith_processor_start: Label;
    safe static unilith_start_code: Label;
    safe static unilith_start_words: Label;
    safe static unilith_start_code_end: Label;
    static mut unilith_save_rest_at: u64;
    static mut unilith_leave_at: u64;
    safe static unilith_save_rest: Label;
    safe static unilith_save_rest_and_lock: Label;
    safe static unilith_leave: Label;
    safe static unilith_leave_unlocked: Label;
    pub static mut unilith_gdt: [u64; 5];
    pub safe static unilith_vectors: Label;
    pub safe static unilith_leave_to_overlay: Label;
    // The linker script's.
    pub safe static __gate_end: Label;
    pub safe static __rodata_end: Label;
    #[cfg(feature = "xen")]
    pub safe static unilith_hypercalls: Label;
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

/// The stacks that the processor itself writes to when something interrupts it.
pub fn interrupt_stacks() -> [core::ops::Range<u64>; 3] {
    [&unilith_stack_interrupt_top, &unilith_stack_exception_top, &unilith_stack_fatal_top]
        .map(|top| top.address() - STACK_IST as u64..top.address())
}

/// True when `length` bytes below `top` are inside the boot stack.
pub fn on_boot_stack(top: u64, length: u64) -> bool {
    let end = unilith_stack_boot_top.address();
    top <= end && top - length >= end - STACK_BOOT as u64
}

/// The code that a processor but the first begins with, for its place below 1 MiB.
pub fn start_code() -> &'static [u8] {
    let (start, end) = (unilith_start_code.address(), unilith_start_code_end.address());
    // SAFETY: the assembler's bytes between two labels.
    unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) }
}

/// Where in it the words are that the processor is started with.
pub fn start_words() -> u64 {
    unilith_start_words.address() - unilith_start_code.address()
}

/// The ways into the kernel and out of it lead through its lock from here on. While one processor runs.
pub fn lead_through_lock() {
    lead(unilith_save_rest_and_lock.address(), unilith_leave.address());
}

/// And around it. While the others are idle.
pub fn lead_around_lock() {
    lead(unilith_save_rest.address(), unilith_leave_unlocked.address());
}

fn lead(save_rest: u64, leave: u64) {
    // SAFETY: the ways read them once each. Only the caller's is under way, with the lock as its own: it leaves by the new one.
    unsafe {
        (&raw mut unilith_save_rest_at).write_volatile(save_rest);
        (&raw mut unilith_leave_at).write_volatile(leave);
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_vdso() -> Vdso {
    let data = core::ptr::from_ref(crate::clock::page()) as u64 - KERNEL_BASE;
    Vdso { data, code: unilith_vdso.address() - KERNEL_BASE }
}
