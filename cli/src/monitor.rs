// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Firecracker has not, said before long work begins and never left out silently.

use crate::{
    fault::{Fault, Result},
    prepare::Flags,
};
use unilith_machine::{
    firecracker,
    record::{Accel, KernelKind, Mount, Network},
};
use unilith_network::tap;

fn refused(what: &str, why: &str) -> Fault {
    Fault { code: 2, message: format!("{what} with --machine firecracker: {why}") }
}

/// What the words of the command line ask for, and what this computer lacks.
pub fn check(flags: &Flags, network: &Network) -> Result<()> {
    if flags.kernel == KernelKind::Linux {
        return Err(refused(
            "--kernel linux",
            "our Linux reports how its program ended to QEMU; use --machine microvm or qemu",
        ));
    }
    match flags.accel {
        None | Some(Accel::Kvm) => {}
        Some(Accel::Tcg) => return Err(refused("--accel tcg", "Firecracker runs under KVM only")),
        Some(Accel::Icount) => return Err(refused("--accel icount", "Firecracker runs under KVM only")),
    }
    if *network == Network::User {
        return Err(refused("--network user", "Firecracker has tap devices only: use tap (as root) or none"));
    }
    if let Some(disk) = flags.mount.iter().find(|words| words.contains("type=disk")) {
        return Err(refused(
            &format!("--mount {disk}"),
            "its block device is not there yet; use --machine microvm, qemu or process",
        ));
    }
    if let Some(volume) = flags.volume.first().or_else(|| flags.mount.iter().find(|m| !is_of_memory(m))) {
        return Err(no_volumes(volume));
    }
    if let Some(drive) = flags.drive.first() {
        return Err(refused(
            &format!("--drive {drive}"),
            "its block device is not there yet; use --machine microvm, qemu or process",
        ));
    }
    if flags.health.health_cmd.is_some() {
        return Err(refused(
            "--health-cmd",
            "the check is run through the overlay, which its machines do not have",
        ));
    }
    if let Some(firecracker::Lack { why, remedy }) = firecracker::lack(flags.accel != Some(Accel::Kvm)) {
        let then = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
        return Err(Fault::new(format!("--machine firecracker does not work here: {why}{then}")));
    }
    if *network == Network::None {
        return Ok(());
    }
    tap::allowed().map_err(|e| {
        Fault::new(format!(
            "--machine firecracker: this user may make no tap device ({e}), and Firecracker has no other network: run it as root, or \
             with --network none"
        ))
    })
}

fn is_of_memory(words: &str) -> bool {
    words.split(',').any(|word| word == "type=tmpfs")
}

fn no_volumes(volume: &str) -> Fault {
    refused(
        &format!("-v {volume}"),
        "Firecracker shares no directories of this host (it has neither 9p nor virtio-fs); use --machine microvm or process",
    )
}

/// The same of volumes that the project file names.
pub fn check_volumes(volumes: &[Mount]) -> Result<()> {
    match volumes.first() {
        Some(volume) => Err(no_volumes(&format!("{}:{}", volume.host.display(), volume.guest))),
        None => Ok(()),
    }
}

/// The overlay's line is a port of a console device, which Firecracker has not. Said unless the user has left it out.
pub fn say_without_overlay(overlay: &mut bool) {
    if std::mem::take(overlay) {
        eprintln!(
            "unilith: this machine has no overlay (exec, attach, cp, trace, top, --health-cmd): Firecracker has no console device for it"
        );
    }
}
