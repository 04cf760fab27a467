// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process does on a signal: sigaction(2).

use super::set::*;
use super::state;
use crate::call::Call;
use crate::task;
use abi::{Result, errno::EINVAL};

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;

pub const SA_NOCLDSTOP: u64 = 0x1;
pub const SA_NOCLDWAIT: u64 = 0x2;
pub const SA_SIGINFO: u64 = 0x4;
pub const SA_EXPOSE_TAGBITS: u64 = 0x800;
pub const SA_RESTORER: u64 = 0x0400_0000;
pub const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// Flags that are kept; others, SA_UNSUPPORTED among them, read back as zero, which is how programs find out.
const KNOWN_FLAGS: u64 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;

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

/// `EINVAL` for what is no signal set size: a bit for each of 64 signals.
pub(super) fn check_set_size(size: usize) -> Result<()> {
    if size == size_of::<SignalSet>() { Ok(()) } else { Err(EINVAL) }
}

/// rt_sigaction(2).
pub fn rt_sigaction(call: &mut Call<'_>) -> Result<usize> {
    let signal = call.int(0);
    let (new, old) = (call.ptr::<[u64; 4]>(1).non_null(), call.ptr::<[u64; 4]>(2).non_null());
    check_set_size(call.size(3))?;
    let new = new.map(|pointer| pointer.read()).transpose()?;
    if !(1..=SIGNALS).contains(&signal) || (new.is_some() && bit(signal) & UNBLOCKABLE != 0) {
        return Err(EINVAL);
    }
    let process = &task::current().process;
    let before = process.signals.action(signal);
    if let Some([handler, flags, restorer, mask]) = new {
        let action = Action { handler, flags: flags & KNOWN_FLAGS, restorer, mask: mask & !UNBLOCKABLE };
        process.signals.set_action(signal, action);
        if action.ignores(signal) {
            // POSIX: a pending signal that becomes ignored is discarded, blocked or not.
            state::discard(process, bit(signal));
        }
    }
    if let Some(old) = old {
        old.write([before.handler, before.flags, before.restorer, before.mask])?;
    }
    Ok(0)
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
