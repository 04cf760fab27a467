// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process may ask of the host once the program runs: a seccomp filter (Linux
//! Documentation/userspace-api/seccomp_filter.rst). `docs/explanation/process.md` lists each call with its reason.
//!
//! The program has no way to make a host call of its own (Syscall User Dispatch turns them into calls of the kernel) but by
//! a jump to the kernel's own `syscall` instruction, with registers as it likes: this list is what that gains it. Memory
//! calls are held to the program's part of the address space, to descriptors of the machine's memory and root archive, and
//! to kernel stacks.

use crate::host::{self, MAP_FIXED, PROT_READ, PROT_WRITE};
use api_plat::USER_END;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_GREATER_OR_EQUAL: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const IF_SET: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const TRAP: u32 = 0x0003_0000; // SECCOMP_RET_TRAP: SIGSYS, so that it is reported

const ARCHITECTURE: u32 = 4;
const NUMBER: u32 = 0;
const X86_64: u32 = 0xc000_003e;

/// Where the halves of an argument are in `struct seccomp_data`.
const fn low(argument: u32) -> u32 {
    16 + argument * 8
}
const fn high(argument: u32) -> u32 {
    low(argument) + 4
}

/// Most instructions of the filter.
pub const MOST: usize = 96;

/// The filter while it is made.
pub struct Filter {
    code: [Instruction; MOST],
    length: usize,
}

/// A condition on the loaded word; the call is refused where it does not hold.
#[derive(Clone, Copy)]
enum Must {
    Be(u32),
    BeBelow(u32),
    Have(u32),
    BeOneOf([u32; 3]),
}

impl Filter {
    fn put(&mut self, code: u16, value: u32, if_true: u8, if_false: u8) {
        self.code[self.length] = Instruction { code, if_true, if_false, value };
        self.length += 1;
    }

    fn allow(&mut self, number: u32) {
        self.put(IF_EQUAL, number, 0, 1);
        self.put(RETURN, ALLOW, 0, 0);
    }

    /// Instructions that [`Filter::must`] makes of a condition.
    const fn length_of(must: Must) -> u8 {
        match must {
            Must::BeOneOf(_) => 5,
            _ => 3,
        }
    }

    fn must(&mut self, at: u32, must: Must) {
        self.put(LOAD, at, 0, 0);
        match must {
            Must::Be(value) => self.put(IF_EQUAL, value, 1, 0),
            Must::BeBelow(value) => self.put(IF_GREATER_OR_EQUAL, value, 0, 1),
            Must::Have(value) => self.put(IF_SET, value, 1, 0),
            Must::BeOneOf([a, b, c]) => {
                self.put(IF_EQUAL, a, 3, 0);
                self.put(IF_EQUAL, b, 2, 0);
                self.put(IF_EQUAL, c, 1, 0);
            }
        }
        self.put(RETURN, TRAP, 0, 0);
    }

    /// Allows a call where all of the conditions hold; in every other case the next rule for it decides.
    fn allow_if(&mut self, number: u32, conditions: &[(u32, Must)]) {
        let length: u8 = conditions.iter().map(|(_, must)| Self::length_of(*must)).sum::<u8>() + 1;
        self.put(IF_EQUAL, number, 0, length);
        for (at, must) in conditions {
            self.must(*at, *must);
        }
        self.put(RETURN, ALLOW, 0, 0);
    }

    pub fn code(&self) -> &[Instruction] {
        &self.code[..self.length]
    }
}

const MADV_DONTNEED: u32 = 4;
const MADV_REMOVE: u32 = 9;
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;

