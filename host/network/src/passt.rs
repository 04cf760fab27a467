// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User-mode networking by passt(1): TCP and UDP of the machine as sockets of an ordinary process.
//!
//! The machine's frames travel over one UNIX stream socket, each behind its length (32 bits, big-endian), as QEMU's
//! `-netdev socket,fd=` and `-netdev stream` write them. passt inherits one end of a socket pair (`--fd`), so there is
//! no socket file to protect or to remove, and passt ends when the machine's end closes, however it closes. As root it
//! becomes `nobody` and moves to an empty root; the descriptor is all it needs.
//!
//! QEMU's own user-mode network takes its place where it does not work (`host/machine/src/backlog.rs`).

use crate::ports::{Protocol, Publish};
use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, UdpSocket},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The machine's network: the addresses that QEMU's user-mode network uses as well.
pub const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
pub const DNS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
pub const PREFIX: u8 = 24;
/// The same of IPv6, where this host has a way to it. The gateway is whoever passt says that it is: it answers for each.
pub const MACHINE6: Ipv6Addr = Ipv6Addr::new(0xfd75, 0x6e69, 0x6c69, 0, 0, 0, 0, 15);
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
pub const PREFIX6: u8 = 64;

/// passt answers within a few milliseconds of its start, on a busy computer within seconds. One that cannot start ends, and
/// is not waited for; this only ends a hang.
const START_LIMIT: Duration = Duration::from_secs(30);
/// An Ethernet frame with the MTU of 65,520 that passt has (tap.h), and room to spare.
const LARGEST_FRAME: usize = 1 << 16;
/// Bytes of passt's last words that are read.
const MAX_WORDS: u64 = 8 << 10;

/// A running passt; it ends with this.
#[derive(Debug)]
pub struct Passt {
    child: Child,
}

/// Where passt is.
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/local/bin".into()]);
    folders.map(|f| f.join("passt")).find(|p| p.is_file())
}

impl Passt {
    /// Starts passt with these ports published, and returns the machine's end of the link. The error is one line.
    ///
    /// It has answered a frame when this returns: the ports are open.
    pub fn start(publish: &[Publish], mac: [u8; 6], ipv6: bool) -> Result<(Passt, OwnedFd), String> {
        let program = installed().ok_or("passt is not installed (apt-get install passt)")?;
        let arguments = arguments(publish, ipv6)?;
        Passt::launch(&program, &arguments, mac)
    }

    fn launch(program: &Path, arguments: &[String], mac: [u8; 6]) -> Result<(Passt, OwnedFd), String> {
        let (mine, its) = UnixStream::pair().map_err(|e| format!("cannot make a socket pair: {e}"))?;
        let fd = its.as_raw_fd();
        let mut command = Command::new(program);
        command.args(arguments).args(["--fd", &fd.to_string()]);
        // Ctrl-C in the terminal is for the supervisor to act on.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: between fork and exec the closure makes one system call on a descriptor that the parent keeps open
        // until `spawn` has returned; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        drop(its);
        let mut passt = Passt { child };
        match answers(&mine, mac) {
            Ok(()) => {
                let words = passt.child.stderr.take();
                // A pipe that nobody reads would stop it when it is full.
                std::thread::spawn(move || io::copy(&mut words?, &mut io::sink()).ok());
                Ok((passt, mine.into()))
            }
            Err(error) => {
                Err(passt.last_words().unwrap_or_else(|| format!("passt does not answer: {error}")))
            }
        }
    }

    /// Why it ended, in its own words.
    fn last_words(&mut self) -> Option<String> {
        // It is of no use any more, if it is there at all.
        let _ = self.child.kill();
        let mut text = String::new();
        // What could be read is what there is to say.
        let _ = self.child.stderr.take()?.take(MAX_WORDS).read_to_string(&mut text);
        let noise = |line: &&str| {
            let line = line.trim();
            !line.is_empty() && !line.contains("syslog") && !line.starts_with("Don't run as root")
        };
        text.lines().rev().find(noise).map(|line| format!("passt: {}", line.trim()))
    }
}

