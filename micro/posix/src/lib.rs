// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux' system calls over the micro-libraries.
//!
//! - [`dispatch`] takes a call from the platform to its handler and does what is due on the way out;
//! - [`calls`] are the handlers under the names that the table of calls (`syscall-table`) has for them;
//! - [`confinement`] is what containers are kept from before they begin;
//! - [`file_systems`] is what mount(2) and fsopen(2) make;
//! - [`hooks`] are programs that run before the machine's own;
//! - [`mounts`] is the tree at the start;
//! - `overlays` is what is said of union mounts;
//! - [`outside`] is how programs begin that no program of the machine started.
//!
//! What threads and processes are is the crate [`task`], handlers are the crates `calls-*`, and what /proc and /sys say is [`proc`]. This
//! crate may depend on every micro-library; only the kernel image and the overlay depend on it.
#![no_std]
extern crate alloc;

pub mod calls;
pub mod confinement;
// Of an image with a linked program most of this is left out by the linker.
#[cfg_attr(feature = "linked", allow(dead_code))]
pub mod dispatch;
mod file_systems;
mod hooks;
pub mod mounts;
pub mod outside;
#[cfg(feature = "overlayfs")]
mod overlays;
pub mod start;