/// The filter. `files` are the machine's memory and the root archive; `stacks` is the upper half of the addresses of
/// kernel stacks; `by_call` allows setting FS base where the processor cannot.
pub fn filter(files: [i32; 2], stacks: u32, by_call: bool) -> Filter {
    let mut f =
        Filter { code: [Instruction { code: 0, if_true: 0, if_false: 0, value: 0 }; MOST], length: 0 };
    let program = Must::BeBelow((USER_END >> 32) as u32);
    f.must(ARCHITECTURE, Must::Be(X86_64));
    f.put(LOAD, NUMBER, 0, 0);
    // The frequent ones first.
    for number in [
        host::PPOLL,
        host::READ,
        host::WRITE,
        host::READV,
        host::WRITEV,
        host::TIMER_SETTIME,
        host::RT_SIGRETURN,
        host::CLOCK_GETTIME,
        host::EXIT_GROUP,
    ] {
        f.allow(number);
    }
    let mapped = [files[0] as u32, files[1] as u32, u32::MAX];
    let map = [(high(0), program), (low(3), Must::Have(MAP_FIXED)), (low(4), Must::BeOneOf(mapped))];
    f.allow_if(host::MMAP, &map);
    f.allow_if(host::MUNMAP, &[(high(0), program)]);
    f.allow_if(host::MADVISE, &[(low(2), Must::BeOneOf([MADV_DONTNEED, MADV_REMOVE, MADV_REMOVE]))]);
    // mprotect: of the program's pages to anything, of kernel stacks to readable and writable.
    f.put(IF_EQUAL, host::MPROTECT, 0, 8);
    f.put(LOAD, high(0), 0, 0);
    f.put(IF_GREATER_OR_EQUAL, (USER_END >> 32) as u32, 1, 0);
    f.put(RETURN, ALLOW, 0, 0);
    f.put(IF_EQUAL, stacks, 1, 0);
    f.put(RETURN, TRAP, 0, 0);
    f.put(LOAD, low(2), 0, 0);
    f.put(IF_EQUAL, PROT_READ | PROT_WRITE, 0, 1);
    f.put(RETURN, ALLOW, 0, 0);
    if by_call {
        let codes = [ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_FS];
        f.allow_if(host::ARCH_PRCTL, &[(low(0), Must::BeOneOf(codes))]);
    }
    f.put(RETURN, TRAP, 0, 0);
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What classic BPF does.
    fn run(filter: &Filter, number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
        let load = |at: u32| match at {
            NUMBER => number,
            ARCHITECTURE => architecture,
            _ => {
                let word = arguments[(at as usize - 16) / 8];
                if at.is_multiple_of(8) { word as u32 } else { (word >> 32) as u32 }
            }
        };
        let (mut at, mut a) = (0, 0);
        loop {
            let i = filter.code()[at];
            at += 1;
            let taken = match i.code {
                LOAD => {
                    a = load(i.value);
                    continue;
                }
                RETURN => return i.value,
                IF_EQUAL => a == i.value,
                IF_GREATER_OR_EQUAL => a >= i.value,
                IF_SET => a & i.value != 0,
                _ => panic!("no such instruction"),
            };
            at += usize::from(if taken { i.if_true } else { i.if_false });
        }
    }

    fn asks(number: u32, arguments: [u64; 6]) -> bool {
        run(&filter([3, 4], 0x7040, false), number, X86_64, arguments) == ALLOW
    }

    #[test]
    fn only_listed_calls_pass() {
        // Arguments that pass where arguments matter: a fixed mapping of the memory, and what madvise may be told.
        let (fixed, memory) = (u64::from(MAP_FIXED), 3);
        let tries = [[0; 6], [0, 0, 0, fixed, memory, 0], [0, 0, u64::from(MADV_DONTNEED), 0, 0, 0]];
        let codes = [[u64::from(ARCH_SET_FS), 0, 0, 0, 0, 0]];
        let f = filter([3, 4], 0x7040, true);
        let passes = |n: u32| tries.iter().chain(&codes).any(|a| run(&f, n, X86_64, *a) == ALLOW);
        let passing: std::vec::Vec<u32> = (0..600).filter(|n| passes(*n)).collect();
        let listed: std::vec::Vec<u32> = crate::CALLS.iter().map(|(number, ..)| *number).collect();
        assert_eq!(passing, listed);
        assert_eq!(run(&filter([3, 4], 0x7040, false), host::READ, 0x4000_0003, [0; 6]), TRAP);
    }

    #[test]
    fn memory_calls_keep_to_the_program_and_its_files() {
        let (here, fixed) = (0x5000_0000_0000, u64::from(MAP_FIXED) | 1);
        assert!(asks(host::MMAP, [here, 4096, 7, fixed, 3, 0]));
        assert!(asks(host::MMAP, [here, 4096, 7, fixed, u64::MAX, 0]));
        assert!(!asks(host::MMAP, [here, 4096, 7, fixed, 5, 0]));
        assert!(!asks(host::MMAP, [here, 4096, 7, 1, 3, 0]));
        assert!(!asks(host::MMAP, [USER_END, 4096, 7, fixed, 3, 0]));
        assert!(asks(host::MPROTECT, [here, 4096, 7, 0, 0, 0]));
        assert!(!asks(host::MPROTECT, [USER_END, 4096, 1, 0, 0, 0]));
        assert!(asks(host::MPROTECT, [0x7040_0000_8000, 4096, 3, 0, 0, 0]));
        assert!(!asks(host::MPROTECT, [0x7040_0000_8000, 4096, 7, 0, 0, 0]));
        assert!(!asks(host::MUNMAP, [USER_END, 4096, 0, 0, 0, 0]));
        assert!(!asks(host::MADVISE, [here, 4096, 3, 0, 0, 0]));
        assert!(!asks(host::ARCH_PRCTL, [0x1002, 0, 0, 0, 0, 0]));
    }
}
