// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out for machines on a tap device: one nftables table per device, gone with the machine.
//!
//! Translation needs `nft` and IPv4 forwarding. Forwarding is a setting of the whole host, so the first machine that
//! turns it on leaves a mark and the last one to go turns it off again ([`Forwarding`]).

use crate::subnet::Pair;
use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where Linux keeps the switch.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Finds `nft`, which ordinary users do not have on their PATH.
pub fn nft() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|d| d.join("nft")).find(|p| p.is_file())
}

/// Lets packets of the machine behind the tap device `name` out. The table's name is the device's.
pub fn set_up(nft: &Path, name: &str, pair: Pair) -> io::Result<()> {
    run(
        nft,
        &format!(
            "table ip {name} {{\n chain out {{\n  type nat hook postrouting priority 100;\n  \
         ip saddr {} oifname != \"{name}\" masquerade\n }}\n}}\n",
            pair.guest
        ),
    )
}

/// Removes what [`set_up`] made. A table that is gone already is no error.
pub fn tear_down(nft: &Path, name: &str) -> io::Result<()> {
    // Declaring it first makes the deletion succeed whether or not it exists.
    run(nft, &format!("table ip {name} {{}}\ndelete table ip {name}\n"))
}

fn run(nft: &Path, rules: &str) -> io::Result<()> {
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("nft: {}", said.lines().next().unwrap_or("failed without a message"))))
}

/// The host's IPv4 forwarding while machines need it. The mark lives in a directory that all machines of this user share.
pub struct Forwarding {
    mark: PathBuf,
    switch: PathBuf,
}

impl Forwarding {
    pub fn new(shared: &Path) -> Forwarding {
        Forwarding { mark: shared.join("ip_forward-was-off"), switch: IP_FORWARD.into() }
    }

    /// Turns it on where it is off.
    pub fn turn_on(&self) -> io::Result<()> {
        if fs::read_to_string(&self.switch)?.trim() == "0" {
            fs::write(&self.mark, "turned on by unilith; off again after the last machine\n")?;
            fs::write(&self.switch, "1")?;
        }
        Ok(())
    }

    /// Turns it off again if a machine had turned it on. Call when no machine needs it any more.
    pub fn restore(&self) -> io::Result<()> {
        if self.mark.exists() {
            fs::write(&self.switch, "0")?;
            fs::remove_file(&self.mark)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarding(before: &str) -> (tempfile::TempDir, Forwarding) {
        let dir = tempfile::tempdir().unwrap();
        let switch = dir.path().join("switch");
        fs::write(&switch, before).unwrap();
        let mark = dir.path().join("mark");
        (dir, Forwarding { mark, switch })
    }

    #[test]
    fn forwarding_that_was_off_goes_off_again() {
        let (_dir, f) = forwarding("0\n");
        f.turn_on().unwrap();
        assert_eq!(fs::read_to_string(&f.switch).unwrap(), "1");
        f.restore().unwrap();
        assert_eq!(fs::read_to_string(&f.switch).unwrap(), "0");
    }

    #[test]
    fn forwarding_that_was_on_stays_on() {
        let (_dir, f) = forwarding("1\n");
        f.turn_on().unwrap();
        f.restore().unwrap();
        assert_eq!(fs::read_to_string(&f.switch).unwrap(), "1\n");
    }
}
