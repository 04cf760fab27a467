// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where things go in a new address space, with the randomness Linux has on x86-64 (arch/x86/mm/mmap.c, fs/exec.c).

use crate::{PAGE, USER_END};

/// Two thirds of the address space: PIE programs start here or above (ELF_ET_DYN_BASE).
const PIE_BASE: u64 = 0x5555_5555_4000;
/// Bits of randomness of mmap and PIE, in pages (vm.mmap_rnd_bits).
const MMAP_BITS: u32 = 28;
/// Of the stack, in pages (STACK_RND_MASK).
const STACK_BITS: u32 = 22;
/// The break starts up to this far above the program (arch_randomize_brk).
const BRK_RANGE: u64 = 32 << 20;
/// Room for the stack, whatever its limit says, at least and at most.
const GAP_LEAST: u64 = 128 << 20;
const GAP_MAX: u64 = USER_END / 6 * 5;
/// Nothing is mapped below (vm.mmap_min_addr).
pub(crate) const LOWEST: u64 = 0x1_0000;

/// Places of a new address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The stack ends here.
    pub stack_top: u64,
    /// Mappings without a place of their own go below.
    pub mmap_base: u64,
    /// Load address of a PIE program.
    pub pie_base: u64,
    /// Bytes between the end of the program and the break.
    pub brk_gap: u64,
}

impl Layout {
    /// A layout from random numbers (all zero: the layout without randomness).
    pub fn new(random: [u64; 4], stack_limit: u64) -> Layout {
        let pages = |n: u64, bits: u32| (n & ((1 << bits) - 1)) * PAGE;
        let guard = pages(u64::MAX, STACK_BITS) + (1 << 20);
        let gap = stack_limit.saturating_add(guard).clamp(GAP_LEAST, GAP_MAX);
        Layout {
            stack_top: USER_END - pages(random[0], STACK_BITS),
            mmap_base: (USER_END - gap - pages(random[1], MMAP_BITS)) & !(PAGE - 1),
            pie_base: PIE_BASE + pages(random[2], MMAP_BITS),
            brk_gap: (random[3] % BRK_RANGE) & !(PAGE - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_layout_never_meet() {
        for random in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            for limit in [0, 8 << 20, 1 << 30, u64::MAX] {
                let l = Layout::new([random; 4], limit);
                assert!(l.mmap_base + limit.min(GAP_LEAST) <= l.stack_top);
                assert!(l.stack_top <= USER_END && l.brk_gap < BRK_RANGE);
                for address in [l.stack_top, l.mmap_base, l.pie_base, l.brk_gap] {
                    assert_eq!(address % PAGE, 0);
                }
                assert!(limit > 1 << 30 || l.pie_base < l.mmap_base - (1 << 40));
            }
        }
    }
}
