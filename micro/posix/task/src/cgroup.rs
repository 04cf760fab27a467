// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cgroup namespaces (cgroup_namespaces(7)). All processes are in the root control group, so each namespace shows `/`.

use crate::users::UserNamespace;
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};

/// One namespace.
pub struct Cgroup {
    /// Counts from 0, the machine's own.
    pub number: u64,
    /// The user namespace whose capabilities count for it.
    pub owner: UserNamespace,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
static FIRST: SpinLock<Option<Arc<Cgroup>>> = SpinLock::new(None);

fn new(owner: UserNamespace) -> Arc<Cgroup> {
    Arc::new(Cgroup { number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed), owner })
}

/// The machine's own.
pub fn first() -> Arc<Cgroup> {
    FIRST.lock().get_or_insert_with(|| new(UserNamespace::FIRST)).clone()
}

/// Another one (CLONE_NEWCGROUP). `ENOMEM` when memory is short.
pub fn another(owner: UserNamespace) -> Result<Arc<Cgroup>> {
    if api_alloc::is_low() { Err(ENOMEM) } else { Ok(new(owner)) }
}
