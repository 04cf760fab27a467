// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP (RFC 768, RFC 1122 4.1): sockets found by port, queues of datagrams bounded in bytes.

use crate::families::{Families, addresses_overlap, are_of_one_family, is_group, is_v6};
use crate::hash::{Keyed, Secrets, Tuple};
use crate::icmp::{Error, Quoted, datagram_buffer};
use crate::ip::{Header, Ip, TTL};
use crate::multicast;
use crate::reuse::Reuse;
use crate::slab::{Id, Slab};
use crate::stack::{Shared, Wakes};
use crate::table::Table;
use crate::wire::{self, Ipv4, Sum};
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::{NoMemory, Reserve};
use api_fs::Timespec;
use api_netdev::{Buffer, Incoming};
use api_socket::filter::Filter;
use api_socket::reserved_ports::is_reserved;
use api_socket::settings::{self, local_ports};
use core::net::{Ipv4Addr, SocketAddrV4};

/// Largest payload.
pub const MAX_PAYLOAD: usize = 65_535 - wire::IPV4 - wire::UDP;
/// Bookkeeping counted for each datagram besides its buffer.
const OVERHEAD: usize = 256;
const MAX_ERRORS: usize = 16;

/// A datagram waiting to be read.
pub struct Datagram {
    pub from: SocketAddrV4,
    pub to: Ipv4Addr,
    pub ttl: u8,
    pub tos: u8,
    /// When it came in, of sockets that ask for it.
    pub stamp: Option<Timespec>,
    /// Datagrams the socket had lost by then.
    pub drops: u32,
    /// An empty one that was looked at (SO_PEEK_OFF), so that the next look passes it.
    pub was_seen: bool,
    pub data: Incoming,
}

impl Datagram {
    /// Bytes of payload.
    pub fn length(&self) -> usize {
        self.data.first.len() + self.data.more.iter().map(|b| b.len()).sum::<usize>()
    }

    fn memory(&self) -> usize {
        self.data.first.size() + self.data.more.iter().map(|b| b.size()).sum::<usize>() + OVERHEAD
    }
}

/// An error for IP_RECVERR: what was sent where, and what came back.
pub struct Failure {
    pub errno: Errno,
    pub kind: u8,
    pub code: u8,
    pub from: Ipv4Addr,
    pub to: SocketAddrV4,
    /// As much of the datagram as came back.
    pub data: Vec<u8>,
}

/// What one message has of its own (ip(7), ipv6(7), udp(7): control messages of sendmsg).
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    pub ttl: Option<u8>,
    pub tos: Option<u8>,
    pub source: Option<Ipv4Addr>,
    /// The interface that it leaves by; 0: that of its route.
    pub interface: u32,
    /// UDP_SEGMENT: bytes in each datagram.
    pub segment: Option<usize>,
}

/// Most datagrams of one send with UDP_SEGMENT (Linux' UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 128;

pub struct Socket {
    pub shared: Arc<Shared>,
    pub local: Option<SocketAddrV4>,
    /// What the any address means to it.
    pub families: Families,
    pub remote: Option<SocketAddrV4>,
    pub queue: VecDeque<Datagram>,
    memory: usize,
    pub receive_buffer: usize,
    /// SO_SNDBUF: kept, datagrams leave at once.
    pub send_buffer: usize,
    pub reuse: Reuse,
    /// SO_ATTACH_FILTER: what looks at datagrams first.
    pub filter: Option<Arc<Filter>>,
    /// SO_ATTACH_REUSEPORT_CBPF: what chooses among the sockets that share its port.
    selector: Option<Arc<Filter>>,
    /// It was bound with SO_REUSEPORT.
    is_grouped: bool,
    /// How many sockets had been bound before.
    bound_at: u64,
    pub broadcast: bool,
    pub error: Option<Errno>,
    /// IP_RECVERR, and IPV6_RECVERR.
    pub receive_errors: bool,
    pub receive_errors6: bool,
    /// SO_TIMESTAMP and its like: datagrams are stamped as they come.
    pub stamps: bool,
    pub failures: VecDeque<Failure>,
    /// IP_TTL, and IPV6_UNICAST_HOPS.
    pub ttl: u8,
    pub hops: u8,
    pub tos: u8,
    /// UDP_SEGMENT; 0: none.
    pub segment: usize,
    pub multicast: multicast::Choices,
    /// What bind(2) was told: without it, or its port, a disconnected socket has neither.
    pub asked: Option<SocketAddrV4>,
    pub read_shut: bool,
    pub write_shut: bool,
    pub drops: u32,
    /// UDP_CORK and MSG_MORE gather here.
    pub gathered: Vec<u8>,
}

