// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What QEMU may do besides what this user may: nothing, or where root runs it what its machine's volumes and ports need.
//!
//! QEMU acts for a machine that is not trusted. It gets no program to run and no more privileges (its own seccomp filter,
//! [`SANDBOX`]), and of root's capabilities those only that [`needed`] names.

use crate::{qemu::Link, record::Spec};
use rustix::{
    io::{Errno, Result},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};
use std::{
    fs,
    os::{fd::BorrowedFd, unix::fs::MetadataExt},
    path::Path,
};

/// QEMU's filter of its own system calls: no old ones, no change of user, no other programs, no priorities.
pub const SANDBOX: [&str; 2] =
    ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"];

/// Capabilities of the file server of a volume: its files belong to whom the machine's program says, as with a bind mount.
const OF_VOLUMES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);
/// Ports below this one are the host's own (`net.ipv4.ip_unprivileged_port_start`, by default).
const FIRST_FREE_PORT: u16 = 1024;

/// The capabilities that QEMU needs for a machine, should this process have them. `files`: what it opens besides volumes.
pub fn needed<'a>(spec: &Spec, link: &Link, files: impl IntoIterator<Item = &'a Path>) -> CapabilitySet {
    let mut needed = CapabilitySet::empty();
    // Volumes of the others are not served by their monitor.
    let volumes = spec.volumes.iter().filter(|_| !spec.platform.is_served_files());
    for volume in volumes {
        needed |= if volume.read_only { CapabilitySet::DAC_READ_SEARCH } else { OF_VOLUMES };
    }
    if let Link::User(ports) = link
        && ports.iter().any(|port| port.host < FIRST_FREE_PORT)
    {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    // Root that works in a user's directory, which that user has closed.
    if !files.into_iter().all(is_open_to_root) {
        needed |= CapabilitySet::DAC_READ_SEARCH;
    }
    needed
}

/// What of root's capabilities it takes to open a file of another user anew by its descriptor.
pub fn to_open_anew(file: BorrowedFd<'_>, read_only: bool) -> Result<CapabilitySet> {
    let found = rustix::fs::fstat(file)?;
    let bits = match (found.st_uid, found.st_gid) {
        (0, _) => found.st_mode >> 6,
        (_, 0) => found.st_mode >> 3,
        _ => found.st_mode,
    };
    let (wanted, capability) = match read_only {
        true => (0o4, CapabilitySet::DAC_READ_SEARCH),
        false => (0o6, CapabilitySet::DAC_OVERRIDE),
    };
    Ok(if bits & wanted == wanted { CapabilitySet::empty() } else { capability })
}

/// Whether root reaches a file without its capabilities.
fn is_open_to_root(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    path.ancestors().all(|part| {
        let wanted = if part.is_dir() { 0o1 } else { 0o4 };
        fs::metadata(part).is_ok_and(|found| {
            let bits = if found.uid() == 0 {
                found.mode() >> 6
            } else if found.gid() == 0 {
                found.mode() >> 3
            } else {
                found.mode()
            };
            bits & wanted != 0
        })
    })
}

/// Gives up all capabilities but these, for this process and what it becomes. Makes system calls only, so that it may be
/// called between fork and exec.
pub fn keep_only(kept: CapabilitySet) -> Result<()> {
    let mine = capabilities(None)?;
    for bit in CapabilitySet::all().difference(kept).iter() {
        match remove_capability_from_bounding_set(bit) {
            // An older kernel does not have it; without CAP_SETPCAP what follows is enough, for nothing is gained any more.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    let kept = mine.permitted & kept;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    set_no_new_privs(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::Mount, store::tests::spec};
    use unilith_network::ports::{Protocol, Publish};

    #[test]
    fn a_machine_without_volumes_and_ports_needs_nothing() {
        let mut spec = spec("aa11", "one");
        let files = [Path::new("/usr/bin")];
        assert_eq!(needed(&spec, &Link::Tap(3), files), CapabilitySet::empty());
        spec.volumes = vec![Mount::new("/data", "/data", true)];
        assert_eq!(needed(&spec, &Link::Tap(3), files), CapabilitySet::DAC_READ_SEARCH);
        spec.volumes[0].read_only = false;
        assert_eq!(needed(&spec, &Link::Tap(3), files), OF_VOLUMES);
        let port = |host| Publish { address: [0; 4].into(), host, guest: 80, protocol: Protocol::Tcp };
        assert_eq!(needed(&spec, &Link::User(vec![port(8080)]), files), OF_VOLUMES);
        spec.volumes.clear();
        assert_eq!(needed(&spec, &Link::User(vec![port(80)]), files), CapabilitySet::NET_BIND_SERVICE);
    }

    #[test]
    fn a_disk_that_its_user_closed_takes_a_capability_to_be_opened_anew() {
        use std::os::{fd::AsFd, unix::fs::PermissionsExt};
        let file = tempfile::tempfile().unwrap();
        for (mode, for_reading, for_both) in [
            (0o666, CapabilitySet::empty(), CapabilitySet::empty()),
            (0o444, CapabilitySet::empty(), CapabilitySet::DAC_OVERRIDE),
            (0, CapabilitySet::DAC_READ_SEARCH, CapabilitySet::DAC_OVERRIDE),
        ] {
            file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
            let needed = |read_only| to_open_anew(file.as_fd(), read_only).unwrap();
            assert_eq!((needed(true), needed(false)), (for_reading, for_both), "{mode:o}");
        }
    }

    #[test]
    fn a_file_in_a_closed_directory_of_another_user_is_seen() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        if chown(folder.path(), Some(1000), Some(1000)).is_err() {
            eprintln!("skipped: only root makes files of others");
            return;
        }
        for (mode, open) in [(0o700, false), (0o755, true)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_root(&file), open, "{mode:o}");
        }
    }
}
