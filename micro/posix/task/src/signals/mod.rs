// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that are sent to threads and processes and wait for them. What becomes of one that is taken is not here: handlers are entered by
//! the crate `posix`.

pub mod action;
pub mod fpu;
mod info;
mod mask;
mod queue;
mod send;
mod set;
pub mod stack;
mod state;

pub use action::{Action, SIG_IGN};
pub use info::*;
pub use mask::{check_set_size, with_mask};
pub use send::{
    check_permission, is_spared, is_spared_by_caller, is_users, may_be_spared, number, send,
    spare_machines_first,
};
pub use set::*;
pub use state::*;
