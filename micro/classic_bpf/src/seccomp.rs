// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that decide about system calls (seccomp(2)): their loads are words of [`Data`], by their offset.

use crate::check::{self, Loads, Refusal};
use crate::interpreter::{End, Subject, interpret};
use crate::{ABS, Instruction, LD, MOD};

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

/// What Linux' `seccomp_check_filter` leaves of the instruction set.
struct Words;

impl Loads for Words {
    fn has_load(&self, i: &Instruction) -> bool {
        i.code == LD | ABS && i.k < DATA_BYTES && i.k.is_multiple_of(4)
    }

    fn has_operation(&self, operation: u16) -> bool {
        operation != MOD
    }
}

/// Looks at a whole program before it may be installed.
pub fn check(program: &[Instruction]) -> Result<(), Refusal> {
    check::check(program, &Words)
}

/// A call of which the words are known that `load` has.
struct Call<L>(L);

impl<L: Fn(u32) -> Option<u32>> Subject for Call<L> {
    fn length(&self) -> u32 {
        DATA_BYTES
    }

    #[inline]
    fn absolute(&self, i: &Instruction, _a: u32, _x: u32) -> Result<u32, End> {
        (self.0)(i.k).ok_or(End(None))
    }
}

/// What a program answers about a call. The program must have passed [`check`]; one that has not is answered by 0, which
/// ends the thread.
pub fn run(program: &[Instruction], data: &Data) -> u32 {
    interpret(program, &Call(|offset| Some(data.word(offset)))).unwrap_or(0)
}

/// What a program answers about every call of that number, whatever else the call is; `None` when it looks at more, or when what it
/// answers depends on it.
pub fn answer_by_number(program: &[Instruction], number: u32, architecture: u32) -> Option<u32> {
    interpret(
        program,
        &Call(|offset| match offset {
            0 => Some(number),
            4 => Some(architecture),
            _ => None,
        }),
    )
}
