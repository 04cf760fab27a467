// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine as Cloud Hypervisor's API takes it (`vmm/src/api/openapi/cloud-hypervisor.yaml` there, `VmConfig`). The command line
//! of its own would show the program's environment to every user of the host.

use crate::{MachineError, firecracker::config::text, vsock};
use serde::Serialize;
use std::{os::fd::RawFd, path::Path};

/// Most bytes of a command line of ours: the API takes requests of 50 KiB, in which a byte may be six.
pub const MAX_BOOT_ARGS: usize = 4096;
/// Bits of physical addresses: devices are placed at their end, and the kernel sees as far as this ([`api_boot::MAX_MEMORY`]).
const PHYSICAL_BITS: u32 = api_boot::MAX_MEMORY.ilog2();

#[derive(Debug, Serialize)]
struct Config<'a> {
    cpus: Cpus,
    memory: Memory,
    payload: Payload<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disks: Vec<Disk>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    net: Vec<Network<'a>>,
    /// The device that random bytes come from.
    rng: Source,
    serial: Console,
    console: Console,
    vsock: Vsock,
}

#[derive(Debug, Serialize)]
struct Cpus {
    boot_vcpus: u32,
    max_vcpus: u32,
    max_phys_bits: u32,
}

#[derive(Debug, Serialize)]
struct Memory {
    size: u64,
}

#[derive(Debug, Serialize)]
struct Payload<'a> {
    kernel: &'a str,
    initramfs: &'a str,
    cmdline: &'a str,
}

#[derive(Debug, Serialize)]
struct Disk {
    path: String,
    readonly: bool,
    /// Else Cloud Hypervisor looks at the first bytes, which the program writes, and takes what looks like a disk of another format for
    /// that. Versions that do not know the field leave it out.
    image_type: &'static str,
}

#[derive(Debug, Serialize)]
struct Network<'a> {
    /// The tap device, which Cloud Hypervisor opens by its name.
    tap: &'a str,
    mac: String,
}

#[derive(Debug, Serialize)]
struct Source {
    src: &'static str,
}

#[derive(Debug, Serialize)]
struct Console {
    mode: &'static str,
}

#[derive(Debug, Serialize)]
struct Vsock {
    cid: u32,
    socket: &'static str,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    /// The kernel's command line, of [`MAX_BOOT_ARGS`] bytes at most.
    pub boot_args: &'a str,
    pub cpus: u32,
    /// Bytes.
    pub memory: u64,
    /// Descriptors that Cloud Hypervisor inherits, and whether they are read only, in the order of the machine's devices.
    pub disks: Vec<(RawFd, bool)>,
    /// The tap device, and the address of the machine's side.
    pub tap: Option<(&'a str, [u8; 6])>,
}

impl Parts<'_> {
    /// The body of the request that makes the machine.
    pub fn to_json(&self) -> Result<String, MachineError> {
        // Opened anew by Cloud Hypervisor, which takes names only: this one is the file that was locked, whatever its path is now.
        let disk = |(fd, readonly): &(RawFd, bool)| Disk {
            path: format!("/proc/self/fd/{fd}"),
            readonly: *readonly,
            image_type: "Raw",
        };
        let network = |(tap, mac)| Network { tap, mac: crate::qemu::show_mac(mac) };
        let config = Config {
            cpus: Cpus { boot_vcpus: self.cpus, max_vcpus: self.cpus, max_phys_bits: PHYSICAL_BITS },
            memory: Memory { size: self.memory.next_multiple_of(1 << 20) },
            payload: Payload {
                kernel: text(self.kernel)?,
                initramfs: text(self.initrd)?,
                cmdline: self.boot_args,
            },
            disks: self.disks.iter().map(disk).collect(),
            net: self.tap.into_iter().map(network).collect(),
            rng: Source { src: "/dev/urandom" },
            serial: Console { mode: "Tty" },
            console: Console { mode: "Off" },
            vsock: Vsock { cid: vsock::GUEST_CID, socket: vsock::SOCKET },
        };
        serde_json::to_string(&config)
            .map_err(|e| MachineError::Monitor(format!("Cloud Hypervisor's configuration: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_the_documented_fields() {
        let mut parts = Parts {
            kernel: Path::new("/k/kernel"),
            initrd: Path::new("/i/a \"b\".cpio"),
            boot_args: "status=console -- /bin/x",
            cpus: 2,
            memory: (64 << 20) + 4096,
            disks: vec![(7, false), (9, true)],
            tap: Some(("unilith3", [0x52, 0x55, 1, 0x23, 0x45, 0x67])),
        };
        let json: serde_json::Value = serde_json::from_str(&parts.to_json().unwrap()).unwrap();
        let expected = serde_json::json!({
            "cpus": { "boot_vcpus": 2, "max_vcpus": 2, "max_phys_bits": 39 },
            "memory": { "size": 65 << 20 },
            "payload": {
                "kernel": "/k/kernel",
                "initramfs": "/i/a \"b\".cpio",
                "cmdline": "status=console -- /bin/x",
            },
            "disks": [
                { "path": "/proc/self/fd/7", "readonly": false, "image_type": "Raw" },
                { "path": "/proc/self/fd/9", "readonly": true, "image_type": "Raw" },
            ],
            "net": [{ "tap": "unilith3", "mac": "52:55:01:23:45:67" }],
            "rng": { "src": "/dev/urandom" },
            "serial": { "mode": "Tty" },
            "console": { "mode": "Off" },
            "vsock": { "cid": 3, "socket": "vsock.sock" },
        });
        assert_eq!(json, expected);
        parts.tap = None;
        parts.disks = Vec::new();
        let json: serde_json::Value = serde_json::from_str(&parts.to_json().unwrap()).unwrap();
        assert_eq!((json.get("net"), json.get("disks")), (None, None));
    }
}
