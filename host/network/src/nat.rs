// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of a machine on a tap device, and its way out: nftables tables of its own, gone with the machine.
//!
//! The machine is not trusted. Frames that do not carry its own addresses are dropped where they enter the host (RFC 2827),
//! so that it is neither another machine nor anybody's gateway. Nothing that others begin is forwarded to it but what comes
//! from machines of its own networks ([`crate::members`]), and nothing of other machines, not even what began while they were
//! in one network: others, and hosts that route through this one, reach the ports it
//! publishes and no others. The host itself reaches all of them, and by IPv6 it is all that a machine reaches.
//!
//! Forwarding is a setting of the whole host, whichever user and state directory a machine belongs to ([`Forwarding`]).

use crate::{subnet::Pair, tap};
use std::{
    fs::{self, File, OpenOptions},
    io,
    io::Write,
    net::Ipv6Addr,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Where Linux keeps the switch.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// Where users of the switch are known to each other until the host restarts, which turns it off as well.
const RUN: &str = "/run/unilith";
/// What identifies the network namespace, which has a switch of its own.
const NAMESPACE: &str = "/proc/self/ns/net";
pub(crate) const DEVICES: &str = "/sys/class/net";

/// A folder of this network namespace, for what its machines must agree on until the host restarts.
pub(crate) fn run_folder(what: &str) -> io::Result<PathBuf> {
    Ok(Path::new(RUN).join(format!("{what}-{}", fs::metadata(NAMESPACE)?.ino())))
}

/// Finds `nft`, which ordinary users do not have on their PATH.
pub fn nft() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|d| d.join("nft")).find(|p| p.is_file())
}

/// One machine's link, as its rules name it.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The machine's id, letters and digits. Devices' names are used again as soon as a machine has ended, its tables may
    /// still be there then.
    pub machine: &'a str,
    pub device: &'a str,
    pub pair: Pair,
    pub mac: [u8; 6],
    /// The bits of its networks ([`crate::members`]).
    pub networks: u32,
}

impl Rules<'_> {
    /// Names the device before the machine: whose rules they are and which device they bind is read from a list of names.
    fn table(self) -> String {
        table(self.device, self.machine)
    }

    fn text(self) -> String {
        let Rules { machine: _, device, pair, mac, networks } = self;
        let table = self.table();
        let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
        let guest = pair.guest;
        let prefix = tap::PREFIX;
        let members = match networks {
            0 => String::new(),
            bits => format!(
                "  oifname \"{device}\" iifname \"{prefix}*\" meta iifgroup & {bits:#x} != 0x0 accept\n"
            ),
        };
        let (frames6, table6) = match pair.ipv6() {
            None => Default::default(),
            Some((_, guest)) => {
                let [a, b, c, d, e, f] = self.mac;
                let local = Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
                let frames = format!(
                    "  ether saddr {mac} ether type ip6 ip6 saddr {{ {guest}, {local} }} accept
  ether saddr {mac} ether type ip6 ip6 saddr :: ip6 daddr ff02::/16 accept
"
                );
                // It speaks with this host alone, whatever the host forwards for others.
                let table = format!(
                    "table ip6 {table} {{
 chain forward {{
  type filter hook forward priority 0; policy accept;
  oifname \"{device}\" drop
  iifname \"{device}\" drop
 }}
}}
"
                );
                (frames, table)
            }
        };
        format!(
            "table netdev {table} {{
 chain from_machine {{
  type filter hook ingress device \"{device}\" priority 0; policy drop;
  ether saddr {mac} ether type arp arp saddr ether {mac} arp saddr ip {guest} accept
  ether saddr {mac} ether type ip ip saddr {guest} accept
{frames6} }}
}}
{table6}table ip {table} {{
 chain to_machine {{
  type filter hook forward priority 0; policy accept;
{members}  oifname \"{device}\" iifname \"{prefix}*\" drop
  oifname \"{device}\" ct state != {{ established, related }} drop
 }}
 chain out {{
  type nat hook postrouting priority 100;
  ip saddr {guest} oifname != \"{prefix}*\" masquerade
 }}
}}
"
        )
    }
}

fn table(device: &str, machine: &str) -> String {
    format!("{device}_{machine}")
}

