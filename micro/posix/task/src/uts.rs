// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UTS namespaces (uts_namespaces(7)): the names of the computer, as a process and its children see them.

use crate::users::UserNamespace;
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};

/// Longest name in bytes (Linux' __NEW_UTS_LEN).
pub const NAME_BYTES: usize = 64;

/// One namespace.
pub struct Uts {
    /// Counts from 0, the machine's own.
    pub number: u64,
    /// The user namespace whose capabilities count for it.
    pub owner: UserNamespace,
    host: SpinLock<Vec<u8>>,
    domain: SpinLock<Vec<u8>>,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
static FIRST: SpinLock<Option<Arc<Uts>>> = SpinLock::new(None);

fn new(owner: UserNamespace, host: Vec<u8>, domain: Vec<u8>) -> Arc<Uts> {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    Arc::new(Uts { number, owner, host: SpinLock::new(host), domain: SpinLock::new(domain) })
}

/// The machine's own, which programs begin in that somebody outside starts.
pub fn first() -> Arc<Uts> {
    let mut first = FIRST.lock();
    first.get_or_insert_with(|| new(UserNamespace::FIRST, b"unilith".to_vec(), b"(none)".to_vec())).clone()
}

impl Uts {
    /// Another one with the same names (CLONE_NEWUTS). `ENOMEM` when memory is short.
    pub fn copy(&self, owner: UserNamespace) -> Result<Arc<Uts>> {
        if api_alloc::is_low() { Err(ENOMEM) } else { Ok(new(owner, self.host_name(), self.domain_name())) }
    }

    pub fn host_name(&self) -> Vec<u8> {
        self.host.lock().clone()
    }

    pub fn domain_name(&self) -> Vec<u8> {
        self.domain.lock().clone()
    }

    /// What is longer than [`NAME_BYTES`] is cut off.
    pub fn set_host_name(&self, name: &[u8]) {
        *self.host.lock() = name[..name.len().min(NAME_BYTES)].to_vec();
    }

    pub fn set_domain_name(&self, name: &[u8]) {
        *self.domain.lock() = name[..name.len().min(NAME_BYTES)].to_vec();
    }
}
