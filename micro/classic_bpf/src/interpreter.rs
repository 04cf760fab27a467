// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a program that was checked.

use crate::*;

/// A load that has no value ends the program with this answer, or with none that is known.
pub(crate) struct End(pub Option<u32>);

/// What a program looks at.
pub(crate) trait Subject {
    /// What LEN loads.
    fn length(&self) -> u32;

    /// What ABS loads; of a few offsets Linux has the accumulator and the index register count as well.
    fn absolute(&self, i: &Instruction, a: u32, x: u32) -> Result<u32, End>;

    /// A number of one, two or four bytes at an offset: what IND and MSH load.
    fn at(&self, offset: u32, size: usize) -> Result<u32, End> {
        let _ = (offset, size);
        Err(End(None))
    }
}

/// Runs a program; `None` when what it answers is not known.
pub(crate) fn interpret(program: &[Instruction], subject: &impl Subject) -> Option<u32> {
    match execute(program, subject) {
        Ok(answer) => Some(answer),
        Err(End(answer)) => answer,
    }
}

fn execute(program: &[Instruction], subject: &impl Subject) -> Result<u32, End> {
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
                    ABS => subject.absolute(i, a, x)?,
                    IND => subject.at(x.wrapping_add(i.k), size(i.code))?,
                    // The length of an IPv4 header, by its first byte.
                    MSH => (subject.at(i.k, 1)? & 0xf) << 2,
                    MEM => memory[slot],
                    _ => subject.length(),
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
                        None => return Ok(0),
                    },
                    MOD => match a.checked_rem(operand) {
                        Some(rest) => rest,
                        None => return Ok(0),
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
            RET => return Ok(if i.code & 0x18 == A { a } else { i.k }),
            _ if i.code & 0xf8 == TXA => a = x,
            _ => x = a,
        }
    }
    Ok(0)
}
