// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic access to a word of the program's memory, for futexes.

use crate::range_is_user;
use abi::{Result, errno::*};
use core::arch::global_asm;

// rdi = address, esi = expected, edx = new, rcx = where the old value goes; returns 0, or 1 after a fault.
global_asm!(
    ".pushsection .text.unilith_user_atomic,\"ax\",@progbits",
    ".globl unilith_user_compare_exchange",
    ".globl unilith_user_atomic_start",
    ".globl unilith_user_atomic_fixup",
    ".balign 16",
    "unilith_user_compare_exchange:",
    "    mov eax, esi",
    "unilith_user_atomic_start:",
    "    lock cmpxchg dword ptr [rdi], edx",
    "    mov [rcx], eax",
    "    xor eax, eax",
    "    ret",
    "unilith_user_atomic_fixup:",
    "    mov eax, 1",
    "    ret",
    ".popsection",
);

unsafe extern "C" {
    fn unilith_user_compare_exchange(address: *mut u32, expected: u32, new: u32, old: *mut u32) -> u32;
    static unilith_user_atomic_start: u8;
    static unilith_user_atomic_fixup: u8;
}

pub(crate) fn fixup(rip: u64) -> Option<u64> {
    let (start, fixup) = (&raw const unilith_user_atomic_start, &raw const unilith_user_atomic_fixup);
    (rip == start as u64).then_some(fixup as u64)
}

/// Stores `new` where the word is `expected`; returns the word as it was. `EINVAL` unless aligned to 4 bytes.
pub fn compare_exchange_u32(address: u64, expected: u32, new: u32) -> Result<u32> {
    if !address.is_multiple_of(4) {
        return Err(EINVAL);
    }
    if !range_is_user(address, 4) {
        return Err(EFAULT);
    }
    let mut old = 0;
    // SAFETY: the word lies in the program's half and a fault ends in the fixup; `old` is ours.
    match unsafe { unilith_user_compare_exchange(address as *mut u32, expected, new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(EFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn a_word_changes_only_from_the_expected_value() {
        // Not on the stack, which lies above the program's part where the machine is a process.
        static WORD: AtomicU32 = AtomicU32::new(5);
        let address = WORD.as_ptr() as u64;
        assert_eq!(compare_exchange_u32(address, 4, 9), Ok(5));
        assert_eq!(compare_exchange_u32(address, 5, 9), Ok(5));
        assert_eq!(WORD.load(Relaxed), 9);
        assert_eq!(compare_exchange_u32(address + 1, 5, 9), Err(EINVAL));
        assert_eq!(compare_exchange_u32(1 << 63, 5, 9), Err(EFAULT));
    }
}
