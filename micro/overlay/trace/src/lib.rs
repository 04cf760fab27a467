// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF programs at functions and tracepoints of the running machine: the commands `bpf …`, and what they stand on.
//!
//! Functions of the application and the kernel are probed in unmodified binaries: the first bytes become a jump
//! ([`sites`]); returns are seen by replacing the return address ([`returns`]). docs/explanation/tracing.md argues why
//! this is right at any moment under load.
//!
//! # Invariants
//!
//! - Programs run with interrupts off on a stack of their own, one at a time on each processor; a probe that is hit
//!   meanwhile is passed over.
//! - What a program runs in (`code`, `sites`, `returns`) changes only with interrupts off.
//! - A trampoline is never freed: a thread may be in it, or come back to it from a signal handler.
//! - Nothing in a probe takes a lock, faults, allocates or waits.
#![no_std]
extern crate alloc;

mod code;
mod commands;
mod environment;
mod load;
mod peek;
mod points;
mod returns;
mod sites;

/// Adds the commands. Inlined, so that an image needs nothing of this crate before a command comes (`link.ld` of the kernel).
#[inline(always)]
pub fn register() {
    api_overlay::register(&commands::COMMANDS);
    api_overlay::register_completer(api_overlay::Completes::Probes, commands::complete);
    api_trace::set_around(sites::around);
}
