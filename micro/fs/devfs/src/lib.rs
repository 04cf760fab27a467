// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices: what /dev holds, and what opening a device node gives.
//!
//! /dev itself is an ordinary RAM file system that [`populate`] fills with nodes and links; [`open`] finds the driver
//! of a node by its number, wherever the node is. The machine behind the console and the random devices is reached
//! through [`Machine`], so that this crate depends on no platform.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod console;
mod line;
mod memory;

pub use console::{poll_console, standard_streams};

use abi::{Result, errno::ENXIO};
use alloc::sync::Arc;
use api_fs::{File, FileType, Inode};
use api_lock::SpinLock;

/// What devices need of the machine.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Fills with random bytes.
    pub entropy: fn(&mut [u8]),
    /// Writes to the console.
    pub write: fn(&[u8]),
    /// Takes bytes that arrived at the console; 0 when there are none.
    pub read: fn(&mut [u8]) -> usize,
    /// Sends a signal to the program (the interrupt key of the terminal).
    pub signal: fn(i32),
    /// The console is a terminal.
    pub is_terminal: bool,
}

fn nothing(_: &mut [u8]) -> usize {
    0
}

static MACHINE: SpinLock<Machine> = SpinLock::new(Machine {
    entropy: |_| {},
    write: |_| {},
    read: nothing,
    signal: |_| {},
    is_terminal: false,
});

/// Connects the devices to the machine; once, before anything is opened.
pub fn connect(machine: Machine) {
    *MACHINE.lock() = machine;
}

fn machine() -> Machine {
    *MACHINE.lock()
}

const fn device(major: u64, minor: u64) -> u64 {
    major << 8 | minor
}

const NULL: u64 = device(1, 3);
const ZERO: u64 = device(1, 5);
const FULL: u64 = device(1, 7);
const RANDOM: u64 = device(1, 8);
const URANDOM: u64 = device(1, 9);
const TTY: u64 = device(5, 0);
const CONSOLE: u64 = device(5, 1);

const NODES: [(&[u8], u64, u32); 7] = [
    (b"null", NULL, 0o666),
    (b"zero", ZERO, 0o666),
    (b"full", FULL, 0o666),
    (b"random", RANDOM, 0o666),
    (b"urandom", URANDOM, 0o666),
    (b"tty", TTY, 0o666),
    (b"console", CONSOLE, 0o620),
];

const LINKS: [(&[u8], &[u8]); 4] = [
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
];

/// Puts the nodes and links of /dev into an empty directory, and the directories other file systems are mounted on.
pub fn populate(dev: &Arc<dyn Inode>) -> Result<()> {
    for (name, number, permissions) in NODES {
        dev.create(name, FileType::CharDevice, permissions, (0, 0), number)?;
    }
    for (name, target) in LINKS {
        dev.symlink(name, target, (0, 0))?;
    }
    for name in [&b"shm"[..], b"pts", b"mqueue"] {
        dev.create(name, FileType::Directory, 0o755, (0, 0), 0)?;
    }
    Ok(())
}

/// Opens the device with that number; `ENXIO` when there is no such device.
pub fn open(number: u64, inode: &Arc<dyn Inode>) -> Result<Arc<dyn File>> {
    use memory::{Kind, MemoryDevice};
    let memory = |kind| -> Result<Arc<dyn File>> { Ok(Arc::new(MemoryDevice::new(kind, inode.clone()))) };
    match number {
        NULL => memory(Kind::Null),
        ZERO => memory(Kind::Zero),
        FULL => memory(Kind::Full),
        RANDOM | URANDOM => memory(Kind::Random),
        TTY if !machine().is_terminal => Err(ENXIO),
        TTY | CONSOLE => Ok(console::device(inode.clone())),
        _ => Err(ENXIO),
    }
}
