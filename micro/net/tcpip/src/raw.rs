// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that see packets below the transports: raw(7), and ICMP datagrams (icmp(7)), which only send echo requests
//! and only get the answers to them. Those of AF_INET6 see packets without the IP header (RFC 3542 3).

use crate::families::{are_of_one_family, is_group, is_v6};
use crate::icmp::{Error, Quoted, datagram_buffer};
use crate::ip::{Header, Ip, Route, TTL};
use crate::multicast;
use crate::slab::{Id, Slab};
use crate::stack::{Shared, Wakes};
use crate::udp::Choice;
use crate::wire::{self, Ipv4, checksum};
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Buffer;
use api_socket::filter::Filter;
use api_socket::settings;
use core::net::Ipv4Addr;

/// Packets that carry their own IP header when sent, and are never received (raw(7)).
pub const PROTOCOL_RAW: u8 = 255;
/// Bookkeeping counted for each packet besides its bytes.
const OVERHEAD: usize = 256;
const SHARED_INFO: usize = 320;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Type, code, checksum, identifier, sequence number.
const ECHO: usize = 8;
/// Type, code, checksum.
const ICMPV6_HEADER: usize = 4;
/// Where ICMPv6 has its checksum (RFC 4443 2.1).
const ICMPV6_CHECKSUM: usize = 2;
const IPV6: usize = 40;
/// What fits a packet inside the stack, which is IPv4's.
const MAX_PAYLOAD6: usize = 65_535 - IPV6;

/// A packet waiting to be read.
pub struct Packet {
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    pub ttl: u8,
    pub tos: u8,
    pub bytes: Vec<u8>,
}

impl Packet {
    fn memory(&self) -> usize {
        // As much as Linux counts: what holds the bytes and a struct skb_shared_info in its allocator, and a struct sk_buff.
        (self.bytes.len() + SHARED_INFO).next_power_of_two() + OVERHEAD
    }
}

pub struct Socket {
    pub shared: Arc<Shared>,
    pub protocol: u8,
    /// Of AF_INET6.
    pub is_v6: bool,
    /// IPV6_CHECKSUM: where a packet has its checksum, which is made and looked at here.
    pub checksum_at: Option<usize>,
    /// ICMP6_FILTER: a bit for each type that is not wanted.
    pub filter6: [u32; 8],
    /// An ICMP datagram socket's identifier, once it has one; `None` for raw sockets.
    pub ping: Option<u16>,
    pub local: Ipv4Addr,
    pub remote: Option<Ipv4Addr>,
    /// What connect(2) was told, which getpeername(2) tells.
    pub remote_port: u16,
    /// It had a peer once: a raw socket hears nothing without one from then on, and has no number (Linux' __udp_disconnect).
    pub is_deaf: bool,
    pub queue: VecDeque<Packet>,
    memory: usize,
    pub receive_buffer: usize,
    pub send_buffer: usize,
    pub ttl: u8,
    pub tos: u8,
    pub multicast: multicast::Choices,
    pub broadcast: bool,
    /// IP_HDRINCL.
    pub has_header: bool,
    /// ICMP_FILTER: a bit for each type that is not wanted.
    pub filter: u32,
    /// SO_ATTACH_FILTER: what looks at packets first.
    pub program: Option<Arc<Filter>>,
    pub read_shut: bool,
    pub write_shut: bool,
    /// What became of a packet that went to the peer, which SO_ERROR or a read tells.
    pub error: Option<Errno>,
}

