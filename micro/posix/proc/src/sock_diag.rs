// SPDX-License-Identifier: Apache-2.0 OR MIT
//! sock_diag(7): what ss(8) asks of the sockets that programs have, of IPv4 and IPv6 (`linux/inet_diag.h`), UNIX (`linux/unix_diag.h`), netlink
//! (`linux/netlink_diag.h`) and packet sockets (`linux/packet_diag.h`). As in /proc/net, connections that nobody has accepted yet and
//! those that outlive their descriptor are not among them.

use super::interfaces::word;
use super::net::{self, CLOSED, ESTABLISHED, Found};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_socket::{Address, Diagnosis, Socket, Type};

mod bytecode;

/// Who answers, for [`api_socket::register_diagnosis`].
pub struct Sockets;

const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_UDPLITE: u8 = 136;
const IPPROTO_RAW: u8 = 255;
const LISTEN: u8 = 10;
/// Of `struct inet_diag_req_v2`, and where in it its `struct inet_diag_sockid` is.
const INET_REQUEST: usize = 56;
const ID: usize = 8;
/// Of `struct unix_diag_req`; `struct netlink_diag_req` and `struct packet_diag_req`.
const UNIX_REQUEST: usize = 24;
const OTHER_REQUEST: usize = 20;
const INET_DIAG_REQ_BYTECODE: u16 = 1;
const INET_DIAG_MEMINFO: u16 = 1;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_TOS: u16 = 5;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_SHUTDOWN: u16 = 8;
const INET_DIAG_SKV6ONLY: u16 = 11;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
const UNIX_DIAG_RQLEN: u16 = 4;
const UNIX_DIAG_MEMINFO: u16 = 5;
const UNIX_DIAG_SHUTDOWN: u16 = 6;
const UNIX_DIAG_UID: u16 = 7;
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_VFS: u32 = 2;
const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_ICONS: u32 = 8;
const UDIAG_SHOW_RQLEN: u32 = 0x10;
const UDIAG_SHOW_MEMINFO: u32 = 0x20;
const UDIAG_SHOW_UID: u32 = 0x40;
const AF_NETLINK: u16 = linux::AF_NETLINK as u16;
const AF_PACKET: u16 = linux::AF_PACKET as u16;
const IPPROTO_IP: i32 = 0;
const IPPROTO_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;
const SO_BINDTOIFINDEX: i32 = 62;
/// No cookie is asked for (INET_DIAG_NOCOOKIE).
const NO_COOKIE: u64 = u64::MAX;
/// A netlink request for sockets of every protocol (NDIAG_PROTO_ALL).
const ALL_PROTOCOLS: u8 = 255;
/// Sockets that are kept while all are looked at.
const AT_ONCE: usize = 256;

