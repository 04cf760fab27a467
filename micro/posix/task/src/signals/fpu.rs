// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The extended processor state in a signal frame: an XSAVE area in standard format (Intel SDM volume 1, 13.4) whose
//! software-reserved bytes tell the program how large it is (Linux' `asm/sigcontext.h`).

use api_plat::FRAME_VECTORS;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// The FXSAVE part; software may use its last 48 bytes.
const LEGACY_BYTES: usize = 512;
const FCW: usize = 0;
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
const XMM: usize = 160;
const SOFTWARE: usize = 464;
/// The XSAVE header: which parts are there (XSTATE_BV), XCOMP_BV, 48 reserved bytes.
const HEADER: usize = 512;
const HEADER_BYTES: usize = 64;

const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// [`MAGIC2`] behind the area.
pub const TAIL_BYTES: usize = 4;

/// x87 and SSE: the parts every area has.
const FP_SSE: u64 = 3;
const INITIAL_FCW: u16 = 0x37f;
const INITIAL_MXCSR: u32 = 0x1f80;
/// What processors mean that report no mask (Intel SDM volume 1, 11.6.6).
const DEFAULT_MXCSR_MASK: u32 = 0xffbf;

fn put<const N: usize>(area: &mut [u8], at: usize, bytes: [u8; N]) {
    area[at..at + N].copy_from_slice(&bytes);
}

fn get32(area: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(core::array::from_fn(|i| area[at + i]))
}

fn get64(area: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(core::array::from_fn(|i| area[at + i]))
}

/// Parts of the extended state the platform enabled (XCR0); 0 on a processor with FXSAVE only.
pub fn features() -> u64 {
    const UNKNOWN: u64 = u64::MAX;
    static FEATURES: AtomicU64 = AtomicU64::new(UNKNOWN);
    let known = FEATURES.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    const OSXSAVE: u32 = 1 << 27;
    let features = if core::arch::x86_64::__cpuid(1).ecx & OSXSAVE != 0 {
        let (low, high): (u32, u32);
        // SAFETY: OSXSAVE says that XGETBV may be used; it touches nothing but its registers.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
        u64::from(low) | u64::from(high) << 32
    } else {
        0
    };
    FEATURES.store(features, Ordering::Relaxed);
    features
}

/// Makes an area that was just saved one for a signal frame. XMM registers that the kernel uses come from `frame`; the
/// others are still the program's, whatever made the frame.
pub fn publish(area: &mut [u8], xmm: &[[u64; 2]], features: u64) {
    for (i, xmm) in xmm.iter().enumerate().take(FRAME_VECTORS) {
        put(area, XMM + 16 * i, xmm[0].to_ne_bytes());
        put(area, XMM + 16 * i + 8, xmm[1].to_ne_bytes());
    }
    area[SOFTWARE..LEGACY_BYTES].fill(0);
    if features == 0 {
        return;
    }
    // The XMM registers are not as the processor saw them.
    let present = get64(area, HEADER) | FP_SSE;
    put(area, HEADER, present.to_ne_bytes());
    let size = area.len() as u32;
    put(area, SOFTWARE, MAGIC1.to_ne_bytes());
    put(area, SOFTWARE + 4, (size + TAIL_BYTES as u32).to_ne_bytes());
    put(area, SOFTWARE + 8, features.to_ne_bytes());
    put(area, SOFTWARE + 16, size.to_ne_bytes());
}

/// What goes behind the area.
pub fn tail() -> [u8; TAIL_BYTES] {
    MAGIC2.to_ne_bytes()
}

/// The state a handler starts with: as after FNINIT, with MXCSR's default.
pub fn initialise(area: &mut [u8]) {
    area.fill(0);
    put(area, FCW, INITIAL_FCW.to_ne_bytes());
    put(area, MXCSR, INITIAL_MXCSR.to_ne_bytes());
}

/// MXCSR bits this processor has, from an area it saved.
pub fn mxcsr_mask(saved: &[u8]) -> u32 {
    match get32(saved, MXCSR_MASK) {
        0 => DEFAULT_MXCSR_MASK,
        mask => mask,
    }
}

/// How much of the area at the frame's pointer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The FXSAVE part.
    Legacy,
    /// All of it, up to this many bytes.
    Full(usize),
}

/// Decides from the first 512 bytes. Whether [`MAGIC2`] follows is the caller's to check.
pub fn extent(legacy: &[u8], own_size: usize, features: u64) -> Extent {
    let (extended, size) = (get32(legacy, SOFTWARE + 4) as usize, get32(legacy, SOFTWARE + 16) as usize);
    let plausible = (LEGACY_BYTES + HEADER_BYTES..=own_size).contains(&size) && size <= extended;
    if features != 0 && get32(legacy, SOFTWARE) == MAGIC1 && plausible {
        Extent::Full(size)
    } else {
        Extent::Legacy
    }
}

