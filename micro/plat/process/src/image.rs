// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The assembly files. Only kernel images, which do not unwind, link them.

use crate::host;
use core::arch::global_asm;
use core::mem::offset_of;
use plat_x86::cpu::Cpu;

global_asm!(include_str!("start.s"), GS_WORK = const offset_of!(Cpu, work), PPOLL = const host::PPOLL);

global_asm!(include_str!("memory_functions.s"));