impl Socket {
    /// The error that is to be told first, or `EPIPE` after shutdown(2).
    pub fn may_send(&mut self) -> Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None if self.write_shut => Err(EPIPE),
            None => Ok(()),
        }
    }

    pub fn poll(&self) -> Events {
        let mut events = Events::SENDABLE;
        events = events.with(Events::READABLE, !self.queue.is_empty() || self.read_shut);
        events = events.with(Events::RDHUP, self.read_shut);
        events = events.with(Events::HUP, self.read_shut && self.write_shut);
        events.with(Events::ERR, self.error.is_some() || !self.failures.is_empty())
    }

    pub fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.memory -= datagram.memory();
        Some(datagram)
    }

    /// A copy of the datagram that lies so many bytes behind the first one; what is left of these lies within it.
    pub fn copy_at(&mut self, offset: &mut usize) -> Result<Option<Datagram>> {
        for datagram in &mut self.queue {
            let length = datagram.length();
            if *offset >= length && (*offset > 0 || datagram.was_seen) {
                *offset -= length;
                continue;
            }
            datagram.was_seen |= length == 0;
            let data = copy(&datagram.data).ok_or(ENOBUFS)?;
            let Datagram { from, to, ttl, tos, stamp, drops, was_seen, .. } = *datagram;
            return Ok(Some(Datagram { from, to, ttl, tos, stamp, drops, was_seen, data }));
        }
        Ok(None)
    }

    /// The address that it is bound to and speaks from.
    fn own(&self, ip: &Ip) -> Option<Ipv4Addr> {
        self.local.and_then(|local| ip.speaking(*local.ip()))
    }

    /// The address that it sends with to there, where that is known: it decides which interface a multicast leaves by. A socket that
    /// had a peer of IPv6 keeps its address when it has one of IPv4, to which it does not speak from there.
    fn source_to(&self, own: Option<Ipv4Addr>, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        let chosen = self.multicast.source_to(destination).or(own);
        chosen.filter(|source| are_of_one_family(*source, destination))
    }

    /// Puts a datagram back that was only looked at.
    pub fn push_front(&mut self, datagram: Datagram) {
        self.memory += datagram.memory();
        self.queue.push_front(datagram);
    }
}

pub struct Udp {
    pub sockets: Slab<Socket>,
    ports: Table<u16, Vec<Id>>,
    secrets: Secrets,
    port_counter: u32,
    /// Counts what is bound: the last one of equals gets what comes.
    binds: u64,
}

impl Udp {
    pub fn new(secrets: Secrets) -> Udp {
        let ports = Table::new(Keyed::new(secrets.table));
        Udp { sockets: Slab::default(), ports, secrets, port_counter: 0, binds: 0 }
    }

    pub fn create(&mut self, shared: Arc<Shared>) -> Result<Id> {
        self.sockets.insert(Socket {
            shared,
            local: None,
            families: Families::V4,
            remote: None,
            queue: VecDeque::new(),
            memory: 0,
            receive_buffer: settings::RECEIVE_BUFFER[0].get() as usize,
            send_buffer: settings::SEND_BUFFER[0].get() as usize,
            reuse: Reuse::default(),
            filter: None,
            selector: None,
            is_grouped: false,
            bound_at: 0,
            broadcast: false,
            error: None,
            receive_errors: false,
            receive_errors6: false,
            stamps: false,
            failures: VecDeque::new(),
            ttl: TTL,
            hops: TTL,
            tos: 0,
            segment: 0,
            multicast: multicast::Choices::default(),
            asked: None,
            read_shut: false,
            write_shut: false,
            drops: 0,
            gathered: Vec::new(),
        })
    }

