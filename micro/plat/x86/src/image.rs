// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly files. Only kernel images, which do not unwind, link them: tests of the crates above leave them out.

use crate::asm::{FAST_CALLS, FAST_NUMBERS, LEAVE_TO_OVERLAY, PROGRAM_FLAGS};
use crate::{clock::ClockPage, cpu::Cpu, trap::Trap};
use api_plat::{FRAME_VECTORS, TrapFrame};
use core::arch::global_asm;
use core::mem::{offset_of, size_of};

global_asm!(
    include_str!("entry.s"),
    SEVERAL = const api_plat::SEVERAL as u32,
    BY_POINTERS = const (api_plat::SEVERAL && api_plat::KERNEL_IN_LAST_2_GIB) as u32,
    ABSOLUTE = const api_plat::KERNEL_IN_LAST_2_GIB as u32,
    CODE = const api_plat::CODE_SEGMENT,
    DATA = const api_plat::DATA_SEGMENT,
    GS_FRAME = const offset_of!(Cpu, frame),
    GS_WORK = const offset_of!(Cpu, work),
    FAST_CALLS = sym FAST_CALLS,
    LEAVE_TO_OVERLAY = sym LEAVE_TO_OVERLAY,
    FAST_NUMBERS = const FAST_NUMBERS,
    PROGRAM_FLAGS = const PROGRAM_FLAGS,
    FRAME_SIZE = const size_of::<TrapFrame>(),
    FRAME_VECTORS = const FRAME_VECTORS,
    TRAP_SIZE = const size_of::<Trap>(),
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
    ENTRY = const offset_of!(TrapFrame, entry),
    RIP = const offset_of!(TrapFrame, rip),
    CS = const offset_of!(TrapFrame, cs),
    RFLAGS = const offset_of!(TrapFrame, rflags),
    RSP = const offset_of!(TrapFrame, rsp),
    SS = const offset_of!(TrapFrame, ss),
);

global_asm!(
    include_str!("vdso.s"),
    SEQUENCE = const offset_of!(ClockPage, sequence),
    ASKS = const offset_of!(ClockPage, asks),
    BASE_TSC = const offset_of!(ClockPage, base_tsc),
    BASE_NS = const offset_of!(ClockPage, base_ns),
    RATE = const offset_of!(ClockPage, rate),
    WALL_NS = const offset_of!(ClockPage, wall_ns),
    GS_INDEX = const offset_of!(Cpu, index),
);

global_asm!(include_str!("memory_functions.s"));
