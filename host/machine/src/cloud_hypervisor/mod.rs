// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cloud Hypervisor as the monitor of a machine: where its binary is, and what it lacks here.
//!
//! - [`config`]: what a machine is, as its API is told;
//! - [`terminal`]: the terminal that its serial port takes input from.
//!
//! Cloud Hypervisor enters the kernel by PVH and has virtio devices on a PCI bus. Much is as under Firecracker, and that
//! module's is used here: HTTP on a UNIX socket, status lines on the serial port, settings behind the root archive. The request to
//! end goes over the socket device ([`crate::vsock`]): Cloud Hypervisor's power button is an ACPI event.

pub mod config;
pub mod terminal;

use crate::firecracker::Lack;
use std::{
    ffi::OsString,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::Duration,
};

/// The program's name.
const NAME: &str = "cloud-hypervisor";
/// Names another binary.
const VARIABLE: &str = "UNILITH_CLOUD_HYPERVISOR";
/// The first version whose virtio-vsock takes a packet in one descriptor, header and payload.
const LEAST: u32 = 35;
/// Its API socket in the machine's directory.
pub const API_SOCKET: &str = "cloud-hypervisor.sock";
/// How long it may take to make a machine and to start it, with a loaded computer under it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary.
pub fn program() -> OsString {
    std::env::var_os(VARIABLE).filter(|given| !given.is_empty()).unwrap_or_else(|| NAME.into())
}

/// The version of the binary, as it tells it.
pub fn version() -> Result<String, Lack> {
    let program = program();
    let shown = program.to_string_lossy();
    let lack = |why| Lack {
        why,
        remedy: format!(
            "put the binary of a release of Cloud Hypervisor (or of `cargo build --release` in its sources) into PATH, or name it in \
             {VARIABLE}"
        ),
    };
    let output = Command::new(&program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => lack(format!("there is no {shown}")),
        _ => lack(format!("{shown} cannot be run: {e}")),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    let Some(found) = number(line) else {
        return Err(lack(format!("{shown} does not say that it is Cloud Hypervisor")));
    };
    if found < LEAST {
        return Err(lack(format!("{line} is too old: {LEAST}.0 is the first whose socket device is enough")));
    }
    Ok(line.to_string())
}

/// The first part of the version in `cloud-hypervisor v53.0.0`.
fn number(line: &str) -> Option<u32> {
    line.strip_prefix("cloud-hypervisor v")?.split(['.', '-']).next()?.parse().ok()
}

/// What is missing here for its machines: the binary, or KVM, without which it runs none. `try_it` is as with Firecracker's.
pub fn lack(try_it: bool) -> Option<Lack> {
    match version() {
        Err(lack) => Some(lack),
        Ok(_) => crate::firecracker::lack_of_kvm("Cloud Hypervisor", try_it),
    }
}

/// Makes and starts a machine, over two connections to the API.
pub fn boot(connect: impl Fn() -> std::io::Result<UnixStream>, machine: &str) -> std::io::Result<()> {
    use crate::firecracker::api::put;
    put(connect()?, "/api/v1/vm.create", machine, PATIENCE)?;
    put(connect()?, "/api/v1/vm.boot", "", PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_whatever_stands_behind_it() {
        assert_eq!(number("cloud-hypervisor v53.0.0"), Some(53));
        assert_eq!(number("cloud-hypervisor v54-dirty"), Some(54));
        for text in ["cloud-hypervisor v", "cloud-hypervisor vx.1", "Firecracker v1.16.1", ""] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
