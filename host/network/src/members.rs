// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which machines may reach each other: those of one network.
//!
//! Linux gives each network device a group, a number that rules of nftables can ask for. Each network that is in use has one
//! bit of that number, and a machine's device has the bits of its networks. A machine's own rules let in what comes from a
//! device with one of its bits ([`crate::nat`]). So there is nothing to take out of other machines' rules when a machine
//! ends, however it ends: its membership goes with its device.
//!
//! Which bit is whose is kept in a folder of `/run`, changed under a lock. A bit that no device has is free again.

use crate::tap;
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Networks in use at once: the group is a signed number, and a negative one would be another word for all groups.
pub const MAX_NETWORKS: u32 = 31;

/// The bits of one network namespace.
pub struct Members {
    folder: PathBuf,
    devices: PathBuf,
}

impl Members {
    /// Of this network namespace.
    pub fn of_host() -> io::Result<Members> {
        let folder = crate::nat::run_folder("networks")?;
        Ok(Members { folder, devices: crate::nat::DEVICES.into() })
    }

    /// Makes `device` a member of the networks with these ids, which are letters and digits; says which bits they have.
    pub fn join(&self, device: &str, networks: &[&str]) -> io::Result<u32> {
        let _lock = self.lock()?;
        let mut used = self.used()?;
        let mut known = self.known(used)?;
        let mut bits = 0;
        for network in networks {
            let bit = match known.iter().find(|(id, _)| id == network) {
                Some((_, bit)) => *bit,
                None => {
                    let free = (0..MAX_NETWORKS).map(|n| 1 << n).find(|bit| used & bit == 0);
                    let free = free.ok_or_else(|| {
                        io::Error::other(format!(
                            "{MAX_NETWORKS} networks are in use on this host, which are all there can be at once"
                        ))
                    })?;
                    fs::write(self.folder.join(network), free.to_string())?;
                    known.push(((*network).to_string(), free));
                    free
                }
            };
            used |= bit;
            bits |= bit;
        }
        fs::write(self.group(device), bits.to_string())?;
        Ok(bits)
    }

    fn group(&self, device: &str) -> PathBuf {
        self.devices.join(device).join("netdev_group")
    }

    fn lock(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join(".lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        lock.lock()?;
        Ok(lock)
    }

    /// The bits that devices of machines have.
    fn used(&self) -> io::Result<u32> {
        let mut used = 0;
        for entry in fs::read_dir(&self.devices)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(tap::PREFIX)) else { continue };
            // A device that goes away meanwhile has none.
            let group = fs::read_to_string(self.group(name)).unwrap_or_default();
            used |= group.trim().parse::<u32>().unwrap_or(0);
        }
        Ok(used)
    }

    /// Networks and their bits; forgets those that have no members any more.
    fn known(&self, used: u32) -> io::Result<Vec<(String, u32)>> {
        let mut known = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|n| n.to_str()).filter(|n| !n.starts_with('.')) else {
                continue;
            };
            match fs::read_to_string(&path)?.trim().parse::<u32>() {
                Ok(bit) if bit.is_power_of_two() && used & bit != 0 => known.push((name.to_string(), bit)),
                _ => fs::remove_file(&path)?,
            }
        }
        Ok(known)
    }
}

/// Why this host cannot connect machines with each other; `None`: it can.
pub fn lack() -> Option<String> {
    if let Err(error) = tap::allowed() {
        return Some(format!(
            "it takes the right to make tap devices: run it as root on a host with /dev/net/tun ({error})"
        ));
    }
    if crate::nat::nft().is_none() {
        return Some("it takes nftables; as root: apt-get install -y nftables".into());
    }
    Path::new(crate::nat::DEVICES)
        .join("lo/netdev_group")
        .metadata()
        .err()
        .map(|e| format!("it takes /sys/class/net of this network namespace ({e})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(devices: &[&str]) -> (tempfile::TempDir, Members) {
        let dir = tempfile::tempdir().unwrap();
        let members = Members { folder: dir.path().join("run"), devices: dir.path().join("devices") };
        for device in devices {
            fs::create_dir_all(members.devices.join(device)).unwrap();
            fs::write(members.group(device), "0\n").unwrap();
        }
        (dir, members)
    }

    #[test]
    fn members_of_one_network_have_a_bit_in_common_and_others_have_none() {
        let (_dir, m) = host(&["unilith0", "unilith1", "unilith2", "eth0"]);
        // What others do with groups of their devices is theirs.
        fs::write(m.group("eth0"), "7").unwrap();
        let front = m.join("unilith0", &["aa"]).unwrap();
        let back = m.join("unilith1", &["bb"]).unwrap();
        let both = m.join("unilith2", &["bb", "aa"]).unwrap();
        assert_eq!((front, back, both), (1, 2, 3));
        assert_eq!(fs::read_to_string(m.group("unilith2")).unwrap(), "3");
    }

    #[test]
    fn a_bit_is_free_when_its_last_device_is_gone() {
        let (_dir, m) = host(&["unilith0", "unilith1"]);
        m.join("unilith0", &["aa"]).unwrap();
        fs::remove_dir_all(m.devices.join("unilith0")).unwrap();
        assert_eq!(m.join("unilith1", &["bb"]).unwrap(), 1);
        let known: Vec<_> = fs::read_dir(&m.folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!known.contains(&"aa".into()), "{known:?}");
    }

    #[test]
    fn more_networks_than_there_are_bits_are_refused() {
        let (_dir, m) = host(&["unilith0", "unilith1"]);
        let names: Vec<String> = (0..MAX_NETWORKS).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(m.join("unilith0", &names).unwrap(), i32::MAX as u32);
        let error = m.join("unilith1", &["more"]).unwrap_err().to_string();
        assert!(error.contains("31 networks are in use"), "{error}");
    }
}
