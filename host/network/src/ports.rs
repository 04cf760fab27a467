// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published ports: the notation of `-p`, as docker writes it, and the sockets on the host's side.

use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// One port of the machine that is reachable on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    /// The host's address to listen on; 0.0.0.0 for all.
    pub address: Ipv4Addr,
    /// The host's port; 0 until the system has chosen one.
    pub host: u16,
    /// The machine's port.
    pub guest: u16,
    pub protocol: Protocol,
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}->{}/{}", self.address, self.host, self.guest, self.protocol)
    }
}

/// Reads one `-p`: `[ADDRESS:][HOST:]GUEST[/udp]`, where HOST and GUEST may be ranges of the same length. Without HOST
/// the host's port has the machine's number; with an empty HOST (`127.0.0.1::80`) the system picks one.
pub fn parse(text: &str) -> Result<Vec<Publish>, String> {
    let wrong = |why: &str| format!("-p {text}: {why}; write [ADDRESS:][HOST:]PORT[/udp], e.g. 8080:80");
    let (rest, protocol) = match text.rsplit_once('/') {
        None => (text, Protocol::Tcp),
        Some((rest, "tcp")) => (rest, Protocol::Tcp),
        Some((rest, "udp")) => (rest, Protocol::Udp),
        Some((_, other)) => return Err(wrong(&format!("`{other}` is neither tcp nor udp"))),
    };
    if rest.starts_with('[') {
        return Err(wrong("machines have IPv4 only: leave the address out, or write 127.0.0.1"));
    }
    let parts: Vec<&str> = rest.split(':').collect();
    let (address, host, guest) = match parts[..] {
        [guest] => (None, guest, guest),
        [host, guest] => (None, host, guest),
        [address, host, guest] => (Some(address), host, guest),
        _ => return Err(wrong("too many colons")),
    };
    let address = match address {
        None => Ipv4Addr::UNSPECIFIED,
        Some(a) => a.parse().map_err(|_| wrong(&format!("`{a}` is not an IPv4 address")))?,
    };
    let range = |text: &str| -> Result<(u16, u16), String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |t: &str| {
            let port = t.parse::<u16>().ok().filter(|p| *p > 0);
            port.ok_or_else(|| wrong(&format!("`{t}` is not a port number (1 to 65535)")))
        };
        let (first, last) = (port(first)?, port(last)?);
        if first > last { Err(wrong("the range runs backwards")) } else { Ok((first, last)) }
    };
    let guests = range(guest)?;
    if host.is_empty() {
        let publish = |guest| Publish { address, host: 0, guest, protocol };
        return Ok((guests.0..=guests.1).map(publish).collect());
    }
    let hosts = range(host)?;
    if hosts.1 - hosts.0 != guests.1 - guests.0 {
        return Err(wrong("the two ranges differ in length"));
    }
    let publish = |(host, guest)| Publish { address, host, guest, protocol };
    Ok((hosts.0..=hosts.1).zip(guests.0..=guests.1).map(publish).collect())
}

/// A host socket that waits for clients of one published port.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// A host port that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(
        "port {port}/{protocol} of this host is in use by {owner}; stop it or publish another port, e.g. -p {other}:{guest}"
    )]
    InUse { port: u16, protocol: Protocol, guest: u16, owner: String, other: u16 },
    #[error("port {port} of this host needs root; publish another one, e.g. -p {other}:{guest}")]
    NotAllowed { port: u16, guest: u16, other: u16 },
    #[error("cannot listen on {address}:{port}: {source}")]
    Other { address: Ipv4Addr, port: u16, source: io::Error },
}

