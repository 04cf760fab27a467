// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals (signal(7)).
//!
//! A signal is *sent* (`send`, `exception`, timers) into a queue of a thread or of the process (`state`, `queue`) and
//! wakes a thread that takes it; that thread *delivers* it on its way back to the program (`deliver`): a handler is
//! entered by writing a frame on the program's stack (`frame`, `fpu`, `stack`) and left by rt_sigreturn.
//! docs/explanation/signals.md tells the story.

mod action;
mod core_file;
mod crash;
mod deliver;
mod exception;
pub mod fpu;
mod frame;
mod info;
mod mask;
mod queue;
mod send;
mod set;
mod signalfd;
mod stack;
mod state;

pub use action::{Action, SIG_IGN, rt_sigaction};
pub use deliver::deliver;
pub use exception::exception;
pub use fpu::features as extended_features;
pub use frame::rt_sigreturn;
pub use info::{SI_MESGQ, SI_QUEUE, SI_USER, SigInfo};
pub use mask::{
    pause, restart_syscall, rt_sigpending, rt_sigprocmask, rt_sigsuspend, rt_sigtimedwait, with_mask,
};
pub use send::{
    check_code, is_spared, is_users, kill, rt_sigqueueinfo, rt_tgsigqueueinfo, send, tgkill, tkill,
};
pub use set::*;
pub use signalfd::{signalfd, signalfd4};
pub use stack::sigaltstack;
pub use state::{
    ProcessSignals, TaskSignals, end_thread, force, raise, send_to_current, send_to_process, send_to_task,
    thread_ends,
};