impl Socket {
    pub fn poll(&self) -> Events {
        let mut events = Events::SENDABLE;
        events = events.with(Events::READABLE, !self.queue.is_empty() || self.read_shut);
        events = events.with(Events::RDHUP, self.read_shut);
        events = events.with(Events::ERR, self.error.is_some());
        events.with(Events::HUP, self.read_shut && self.write_shut)
    }

    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        self.memory -= packet.memory();
        Some(packet)
    }

    pub fn push_front(&mut self, packet: Packet) {
        self.memory += packet.memory();
        self.queue.push_front(packet);
    }

    /// A packet of IPv6 has the checksum that the socket asks for.
    fn is_intact(&self, ip: &Ip, header: &Ipv4, payload: &[u8], is_trusted: bool) -> bool {
        let mut sum = ip.pseudo6(header.source, header.destination, self.protocol, payload.len());
        self.checksum_at.is_none() || is_trusted || matches!(sum.add(payload).finish(), 0 | 0xffff)
    }

    fn wants(&self, ip: &Ip, header: &Ipv4, payload: &[u8], is_trusted: bool) -> bool {
        let addressed = (self.local.is_unspecified() || self.local == header.destination)
            && self.remote.is_none_or(|remote| remote == header.source);
        let is_v6 = is_v6(header.destination);
        let addressed = addressed && !self.is_deaf;
        if !addressed || header.protocol != self.protocol || is_v6 != self.is_v6 {
            return false;
        }
        let kind = payload.first().copied();
        match self.ping {
            Some(id) => kind == Some(ECHO_REPLY) && payload.get(4..6) == Some(&id.to_be_bytes()) && id != 0,
            // What is too short for a header of its own is nobody's.
            None if is_v6 && header.protocol == wire::PROTOCOL_ICMPV6 => kind.is_some_and(|kind| {
                payload.len() >= ICMPV6_HEADER
                    && self.filter6[usize::from(kind / 32)] >> (kind % 32) & 1 == 0
                    && self.is_intact(ip, header, payload, is_trusted)
            }),
            None if is_v6 => self.is_intact(ip, header, payload, is_trusted),
            None if header.protocol == wire::PROTOCOL_ICMP => {
                payload.len() >= ECHO && kind.is_some_and(|kind| kind >= 32 || self.filter >> kind & 1 == 0)
            }
            None => true,
        }
    }
}

/// All of them; mostly none.
#[derive(Default)]
pub struct Raw {
    pub sockets: Slab<Socket>,
    /// Identifiers are given out in turn.
    next_id: u16,
}

impl Raw {
    pub fn create(&mut self, shared: Arc<Shared>, protocol: u8, is_ping: bool, is_v6: bool) -> Result<Id> {
        let is_icmp6 = is_v6 && protocol == wire::PROTOCOL_ICMPV6;
        self.sockets.insert(Socket {
            shared,
            protocol,
            is_v6,
            checksum_at: is_icmp6.then_some(ICMPV6_CHECKSUM),
            filter6: [0; 8],
            ping: is_ping.then_some(0),
            local: Ipv4Addr::UNSPECIFIED,
            remote: None,
            remote_port: 0,
            is_deaf: false,
            queue: VecDeque::new(),
            memory: 0,
            receive_buffer: settings::RECEIVE_BUFFER[0].get() as usize,
            send_buffer: settings::SEND_BUFFER[0].get() as usize,
            ttl: TTL,
            tos: 0,
            multicast: multicast::Choices::default(),
            broadcast: false,
            has_header: protocol == PROTOCOL_RAW,
            filter: 0,
            program: None,
            read_shut: false,
            write_shut: false,
            error: None,
        })
    }

    pub fn close(&mut self, ip: &mut Ip, id: Id) {
        if let Some(socket) = self.sockets.remove(id) {
            ip.leave_groups(&socket.multicast);
        }
    }

