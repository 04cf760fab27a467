// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPC namespaces (ipc_namespaces(7)): System V objects and the names of POSIX message queues.

#[cfg(feature = "mqueue")]
use crate::calls::message_queues;
#[cfg(feature = "sysv-ipc")]
use crate::calls::sysv;
use crate::task;
use crate::users::UserNamespace;
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};

/// One namespace. What is in it goes with the last process that is.
pub struct Ipc {
    /// Counts from 0, the machine's own.
    pub number: u64,
    /// The user namespace whose capabilities count for it.
    pub owner: UserNamespace,
    #[cfg(feature = "sysv-ipc")]
    pub semaphores: sysv::semaphores::Sets,
    #[cfg(feature = "sysv-ipc")]
    pub segments: sysv::memory::Segments,
    #[cfg(feature = "sysv-ipc")]
    pub queues: sysv::queues::Queues,
    #[cfg(feature = "mqueue")]
    pub named_queues: message_queues::Names,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
static FIRST: SpinLock<Option<Arc<Ipc>>> = SpinLock::new(None);

fn new(owner: UserNamespace) -> Arc<Ipc> {
    Arc::new(Ipc {
        number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        owner,
        #[cfg(feature = "sysv-ipc")]
        semaphores: sysv::semaphores::Sets::default(),
        #[cfg(feature = "sysv-ipc")]
        segments: sysv::memory::Segments::default(),
        #[cfg(feature = "sysv-ipc")]
        queues: sysv::queues::Queues::default(),
        #[cfg(feature = "mqueue")]
        named_queues: message_queues::Names::default(),
    })
}

/// The machine's own, which programs begin in that somebody outside starts.
pub fn first() -> Arc<Ipc> {
    FIRST.lock().get_or_insert_with(|| new(UserNamespace::FIRST)).clone()
}

/// That of the calling thread.
pub fn here() -> Arc<Ipc> {
    task::current().nsproxy().ipc.clone()
}

/// An empty one (CLONE_NEWIPC). `ENOMEM` when memory is short.
pub fn empty(owner: UserNamespace) -> Result<Arc<Ipc>> {
    if api_alloc::is_low() { Err(ENOMEM) } else { Ok(new(owner)) }
}
