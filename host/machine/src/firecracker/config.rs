// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Firecracker's configuration file (its `docs/getting-started.md`, "Configuring the microVM without sending API requests"; the
//! fields are those of `src/firecracker/swagger/firecracker.yaml`). It refuses files with fields that it does not know.

use crate::{MachineError, vsock};
use serde::Serialize;
use std::{os::fd::RawFd, path::Path};

/// Bytes of Firecracker's command line, its end included (`CMDLINE_MAX_SIZE`).
const COMMAND_LINE: usize = 2048;
/// What Firecracker adds to it: `pci=off`, and for each device a word that is not longer than this.
const WORD: usize = " virtio_mmio.device=4K@0x00000000ffffffff:255".len();
/// Network, entropy and the overlay's device, one more, and the disks.
const MAX_DEVICES: usize = 4 + api_boot::MAX_DRIVES;
/// Most bytes of a command line of ours.
pub const MAX_BOOT_ARGS: usize = COMMAND_LINE - 1 - " pci=off".len() - MAX_DEVICES * WORD;

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config<'a> {
    boot_source: BootSource<'a>,
    machine_config: MachineConfig,
    /// It has to be there.
    drives: Vec<Disk>,
    network_interfaces: Vec<NetworkInterface>,
    /// The device that random bytes come from.
    entropy: Entropy,
    /// The device of the overlay's line.
    #[serde(skip_serializing_if = "Option::is_none")]
    vsock: Option<Vsock>,
}

#[derive(Debug, Serialize)]
struct Vsock {
    guest_cid: u32,
    uds_path: &'static str,
}

#[derive(Debug, Serialize)]
struct BootSource<'a> {
    kernel_image_path: &'a str,
    initrd_path: &'a str,
    boot_args: &'a str,
}

#[derive(Debug, Serialize)]
struct MachineConfig {
    vcpu_count: u32,
    mem_size_mib: u64,
}

#[derive(Debug, Serialize)]
struct NetworkInterface {
    iface_id: &'static str,
    /// The tap device, which Firecracker opens by its name.
    host_dev_name: String,
    guest_mac: String,
}

#[derive(Debug, Serialize)]
struct Disk {
    drive_id: String,
    path_on_host: String,
    is_root_device: bool,
    is_read_only: bool,
    /// Whether what was flushed is on the host's disk.
    cache_type: &'static str,
}

#[derive(Debug, Serialize)]
struct Entropy {}

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
    /// Descriptors that Firecracker inherits, and whether they are read only, in the order of the machine's devices.
    pub disks: Vec<(RawFd, bool)>,
    /// The tap device, and the address of the machine's side.
    pub tap: Option<(&'a str, [u8; 6])>,
    /// The machine has a socket device.
    pub vsock: bool,
}

impl Parts<'_> {
    /// The configuration file.
    pub fn to_json(&self) -> Result<String, MachineError> {
        let interface = |(name, mac): (&str, [u8; 6])| NetworkInterface {
            iface_id: "net0",
            host_dev_name: name.to_string(),
            guest_mac: crate::qemu::show_mac(mac),
        };
        // Opened anew by Firecracker, which takes names only: this one is the file that was locked, whatever its path is now.
        let disk = |(n, (fd, read_only)): (usize, &(RawFd, bool))| Disk {
            drive_id: format!("disk{n}"),
            path_on_host: format!("/proc/self/fd/{fd}"),
            is_root_device: false,
            is_read_only: *read_only,
            cache_type: "Writeback",
        };
        let config = Config {
            boot_source: BootSource {
                kernel_image_path: text(self.kernel)?,
                initrd_path: text(self.initrd)?,
                boot_args: self.boot_args,
            },
            machine_config: MachineConfig {
                vcpu_count: self.cpus,
                mem_size_mib: self.memory.div_ceil(1 << 20),
            },
            drives: self.disks.iter().enumerate().map(disk).collect(),
            network_interfaces: self.tap.into_iter().map(interface).collect(),
            entropy: Entropy {},
            vsock: self.vsock.then_some(Vsock { guest_cid: vsock::GUEST_CID, uds_path: vsock::SOCKET }),
        };
        serde_json::to_string(&config)
            .map_err(|e| MachineError::Monitor(format!("Firecracker's configuration: {e}")))
    }
}

/// JSON has text only.
pub fn text(path: &Path) -> Result<&str, MachineError> {
    path.to_str().ok_or_else(|| {
        MachineError::Monitor(format!(
            "{} is no UTF-8, and this monitor takes no other names: move it, or use another --machine",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    fn parts() -> Parts<'static> {
        Parts {
            kernel: Path::new("/k/kernel"),
            initrd: Path::new("/i/a \"b\".cpio"),
            boot_args: "status=console -- /bin/x",
            cpus: 2,
            memory: (64 << 20) + 4096,
            disks: vec![(7, false), (9, true)],
            tap: Some(("unilith3", [0x52, 0x55, 1, 0x23, 0x45, 0x67])),
            vsock: true,
        }
    }

    #[test]
    fn the_file_has_the_documented_fields_and_no_others() {
        let json: serde_json::Value = serde_json::from_str(&parts().to_json().unwrap()).unwrap();
        let expected = serde_json::json!({
            "boot-source": {
                "kernel_image_path": "/k/kernel",
                "initrd_path": "/i/a \"b\".cpio",
                "boot_args": "status=console -- /bin/x",
            },
            "machine-config": { "vcpu_count": 2, "mem_size_mib": 65 },
            "drives": [
                {
                    "drive_id": "disk0",
                    "path_on_host": "/proc/self/fd/7",
                    "is_root_device": false,
                    "is_read_only": false,
                    "cache_type": "Writeback",
                },
                {
                    "drive_id": "disk1",
                    "path_on_host": "/proc/self/fd/9",
                    "is_root_device": false,
                    "is_read_only": true,
                    "cache_type": "Writeback",
                },
            ],
            "network-interfaces": [
                { "iface_id": "net0", "host_dev_name": "unilith3", "guest_mac": "52:55:01:23:45:67" },
            ],
            "entropy": {},
            "vsock": { "guest_cid": 3, "uds_path": "vsock.sock" },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn a_machine_without_a_network_and_an_overlay_has_neither_device() {
        let bare = Parts { tap: None, vsock: false, disks: Vec::new(), ..parts() };
        let json: serde_json::Value = serde_json::from_str(&bare.to_json().unwrap()).unwrap();
        assert_eq!(json["network-interfaces"], serde_json::json!([]));
        assert_eq!(json["drives"], serde_json::json!([]));
        assert_eq!(json.get("vsock"), None);
    }

    #[test]
    fn a_name_that_json_cannot_hold_is_refused_by_name() {
        let path = Path::new(OsStr::from_bytes(b"/i/\xff.cpio"));
        let error = Parts { initrd: path, ..parts() }.to_json().unwrap_err().to_string();
        assert!(error.contains("no UTF-8") && error.contains("/i/"), "{error}");
    }
}