impl Drop for Passt {
    fn drop(&mut self) {
        // It may have ended by itself, with the machine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// passt(1)'s options. It maps a host port to one port of the machine, whatever address it is on.
fn arguments(publish: &[Publish], ipv6: bool) -> Result<Vec<String>, String> {
    let mut out: Vec<String> = ["--foreground", "--quiet", "--stderr"].map(str::to_string).into();
    // The addresses are in the machine's settings; nothing is to be asked for.
    out.extend(["--no-dhcp", "--no-dhcpv6", "--no-ra"].map(str::to_string));
    if !ipv6 {
        out.extend(["--ipv4-only", "--no-ndp"].map(str::to_string));
    }
    // A machine has no business with the services that listen on this host's loopback address.
    out.push("--no-map-gw".into());
    let mut put = |option: &str, value: String| out.extend([option.to_string(), value]);
    put("--address", MACHINE.to_string());
    if ipv6 {
        put("--address", MACHINE6.to_string());
        put("--gateway", GATEWAY6.to_string());
    }
    put("--netmask", PREFIX.to_string());
    put("--gateway", GATEWAY.to_string());
    put("--dns-forward", DNS.to_string());
    for (n, port) in publish.iter().enumerate() {
        let same = |p: &Publish| p.protocol == port.protocol && p.host == port.host;
        if publish[..n].iter().any(|p| same(p) && p.guest != port.guest) {
            return Err(format!("passt cannot publish two ports of the machine as {}", port.host));
        }
        let address =
            if port.address.is_unspecified() { String::new() } else { format!("{}/", port.address) };
        let option = match port.protocol {
            Protocol::Tcp => "--tcp-ports",
            Protocol::Udp => "--udp-ports",
        };
        put(option, format!("{address}{}:{}", port.host, port.guest));
    }
    Ok(out)
}

/// Asks who has the gateway's address (RFC 826) and waits for an answer.
fn answers(link: &UnixStream, mac: [u8; 6]) -> io::Result<()> {
    const ETHERTYPE_ARP: [u8; 2] = [8, 6];
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend(ETHERTYPE_ARP);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]); // Ethernet, IPv4, lengths of their addresses, request
    frame.extend(mac);
    frame.extend(MACHINE.octets());
    frame.extend([0; 6]);
    frame.extend(GATEWAY.octets());
    let length = frame.len() as u32;
    let mut link = link;
    link.write_all(&[&length.to_be_bytes(), frame.as_slice()].concat())?;
    let limit = Instant::now() + START_LIMIT;
    let mut length = [0; 4];
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        link.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        link.read_exact(&mut length)?;
        let mut frame = vec![0; (u32::from_be_bytes(length) as usize).min(LARGEST_FRAME)];
        link.read_exact(&mut frame)?;
        if frame.get(12..14) == Some(&ETHERTYPE_ARP) {
            return link.set_read_timeout(None);
        }
    }
}

/// Whether this host has a way to addresses of IPv6 that everybody reaches.
pub fn has_ipv6() -> bool {
    // Connecting a datagram socket looks for the way and sends nothing. The address is one for documentation (RFC 3849).
    let connect = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(|s| s.connect("[2001:db8::1]:9"));
    connect.is_ok()
}

/// Whether passt works for this user here, and why not.
pub fn works() -> Result<(), String> {
    Passt::start(&[], [0x52, 0x55, 0, 0, 0, 1], false).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports;
    use std::net::TcpListener;

    const MAC: [u8; 6] = [0x52, 0x55, 0, 0, 0, 2];

    fn published(text: &str) -> Publish {
        let mut publish = ports::parse(text).unwrap()[0];
        // The socket that found the number free goes at once.
        ports::listen(&mut publish).unwrap();
        publish
    }

    #[test]
    fn ports_are_published_on_the_addresses_asked_for() {
        let ports = ["127.0.0.1:8080:80", "8081:81", "5353:53/udp"].map(|p| ports::parse(p).unwrap()[0]);
        let words = arguments(&ports, false).unwrap().join(" ");
        for part in ["--tcp-ports 127.0.0.1/8080:80", "--tcp-ports 8081:81", "--udp-ports 5353:53"] {
            assert!(words.contains(part), "{words}");
        }
        let twice = ["127.0.0.1:80:1", "127.0.0.2:80:2"].map(|p| ports::parse(p).unwrap()[0]);
        assert!(arguments(&twice, false).is_err());
        assert!(words.contains("--ipv4-only") && !words.contains("fd75"));
        let both = arguments(&ports, true).unwrap().join(" ");
        assert!(
            !both.contains("--ipv4-only") && both.contains("--address fd75:6e69:6c69::f --gateway fe80::2")
        );
    }

    #[test]
    fn it_serves_when_it_has_started_and_is_gone_with_the_link_or_with_its_owner() {
        if let Err(error) = works() {
            eprintln!("skipped: {error}");
            return;
        }
        let port = published("127.0.0.1::80");
        let (passt, link) = Passt::start(&[port], MAC, false).unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port.host)).is_err(), "passt has the port");
        drop(passt);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port.host)).unwrap();
        drop(link);

        let (mut passt, link) = Passt::start(&[port], MAC, false).unwrap();
        drop(link);
        assert!(passt.child.wait().unwrap().success(), "it ends when nobody is at the other end");
    }

    #[test]
    fn what_it_says_when_it_cannot_start_is_the_error() {
        let Some(program) = installed() else {
            eprintln!("skipped: needs passt (apt-get install passt)");
            return;
        };
        let error =
            Passt::launch(&program, &["--foreground".into(), "--tcp-ports=x".into()], MAC).unwrap_err();
        assert!(error.starts_with("passt: Invalid port"), "{error}");
    }
}
