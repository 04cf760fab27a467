// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that every machine with the overlay has: files, processes, memory, network, the kernel's log.
//!
//! They see the file tree as the program does, with the rights of root, and in it `/overlay`: the host's directory of this
//! machine ([`paths`]). Other crates add commands of their own (`overlay-objects`, `overlay-bpf`).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
mod arguments;
pub mod container;
mod containers;
mod copy;
mod directories;
mod export;
mod help;
pub mod journal;
mod list;
mod memory;
pub mod net;
pub mod paths;
mod processes;
pub mod program;
mod signals;
mod time;
mod top;

use api_overlay::{Completes, register_completer};

/// Adds the commands. Inlined, so that an image needs nothing of this crate before a command comes (`link.ld` of the kernel).
#[inline(always)]
pub fn register() {
    for commands in [
        &list::COMMANDS[..],
        &copy::COMMANDS,
        &directories::COMMANDS,
        &export::COMMANDS,
        &processes::COMMANDS,
        &containers::COMMANDS,
        &top::COMMANDS,
        &memory::COMMANDS,
        &net::COMMANDS,
        &journal::COMMANDS,
        &help::COMMANDS,
    ] {
        api_overlay::register(commands);
    }
    register_completer(Completes::Paths, paths::complete);
    register_completer(Completes::Commands, help::complete);
    register_completer(Completes::Signals, signals::complete);
}
