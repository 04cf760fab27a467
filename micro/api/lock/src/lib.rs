// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of the kernel.
//!
//! # Contract
//!
//! - Kernel code is never preempted: a thread leaves the processor only where it blocks or returns to the program.
//!   Interrupt handlers touch atomics only and take no lock.
//! - A [`SpinLock`] guard must not be held across anything that may block: parking, copying from or to user memory
//!   (it may fault a page in from a file), allocating a page.
//! - On one processor, and on several of which one at a time is in the kernel (`api-plat`), a lock that is already held is
//!   therefore a bug of the kernel, not contention. The lock then costs one plain store each way and reports the bug
//!   instead of hanging.
//! - A lock that is held by a thread that blocks is such a bug for whoever comes next, at another time and place. With the feature
//!   `count`, of kernels for tests, the thread that blocks is reported ([`blocks`]).
//! - With the feature `smp` it is a real spin lock, and on the host (where code unwinds), whose tests have threads.
#![no_std]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// Mutual exclusion for short, non-blocking sections.
pub struct SpinLock<T: ?Sized> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and there is at most one guard at a time.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

/// Exclusive access to the value of a [`SpinLock`]; released on drop.
pub struct Guard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
}

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Takes the lock.
    ///
    /// # Panics
    ///
    /// On one processor, when the lock is held already: a kernel bug (see the contract).
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.contended(),
        }
    }

    #[cold]
    fn contended(&self) -> Guard<'_, T> {
        if cfg!(not(any(feature = "smp", panic = "unwind"))) {
            taken_twice();
        }
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            core::hint::spin_loop();
        }
    }

    /// Takes the lock unless it is held.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = if cfg!(any(feature = "smp", panic = "unwind")) {
            !self.held.swap(true, Ordering::Acquire)
        } else {
            let free = !self.held.load(Ordering::Relaxed);
            self.held.store(true, Ordering::Relaxed);
            free
        };
        #[cfg(feature = "count")]
        HELD.fetch_add(usize::from(free), Ordering::Relaxed);
        // Not `then_some`, which would make the guard in any case, and dropping it frees the lock.
        free.then(|| Guard { lock: self })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// One function for all types of locks: the places where it is called are hundreds. The report's backtrace says which.
#[cold]
#[inline(never)]
fn taken_twice() -> ! {
    panic!("a lock was taken twice");
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        SpinLock::new(T::default())
    }
}

impl<T: ?Sized> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while the lock is held, so nobody else has a reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes it unique.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "count")]
        HELD.fetch_sub(1, Ordering::Relaxed);
        self.lock.held.store(false, Ordering::Release);
    }
}

/// Locks that are held by the one thread that is in the kernel.
#[cfg(feature = "count")]
static HELD: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// The running thread is about to block.
///
/// # Panics
///
/// With the feature `count`, when it holds a lock: a kernel bug (see the contract).
#[inline]
pub fn blocks() {
    #[cfg(feature = "count")]
    assert!(HELD.load(Ordering::Relaxed) == 0, "a thread blocks and holds a lock");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_cannot_be_taken_again() {
        let lock = SpinLock::new(1);
        let mut guard = lock.lock();
        *guard += 1;
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "trying does not free it");
        drop(guard);
        assert_eq!(*lock.lock(), 2);
    }
}