/// Checks an area that came from the program, of which `extent` counts, and makes it loadable. `None` when XRSTOR
/// would refuse it.
pub fn accept(area: &mut [u8], extent: Extent, features: u64, mxcsr_mask: u32) -> Option<()> {
    if get32(area, MXCSR) & !mxcsr_mask != 0 {
        return None;
    }
    let wanted = get64(area, SOFTWARE + 8);
    area[SOFTWARE..LEGACY_BYTES].fill(0);
    if features == 0 {
        return Some(());
    }
    let present = match extent {
        Extent::Legacy => {
            area[LEGACY_BYTES..].fill(0);
            FP_SSE
        }
        Extent::Full(size) => {
            area[size..].fill(0);
            let header = &area[HEADER..HEADER + HEADER_BYTES];
            let present = get64(header, 0);
            // XRSTOR looks at no more of the reserved bytes in standard format (SDM volume 1, 13.8).
            if present & !features != 0 || header[8..24].iter().any(|b| *b != 0) {
                return None;
            }
            present & wanted
        }
    };
    put(area, HEADER, present.to_ne_bytes());
    Some(())
}

/// The XMM registers of an accepted area; zero when the area says they have their initial values.
pub fn xmm(area: &[u8], features: u64) -> [[u64; 2]; 16] {
    const SSE: u64 = 2;
    if features != 0 && get64(area, HEADER) & SSE == 0 {
        return [[0; 2]; 16];
    }
    core::array::from_fn(|i| [get64(area, XMM + 16 * i), get64(area, XMM + 16 * i + 8)])
}

/// `si_code` of an x87 or SSE exception from the state it left; `None` when nothing unmasked is set.
pub fn exception_code(area: &[u8], vector: u8) -> Option<i32> {
    const SIMD: u8 = 19;
    let flags = if vector == SIMD {
        let mxcsr = get32(area, MXCSR);
        mxcsr & !(mxcsr >> 7)
    } else {
        let words = get32(area, FCW);
        (words >> 16) & !words
    };
    // FPE_FLTINV, FPE_FLTDIV, FPE_FLTOVF, FPE_FLTUND (a denormal operand counts), FPE_FLTRES.
    [(0x01, 7), (0x04, 3), (0x08, 4), (0x12, 5), (0x20, 6)]
        .into_iter()
        .find(|(bits, _)| flags & bits != 0)
        .map(|(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const SIZE: usize = 832;
    const FEATURES: u64 = 7;

    fn saved() -> Vec<u8> {
        let mut area = vec![0u8; SIZE];
        put(&mut area, MXCSR, INITIAL_MXCSR.to_ne_bytes());
        put(&mut area, MXCSR_MASK, 0x2_ffff_u32.to_ne_bytes());
        put(&mut area, HEADER, 4u64.to_ne_bytes());
        area
    }

    fn published() -> Vec<u8> {
        let mut registers = [[0; 2]; 16];
        registers[15] = [1, 2];
        let mut area = saved();
        publish(&mut area, &registers, FEATURES);
        area
    }

    #[test]
    fn what_a_frame_holds_comes_back() {
        let mut area = published();
        let extent = extent(&area[..512], SIZE, FEATURES);
        assert_eq!(extent, Extent::Full(SIZE));
        assert_eq!(accept(&mut area, extent, FEATURES, mxcsr_mask(&saved())), Some(()));
        assert_eq!(get64(&area, HEADER), 7);
        assert_eq!(xmm(&area, FEATURES)[15], [1, 2]);
    }

    #[test]
    fn what_the_processor_would_refuse_is_refused() {
        let refused = |at: usize, value: u8| {
            let mut area = published();
            area[at] = value;
            accept(&mut area, Extent::Full(SIZE), FEATURES, 0x2_ffff).is_none()
        };
        assert!(refused(MXCSR + 3, 1), "reserved bit of MXCSR");
        assert!(refused(HEADER + 1, 1), "a part that is not enabled");
        assert!(refused(HEADER + 15, 0x80), "compacted format");
        assert!(refused(HEADER + 23, 1), "reserved byte of the header");
        assert!(!refused(HEADER + 24, 1), "one that nobody looks at");
    }

    #[test]
    fn without_a_plausible_size_only_the_legacy_part_counts() {
        let mut area = published();
        put(&mut area, SOFTWARE + 16, (SIZE as u32 + 1).to_ne_bytes());
        assert_eq!(extent(&area[..512], SIZE, FEATURES), Extent::Legacy);
        put(&mut area, SOFTWARE, 0u32.to_ne_bytes());
        assert_eq!(extent(&area[..512], SIZE, FEATURES), Extent::Legacy);
        area[HEADER + 9] = 0xff;
        assert_eq!(accept(&mut area, Extent::Legacy, FEATURES, 0x2_ffff), Some(()));
        assert_eq!(get64(&area, HEADER), FP_SSE);
        assert_eq!(area[HEADER + 9], 0);
    }

    #[test]
    fn exceptions_are_told_apart_by_their_unmasked_flags() {
        let mut area = saved();
        assert_eq!(exception_code(&area, 19), None);
        // Divide by zero unmasked (bit 9 clear) and its flag (bit 2) set.
        put(&mut area, MXCSR, (INITIAL_MXCSR & !0x200 | 0x4).to_ne_bytes());
        assert_eq!(exception_code(&area, 19), Some(3));
        put(&mut area, FCW, 0x0001_037e_u32.to_ne_bytes());
        assert_eq!(exception_code(&area, 16), Some(7));
    }
}