/// Makes the tables of a machine, whose device must be there and the caller's.
///
/// Tables of devices that are gone, and those of an earlier device of this name, are removed in the same transaction. They
/// stay behind a supervisor that was killed, and their rules bind whatever has the device's name: a new machine would be cut off.
pub fn set_up(nft: &Path, rules: Rules) -> io::Result<()> {
    let listed = Command::new(nft).args(["list", "tables"]).stdin(Stdio::null()).output()?;
    if !listed.status.success() {
        return Err(failure(&listed));
    }
    let present = |device: &str| Path::new(DEVICES).join(device).exists();
    let listed = String::from_utf8_lossy(&listed.stdout);
    let stale = stale(&listed, rules.device, present);
    let removals: String = stale.iter().map(|(family, table)| removal(family, table)).collect();
    run(nft, &(removals + &rules.text()))
}

/// Tables of ours in what `nft list tables` printed that belong to `device`, or to devices that are not `present`: family
/// and name of each.
fn stale<'a>(listed: &'a str, device: &str, present: impl Fn(&str) -> bool) -> Vec<(&'a str, &'a str)> {
    let ours = |line: &'a str| -> Option<(&'a str, &'a str, &'a str)> {
        let mut words = line.split_whitespace();
        let (Some("table"), Some(family @ ("netdev" | "ip" | "ip6")), Some(table)) =
            (words.next(), words.next(), words.next())
        else {
            return None;
        };
        let (owner, _) = table.split_once('_')?;
        let number = owner.strip_prefix(tap::PREFIX)?;
        (!number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())).then_some((family, table, owner))
    };
    let tables = listed.lines().filter_map(ours);
    tables
        .filter(|(.., owner)| *owner == device || !present(owner))
        .map(|(family, table, _)| (family, table))
        .collect()
}

/// Removes what [`set_up`] made for this machine and device. Tables that are gone already are no error.
pub fn tear_down(nft: &Path, device: &str, machine: &str) -> io::Result<()> {
    let table = table(device, machine);
    run(nft, &["netdev", "ip", "ip6"].map(|family| removal(family, &table)).concat())
}

/// Declaring a table first makes its deletion succeed whether or not it exists.
fn removal(family: &str, table: &str) -> String {
    format!("table {family} {table} {{}}\ndelete table {family} {table}\n")
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
    Err(failure(&output))
}

fn failure(output: &Output) -> io::Error {
    let said = String::from_utf8_lossy(&output.stderr);
    io::Error::other(format!("nft: {}", said.lines().next().unwrap_or("failed without a message")))
}

/// The host's IPv4 forwarding while machines need it: turned on by the first, and back to what it was by the last.
///
/// Users are files in a folder of `/run`, one for each machine with the name of its device, changed under a lock. A machine
/// that ended without saying so is none any more once its device is gone.
pub struct Forwarding {
    folder: PathBuf,
    switch: PathBuf,
    devices: PathBuf,
}

impl Forwarding {
    /// Of this network namespace.
    pub fn of_host() -> io::Result<Forwarding> {
        let folder = run_folder("forwarding")?;
        Ok(Forwarding { folder, switch: IP_FORWARD.into(), devices: DEVICES.into() })
    }

    /// Turns it on where it is off, for a machine and its device.
    pub fn turn_on(&self, machine: &str, device: &str) -> io::Result<()> {
        let _lock = self.lock()?;
        let before = self.folder.join("before");
        if self.users()? == 0 {
            fs::write(&before, fs::read(&self.switch)?)?;
        }
        fs::write(self.user(machine), device)?;
        if fs::read_to_string(&self.switch)?.trim() == "0" {
            fs::write(&self.switch, "1")?;
        }
        Ok(())
    }

