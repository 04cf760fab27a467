// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly files. Only kernel images, which do not unwind, link them.

use crate::{host, idle, signals};
use core::arch::global_asm;
use core::mem::offset_of;
use plat_x86::cpu::{self, Cpu};

global_asm!(
    include_str!("start.s"),
    GS_WORK = const offset_of!(Cpu, work),
    PPOLL = const host::PPOLL,
    TRACE_FLAG = const cpu::TRACE_FLAG,
    TRACING = const cpu::TRACING,
    SIGALRM = const signals::TIMER,
    SIGINT = const signals::SIGINT,
    SIGTERM = const signals::SIGTERM,
    TRACED = sym idle::TRACED,
    TIMER = sym idle::TIMER,
    PUT_OFF = sym idle::PUT_OFF,
    TIMER_SETTIME = const host::TIMER_SETTIME,
);

global_asm!(include_str!("memory_functions.s"));
