// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network namespace a container belongs to. Of the other namespaces a machine has no use: it has processes, mounts,
//! users and a host name of its own.
//!
//! The unsafe code here is one unshare(2).

use crate::{ContainerError, Result, bundle::Network};
use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{io, os::fd::AsFd, path::Path};

const OWN: &str = "/proc/thread-self/ns/net";

/// Puts the calling thread, and what it starts afterwards, into the namespace. To be called before other threads are there.
pub fn enter(network: &Network) -> Result<()> {
    let failed = |e| ContainerError::Namespace("network", e);
    match network {
        Network::Host => Ok(()),
        Network::New => {
            // SAFETY: gives this thread a network namespace of its own; nothing that it has open changes.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(failed(io::Error::last_os_error())),
            }
        }
        Network::At(path) => {
            let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let entered =
                opened.and_then(|fd| move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network)));
            entered.map_err(|e| failed(io::Error::other(format!("{}: {e}", path.display()))))
        }
    }
}

/// Whether this process is the computer's superuser, and not that of a user namespace within it alone (user_namespaces(7)).
pub fn is_superuser() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && maps_all(&map)
}

/// `map`: as /proc/PID/uid_map. Every number is itself in the first namespace.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether the file is the calling thread's own network namespace: engines name it for `--network host`.
pub fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    number(path).is_some_and(|theirs| number(Path::new(OWN)) == Some(theirs))
}

/// Whether the file is the calling process's own user namespace.
pub fn is_own_users(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    number(path).is_some_and(|theirs| number(Path::new("/proc/self/ns/user")) == Some(theirs))
}

/// That of a process.
pub fn number_of(pid: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{pid}/ns/net")).map(|m| m.ino()).ok()
}

/// Tells this thread's network namespace from all others that exist.
pub fn number() -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let namespace = std::fs::metadata(OWN);
    namespace.map(|m| m.ino()).map_err(|e| ContainerError::Namespace("network", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_namespace_is_known_by_its_map() {
        assert!(maps_all("         0          0 4294967295\n"));
        for other in ["", "0 1000 1\n", "0 0 65536\n", "0 1000 1\n1 100000 65536\n"] {
            assert!(!maps_all(other), "{other:?}");
        }
    }
}