    fn socket(&mut self, id: Id) -> Result<&mut Socket> {
        self.sockets.get_mut(id).ok_or(EBADF)
    }

    pub fn bind(&mut self, id: Id, address: SocketAddrV4) -> Result<SocketAddrV4> {
        let socket = self.sockets.get(id).ok_or(EBADF)?;
        if socket.local.is_some() {
            return Err(EINVAL);
        }
        let port = match address.port() {
            0 => self.pick(*address.ip())?,
            port => {
                let taken = self.ports.get(&port).into_iter().flatten().any(|other| {
                    let Some(other) = self.sockets.get(*other) else { return false };
                    let Some(local) = other.local else { return false };
                    let overlap =
                        addresses_overlap((*local.ip(), other.families), (*address.ip(), socket.families));
                    let both_reuse = socket.reuse.address && other.reuse.address;
                    overlap && !both_reuse && !socket.reuse.shares_port(other.reuse)
                });
                if taken {
                    return Err(EADDRINUSE);
                }
                port
            }
        };
        let local = SocketAddrV4::new(*address.ip(), port);
        let ids = self.ports.get_or_insert_with(port, Vec::new)?;
        ids.reserve_fallibly(1).map_err(|_| ENOBUFS)?;
        ids.push(id);
        self.binds += 1;
        let bound_at = self.binds;
        let socket = self.socket(id)?;
        (socket.local, socket.bound_at) = (Some(local), bound_at);
        self.join_group(id);
        Ok(local)
    }

    /// Sockets that share the address of one of them and said so, in the order in which they came to the port.
    fn group(&self, id: Id) -> impl Iterator<Item = Id> {
        let port = self.sockets.get(id).and_then(|one| one.local).map(|local| local.port());
        let all = port.and_then(|port| self.ports.get(&port)).into_iter().flatten().copied();
        all.filter(move |other| self.are_same_group(id, *other))
    }

    fn are_same_group(&self, a: Id, b: Id) -> bool {
        self.sockets.get(a).zip(self.sockets.get(b)).is_some_and(|(a, b)| {
            a.is_grouped && b.is_grouped && (a.local, a.families) == (b.local, b.families)
        })
    }

