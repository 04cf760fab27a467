// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The signal mask of calls that have one of their own.

use super::set::SignalSet;
use crate::thread;
use crate::wait::{RESTART, RESTART_BLOCK, RESTART_NO_HANDLER};
use abi::{Result, errno::*};
use api_user::UserPtr;

/// `EINVAL` for what is no signal set size: a bit for each of 64 signals.
pub fn check_set_size(size: usize) -> Result<()> {
    if size == size_of::<SignalSet>() { Ok(()) } else { Err(EINVAL) }
}

/// Runs `operation` with the signal mask at `mask` (null: the one there is), for ppoll(2), pselect6(2) and
/// epoll_pwait(2). A call that a signal interrupts leaves the mask to the delivery, so that the handler of a signal
/// blocked outside runs.
pub fn with_mask(
    mask: UserPtr<SignalSet>,
    size: usize,
    operation: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    let Some(mask) = mask.non_null() else { return operation() };
    check_set_size(size)?;
    let set = mask.read()?;
    let signals = &thread::current().signals;
    signals.set_blocked_for_call(set);
    let result = operation();
    if !matches!(result, Err(RESTART | RESTART_NO_HANDLER | RESTART_BLOCK | EINTR))
        && let Some(before) = signals.take_saved_mask()
    {
        signals.set_blocked(before);
    }
    result
}
