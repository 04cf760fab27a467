// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who the program is: process and thread ids, sessions, users and groups, capabilities.

pub mod capabilities;
pub mod credentials;
pub mod sessions;
pub mod users;

use crate::call::Call;
use crate::task;
use abi::{Result, errno::ESRCH};

/// getpid(2).
pub fn getpid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.pid as usize)
}

/// getppid(2): process 1 has no parent.
pub fn getppid(_: &mut Call<'_>) -> Result<usize> {
    Ok(0)
}

/// gettid(2).
pub fn gettid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().tid as usize)
}

/// `ESRCH` unless the id is 0 or names the process or one of its threads: there are no others.
pub fn check_own(id: i32) -> Result<()> {
    let process = &task::current().process;
    if id == 0 || id == process.pid || process.task(id).is_some() { Ok(()) } else { Err(ESRCH) }
}
