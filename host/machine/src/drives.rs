// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of the host that are block devices of a machine: opened and locked by the process that starts the machine, which hands over
//! the descriptors. Whoever keeps the [`Drives`] keeps the locks.

use crate::{
    MachineError,
    record::{Drive, Spec},
};
use std::{
    fs::{File, TryLockError},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
};

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// The open files, in the order of the machine's devices.
#[derive(Debug, Default)]
pub struct Drives(Vec<(File, bool)>);

impl Drives {
    /// Opens and locks the files of a machine. A file that is written to belongs to one machine at a time; one that is read is
    /// shared by machines that read it.
    pub fn open(spec: &Spec) -> Result<Drives, MachineError> {
        let open = |drive: &Drive| {
            let file = open(drive)?;
            let lock = if drive.read_only { File::try_lock_shared } else { File::try_lock };
            match lock(&file) {
                Ok(()) => Ok((file, drive.read_only)),
                Err(TryLockError::WouldBlock) => Err(refused(
                    drive,
                    match drive.guest {
                        None => "another machine has it; stop that one, or give every machine `:ro`",
                        Some(_) => {
                            "another machine has it; stop that one, or mount it with `readonly` in every machine"
                        }
                    },
                )),
                Err(TryLockError::Error(e)) => Err(refused(drive, &format!("it cannot be locked: {e}"))),
            }
        };
        spec.drives.iter().map(open).collect::<Result<_, _>>().map(Drives)
    }

    /// The files and whether they are read only.
    pub fn iter(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.0.iter().map(|(file, read_only)| (file.as_fd(), *read_only))
    }
}

/// Whether a machine can have a file as its device: what is wrong is said before long work begins.
pub fn check(drive: &Drive) -> Result<(), MachineError> {
    open(drive).map(drop)
}

fn refused(drive: &Drive, why: &str) -> MachineError {
    let what = if drive.guest.is_some() { "disk" } else { "--drive" };
    MachineError::Drive(format!("{what} {}: {why}", drive.file.display()))
}

fn open(drive: &Drive) -> Result<File, MachineError> {
    let path = &drive.file;
    let wrong = |why: &str| Err(refused(drive, why));
    // Before it is opened: to open a device or a pipe may do something, or never return.
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            return wrong(
                "it is a directory; a disk is a file, and a directory of this host is a volume (-v)",
            );
        }
        Ok(found) if found.file_type().is_block_device() => {
            return wrong("it is a device of this host; a disk is a regular file");
        }
        Ok(found) if !found.is_file() => return wrong("it is no regular file"),
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return wrong("it does not exist; make it first: truncate -s 64M FILE");
        }
        Err(e) => return wrong(&e.to_string()),
    }
    let file = match File::options().read(true).write(!drive.read_only).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && !drive.read_only => {
            return wrong("you may not write to it; add :ro (of --mount, readonly) if it is only read");
        }
        Err(e) => return wrong(&e.to_string()),
    };
    match file.metadata().map(|found| found.size()) {
        Ok(0) => wrong("it is empty; a disk has at least one sector of 512 bytes: truncate -s 64M FILE"),
        Ok(size) if !size.is_multiple_of(SECTOR) => {
            wrong(&format!("its {size} bytes are not a multiple of a sector's 512"))
        }
        Ok(_) => Ok(file),
        Err(e) => wrong(&e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::spec;
    use std::fs;

    fn says(drive: &Drive) -> String {
        check(drive).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_a_disk_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let drive = |name: &str| Drive { file: folder.path().join(name), read_only: false, guest: None };
        fs::write(drive("empty").file, "").unwrap();
        fs::write(drive("odd").file, [0; 513]).unwrap();
        fs::write(drive("disk").file, [0; 1024]).unwrap();
        for (drive, reason) in [
            (drive("missing"), "does not exist"),
            (drive("empty"), "empty"),
            (drive("odd"), "513 bytes are not a multiple"),
            (drive("."), "a directory"),
            (Drive { file: "/dev/null".into(), read_only: true, guest: None }, "no regular file"),
        ] {
            let text = says(&drive);
            assert!(text.starts_with("--drive ") && text.contains(reason), "{text}");
        }
        check(&drive("disk")).unwrap();
    }

    #[test]
    fn a_disk_has_one_writer_or_any_number_of_readers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        fs::write(&file, [0; 512]).unwrap();
        let with = |read_only| Spec {
            drives: vec![Drive { file: file.clone(), read_only, guest: None }],
            ..spec("aa11", "one")
        };
        let writer = Drives::open(&with(false)).unwrap();
        for read_only in [false, true] {
            let error = Drives::open(&with(read_only)).unwrap_err().to_string();
            assert!(error.contains("another machine has it"), "{error}");
        }
        drop(writer);
        let readers = [Drives::open(&with(true)).unwrap(), Drives::open(&with(true)).unwrap()];
        assert!(Drives::open(&with(false)).is_err());
        drop(readers);
        assert_eq!(Drives::open(&with(false)).unwrap().iter().count(), 1);
    }
}
