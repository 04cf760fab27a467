// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting the program again in a running machine: the files stay, all else is as at the start.
//!
//! Somebody asks ([`ask`]); the first of the program's threads that is on its way back to the program does it
//! ([`Restarts::is_asked`], `calls::exec::restart`), for only such a thread's registers may be replaced.

use crate::process::{Credentials, Process};
use crate::seccomp::Profile;
use abi::{Result, errno::EAGAIN, errno::EBUSY};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vfs::Dentry;

/// How the program was started.
pub struct First {
    pub arguments: Vec<Vec<u8>>,
    pub environment: Vec<Vec<u8>>,
    pub credentials: Credentials,
    pub working: Arc<Dentry>,
    pub umask: u32,
    /// What programs of the machine may call that somebody outside starts beside it.
    pub profile: Option<Profile>,
}

/// What a process keeps for this.
#[derive(Default)]
pub struct Restarts {
    first: SpinLock<Option<Arc<First>>>,
    asked: AtomicBool,
    /// What became of the last one that was asked for; `None` while it is under way.
    outcome: SpinLock<Option<Result<()>>>,
}

impl Restarts {
    pub fn set_first(&self, first: First) {
        *self.first.lock() = Some(Arc::new(first));
    }

    pub fn first(&self) -> Option<Arc<First>> {
        self.first.lock().clone()
    }

    /// A thread of the program is to do it.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// True for the one thread that does it.
    pub fn take(&self) -> bool {
        self.asked.swap(false, Relaxed)
    }

    pub fn done(&self, outcome: Result<()>) {
        *self.outcome.lock() = Some(outcome);
    }

    /// Nobody wants it any more; too late for one that is under way.
    pub fn withdraw(&self) {
        self.asked.store(false, Relaxed);
    }

    /// What became of it; `EAGAIN` while it is under way.
    pub fn outcome(&self) -> Result<()> {
        self.outcome.lock().unwrap_or(Err(EAGAIN))
    }
}

/// Asks for the program to be started again. [`Restarts::outcome`] says what became of it.
pub fn ask(process: &Process) -> Result<()> {
    *process.restarts.outcome.lock() = None;
    if process.restarts.asked.swap(true, Relaxed) {
        return Err(EBUSY);
    }
    process.tasks().for_each(|task| task.interrupt());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::errno::ENOENT;

    #[test]
    fn one_thread_takes_it_and_what_became_of_it_is_told() {
        let restarts = Restarts::default();
        assert!(!restarts.is_asked() && !restarts.take());
        restarts.asked.store(true, Relaxed);
        assert!(restarts.is_asked() && restarts.take() && !restarts.take());
        assert_eq!(restarts.outcome(), Err(EAGAIN));
        restarts.done(Err(ENOENT));
        assert_eq!(restarts.outcome(), Err(ENOENT));
    }
}
