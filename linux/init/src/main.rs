// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first process of a Unilith Linux machine: what the micro kernel does between its first instruction and the
//! program's, done here with system calls.
//!
//! The host puts this program at `/.unilith/init`, the boot configuration (the encoded line of `api-boot`) at
//! `/.unilith/boot`, and the overlay's tools at `/.unilith/busybox`, all in a second archive behind the root file system's. Not on the kernel command line: that
//! ends at 2,048 bytes and Linux takes at most 32 settings and 32 arguments it does not know.
//!
//! It mounts what programs expect, sets the network up, starts the program, reports [`Status`] lines and ends the
//! machine. Everything before the program is an ordinary process's work, so a failure is one `failed` line and a
//! machine that ends, never a panic of the kernel.
#![deny(unsafe_code)]

mod console;
mod level;
mod listening;
mod mounts;
mod netlink;
mod network;
mod overlay;
mod program;
mod status;

use api_boot::{BootConfig, Status};
use status::StatusPort;
use std::fs;

/// Where the host's files are; gone before the program starts.
const OWN_FOLDER: &str = "/.unilith";

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().is_some_and(|word| word == overlay::WORD) {
        if let Err(reason) = overlay::serve(words.next().as_deref()) {
            eprintln!("unilith: the overlay: {reason}");
        }
        return;
    }
    // Without /proc and /dev there is no status port to say so on: the console is all there is.
    if let Err(reason) = mounts::kernel_file_systems() {
        eprintln!("unilith: {reason}");
        mounts::end_machine();
    }
    let port = match StatusPort::open() {
        Ok(port) => port,
        Err(reason) => {
            eprintln!("unilith: {reason}");
            mounts::end_machine();
        }
    };
    let status = run(&port).unwrap_or_else(|reason| {
        eprintln!("unilith: {reason}");
        Status::Failed { reason }
    });
    // What the program wrote to volumes is on its way to the host before its end is reported.
    rustix::fs::sync();
    port.report(&status);
    port.end_machine();
    mounts::end_machine();
}

/// From the boot configuration to the program's end.
fn run(port: &StatusPort) -> Result<Status, String> {
    let path = format!("{OWN_FOLDER}/boot");
    let line = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let config = BootConfig::decode(&line).map_err(|e| e.to_string())?;
    // Only where the machine has an overlay.
    let tools = fs::File::open(format!("{OWN_FOLDER}/busybox")).ok();
    fs::remove_dir_all(OWN_FOLDER).map_err(|e| format!("{OWN_FOLDER}: {e}"))?;
    for word in &config.unknown {
        eprintln!("unilith: the setting `{word}` is unknown and ignored");
    }
    if config.trace {
        eprintln!("unilith: `trace` is for the micro kernel; here, run the program under strace");
    }
    mounts::wall_clock(&config)?;
    network::set_up(&config)?;
    mounts::volumes(&config)?;
    mounts::tmpfs(&config)?;
    mounts::seal_root(&config)?;
    let program = program::start(&config)?;
    port.report(&Status::Started { kernel_ns: mounts::since_boot() });
    listening::watch(port);
    // A machine that cannot be looked into runs its program all the same.
    if let Err(reason) = overlay::start(program.id(), tools) {
        eprintln!("unilith: {reason}");
    }
    program.wait()
}
