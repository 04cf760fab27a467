// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts that a monitor sees and nobody else: files and directories of the host's as its machine is to see them. They are in a mount
//! namespace that ends with the monitor, so nothing of them is left however it ends.
//!
//! The unsafe code here is one unshare(2).

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx},
    io::{Errno, Result},
    mount::{MountPropagationFlags, mount_bind, mount_bind_recursive, mount_change},
    thread::{CapabilitySet, capabilities},
};
use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path};

/// A file or directory of the host's in another place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bind {
    from: CString,
    to: CString,
    /// With what is mounted below it at the time, which changes no more.
    is_recursive: bool,
}

/// What is mounted between fork and exec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateMounts(Vec<Bind>);

impl PrivateMounts {
    pub fn bind(&mut self, from: &Path, to: &Path, is_recursive: bool) -> Result<()> {
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL);
        self.0.push(Bind { from: text(from)?, to: text(to)?, is_recursive });
        Ok(())
    }

    /// Whether this process may make them. Below a root that is no mount (chroot(2)) nobody can keep mounts from others.
    pub fn are_allowed() -> bool {
        let may = capabilities(None).is_ok_and(|mine| mine.effective.contains(CapabilitySet::SYS_ADMIN));
        let about = statx(CWD, c"/", AtFlags::empty(), StatxFlags::BASIC_STATS);
        // Kernels before 5.8 do not tell.
        let is_mount = about.map_or(true, |about| {
            !about.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
                || about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        });
        may && is_mount
    }

    /// Makes them, in a mount namespace of the calling process's own. Makes system calls only, so that it may be called between fork
    /// and exec.
    pub fn make(&self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        // SAFETY: gives this process, which has one thread, mounts of its own; nothing that it has open changes.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM));
        }
        // What is mounted on the host later is seen; nothing of this reaches the host.
        mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        for Bind { from, to, is_recursive } in &self.0 {
            match is_recursive {
                true => mount_bind_recursive(from.as_c_str(), to.as_c_str())?,
                false => mount_bind(from.as_c_str(), to.as_c_str())?,
            }
            mount_change(to.as_c_str(), MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::process::CommandExt, process::Command};

    #[test]
    fn the_process_sees_a_file_of_another_file_system_and_the_host_does_not() {
        if !PrivateMounts::are_allowed() {
            eprintln!("skipped: only root mounts");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("place");
        fs::write(&place, "").unwrap();
        let mut mounts = PrivateMounts::default();
        mounts.bind(Path::new("/proc/version"), &place, false).unwrap();
        let mut command = Command::new("cat");
        command.arg(&place);
        // SAFETY: `make` makes system calls only.
        unsafe { command.pre_exec(move || Ok(mounts.make()?)) };
        let seen = command.output().unwrap();
        assert_eq!(seen.stdout, fs::read("/proc/version").unwrap());
        assert_eq!(fs::read_to_string(&place).unwrap(), "", "nothing is mounted on the host");
    }
}
