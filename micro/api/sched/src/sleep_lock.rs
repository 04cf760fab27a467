// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock that may be held while its holder sleeps. Whoever finds it held sleeps until it is free.

use crate::WaitQueue;
use abi::Events;
use alloc::boxed::Box;
use api_lock::SpinLock;

pub struct SleepLock<T> {
    /// Empty while somebody holds the lock.
    value: SpinLock<Option<Box<T>>>,
    waiters: WaitQueue,
}

/// The value of a [`SleepLock`], which goes back when this is dropped.
pub struct SleepGuard<'a, T> {
    lock: &'a SleepLock<T>,
    value: Option<Box<T>>,
}

impl<T> SleepLock<T> {
    pub fn new(value: Box<T>) -> SleepLock<T> {
        SleepLock { value: SpinLock::new(Some(value)), waiters: WaitQueue::new() }
    }

    pub fn lock(&self) -> SleepGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        let key = self.waiters.add(crate::current(), Events::IN, true);
        let guard = loop {
            if let Some(guard) = self.try_lock() {
                break guard;
            }
            crate::park(u64::MAX);
        };
        self.waiters.remove(key);
        guard
    }

    pub fn try_lock(&self) -> Option<SleepGuard<'_, T>> {
        let value = self.value.lock().take();
        value.map(|value| SleepGuard { lock: self, value: Some(value) })
    }
}

impl<T> SleepGuard<'_, T> {
    pub fn get(&mut self) -> &mut T {
        self.value.as_mut().expect("a guard has the value until it is dropped")
    }
}

impl<T> Drop for SleepGuard<'_, T> {
    fn drop(&mut self) {
        *self.lock.value.lock() = self.value.take();
        self.lock.waiters.wake(Events::IN);
    }
}
