// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that a program has injected into its own calls: /proc/self/fail-nth, as `CONFIG_FAULT_INJECTION` of Linux has it.
//!
//! A thread writes N, and the Nth request for memory that its next calls make, and that may be refused, is refused. Reading says
//! how many are left: 0 once the fault came about. Unlike on Linux reading also takes a fault back that did not, for the read asks
//! for memory itself.

use crate::thread::{self, Task};
use abi::{Result, errno::EINVAL};
use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Somebody wrote a number: before that there may be no threads to ask for theirs.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// What a thread has of it. Only the thread itself counts down.
#[derive(Default)]
pub struct FailNth {
    left: AtomicU32,
    suspended: AtomicBool,
}

impl FailNth {
    fn is_due(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 || self.suspended.load(Ordering::Relaxed) {
            return false;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        left == 1
    }

    /// What the file says.
    pub fn take(&self) -> Result<Vec<u8>> {
        Ok(format!("{}\n", self.left.swap(0, Ordering::Relaxed)).into_bytes())
    }

    pub fn store(&self, text: &[u8]) -> Result<()> {
        let number = core::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<u32>().ok());
        self.left.store(number.ok_or(EINVAL)?, Ordering::Relaxed);
        IS_USED.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[unsafe(no_mangle)]
fn unilith_fault_is_due() -> bool {
    IS_USED.load(Ordering::Relaxed) && thread::running().is_some_and(|task| task.fail_nth.is_due())
}

/// While it lives the thread's fault does not come about.
pub struct Suspended<'a>(Option<&'a Task>);

impl Suspended<'_> {
    pub fn enter(task: Option<&Task>) -> Suspended<'_> {
        let task = task.filter(|task| !task.fail_nth.suspended.swap(true, Ordering::Relaxed));
        Suspended(task)
    }
}

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            task.fail_nth.suspended.store(false, Ordering::Relaxed);
        }
    }
}
