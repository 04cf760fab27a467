// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of classic BPF that decide about system calls (seccomp(2)): what such a program may contain, and what it answers.
//!
//! The instruction set is that of McCanne and Jacobson, "The BSD Packet Filter" (USENIX 1993), with the loads that Linux
//! leaves to filters of system calls: words of [`Data`], by their offset. There are no jumps back, so a program of `n`
//! instructions ends after `n` steps at the latest.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod check;

pub use check::{Refusal, check};

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

// Classes of instructions, and what they are combined with (linux/bpf_common.h).
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
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

/// `struct seccomp_data`: the call that a program decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The call's number.
    pub number: u32,
    /// AUDIT_ARCH of the instruction set that it was made in.
    pub architecture: u32,
    /// Behind the instruction that made it.
    pub instruction_pointer: u64,
    pub arguments: [u64; 6],
}

/// `sizeof(struct seccomp_data)`.
pub const DATA_BYTES: u32 = 64;

impl Data {
    /// The word at an offset that [`check`] has seen.
    fn word(&self, offset: u32) -> u32 {
        let half = |value: u64| if offset & 4 == 0 { value as u32 } else { (value >> 32) as u32 };
        match offset {
            0 => self.number,
            4 => self.architecture,
            8 | 12 => half(self.instruction_pointer),
            _ => self.arguments.get((offset as usize - 16) / 8).map_or(0, |argument| half(*argument)),
        }
    }
}

/// What a program answers about a call. The program must have passed [`check`]; one that has not is answered by 0, which
/// ends the thread.
pub fn run(program: &[Instruction], data: &Data) -> u32 {
    interpret(program, |offset| Some(data.word(offset))).unwrap_or(0)
}

/// What a program answers about every call of that number, whatever else the call is; `None` when it looks at more, or when what it
/// answers depends on it.
pub fn answer_by_number(program: &[Instruction], number: u32, architecture: u32) -> Option<u32> {
    interpret(program, |offset| match offset {
        0 => Some(number),
        4 => Some(architecture),
        _ => None,
    })
}

/// Runs a program whose words of [`Data`] come from `load`; `None` as soon as that has none.
fn interpret(program: &[Instruction], load: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut memory = [0u32; MEMORY];
    let mut at = 0;
    while let Some(i) = program.get(at) {
        at += 1;
        let class = i.code & 7;
        let operand = if i.code & X != 0 { x } else { i.k };
        let slot = i.k as usize % MEMORY;
        match class {
            LD | LDX => {
                let value = match i.code & 0xe0 {
                    IMM => i.k,
                    ABS => load(i.k)?,
                    MEM => memory[slot],
                    _ => DATA_BYTES,
                };
                *(if class == LD { &mut a } else { &mut x }) = value;
            }
            ST => memory[slot] = a,
            STX => memory[slot] = x,
            ALU => {
                a = match i.code & 0xf0 {
                    ADD => a.wrapping_add(operand),
                    SUB => a.wrapping_sub(operand),
                    MUL => a.wrapping_mul(operand),
                    // Division by the index register that is 0 ends the program, with 0.
                    DIV => match a.checked_div(operand) {
                        Some(quotient) => quotient,
                        None => return Some(0),
                    },
                    OR => a | operand,
                    AND => a & operand,
                    // The processor's shifts, which Linux compiles to, look at five bits of the distance.
                    LSH => a.wrapping_shl(operand),
                    RSH => a.wrapping_shr(operand),
                    XOR => a ^ operand,
                    _ => a.wrapping_neg(),
                };
            }
            JMP => {
                let condition = match i.code & 0xf0 {
                    JA => {
                        at = at.saturating_add(i.k as usize);
                        continue;
                    }
                    JEQ => a == operand,
                    JGT => a > operand,
                    JGE => a >= operand,
                    _ => a & operand != 0,
                };
                at += usize::from(if condition { i.if_true } else { i.if_false });
            }
            RET => return Some(if i.code & 0x18 == A { a } else { i.k }),
            _ if i.code & 0xf8 == TXA => a = x,
            _ => x = a,
        }
    }
    Some(0)
}

#[cfg(test)]
mod tests;
