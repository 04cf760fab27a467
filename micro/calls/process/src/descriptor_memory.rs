// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of a process by a descriptor of it: process_madvise(2), process_mrelease(2).

use crate::pidfd;
use abi::linux::general::{MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_user::read_iovec;
use calls_memory::memory::advice;
use task::call::Call;
use task::identity::capabilities::CAP_SYS_NICE;
use task::identity::{As, check_access};
use task::process::Process;
use task::processes;
use task::signals::{SIGKILL, bit};

/// process_madvise(2): only what changes nothing that the process could see. The answer is how many bytes it was done for.
pub fn process_madvise(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(4) != 0 {
        return Err(EINVAL);
    }
    let ranges = read_iovec(call.arg(1), call.uint(2) as usize)?;
    let process = pidfd::living(call.int(0))?;
    let advice = match call.uint(3) {
        number @ (MADV_COLD | MADV_PAGEOUT | MADV_WILLNEED) => advice(number)?,
        _ => return Err(EINVAL),
    };
    let space = process.space().ok_or(ESRCH)?;
    check_access(&process, As::Files).map_err(|_| EACCES)?;
    if !task::current().credentials().lock().can(CAP_SYS_NICE) {
        return Err(EPERM);
    }
    let mut done = 0;
    for range in ranges.iter() {
        match space.advise(range.address, range.length as u64, advice) {
            Ok(()) => done += range.length,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// process_mrelease(2): the memory of a process that is about to end goes now, whatever its threads wait for.
pub fn process_mrelease(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(1) != 0 {
        return Err(EINVAL);
    }
    let process = pidfd::living(call.int(0))?;
    let space = process.space().ok_or(ESRCH)?;
    // All that share the memory (CLONE_VM) have to be about to end.
    let shares = |other: &Arc<Process>| other.space().is_some_and(|theirs| Arc::ptr_eq(&theirs, &space));
    if !processes::all().filter(shares).all(|other| is_killed(&other)) {
        return Err(EINVAL);
    }
    space.reap().map(|()| 0).map_err(|_| EAGAIN)
}

/// It ends before it is in its program again.
fn is_killed(process: &Process) -> bool {
    let killed = |pending| pending & bit(SIGKILL) != 0;
    process.is_ending()
        || killed(process.signals.pending())
        || process.tasks().all(|task| killed(task.signals.pending()))
}
