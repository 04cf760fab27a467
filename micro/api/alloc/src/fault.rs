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

/// A request that may fail, which a test tells from those that may not.
#[cfg(not(any(feature = "fail-nth", feature = "host")))]
#[inline(always)]
pub(crate) fn as_fallible<T>(request: impl FnOnce() -> T) -> T {
    request()
}

#[cfg(all(feature = "fail-nth", not(feature = "host")))]
pub(crate) use reserve::as_fallible;
#[cfg(all(feature = "fail-nth", not(feature = "host")))]
pub(crate) use reserve::{has_room, watch};

/// No request is watched.
#[cfg(not(all(feature = "fail-nth", not(feature = "host"))))]
#[inline(always)]
pub(crate) fn watch(_: usize) {}

#[cfg(not(all(feature = "fail-nth", not(feature = "host"))))]
#[inline(always)]
pub(crate) fn has_room(_: usize) {}

/// What leans on the kernel's reserve.
#[cfg(all(feature = "fail-nth", not(feature = "host")))]
mod reserve {
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Bytes from which on a request has to be one that may be refused: some are made at a time, by a few calls, and the reserve is
    /// 1 MiB at most.
    const MAX_UNREFUSABLE: usize = 8 * 1024;

    /// The request that is made may be refused. The kernel's code takes turns only where it waits, and no request waits.
    static IS_FALLIBLE: AtomicBool = AtomicBool::new(false);

    pub(crate) fn as_fallible<T>(request: impl FnOnce() -> T) -> T {
        let before = IS_FALLIBLE.swap(true, Ordering::Relaxed);
        let answer = request();
        IS_FALLIBLE.store(before, Ordering::Relaxed);
        answer
    }

    /// Bytes that [`crate::make_room`] found, and that were not asked for since.
    static ROOM: AtomicUsize = AtomicUsize::new(0);

    pub(crate) fn has_room(bytes: usize) {
        ROOM.store(bytes, Ordering::Relaxed);
    }

    /// The heap is asked for so many bytes. Says so on the console where they are many and cannot be refused.
    pub fn watch(bytes: usize) {
        unsafe extern "Rust" {
            /// The kernel image provides it.
            safe fn unilith_fault_leans_on_reserve(bytes: usize);
        }
        if bytes <= MAX_UNREFUSABLE || IS_FALLIBLE.load(Ordering::Relaxed) {
            return;
        }
        match ROOM.load(Ordering::Relaxed).checked_sub(bytes) {
            Some(rest) => ROOM.store(rest, Ordering::Relaxed),
            None => unilith_fault_leans_on_reserve(bytes),
        }
    }
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
