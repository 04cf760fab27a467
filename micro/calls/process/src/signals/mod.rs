// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals (signal(7)).
//!
//! A signal is *sent* (`send`, `exception`, timers) into a queue of a thread or of the process (`task::signals`) and
//! wakes a thread that takes it; that thread *delivers* it on its way back to the program (`deliver`): a handler is
//! entered by writing a frame on the program's stack (`frame`, `stack`) and left by rt_sigreturn.
//! docs/explanation/signals.md tells the story.

mod action;
mod core_file;
pub mod core_name;
mod crash;
mod deliver;
mod exception;
mod frame;
mod mask;
mod send;
mod signalfd;
mod stack;

pub use action::rt_sigaction;
pub use deliver::deliver;
pub use exception::exception;
pub use frame::rt_sigreturn;
pub use mask::{pause, restart_syscall, rt_sigpending, rt_sigprocmask, rt_sigsuspend, rt_sigtimedwait};
pub use send::{check_code, kill, rt_sigqueueinfo, rt_tgsigqueueinfo, tgkill, tkill};
pub use signalfd::{signalfd, signalfd4};
pub use stack::sigaltstack;
