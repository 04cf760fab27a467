// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The alternate signal stack.

use abi::{Result, errno::*};

const SS_ONSTACK: u32 = 1;
const SS_DISABLE: u32 = 2;
const SS_AUTODISARM: u32 = 1 << 31;

/// Smallest stack accepted (MINSIGSTKSZ).
const MIN_BYTES: u64 = 2048;

/// A thread's alternate stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltStack {
    base: u64,
    flags: u32,
    size: u64,
}

impl AltStack {
    /// That of a program that has never asked for one.
    pub const NONE: AltStack = AltStack { base: 0, flags: 0, size: 0 };
    /// That of one whose handler runs on the stack, with SS_AUTODISARM.
    pub const DISARMED: AltStack = AltStack { flags: SS_DISABLE, ..AltStack::NONE };

    /// `stack_t` as three words.
    pub fn from_user([base, flags, size]: [u64; 3]) -> AltStack {
        AltStack { base, flags: flags as u32, size }
    }

    /// As a signal frame saves it.
    pub fn to_user(self) -> [u64; 3] {
        [self.base, u64::from(self.flags), self.size]
    }

    /// The thread runs on it. Never with SS_AUTODISARM: then the frame holds the stack while it is in use.
    pub fn contains(&self, sp: u64) -> bool {
        !self.disarms() && self.bounds(sp)
    }

    /// `sp` lies in it, whatever its flags.
    pub fn bounds(&self, sp: u64) -> bool {
        sp > self.base && sp - self.base <= self.size
    }

    pub fn disarms(&self) -> bool {
        self.flags & SS_AUTODISARM != 0
    }

    /// Where a handler with SA_ONSTACK starts, when it is to move to this stack.
    pub fn top_for(&self, sp: u64) -> Option<u64> {
        (self.size != 0 && !self.contains(sp)).then(|| self.base.wrapping_add(self.size))
    }

    /// As sigaltstack(2) reports it.
    pub fn report(&self, sp: u64) -> [u64; 3] {
        let state = match () {
            () if self.size == 0 => SS_DISABLE,
            () if self.contains(sp) => SS_ONSTACK,
            () => 0,
        };
        [self.base, u64::from(state | self.flags & SS_AUTODISARM), self.size]
    }

    /// The stack after asking for `wanted` with the stack pointer at `sp`. To ask for what there is always goes.
    pub fn replaced(&self, wanted: AltStack, sp: u64) -> Result<AltStack> {
        if self.contains(sp) {
            return Err(EPERM);
        }
        let is_mode = matches!(wanted.flags & !SS_AUTODISARM, 0 | SS_ONSTACK | SS_DISABLE);
        if is_mode && wanted == *self {
            return Ok(wanted);
        }
        match wanted.flags & !SS_AUTODISARM {
            SS_DISABLE => Ok(AltStack { base: 0, size: 0, ..wanted }),
            0 | SS_ONSTACK if wanted.size < MIN_BYTES => Err(ENOMEM),
            0 | SS_ONSTACK => Ok(wanted),
            _ => Err(EINVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: AltStack = AltStack { base: 0x10000, flags: 0, size: 0x2000 };

    #[test]
    fn a_handler_moves_to_the_stack_once() {
        assert_eq!(STACK.top_for(0x7000_0000), Some(0x12000));
        assert_eq!(STACK.top_for(0x11000), None);
        assert_eq!(AltStack::NONE.top_for(0x7000_0000), None);
        let disarming = AltStack { flags: SS_AUTODISARM, ..STACK };
        assert_eq!(disarming.top_for(0x11000), Some(0x12000));
    }

    #[test]
    fn a_stack_in_use_is_not_replaced_and_bad_ones_are_refused() {
        let with = |flags, size| STACK.replaced(AltStack { base: 0x20000, flags, size }, 0x7000_0000);
        assert_eq!(STACK.replaced(AltStack::NONE, 0x11000), Err(EPERM));
        assert_eq!(with(0, 2047), Err(ENOMEM));
        assert_eq!(with(4, 0x4000), Err(EINVAL));
        assert_eq!(with(SS_ONSTACK, 0x4000).unwrap().size, 0x4000);
        assert_eq!(with(SS_DISABLE, 0x4000).unwrap().top_for(0x7000_0000), None);
    }

    #[test]
    fn the_report_says_whether_the_stack_is_in_use() {
        assert_eq!(STACK.report(0x11000)[1], u64::from(SS_ONSTACK));
        assert_eq!(STACK.report(0x7000_0000)[1], 0);
        assert_eq!(AltStack::NONE.report(0)[1], u64::from(SS_DISABLE));
    }
}
