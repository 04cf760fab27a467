// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor's features, sleep, and FS base.

use crate::asm;
use crate::x86::{self, rdmsr, wrmsr};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use plat_x86::cpu::{self, Cpu};
use plat_x86::crash;
use plat_x86::features::{self, Features};

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

    let mut features = Features {
        xcr0: 0,
        xsave_size: 512,
        fsgsbase,
        tsc_deadline: one.ecx & 1 << 24 != 0,
        rdrand: one.ecx & 1 << 30 != 0,
        rdseed,
    };
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
            features.xcr0 = xcr0;
            // EBX now answers for the features just enabled.
            features.xsave_size = __cpuid_count(0xd, 0).ebx as usize;
        }
        wrmsr(x86::IA32_GS_BASE, cpu::block(0));
        // SYSCALL loads CS from bits 32 to 47 and SS from CS + 8, and clears direction, trap and nested-task flags.
        wrmsr(x86::IA32_STAR, 8 << 32);
        wrmsr(x86::IA32_LSTAR, asm::unilith_entry.address());
        wrmsr(x86::IA32_FMASK, 0x4500);
    }
    features::set(features);
}

/// What the host gives a machine beyond one is not used.
#[unsafe(no_mangle)]
fn unilith_plat_cpus() -> u32 {
    1
}

#[unsafe(no_mangle)]
fn unilith_plat_kick(_: u32) {
    api_plat::request_work();
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

#[unsafe(no_mangle)]
fn unilith_machine_fs_base() -> u64 {
    // SAFETY: every 64-bit processor has this register.
    unsafe { rdmsr(x86::IA32_FS_BASE) }
}

#[unsafe(no_mangle)]
fn unilith_machine_set_fs_base(base: u64) {
    // SAFETY: every 64-bit processor has this register.
    unsafe { wrmsr(x86::IA32_FS_BASE, base) };
}
