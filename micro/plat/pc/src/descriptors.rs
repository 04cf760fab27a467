// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The task-state segment with the IST stacks, and the interrupt descriptor table.

use crate::asm;
use crate::interrupt::VECTORS;
use core::arch::asm;
use core::mem::size_of;

/// Intel SDM volume 3, figure 8-11.
#[repr(C, packed)]
struct TaskState {
    reserved0: u32,
    rsp: [u64; 3],
    reserved1: u64,
    ist: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    io_map: u16,
}

static mut TASK_STATE: TaskState = TaskState {
    reserved0: 0,
    rsp: [0; 3],
    reserved1: 0,
    ist: [0; 7],
    reserved2: 0,
    reserved3: 0,
    io_map: size_of::<TaskState>() as u16,
};
static mut TABLE: [[u64; 2]; VECTORS] = [[0; 2]; VECTORS];

const IST_INTERRUPT: u64 = 1;
const IST_EXCEPTION: u64 = 2;
const IST_FATAL: u64 = 3;

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Loads both. Exceptions are reported from here on.
pub fn initialize() {
    // SAFETY: runs once, on the boot processor, before anything else could use the tables, which live for ever.
    unsafe {
        let task_state = &raw mut TASK_STATE;
        let mut ist = [0; 7];
        ist[IST_INTERRUPT as usize - 1] = asm::unilith_stack_interrupt_top.address();
        ist[IST_EXCEPTION as usize - 1] = asm::unilith_stack_exception_top.address();
        ist[IST_FATAL as usize - 1] = asm::unilith_stack_fatal_top.address();
        (*task_state).ist = ist;
        let base = task_state as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        let gdt = &raw mut asm::unilith_gdt;
        (*gdt)[3] = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        (*gdt)[4] = base >> 32;
        let pointer = Pointer { limit: size_of::<[u64; 5]>() as u16 - 1, base: gdt as u64 };
        asm!("lgdt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
        asm!("ltr {:x}", in(reg) 0x18u16, options(nostack, preserves_flags));

        let table = &raw mut TABLE;
        for vector in 0..VECTORS {
            let stub = asm::unilith_vectors.address() + vector as u64 * 16;
            let ist = match vector {
                // Double fault, NMI and machine check may hit anywhere, the exception stack included.
                2 | 8 | 18 => IST_FATAL,
                0..=31 => IST_EXCEPTION,
                _ => IST_INTERRUPT,
            };
            let gate = (stub & 0xffff) | 8 << 16 | ist << 32 | 0x8e << 40 | (stub >> 16 & 0xffff) << 48;
            (*table)[vector] = [gate, stub >> 32];
        }
        let pointer = Pointer { limit: size_of::<[[u64; 2]; VECTORS]>() as u16 - 1, base: table as u64 };
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
    }
}
