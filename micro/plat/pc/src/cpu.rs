// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor's features, sleep, and FS base.

use crate::processor::{self, Instruction, Processor};
use crate::x86::{self, rdmsr, wrmsr};
use crate::{asm, processors};
use core::arch::asm;
use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicU64, Ordering};
use plat_x86::cpu::{self, Cpu};
use plat_x86::crash;
use plat_x86::features::{self, Features};

/// Turns on what the program may use of the boot processor, and points GS and the system-call entry to the kernel. Answers what
/// the processor says about itself.
pub fn initialize() -> Processor {
    let found = match processor::read(&Instruction) {
        Ok(found) => found,
        Err(lack) => crash::fail(lack),
    };
    configure(0, found.cr4, found.xcr0);
    features::set(Features {
        xcr0: found.xcr0,
        // EBX answers for the features just enabled.
        xsave_size: if found.xcr0 == 0 { 512 } else { __cpuid_count(0xd, 0).ebx as usize },
        fsgsbase: found.fsgsbase,
        tsc_deadline: found.tsc_deadline,
        rdrand: found.rdrand,
        rdseed: found.rdseed,
    });
    CR4_ADDED.store(found.cr4, Ordering::Relaxed);
    found
}

/// What was added to CR4 of the boot processor, and is to be of all.
static CR4_ADDED: AtomicU64 = AtomicU64::new(0);

/// As [`initialize`] for another processor, which gets what the boot processor has.
pub fn initialize_other(index: usize) {
    configure(index, CR4_ADDED.load(Ordering::Relaxed), features::features().xcr0);
}

fn configure(index: usize, cr4_added: u64, xcr0: u64) {
    let mut cr4: u64;
    // SAFETY: reading CR4 has no effect; the bits set are those CPUID offers, and none changes what the kernel relies
    // on. GS base is the block of this processor, whose layout the assembly shares.
    unsafe {
        asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags));
        cr4 |= cr4_added;
        asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags));
        if xcr0 != 0 {
            asm!("xsetbv", in("ecx") 0, in("eax") xcr0 as u32, in("edx") (xcr0 >> 32) as u32,
                options(nostack, preserves_flags));
        }
        wrmsr(x86::IA32_GS_BASE, cpu::block(index));
        // SYSCALL loads CS from bits 32 to 47 and SS from CS + 8, and clears direction, trap and nested-task flags.
        wrmsr(x86::IA32_STAR, 8 << 32);
        wrmsr(x86::IA32_LSTAR, asm::unilith_entry.address());
        wrmsr(x86::IA32_FMASK, 0x4500);
    }
}

/// Sleeps until an interrupt came, unless work is wanted. Of several processors others may be in the kernel meanwhile.
#[unsafe(no_mangle)]
fn unilith_plat_idle() {
    if !processors::several() {
        return halt();
    }
    processors::unilith_kernel_unlock();
    halt();
    processors::unilith_kernel_lock();
    processors::come_back();
}

fn halt() {
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