/// Takes the host's side of one published port; fills in the number where the system chose it.
pub fn listen(publish: &mut Publish) -> Result<Listener, PortError> {
    let at = SocketAddrV4::new(publish.address, publish.host);
    let bound = match publish.protocol {
        Protocol::Tcp => TcpListener::bind(at).and_then(|l| Ok((l.local_addr()?.port(), Listener::Tcp(l)))),
        Protocol::Udp => UdpSocket::bind(at).and_then(|s| Ok((s.local_addr()?.port(), Listener::Udp(s)))),
    };
    let (port, guest) = (publish.host, publish.guest);
    // A number that an ordinary user may have and that looks like the one asked for.
    let other =
        if port < 1024 { 8000 + port } else { port.checked_add(10_000).unwrap_or_else(|| port - 10_000) };
    let (number, listener) = bound.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => {
            let owner = owner(port, publish.protocol).unwrap_or_else(|| "another program".into());
            PortError::InUse { port, protocol: publish.protocol, guest, owner, other }
        }
        io::ErrorKind::PermissionDenied => PortError::NotAllowed { port, guest, other },
        _ => PortError::Other { address: publish.address, port, source: e },
    })?;
    publish.host = number;
    Ok(listener)
}

/// The process that has a port, as `name (pid 12)`, where /proc lets us see it.
fn owner(port: u16, protocol: Protocol) -> Option<String> {
    let table = std::fs::read_to_string(format!("/proc/net/{protocol}")).ok()?;
    let inode = table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let local = u16::from_str_radix(columns.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        // State 0A is LISTEN; a UDP socket has no state.
        let waits = protocol == Protocol::Udp || *columns.get(3)? == "0A";
        (local == port && waits).then(|| columns.get(9).map(|i| format!("socket:[{i}]")))?
    })?;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        // Only the numbered ones: /proc/self is a process seen twice.
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(fds) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let has = |fd: std::fs::DirEntry| {
            std::fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == inode.as_str())
        };
        if fds.flatten().any(has) {
            let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
            return Some(format!("{} (pid {})", name.trim(), process.file_name().to_string_lossy()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Publish {
        let [publish] = parse(text).unwrap()[..] else { panic!("{text}: not one port") };
        publish
    }

    #[test]
    fn every_form_docker_takes_is_read() {
        let p = |address: [u8; 4], host, guest, protocol| Publish {
            address: address.into(),
            host,
            guest,
            protocol,
        };
        assert_eq!(one("80"), p([0; 4], 80, 80, Protocol::Tcp));
        assert_eq!(one("8080:80"), p([0; 4], 8080, 80, Protocol::Tcp));
        assert_eq!(one("127.0.0.1:5353:53/udp"), p([127, 0, 0, 1], 5353, 53, Protocol::Udp));
        assert_eq!(one("127.0.0.1::80"), p([127, 0, 0, 1], 0, 80, Protocol::Tcp));
        assert_eq!(parse("7000-7002:17000-17002").unwrap()[2], p([0; 4], 7002, 17002, Protocol::Tcp));
    }

    #[test]
    fn an_address_of_ipv6_is_refused_with_what_to_write() {
        let error = parse("[::1]:8080:80").unwrap_err();
        assert!(error.contains("IPv4 only") && error.contains("127.0.0.1"), "{error}");
    }

    #[test]
    fn a_bad_port_is_named_with_the_right_form() {
        for text in ["", "x", "0", "65536", "1:2:3", "80/sctp", "1-3:1-2", "3-1:3-1", "1:2:3:4"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("-p {text}:")) && error.contains("8080:80"), "{error}");
        }
    }

    #[test]
    fn a_port_in_use_is_named_with_its_owner() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = taken.local_addr().unwrap().port();
        let mut publish = Publish { address: Ipv4Addr::LOCALHOST, host, guest: 80, protocol: Protocol::Tcp };
        let error = listen(&mut publish).unwrap_err().to_string();
        assert!(error.contains(&format!("port {host}/tcp")) && error.contains(":80"), "{error}");
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
    }

    #[test]
    fn the_system_chooses_a_port_where_none_is_named() {
        let mut publish = one("127.0.0.1::80");
        listen(&mut publish).unwrap();
        assert_ne!(publish.host, 0);
    }
}
