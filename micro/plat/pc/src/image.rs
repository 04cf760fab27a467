// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly files. Only kernel images, which do not unwind, link them: tests of the crates above leave them out.

use crate::asm::{STACK_BOOT, STACK_IST};
use crate::interrupt;
use api_plat::TrapFrame;
use core::arch::global_asm;
use core::mem::offset_of;
use plat_x86::cpu::Cpu;

global_asm!(
    include_str!("boot.s"),
    STACK_BOOT = const STACK_BOOT,
    STACK_IST = const STACK_IST,
    SMP = const cfg!(feature = "smp") as u32,
    START_PAGE = const crate::pvh::START_PAGE,
    options(att_syntax)
);

global_asm!(
    include_str!("vectors.s"),
    VECTORS = const interrupt::VECTORS,
    GS_WORK = const offset_of!(Cpu, work),
    GS_DOMAIN = const offset_of!(Cpu, domain),
    IA32_PKRS = const crate::x86::IA32_PKRS,
    CR4_SMEP = const crate::domain::CR4_SMEP,
    PROGRAM_FLAGS = const plat_x86::asm::PROGRAM_FLAGS,
    CODE = const api_plat::CODE_SEGMENT,
    DATA = const api_plat::DATA_SEGMENT,
    ENTRY = const offset_of!(TrapFrame, entry),
    CS = const offset_of!(TrapFrame, cs),
    SS = const offset_of!(TrapFrame, ss),
    RFLAGS = const offset_of!(TrapFrame, rflags),
    ORIG_RAX = const offset_of!(TrapFrame, orig_rax),
    R15 = const offset_of!(TrapFrame, r15),
    R14 = const offset_of!(TrapFrame, r14),
    R13 = const offset_of!(TrapFrame, r13),
    R12 = const offset_of!(TrapFrame, r12),
    RBP = const offset_of!(TrapFrame, rbp),
    RBX = const offset_of!(TrapFrame, rbx),
    R11 = const offset_of!(TrapFrame, r11),
    R10 = const offset_of!(TrapFrame, r10),
    R9 = const offset_of!(TrapFrame, r9),
    R8 = const offset_of!(TrapFrame, r8),
    RDI = const offset_of!(TrapFrame, rdi),
    RSI = const offset_of!(TrapFrame, rsi),
    RDX = const offset_of!(TrapFrame, rdx),
    RCX = const offset_of!(TrapFrame, rcx),
    RAX = const offset_of!(TrapFrame, rax),
);

global_asm!(include_str!("memory_functions.s"));

// Xen writes the code of its calls there.
#[cfg(feature = "xen")]
global_asm!(
    ".pushsection .text.unilith_hypercalls,\"ax\",@progbits",
    ".balign 4096",
    ".globl unilith_hypercalls",
    "unilith_hypercalls: .skip 4096, 0xcc",
    ".popsection",
    options(att_syntax)
);
