// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads of the kernel: creation, parking, switching, timers, deferred work. Which thread runs next is the policy's
//! business (`sched-coop`, `sched-preempt`, through `api_sched::policy`).
//!
//! # How it works
//!
//! - A thread leaves the processor only in [`schedule`], called by parking, yielding and ending. There is no idle
//!   thread: when nothing is runnable the parking thread itself runs deferred work and timers and sleeps in
//!   [`api_plat::idle`]; when it is woken meanwhile it goes on without a switch.
//! - A wake-up that comes before the thread has parked leaves a token, and parking takes it instead of sleeping, so
//!   none is lost.
//! - With several processors each has an idle thread, for another one may go on with the thread that sleeps. Kernel code
//!   runs on one of them at a time (`api_plat`), so one queue serves all, and all of this needs no locks of its own. A
//!   thread that becomes runnable wakes an idle processor; where all are busy, turns are shared out when one ends.
//! - Extended processor state is switched lazily: the processor keeps the state of the last program thread until
//!   another one runs; of several processors it is saved when the thread leaves.
//! - Preemption: the timer interrupt sets a flag; [`work`], called before a return to the program, yields when the
//!   slice is over and somebody waits.
//!
//! Owns two invariants for its unsafe code: a thread's [`Context`] is touched only by the switch itself, and a
//! thread's memory (stack included) stays until another thread has taken the processor over from it.
#![no_std]
extern crate alloc;

mod deferred_work;
mod load;
mod run;
mod share;
mod thread;

pub use deferred_work::run_deferred_work;
pub use load::measure_load_at;
pub use run::{
    Current, OneProcessor, current, current_handle, exit_current, idles, is_at_work, on_timer_interrupt,
    park, prepare_others, prolong_turn, spawn, start_first, start_other, threads, unpark, work, yield_now,
};
pub use thread::{Start, Thread};
