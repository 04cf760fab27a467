// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The atomics of the lock-free parts: in tests loom's, which go through every order of the accesses (`model.rs`).

#[cfg(not(test))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(test)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
