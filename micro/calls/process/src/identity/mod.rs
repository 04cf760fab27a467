// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who the program is: process and thread ids, sessions, users and groups, capabilities.

use abi::Result;
use task::call::Call;

pub mod capabilities;
pub mod sessions;
pub mod users;

/// getpid(2).
pub fn getpid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.number as usize)
}

/// getppid(2): 0 for a process 1, which has no parent that it sees.
pub fn getppid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().process.family.parent_number() as usize)
}

/// gettid(2).
pub fn gettid(_: &mut Call<'_>) -> Result<usize> {
    Ok(task::current().number as usize)
}