    /// The machine needs it no more; the last one leaves it as the first one found it.
    pub fn release(&self, machine: &str) -> io::Result<()> {
        let _lock = self.lock()?;
        match fs::remove_file(self.user(machine)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let before = self.folder.join("before");
        if self.users()? > 0 || !before.exists() {
            return Ok(());
        }
        if fs::read_to_string(&before)?.trim() == "0" {
            fs::write(&self.switch, "0")?;
        }
        fs::remove_file(&before)
    }

    fn user(&self, machine: &str) -> PathBuf {
        self.folder.join(format!("user-{machine}"))
    }

    fn lock(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        lock.lock()?;
        Ok(lock)
    }

    /// How many machines need it whose devices are there; forgets the others.
    fn users(&self) -> io::Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"user-")) {
                continue;
            }
            if self.devices.join(fs::read_to_string(&path)?).exists() {
                count += 1;
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::Tap;
    use std::{net::UdpSocket, time::Duration};

    fn forwarding(before: &str) -> (tempfile::TempDir, Forwarding) {
        let dir = tempfile::tempdir().unwrap();
        let [switch, devices, folder] = ["switch", "devices", "run"].map(|name| dir.path().join(name));
        fs::write(&switch, before).unwrap();
        for device in ["unilith0", "unilith1"] {
            fs::create_dir_all(devices.join(device)).unwrap();
        }
        (dir, Forwarding { folder, switch, devices })
    }

    fn value(f: &Forwarding) -> String {
        fs::read_to_string(&f.switch).unwrap().trim().to_string()
    }

    #[test]
    fn the_last_machine_of_all_stores_turns_forwarding_off_again() {
        let (_dir, f) = forwarding("0\n");
        // Neither knows the other's store.
        f.turn_on("aa", "unilith0").unwrap();
        f.turn_on("bb", "unilith1").unwrap();
        f.release("aa").unwrap();
        assert_eq!(value(&f), "1");
        f.release("bb").unwrap();
        assert_eq!(value(&f), "0");
        // Said twice, as a sweep may.
        f.release("bb").unwrap();
    }

    #[test]
    fn forwarding_that_was_on_stays_on() {
        let (_dir, f) = forwarding("1\n");
        f.turn_on("aa", "unilith0").unwrap();
        f.release("aa").unwrap();
        assert_eq!(value(&f), "1");
    }

    #[test]
    fn a_machine_that_vanished_is_no_user() {
        let (_dir, f) = forwarding("0\n");
        f.turn_on("aa", "unilith0").unwrap();
        f.turn_on("bb", "unilith1").unwrap();
        fs::remove_dir(f.devices.join("unilith0")).unwrap();
        f.release("bb").unwrap();
        assert_eq!(value(&f), "0");
    }

    #[test]
    fn tables_of_ours_are_stale_with_their_device() {
        let listed = "table ip filter\ntable netdev unilith0_aa\ntable ip unilith0_aa\ntable ip unilith1_bb\n\
                      table ip unilith2_cc\ntable inet unilith2_dd\ntable ip unilith_x\ntable ip unilith2x_y\ntable ip\n";
        let present = |device: &str| device != "unilith2";
        let found = stale(listed, "unilith0", present);
        assert_eq!(found, [("netdev", "unilith0_aa"), ("ip", "unilith0_aa"), ("ip", "unilith2_cc")]);
    }

    /// An Ethernet frame with a UDP datagram (RFC 768; no checksum, which IPv4 allows), behind an empty virtio header.
    fn frame(from_mac: [u8; 6], from: [u8; 4], to: [u8; 4], port: u16, text: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, (28 + text.len()) as u8, 0, 0, 0, 0, 64, 17, 0, 0];
        ip.extend(from.iter().chain(&to));
        let sum: u32 = ip.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        // To all: the device's own address need not be asked for.
        let mut out = [&[0; 10][..], &[0xff; 6], &from_mac, &[8, 0], &ip].concat();
        for half in [4000, port, 8 + text.len() as u16, 0] {
            out.extend(half.to_be_bytes());
        }
        out.extend(text);
        out
    }

    #[test]
    fn a_machine_cannot_send_as_somebody_else() {
        let (Ok(tap), Some(nft)) = (Tap::create(1500, false), nft()) else {
            eprintln!("skipped: it takes root, /dev/net/tun and nftables");
            return;
        };
        let mac = [0x52, 0x55, 1, 2, 3, 4];
        let machine = format!("test{}", std::process::id());
        // A machine that had this device before, whose supervisor was killed: its rules would let nobody else send.
        let before = format!("before{}", std::process::id());
        let rules = Rules {
            machine: &before,
            device: &tap.name,
            pair: tap.pair,
            mac: [0x52, 0x55, 0, 0, 0, 1],
            networks: 0,
        };
        set_up(&nft, rules).unwrap();
        set_up(&nft, Rules { machine: &machine, mac, ..rules }).unwrap();
        let host = UdpSocket::bind((tap.pair.host, 0)).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (to, port) = (tap.pair.host.octets(), host.local_addr().unwrap().port());
        let device = File::from(tap.fd.try_clone().unwrap());
        let own = tap.pair.guest.octets();
        let another = [own[0], own[1], own[2], own[3] ^ 0x40];
        let send = |mac, from, text: &[u8]| (&device).write_all(&frame(mac, from, to, port, text)).unwrap();
        // Frames of one device keep their order: were one of the first two let in, it would be read first.
        send(mac, another, b"another's address");
        send([0x52, 0x55, 9, 9, 9, 9], own, b"another's hardware address");
        send(mac, own, b"own");
        let mut buffer = [0; 100];
        let length = host.recv(&mut buffer);
        tear_down(&nft, &tap.name, &machine).unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..length.unwrap()]), "own");
    }
}
