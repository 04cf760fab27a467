// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classic BPF, as seccomp(2) and the filters of sockets (socket(7), SO_ATTACH_FILTER) have it: what a program may contain, and
//! what it answers.
//!
//! The instruction set is that of McCanne and Jacobson, "The BSD Packet Filter" (USENIX 1993), with Linux' additions. What a
//! program looks at decides which loads it has: [`seccomp`] leaves the words of a system call, [`packet`] the bytes of a packet and
//! what Linux knows about it. There are no jumps back, so a program of `n` instructions ends after `n` steps at the latest.
//!
//! May depend on the allocator's API; sockets, the system calls and, for its tests, the host's compiler of profiles depend on it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod check;
mod interpreter;
pub mod packet;
pub mod seccomp;

pub use check::Refusal;

/// Instructions of one program, at most (Linux' BPF_MAXINSNS).
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Words of memory that a program has.
const MEMORY: usize = 16;

/// `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Class, size and mode of a load; class, operation and operand of the others.
    pub code: u16,
    /// How many instructions a jump goes over when its condition is true.
    pub if_true: u8,
    /// And when it is false.
    pub if_false: u8,
    /// The operand.
    pub k: u32,
}

impl Instruction {
    /// `sizeof(struct sock_filter)`.
    pub const SIZE: usize = 8;

    /// As it is in memory, where it is one word.
    pub fn from_word(word: u64) -> Instruction {
        Instruction {
            code: word as u16,
            if_true: (word >> 16) as u8,
            if_false: (word >> 24) as u8,
            k: (word >> 32) as u32,
        }
    }

    pub fn to_word(self) -> u64 {
        u64::from(self.code)
            | u64::from(self.if_true) << 16
            | u64::from(self.if_false) << 24
            | u64::from(self.k) << 32
    }
}

// Classes of instructions, and what they are combined with (linux/bpf_common.h).
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
/// Sizes of loads: words, unless one of these says otherwise.
const H: u16 = 0x08;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;
/// The operand is `k`, or the index register.
const K: u16 = 0x00;
const X: u16 = 0x08;
/// RET of the accumulator.
const A: u16 = 0x10;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;

/// Bytes that a load of this code takes.
fn size(code: u16) -> usize {
    match code & (H | B) {
        H => 2,
        B => 1,
        _ => 4,
    }
}

#[cfg(test)]
mod tests;
