// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPC namespaces (ipc_namespaces(7)): message queues, semaphores and shared memory have names in one of them.

use crate::thread;
use crate::users::UserNamespace;
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

/// One namespace. What is in it goes with the last process that is.
pub struct Ipc {
    /// Counts from 0, the machine's own.
    pub number: u64,
    /// The user namespace whose capabilities count for it.
    pub owner: UserNamespace,
    /// One of each type, so as many as there are families.
    objects: SpinLock<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Ipc {
    /// What a family of calls has in the namespace, which is empty when it is asked for first.
    pub fn of<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let find = |objects: &[Arc<dyn Any + Send + Sync>]| {
            objects.iter().find_map(|object| object.clone().downcast::<T>().ok())
        };
        if let Some(found) = find(&self.objects.lock()) {
            return found;
        }
        let new = Arc::new(T::default());
        let mut objects = self.objects.lock();
        find(&objects).unwrap_or_else(|| {
            objects.push(new.clone());
            new
        })
    }
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
static FIRST: SpinLock<Option<Arc<Ipc>>> = SpinLock::new(None);

fn new(owner: UserNamespace) -> Arc<Ipc> {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    Arc::new(Ipc { number, owner, objects: SpinLock::default() })
}

/// The machine's own, which programs begin in that somebody outside starts.
pub fn first() -> Arc<Ipc> {
    FIRST.lock().get_or_insert_with(|| new(UserNamespace::FIRST)).clone()
}

/// That of the calling thread.
pub fn here() -> Arc<Ipc> {
    thread::current().nsproxy().ipc.clone()
}

/// What a family of calls has in it ([`Ipc::of`]).
pub fn of_here<T: Any + Default + Send + Sync>() -> Arc<T> {
    here().of()
}

/// An empty one (CLONE_NEWIPC). `ENOMEM` when memory is short.
pub fn empty(owner: UserNamespace) -> Result<Arc<Ipc>> {
    if api_alloc::is_low() { Err(ENOMEM) } else { Ok(new(owner)) }
}