    /// A socket was bound: it has the program of those that it shares the port with.
    fn join_group(&mut self, id: Id) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.is_grouped = socket.reuse.port;
        let other = self.group(id).find(|other| *other != id);
        if let Some(selector) = other.and_then(|other| self.sockets.get(other)).map(|s| s.selector.clone())
            && let Some(socket) = self.sockets.get_mut(id)
        {
            socket.selector = selector;
        }
    }

    /// Gives the group that a socket is in, or will be in, another program, or takes it away (Linux' reuseport_attach_prog).
    pub fn set_selector(&mut self, id: Id, program: Option<Arc<Filter>>) -> Result<()> {
        let socket = self.socket(id)?;
        let has_group = if socket.local.is_some() { socket.is_grouped } else { socket.reuse.port };
        match program {
            _ if !has_group => {
                return Err(if socket.reuse.port && program.is_none() { ENOENT } else { EINVAL });
            }
            None if socket.selector.is_none() => return Err(ENOENT),
            _ => socket.selector.clone_from(&program),
        }
        let Some(port) = socket.local.map(|local| local.port()) else { return Ok(()) };
        for at in 0..self.ports.get(&port).map_or(0, Vec::len) {
            let other = self.ports.get(&port).and_then(|ids| ids.get(at).copied());
            if let Some(other) = other.filter(|other| self.are_same_group(id, *other)) {
                self.socket(other)?.selector.clone_from(&program);
            }
        }
        Ok(())
    }

    fn pick(&mut self, address: Ipv4Addr) -> Result<u16> {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let seed = Tuple { local: SocketAddrV4::new(address, 0), remote: nowhere };
        // RFC 6056: random for every socket, DNS depends on it.
        self.port_counter = self.port_counter.wrapping_add(1);
        let offset = self.secrets.prf(7, &seed, u64::from(self.port_counter)) as u32;
        let (first, count) = local_ports();
        (0..count)
            .map(|i| first + (offset.wrapping_add(i) % count) as u16)
            .find(|port| !is_reserved(*port) && !self.ports.contains_key(port))
            .ok_or(EADDRINUSE)
    }

    /// Where a socket that sends or connects is bound; to any port, where it is not. `EAGAIN` when there is none.
    pub fn bind_if_unbound(&mut self, id: Id) -> Result<SocketAddrV4> {
        if let Some(local) = self.socket(id)?.local {
            return Ok(local);
        }
        let asked = self.socket(id)?.asked.map_or(Ipv4Addr::UNSPECIFIED, |asked| *asked.ip());
        self.bind(id, SocketAddrV4::new(asked, 0)).map_err(|_| EAGAIN)
    }

    /// connect(2) with AF_UNSPEC: what bind(2) was not told goes with the peer (Linux' __udp_disconnect).
    fn disconnect(&mut self, id: Id) -> Result<()> {
        let socket = self.socket(id)?;
        socket.remote = None;
        let Some(local) = socket.local else { return Ok(()) };
        match socket.asked {
            Some(asked) if asked.port() != 0 => {
                socket.local = Some(SocketAddrV4::new(*asked.ip(), local.port()));
            }
            _ => {
                socket.local = None;
                self.release(id, local.port());
            }
        }
        Ok(())
    }

    /// The port is no longer this socket's.
    fn release(&mut self, id: Id, port: u16) {
        if let Some(ids) = self.ports.get_mut(&port) {
            // The last one takes its place, as in Linux' groups.
            if let Some(at) = ids.iter().position(|other| *other == id) {
                ids.swap_remove(at);
            }
            if ids.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// connect(2): only remembers. `None` forgets.
    pub fn connect(&mut self, ip: &Ip, id: Id, remote: Option<SocketAddrV4>) -> Result<()> {
        let Some(remote) = remote else { return self.disconnect(id) };
        let own = self.socket(id)?.own(ip);
        let address = Ip::destination(*remote.ip(), own);
        let route = ip.route_from(self.socket(id)?.source_to(own, address), address)?;
        if ip.is_broadcast(address) && !self.socket(id)?.broadcast {
            return Err(EACCES);
        }
        let local = self.bind_if_unbound(id)?;
        let socket = self.socket(id)?;
        if local.ip().is_unspecified() {
            socket.local = Some(SocketAddrV4::new(route.source, local.port()));
        }
        socket.remote = Some(SocketAddrV4::new(address, remote.port()));
        Ok(())
    }

    /// Sends one datagram; the socket is bound first where it is not.
    pub fn send(
        &mut self,
        ip: &mut Ip,
        now: u64,
        id: Id,
        to: Option<SocketAddrV4>,
        choice: &Choice,
        bytes: &[u8],
    ) -> Result<()> {
        let segment = choice.segment.unwrap_or(self.socket(id)?.segment);
        if segment > 0 && bytes.len() > segment {
            if bytes.len().div_ceil(segment) > MAX_SEGMENTS {
                return Err(EINVAL);
            }
            return bytes.chunks(segment).try_for_each(|piece| self.send_one(ip, now, id, to, choice, piece));
        }
        self.send_one(ip, now, id, to, choice, bytes)
    }

    fn send_one(
        &mut self,
        ip: &mut Ip,
        now: u64,
        id: Id,
        to: Option<SocketAddrV4>,
        choice: &Choice,
        bytes: &[u8],
    ) -> Result<()> {
        let local = self.bind_if_unbound(id)?;
        let socket = self.socket(id)?;
        let is_named = to.is_some();
        let to = to.or(socket.remote).ok_or(EDESTADDRREQ)?;
        if bytes.len() > MAX_PAYLOAD {
            return Err(EMSGSIZE);
        }
        let own = socket.own(ip);
        let destination = Ip::destination(*to.ip(), own);
        let route = ip.route_by(socket.source_to(own, destination), destination, choice.interface)?;
        // Of a peer connect(2) asked that.
        if is_named && !socket.broadcast && ip.is_broadcast(destination) {
            return Err(EACCES);
        }
        socket.may_send()?;
        let source = match choice.source {
            Some(source) if ip.is_own(source) && are_of_one_family(source, destination) => source,
            Some(_) => return Err(EINVAL),
            None => own.filter(|own| are_of_one_family(*own, destination)).unwrap_or(route.source),
        };
        let usual = match () {
            () if is_group(destination) => socket.multicast.hops_to(destination),
            () if is_v6(destination) => socket.hops,
            () => socket.ttl,
        };
        let loops = socket.multicast.loops_to(destination);
        let (ttl, tos) = (choice.ttl.unwrap_or(usual), choice.tos.unwrap_or(socket.tos));
        let header = Header { source, destination, protocol: wire::PROTOCOL_UDP, tos, ttl };
        let mut head = datagram_buffer(ip, bytes.len() + wire::UDP).ok_or(ENOBUFS)?;
        let length = bytes.len() + wire::UDP;
        let udp = wire::Udp { source: local.port(), destination: to.port(), length, checksum: 0 };
        let room = head.extend(length).ok_or(ENOBUFS)?;
        udp.put(room);
        room[wire::UDP..].copy_from_slice(bytes);
        ip.counters.udp.out_datagrams += 1;
        ip.hear_too(loops, &route, &header, &head);
        match choice.interface {
            // The source may be another one than the route was asked for with.
            0 => ip.send_datagram(now, &header, head, Some(wire::UDP_CHECKSUM)),
            _ => ip.send_datagram_by(now, &route, &header, head, Some(wire::UDP_CHECKSUM)),
        }
        Ok(())
    }

    /// A datagram came in; `packet` begins with the UDP header. It comes back without that where nobody listens, and the sender is to
    /// be told.
    pub fn input(
        &mut self,
        ip: &mut Ip,
        header: &Ipv4,
        mut packet: Incoming,
        wakes: &mut Wakes,
    ) -> core::result::Result<(), Incoming> {
        let Some(udp) = unwrap(header, &mut packet) else {
            ip.statistics.bad_packets += 1;
            ip.counters.udp.in_errors += 1;
            ip.recycle_packet(packet);
            return Ok(());
        };
        let from = SocketAddrV4::new(header.source, udp.source);
        let to = SocketAddrV4::new(header.destination, udp.destination);
        let everybody = is_group(header.destination) || ip.is_broadcast(header.destination);
        let groups = everybody.then_some(&*ip);
        let mut front = [0; wire::UDP];
        udp.put(&mut front);
        let place = |selector: &Filter| crate::filter::answer(selector, ip, header, &front, &packet);
        let Ok(targets) = self.targets(from, to, groups, place) else {
            ip.recycle_packet(packet);
            return Ok(());
        };
        let Some((first, others)) = targets.split_first() else {
            if !everybody {
                ip.counters.udp.no_ports += 1;
                return Err(packet);
            }
            ip.recycle_packet(packet);
            return Ok(());
        };
        let (ttl, tos) = (header.ttl, header.tos);
        let datagram =
            |data| Datagram { from, to: *to.ip(), ttl, tos, stamp: None, drops: 0, was_seen: false, data };
        for id in others {
            if let Some(copy) = copy(&packet) {
                self.deliver(ip, *id, (header, &front), datagram(copy), wakes);
            }
        }
        self.deliver(ip, *first, (header, &front), datagram(packet), wakes);
        Ok(())
    }

    /// How well a socket matches a datagram, as Linux' compute_score orders it: not at all; or whether it is bound to that very address,
    /// connected to the sender, and of AF_INET. Of equals the one that was bound last matches best.
    fn score(&self, id: Id, from: SocketAddrV4, to: SocketAddrV4) -> Option<(bool, bool, bool, u64)> {
        let socket = self.sockets.get(id)?;
        let local = socket.local?;
        let is_exact = local.ip() == to.ip();
        let is_any = local.ip().is_unspecified() && socket.families.has(*to.ip());
        // A peer without a port is that address at any.
        let is_peer = socket
            .remote
            .is_some_and(|peer| peer.ip() == from.ip() && [0, from.port()].contains(&peer.port()));
        if !(is_exact || is_any) || !(is_peer || socket.remote.is_none()) {
            return None;
        }
        Some((is_exact, is_peer, socket.families == Families::V4, socket.bound_at))
    }

    /// The sockets a datagram is for: of a unicast one the best match. Without memory to say so the datagram is lost. `place` asks the
    /// program of a group which of them it is.
    fn targets(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        everybody: Option<&Ip>,
        place: impl FnOnce(&Filter) -> Option<u32>,
    ) -> core::result::Result<Vec<Id>, NoMemory> {
        let mut targets = Vec::new();
        if everybody.is_some_and(|ip| is_group(*to.ip()) && !ip.hears(*from.ip(), *to.ip())) {
            return Ok(targets);
        }
        let here = self.ports.get(&to.port()).into_iter().flatten().copied();
        let scored = here.filter_map(|id| Some((self.score(id, from, to)?, id)));
        if everybody.is_some() {
            for (_, id) in scored {
                targets.reserve_fallibly(1)?;
                targets.push(id);
            }
            return Ok(targets);
        }
        let Some(((_, is_peer, ..), best)) = scored.max_by_key(|(score, _)| *score) else {
            return Ok(targets);
        };
        targets.reserve_fallibly(1)?;
        targets.push(if is_peer { best } else { self.member_for(best, from, to, place) });
        Ok(targets)
    }

    /// Of the sockets that share a port with `id` by SO_REUSEPORT the one that gets the datagram: the one that their program names, or
    /// always the same one of a sender.
    fn member_for(
        &self,
        id: Id,
        from: SocketAddrV4,
        to: SocketAddrV4,
        place: impl FnOnce(&Filter) -> Option<u32>,
    ) -> Id {
        let members = || {
            let is_free = |other: &Id| self.sockets.get(*other).is_some_and(|socket| socket.remote.is_none());
            self.group(id).filter(is_free)
        };
        let count = members().count();
        if count < 2 {
            return id;
        }
        let selector = self.sockets.get(id).and_then(|socket| socket.selector.as_ref());
        let named = selector.and_then(|selector| members().nth(place(selector)? as usize));
        let tuple = Tuple { local: to, remote: from };
        let by_sender = || members().nth((self.secrets.prf(8, &tuple, 0) % count as u64) as usize);
        named.or_else(by_sender).unwrap_or(id)
    }

    /// `headers` are those that were taken off the datagram.
    fn deliver(
        &mut self,
        ip: &mut Ip,
        id: Id,
        headers: (&Ipv4, &[u8; wire::UDP]),
        mut datagram: Datagram,
        wakes: &mut Wakes,
    ) {
        let Some(socket) = self.sockets.get_mut(id) else { return ip.recycle_packet(datagram.data) };
        if let Some(filter) = &socket.filter {
            let (header, front) = headers;
            match crate::filter::keeps(filter, ip, header, front, &datagram.data, wire::UDP) {
                Some(kept) => crate::stack::cut(&mut datagram.data, kept.saturating_sub(wire::UDP)),
                None => {
                    socket.drops = socket.drops.wrapping_add(1);
                    ip.counters.udp.in_errors += 1;
                    return ip.recycle_packet(datagram.data);
                }
            }
        }
        let is_full = socket.memory + datagram.memory() > socket.receive_buffer.max(4096);
        if is_full || socket.queue.reserve_fallibly(1).is_err() || wakes.reserve_fallibly(1).is_err() {
            socket.drops = socket.drops.wrapping_add(1);
            ip.counters.udp.in_errors += 1;
            ip.counters.udp.receive_buffer_errors += 1;
            return ip.recycle_packet(datagram.data);
        }
        datagram.stamp = socket.stamps.then(Timespec::now);
        datagram.drops = socket.drops;
        socket.memory += datagram.memory();
        socket.queue.push_back(datagram);
        ip.counters.udp.in_datagrams += 1;
        wakes.push((socket.shared.clone(), Events::READABLE));
    }

    /// Some socket is bound to the port.
    #[cfg(feature = "ipv6")]
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// Addresses that sockets name.
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, look: &mut dyn FnMut(Ipv4Addr)) {
        for (_, socket) in self.sockets.iter() {
            [socket.local, socket.remote, socket.asked]
                .iter()
                .flatten()
                .for_each(|address| look(*address.ip()));
            for datagram in &socket.queue {
                look(*datagram.from.ip());
                look(datagram.to);
            }
            for failure in &socket.failures {
                look(failure.from);
                look(*failure.to.ip());
            }
            socket.multicast.each_address(look);
        }
    }

    /// An ICMP error about a datagram of ours.
    pub fn icmp_error(&mut self, quoted: &Quoted, wakes: &mut Wakes) {
        let Error::Unreachable(errno) = quoted.error else { return };
        let port = |at: usize| u16::from_be_bytes([quoted.transport[at], quoted.transport[at + 1]]);
        let local = SocketAddrV4::new(quoted.source, port(0));
        let to = SocketAddrV4::new(quoted.destination, port(2));
        for id in self.targets(to, local, None, |_| None).unwrap_or_default() {
            let Some(socket) = self.sockets.get_mut(id) else { continue };
            if wakes.reserve_fallibly(1).is_err() {
                continue;
            }
            let is_asked =
                if is_v6(quoted.destination) { socket.receive_errors6 } else { socket.receive_errors };
            let has_room = socket.failures.len() < MAX_ERRORS;
            if is_asked && has_room && socket.failures.reserve_fallibly(1).is_ok() {
                let (kind, code, from) = (quoted.kind, quoted.code, quoted.from);
                let data = quoted.data.clone();
                socket.failures.push_back(Failure { errno, kind, code, from, to, data });
            }
            // Linux tells connected sockets only, and of what is final, unless IP_RECVERR is set.
            if socket.remote.is_some() && quoted.is_final() || is_asked {
                socket.error = Some(errno);
                wakes.push((socket.shared.clone(), Events::ERR | Events::IN | Events::OUT));
            }
        }
    }

    pub fn close(&mut self, ip: &mut Ip, id: Id) {
        let Some(socket) = self.sockets.remove(id) else { return };
        if let Some(local) = socket.local {
            self.release(id, local.port());
        }
        ip.leave_groups(&socket.multicast);
        socket.queue.into_iter().for_each(|d| ip.recycle_packet(d.data));
    }
}

