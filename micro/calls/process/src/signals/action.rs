// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process does on a signal: sigaction(2).

use abi::{Result, errno::EINVAL};
use task::call::Call;
use task::signals::action::*;
use task::signals::{self, *};

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
    if before.has(SA_IMMUTABLE) {
        return Err(EINVAL);
    }
    if let Some([handler, flags, restorer, mask]) = new {
        let action = Action { handler, flags: flags & KNOWN_FLAGS, restorer, mask: mask & !UNBLOCKABLE };
        process.signals.set_action(signal, action);
        if action.ignores(signal) {
            // POSIX: a pending signal that becomes ignored is discarded, blocked or not.
            signals::discard(process, bit(signal));
        }
    }
    if let Some(old) = old {
        old.write([before.handler, before.flags, before.restorer, before.mask])?;
    }
    Ok(0)
}
