// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Published ports: the notation of `-p`, as docker writes it, and the sockets on the host's side.

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
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
    /// The host's address to listen on; 0.0.0.0 for all of IPv4, :: for all of IPv6. The machine itself has IPv4.
    pub address: IpAddr,
    /// The host's port; 0 until the system has chosen one.
    pub host: u16,
    /// The machine's port.
    pub guest: u16,
    pub protocol: Protocol,
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}/{}", self.at(), self.guest, self.protocol)
    }
}

impl Publish {
    /// Where clients find it; an address of IPv6 is written with brackets.
    pub fn at(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.host)
    }
}

/// Reads one `-p`: `[ADDRESS:][HOST:]GUEST[/udp]`, where HOST and GUEST may be ranges of the same length. Without HOST
/// the host's port has the machine's number; with an empty HOST (`127.0.0.1::80`) the system picks one. An address of IPv6 has
/// brackets.
pub fn parse(text: &str) -> Result<Vec<Publish>, String> {
    let wrong = |why: &str| format!("-p {text}: {why}; write [ADDRESS:][HOST:]PORT[/udp], e.g. 8080:80");
    let (rest, protocol) = match text.rsplit_once('/') {
        None => (text, Protocol::Tcp),
        Some((rest, "tcp")) => (rest, Protocol::Tcp),
        Some((rest, "udp")) => (rest, Protocol::Udp),
        Some((_, other)) => return Err(wrong(&format!("`{other}` is neither tcp nor udp"))),
    };
    let (bracketed, rest) = match rest.strip_prefix('[') {
        None => (None, rest),
        Some(rest) => {
            let parts = rest.split_once(']').and_then(|(a, rest)| Some((a, rest.strip_prefix(':')?)));
            let (a, rest) =
                parts.ok_or_else(|| wrong("an address of IPv6 is written [ADDRESS]:HOST:PORT"))?;
            let address: Ipv6Addr = a.parse().map_err(|_| wrong(&format!("`{a}` is not an IPv6 address")))?;
            (Some(IpAddr::V6(address)), rest)
        }
    };
    let parts: Vec<&str> = rest.split(':').collect();
    let (address, host, guest) = match (bracketed, &parts[..]) {
        (None, [guest]) => (Ipv4Addr::UNSPECIFIED.into(), *guest, *guest),
        (None, [host, guest]) => (Ipv4Addr::UNSPECIFIED.into(), *host, *guest),
        (None, [address, host, guest]) => {
            let parsed = address.parse::<Ipv4Addr>();
            let parsed = parsed.map_err(|_| wrong(&format!("`{address}` is not an IPv4 address")))?;
            (parsed.into(), *host, *guest)
        }
        (Some(address), [guest]) => (address, "", *guest),
        (Some(address), [host, guest]) => (address, *host, *guest),
        _ => return Err(wrong("too many colons; an address of IPv6 is written [ADDRESS]:HOST:PORT")),
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

/// Clients that wait to be accepted; what std's listeners have.
const BACKLOG: i32 = 128;

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
    #[error("cannot listen on {at}: {source}")]
    Other { at: SocketAddr, source: io::Error },
}

/// Takes the host's side of one published port; fills in the number where the system chose it.
pub fn listen(publish: &mut Publish) -> Result<Listener, PortError> {
    let bound = bind(publish.at(), publish.protocol);
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
        _ => PortError::Other { at: publish.at(), source: e },
    })?;
    publish.host = number;
    Ok(listener)
}

/// A socket at an address, and its port.
fn bind(at: SocketAddr, protocol: Protocol) -> io::Result<(u16, Listener)> {
    let is_tcp = protocol == Protocol::Tcp;
    let kind = if is_tcp { Type::STREAM } else { Type::DGRAM };
    let socket = Socket::new(Domain::for_address(at), kind, None)?;
    if at.is_ipv6() {
        // `[::]` beside `0.0.0.0` are two, as with docker.
        socket.set_only_v6(true)?;
    }
    if is_tcp {
        // A port whose last connections have just ended is free.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&at.into())?;
    if !is_tcp {
        let socket = UdpSocket::from(socket);
        return Ok((socket.local_addr()?.port(), Listener::Udp(socket)));
    }
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    Ok((listener.local_addr()?.port(), Listener::Tcp(listener)))
}

/// The process that has a port, as `name (pid 12)`, where /proc lets us see it.
fn owner(port: u16, protocol: Protocol) -> Option<String> {
    let table = |family: &str| std::fs::read_to_string(format!("/proc/net/{protocol}{family}"));
    // The second has sockets of IPv6; a host without it has no such file.
    owner_in(&table("").ok()?, port, protocol)
        .or_else(|| owner_in(&table("6").unwrap_or_default(), port, protocol))
}

fn owner_in(table: &str, port: u16, protocol: Protocol) -> Option<String> {
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
    fn addresses_of_ipv6_have_brackets() {
        let local =
            |host| Publish { address: Ipv6Addr::LOCALHOST.into(), host, guest: 80, protocol: Protocol::Tcp };
        assert_eq!(one("[::1]:8080:80"), local(8080));
        assert_eq!((one("[::1]::80"), one("[::1]:80")), (local(0), local(0)));
        assert_eq!(one("[::1]:8080:80").to_string(), "[::1]:8080->80/tcp");
        assert_eq!(one("[::]:53:53/udp").to_string(), "[::]:53->53/udp");
        for (text, says) in [
            ("::1:8080:80", "[ADDRESS]:HOST:PORT"),
            ("[::1:8080:80", "[ADDRESS]:HOST:PORT"),
            ("[::1]8080:80", "[ADDRESS]:HOST:PORT"),
            ("[127.0.0.1]:8080:80", "`127.0.0.1` is not an IPv6 address"),
            ("[::1]:1:2:3", "too many colons"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn all_addresses_of_either_family_can_have_the_same_port() {
        let (mut four, mut six) = (one("0.0.0.0::80"), one("[::]::80"));
        let _six = listen(&mut six).unwrap();
        four.host = six.host;
        let _four = listen(&mut four).unwrap();
        assert!(matches!(listen(&mut six), Err(PortError::InUse { .. })));
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
        let address = Ipv4Addr::LOCALHOST.into();
        let mut publish = Publish { address, host, guest: 80, protocol: Protocol::Tcp };
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
