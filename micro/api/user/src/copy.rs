// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The only instructions of the kernel that touch the program's memory.

use crate::range_is_user;
use abi::{
    Result,
    errno::{EFAULT, ENOMEM},
};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::arch::global_asm;

// rdi = to, rsi = from, rdx = bytes; returns 0 in rax when all is done. A fault inside jumps to the `fixup` label.
// Most copies are small: a word, a structure, a request. `rep` takes some thirty cycles before its first byte. Bytes that are
// no whole word are the end of a word that overlaps the one before. Bytewise `rep movsb` is several times slower under TCG. No
// vector registers: some calls do not save the program's.
global_asm!(
    ".pushsection .text.unilith_user,\"ax\",@progbits",
    ".globl unilith_user_copy",
    ".globl unilith_user_zero",
    ".globl unilith_user_start",
    ".globl unilith_user_fixup",
    ".balign 16",
    "unilith_user_start:",
    "unilith_user_copy:",
    "    cmp rdx, 8",
    "    jb 3f",
    "    mov r8, [rsi + rdx - 8]", // the last word
    "    lea rcx, [rdx - 1]",
    "    shr rcx, 3", // whole words before it
    "    cmp rcx, 8",
    "    ja 2f",
    "    lea r9, [rdi + rdx - 8]",
    "    xor edx, edx",
    "    jmp 5f",
    "8:  mov rax, [rsi + rdx * 8]",
    "    mov [rdi + rdx * 8], rax",
    "    inc edx",
    "5:  cmp edx, ecx",
    "    jne 8b",
    "    mov [r9], r8",
    "    xor eax, eax",
    "    ret",
    "2:  lea r9, [rdi + rdx - 8]",
    "    rep movsq",
    "    mov [r9], r8",
    "    xor eax, eax",
    "    ret",
    "3:  cmp edx, 4",
    "    jb 4f",
    "    mov eax, [rsi]",
    "    mov ecx, [rsi + rdx - 4]",
    "    mov [rdi], eax",
    "    mov [rdi + rdx - 4], ecx",
    "    xor eax, eax",
    "    ret",
    "4:  xor ecx, ecx",
    "    jmp 7f",
    "6:  movzx eax, byte ptr [rsi + rcx]",
    "    mov [rdi + rcx], al",
    "    inc ecx",
    "7:  cmp ecx, edx",
    "    jne 6b",
    "    xor eax, eax",
    "    ret",
    "unilith_user_zero:", // rdi = to, rdx = bytes
    "    xor eax, eax",
    "    mov rcx, rdx",
    "    shr rcx, 3",
    "    and edx, 7",
    "    rep stosq",
    "    mov ecx, edx",
    "    rep stosb",
    "    xor eax, eax",
    "    ret",
    "unilith_user_fixup:",
    "    mov eax, 1",
    "    ret",
    ".popsection",
);

unsafe extern "C" {
    fn unilith_user_copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn unilith_user_zero(to: *mut u8, unused: usize, bytes: usize) -> usize;
    static unilith_user_start: u8;
    static unilith_user_fixup: u8;
}

/// For the platform's page-fault handler: a fault at `rip` that memory management could not resolve continues at
/// the returned address when `rip` is one of the copy instructions; otherwise it is a bug of the kernel (or, with
/// `rip` in the program, a signal).
pub fn fault_fixup(rip: u64) -> Option<u64> {
    let (start, fixup) = (&raw const unilith_user_start as u64, &raw const unilith_user_fixup as u64);
    if (start..fixup).contains(&rip) { Some(fixup) } else { crate::atomic::fixup(rip) }
}

fn check(undone: usize) -> Result<()> {
    if undone == 0 { Ok(()) } else { Err(EFAULT) }
}

/// Copies from the program's memory; on `EFAULT` a prefix of `to` may have been written.
pub fn read_bytes(address: u64, to: &mut [u8]) -> Result<()> {
    // SAFETY: a mutable slice is writable memory of the kernel.
    unsafe { read_raw(address, to.as_mut_ptr(), to.len()) }
}

