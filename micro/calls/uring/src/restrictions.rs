// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a ring was restricted to (IORING_REGISTER_RESTRICTIONS), before it was enabled.

use super::register;
use abi::{Result, errno::*};
use api_user::UserPtr;

const REGISTER_OP: u16 = 0;
const SQE_OP: u16 = 1;
const SQE_FLAGS_ALLOWED: u16 = 2;
const SQE_FLAGS_REQUIRED: u16 = 3;
/// As many as there are opcodes, commands and kinds of flags (Linux' IORING_MAX_RESTRICTIONS).
const MAX: u32 = register::COMMANDS + super::ops::OPCODES as u32 + 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    commands: u64,
    opcodes: u64,
    flags_allowed: u8,
    flags_required: u8,
}

impl Restrictions {
    /// Reads an array of `struct io_uring_restriction`, 16 bytes each.
    pub fn read(at: u64, count: u32) -> Result<Restrictions> {
        if at == 0 || count > MAX {
            return Err(EINVAL);
        }
        let mut all = Restrictions::default();
        for index in 0..u64::from(count) {
            let [kind, low, ..] = UserPtr::<[u16; 8]>::new(at).add(index).read()?;
            let value = low as u8;
            match kind {
                REGISTER_OP if u32::from(value) < register::COMMANDS => all.commands |= 1 << value,
                SQE_OP if value < super::ops::OPCODES => all.opcodes |= 1 << value,
                SQE_FLAGS_ALLOWED => all.flags_allowed = value,
                SQE_FLAGS_REQUIRED => all.flags_required = value,
                _ => return Err(EINVAL),
            }
        }
        Ok(all)
    }

    pub fn allows_command(&self, command: u32) -> bool {
        command < 64 && self.commands >> command & 1 != 0
    }

    pub fn allows_submission(&self, opcode: u8, flags: u8) -> bool {
        self.opcodes >> (opcode & 63) & 1 != 0
            && flags & self.flags_required == self.flags_required
            && flags & !(self.flags_allowed | self.flags_required) == 0
    }
}
