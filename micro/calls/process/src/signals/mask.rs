// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The signal mask, and waiting for signals.

use abi::{Result, errno::*};
use task::call::Call;
use task::signals::{self, action::SIG_DFL, check_set_size, while_waiting_for, *};
use task::time::duration;
use task::wait::{self, RESTART_NO_HANDLER};

const SIG_BLOCK: i32 = 0;
const SIG_UNBLOCK: i32 = 1;
const SIG_SETMASK: i32 = 2;

/// rt_sigprocmask(2).
pub fn rt_sigprocmask(call: &mut Call<'_>) -> Result<usize> {
    let (set, old) = (call.ptr::<SignalSet>(1).non_null(), call.ptr::<SignalSet>(2).non_null());
    check_set_size(call.size(3))?;
    let signals = &task::current().signals;
    let before = signals.blocked();
    if let Some(set) = set {
        let set = set.read()?;
        signals.set_blocked(match call.int(0) {
            SIG_BLOCK => before | set,
            SIG_UNBLOCK => before & !set,
            SIG_SETMASK => set,
            _ => return Err(EINVAL),
        });
    }
    if let Some(old) = old {
        old.write(before)?;
    }
    Ok(0)
}

/// rt_sigpending(2).
pub fn rt_sigpending(call: &mut Call<'_>) -> Result<usize> {
    let size = call.size(1);
    if size > size_of::<SignalSet>() {
        return Err(EINVAL);
    }
    let task = task::current();
    let pending = task.signals.pending() | task.process.signals.pending();
    let bytes = (pending & task.signals.blocked()).to_ne_bytes();
    call.ptr::<u8>(0).write_slice(&bytes[..size])?;
    Ok(0)
}

/// rt_sigsuspend(2).
pub fn rt_sigsuspend(call: &mut Call<'_>) -> Result<usize> {
    check_set_size(call.size(1))?;
    let set = call.ptr::<SignalSet>(0).read()?;
    task::current().signals.set_blocked_for_call(set);
    wait::sleep_until(wait::FOREVER);
    Err(RESTART_NO_HANDLER)
}

/// pause(2).
pub fn pause(_: &mut Call<'_>) -> Result<usize> {
    wait::sleep_until(wait::FOREVER);
    Err(RESTART_NO_HANDLER)
}

/// restart_syscall(2): the call that was interrupted goes on, with the arguments that are still in the registers and the deadline that it had.
pub fn restart_syscall(call: &mut Call<'_>) -> Result<usize> {
    task::current().signals.restarted().map_or(Err(EINTR), |handler| handler(call))
}

/// rt_sigtimedwait(2).
pub fn rt_sigtimedwait(call: &mut Call<'_>) -> Result<usize> {
    check_set_size(call.size(3))?;
    let wanted = call.ptr::<SignalSet>(0).read()? & !UNBLOCKABLE;
    let deadline = match call.ptr::<[i64; 2]>(2).non_null() {
        Some(timeout) => api_plat::now_ns().saturating_add(duration::read_timespec(timeout)?),
        None => wait::FOREVER,
    };
    let task = task::current();
    let mut taken = signals::take(&task, wanted);
    let mut in_time = true;
    if taken.is_none() {
        // What ends the process at once is not kept by anybody who waits for it without having blocked it (Linux' complete_signal).
        let ends = |signal: &i32| {
            task.process.signals.action(*signal).handler == SIG_DFL
                && default_action(*signal) == DefaultAction::Terminate
        };
        let unblocked = wanted & !task.signals.blocked();
        let fatal = (1..=SIGNALS).filter(|signal| unblocked & bit(*signal) != 0).filter(ends);
        let wanted = wanted & !fatal.fold(0, |set, signal| set | bit(signal));
        while_waiting_for(&task, wanted, || {
            in_time = !wait::sleep_until(deadline);
            taken = signals::take(&task, wanted);
        });
    }
    match taken {
        Some(info) => {
            if let Some(pointer) = call.ptr(1).non_null() {
                pointer.write(info.to_user())?;
            }
            Ok(info.signal() as usize)
        }
        None if in_time => Err(EINTR),
        None => Err(EAGAIN),
    }
}
