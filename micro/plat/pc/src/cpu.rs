// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each processor has of its own, reached through GS.

use crate::x86::{self, rdmsr, wrmsr};
use crate::{asm, crash};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The block of one processor. GS base points to it; assembly uses the first two fields.
#[repr(C, align(64))]
pub struct Cpu {
    /// Where the Frame of the running thread goes.
    pub frame: UnsafeCell<u64>,
    /// Not 0: `kernel_work` is wanted before the program goes on.
    pub work: UnsafeCell<u32>,
    pub index: u32,
}

// SAFETY: a processor reaches its own block only, by single instructions relative to GS.
unsafe impl Sync for Cpu {}

static BOOT_CPU: Cpu = Cpu { frame: UnsafeCell::new(0), work: UnsafeCell::new(0), index: 0 };

/// What the processor can do.
pub struct Features {
    /// XCR0, 0 without XSAVE.
    pub xcr0: u64,
    /// Bytes of an XSAVE area in standard format with these features.
    pub xsave_size: usize,
    pub tsc_deadline: bool,
    pub rdrand: bool,
    pub rdseed: bool,
}

static XCR0: AtomicU64 = AtomicU64::new(0);
static BITS: AtomicU32 = AtomicU32::new(0);
static XSAVE_SIZE: AtomicU32 = AtomicU32::new(512);

pub fn features() -> Features {
    let bits = BITS.load(Ordering::Relaxed);
    Features {
        xcr0: XCR0.load(Ordering::Relaxed),
        xsave_size: XSAVE_SIZE.load(Ordering::Relaxed) as usize,
        tsc_deadline: bits & 2 != 0,
        rdrand: bits & 4 != 0,
        rdseed: bits & 8 != 0,
    }
}

/// States the kernel knows how to keep: x87, SSE, AVX, the three of AVX-512, protection keys. (AMX wants a permission
/// protocol of its own, arch_prctl(ARCH_REQ_XCOMP_PERM).)
const XCR0_KNOWN: u64 = 0x2e7;

/// Turns on what the program may use of the processor, and points GS and the system-call entry to the kernel.
pub fn initialize() {
    let one = __cpuid(1);
    if one.edx & 1 << 24 == 0 || one.edx & 1 << 26 == 0 {
        crash::fail("this processor has no SSE2; give the machine a better one (-cpu max)");
    }
    let seven = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0) } else { __cpuid_count(0, 0) };
    let has_seven = __cpuid(0).eax >= 7;
    let fsgsbase = has_seven && seven.ebx & 1 != 0;
    let rdseed = has_seven && seven.ebx & 1 << 18 != 0;
    let protection_keys = has_seven && seven.ecx & 1 << 3 != 0;
    let xsave = one.ecx & 1 << 26 != 0;

    let mut cr4: u64;
    // SAFETY: reading CR4 has no effect; the bits set are those CPUID offers, and none changes what the kernel relies
    // on. GS base is the block of this processor, whose layout the assembly shares.
    unsafe {
        asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags));
        cr4 |= u64::from(fsgsbase) << 16 | u64::from(xsave) << 18 | u64::from(protection_keys && xsave) << 22;
        asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags));
        if xsave {
            let leaf = __cpuid_count(0xd, 0);
            let xcr0 = (u64::from(leaf.edx) << 32 | u64::from(leaf.eax)) & XCR0_KNOWN;
            asm!("xsetbv", in("ecx") 0, in("eax") xcr0 as u32, in("edx") (xcr0 >> 32) as u32,
                options(nostack, preserves_flags));
            XCR0.store(xcr0, Ordering::Relaxed);
            // EBX now answers for the features just enabled.
            XSAVE_SIZE.store(__cpuid_count(0xd, 0).ebx, Ordering::Relaxed);
        }
        wrmsr(x86::IA32_GS_BASE, &raw const BOOT_CPU as u64);
        // SYSCALL loads CS from bits 32 to 47 and SS from CS + 8, and clears direction, trap and nested-task flags.
        wrmsr(x86::IA32_STAR, 8 << 32);
        wrmsr(x86::IA32_LSTAR, asm::unilith_entry.address());
        wrmsr(x86::IA32_FMASK, 0x4500);
    }
    let tsc_deadline = one.ecx & 1 << 24 != 0;
    let rdrand = one.ecx & 1 << 30 != 0;
    let bits =
        u32::from(fsgsbase) | u32::from(tsc_deadline) << 1 | u32::from(rdrand) << 2 | u32::from(rdseed) << 3;
    BITS.store(bits, Ordering::Relaxed);
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

/// Where the Frame of the running thread goes.
pub fn frame_address() -> u64 {
    let frame;
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) frame, const core::mem::offset_of!(Cpu, frame),
            options(nostack, preserves_flags, readonly));
    }
    frame
}

/// Makes `frame` the place for the Frame of the running thread.
pub fn set_frame_address(frame: u64) {
    // SAFETY: GS points to this processor's block.
    unsafe {
        asm!("mov gs:[{}], {}", const core::mem::offset_of!(Cpu, frame), in(reg) frame,
            options(nostack, preserves_flags));
    }
}

/// Sleeps until an interrupt came, unless work is wanted.
#[unsafe(no_mangle)]
fn unilith_plat_idle() {
    // SAFETY: with interrupts off no request can slip in between the test and HLT; STI takes effect after the
    // instruction behind it, so the interrupt that ends the sleep cannot come before it begins.
    unsafe {
        asm!(
            "cli",
            "cmp dword ptr gs:[{work}], 0",
            "jne 2f",
            "sti",
            "hlt",
            "2:",
            "sti",
            work = const core::mem::offset_of!(Cpu, work),
            options(nostack)
        );
    }
}

/// FS base, of the program.
#[unsafe(no_mangle)]
fn unilith_plat_fs_base() -> u64 {
    if BITS.load(Ordering::Relaxed) & 1 != 0 {
        let base;
        // SAFETY: CR4.FSGSBASE is set.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        base
    } else {
        // SAFETY: every 64-bit processor has this register.
        unsafe { rdmsr(x86::IA32_FS_BASE) }
    }
}

/// Sets FS base; the address is canonical.
pub fn set_fs_base(base: u64) {
    if BITS.load(Ordering::Relaxed) & 1 != 0 {
        // SAFETY: CR4.FSGSBASE is set; the kernel does not use FS.
        unsafe { asm!("wrfsbase {}", in(reg) base, options(nomem, nostack, preserves_flags)) };
    } else {
        // SAFETY: every 64-bit processor has this register.
        unsafe { wrmsr(x86::IA32_FS_BASE, base) };
    }
}
