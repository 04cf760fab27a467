// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel image: picks the micro-libraries by cargo feature, boots, runs the program.
//!
//! The only crate with linker arguments (`build.rs`). What is not picked here is not in the image.
//!
//! Built with a profile that aborts on panics (`--profile kernel`); otherwise it is an empty host program, so that
//! checks of the whole workspace can build it.
#![cfg_attr(panic = "abort", no_std)]
#![cfg_attr(panic = "abort", no_main)]

#[cfg(panic = "abort")]
extern crate alloc;

#[cfg(panic = "abort")]
mod heap;
#[cfg(panic = "abort")]
mod logger;
#[cfg(all(panic = "abort", feature = "net-tcpip"))]
mod network;
#[cfg(panic = "abort")]
mod start;

#[cfg(not(panic = "abort"))]
fn main() {
    eprintln!("this is the micro kernel built as a host program: build it with --profile kernel");
}

#[cfg(all(feature = "sched-coop", feature = "sched-preempt"))]
compile_error!(
    "pick one scheduling policy: build with --no-default-features --features sched-coop,alloc-tlsf"
);
#[cfg(not(any(feature = "sched-coop", feature = "sched-preempt")))]
compile_error!("pick a scheduling policy: sched-coop or sched-preempt");
#[cfg(all(feature = "alloc-buddy", feature = "alloc-tlsf"))]
compile_error!("pick one heap: build with --no-default-features --features alloc-buddy,sched-preempt");
#[cfg(not(any(feature = "alloc-buddy", feature = "alloc-tlsf")))]
compile_error!("pick a heap: alloc-tlsf or alloc-buddy");