    /// Addresses that sockets name.
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, look: &mut dyn FnMut(Ipv4Addr)) {
        for (_, socket) in self.sockets.iter() {
            look(socket.local);
            socket.remote.iter().for_each(|remote| look(*remote));
            for packet in &socket.queue {
                look(packet.from);
                look(packet.to);
            }
            socket.multicast.each_address(look);
        }
    }

    /// Raw sockets, those of echo requests included.
    pub fn count(&self) -> usize {
        self.sockets.iter().count()
    }

    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Gives an ICMP datagram socket its identifier: the wanted one, or with 0 a free one. `EADDRINUSE`.
    pub fn identify(&mut self, id: Id, wanted: u16) -> Result<()> {
        let is_taken = |number: u16| self.sockets.iter().any(|(_, s)| s.ping == Some(number));
        let number = match wanted {
            0 => {
                let start = self.next_id;
                let free = (1..=u16::MAX).map(|n| start.wrapping_add(n)).find(|n| *n != 0 && !is_taken(*n));
                free.ok_or(EADDRINUSE)?
            }
            wanted if is_taken(wanted) => return Err(EADDRINUSE),
            wanted => wanted,
        };
        if wanted == 0 {
            self.next_id = number;
        }
        self.sockets.get_mut(id).ok_or(EBADF)?.ping = Some(number);
        Ok(())
    }

    /// A packet came in: every socket that wants it gets a copy. False when nobody did. `is_trusted`: the checksum of its transport
    /// was looked at, or was never made.
    pub fn input(
        &mut self,
        ip: &Ip,
        header: &Ipv4,
        payload: &[u8],
        is_trusted: bool,
        wakes: &mut Wakes,
    ) -> bool {
        let mut is_wanted = false;
        if is_group(header.destination) && !ip.hears(header.source, header.destination) {
            return false;
        }
        for socket in self.sockets.values_mut() {
            if !socket.wants(ip, header, payload, is_trusted) {
                continue;
            }
            is_wanted = true;
            let mut bytes = Vec::new();
            let with_header = if socket.ping.is_none() && !socket.is_v6 { wire::IPV4 } else { 0 };
            if bytes.reserve_exact_fallibly(with_header + payload.len()).is_err() {
                continue;
            }
            bytes.resize(with_header, 0);
            if with_header > 0 {
                // Options are not kept.
                Ipv4 { header: wire::IPV4, total: wire::IPV4 + payload.len(), ..*header }.put(&mut bytes);
            }
            bytes.extend_from_slice(payload);
            if let Some(program) = &socket.program {
                match crate::filter::keeps_raw(program, ip, header, &bytes, with_header == 0) {
                    Some(kept) => bytes.truncate(kept),
                    None => continue,
                }
            }
            let (from, to, ttl, tos) = (header.source, header.destination, header.ttl, header.tos);
            let packet = Packet { from, to, ttl, tos, bytes };
            // One packet may go beyond it, as on Linux.
            let fits = socket.memory < socket.receive_buffer;
            if fits && socket.queue.reserve_fallibly(1).is_ok() && wakes.reserve_fallibly(1).is_ok() {
                socket.memory += packet.memory();
                socket.queue.push_back(packet);
                wakes.push((socket.shared.clone(), Events::READABLE));
            }
        }
        is_wanted
    }

    /// An ICMP error about a packet of ours: those that are connected to where it went hear of it.
    pub fn icmp_error(&mut self, quoted: &Quoted, wakes: &mut Wakes) {
        let Error::Unreachable(errno) = quoted.error else { return };
        for socket in self.sockets.values_mut() {
            let is_its = socket.ping.is_none()
                && socket.protocol == quoted.protocol
                && socket.remote == Some(quoted.destination)
                && [Ipv4Addr::UNSPECIFIED, quoted.source].contains(&socket.local);
            if is_its && quoted.is_final() && wakes.reserve_fallibly(1).is_ok() {
                socket.error = Some(errno);
                wakes.push((socket.shared.clone(), Events::ERR | Events::IN | Events::OUT));
            }
        }
    }

    /// Sends one packet. Of `choice` the size of segments means nothing here.
    pub fn send(
        &mut self,
        ip: &mut Ip,
        now: u64,
        id: Id,
        to: Option<Ipv4Addr>,
        choice: &Choice,
        bytes: &[u8],
    ) -> Result<()> {
        let socket = self.sockets.get(id).ok_or(EBADF)?;
        let to = to.or(socket.remote).ok_or(EDESTADDRREQ)?;
        if socket.is_v6 && !is_v6(to) {
            // A peer of IPv4 is taken, and not reached.
            return Err(ENETUNREACH);
        }
        // Linux reads type and code of a message before it looks for a way.
        let is_icmp = matches!(socket.protocol, wire::PROTOCOL_ICMP | wire::PROTOCOL_ICMPV6);
        if is_icmp && socket.ping.is_none() && !socket.has_header && bytes.len() < 2 {
            return Err(EFAULT);
        }
        let bound = ip.speaking(socket.local);
        let to = Ip::destination(to, bound);
        let route = ip.route_by(socket.multicast.source_to(to).or(bound), to, choice.interface)?;
        if ip.is_broadcast(to) && !socket.broadcast {
            return Err(EACCES);
        }
        let source = match choice.source {
            Some(source) if ip.is_own(source) && are_of_one_family(source, to) => source,
            Some(_) => return Err(EINVAL),
            None => bound.unwrap_or(route.source),
        };
        let usual = if is_group(to) { socket.multicast.hops_to(to) } else { socket.ttl };
        let mut header = Header {
            source,
            destination: to,
            protocol: socket.protocol,
            tos: choice.tos.unwrap_or(socket.tos),
            ttl: choice.ttl.unwrap_or(usual),
        };
        if socket.ping.is_some() {
            return self.send_echo(ip, now, id, &header, bytes);
        }
        if socket.write_shut && socket.has_header {
            // Linux asks here alone.
            return Err(EPIPE);
        }
        if socket.is_v6 {
            return self.send6(ip, now, id, &route, &header, bytes);
        }
        let mut payload = bytes;
        if socket.has_header {
            if bytes.len() > route.mtu {
                return Err(EMSGSIZE);
            }
            let length = bytes.first().map_or(0, |first| usize::from(first & 15) * 4);
            if bytes.len() < wire::IPV4 || length < wire::IPV4 || length > bytes.len() {
                return Err(EINVAL);
            }
            let address =
                |at: usize| Ipv4Addr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let given = address(12);
            // What stands for IPv6 inside is no address of IPv4.
            if is_v6(given) || is_v6(address(16)) {
                return Err(EINVAL);
            }
            header = Header {
                source: if given.is_unspecified() { source } else { given },
                destination: address(16),
                protocol: bytes[9],
                tos: bytes[1],
                ttl: bytes[8],
            };
            payload = &bytes[length..];
        }
        let head = buffer_of(ip, payload)?;
        ip.hear_too(socket.multicast.loops_to(to), &route, &header, &head);
        // It goes to where it was told to go, whatever a header of the program's says.
        ip.send_datagram_by(now, &route, &header, head, None);
        Ok(())
    }

    /// Sends one packet of IPv6 with its checksum (IPV6_CHECKSUM), or behind a header of the program's (IPV6_HDRINCL).
    fn send6(
        &mut self,
        ip: &mut Ip,
        now: u64,
        id: Id,
        route: &Route,
        header: &Header,
        bytes: &[u8],
    ) -> Result<()> {
        let socket = self.sockets.get(id).ok_or(EBADF)?;
        if !is_v6(header.destination) || !is_v6(header.source) {
            return Err(ENETUNREACH);
        }
        if bytes.len() > MAX_PAYLOAD6 {
            return Err(EMSGSIZE);
        }
        if socket.has_header {
            let (front, payload) = bytes.split_at_checked(IPV6).ok_or(EINVAL)?;
            let length = usize::from(u16::from_be_bytes([front[4], front[5]]));
            // Whom it is from and where it goes is what the socket's own addresses say, or it is lost.
            let address = |number| ip.address_of(number).map(|of| of.address.octets());
            let is_ours = front[0] >> 4 == 6
                && address(header.source).is_some_and(|own| front[8..24] == own)
                && address(header.destination).is_some_and(|to| front[24..40] == to);
            // A header that leads nowhere is not known before the packet has been sent.
            let Some(payload) = payload.get(..length).filter(|_| is_ours) else { return Ok(()) };
            let tos = front[0] << 4 | front[1] >> 4;
            return transmit(ip, now, &Header { protocol: front[6], ttl: front[7], tos, ..*header }, payload);
        }
        let loops = socket.multicast.loops_to(header.destination);
        let Some(at) = socket.checksum_at else { return transmit_by(ip, now, route, loops, header, bytes) };
        let mut message = Vec::new();
        message.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
        message.extend_from_slice(bytes);
        message.get_mut(at..at + 2).ok_or(EINVAL)?.fill(0);
        let mut sum = ip.pseudo6(header.source, header.destination, socket.protocol, message.len());
        let sum = match sum.add(&message).finish() {
            // RFC 8200 8.1: a packet of UDP has one in any case.
            0 if socket.protocol == wire::PROTOCOL_UDP => 0xffff,
            sum => sum,
        };
        message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        transmit_by(ip, now, route, loops, header, &message)
    }

    /// An echo request with the socket's identifier; the checksum is ours to make.
    fn send_echo(&mut self, ip: &mut Ip, now: u64, id: Id, header: &Header, bytes: &[u8]) -> Result<()> {
        if bytes.len() < ECHO || bytes[0] != ECHO_REQUEST || bytes[1] != 0 {
            return Err(EINVAL);
        }
        if self.sockets.get(id).is_some_and(|s| s.ping == Some(0)) {
            self.identify(id, 0)?;
        }
        let number = self.sockets.get(id).and_then(|s| s.ping).unwrap_or(0);
        let mut message = Vec::new();
        message.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
        message.extend_from_slice(bytes);
        message[2..4].fill(0);
        message[4..6].copy_from_slice(&number.to_be_bytes());
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        transmit(ip, now, header, &message)?;
        ip.counters.icmp.out_messages += 1;
        ip.counters.icmp.out_echos += 1;
        Ok(())
    }
}

