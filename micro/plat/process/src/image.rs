// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly files. Only kernel images, which do not unwind, link them.

use crate::domain::{self, Closed};
use crate::filter::SHARED_FUTEXES;
use crate::{host, host_processes, idle, processors, signals, template};
use api_plat::{CODE_SEGMENT, DATA_SEGMENT, TrapFrame};
use core::arch::global_asm;
use core::mem::{offset_of, size_of};
use plat_x86::asm::PROGRAM_FLAGS;
use plat_x86::cpu::{self, Cpu};

/// `struct itimerspec` that puts a signal off which hit the tracer: its programs take less.
static PUT_OFF: [u64; 4] = [0, 0, 0, 200_000];

global_asm!(
    include_str!("start.s"),
    GS_DOMAIN = const offset_of!(Cpu, domain),
    GS_WORK = const offset_of!(Cpu, work),
    PPOLL = const host::PPOLL,
    TRACE_FLAG = const cpu::TRACE_FLAG,
    TRACING = const cpu::TRACING,
    SIGALRM = const signals::TIMER,
    SIGINT = const signals::SIGINT,
    SIGTERM = const signals::SIGTERM,
    TRACED = sym idle::TRACED,
    GS_TIMER = const offset_of!(Cpu, timer),
    PUT_OFF = sym PUT_OFF,
    TIMER_SETTIME = const host::TIMER_SETTIME,
    EXIT_GROUP = const host::EXIT_GROUP,
    GS_OWNER = const offset_of!(Cpu, owner),
    PRIVATE = const template::PRIVATE,
    FSGSBASE = sym signals::FSGSBASE,
    STACKS = const processors::STACKS,
    STACK_SHIFT = const processors::STACK_BYTES.ilog2(),
    MAX_CPUS = const api_plat::MAX_CPUS,
    CPUS = sym cpu::CPUS,
    CPU_SIZE = const size_of::<Cpu>(),
);

global_asm!(
    include_str!("host_processes.s"),
    FUTEX = const host::FUTEX,
    FUTEX_WAIT = const SHARED_FUTEXES[0],
    FUTEX_WAKE = const SHARED_FUTEXES[1],
    NOT_YET = const host_processes::NOT_YET,
    SLEEPS = const host_processes::SLEEPS,
    RUNS = const host_processes::RUNS,
    MUNMAP = const host::MUNMAP,
    MASK = const host_processes::MASK,
    SHIFT = const host_processes::SHIFT,
    LOWEST = const host_processes::LOWEST,
    PROGRAM = const api_plat::USER_END - host_processes::LOWEST,
    EXIT_GROUP = const host::EXIT_GROUP,
);

global_asm!(
    include_str!("domain.s"),
    GS_WORK = const offset_of!(Cpu, work),
    GS_DOMAIN = const offset_of!(Cpu, domain),
    LIST = sym domain::LIST,
    COUNT = sym domain::COUNT,
    START = const offset_of!(Closed, start),
    LENGTH = const offset_of!(Closed, length),
    INSIDE = const offset_of!(Closed, inside),
    OUTSIDE = const offset_of!(Closed, outside),
    SIZE = const size_of::<Closed>(),
    CS = const offset_of!(TrapFrame, cs),
    SS = const offset_of!(TrapFrame, ss),
    RFLAGS = const offset_of!(TrapFrame, rflags),
    ENTRY = const offset_of!(TrapFrame, entry),
    CODE = const CODE_SEGMENT,
    DATA = const DATA_SEGMENT,
    PROGRAM_FLAGS = const PROGRAM_FLAGS,
    MPROTECT = const host::MPROTECT,
    EXIT_GROUP = const host::EXIT_GROUP,
);

global_asm!(include_str!("memory_functions.s"));
