// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel without [/proc/self/fail-nth](https://docs.kernel.org/fault-injection/fault-injection.html): nothing is injected.

use crate::thread::Task;

/// What a thread has of it: nothing.
#[derive(Default)]
pub struct FailNth {}

pub struct Suspended;

impl Suspended {
    #[inline(always)]
    pub fn enter(_task: Option<&Task>) -> Suspended {
        Suspended
    }
}
