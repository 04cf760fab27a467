// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where things are: in ring 0 the kernel has the upper half of the address space, in a process of Linux the upper part
//! of the lower half. Constants, so that it costs nothing.

/// Where the kernel sees physical memory: byte p at `PHYS + p`.
pub const PHYS: u64 = if PROCESS { 0x7100_0000_0000 } else { 0xffff_8000_0000_0000 };
/// Bytes of physical memory from 0 on that a machine may have; `api_boot::MAX_MEMORY` tells the command the same.
pub const MAX_MEMORY: u64 = 512 << 30;
/// First address that cannot belong to the program. In ring 0 it owns the low 47 bits, less one page as Linux has it.
pub const USER_END: u64 = if PROCESS { 0x7000_0000_0000 } else { 0x7fff_ffff_f000 };
/// CS of program and kernel.
pub const CODE_SEGMENT: u64 = if PROCESS { 0x33 } else { 8 };
/// SS of program and kernel.
pub const DATA_SEGMENT: u64 = if PROCESS { 0x2b } else { 16 };
/// The kernel's image lies where sign-extended 32 bits reach it.
pub const KERNEL_IN_LAST_2_GIB: bool = !PROCESS;

/// What the addresses of the kernel's image are above its physical ones; on a process the image has none.
pub const KERNEL_IMAGE: u64 = if PROCESS { 0 } else { 0xffff_ffff_8000_0000 };

/// True when the machine is a process of Linux.
pub const PROCESS: bool = cfg!(feature = "process");
