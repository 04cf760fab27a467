// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the host a container sees, where, and whose it is.

use crate::fault::{Fault, Result, file};
use rustix::process::umask;
use std::{
    fs,
    net::Ipv4Addr,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, chown},
    },
    path::{Path, PathBuf},
    process::Command,
};
use unilith_container::{
    beneath::Root,
    bundle::{self, Container},
    mounted,
    record::Containers,
    scratch::Scratch,
    users::{self, Users},
};
use unilith_machine::record::{Memory, Mount, Submounts};
use unilith_network::{dns, interface::Interface};
use unilith_ninep::ids::{Extent, Ids, Map};

/// The file that says whom programs ask for names (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The host's directories and files that the container sees, its root first, and the name server it asks. Their mount points are made.
pub fn places(
    all: &Containers,
    folder: &Path,
    container: &Container,
    root: &Root,
) -> Result<(Vec<Mount>, Option<Names>)> {
    let mut volumes = vec![Mount {
        host: container.root.clone(),
        guest: "/".into(),
        read_only: container.read_only,
        writable_below: false,
        submounts: Submounts::Live,
        ids: None,
    }];
    // What is made for it is its root's.
    let owner = ids(all, container)?.and_then(|ids| Some((ids.users.to_host(0)?, ids.groups.to_host(0)?)));
    // An image that has one elsewhere would have its own files in place of the kernel's, and none of them masked.
    if let Some(kernels) = ["/proc", "/sys"].into_iter().find(|path| root.is_link(Path::new(path))) {
        return Err(Fault::new(format!(
            "{kernels} of the image is a link: it must be mounted on ordinary directory"
        )));
    }
    // What the machine's kernel mounts, and what it makes where it may.
    let own = ["/proc", "/sys", "/dev", "/run", "/tmp", "/etc"];
    for own in if container.read_only { &own[..] } else { &own[..3] } {
        root.make_mount_point(Path::new(own), true, owner)?;
    }
    root.make_mount_point(&container.working, true, owner)?;
    // A mask of the engine's must not take rights away from what others are to use.
    umask(rustix::fs::Mode::empty());
    let scratch = folder.join("scratch");
    let mut places: Vec<bundle::Bind> = Vec::new();
    for place in container.scratch.iter().filter(|place| place.is_in_memory()) {
        if !place.destination.starts_with("/dev") {
            root.make_mount_point(&place.destination, true, owner)?;
        }
    }
    for (n, place) in container.scratch.iter().enumerate().filter(|(_, place)| !place.is_in_memory()) {
        let source = scratch.join(n.to_string());
        let made = fs::create_dir_all(&scratch)
            .and_then(|()| fs::DirBuilder::new().mode(place.mode).create(&source));
        made.map_err(file("make", &source))?;
        if let Some((user, group)) = owner {
            chown(&source, Some(user), Some(group)).map_err(file("give away", &source))?;
        }
        if place.copies_up
            && let Some(folder) = root.folder(&place.destination)
        {
            copy_up(&folder, &source)?;
        }
        let destination = place.destination.clone();
        places.push(bundle::Bind {
            source,
            destination,
            read_only: place.read_only,
            keeps_below: false,
            is_recursive: false,
            is_private: false,
            is_directory: true,
        });
    }
    let names = Names::of(all, folder, container)?;
    // In the order of their depth, so that none hides another.
    places.extend(container.binds.iter().cloned());
    if let Some(names) = &names {
        let asked = places.iter_mut().filter(|place| place.destination == Path::new(RESOLV_CONF));
        asked.for_each(|place| place.source = names.resolv_conf.clone());
    }
    places.sort_by_key(|place| place.destination.components().count());
    for place in places.iter().filter(|place| !place.destination.starts_with("/dev")) {
        root.make_mount_point(&place.destination, place.is_directory, owner)?;
    }
    let memory = container.scratch.iter().filter(|place| place.is_in_memory());
    make_in_covers(&places, &memory.map(|place| place.destination.as_path()).collect::<Vec<_>>(), owner)?;
    for place in places {
        let guest = place.destination.to_string_lossy().into_owned();
        let writable_below =
            place.read_only && place.keeps_below && mounted::is_writable_below(&place.source)?;
        let submounts = match (place.is_private, place.is_recursive) {
            (false, _) => Submounts::Live,
            (true, true) => Submounts::Then,
            (true, false) => Submounts::Hidden,
        };
        volumes.push(Mount {
            host: place.source,
            guest,
            read_only: place.read_only,
            writable_below,
            submounts,
            ids: None,
        });
    }
    let ids = ids(all, container)?;
    volumes.iter_mut().for_each(|volume| volume.ids.clone_from(&ids));
    Ok((volumes, names))
}

