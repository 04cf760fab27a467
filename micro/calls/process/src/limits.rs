// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resource limits: prlimit64(2), getrlimit(2), setrlimit(2). Kept here; their owners ask [`Limits`].

use abi::{Result, errno::*};
use alloc::sync::Arc;
use task::call::Call;
use task::identity::capabilities::CAP_SYS_RESOURCE;
use task::limits::{Limit, change_as};
use task::process::Process;

fn change(process: &Arc<Process>, resource: u32, new: Option<Limit>) -> Result<Limit> {
    let privileged = task::current().credentials().lock().can(CAP_SYS_RESOURCE);
    change_as(privileged, process, resource, new)
}

fn limit([soft, hard]: [u64; 2]) -> Limit {
    Limit { soft, hard }
}

/// `EPERM` unless all of the process' ids are the caller's, or it has CAP_SYS_RESOURCE.
fn check_access(process: &Process) -> Result<()> {
    let own = task::current();
    if core::ptr::eq(&*own.process, process) {
        return Ok(());
    }
    let caller = own.credentials().lock().clone();
    let users = process.credentials.lock().users.clone();
    if caller.can_in(&users, CAP_SYS_RESOURCE) || process.credentials.lock().is_all(caller.uid, caller.gid) {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// prlimit64(2).
pub fn prlimit64(call: &mut Call<'_>) -> Result<usize> {
    let new = call.ptr(2).non_null().map(|pointer| pointer.read()).transpose()?.map(limit);
    let process = task::identity::process_of(call.int(0))?;
    check_access(&process)?;
    let before = change(&process, call.uint(1), new)?;
    if let Some(old) = call.ptr(3).non_null() {
        old.write([before.soft, before.hard])?;
    }
    Ok(0)
}

/// getrlimit(2).
pub fn getrlimit(call: &mut Call<'_>) -> Result<usize> {
    let limit = change(&task::current().process, call.uint(0), None)?;
    call.ptr(1).write([limit.soft, limit.hard])?;
    Ok(0)
}

/// setrlimit(2).
pub fn setrlimit(call: &mut Call<'_>) -> Result<usize> {
    let new = limit(call.ptr(1).read()?);
    change(&task::current().process, call.uint(0), Some(new))?;
    Ok(0)
}
