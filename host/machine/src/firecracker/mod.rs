// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Firecracker as the monitor of a machine: where its binary is, and what it lacks here.
//!
//! - [`boot`]: what the kernel is told;
//! - [`config`]: what it is told when it starts, its `--config-file`;
//! - [`api`]: what it is asked while it runs, over its API socket;
//! - [`streams`]: the machine's console and status lines, which share Firecracker's one serial port.
//!
//! Firecracker (1.12 or later) enters the kernel by PVH, names its virtio-mmio devices on the kernel's command line, and takes a
//! reset by the keyboard controller for the end of the machine. It has no user-mode network and no 9p.

pub mod api;
pub mod boot;
pub mod config;
pub mod streams;

use crate::accel;
use std::{
    ffi::OsString,
    process::{Command, Stdio},
};

/// The program's name.
const NAME: &str = "firecracker";
/// Names another binary.
const VARIABLE: &str = "UNILITH_FIRECRACKER";
/// The first version that boots by PVH.
const LEAST: (u32, u32) = (1, 12);
/// Its API socket in the machine's directory, where Firecracker is started.
pub const API_SOCKET: &str = "firecracker.sock";

/// The binary.
pub fn program() -> OsString {
    std::env::var_os(VARIABLE).filter(|given| !given.is_empty()).unwrap_or_else(|| NAME.into())
}

/// What stands in the way of a machine of this kind, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub why: String,
    pub remedy: String,
}

/// The version of the binary, as it tells it.
pub fn version() -> Result<String, Lack> {
    let program = program();
    let shown = program.to_string_lossy();
    let remedy = || {
        format!(
            "put the binary of a release of Firecracker (or of `cargo build --release --bin firecracker` in its sources) into PATH, \
             or name it in {VARIABLE}"
        )
    };
    let output = Command::new(&program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Lack { why: format!("there is no {shown}"), remedy: remedy() },
        _ => Lack { why: format!("{shown} cannot be run: {e}"), remedy: remedy() },
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("Firecracker v"));
    let Some((line, found)) = line.and_then(|line| Some((line, number(line)?))) else {
        return Err(Lack { why: format!("{shown} does not say that it is Firecracker"), remedy: remedy() });
    };
    if found < LEAST {
        let why =
            format!("{line} is too old: {}.{} is the first that starts kernels by PVH", LEAST.0, LEAST.1);
        return Err(Lack { why, remedy: remedy() });
    }
    Ok(line.to_string())
}

/// The first two parts of the version in `Firecracker v1.16.1`.
fn number(line: &str) -> Option<(u32, u32)> {
    let mut parts = line.strip_prefix("Firecracker v")?.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What is missing here for Firecracker's machines: the binary, or KVM, without which it runs none. `try_it`: whether KVM is
/// tried out, where there is an emulator to try it with.
pub fn lack(try_it: bool) -> Option<Lack> {
    if let Err(lack) = version() {
        return Some(lack);
    }
    lack_of_kvm("Firecracker", try_it)
}

/// What keeps a monitor from running machines under KVM.
pub fn lack_of_kvm(monitor: &str, try_it: bool) -> Option<Lack> {
    let obstacle = accel::obstacle().or_else(|| {
        let probe = (try_it && accel::can_be_tried()).then(accel::probe)?;
        (!probe.works).then_some(probe)
    })?;
    let remedy = obstacle.remedy.unwrap_or_default();
    Some(Lack { why: format!("{monitor} needs KVM, but {}", obstacle.why), remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_whatever_stands_behind_it() {
        assert_eq!(number("Firecracker v1.16.1"), Some((1, 16)));
        assert_eq!(number("Firecracker v1.16.0-dev"), Some((1, 16)));
        assert_eq!(number("Firecracker v2.0"), Some((2, 0)));
        for text in ["Firecracker v", "Firecracker vx.1", "Firecracker v1", "QEMU 7.2", ""] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