/// Takes the header off a datagram and cuts it to its length. `None`: damaged.
pub fn unwrap(header: &Ipv4, packet: &mut Incoming) -> Option<wire::Udp> {
    let udp = wire::Udp::parse(packet.first.bytes())?;
    let there = packet.first.len() + packet.more.iter().map(|b| b.len()).sum::<usize>();
    if udp.length > there {
        return None;
    }
    if !packet.checksum_valid && udp.checksum != 0 {
        let mut sum = Sum::pseudo(header.source, header.destination, wire::PROTOCOL_UDP, udp.length);
        let mut left = udp.length;
        for buffer in core::iter::once(&packet.first).chain(&packet.more) {
            let n = buffer.len().min(left);
            sum.add(&buffer.bytes()[..n]);
            left -= n;
        }
        if !matches!(sum.finish(), 0 | 0xffff) {
            return None;
        }
    }
    crate::stack::cut(packet, udp.length);
    packet.first.trim_front(wire::UDP);
    Some(udp)
}

fn copy(packet: &Incoming) -> Option<Incoming> {
    let length = packet.first.len() + packet.more.iter().map(|b| b.len()).sum::<usize>();
    let mut first = Buffer::new(length, 0)?;
    first.append(packet.first.bytes());
    packet.more.iter().for_each(|b| {
        first.append(b.bytes());
    });
    Some(Incoming { first, more: Vec::new(), checksum_valid: true })
}
