// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How memory is cached: the same on all processors, or they see different memory (Intel SDM volume 3, 12.11.8). Firmware has set
//! it on the boot processor.

use crate::x86::{IA32_MTRR_DEF_TYPE, IA32_MTRR_PHYSBASE0, IA32_MTRRCAP, IA32_PAT, rdmsr, wrmsr};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Those of fixed ranges (12.11.2.2).
const FIXED: [u32; 11] = [0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f];
/// Of IA32_MTRRCAP: how many variable ranges there are, and that there are fixed ones.
const VARIABLE: u64 = 0xff;
const HAS_FIXED: u64 = 1 << 8;
/// More than any processor has.
const VARIABLE_MAX: usize = 32;
/// Of IA32_MTRR_DEF_TYPE.
const ENABLED: u64 = 1 << 11;
const CACHE_OFF: u64 = 1 << 30;

const MAX_BOUNDS: usize = 2 + FIXED.len() + 2 * VARIABLE_MAX;
static VALUES: [AtomicU64; MAX_BOUNDS] = [const { AtomicU64::new(0) }; MAX_BOUNDS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The registers that say it.
fn registers() -> impl Iterator<Item = u32> {
    let features = __cpuid(1).edx;
    let (mtrr, pat) = (features & 1 << 12 != 0, features & 1 << 16 != 0);
    // SAFETY: the processor says that it has the register.
    let offered = if mtrr { unsafe { rdmsr(IA32_MTRRCAP) } } else { 0 };
    let variable = ((offered & VARIABLE) as usize).min(VARIABLE_MAX);
    let fixed = if offered & HAS_FIXED != 0 { &FIXED[..] } else { &[] };
    pat.then_some(IA32_PAT)
        .into_iter()
        .chain(fixed.iter().copied())
        .chain((0..2 * variable as u32).map(|n| IA32_MTRR_PHYSBASE0 + n))
        // The last one: it turns the others on.
        .chain(mtrr.then_some(IA32_MTRR_DEF_TYPE))
}

/// Notes what the boot processor has.
pub fn note() {
    let mut count = 0;
    for (register, value) in registers().zip(&VALUES) {
        // SAFETY: the processor has the register.
        value.store(unsafe { rdmsr(register) }, Ordering::Relaxed);
        count += 1;
    }
    COUNT.store(count, Ordering::Relaxed);
}

fn pairs() -> impl Iterator<Item = (u32, u64)> {
    let values = VALUES[..COUNT.load(Ordering::Relaxed)].iter().map(|value| value.load(Ordering::Relaxed));
    registers().zip(values)
}

/// Gives the running processor the same. Interrupts are off.
pub fn follow() {
    // SAFETY: the processor has the registers.
    let differs = |register, value| unsafe { rdmsr(register) != value };
    if !pairs().any(|(register, value)| differs(register, value)) {
        return;
    }
    // SAFETY: the order of 12.11.7.2: caches off and empty, ranges off, the values, on again. They are the boot processor's, so
    // this one sees memory as that one does.
    unsafe {
        let cr0: u64;
        asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags));
        asm!("mov cr0, {}", "wbinvd", in(reg) cr0 | CACHE_OFF, options(nostack, preserves_flags));
        asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
        for (register, value) in pairs() {
            if register == IA32_MTRR_DEF_TYPE {
                continue;
            }
            if differs(register, value) {
                if register != IA32_PAT {
                    wrmsr(IA32_MTRR_DEF_TYPE, rdmsr(IA32_MTRR_DEF_TYPE) & !ENABLED);
                }
                wrmsr(register, value);
            }
        }
        for (register, value) in pairs().filter(|(register, _)| *register == IA32_MTRR_DEF_TYPE) {
            wrmsr(register, value);
        }
        asm!("wbinvd", "mov cr0, {}", in(reg) cr0, options(nostack, preserves_flags));
        asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
    }
}
