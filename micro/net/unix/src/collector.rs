// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When garbage is collected: on the way out of a system call that may have made some, and so rarely that it takes a small
//! part of the time however much is in flight.

use crate::garbage;
use abi::Events;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_sched::{DeferredWorkSlot, Waiter};
use core::sync::atomic::{AtomicU64, Ordering};

/// After a search there is none for this many times as long as it took. A program that closes one of a million sockets in
/// flight after another would else have all of them walked through each time.
const REST: u64 = 16;
/// What takes less is done at once the next time too.
const SHORT_NS: u64 = 1_000_000;

static COLLECTOR: DeferredWorkSlot = DeferredWorkSlot::new();
static NOT_BEFORE_NS: AtomicU64 = AtomicU64::new(0);
/// Made once, so that nothing is allocated when garbage is to be collected.
static TIMER: SpinLock<Option<Arc<Timer>>> = SpinLock::new(None);

struct Timer;

impl Waiter for Timer {
    fn wake(&self, _: Events) {
        COLLECTOR.raise();
    }
}

fn run() {
    let begun = api_plat::now_ns();
    let queues = garbage::collect();
    let ended = api_plat::now_ns();
    let took = ended.saturating_sub(begun);
    let rest = if took < SHORT_NS { 0 } else { took.saturating_mul(REST) };
    NOT_BEFORE_NS.store(ended.saturating_add(rest), Ordering::Relaxed);
    drop(queues);
}

/// No more may be in flight: a search that rests is begun all the same, where one is due.
fn reclaim() {
    if garbage::is_requested() {
        run();
    }
}

/// Has [`garbage::collect`] run as soon as it may.
fn schedule() {
    let earliest = NOT_BEFORE_NS.load(Ordering::Relaxed);
    if api_plat::now_ns() >= earliest {
        return COLLECTOR.raise();
    }
    let timer = TIMER.lock().clone();
    if let Some(timer) = timer {
        api_sched::add_timer(earliest, timer);
    }
}

pub fn register() {
    *TIMER.lock() = Some(Arc::new(Timer));
    COLLECTOR.set(api_sched::add_deferred_work(run));
    garbage::schedule_with(schedule);
    api_socket::register_reclaim(reclaim);
}
