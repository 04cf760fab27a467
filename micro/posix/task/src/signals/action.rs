// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process does on a signal.

use super::set::*;

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;
pub const SA_NOCLDSTOP: u64 = 0x1;
pub const SA_NOCLDWAIT: u64 = 0x2;
pub const SA_SIGINFO: u64 = 0x4;
pub const SA_EXPOSE_TAGBITS: u64 = 0x800;
/// The kernel's own: a signal that ends the process whatever it or its tracer want.
pub const SA_IMMUTABLE: u64 = 0x80_0000;
pub const SA_RESTORER: u64 = 0x0400_0000;
pub const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;

/// The kernel's `struct sigaction` for x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// [`SIG_DFL`], [`SIG_IGN`] or the handler's address.
    pub handler: u64,
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Blocked while the handler runs.
    pub mask: SignalSet,
}

impl Action {
    pub const DEFAULT: Action = Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 };

    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// True when `signal` would vanish with this action.
    pub fn ignores(&self, signal: i32) -> bool {
        match self.handler {
            SIG_IGN => true,
            SIG_DFL => {
                matches!(default_action(signal), DefaultAction::Ignore | DefaultAction::Continue)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::linux::general as linux;
    use core::mem::offset_of;

    #[test]
    fn the_words_of_an_action_are_those_of_linux() {
        assert_eq!(size_of::<linux::sigaction>(), 32);
        assert_eq!(offset_of!(linux::sigaction, sa_handler), 0);
        assert_eq!(offset_of!(linux::sigaction, sa_flags), 8);
        assert_eq!(offset_of!(linux::sigaction, sa_restorer), 16);
        assert_eq!(offset_of!(linux::sigaction, sa_mask), 24);
        assert_eq!(SA_RESETHAND, u64::from(linux::SA_RESETHAND));
        assert_eq!(SA_RESTORER, u64::from(linux::SA_RESTORER));
    }

    #[test]
    fn ignoring_by_default_counts_as_ignoring() {
        assert!(Action::DEFAULT.ignores(SIGCHLD));
        assert!(!Action::DEFAULT.ignores(SIGTERM));
        assert!(Action { handler: SIG_IGN, ..Action::DEFAULT }.ignores(SIGTERM));
        assert!(!Action { handler: 0x1000, ..Action::DEFAULT }.ignores(SIGCHLD));
    }
}
