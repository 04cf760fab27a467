// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a program may be installed: what Linux' `bpf_check_classic` accepts, with the loads of its purpose, and no other.

use crate::*;
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Why a program was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EINVAL`: it is no such program.
    Invalid,
    /// `ENOMEM`: there is no memory to look at it.
    NoMemory,
}

use Refusal::{Invalid, NoMemory};

/// What a program may do beside what all may.
pub(crate) trait Loads {
    /// Whether it may load that from what it looks at.
    fn has_load(&self, i: &Instruction) -> bool;

    /// Whether it has this operation of arithmetic.
    fn has_operation(&self, operation: u16) -> bool;
}

/// Looks at a whole program: every instruction is known, jumps end inside of it, it ends with an answer, loads are those that
/// `loads` has, and memory is read only where it was written on every way there.
pub(crate) fn check(program: &[Instruction], loads: &impl Loads) -> Result<(), Refusal> {
    if program.is_empty() || program.len() > MAX_INSTRUCTIONS {
        return Err(Invalid);
    }
    for (at, instruction) in program.iter().enumerate() {
        // Instructions behind this one: where a jump may end.
        let behind = program.len() - at - 1;
        is_known(instruction, behind, loads).then_some(()).ok_or(Invalid)?;
    }
    if program.last().is_none_or(|last| last.code & 7 != RET) {
        return Err(Invalid);
    }
    memory_is_written_first(program)
}

fn is_known(i: &Instruction, behind: usize, loads: &impl Loads) -> bool {
    let in_memory = (i.k as usize) < MEMORY;
    let jumps_inside = usize::from(i.if_true) < behind && usize::from(i.if_false) < behind;
    const OPERATIONS: [u16; 8] = [ADD, SUB, MUL, AND, OR, XOR, LSH, RSH];
    const CONDITIONS: [u16; 4] = [JEQ, JGE, JGT, JSET];
    let operation = i.code & 0xf0;
    match i.code & 7 {
        LD | LDX if i.code & !7 == MEM => in_memory,
        LD | LDX => i.code & !7 == IMM || i.code & !7 == LEN || loads.has_load(i),
        ST | STX => i.code & !7 == 0 && in_memory,
        ALU if i.code == ALU | NEG => true,
        ALU if i.code <= 0xff && [DIV, MOD].contains(&operation) => {
            loads.has_operation(operation) && (i.code & X != 0 || i.k != 0)
        }
        ALU if [LSH, RSH].contains(&(i.code & !7)) => i.k < 32,
        ALU => OPERATIONS.contains(&(i.code & !7 & !X)),
        JMP if i.code == JMP | JA => (i.k as usize) < behind,
        JMP => CONDITIONS.contains(&(i.code & !7 & !X)) && jumps_inside,
        RET => i.code == RET | K || i.code == RET | A,
        _ => i.code == MISC | TAX || i.code == MISC | TXA,
    }
}

/// Which words of memory were written, for each instruction: a set of bits, the intersection over all ways that lead there.
fn memory_is_written_first(program: &[Instruction]) -> Result<(), Refusal> {
    const ALL: u16 = u16::MAX;
    let mut written: Vec<u16> = Vec::new();
    written.reserve_exact_fallibly(program.len()).map_err(|_| NoMemory)?;
    written.resize(program.len(), ALL);
    // What the instruction before this one leaves behind when it goes on here.
    let mut valid = 0;
    for (at, i) in program.iter().enumerate() {
        valid &= written[at];
        let bit = 1u16.checked_shl(i.k).unwrap_or(0);
        let mut to = |distance: usize| {
            if let Some(target) = written.get_mut(at + 1 + distance) {
                *target &= valid;
            }
        };
        match i.code & 7 {
            ST | STX => valid |= bit,
            LD | LDX if i.code & !7 == MEM && valid & bit == 0 => return Err(Invalid),
            JMP if i.code == JMP | JA => {
                to(i.k as usize);
                valid = ALL;
            }
            JMP => {
                to(i.if_true.into());
                to(i.if_false.into());
                valid = ALL;
            }
            _ => {}
        }
    }
    Ok(())
}
