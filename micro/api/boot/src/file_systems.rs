// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted before the program runs.

use alloc::{
    format,
    string::{String, ToString},
};

/// The name of the only file in the export of a volume that is a file.
pub const VOLUME_FILE: &str = "file";

/// A host directory mounted over 9p, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The 9p mount tag of the virtio device.
    pub tag: String,
    /// Absolute path in the machine.
    pub path: String,
    pub read_only: bool,
    /// The export is a directory, and [`VOLUME_FILE`] in it is what is mounted: QEMU exports directories only.
    pub file: bool,
}

/// A disk with a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its place among the machine's block devices.
    pub index: u8,
    /// Absolute path in the machine.
    pub path: String,
    pub read_only: bool,
}

/// A file system in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Absolute path in the machine.
    pub path: String,
    /// Bytes it may hold; 0: half of the memory.
    pub size: u64,
    /// Files and directories that it may have; 0: one for each page of its size.
    pub inodes: u64,
    /// Permissions of its root.
    pub mode: u32,
    /// Programs on it may be executed.
    pub exec: bool,
}

impl Tmpfs {
    /// `PATH:SIZE[/INODES]:MODE[:exec]`.
    pub fn show(&self) -> String {
        let exec = if self.exec { ":exec" } else { "" };
        let inodes = if self.inodes == 0 { String::new() } else { format!("/{}", self.inodes) };
        format!("{}:{}{inodes}:{:o}{exec}", self.path, self.size, self.mode)
    }

    /// What [`Tmpfs::show`] wrote.
    pub fn parse(text: &str) -> Option<Tmpfs> {
        let (rest, exec) = text.strip_suffix(":exec").map_or((text, false), |rest| (rest, true));
        let mut parts = rest.rsplitn(3, ':');
        let mode = u32::from_str_radix(parts.next()?, 8).ok().filter(|mode| *mode <= 0o7777)?;
        let size = parts.next()?;
        let (size, inodes) = size.split_once('/').unwrap_or((size, "0"));
        let path = parts.next().filter(|path| path.starts_with('/'))?.to_string();
        Some(Tmpfs { path, size: size.parse().ok()?, inodes: inodes.parse().ok()?, mode, exec })
    }
}
