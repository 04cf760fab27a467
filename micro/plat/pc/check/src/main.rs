// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel that checks its platform. The program's name on the command line picks what it does: see `start`.
#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(not(panic = "abort"))]
fn main() {}

#[cfg(panic = "abort")]
extern crate alloc;
#[cfg(panic = "abort")]
mod kernel;
#[cfg(panic = "abort")]
mod program;
#[cfg(panic = "abort")]
mod waiting;
