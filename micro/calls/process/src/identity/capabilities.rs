// SPDX-License-Identifier: Apache-2.0 OR MIT
//! capget(2) and capset(2).

use abi::{Result, errno::*};
use api_user::UserPtr;
use task::call::Call;
use task::identity::capabilities::ALL;
use task::processes;

const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

/// How many `struct __user_cap_data_struct` this version has; writes the version back when it is unknown.
fn check_version(header: UserPtr<[u32; 2]>) -> Result<Option<usize>> {
    // The number of the process is another word, which may not be there.
    let version = header.cast::<u32>();
    match version.read()? {
        VERSION_1 => Ok(Some(1)),
        VERSION_2 | VERSION_3 => Ok(Some(2)),
        _ => {
            version.write(VERSION_3)?;
            Ok(None)
        }
    }
}

/// Target of capget and capset: their header's process id.
fn target(header: UserPtr<[u32; 2]>) -> Result<i32> {
    Ok(header.read()?[1] as i32)
}

/// capget(2).
pub fn capget(call: &mut Call<'_>) -> Result<usize> {
    let header = call.ptr(0);
    let data = call.ptr::<[u32; 3]>(1).non_null();
    let Some(count) = check_version(header)? else {
        // Without data it was only a question for the version.
        return if data.is_some() { Err(EINVAL) } else { Ok(0) };
    };
    if data.is_none() {
        return Ok(0);
    }
    let pid = target(header)?;
    if pid < 0 {
        return Err(EINVAL);
    }
    let caps = match pid {
        0 => task::current().credentials().lock().capabilities,
        _ => processes::named_task(pid).ok_or(ESRCH)?.credentials().lock().capabilities,
    };
    if let Some(data) = data {
        for i in 0..count as u64 {
            let half = |set: u64| (set >> (32 * i)) as u32;
            data.add(i).write([half(caps.effective), half(caps.permitted), half(caps.inheritable)])?;
        }
    }
    Ok(0)
}

/// capset(2).
pub fn capset(call: &mut Call<'_>) -> Result<usize> {
    let header = call.ptr(0);
    let count = check_version(header)?.ok_or(EINVAL)?;
    let pid = target(header)?;
    let task = task::current();
    if pid != 0 && pid != task.number {
        return Err(EPERM);
    }
    let data = call.ptr::<[u32; 3]>(1);
    let mut sets = [0u64; 3];
    for i in 0..count as u64 {
        for (set, half) in sets.iter_mut().zip(data.add(i).read()?) {
            *set |= u64::from(half) << (32 * i);
        }
    }
    let [effective, permitted, inheritable] = sets.map(|set| set & ALL);
    task.credentials().lock().capabilities.set(effective, permitted, inheritable)?;
    Ok(0)
}
