// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cooperative scheduling: first come, first served, and a thread runs until it blocks or yields, whatever its rank.
//!
//! The right policy for programs that wait in an event loop: no timer interrupts, no switch that was not asked for.
//! A thread that computes for long keeps the others waiting; `sched-preempt` is for those programs.
#![no_std]
extern crate alloc;

use alloc::collections::VecDeque;
use api_lock::SpinLock;
use api_sched::policy::{Place, Rank, Rivals, ThreadIndex};

static QUEUE: SpinLock<VecDeque<ThreadIndex>> = SpinLock::new(VecDeque::new());

#[unsafe(no_mangle)]
fn unilith_sched_enqueue(_cpu: u32, thread: ThreadIndex, _rank: Rank, _place: Place) {
    QUEUE.lock().push_back(thread);
}

#[unsafe(no_mangle)]
fn unilith_sched_change(_cpu: u32, _thread: ThreadIndex, _rank: Rank) {}

#[unsafe(no_mangle)]
fn unilith_sched_pick(_cpu: u32) -> Option<ThreadIndex> {
    QUEUE.lock().pop_front()
}

#[unsafe(no_mangle)]
fn unilith_sched_slice(_cpu: u32, _rank: Rank) -> Option<u64> {
    None
}

#[unsafe(no_mangle)]
fn unilith_sched_waiting(_cpu: u32) -> bool {
    !QUEUE.lock().is_empty()
}

#[unsafe(no_mangle)]
fn unilith_sched_rivals(_cpu: u32, _running: Rank) -> Rivals {
    if QUEUE.lock().is_empty() { Rivals::None } else { Rivals::Equal }
}
