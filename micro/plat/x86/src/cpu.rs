// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each processor has of its own, reached through GS.

use api_plat::MAX_CPUS;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// The block of one processor. GS base points to it; assembly and the vDSO know the fields.
#[repr(C, align(64))]
pub struct Cpu {
    /// Where the TrapFrame of the running thread goes.
    pub frame: UnsafeCell<u64>,
    /// Not 0: `kernel_work` is wanted before the program goes on. Other processors may ask for it as well.
    pub work: AtomicU32,
    /// Its number.
    pub index: AtomicU32,
    /// Not 0: an overlay program runs, in the domain of this `Entry`.
    pub domain: UnsafeCell<u64>,
    /// Stack, flag and return address of the tracer (`api_plat::trace_slots`).
    trace: UnsafeCell<[u64; api_plat::TRACE_SLOTS]>,
    /// The scheduler's word (`api_plat::thread`).
    thread: UnsafeCell<u64>,
    /// The platform's: its timer.
    pub timer: AtomicU32,
    /// The platform's: who of several the processor is at present.
    pub owner: AtomicU32,
}

/// Where the tracer's flag is: [`TRACING`] while it runs or changes what it runs in, another value but 0 where nothing may be
/// traced.
pub const TRACE_FLAG: usize = core::mem::offset_of!(Cpu, trace) + 8;
pub const TRACING: u32 = 1;

// SAFETY: a processor reaches the cells of its own block only, by single instructions relative to GS.
unsafe impl Sync for Cpu {}

/// The blocks of all processors; the first one boots.
pub static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        frame: UnsafeCell::new(0),
        work: AtomicU32::new(0),
        index: AtomicU32::new(0),
        domain: UnsafeCell::new(0),
        trace: UnsafeCell::new([0; api_plat::TRACE_SLOTS]),
        thread: UnsafeCell::new(0),
        timer: AtomicU32::new(0),
        owner: AtomicU32::new(0),
    }
}; MAX_CPUS];

/// The address of the block of processor `index`, for its GS base.
pub fn block(index: usize) -> u64 {
    CPUS[index].index.store(index as u32, Ordering::Relaxed);
    &raw const CPUS[index] as u64
}

#[unsafe(no_mangle)]
fn unilith_plat_thread() -> u64 {
    let thread;
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) thread, const core::mem::offset_of!(Cpu, thread),
            options(nostack, preserves_flags, readonly));
    }
    thread
}

#[unsafe(no_mangle)]
fn unilith_plat_set_thread(thread: u64) {
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov gs:[{}], {}", const core::mem::offset_of!(Cpu, thread), in(reg) thread,
            options(nostack, preserves_flags));
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_cpu() -> u32 {
    let index;
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) index, const core::mem::offset_of!(Cpu, index),
            options(nostack, preserves_flags, readonly));
    }
    index
}

#[unsafe(no_mangle)]
fn unilith_plat_request_work() {
    // SAFETY: GS points to this processor's block, and one instruction cannot be torn by an interrupt.
    unsafe {
        asm!("mov dword ptr gs:[{}], 1", const core::mem::offset_of!(Cpu, work),
            options(nostack, preserves_flags));
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_take_work() -> bool {
    let work: u32;
    // SAFETY: as above. An interrupt between the two instructions may ask again: the answer is then true for both.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) work, const core::mem::offset_of!(Cpu, work),
            options(nostack, preserves_flags));
        if work != 0 {
            asm!("mov dword ptr gs:[{}], 0", const core::mem::offset_of!(Cpu, work),
                options(nostack, preserves_flags));
        }
    }
    work != 0
}

/// The domain the processor is in: 0 is the kernel's and the application's.
#[inline(always)]
pub fn domain() -> u64 {
    let domain;
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) domain, const core::mem::offset_of!(Cpu, domain),
            options(nostack, preserves_flags, readonly));
    }
    domain
}

/// The processor is in the kernel's domain again.
#[inline(always)]
pub fn clear_domain() {
    set_domain(0);
}

/// Notes the domain that the processor is in.
#[inline(always)]
pub fn set_domain(domain: u64) {
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov gs:[{}], {}", const core::mem::offset_of!(Cpu, domain), in(reg) domain,
            options(nostack, preserves_flags));
    }
}

/// True when work is wanted; leaves it so.
pub fn work_is_wanted() -> bool {
    let work: u32;
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) work, const core::mem::offset_of!(Cpu, work),
            options(nostack, preserves_flags, readonly));
    }
    work != 0
}

/// Where the TrapFrame of the running thread goes.
pub fn frame_address() -> u64 {
    let frame;
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) frame, const core::mem::offset_of!(Cpu, frame),
            options(nostack, preserves_flags, readonly));
    }
    frame
}

/// Makes `frame` the place for the TrapFrame of the running thread.
pub fn set_frame_address(frame: u64) {
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov gs:[{}], {}", const core::mem::offset_of!(Cpu, frame), in(reg) frame,
            options(nostack, preserves_flags));
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_trace_slots() -> u32 {
    core::mem::offset_of!(Cpu, trace) as u32
}
