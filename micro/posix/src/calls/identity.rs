// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who the program is: process, thread, user and group ids.

use crate::call::Call;
use crate::task;
use abi::Result;

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
