// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel image: picks the micro-libraries by cargo feature, boots, runs the program.
//!
//! The only crate with linker arguments (`build.rs`). What is not picked here is not in the image.
#![no_std]
#![no_main]
extern crate alloc;

mod heap;
mod logger;
mod report;
mod start;

// Micro-libraries that are reached through their `extern` symbols only: naming them links them.
use plat_pc as _;
#[cfg(feature = "sched-coop")]
use sched_coop as _;
#[cfg(feature = "sched-preempt")]
use sched_preempt as _;

#[cfg(all(feature = "sched-coop", feature = "sched-preempt"))]
compile_error!("pick one scheduling policy: build with --no-default-features --features sched-coop,alloc-tlsf");
#[cfg(not(any(feature = "sched-coop", feature = "sched-preempt")))]
compile_error!("pick a scheduling policy: sched-coop or sched-preempt");
