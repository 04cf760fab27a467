// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that a test injects, as `CONFIG_FAULT_INJECTION` of Linux has them: the Nth request that may be refused is refused.
//!
//! In a kernel (`--set fail-nth=on`) the count is a thread's and is written to /proc/self/fail-nth; in a test on the host
//! ([`fail_after`]) it is the program's. In all other kernels nothing of this exists.

/// True once, where the fault is due.
#[cfg(all(feature = "fail-nth", not(feature = "host")))]
#[inline]
pub fn is_due() -> bool {
    unsafe extern "Rust" {
        /// The system calls provide it: they know the thread.
        safe fn unilith_fault_is_due() -> bool;
    }
    unilith_fault_is_due()
}

#[cfg(not(any(feature = "fail-nth", feature = "host")))]
#[inline(always)]
pub fn is_due() -> bool {
    false
}

/// A request that may fail, which a test on the host tells from those that may not.
#[cfg(not(feature = "host"))]
#[inline(always)]
pub(crate) fn as_fallible<T>(request: impl FnOnce() -> T) -> T {
    request()
}

#[cfg(feature = "host")]
pub(crate) use injected::as_fallible;
#[cfg(feature = "host")]
pub use injected::{fail_after, is_due, is_fallible};

/// Refusals that a test asks for.
#[cfg(feature = "host")]
mod injected {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Requests until one is refused; `usize::MAX`: never.
    static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

    std::thread_local! {
        static IS_FALLIBLE: Cell<bool> = const { Cell::new(false) };
    }

    /// The request after the next `count` is refused, once. The answer says whether the one asked for before came about, or
    /// none was asked for.
    pub fn fail_after(count: usize) -> bool {
        LEFT.swap(count, Ordering::Relaxed) == usize::MAX
    }

    /// True once, where the fault is due.
    pub fn is_due() -> bool {
        let next = |left: usize| match left {
            usize::MAX => None,
            0 => Some(usize::MAX),
            left => Some(left - 1),
        };
        LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0)
    }

    /// Whether the allocation that the running thread makes may fail: for the allocator of a test, which finds those that may not.
    pub fn is_fallible() -> bool {
        IS_FALLIBLE.get()
    }

    pub(crate) fn as_fallible<T>(request: impl FnOnce() -> T) -> T {
        let before = IS_FALLIBLE.replace(true);
        let answer = request();
        IS_FALLIBLE.set(before);
        answer
    }
}
