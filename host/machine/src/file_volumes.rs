// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Volumes as QEMU can export them: directories only, with whatever is mounted below them. A file gets a second name (a hard link, or a
//! bind mount that QEMU alone sees), alone in a directory of the machine's own: what the machine sees is that file and nothing beside it. As
//! with any bind mount it goes on seeing the file that was there at its start when another one takes its name. A directory whose mounts
//! are not to be followed is mounted in such a directory, too.

use crate::{
    MachineError, private,
    private_mounts::PrivateMounts,
    record::{Mount, Spec, Submounts},
    store::Held,
};
use rustix::io::Errno;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// What the machine is started with, and what QEMU has to mount for it.
pub fn place(machine: &Held) -> Result<(Spec, PrivateMounts), MachineError> {
    let (mut spec, mut mounts) = (machine.spec.clone(), PrivateMounts::default());
    if spec.platform.is_served_files() {
        return Ok((spec, mounts));
    }
    let exports = machine.file_exports();
    // Of a supervisor that was killed.
    match fs::remove_dir_all(&exports) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(MachineError::file("cannot remove", &exports)(e));
        }
        _ => {}
    }
    let make = |n: usize| -> Result<PathBuf, MachineError> {
        let folder = exports.join(n.to_string());
        private::keep_directory(&exports)
            .and_then(|()| private::keep_directory(&folder))
            .map_err(MachineError::file("cannot make", &folder))?;
        Ok(folder)
    };
    for (n, Mount { host, submounts, .. }) in spec.volumes.iter_mut().enumerate() {
        let cannot = |e: Errno| MachineError::file("cannot show a machine", host)(e.into());
        if host.is_file() {
            let folder = make(n)?;
            if let Err(error) = link(host, &folder) {
                if !PrivateMounts::are_allowed() {
                    return Err(error);
                }
                let place = folder.join(api_boot::VOLUME_FILE);
                File::create(&place).map_err(MachineError::file("cannot make", &place))?;
                mounts.bind(host, &place, false).map_err(cannot)?;
            }
            *host = folder;
        } else if *submounts != Submounts::Live && PrivateMounts::are_allowed() {
            let folder = make(n)?;
            mounts.bind(host, &folder, *submounts == Submounts::Then).map_err(cannot)?;
            *host = folder;
        }
    }
    Ok((spec, mounts))
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
        let (placed, mounts) = place(&machine).unwrap();
        assert_eq!(mounts, PrivateMounts::default());
        assert_eq!(placed.volumes[0].host, folder.path());
        let export = &placed.volumes[1].host;
        let names: Vec<_> = fs::read_dir(export).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [api_boot::VOLUME_FILE]);
        // What the machine writes is in the user's file.
        fs::write(export.join(api_boot::VOLUME_FILE), "three").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "three");
        // Again, as after a restart.
        assert_eq!(place(&machine).unwrap().0.volumes[1].host, *export);

        let mut machine = machine;
        machine.spec.platform = Platform::Process;
        assert_eq!(place(&machine).unwrap().0.volumes[1].host, file);
    }

    #[test]
    fn a_file_that_cannot_be_linked_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = link(Path::new("/proc/self/status"), folder.path()).unwrap_err().to_string();
        assert!(error.contains("another file system") && error.contains("--machine process"), "{error}");
    }
}
