// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a container's machine is, and its kernel: by annotations, by the administrator's file, else what works on this computer.

use crate::{
    fault::{Fault, Result},
    kernel,
    progress::Progress,
};
use std::collections::BTreeMap;
use unilith_container::{
    administrator::{Administrator, Choice},
    bundle::Container,
};
use unilith_machine::{
    accel,
    record::{Accel, Platform},
    support,
};

/// What of a limit of memory the supervisor of a process machine needs beside it.
const BESIDE_PROCESS: u64 = 12 << 20;
/// The same with QEMU, whose own memory is in the container's control group, under KVM and with the code that the emulator makes.
const BESIDE_KVM: u64 = 64 << 20;
const BESIDE_EMULATOR: u64 = 160 << 20;
/// The least that the kernel and a small program can do with.
const LEAST: u64 = 16 << 20;

/// What a container's machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    pub platform: Platform,
    /// What a monitor runs it with.
    pub accel: Option<Accel>,
    features: Vec<&'static str>,
}

impl Choices {
    /// Reads the choices of a container that has a machine of its own, and tells it whether that is a virtual one.
    pub fn of(container: &mut Container, administrator: &Administrator) -> Result<Choices> {
        let platform = platform(container, administrator)?;
        check_kernel(container, administrator)?;
        container.is_virtual = !platform.is_process();
        let accel = (!platform.is_process()).then(|| accel::probe().accel());
        Ok(Choices { platform, accel, features: features(container, administrator)? })
    }

    /// The kernel. `create` asks for it first, outside of the container's limits: one that is not there yet is built by a compiler.
    pub fn kernel(&self) -> Result<kernel::Kernel> {
        kernel::micro(self.platform, &self.features, &Progress::new())
    }
}

/// Checks the choices of a container that is in the machine of another one, which can be nothing else.
pub fn check_member(container: &Container, administrator: &Administrator) -> Result<()> {
    if let Some(other) = container.choice(Choice::Machine.key()).filter(|word| *word != "process") {
        return Err(Fault::new(format!(
            "annotation unilith.machine={other}: the container is in the machine of its pod, or of the container whose network it has, \
             and that is a process; a container of a pod is a machine of its own with the pod's annotation dev.unilith.pod: separate"
        )));
    }
    let hooks = container.start_hooks().next().map(|_| "hooks.startContainer");
    if let Some(field) = hooks.or(container.priority.field()) {
        return Err(Fault::new(format!(
            "{field}: the container is in the machine of its pod, or of the container whose network it has, which is not its own; with the \
             pod's annotation dev.unilith.pod: separate it has one"
        )));
    }
    check_kernel(container, administrator)?;
    features(container, administrator).map(drop)
}

fn platform(container: &Container, administrator: &Administrator) -> Result<Platform> {
    let own = container.choice(Choice::Machine.key()).is_some();
    let word = administrator.choice(container, Choice::Machine)?;
    // Containers join a pod's machine, which only one that is a process lets them: what the administrator prefers for others is not for it.
    let word = if container.is_sandbox && !own { Some("process") } else { word };
    let platform = match word {
        None => usual(),
        Some("auto") => quickest(),
        Some("process") => Platform::Process,
        Some("microvm") => Platform::Microvm,
        Some("qemu") => Platform::Q35,
        Some(other @ ("firecracker" | "cloud-hypervisor")) => {
            return Err(Fault::new(format!(
                "annotation unilith.machine={other}: this monitor takes neither the files nor the network of a container; choose \
                 microvm or qemu"
            )));
        }
        Some(other) => {
            return Err(Fault::new(format!(
                "annotation unilith.machine={other}: containers are machines of the kinds process, microvm and qemu, or what is the \
                 quickest here with auto"
            )));
        }
    };
    if container.is_sandbox && !platform.is_process() {
        return Err(Fault::new(
            "annotation unilith.machine: the machine of a pod is a process, which its containers join; with the pod's annotation \
             dev.unilith.pod: separate each of its containers can be a virtual machine",
        ));
    }
    match support::lacks().first() {
        Some(lack) if platform.is_process() => {
            Err(Fault::new(format!("the container is to be a machine that is a process, but {lack}")))
        }
        _ => Ok(platform),
    }
}

/// A process, which every container can be, and where that does not work a virtual machine.
fn usual() -> Platform {
    if support::lacks().is_empty() { Platform::Process } else { Platform::Microvm }
}

/// As `unilith run` has it: a virtual machine where KVM works.
fn quickest() -> Platform {
    if accel::probe().works { Platform::Microvm } else { usual() }
}

fn check_kernel(container: &Container, administrator: &Administrator) -> Result<()> {
    if let Some(other) = administrator.choice(container, Choice::Kernel)?.filter(|word| *word != "micro") {
        return Err(Fault::new(format!(
            "annotation unilith.kernel={other}: the kernel of containers is micro; Linux holds neither their capabilities nor their \
             filters of system calls yet"
        )));
    }
    match administrator.choice(container, Choice::Ukl)?.filter(|word| !word.is_empty()) {
        Some(_) => Err(Fault::new(
            "annotation unilith.ukl: containers have no such choice, for their kernel is micro",
        )),
        None => Ok(()),
    }
}

/// What its kernel is made of: `unilith.set` has choices as `--set` takes them, with commas between them.
fn features(container: &Container, administrator: &Administrator) -> Result<Vec<&'static str>> {
    let choices = administrator.choice(container, Choice::Set)?.into_iter().flat_map(|text| text.split(','));
    let trimmed = |(key, value): (String, String)| (key.trim().to_string(), value.trim().to_string());
    let set = choices.map(|text| kernel::pair(text).map(trimmed)).collect::<Result<BTreeMap<_, _>>>();
    set.and_then(|set| kernel::container_features(&set))
        .map_err(|fault| Fault::new(format!("annotation unilith.set: {}", fault.message)))
}

/// The memory of a machine that is within a limit with its supervisor and its monitor; `None`: the limit has no room for them.
pub fn within(limit: u64, platform: Platform, accel: Option<Accel>) -> Option<u64> {
    let beside = match accel {
        _ if platform.is_process() => return Some(limit.saturating_sub(BESIDE_PROCESS).max(LEAST)),
        Some(Accel::Kvm) => BESIDE_KVM,
        _ => BESIDE_EMULATOR,
    };
    limit.checked_sub(beside).filter(|rest| *rest >= LEAST)
}

/// What is said of a limit that has no room for a virtual machine.
pub fn too_small(limit: u64, accel: Option<Accel>) -> Fault {
    let beside = if accel == Some(Accel::Kvm) { BESIDE_KVM } else { BESIDE_EMULATOR };
    Fault::new(format!(
        "a limit of {} MiB is too little for a virtual machine: QEMU itself needs {} of them; give it {} MiB, or let it be a process \
         (annotation unilith.machine=process)",
        limit >> 20,
        beside >> 20,
        (beside + LEAST) >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_room_for_what_is_beside_the_machine() {
        const MB: u64 = 1 << 20;
        assert_eq!(within(128 * MB, Platform::Process, None), Some(116 * MB));
        assert_eq!(within(6 * MB, Platform::Process, None), Some(LEAST));
        assert_eq!(within(128 * MB, Platform::Microvm, Some(Accel::Kvm)), Some(64 * MB));
        assert_eq!(within(64 * MB, Platform::Microvm, Some(Accel::Kvm)), None);
        let said = too_small(64 * MB, Some(Accel::Kvm)).message;
        assert!(said.contains("64 MiB") && said.contains("80 MiB"), "{said}");
    }
}
