// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Firecracker and Cloud Hypervisor have not, said before long work begins and never left out silently.

use crate::{
    fault::{Fault, Result},
    prepare::Flags,
};
use std::collections::BTreeMap;
use unilith_machine::{
    cloud_hypervisor, firecracker,
    record::{Accel, KernelKind, Mount, Network, Platform},
};
use unilith_network::tap;

/// The word of `--machine`.
fn word(platform: Platform) -> &'static str {
    match platform {
        Platform::CloudHypervisor => "cloud-hypervisor",
        _ => "firecracker",
    }
}

fn refused(platform: Platform, what: &str, why: &str) -> Fault {
    Fault { code: 2, message: format!("{what} with --machine {}: {why}", word(platform)) }
}

/// What the words of the command line ask for, and what this computer lacks.
pub fn check(platform: Platform, flags: &Flags, network: &Network) -> Result<()> {
    let (monitor, machine) = (platform.monitor(), word(platform));
    let refused = |what: &str, why: &str| Err(refused(platform, what, why));
    if flags.kernel == KernelKind::Linux {
        return refused(
            "--kernel linux",
            "our Linux reports how its program ended to QEMU; use --machine microvm or qemu",
        );
    }
    let accel = match flags.accel {
        None | Some(Accel::Kvm) => None,
        Some(Accel::Tcg) => Some("--accel tcg"),
        Some(Accel::Icount) => Some("--accel icount"),
    };
    if let Some(accel) = accel {
        return refused(accel, &format!("{monitor} runs under KVM only"));
    }
    if *network == Network::User {
        let why = format!("{monitor} has tap devices only here: use tap (as root) or none");
        return refused("--network user", &why);
    }
    let try_it = flags.accel != Some(Accel::Kvm);
    let lack = match platform {
        Platform::CloudHypervisor => cloud_hypervisor::lack(try_it),
        _ => firecracker::lack(try_it),
    };
    if let Some(firecracker::Lack { why, remedy }) = lack {
        let then = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
        return Err(Fault::new(format!("--machine {machine} does not work here: {why}{then}")));
    }
    if *network == Network::None {
        return Ok(());
    }
    tap::allowed().map_err(|e| {
        Fault::new(format!(
            "--machine {machine}: this user may make no tap device ({e}), and {monitor} has no other network here: run it as root, or \
             with --network none"
        ))
    })
}

/// The same of volumes, also those that the project file names.
pub fn check_volumes(platform: Platform, volumes: &[Mount], set: &BTreeMap<String, String>) -> Result<()> {
    let is_left_out = set.get("vsock").is_some_and(|choice| choice == "off");
    match volumes.first().filter(|_| is_left_out) {
        None => Ok(()),
        Some(volume) => Err(refused(
            platform,
            &format!("-v {}:{}", volume.host.display(), volume.guest),
            "volumes come over the socket device, and --set vsock=off leaves its driver out",
        )),
    }
}

/// Whether the machine has an overlay, whose line is on the socket device here. Said unless the user has left it out.
pub fn has_overlay(platform: Platform, wanted: bool, set: &BTreeMap<String, String>) -> bool {
    let is_left_out = set.get("vsock").is_some_and(|choice| choice == "off");
    if wanted && is_left_out {
        let monitor = platform.monitor();
        eprintln!(
            "unilith: this machine has no overlay (exec, attach, cp, trace, top, --health-cmd): its line is on {monitor}'s socket \
             device, and --set vsock=off leaves the driver out"
        );
    }
    wanted && !is_left_out
}