/// [`read_bytes`] of as many bytes as the program says, which the kernel need not have room for: `ENOMEM`.
pub fn read_vec(address: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = zeroed(length)?;
    read_bytes(address, &mut bytes)?;
    Ok(bytes)
}

/// As many zeros as a program's arguments say: `ENOMEM` where `vec![0; length]` would end the kernel.
pub fn zeroed<T: Clone + Default>(length: usize) -> Result<Vec<T>> {
    let mut zeros = Vec::new();
    zeros.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
    zeros.resize(length, T::default());
    Ok(zeros)
}

/// [`read_bytes`] into memory that others may use meanwhile.
///
/// # Safety
///
/// `length` bytes at `to` are memory of the kernel that stays valid during the call.
pub unsafe fn read_raw(address: u64, to: *mut u8, length: usize) -> Result<()> {
    // Nothing comes from anywhere (Linux' copy_from_user).
    if length == 0 {
        return Ok(());
    }
    if !range_is_user(address, length as u64) {
        return Err(EFAULT);
    }
    // SAFETY: `to` is valid by the caller's word, the source lies in the program's half, and a fault ends in the
    // fixup.
    check(unsafe { unilith_user_copy(to, address as *const u8, length) })
}

/// Copies to the program's memory; on `EFAULT` a prefix may have been written.
pub fn write_bytes(address: u64, from: &[u8]) -> Result<()> {
    // SAFETY: a slice is readable memory of the kernel.
    unsafe { write_raw(address, from.as_ptr(), from.len()) }
}

/// [`write_bytes`] from memory that others may use meanwhile.
///
/// # Safety
///
/// `length` bytes at `from` are memory of the kernel that stays valid during the call.
pub unsafe fn write_raw(address: u64, from: *const u8, length: usize) -> Result<()> {
    // Nothing goes anywhere: it does not matter where to (Linux' copy_to_user).
    if length == 0 {
        return Ok(());
    }
    if !range_is_user(address, length as u64) {
        return Err(EFAULT);
    }
    // SAFETY: `from` is valid by the caller's word, the target lies in the program's half, and a fault ends in the
    // fixup.
    check(unsafe { unilith_user_copy(address as *mut u8, from, length) })
}

/// Fills the program's memory with zero bytes.
pub fn zero_bytes(address: u64, length: usize) -> Result<()> {
    if !range_is_user(address, length as u64) {
        return Err(EFAULT);
    }
    // SAFETY: the target lies in the program's half, and a fault ends in the fixup.
    check(unsafe { unilith_user_zero(address as *mut u8, 0, length) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicU8, Ordering};

    const SIZE: usize = 160;
    /// Static: stacks lie above the program's part where the machine is a process.
    static PROGRAM: [AtomicU8; SIZE] = [const { AtomicU8::new(0) }; SIZE];

    fn program() -> Vec<u8> {
        PROGRAM.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn every_length_is_copied_both_ways_and_nothing_beside_it() {
        let from: Vec<u8> = (1..=SIZE as u8).collect();
        for start in 0..9 {
            for length in 0..SIZE - start {
                let address = PROGRAM.as_ptr() as u64 + start as u64;
                PROGRAM.iter().for_each(|byte| byte.store(0xee, Ordering::Relaxed));
                write_bytes(address, &from[..length]).unwrap();
                let mut expected = [0xee; SIZE];
                expected[start..start + length].copy_from_slice(&from[..length]);
                assert_eq!(program(), expected, "{length} bytes to {start}");
                let mut back = [0xdd; SIZE];
                read_bytes(address, &mut back[..length]).unwrap();
                assert_eq!(
                    (&back[..length], back[length..].iter().all(|b| *b == 0xdd)),
                    (&from[..length], true)
                );
                zero_bytes(address, length).unwrap();
                expected[start..start + length].fill(0);
                assert_eq!(program(), expected, "{length} zeros at {start}");
            }
        }
    }
}