/// Makes the mount points of places in directories that are mounted over them: engines put secrets into a directory that they mount, and
/// users a volume into a volume. `places` are in the order of their depth; `memory`: where file systems in memory are, which are empty.
fn make_in_covers(places: &[bundle::Bind], memory: &[&Path], owner: Option<(u32, u32)>) -> Result<()> {
    let binds = places.iter().map(|place| (place.destination.as_path(), place.is_directory));
    let others = memory.iter().map(|destination| (*destination, true));
    for (destination, is_directory) in binds.chain(others).filter(|(path, _)| !path.starts_with("/dev")) {
        let depth = |path: &Path| path.components().count();
        let is_above = |path: &Path| path != destination && destination.starts_with(path);
        let cover = destination.parent().and_then(|above| bundle::Bind::covering(places, above));
        let Some(cover) = cover else { continue };
        if memory.iter().any(|path| is_above(path) && depth(path) > depth(&cover.destination)) {
            continue;
        }
        let Some(below) = cover.below(destination) else { continue };
        let root = Root::open(&cover.source)?;
        if cover.read_only && !root.has(below) {
            return Err(Fault::new(format!(
                "cannot make the mount point {}: {} is read-only, and has no {}",
                destination.display(),
                cover.destination.display(),
                below.display()
            )));
        }
        root.make_mount_point(below, is_directory, owner)?;
    }
    Ok(())
}

/// Copies what is in a directory of the image, with its owners, modes, times and attributes. No link in it is followed.
fn copy_up(from: &OwnedFd, to: &Path) -> Result<()> {
    let from = format!("/proc/{}/fd/{}/.", std::process::id(), from.as_raw_fd());
    let ran = Command::new("cp").args(["-a", "--", &from]).arg(to).output();
    let ran = ran.map_err(|e| Fault::new(format!("tmpcopyup: cp: {e}")))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(Fault::new(format!("tmpcopyup: {}", String::from_utf8_lossy(&ran.stderr).trim())))
}

/// Whom the container's users and groups are on the host; `None`: the same ones.
fn ids(all: &Containers, container: &Container) -> Result<Option<Ids>> {
    let map = |lines: &[users::Extent]| {
        let line = |&users::Extent { inside, outside, count }: &_| Extent { inside, outside, count };
        Map(lines.iter().map(line).collect())
    };
    match &container.users {
        Users::Host => Ok(None),
        Users::Mapped(users, groups) => Ok(Some(Ids { users: map(users), groups: map(groups) })),
        Users::Of(path) => {
            let record = bundle::process_of(path).and_then(|pid| all.of_process(pid));
            let other = record.map(|record| all.description(&record.id, &record.bundle)).transpose()?;
            match other.map(|other| other.users) {
                Some(Users::Host) => Ok(None),
                Some(Users::Mapped(users, groups)) => {
                    Ok(Some(Ids { users: map(&users), groups: map(&groups) }))
                }
                Some(Users::Of(_)) | None => Err(Fault::new(format!(
                    "linux.namespaces: the user namespace {} is of no container with maps of its own",
                    path.display()
                ))),
            }
        }
    }
}

/// The name server on the loopback of the container's namespace, which the machine asks at an address of its link.
pub struct Names {
    pub server: Ipv4Addr,
    /// The engine's file with that address in it.
    resolv_conf: PathBuf,
}

impl Names {
    /// `None`: the engine names no such server, or the machine has no link to ask over.
    fn of(all: &Containers, folder: &Path, container: &Container) -> Result<Option<Names>> {
        let bind = container.binds.iter().find(|bind| bind.destination == Path::new(RESOLV_CONF));
        let Some(bind) = bind.filter(|_| container.network != bundle::Network::Host) else { return Ok(None) };
        let text = fs::read_to_string(&bind.source).map_err(file("read", &bind.source))?;
        let Some(server) = dns::servers(&text).first().copied().filter(Ipv4Addr::is_loopback) else {
            return Ok(None);
        };
        let found = Interface::find(&all.interface_record()?);
        let found = found.map_err(|e| Fault::new(format!("cannot look at the network namespace: {e}")))?;
        let Some(address) = found.and_then(|interface| interface.resolver()) else { return Ok(None) };
        let resolv_conf = folder.join("resolv.conf");
        let text = text.replace(&server.to_string(), &address.to_string());
        fs::write(&resolv_conf, text).map_err(file("write", &resolv_conf))?;
        Ok(Some(Names { server, resolv_conf }))
    }
}

/// The container's file systems in memory, in the order of their depth.
pub fn in_memory(container: &Container) -> Vec<Memory> {
    let mut all: Vec<&Scratch> = container.scratch.iter().filter(|s| s.is_in_memory()).collect();
    all.sort_by_key(|scratch| scratch.destination.components().count());
    let memory = |scratch: &Scratch| Memory {
        guest: scratch.destination.to_string_lossy().into_owned(),
        size: scratch.size,
        inodes: scratch.inodes,
        mode: scratch.mode,
        exec: !scratch.noexec,
    };
    all.into_iter().map(memory).collect()
}

/// An archive of nothing, in the format "newc": the machine's root is a volume.
pub fn empty_archive() -> Vec<u8> {
    const NAME: &str = "TRAILER!!!\0";
    let mut out = String::from("070701");
    for field in 0..13 {
        // The eleventh is the length of the name.
        out.push_str(&format!("{:08x}", if field == 11 { NAME.len() } else { 0 }));
    }
    out.push_str(NAME);
    let mut out = out.into_bytes();
    out.resize(4096, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_archive_is_one() {
        let bytes = empty_archive();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..121], b"TRAILER!!!\0");
        assert_eq!(&bytes[6 + 11 * 8..6 + 12 * 8], b"0000000b");
    }
}