impl Diagnosis for Sockets {
    fn check(&self, request: &[u8]) -> Result<()> {
        let wanted = Wanted::of(request)?;
        match wanted.filter {
            Some(filter) if !bytecode::is_valid(filter) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    fn dump(
        &self,
        request: &[u8],
        after: u64,
        put: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let wanted = Wanted::of(request)?;
        let mut after = after;
        loop {
            let some = first(&wanted, wanted.kinds()?, after)?;
            let Some(last) = some.last().map(|found| found.inode) else { return Ok(()) };
            for found in &some {
                let Some(message) = wanted.describe(found, Asked::InDump)? else { continue };
                if !put(found.inode, &message)? {
                    return Ok(());
                }
            }
            after = last;
        }
    }

    fn find(&self, request: &[u8]) -> Result<Vec<u8>> {
        let wanted = Wanted::of(request)?;
        let kinds = wanted.kinds()?;
        if wanted.family == Address::UNIX && wanted.inode() == 0 {
            return Err(EINVAL);
        }
        if matches!(wanted.family, AF_NETLINK | AF_PACKET) {
            // There are only dumps of these.
            return Err(EOPNOTSUPP);
        }
        let mut after = 0;
        loop {
            let some = first(&wanted, kinds, after)?;
            after = some.last().map(|found| found.inode).ok_or(ENOENT)?;
            for found in &some {
                if let Some(message) = wanted.describe(found, Asked::Alone)? {
                    let cookie = wanted.cookie();
                    let is_same = cookie == NO_COOKIE || cookie == cookie_of(&found.socket);
                    // Of TCP it is as if there were none (Linux' inet_diag_find_one_icsk).
                    let other =
                        if wanted.is_inet() && wanted.protocol == IPPROTO_TCP { ENOENT } else { ESTALE };
                    return if is_same { Ok(message) } else { Err(other) };
                }
            }
        }
    }
}

/// How a request asks for a socket.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    /// By what fits it.
    InDump,
    /// By its very addresses, or inode.
    Alone,
}

/// The first sockets behind that inode number, in the order of these numbers.
fn first(wanted: &Wanted<'_>, kinds: &[Type], after: u64) -> Result<Vec<Found>> {
    let mut some: Vec<Found> = Vec::new();
    some.reserve_exact_fallibly(2 * AT_ONCE).map_err(|_| ENOBUFS)?;
    let shorten = |some: &mut Vec<Found>| {
        some.sort_unstable_by_key(|found| found.inode);
        some.dedup_by_key(|found| found.inode);
        some.truncate(AT_ONCE);
    };
    net::visit(wanted.family, kinds, &mut |found| {
        if found.inode > after {
            some.push(found);
            if some.len() == 2 * AT_ONCE {
                shorten(&mut some);
            }
        }
        Ok(())
    })?;
    shorten(&mut some);
    Ok(some)
}

/// A request.
struct Wanted<'a> {
    family: u16,
    protocol: u8,
    /// Whole, of the length that its family's has at least.
    request: &'a [u8],
    filter: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    fn of(request: &'a [u8]) -> Result<Wanted<'a>> {
        let [family, protocol, ..] = *request else { return Err(EINVAL) };
        let family = u16::from(family);
        let length = match family {
            Address::INET | Address::INET6 => INET_REQUEST,
            Address::UNIX => UNIX_REQUEST,
            AF_NETLINK | AF_PACKET => OTHER_REQUEST,
            // Linux' AF_MAX.
            46.. => return Err(EINVAL),
            _ => return Err(ENOENT),
        };
        let behind = request.get(length..).ok_or(EINVAL)?;
        let filter = match family {
            Address::INET | Address::INET6 => attribute(behind, INET_DIAG_REQ_BYTECODE),
            _ => None,
        };
        Ok(Wanted { family, protocol, request, filter })
    }

    fn word(&self, at: usize) -> u32 {
        word(self.request, at)
    }

    fn is_inet(&self) -> bool {
        matches!(self.family, Address::INET | Address::INET6)
    }

    /// The inode number that a request for a UNIX socket names.
    fn inode(&self) -> u32 {
        self.word(8)
    }

    /// The bits of the states that are wanted.
    fn states(&self) -> u32 {
        self.word(4)
    }

    /// Of a request for one socket, of IP or a UNIX one.
    fn cookie(&self) -> u64 {
        let at = if self.is_inet() { ID + 40 } else { 16 };
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// Which bits of what can be shown are set: `idiag_ext`, by the attributes' numbers, or `udiag_show`.
    fn shows(&self, attribute: u16) -> bool {
        self.request.get(2).is_some_and(|shown| shown & 1 << (attribute - 1) != 0)
    }

    fn kinds(&self) -> Result<&'static [Type]> {
        Ok(match (self.family, self.protocol) {
            (Address::UNIX, _) => &[Type::Stream, Type::Datagram, Type::SequencedPacket],
            (AF_NETLINK | AF_PACKET, _) => &[Type::Raw, Type::Datagram],
            (_, IPPROTO_TCP) => &[Type::Stream],
            (_, IPPROTO_UDP) => &[Type::Datagram],
            (_, IPPROTO_RAW) => &[Type::Raw],
            // There are none of these.
            (_, IPPROTO_UDPLITE) => &[],
            _ => return Err(ENOENT),
        })
    }

    /// The message about a socket; `None` where it is not wanted.
    fn describe(&self, found: &Found, asked: Asked) -> Result<Option<Vec<u8>>> {
        match self.family {
            Address::UNIX => self.describe_unix(found, asked),
            AF_NETLINK => self.describe_netlink(found),
            AF_PACKET => self.describe_packet(found),
            _ => self.describe_inet(found, asked),
        }
    }

    /// `struct inet_diag_msg` and attributes.
    fn describe_inet(&self, found: &Found, asked: Asked) -> Result<Option<Vec<u8>>> {
        debug_assert!(self.is_inet());
        let socket = &found.socket;
        let protocol = net::protocol(socket);
        if matches!(self.protocol, IPPROTO_TCP | IPPROTO_UDP) && protocol != i32::from(self.protocol) {
            return Ok(None);
        }
        let info = match self.protocol {
            IPPROTO_TCP => option(socket, IPPROTO_TCP.into(), linux::TCP_INFO as i32),
            _ => Vec::new(),
        };
        let (local, remote) = (socket.local_address(), socket.peer_address());
        let state = match self.protocol {
            IPPROTO_TCP => info.first().copied().unwrap_or(CLOSED),
            _ if remote.is_ok() => ESTABLISHED,
            _ => CLOSED,
        };
        let (mut source, mut destination) =
            (Endpoint::of(self.family, local), Endpoint::of(self.family, remote));
        // A socket without a port is in no table.
        let is_known = source.port != 0 || self.protocol == IPPROTO_RAW;
        if self.protocol == IPPROTO_RAW {
            (source.port, destination.port) = (protocol as u16, 0);
        }
        let ports = [source.port, destination.port];
        let [sport, dport] =
            [ID, ID + 2].map(|at| u16::from_be_bytes([self.request[at], self.request[at + 1]]));
        let is_wanted = match asked {
            Asked::InDump => {
                let fits = |wanted: u16, port: u16| wanted == 0 || wanted == port;
                let is_listed = state < 32 && self.states() & 1 << state != 0;
                is_listed && fits(sport, ports[0]) && fits(dport, ports[1])
            }
            Asked::Alone => {
                let words = if self.family == Address::INET6 { 16 } else { 4 };
                let same = |at: usize, address: &[u8; 16]| self.request[at..at + words] == address[..words];
                [sport, dport] == ports
                    && same(ID + 4, &source.address)
                    && same(ID + 20, &destination.address)
            }
        };
        if !is_known || !is_wanted {
            return Ok(None);
        }
        let device = number(&option(socket, linux::SOL_SOCKET as i32, SO_BINDTOIFINDEX));
        if let Some(filter) = self.filter.filter(|_| asked == Asked::InDump) {
            let ends =
                bytecode::Ends { family: self.family, source: &source, destination: &destination, device };
            if !bytecode::runs(filter, &ends) {
                return Ok(None);
            }
        }
        let queues = match state {
            LISTEN => [word(&info, 24), word(&info, 28)],
            _ => [0, 0],
        };
        let mut out = Message::new(&[self.family as u8, state, 0, 0])?;
        ports.iter().try_for_each(|port| out.put(&port.to_be_bytes()))?;
        [source.address, destination.address].iter().try_for_each(|address| out.put(address))?;
        out.put(&device.to_ne_bytes())?;
        out.put(&cookie_of(socket).to_ne_bytes())?;
        [0, queues[0], queues[1], found.uid, found.inode as u32]
            .iter()
            .try_for_each(|word: &u32| out.put(&word.to_ne_bytes()))?;
        out.attribute(INET_DIAG_SHUTDOWN, &[shut(state)])?;
        if self.shows(INET_DIAG_TOS) {
            out.attribute(INET_DIAG_TOS, &[number(&option(socket, IPPROTO_IP, linux::IP_TOS as i32)) as u8])?;
        }
        if self.family == Address::INET6 && matches!(state, LISTEN | CLOSED) {
            let only = number(&option(socket, IPPROTO_IPV6, IPV6_V6ONLY));
            out.attribute(INET_DIAG_SKV6ONLY, &[u8::from(only != 0)])?;
        }
        if self.shows(INET_DIAG_MEMINFO) {
            out.attribute(INET_DIAG_MEMINFO, &[0; 16])?;
        }
        if self.shows(INET_DIAG_SKMEMINFO) {
            out.numbers(INET_DIAG_SKMEMINFO, &memory_use(socket, queues[0]))?;
        }
        if self.protocol == IPPROTO_TCP && self.shows(INET_DIAG_INFO) {
            out.attribute(INET_DIAG_INFO, &info)?;
        }
        if self.protocol == IPPROTO_TCP && self.shows(INET_DIAG_CONG) {
            let name = option(socket, IPPROTO_TCP.into(), linux::TCP_CONGESTION as i32);
            let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let mut text = [0; 17];
            text[..length.min(16)].copy_from_slice(&name[..length.min(16)]);
            out.attribute(INET_DIAG_CONG, &text[..=length.min(16)])?;
        }
        Ok(Some(out.0))
    }

    /// `struct unix_diag_msg` and attributes.
    fn describe_unix(&self, found: &Found, asked: Asked) -> Result<Option<Vec<u8>>> {
        let socket = &found.socket;
        let state = match () {
            () if net::accepts(socket) => LISTEN,
            () if socket.peer_address().is_ok() => ESTABLISHED,
            () => CLOSED,
        };
        let is_wanted = match asked {
            Asked::InDump => self.states() & 1 << state != 0,
            Asked::Alone => found.inode as u32 == self.inode(),
        };
        if !is_wanted {
            return Ok(None);
        }
        let shown = self.word(12);
        let mut out = Message::new(&[Address::UNIX as u8, socket.socket_type() as u8, state, 0])?;
        out.put(&(found.inode as u32).to_ne_bytes())?;
        out.put(&cookie_of(socket).to_ne_bytes())?;
        if shown & UDIAG_SHOW_NAME != 0 {
            let name = socket.local_address();
            let name = name.as_ref().map(Address::rest).unwrap_or_default();
            // An abstract name begins with NUL; of a path the one at its end is none of it.
            let name = match name {
                [0, ..] => name,
                path => path.split(|byte| *byte == 0).next().unwrap_or_default(),
            };
            if !name.is_empty() {
                out.attribute(UNIX_DIAG_NAME, name)?;
            }
        }
        let relations = socket.relations()?.unwrap_or_default();
        if let Some((device, inode)) = relations.file.filter(|_| shown & UDIAG_SHOW_VFS != 0) {
            out.numbers(UNIX_DIAG_VFS, &[inode as u32, device as u32])?;
        }
        if let Some(peer) = relations.peer.filter(|_| shown & UDIAG_SHOW_PEER != 0) {
            out.numbers(UNIX_DIAG_PEER, &[peer])?;
        }
        if let Some(waiting) = relations.waiting.filter(|_| shown & UDIAG_SHOW_ICONS != 0) {
            // What fits an attribute.
            out.numbers(UNIX_DIAG_ICONS, &waiting[..waiting.len().min(16_000)])?;
        }
        if shown & UDIAG_SHOW_RQLEN != 0 {
            out.numbers(UNIX_DIAG_RQLEN, &relations.queues)?;
        }
        if shown & UDIAG_SHOW_MEMINFO != 0 {
            out.numbers(UNIX_DIAG_MEMINFO, &memory_use(socket, relations.queues[0]))?;
        }
        let [reads, writes] = relations.shut.map(u8::from);
        out.attribute(UNIX_DIAG_SHUTDOWN, &[reads | writes << 1])?;
        if shown & UDIAG_SHOW_UID != 0 {
            out.attribute(UNIX_DIAG_UID, &found.uid.to_ne_bytes())?;
        }
        Ok(Some(out.0))
    }

    /// `struct netlink_diag_msg`.
    fn describe_netlink(&self, found: &Found) -> Result<Option<Vec<u8>>> {
        let protocol = net::protocol(&found.socket) as u8;
        if self.protocol != ALL_PROTOCOLS && self.protocol != protocol {
            return Ok(None);
        }
        let Some([port, _]) = net::netlink_address(&found.socket) else { return Ok(None) };
        let mut out = Message::new(&[AF_NETLINK as u8, found.socket.socket_type() as u8, protocol, 0])?;
        [port, 0, 0, found.inode as u32].iter().try_for_each(|word| out.put(&word.to_ne_bytes()))?;
        out.put(&cookie_of(&found.socket).to_ne_bytes())?;
        Ok(Some(out.0))
    }

    /// `struct packet_diag_msg`.
    fn describe_packet(&self, found: &Found) -> Result<Option<Vec<u8>>> {
        let mut out = Message::new(&[AF_PACKET as u8, found.socket.socket_type() as u8])?;
        out.put(&u16::from_be(net::protocol(&found.socket) as u16).to_ne_bytes())?;
        out.put(&(found.inode as u32).to_ne_bytes())?;
        out.put(&cookie_of(&found.socket).to_ne_bytes())?;
        Ok(Some(out.0))
    }
}

/// One end of a connection. The address of IPv4 has its four bytes first, and zeros.
struct Endpoint {
    address: [u8; 16],
    port: u16,
}

impl Endpoint {
    /// Zeros where there is none.
    fn of(family: u16, address: Result<Address>) -> Endpoint {
        if family == Address::INET6 {
            let v6 = address.and_then(|address| address.as_v6()).unwrap_or_default();
            return Endpoint { address: v6.address, port: v6.port };
        }
        let v4 = address.and_then(|address| address.as_v4()).unwrap_or_default();
        let mut address = [0; 16];
        address[..4].copy_from_slice(&v4.address);
        Endpoint { address, port: v4.port }
    }
}

/// A message under construction.
struct Message(Vec<u8>);

impl Message {
    fn new(head: &[u8]) -> Result<Message> {
        let mut message = Message(Vec::new());
        message.put(head)?;
        Ok(message)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.reserve_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// An attribute, padded to 4 bytes.
    fn attribute(&mut self, kind: u16, data: &[u8]) -> Result<()> {
        self.put(&(4 + data.len() as u16).to_ne_bytes())?;
        self.put(&kind.to_ne_bytes())?;
        self.put(data)?;
        self.put(&[0; 3][..data.len().next_multiple_of(4) - data.len()])
    }

    /// An attribute of numbers.
    fn numbers(&mut self, kind: u16, numbers: &[u32]) -> Result<()> {
        self.put(&(4 + 4 * numbers.len() as u16).to_ne_bytes())?;
        self.put(&kind.to_ne_bytes())?;
        numbers.iter().try_for_each(|number| self.put(&number.to_ne_bytes()))
    }
}

/// The first attribute of this kind.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[a, b, c, d]) = rest.first_chunk() {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let data = rest.get(4..length)?;
        if kind == wanted {
            return Some(data);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// An option's value; nothing where the socket has none of it.
fn option(socket: &Arc<dyn Socket>, level: i32, name: i32) -> Vec<u8> {
    socket.get_option(level, name, &[]).unwrap_or_default()
}

/// SK_MEMINFO_*: received, its limit, sent, its limit; reserved, queued, options, waiting, dropped.
fn memory_use(socket: &Arc<dyn Socket>, waiting: u32) -> [u32; 9] {
    let size = |name: u32| number(&option(socket, linux::SOL_SOCKET as i32, name as i32));
    [0, size(linux::SO_RCVBUF), 0, size(linux::SO_SNDBUF), 0, 0, 0, waiting, 0]
}

/// An option's number.
fn number(bytes: &[u8]) -> u32 {
    word(bytes, 0)
}

fn cookie_of(socket: &Arc<dyn Socket>) -> u64 {
    let bytes = option(socket, linux::SOL_SOCKET as i32, linux::SO_COOKIE as i32);
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// The ways that are shut (RCV_SHUTDOWN 1, SEND_SHUTDOWN 2) in a state of TCP.
fn shut(state: u8) -> u8 {
    match state {
        // FIN-WAIT-1 and FIN-WAIT-2.
        4 | 5 => 2,
        // CLOSE-WAIT.
        8 => 1,
        // LAST-ACK and CLOSING.
        9 | 11 => 3,
        _ => 0,
    }
}
