// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process has alone or shares with others, as the flags of clone(2) say, and may stop sharing.

use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use core::ops::Deref;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

struct Value<T> {
    value: T,
    /// Processes that have it now.
    users: AtomicUsize,
}

/// A value of a process. Looking at it costs a load, for most calls do; so what a process stopped sharing is kept until
/// the process is gone, because a thread may still look at it.
pub struct Shared<T> {
    /// The last one of `all`.
    now: AtomicPtr<Value<T>>,
    all: SpinLock<Vec<Arc<Value<T>>>>,
}

impl<T> Shared<T> {
    fn with(value: Arc<Value<T>>) -> Shared<T> {
        value.users.fetch_add(1, Relaxed);
        let now = AtomicPtr::new(Arc::as_ptr(&value).cast_mut());
        Shared { now, all: SpinLock::new(alloc::vec![value]) }
    }

    pub fn new(value: T) -> Shared<T> {
        Shared::with(Arc::new(Value { value, users: AtomicUsize::new(0) }))
    }

    fn value(&self) -> &Value<T> {
        // SAFETY: `all` holds what `now` points to for as long as `self` lives.
        unsafe { &*self.now.load(Relaxed) }
    }

    /// The same value for another process.
    pub fn share(&self) -> Shared<T> {
        let all = self.all.lock();
        Shared::with(all[all.len() - 1].clone())
    }

    /// Another process has it, too.
    pub fn is_shared(&self) -> bool {
        self.value().users.load(Relaxed) > 1
    }

    /// Goes on with a value of its own.
    pub fn replace(&self, value: T) {
        let value = Arc::new(Value { value, users: AtomicUsize::new(1) });
        self.value().users.fetch_sub(1, Relaxed);
        let mut all = self.all.lock();
        self.now.store(Arc::as_ptr(&value).cast_mut(), Relaxed);
        all.push(value);
    }

    /// Tells values apart (kcmp(2)).
    pub fn address(&self) -> usize {
        self.now.load(Relaxed) as usize
    }

    /// The process ends: true for the last one that had it.
    pub fn leave(&self) -> bool {
        self.value().users.fetch_sub(1, Relaxed) == 1
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value().value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn what_is_shared_is_one_until_a_process_goes_on_alone() {
        let first = Shared::new(AtomicU32::new(1));
        assert!(!first.is_shared());
        let second = first.share();
        let seen: &AtomicU32 = &second;
        second.store(2, Relaxed);
        assert_eq!(first.load(Relaxed), 2);
        assert!(first.is_shared() && second.is_shared());
        second.replace(AtomicU32::new(3));
        first.store(4, Relaxed);
        assert_eq!((first.load(Relaxed), second.load(Relaxed)), (4, 3));
        assert_eq!(seen.load(Relaxed), 4, "whoever looked at it still does");
        assert!(!first.is_shared() && !second.is_shared());
        assert!(second.leave() && first.leave());
    }

    #[test]
    fn the_last_one_to_leave_is_told() {
        let first = Shared::new(());
        let second = first.share();
        assert!(!first.leave());
        assert!(second.leave());
    }
}
