// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the processor the program may use, as the platform found or made it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the processor can do.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// XCR0, 0 without XSAVE.
    pub xcr0: u64,
    /// Bytes of an XSAVE area in standard format with these features.
    pub xsave_size: usize,
    /// RDFSBASE and its like are there and allowed.
    pub fsgsbase: bool,
    pub tsc_deadline: bool,
    pub rdrand: bool,
    pub rdseed: bool,
}

static XCR0: AtomicU64 = AtomicU64::new(0);
static BITS: AtomicU32 = AtomicU32::new(0);
static XSAVE_SIZE: AtomicU32 = AtomicU32::new(512);

const FSGSBASE: u32 = 1;
const TSC_DEADLINE: u32 = 2;
const RDRAND: u32 = 4;
const RDSEED: u32 = 8;

/// Tells what there is; the platform, once, before anything else of this crate is used.
pub fn set(features: Features) {
    XCR0.store(features.xcr0, Ordering::Relaxed);
    XSAVE_SIZE.store(features.xsave_size as u32, Ordering::Relaxed);
    let bit = |has: bool, bit: u32| if has { bit } else { 0 };
    let bits = bit(features.fsgsbase, FSGSBASE)
        | bit(features.tsc_deadline, TSC_DEADLINE)
        | bit(features.rdrand, RDRAND)
        | bit(features.rdseed, RDSEED);
    BITS.store(bits, Ordering::Relaxed);
}

/// [`Features::fsgsbase`], in place.
#[inline(always)]
pub fn has_fsgsbase() -> bool {
    BITS.load(Ordering::Relaxed) & FSGSBASE != 0
}

/// What [`set`] told.
pub fn features() -> Features {
    let bits = BITS.load(Ordering::Relaxed);
    Features {
        xcr0: XCR0.load(Ordering::Relaxed),
        xsave_size: XSAVE_SIZE.load(Ordering::Relaxed) as usize,
        fsgsbase: bits & FSGSBASE != 0,
        tsc_deadline: bits & TSC_DEADLINE != 0,
        rdrand: bits & RDRAND != 0,
        rdseed: bits & RDSEED != 0,
    }
}

/// FS base, of the program.
#[unsafe(no_mangle)]
fn unilith_plat_fs_base() -> u64 {
    if BITS.load(Ordering::Relaxed) & FSGSBASE == 0 {
        return crate::machine::unilith_machine_fs_base();
    }
    let base;
    // SAFETY: the platform said that the instruction is there.
    unsafe { core::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets FS base; the address is canonical.
pub fn set_fs_base(base: u64) {
    if BITS.load(Ordering::Relaxed) & FSGSBASE == 0 {
        return crate::machine::unilith_machine_set_fs_base(base);
    }
    // SAFETY: the platform said that the instruction is there; the kernel does not use FS.
    unsafe { core::arch::asm!("wrfsbase {}", in(reg) base, options(nomem, nostack, preserves_flags)) };
}
