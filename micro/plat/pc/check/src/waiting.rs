// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting without a scheduler: the one thread sleeps, then runs the deferred work.

use abi::Events;
use alloc::sync::Arc;
use api_sched::Waiter;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

static DEFERRED_WORK: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static RAISED: AtomicU32 = AtomicU32::new(0);
pub static RUNS: AtomicU32 = AtomicU32::new(0);

struct Nobody;

impl Waiter for Nobody {
    fn wake(&self, _: Events) {}
}

#[unsafe(no_mangle)]
fn unilith_sched_current() -> Arc<dyn Waiter> {
    Arc::new(Nobody)
}

#[unsafe(no_mangle)]
fn unilith_sched_add_deferred_work(run: fn()) -> usize {
    let index = COUNT.fetch_add(1, Relaxed);
    DEFERRED_WORK[index].store(run as usize, Relaxed);
    index
}

#[unsafe(no_mangle)]
fn unilith_sched_raise(work: usize) {
    RAISED.fetch_or(1 << work, Relaxed);
    api_plat::request_work();
}

#[unsafe(no_mangle)]
fn unilith_sched_park(_: u64) {
    wait();
}

/// Sleeps until an interrupt, then runs what was raised.
pub fn wait() {
    api_plat::idle();
    api_plat::take_work();
    let raised = RAISED.swap(0, Relaxed);
    for (i, work) in DEFERRED_WORK.iter().enumerate() {
        if raised & 1 << i != 0 {
            // SAFETY: `unilith_sched_add_deferred_work` stored a `fn()` there.
            let run: fn() = unsafe { core::mem::transmute(work.load(Relaxed)) };
            run();
            RUNS.fetch_add(1, Relaxed);
        }
    }
}
