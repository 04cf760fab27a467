// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Volumes that are files, for QEMU, which exports directories only. Each file gets a second name (a hard link), alone in
//! a directory of the machine's own: what the machine sees is that file and nothing beside it. As with a bind mount it
//! goes on seeing the file that was there at its start when another one takes its name.

use crate::{
    MachineError, private,
    record::{Mount, Spec},
    store::Held,
};
use rustix::io::Errno;
use std::{fs, io, path::Path};

/// What the machine is started with: its volumes as QEMU can export them.
pub fn place(machine: &Held) -> Result<Spec, MachineError> {
    let mut spec = machine.spec.clone();
    if spec.platform.is_served_files() {
        return Ok(spec);
    }
    let exports = machine.file_exports();
    // Of a supervisor that was killed.
    match fs::remove_dir_all(&exports) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(MachineError::file("cannot remove", &exports)(e));
        }
        _ => {}
    }
    let files = spec.volumes.iter_mut().enumerate().filter(|(_, volume)| volume.host.is_file());
    for (n, Mount { host, .. }) in files {
        let folder = exports.join(n.to_string());
        private::keep_directory(&exports)
            .and_then(|()| private::keep_directory(&folder))
            .map_err(MachineError::file("cannot make", &folder))?;
        link(host, &folder)?;
        *host = folder;
    }
    Ok(spec)
}

fn link(file: &Path, folder: &Path) -> Result<(), MachineError> {
    fs::hard_link(file, folder.join(api_boot::VOLUME_FILE)).map_err(|e| {
        let why = match Errno::from_io_error(&e) {
            Some(Errno::XDEV) => "is on another file system than unilith's own files".into(),
            // /proc/sys/fs/protected_hardlinks.
            Some(Errno::PERM) => "belongs to another user".into(),
            _ => e.to_string(),
        };
        MachineError::FileVolume(format!(
            "-v {}: the file {why}, and QEMU cannot show it to a machine; mount its directory, or use --machine process",
            file.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::Platform,
        store::{Store, tests::spec},
    };

    #[test]
    fn a_file_is_alone_in_its_export_and_the_machines_directory_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings");
        fs::write(&file, "one").unwrap();
        fs::write(folder.path().join("secret"), "two").unwrap();
        let volumes =
            vec![Mount::new(folder.path(), "/data", false), Mount::new(file.clone(), "/etc/x", true)];
        let store = Store::at(folder.path().join("store"));
        let machine = store.create(Spec { volumes, ..spec("aa11", "one") }).unwrap();
        let placed = place(&machine).unwrap();
        assert_eq!(placed.volumes[0].host, folder.path());
        let export = &placed.volumes[1].host;
        let names: Vec<_> = fs::read_dir(export).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [api_boot::VOLUME_FILE]);
        // What the machine writes is in the user's file.
        fs::write(export.join(api_boot::VOLUME_FILE), "three").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "three");
        // Again, as after a restart.
        assert_eq!(place(&machine).unwrap().volumes[1].host, *export);

        let mut machine = machine;
        machine.spec.platform = Platform::Process;
        assert_eq!(place(&machine).unwrap().volumes[1].host, file);
    }

    #[test]
    fn a_file_that_cannot_be_linked_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = link(Path::new("/proc/self/status"), folder.path()).unwrap_err().to_string();
        assert!(error.contains("another file system") && error.contains("--machine process"), "{error}");
    }
}
