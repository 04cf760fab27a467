// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots real machines. Ignored by default: the first run builds two kernels, which takes minutes; they stay in the
//! user's cache folder. Run with `cargo test -p unilith-linux -- --ignored`. Needs qemu-system-x86_64 and
//! a C compiler.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod boot;
mod checks;
mod levels;
mod linked;
mod long;
mod machine;
