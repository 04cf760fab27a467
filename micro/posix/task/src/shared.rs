// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread has alone or shares with other threads and processes, as the flags of clone(2) say, and may stop sharing.

use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// Values that one holder may stop sharing: each is kept until the holder is gone.
const MAX_LEFT: usize = 256;

struct Value<T> {
    value: T,
    /// Holders that have it now.
    users: AtomicUsize,
}

/// A thread's hold of a value. Looking at it costs a load, for most calls do; so a value that the thread stopped sharing is kept until
/// the thread is gone, because somebody may still look at it.
pub struct Shared<T> {
    /// `first`, or one of `later`.
    now: AtomicPtr<Value<T>>,
    first: Arc<Value<T>>,
    later: SpinLock<Vec<Arc<Value<T>>>>,
    /// It has no value any more.
    has_left: AtomicBool,
}

impl<T> Shared<T> {
    fn with(value: Arc<Value<T>>) -> Shared<T> {
        value.users.fetch_add(1, Relaxed);
        let now = AtomicPtr::new(Arc::as_ptr(&value).cast_mut());
        Shared { now, first: value, later: SpinLock::default(), has_left: AtomicBool::new(false) }
    }

    pub fn new(value: T) -> Shared<T> {
        Shared::with(Arc::new(Value { value, users: AtomicUsize::new(0) }))
    }

    fn value(&self) -> &Value<T> {
        // SAFETY: `first` and `later` hold what `now` points to for as long as `self` lives.
        unsafe { &*self.now.load(Relaxed) }
    }

    fn held(&self) -> Arc<Value<T>> {
        let now = self.now.load(Relaxed).cast_const();
        let later = self.later.lock();
        later.iter().find(|kept| core::ptr::eq(Arc::as_ptr(kept), now)).unwrap_or(&self.first).clone()
    }

    /// The same value for another thread or process.
    pub fn share(&self) -> Shared<T> {
        Shared::with(self.held())
    }

    /// Others have it, too.
    pub fn is_shared(&self) -> bool {
        self.users() > 1
    }

    /// How many have it.
    pub fn users(&self) -> usize {
        self.value().users.load(Relaxed)
    }

    /// Goes on with a value of its own. `ENOMEM` for a thread that has done so very often.
    pub fn replace(&self, value: T) -> Result<()> {
        self.go_on_with(Arc::new(Value { value, users: AtomicUsize::new(0) }))
    }

    /// Goes on with what another thread has, `ENOMEM` as above.
    pub fn take_over(&self, other: &Shared<T>) -> Result<()> {
        if self.address() == other.address() && !self.has_left.load(Relaxed) {
            return Ok(());
        }
        self.go_on_with(other.held())
    }

    fn go_on_with(&self, value: Arc<Value<T>>) -> Result<()> {
        let mut later = self.later.lock();
        // A program that is run by thread after thread takes over the same value each time.
        let is_kept = later.iter().chain([&self.first]).any(|kept| Arc::ptr_eq(kept, &value));
        if !is_kept {
            if later.len() == MAX_LEFT {
                return Err(ENOMEM);
            }
            later.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        }
        value.users.fetch_add(1, Relaxed);
        if !self.has_left.swap(false, Relaxed) {
            self.value().users.fetch_sub(1, Relaxed);
        }
        self.now.store(Arc::as_ptr(&value).cast_mut(), Relaxed);
        if !is_kept {
            later.push(value);
        }
        Ok(())
    }

    /// Tells values apart (kcmp(2)).
    pub fn address(&self) -> usize {
        self.now.load(Relaxed) as usize
    }

    /// Has no part in the value any more: true for the last one that had it.
    pub fn leave(&self) -> bool {
        !self.has_left.swap(true, Relaxed) && self.value().users.fetch_sub(1, Relaxed) == 1
    }

    /// [`Shared::leave`] was called.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Relaxed)
    }
}

/// A thread that never began has left, too.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.leave();
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
        second.replace(AtomicU32::new(3)).unwrap();
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

    #[test]
    fn who_leaves_twice_or_never_began_is_counted_once() {
        let first = Shared::new(());
        let second = first.share();
        drop(first.share());
        assert!(!second.leave() && !second.leave());
        drop(second);
        assert!(!first.is_shared());
        assert!(first.leave());
    }

    #[test]
    fn a_thread_takes_over_what_another_has() {
        let first = Shared::new(AtomicU32::new(1));
        let second = first.share();
        second.replace(AtomicU32::new(2)).unwrap();
        assert!(first.leave());
        first.take_over(&second).unwrap();
        assert_eq!(first.load(Relaxed), 2);
        assert_eq!(first.users(), 2);
        drop(second);
        assert_eq!(first.users(), 1);
        first.take_over(&first.share()).unwrap();
        assert_eq!(first.users(), 1);
        // As often as one likes, where it is the same value.
        for _ in 0..2 * MAX_LEFT {
            let next = first.share();
            assert!(!first.leave());
            first.take_over(&next).unwrap();
        }
        assert_eq!(first.users(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let first = Shared::new(());
        let refused = (0..).find(|_| first.replace(()).is_err());
        assert_eq!(refused, Some(MAX_LEFT));
        assert!(first.leave());
    }
}
