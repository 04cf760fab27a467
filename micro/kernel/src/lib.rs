// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel image: picks the micro-libraries by cargo feature, boots, runs the program.
//!
//! The only crate with linker arguments (`build.rs`). What is not picked here is not in the image. There is a binary for each
//! platform: `kernel` for a PC, `kernel-process` for a process of Linux.
//!
//! Built with a profile that aborts on panics (`--profile kernel`); otherwise it is an empty host program, so that
//! checks of the whole workspace can build it.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(panic = "abort")]
extern crate alloc;

#[cfg(panic = "abort")]
mod heap;
#[cfg(all(panic = "abort", feature = "linked"))]
mod linked;
#[cfg(panic = "abort")]
mod logger;
#[cfg(panic = "abort")]
#[cfg_attr(feature = "plat-pc", path = "machine/pc.rs")]
#[cfg_attr(all(feature = "plat-process", not(feature = "plat-pc")), path = "machine/process.rs")]
mod machine;
#[cfg(all(panic = "abort", feature = "net-tcpip"))]
mod network;
#[cfg(all(panic = "abort", feature = "overlay"))]
mod overlay;
#[cfg(all(panic = "abort", feature = "linked"))]
mod raw;
#[cfg(panic = "abort")]
mod start;

#[cfg(all(feature = "sched-coop", feature = "sched-preempt"))]
compile_error!(
    "pick one scheduling policy: build with --no-default-features --features sched-coop,alloc-tlsf"
);
#[cfg(all(feature = "plat-pc", feature = "plat-process", panic = "abort"))]
compile_error!(
    "pick one platform: build with --no-default-features --features plat-process,sched-preempt,alloc-tlsf"
);
#[cfg(not(any(feature = "plat-pc", feature = "plat-process")))]
compile_error!("pick a platform: plat-pc or plat-process");
#[cfg(not(any(feature = "sched-coop", feature = "sched-preempt")))]
compile_error!("pick a scheduling policy: sched-coop or sched-preempt");
#[cfg(not(any(
    feature = "alloc-tlsf",
    feature = "alloc-buddy",
    feature = "alloc-mimalloc",
    feature = "alloc-tiny",
    feature = "alloc-region"
)))]
compile_error!("pick a heap: alloc-tlsf, alloc-buddy, alloc-mimalloc, alloc-tiny or alloc-region");
