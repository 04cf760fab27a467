// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly files. Only kernel images, which do not unwind, link them: tests of the crates above leave them out.

use crate::asm::{FAST_CALLS, FAST_NUMBERS, LEAVE_TO_OVERLAY, PROGRAM_FLAGS};
use crate::{clock::ClockPage, cpu::Cpu, trap::Trap};
use api_plat::{FRAME_VECTORS, Frame};
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
    FRAME_SIZE = const size_of::<Frame>(),
    FRAME_VECTORS = const FRAME_VECTORS,
    TRAP_SIZE = const size_of::<Trap>(),
    ORIG_RAX = const offset_of!(Frame, orig_rax),
    R15 = const offset_of!(Frame, r15),
    R14 = const offset_of!(Frame, r14),
    R13 = const offset_of!(Frame, r13),
    R12 = const offset_of!(Frame, r12),
    RBP = const offset_of!(Frame, rbp),
    RBX = const offset_of!(Frame, rbx),
    R11 = const offset_of!(Frame, r11),
    R10 = const offset_of!(Frame, r10),
    R9 = const offset_of!(Frame, r9),
    R8 = const offset_of!(Frame, r8),
    RDI = const offset_of!(Frame, rdi),
    RSI = const offset_of!(Frame, rsi),
    RDX = const offset_of!(Frame, rdx),
    RCX = const offset_of!(Frame, rcx),
    RAX = const offset_of!(Frame, rax),
    ENTRY = const offset_of!(Frame, entry),
    RIP = const offset_of!(Frame, rip),
    CS = const offset_of!(Frame, cs),
    RFLAGS = const offset_of!(Frame, rflags),
    RSP = const offset_of!(Frame, rsp),
    SS = const offset_of!(Frame, ss),
);

global_asm!(
    include_str!("vdso.s"),
    SEQUENCE = const offset_of!(ClockPage, sequence),
    BASE_TSC = const offset_of!(ClockPage, base_tsc),
    BASE_NS = const offset_of!(ClockPage, base_ns),
    RATE = const offset_of!(ClockPage, rate),
    WALL_NS = const offset_of!(ClockPage, wall_ns),
    GS_INDEX = const offset_of!(Cpu, index),
);

global_asm!(include_str!("memory_functions.s"));
