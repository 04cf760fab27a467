// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs random snippets as they are and rewritten, in this process, and compares every register.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{CODE, elf};
use iced_x86::code_asm::*;
use std::ptr;
use unilith_rewrite::scan;

/// xorshift64* (Vigna): the same snippets in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }
}

const PAGE: usize = 4096;
/// Of the mapping: the function, then the stubs.
const STUBS: usize = PAGE;

/// A mapping at one address for the original and the rewritten code, so that even RCX, the address behind the
/// `syscall`, must agree.
struct Memory(*mut u8);

impl Memory {
    fn new() -> Memory {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        // SAFETY: a fresh anonymous mapping touches no memory that exists.
        let at = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Memory(at.cast())
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= 2 * PAGE);
        // SAFETY: inside the mapping by the check above, which nothing else refers to.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.add(offset), bytes.len()) };
    }

    fn run(&self, registers: &mut [u64; 15]) {
        // SAFETY: the mapping starts with a function of this signature made by `wrap`: it saves what the ABI has it
        // save, and the snippet in it touches registers only.
        let function: extern "C" fn(*mut u64) = unsafe { std::mem::transmute(self.0) };
        function(registers.as_mut_ptr());
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, not used after this.
        unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
    }
}

const ALL: [AsmRegister64; 15] = [rax, rbx, rcx, rdx, rsi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rdi];
/// What random instructions work on: not the stack, and not what the call's own arguments are.
const FREE: [AsmRegister64; 9] = [rbx, rdx, rsi, rbp, r8, r9, r12, r13, r14];
const FREE32: [AsmRegister32; 9] = [ebx, edx, esi, ebp, r8d, r9d, r12d, r13d, r14d];

fn random_instruction(a: &mut CodeAssembler, random: &mut Random) -> Result<(), iced_x86::IcedError> {
    let (x, y) = (random.next(FREE.len()), random.next(FREE.len()));
    match random.next(10) {
        0 => a.mov(FREE[x], FREE[y]),
        1 => a.add(FREE32[x], FREE32[y]),
        2 => a.xor(FREE[x], FREE[y]),
        3 => a.mov(FREE32[x], random.next(1 << 31) as u32),
        4 => a.lea(FREE[x], qword_ptr(FREE[y] + 8)),
        5 => a.movzx(FREE32[x], dl),
        6 => a.neg(FREE[x]),
        7 => a.imul_2(FREE[x], FREE[y]),
        8 => a.shl(FREE32[x], 3),
        _ => a.mov(FREE[x], rax),
    }
}

/// The snippet, and where in it the wrapper's part ends and begins.
fn snippet(random: &mut Random, base: u64) -> Vec<u8> {
    common::assemble_at(base, |a| {
        for r in [rbx, rbp, r12, r13, r14, r15] {
            a.push(r)?;
        }
        a.push(rdi)?;
        for (index, r) in ALL.iter().enumerate() {
            a.mov(*r, qword_ptr(rdi + index as i32 * 8))?;
        }
        for _ in 0..1 + random.next(3) {
            for _ in 0..random.next(4) {
                random_instruction(a, random)?;
            }
            // getpid, getuid, or a number that no kernel has: calls without effect and with a known result.
            a.mov(eax, [39, 102, 0xfff0][random.next(3)])?;
            for _ in 0..random.next(3) {
                random_instruction(a, random)?;
            }
            a.syscall()?;
            for _ in 0..random.next(4) {
                random_instruction(a, random)?;
            }
        }
        a.push(rdi)?;
        a.mov(rdi, qword_ptr(rsp + 8))?;
        for (index, r) in ALL.iter().enumerate().take(14) {
            a.mov(qword_ptr(rdi + index as i32 * 8), *r)?;
        }
        a.pop(rax)?;
        a.mov(qword_ptr(rdi + 14 * 8), rax)?;
        a.pop(rdi)?;
        for r in [r15, r14, r13, r12, rbp, rbx] {
            a.pop(r)?;
        }
        a.ret()
    })
}

/// What the kernel does with a site, with a real `syscall` in place of its entry.
fn rewrite(code: &[u8], base: u64) -> (Vec<u8>, Vec<u8>, usize) {
    let sites = scan(&elf(code)).unwrap().sites;
    let mut patched = code.to_vec();
    let mut stubs: Vec<u8> = Vec::new();
    for site in &sites {
        let start = site.offset as usize - CODE as usize;
        let (before, after) = (site.before as usize, site.after as usize);
        let syscall = start + before;
        let stub = base + STUBS as u64 + stubs.len() as u64;
        let jump = |from: u64, to: u64| {
            let mut bytes = vec![0xe9];
            bytes.extend((to.wrapping_sub(from + 5) as i32).to_le_bytes());
            bytes
        };
        stubs.extend(&code[start..syscall]);
        stubs.extend([0x0f, 0x05]);
        // mov $address, %rcx
        stubs.extend([0x48, 0xb9]);
        stubs.extend((base + syscall as u64 + 2).to_le_bytes());
        stubs.extend(&code[syscall + 2..syscall + 2 + after]);
        let from = base + STUBS as u64 + stubs.len() as u64;
        stubs.extend(jump(from, base + (syscall + 2 + after) as u64));
        patched[start..start + 5].copy_from_slice(&jump(base + start as u64, stub));
    }
    (patched, stubs, sites.len())
}

#[test]
fn rewritten_code_leaves_every_register_as_the_original_does() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let memory = Memory::new();
    let base = memory.0 as u64;
    let mut rewritten = 0;
    for round in 0..3000 {
        let code = snippet(&mut random, base);
        assert!(code.len() <= STUBS);
        let start: [u64; 15] = std::array::from_fn(|_| (random.next(1 << 31) as u64) << random.next(32));
        let (patched, stubs, sites) = rewrite(&code, base);
        rewritten += sites;
        let run = |code: &[u8]| {
            memory.put(0, code);
            memory.put(STUBS, &stubs);
            let mut registers = start;
            memory.run(&mut registers);
            registers
        };
        let (expected, got) = (run(&code), run(&patched));
        assert_eq!(expected, got, "round {round}: {code:02x?}");
    }
    assert!(rewritten > 4000, "only {rewritten} sites: the test tests too little");
}
