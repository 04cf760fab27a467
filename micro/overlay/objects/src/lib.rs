// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loadable programs of the overlay: relocatable objects that are linked against the running application and the kernel's
//! calls, and run next to it on a thread of their own.
//!
//! # What is guaranteed
//!
//! - A program writes its own memory only: neither the application's, unless it asked (`uio_enable_write`), nor ever the
//!   kernel's ([`api_plat::domain`]). It reads everything.
//! - What it does wrong ends it alone, with a report that says what, where and in which function ([`report`]). The
//!   application does not notice.
//! - It is preempted like any thread, and ended when its processor time is used up.
//! - While it may write the application's memory, the application's first thread is held where it sleeps in a system
//!   call, and lends its thread-local variables: C library functions find their heap and locks in a consistent state.
//! - What it had (memory, files, the held thread) is given back however it ends.
//!
//! Programs are assumed to have bugs, not bad intentions: they run privileged.
//!
//! The parts: [`memory`] (where programs lie), [`programs`] (linking and keeping them), [`run`] (their threads and ways
//! into the kernel), [`api`] (the calls), [`heap`], [`resolve`] (symbols), [`commands`].
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod api;
mod commands;
mod files;
mod heap;
mod memory;
mod programs;
mod report;
mod resolve;
mod run;
mod serve;

/// Adds the commands. To be called once, before the line starts.
/// Inlined, so that an image needs nothing of this crate before a command comes (`link.ld` of the kernel).
#[inline(always)]
pub fn register() {
    task::overlay::set_hooks(&run::HOOKS);
    api_overlay::register(&commands::COMMANDS);
    api_overlay::register_completer(api_overlay::Completes::Symbols, resolve::complete);
    api_overlay::register_completer(api_overlay::Completes::Programs, programs::complete);
}
