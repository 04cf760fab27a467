// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the layer above counts the threads that are busy: the first time that the processor changes hands after the end of a
//! period. It sets no timer, for an idle machine would be woken to learn that it is idle.

use core::sync::atomic::{AtomicU64, Ordering};

/// When the period ends.
static PERIOD_END: AtomicU64 = AtomicU64::new(u64::MAX);

unsafe extern "Rust" {
    /// The period has ended. The processor was idle until now, or the current thread ran. Answers when the next period ends.
    safe fn unilith_load_period_ended(now_ns: u64, was_idle: bool) -> u64;
}

/// The first period ends then; before it nothing is counted.
pub fn measure_load_at(end_ns: u64) {
    PERIOD_END.store(end_ns, Ordering::Relaxed);
}

/// The processor changes hands.
#[inline]
pub(crate) fn measure(now_ns: u64, was_idle: bool) {
    if now_ns >= PERIOD_END.load(Ordering::Relaxed) {
        PERIOD_END.store(unilith_load_period_ended(now_ns, was_idle), Ordering::Relaxed);
    }
}
