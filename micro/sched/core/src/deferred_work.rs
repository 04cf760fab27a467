// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deferred work: what interrupt handlers leave to thread context, as Linux' softirqs.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// One bit each in [`RAISED`].
const MAX_KINDS: usize = 32;

static RUN: [AtomicPtr<()>; MAX_KINDS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_KINDS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static RAISED: AtomicU32 = AtomicU32::new(0);
/// Raised when a thread waits next, not before.
static DEFERRED: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
fn unilith_sched_add_deferred_work(run: fn()) -> usize {
    let index = COUNT.fetch_add(1, Ordering::Relaxed);
    assert!(index < MAX_KINDS, "more than {MAX_KINDS} kinds of deferred work");
    RUN[index].store(run as *mut (), Ordering::Release);
    index
}

#[unsafe(no_mangle)]
fn unilith_sched_raise(work: usize) {
    RAISED.fetch_or(1 << work, Ordering::Release);
    api_plat::request_work();
}

#[unsafe(no_mangle)]
fn unilith_sched_defer(work: usize) {
    DEFERRED.fetch_or(1 << work, Ordering::Release);
}

/// Runs the deferred work that was raised, and those that were put off until now; thread context.
#[unsafe(no_mangle)]
pub fn unilith_sched_run_deferred() {
    if DEFERRED.load(Ordering::Relaxed) != 0 {
        RAISED.fetch_or(DEFERRED.swap(0, Ordering::Acquire), Ordering::Release);
    }
    run_deferred_work();
}

/// Runs the deferred work that was raised; thread context.
pub fn run_deferred_work() {
    // The common case costs one load.
    if RAISED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut raised = RAISED.swap(0, Ordering::Acquire);
    while raised != 0 {
        let index = raised.trailing_zeros() as usize;
        raised &= raised - 1;
        let run = RUN[index].load(Ordering::Acquire);
        // SAFETY: a raised index was returned by `add_deferred_work`, which stored a `fn()` there.
        let run: fn() = unsafe { core::mem::transmute(run) };
        run();
    }
}
