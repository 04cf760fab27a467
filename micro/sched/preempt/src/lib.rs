// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Preemptive scheduling: round robin with time slices.
//!
//! A thread that has used up [`SLICE_NS`] while another one waits goes to the end of the queue. A thread alone on the
//! processor is never interrupted.
#![no_std]
extern crate alloc;

use alloc::collections::VecDeque;
use api_lock::SpinLock;
use api_sched::policy::ThreadIndex;

/// Linux' default slice is 3 ms scaled by the number of processors; software emulation makes a switch dear, so 4 ms.
const SLICE_NS: u64 = 4_000_000;

static QUEUE: SpinLock<VecDeque<ThreadIndex>> = SpinLock::new(VecDeque::new());

#[unsafe(no_mangle)]
fn unilith_sched_enqueue(_cpu: u32, thread: ThreadIndex) {
    QUEUE.lock().push_back(thread);
}

#[unsafe(no_mangle)]
fn unilith_sched_pick(_cpu: u32) -> Option<ThreadIndex> {
    QUEUE.lock().pop_front()
}

#[unsafe(no_mangle)]
fn unilith_sched_slice(_cpu: u32) -> Option<u64> {
    Some(SLICE_NS)
}

#[unsafe(no_mangle)]
fn unilith_sched_waiting(_cpu: u32) -> bool {
    !QUEUE.lock().is_empty()
}
