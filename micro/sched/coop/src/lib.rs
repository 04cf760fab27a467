// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cooperative scheduling: first come, first served, and a thread runs until it blocks or yields, whatever its rank.
//!
//! The right policy for programs that wait in an event loop: no timer interrupts, no switch that was not asked for.
//! A thread that computes for long keeps the others waiting; `sched-preempt` is for those programs.
#![no_std]
extern crate alloc;

use alloc::collections::VecDeque;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::policy::{Place, Rank, Rivals, ThreadIndex};

/// Threads, and where they may run.
static QUEUE: SpinLock<VecDeque<(ThreadIndex, u64)>> = SpinLock::new(VecDeque::new());

fn first(queue: &VecDeque<(ThreadIndex, u64)>, cpu: u32) -> Option<usize> {
    queue.iter().position(|(_, cpus)| cpus >> cpu & 1 != 0)
}

#[unsafe(no_mangle)]
fn unilith_sched_reserve(threads: usize) -> bool {
    let mut queue = QUEUE.lock();
    let more = threads.saturating_sub(queue.len());
    queue.reserve_fallibly(more).is_ok()
}

#[unsafe(no_mangle)]
fn unilith_sched_enqueue(cpus: u64, thread: ThreadIndex, _rank: Rank, _place: Place) {
    QUEUE.lock().push_back((thread, cpus));
}

#[unsafe(no_mangle)]
fn unilith_sched_change(cpus: u64, thread: ThreadIndex, _rank: Rank) {
    if let Some(entry) = QUEUE.lock().iter_mut().find(|(other, _)| *other == thread) {
        entry.1 = cpus;
    }
}

#[unsafe(no_mangle)]
fn unilith_sched_pick(cpu: u32) -> Option<ThreadIndex> {
    let mut queue = QUEUE.lock();
    let index = first(&queue, cpu)?;
    queue.remove(index).map(|(thread, _)| thread)
}

/// Here nobody goes before another one, so nobody needs a share that is kept for him.
#[unsafe(no_mangle)]
fn unilith_sched_pick_other(_cpu: u32) -> Option<ThreadIndex> {
    None
}

#[unsafe(no_mangle)]
fn unilith_sched_other_waits(_cpu: u32) -> bool {
    false
}

#[unsafe(no_mangle)]
fn unilith_sched_slice(_rank: Rank) -> Option<u64> {
    None
}

#[unsafe(no_mangle)]
fn unilith_sched_waiting(cpu: u32) -> bool {
    first(&QUEUE.lock(), cpu).is_some()
}

#[unsafe(no_mangle)]
fn unilith_sched_rivals(cpu: u32, _running: Rank) -> Rivals {
    if unilith_sched_waiting(cpu) { Rivals::Equal } else { Rivals::None }
}
