// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the answer of a trial depends on.

use crate::qemu;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, env, fs, os::unix::fs::MetadataExt, path::Path};

/// Two that are equal have the same answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// `/proc/sys/kernel/random/boot_id`: a new boot may be of a new kernel.
    boot: String,
    /// The device's number, place, permissions, and when any of these changed: a module that was loaded again, or rights
    /// that were given.
    device: Identity,
    /// What KVM's modules were loaded with (`nested`, `ept`, `npt`), as far as this user may read it.
    parameters: BTreeMap<String, String>,
    /// The processor's name.
    processor: String,
    /// The emulator's file.
    emulator: Identity,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    place: (u64, u64),
    rdev: u64,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    /// All zeros where there is no such file.
    fn of(path: &Path) -> Identity {
        let Ok(file) = fs::metadata(path) else { return Identity::default() };
        Identity {
            place: (file.dev(), file.ino()),
            rdev: file.rdev(),
            mode: file.mode(),
            owner: (file.uid(), file.gid()),
            size: file.size(),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl State {
    /// As it is now.
    pub fn now(device: impl AsRef<Path>) -> State {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let name = |cpuinfo: &str| cpuinfo.lines().find(|l| l.starts_with("model name")).map(str::to_string);
        let path = env::var_os("PATH").unwrap_or_default();
        let emulator = env::split_paths(&path).map(|f| f.join(qemu::QEMU)).find(|f| f.is_file());
        State {
            boot: text("/proc/sys/kernel/random/boot_id").trim().to_string(),
            device: Identity::of(device.as_ref()),
            parameters: parameters(Path::new("/sys/module")),
            processor: name(&text("/proc/cpuinfo")).unwrap_or_default(),
            emulator: emulator.map_or_else(Identity::default, |file| Identity::of(&file)),
        }
    }
}

/// The parameters of KVM's modules.
fn parameters(modules: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for module in ["kvm", "kvm_intel", "kvm_amd"] {
        let Ok(entries) = fs::read_dir(modules.join(module).join("parameters")) else { continue };
        for entry in entries.flatten() {
            let value = fs::read_to_string(entry.path()).unwrap_or_default();
            found.insert(
                format!("{module}.{}", entry.file_name().to_string_lossy()),
                value.trim().to_string(),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn state_is_the_same_until_the_device_changes() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("kvm");
        fs::write(&device, "").unwrap();
        let before = State::now(&device);
        assert_eq!(State::now(&device), before);
        fs::set_permissions(&device, fs::Permissions::from_mode(0o660)).unwrap();
        let allowed = State::now(&device);
        assert_ne!(allowed, before);
        // As modules that are loaded again do: another file with the same rights.
        let other = folder.path().join("new");
        fs::write(&other, "").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o660)).unwrap();
        fs::rename(&other, &device).unwrap();
        assert_ne!(State::now(&device), allowed);
        fs::remove_file(&device).unwrap();
        assert_ne!(State::now(&device), allowed);
    }

    #[test]
    fn state_survives_being_written() {
        let state = State::now("/dev/null");
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }

    #[test]
    fn parameters_of_the_modules_are_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("kvm_amd/parameters");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("npt"), "Y\n").unwrap();
        let found = parameters(folder.path());
        assert_eq!(found.get("kvm_amd.npt").map(String::as_str), Some("Y"));
        assert_eq!(found.len(), 1);
    }
}