fn buffer_of(ip: &mut Ip, payload: &[u8]) -> Result<Buffer> {
    let mut head = datagram_buffer(ip, payload.len()).ok_or(ENOBUFS)?;
    if head.append(payload) { Ok(head) } else { Err(ENOBUFS) }
}

fn transmit_by(
    ip: &mut Ip,
    now: u64,
    route: &Route,
    loops: bool,
    header: &Header,
    payload: &[u8],
) -> Result<()> {
    let head = buffer_of(ip, payload)?;
    ip.hear_too(loops, route, header, &head);
    ip.send_datagram_by(now, route, header, head, None);
    Ok(())
}

fn transmit(ip: &mut Ip, now: u64, header: &Header, payload: &[u8]) -> Result<()> {
    let head = buffer_of(ip, payload)?;
    ip.send_datagram(now, header, head, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(protocol: u8) -> Ipv4 {
        Ipv4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            protocol,
            ttl: 64,
            tos: 0,
            id: 1,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            header: wire::IPV4,
            total: wire::IPV4 + 8,
        }
    }

    fn ip() -> Ip {
        Ip::new(crate::hash::Keyed::new(1))
    }

    #[test]
    fn a_raw_socket_gets_what_its_protocol_and_filter_say() {
        let (mut raw, mut wakes, ip) = (Raw::default(), Wakes::new(), ip());
        let icmp = raw.create(Shared::new(), wire::PROTOCOL_ICMP, false, false).unwrap();
        raw.sockets.get_mut(icmp).unwrap().filter = 1 << ECHO_REQUEST;
        assert!(!raw.input(
            &ip,
            &header(wire::PROTOCOL_ICMP),
            &[ECHO_REQUEST, 0, 0, 0, 0, 0, 0, 0],
            true,
            &mut wakes
        ));
        assert!(!raw.input(&ip, &header(17), &[0; 8], true, &mut wakes));
        assert!(raw.input(
            &ip,
            &header(wire::PROTOCOL_ICMP),
            &[ECHO_REPLY, 0, 0, 0, 0, 0, 0, 0],
            true,
            &mut wakes
        ));
        let packet = raw.sockets.get_mut(icmp).unwrap().pop().unwrap();
        assert_eq!((packet.bytes.len(), packet.bytes[0], packet.bytes[9]), (28, 0x45, 1));
        assert_eq!(checksum(&packet.bytes[..20]), 0);
    }

    #[test]
    fn an_icmp_datagram_socket_gets_the_answers_to_its_identifier() {
        let (mut raw, mut wakes, ip) = (Raw::default(), Wakes::new(), ip());
        let ping = raw.create(Shared::new(), wire::PROTOCOL_ICMP, true, false).unwrap();
        raw.identify(ping, 0x1234).unwrap();
        assert_eq!(raw.identify(ping, 0x1234), Err(EADDRINUSE));
        assert!(!raw.input(&ip, &header(1), &[ECHO_REPLY, 0, 0, 0, 0x12, 0x35, 0, 1], true, &mut wakes));
        assert!(raw.input(&ip, &header(1), &[ECHO_REPLY, 0, 0, 0, 0x12, 0x34, 0, 1], true, &mut wakes));
        assert_eq!(raw.sockets.get_mut(ping).unwrap().pop().unwrap().bytes.len(), 8);
    }
}
