// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices: what /dev holds, and what opening a device node gives.
//!
//! /dev itself is an ordinary RAM file system that begins with nodes and links ([`root`]); [`open`] finds the driver of
//! a node by its number, wherever the node is. The machine behind the console and the random devices is reached
//! through [`Machine`], so that this crate depends on no platform.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod console;
mod control;
mod echo;
mod input;
mod line;
mod memory;
mod output;
mod pty;
mod terminal;
mod termios;

pub use console::{PIECE, poll_console, print, standard_streams};
pub use control::{Caller, Control};
pub use input::{Input, expect_input, set_input};
pub use output::{Output, flush, move_output};
pub use pty::Outside as OutsideTerminal;
pub use pty::{open_peer, root as pts};

use abi::{Result, errno::ENXIO};
use alloc::sync::Arc;
use api_fs::{File, FileType, Inode};
use api_lock::SpinLock;
use ramfs::Initial;

/// What devices need of the machine.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Fills with random bytes.
    pub entropy: fn(&mut [u8]),
    /// Lets others run in the middle of a long call. True when a signal waits, and the call is to end with what it has done.
    pub take_a_break: fn() -> bool,
    /// What the console writes to, until [`move_output`].
    pub output: Output,
    /// Takes bytes that arrived at the console; 0 when there are none.
    pub read: fn(&mut [u8]) -> usize,
    /// No more input will ever come.
    pub ended: fn() -> bool,
    /// Sends a signal to a process group (the interrupt key of the terminal).
    pub signal: fn(i32, i32),
    /// Who the running thread is.
    pub caller: fn() -> Caller,
    /// The session of a process group; `None` when there is no such group.
    pub session_of_group: fn(i32) -> Option<i32>,
    /// The number that the running thread's process has for a process group or session; 0 where it does not see it.
    pub shown: fn(i32) -> i32,
    /// The process group that it means by a number.
    pub named: fn(i32) -> Option<i32>,
    /// The running thread's process does from the background what only the foreground may: what the call answers, after the
    /// group was sent the signal (SIGTTIN or SIGTTOU) or because it does not care.
    pub background: fn(i32) -> Result<()>,
    /// Who owns a pseudo-terminal that the running thread opens: user and group.
    pub owner: fn() -> (u32, u32),
    /// Since boot.
    pub now_ns: fn() -> u64,
    /// The running thread has CAP_SYSLOG.
    pub reads_log: fn() -> bool,
    /// The console is a terminal.
    pub is_terminal: bool,
    /// Where it is none, standard error is marked on it.
    pub own_error: bool,
}

fn nothing(_: &mut [u8]) -> usize {
    0
}

static MACHINE: SpinLock<Machine> = SpinLock::new(Machine {
    entropy: |_| {},
    take_a_break: || false,
    output: Output { write: |_| Ok(()), has_room: || true, is_drained: || true },
    read: nothing,
    ended: || false,
    signal: |_, _| {},
    caller: || Caller { group: 1, session: 1, leads: true, administers: true },
    session_of_group: |group| (group == 1).then_some(1),
    shown: |number| number,
    named: Some,
    background: |_| Ok(()),
    owner: || (0, 0),
    now_ns: || 0,
    reads_log: || true,
    is_terminal: false,
    own_error: false,
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
const KMSG: u64 = device(1, 11);
const TTY: u64 = device(5, 0);
const CONSOLE: u64 = device(5, 1);
const PTMX: u64 = device(5, 2);
const TUN: u64 = device(10, 200);

const fn node(name: &'static [u8], rdev: u64, permissions: u32) -> Initial {
    Initial { name, kind: FileType::CharDevice, permissions, rdev, target: b"" }
}

const fn link(name: &'static [u8], target: &'static [u8]) -> Initial {
    Initial { name, kind: FileType::Symlink, permissions: 0o777, rdev: 0, target }
}

/// A directory that another file system is mounted on.
const fn directory(name: &'static [u8]) -> Initial {
    Initial { name, kind: FileType::Directory, permissions: 0o755, rdev: 0, target: b"" }
}

static CONTENTS: [Initial; 16] = [
    node(b"null", NULL, 0o666),
    node(b"zero", ZERO, 0o666),
    node(b"full", FULL, 0o666),
    node(b"random", RANDOM, 0o666),
    node(b"urandom", URANDOM, 0o666),
    node(b"kmsg", KMSG, 0o644),
    node(b"tty", TTY, 0o666),
    node(b"console", CONSOLE, 0o620),
    // Of the terminals that are mounted in this tree (runtime-spec, runtime-linux.md, "Dev symbolic links").
    link(b"ptmx", b"pts/ptmx"),
    link(b"fd", b"/proc/self/fd"),
    link(b"stdin", b"/proc/self/fd/0"),
    link(b"stdout", b"/proc/self/fd/1"),
    link(b"stderr", b"/proc/self/fd/2"),
    directory(b"shm"),
    directory(b"pts"),
    directory(b"mqueue"),
];

/// The group `tty`, whose members write to terminals (wall(1)); its number is Debian's and that of images.
pub const TTY_GROUP: u32 = 5;

/// The terminal that controls a session: its device number and what it controls.
pub fn terminal_of(session: i32) -> Option<(u64, Control)> {
    match console::control() {
        control if control.session == session && session != 0 => Some((CONSOLE, control)),
        _ => pty::terminal_of(session),
    }
}

/// The leader of a session ends: its terminal is told, and controls nothing any more.
pub fn session_ends(session: i32) {
    if console::control().session == session {
        console::release();
    }
    pty::session_ends(session);
}

/// Opens a device of a part that the image may lack.
pub type Driver = fn(&Arc<dyn Inode>) -> Result<Arc<dyn File>>;

static TUN_DRIVER: SpinLock<Option<Driver>> = SpinLock::new(None);

/// Makes known what opens /dev/net/tun, before [`root`] is asked for.
pub fn register_tun(driver: Driver) {
    *TUN_DRIVER.lock() = Some(driver);
}

/// /dev/net/tun, where there is a driver.
fn add_tun(root: &Arc<dyn Inode>) -> Result<()> {
    if TUN_DRIVER.lock().is_none() {
        return Ok(());
    }
    let directory = root.create(b"net", FileType::Directory, 0o755, (0, 0), 0)?;
    directory.create(b"tun", FileType::CharDevice, 0o666, (0, 0), TUN).map(drop)
}

/// The file system of /dev: a tmpfs of at most `limit` bytes that begins with nodes and links.
pub fn root(number: u64, limit: u64) -> Arc<dyn Inode> {
    let root: Arc<dyn Inode> = ramfs::tmpfs_with(number, limit, 0o755, (0, 0), &CONTENTS);
    // Without memory for it, the node is missing.
    let _ = add_tun(&root);
    root
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
        KMSG => {
            let machine = machine();
            Ok(kmsg::device(inode, (machine.reads_log)(), machine.now_ns))
        }
        // The console controls the first session, where it is a terminal.
        TTY if !console::is_controlling() => pty::open_controlling(),
        PTMX => pty::open_master(inode),
        TUN => TUN_DRIVER.lock().ok_or(ENXIO)?(inode),
        TTY | CONSOLE => Ok(console::device(inode.clone())),
        _ => Err(ENXIO),
    }
}
