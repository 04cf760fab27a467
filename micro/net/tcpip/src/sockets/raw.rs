// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_INET and AF_INET6: SOCK_RAW; and SOCK_DGRAM with IPPROTO_ICMP.

use super::domain::{Call, Domain};
use super::ioctl;
use super::ipv6::{self, IPPROTO_IPV6};
use super::kept::{IPPROTO_IP, Kept};
use super::membership::{self, Of};
use super::membership6;
use super::message;
use super::options::{int_or_byte, time_to_live};
use crate::families::{Families, LOOPBACK6, are_of_one_family};
use crate::ip::Ip;
use crate::multicast::{ETHERNET, LOOPBACK};
use crate::raw::Socket as RawEntry;
use crate::slab::Id;
use crate::stack::{Net, Shared};
use crate::wire;
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::options::{Common, buffer_size, from_int, int};
use api_socket::settings;
use api_socket::{Address, Caller, Control, Received, Sending, Shutdown, Socket, Type};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};

/// SOL_RAW and its one option (raw(7)).
const SOL_RAW: u32 = 255;
const ICMP_FILTER: u32 = 1;
/// The same of AF_INET6 (RFC 3542 3), and SOL_ICMPV6 with its one option.
const IPV6_CHECKSUM: u32 = 7;
const IPV6_HDRINCL: u32 = 36;
const SOL_ICMPV6: u32 = 58;
const ICMP6_FILTER: u32 = 1;
const IPPROTO_RAW: u16 = 255;
/// Largest message, header included.
const MAX_MESSAGE: usize = 65_535;

/// What recvmsg(2) adds to each packet.
#[derive(Clone, Copy, Default)]
struct Wanted {
    packet_info: bool,
    ttl: bool,
    tos: bool,
}

pub struct RawSocket {
    net: Arc<Net>,
    id: Id,
    shared: Arc<Shared>,
    protocol: u8,
    is_ping: bool,
    domain: Domain,
    ipv6: SpinLock<ipv6::Options>,
    common: SpinLock<Common>,
    kept: SpinLock<Kept>,
    wanted: SpinLock<Wanted>,
    closed: AtomicBool,
}

impl RawSocket {
    pub fn new(net: Arc<Net>, protocol: u8, is_ping: bool, domain: Domain) -> Result<Arc<RawSocket>> {
        let shared = Shared::new();
        let is_v6 = domain == Domain::V6;
        let id = net.look(|s| s.raw.create(shared.clone(), protocol, is_ping, is_v6))?;
        Ok(Arc::new(RawSocket {
            net,
            id,
            shared,
            protocol,
            is_ping,
            domain,
            ipv6: SpinLock::default(),
            common: SpinLock::default(),
            kept: SpinLock::default(),
            wanted: SpinLock::default(),
            closed: AtomicBool::new(false),
        }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut RawEntry) -> Result<R>) -> Result<R> {
        self.net.look(|s| f(s.raw.sockets.get_mut(self.id).ok_or(EBADF)?))
    }

    fn show(&self, address: Ipv4Addr, port: u16) -> Address {
        let families = if self.domain == Domain::V6 { Families::V6 } else { Families::V4 };
        self.domain.show(&self.net, SocketAddrV4::new(address, port), families)
    }

    /// Of AF_INET6 only addresses of IPv6 are destinations, and connect(2) takes mapped ones without a use for them.
    fn destination(&self, address: &Address, connects: bool) -> Result<SocketAddrV4> {
        let local = self.with(|s| Ok(s.local))?;
        if self.domain == Domain::V4 {
            let call = if connects { Call::Connect } else { Call::Send };
            return self.domain.destination(&self.net, address, Families::V4, local, call);
        }
        if connects && address.family().is_some_and(|family| family != Address::INET6) {
            return Err(EAFNOSUPPORT);
        }
        if connects {
            self.domain.check_scope(address)?;
        }
        let families = if connects { Families::BOTH } else { Families::V6 };
        self.domain.destination(&self.net, address, families, local, Call::ConnectStream)
    }

    /// Where to send to. The port of an address of IPv6 is the protocol, or nothing (Linux' rawv6_sendmsg).
    fn receiver(&self, address: &Address) -> Result<Ipv4Addr> {
        if self.domain == Domain::V4 {
            return self.destination(address, false).map(|to| *to.ip());
        }
        // No family is taken for the right one.
        let address = match address.family() {
            Some(Address::UNSPEC) => &Address::new(Address::INET6, address.rest()),
            _ => address,
        };
        let (port, protocol) = (address.as_v6()?.port, u16::from(self.protocol));
        if ![0, protocol].contains(&port) && protocol != IPPROTO_RAW || port > 255 {
            return Err(EINVAL);
        }
        self.destination(address, false).map(|to| *to.ip())
    }

    /// The address for bind(2) of AF_INET, whose family a raw socket does not look at.
    fn bindable4(&self, address: &Address) -> Result<SocketAddrV4> {
        let anywhere = self.kept.lock().binds_anywhere();
        let address = match self.is_ping {
            true => address,
            false if address.bytes().len() < 2 => return Err(EINVAL),
            false => &Address::new(Address::INET, address.rest()),
        };
        Ok(Domain::V4.bindable(&self.net, address, Families::V4, anywhere, false)?.0)
    }

    /// The address for bind(2) of AF_INET6.
    fn bindable6(&self, address: &Address) -> Result<Ipv4Addr> {
        // A family that is not AF_INET6 is one more thing that is wrong with the address.
        let v6 = address.as_v6().map_err(|_| EINVAL)?;
        if Ipv6Addr::from(v6.address).to_ipv4_mapped().is_some() {
            return Err(EADDRNOTAVAIL);
        }
        self.with(|s| if s.remote.is_some() { Err(EINVAL) } else { Ok(()) })?;
        let (address, _) = self.domain.bindable(&self.net, address, Families::V6, false, false)?;
        Ok(*address.ip())
    }

    fn set_ipv6(&self, level: u32, name: u32, value: &[u8]) -> Result<()> {
        match name {
            IPV6_CHECKSUM if level == IPPROTO_IPV6 && self.protocol == wire::PROTOCOL_ICMPV6 => Err(EINVAL),
            IPV6_CHECKSUM => match int(value)? {
                n if n > 0 && n % 2 == 1 => Err(EINVAL),
                n => self.with(|s| {
                    s.checksum_at = usize::try_from(n).ok();
                    Ok(())
                }),
            },
            IPV6_HDRINCL => self.with(|s| int(value).map(|n| s.has_header = n != 0)),
            _ if level != IPPROTO_IPV6 => Err(ENOPROTOOPT),
            // It has its number from the beginning, and with that what it is of.
            ipv6::IPV6_V6ONLY => Err(EINVAL),
            ipv6::IPV6_UNICAST_HOPS => self.with(|s| ipv6::hops(value).map(|n| s.ttl = n)),
            ipv6::IPV6_TCLASS => self.with(|s| ipv6::traffic_class(value).map(|n| s.tos = n)),
            ipv6::IPV6_ADDRFORM => Err(ENOPROTOOPT),
            _ => match membership6::set(&self.net, Of::Raw(self.id), name, value) {
                Err(ENOPROTOOPT) => self.ipv6.lock().keep(name, value),
                Ok(()) if ipv6::is_kept(name) => self.ipv6.lock().keep(name, value),
                done => done,
            },
        }
    }

    fn get_ipv6(&self, level: u32, name: u32) -> Result<Vec<u8>> {
        match name {
            IPV6_CHECKSUM => self.with(|s| Ok(from_int(s.checksum_at.map_or(-1, |at| at as i64)))),
            IPV6_HDRINCL => self.with(|s| Ok(from_int(s.has_header))),
            _ if level != IPPROTO_IPV6 => Err(ENOPROTOOPT),
            ipv6::IPV6_V6ONLY => Ok(from_int(0)),
            ipv6::IPV6_UNICAST_HOPS => self.with(|s| Ok(from_int(s.ttl))),
            ipv6::IPV6_TCLASS => self.with(|s| Ok(from_int(s.tos))),
            _ => self.ipv6.lock().value(name),
        }
    }

    /// ICMP6_FILTER (RFC 3542 3.2), of which a part may be set.
    fn set_filter6(&self, name: u32, value: &[u8]) -> Result<()> {
        match name {
            _ if self.protocol != wire::PROTOCOL_ICMPV6 => Err(EOPNOTSUPP),
            ICMP6_FILTER => self.with(|s| {
                for (word, bytes) in s.filter6.iter_mut().zip(value.as_chunks().0) {
                    *word = u32::from_ne_bytes(*bytes);
                }
                Ok(())
            }),
            _ => Err(ENOPROTOOPT),
        }
    }

    fn filter6(&self, name: u32) -> Result<Vec<u8>> {
        match name {
            _ if self.protocol != wire::PROTOCOL_ICMPV6 => Err(EOPNOTSUPP),
            ICMP6_FILTER => self.with(|s| Ok(s.filter6.iter().flat_map(|word| word.to_ne_bytes()).collect())),
            _ => Err(ENOPROTOOPT),
        }
    }

    /// connect(2) with AF_UNSPEC, which takes back what bind(2) was told as well.
    fn disconnect(&self) -> Result<()> {
        self.with(|s| {
            (s.remote, s.remote_port, s.local) = (None, 0, Ipv4Addr::UNSPECIFIED);
            s.is_deaf |= s.ping.is_none();
            Ok(())
        })
    }

    /// What recvmsg(2) adds to a packet of IPv6 (RFC 3542 6).
    fn control6(&self, packet: &crate::raw::Packet) -> Vec<Control> {
        let ipv6 = self.ipv6.lock();
        let mut control = Vec::new();
        let mut add = |wanted: u32, kind: u32, data: Vec<u8>| {
            if ipv6.wants(wanted) {
                control.push(Control::Other { level: IPPROTO_IPV6 as i32, kind: kind as i32, data });
            }
        };
        let index = if packet.to == LOOPBACK6 { LOOPBACK } else { ETHERNET };
        let known = self.net.look(|s| s.ip.address_of(packet.to));
        let own = known.map_or([0; 16], |of| of.address.octets());
        let information = [&own[..], &index.to_ne_bytes()].concat();
        add(ipv6::IPV6_RECVPKTINFO, ipv6::IPV6_PKTINFO, information.clone());
        add(ipv6::IPV6_RECVHOPLIMIT, ipv6::IPV6_HOPLIMIT, from_int(packet.ttl));
        add(ipv6::IPV6_RECVTCLASS, ipv6::IPV6_TCLASS, from_int(packet.tos));
        add(ipv6::IPV6_2292PKTINFO, ipv6::IPV6_2292PKTINFO, information);
        add(ipv6::IPV6_2292HOPLIMIT, ipv6::IPV6_2292HOPLIMIT, from_int(packet.ttl));
        control
    }

    fn control(&self, packet: &crate::raw::Packet) -> Vec<Control> {
        if self.domain == Domain::V6 {
            return self.control6(packet);
        }
        let wanted = *self.wanted.lock();
        let mut control = Vec::new();
        let mut add = |wanted: bool, kind: u32, data: Vec<u8>| {
            if wanted {
                control.push(Control::Other { level: IPPROTO_IP as i32, kind: kind as i32, data });
            }
        };
        let index: i32 = if packet.to.is_loopback() { 1 } else { 2 };
        let to = packet.to.octets();
        add(wanted.packet_info, linux::IP_PKTINFO, [index.to_ne_bytes(), to, to].concat());
        add(wanted.ttl, linux::IP_TTL, from_int(packet.ttl));
        add(wanted.tos, linux::IP_TOS, Vec::from([packet.tos]));
        control
    }
}

impl Socket for RawSocket {
    fn family(&self) -> u16 {
        self.domain.number()
    }

    fn socket_type(&self) -> Type {
        if self.is_ping { Type::Datagram } else { Type::Raw }
    }

    fn protocol(&self) -> u32 {
        self.protocol.into()
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        if self.domain == Domain::V6 {
            let address = self.bindable6(address)?;
            return self.with(|s| {
                s.local = address;
                Ok(())
            });
        }
        if !self.is_ping && self.with(|s| Ok(s.remote.is_some()))? {
            return Err(EINVAL);
        }
        let address = self.bindable4(address)?;
        self.net.look(|s| {
            if self.is_ping {
                if s.raw.sockets.get(self.id).is_some_and(|socket| socket.ping != Some(0)) {
                    return Err(EINVAL);
                }
                s.raw.identify(self.id, address.port())?;
            }
            s.raw.sockets.get_mut(self.id).ok_or(EBADF)?.local = *address.ip();
            Ok(())
        })
    }

    fn connect(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let remote = match address.family() {
            None => return Err(EINVAL),
            Some(Address::UNSPEC) => return self.disconnect(),
            Some(_) => self.destination(address, true)?,
        };
        self.net.look(|s| {
            let socket = s.raw.sockets.get_mut(self.id).ok_or(EBADF)?;
            let own = s.ip.speaking(socket.local);
            let to = Ip::destination(*remote.ip(), own);
            let route = s.ip.route_from(own.filter(|own| are_of_one_family(*own, to)), to)?;
            if s.ip.is_broadcast(to) && !socket.broadcast {
                return Err(EACCES);
            }
            if socket.local.is_unspecified() {
                socket.local = route.source;
            }
            (socket.remote, socket.remote_port) = (Some(to), remote.port());
            Ok(())
        })
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let connected = self.with(|s| {
            s.read_shut |= how.reads();
            s.write_shut |= how.writes();
            Ok(s.remote.is_some())
        })?;
        // Without a peer it counts all the same, and whoever waits finds out (Linux).
        self.shared.queue.wake_all(Events::IN | Events::OUT | Events::RDHUP | Events::HUP);
        if connected { Ok(()) } else { Err(ENOTCONN) }
    }

    /// The port is the protocol's number, or the identifier.
    fn local_address(&self) -> Result<Address> {
        let number = |s: &RawEntry| if s.is_deaf { 0 } else { s.ping.unwrap_or(self.protocol.into()) };
        let (local, port) = self.with(|s| Ok((s.local, number(s))))?;
        Ok(self.show(local, port))
    }

    fn peer_address(&self) -> Result<Address> {
        // A peer without a port is none (Linux' inet_getname).
        let port = |s: &RawEntry| Some(s.remote_port).filter(|port| *port != 0);
        let (remote, port) = self.with(|s| s.remote.zip(port(s)).ok_or(ENOTCONN))?;
        Ok(self.show(remote, port))
    }

    fn send(&self, _caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let length = from.remaining();
        if length > MAX_MESSAGE {
            return Err(EMSGSIZE);
        }
        if message.flags & linux::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        // An address of no bytes is none to a raw socket of IPv4.
        let is_none = |to: &&Address| self.domain == Domain::V4 && !self.is_ping && to.bytes().is_empty();
        let to = message.to.as_ref().filter(|to| !is_none(to));
        let to = to.map(|to| self.receiver(to)).transpose()?;
        let bound = self.common.lock().interface();
        let number_of = |to, scope| self.net.number_of(to, scope);
        let choice = message::choice(&number_of, &message.control, self.domain, bound)?;
        let bytes = from.take_vec(length)?;
        if bytes.len() < length {
            return Err(EFAULT);
        }
        self.net.act(|s, now| s.raw.send(&mut s.ip, now, self.id, to, &choice, &bytes))?;
        Ok(length)
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if flags & linux::MSG_ERRQUEUE != 0 {
            return Err(EAGAIN);
        }
        let packet = self.with(|s| match s.error.take().map_or(Ok(s.pop()), Err)? {
            Some(packet) => Ok(Some(packet)),
            // Only those who would wait are told of the end (Linux' __skb_wait_for_more_packets).
            None if s.read_shut && flags & linux::MSG_DONTWAIT == 0 => Ok(None),
            None => Err(EAGAIN),
        })?;
        let Some(packet) = packet else { return Ok(Received::default()) };
        let length = packet.bytes.len();
        let moved = to.put(&packet.bytes);
        let done = *moved.as_ref().unwrap_or(&0);
        let received = Received {
            length: if flags & linux::MSG_TRUNC != 0 { length } else { done },
            from: Some(self.show(packet.from, 0)),
            control: self.control(&packet),
            flags: if done < length { linux::MSG_TRUNC } else { 0 },
        };
        if flags & linux::MSG_PEEK != 0 {
            self.with(|s| {
                s.push_front(packet);
                Ok(())
            })?;
        }
        moved.map(|_| received)
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level as u32 == linux::SOL_SOCKET {
            let mut common = self.common.lock();
            if let Some(result) = common.set(name as u32, value) {
                let filter = common.filter();
                drop(common);
                self.with(|s| {
                    s.program = filter;
                    Ok(())
                })?;
                return result;
            }
        }
        match (self.domain, level as u32) {
            (Domain::V4, _) | (_, linux::SOL_SOCKET) => {}
            (_, SOL_RAW | IPPROTO_IPV6) => return self.set_ipv6(level as u32, name as u32, value),
            (_, SOL_ICMPV6) => return self.set_filter6(name as u32, value),
            _ => return Err(ENOPROTOOPT),
        }
        if let Some(result) = self.kept.lock().set(false, level, name, value) {
            return result;
        }
        let on = || int_or_byte(value).map(|n| n != 0);
        match (level as u32, name as u32) {
            (linux::SOL_SOCKET, linux::SO_BROADCAST) => self.with(|s| on().map(|v| s.broadcast = v)),
            (linux::SOL_SOCKET, linux::SO_RCVBUF | linux::SO_RCVBUFFORCE) => self.with(|s| {
                buffer_size(name as u32, value, 1152, &settings::MAX_RECEIVE_BUFFER[0])
                    .map(|n| s.receive_buffer = n)
            }),
            (linux::SOL_SOCKET, linux::SO_SNDBUF | linux::SO_SNDBUFFORCE) => self.with(|s| {
                buffer_size(name as u32, value, 2304, &settings::MAX_SEND_BUFFER[0])
                    .map(|n| s.send_buffer = n)
            }),
            (linux::SOL_SOCKET, linux::SO_BINDTODEVICE) => {
                self.common.lock().bind_to(ioctl::device(&self.net, value)?)
            }
            (IPPROTO_IP, linux::IP_HDRINCL) if self.is_ping => Err(ENOPROTOOPT),
            (IPPROTO_IP, linux::IP_HDRINCL) => self.with(|s| on().map(|v| s.has_header = v)),
            (IPPROTO_IP, linux::IP_PKTINFO) => on().map(|v| self.wanted.lock().packet_info = v),
            (IPPROTO_IP, linux::IP_RECVTTL) => on().map(|v| self.wanted.lock().ttl = v),
            (IPPROTO_IP, linux::IP_RECVTOS) => on().map(|v| self.wanted.lock().tos = v),
            (IPPROTO_IP, linux::IP_RECVERR) => Ok(()),
            (IPPROTO_IP, linux::IP_TTL) => self.with(|s| time_to_live(value).map(|n| s.ttl = n)),
            (IPPROTO_IP, linux::IP_TOS) => self.with(|s| int_or_byte(value).map(|n| s.tos = n as u8)),
            (IPPROTO_IP, name) => self.net.look(|s| membership::set(s, Of::Raw(self.id), name, value)),
            (SOL_RAW, ICMP_FILTER) if !self.is_ping => {
                if self.protocol != wire::PROTOCOL_ICMP {
                    return Err(EOPNOTSUPP);
                }
                self.with(|s| int(value).map(|n| s.filter = n as u32))
            }
            (linux::SOL_SOCKET, name) => {
                self.common.lock().set_inert(name, value).unwrap_or(Err(ENOPROTOOPT))
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, name: i32, _asked: &[u8]) -> Result<Vec<u8>> {
        if level as u32 == linux::SOL_SOCKET
            && let Some(value) = self.common.lock().get(name as u32)
        {
            return Ok(value);
        }
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_BINDTODEVICE) {
            return ioctl::device_name(&self.net, self.common.lock().interface());
        }
        match (self.domain, level as u32) {
            (Domain::V4, _) | (_, linux::SOL_SOCKET) => {}
            (_, SOL_RAW | IPPROTO_IPV6) => return self.get_ipv6(level as u32, name as u32),
            (_, SOL_ICMPV6) => return self.filter6(name as u32),
            _ => return Err(ENOPROTOOPT),
        }
        if let Some(value) = self.kept.lock().value(false, level, name) {
            return Ok(value);
        }
        if level as u32 == IPPROTO_IP {
            match self.net.look(|s| membership::get(s, Of::Raw(self.id), name as u32)) {
                Err(ENOPROTOOPT) => {}
                answer => return answer,
            }
        }
        let wanted = *self.wanted.lock();
        let inert = self.common.lock().inert(name as u32);
        self.with(|s| {
            Ok(match (level as u32, name as u32) {
                (linux::SOL_SOCKET, linux::SO_ERROR) => {
                    from_int(s.error.take().map_or(0, |e| i64::from(e.0)))
                }
                (linux::SOL_SOCKET, linux::SO_ACCEPTCONN) => from_int(0),
                (linux::SOL_SOCKET, linux::SO_TYPE) => from_int(self.socket_type() as u32),
                (linux::SOL_SOCKET, linux::SO_DOMAIN) => from_int(self.domain.number()),
                (linux::SOL_SOCKET, linux::SO_PROTOCOL) => from_int(self.protocol),
                (linux::SOL_SOCKET, linux::SO_BROADCAST) => from_int(s.broadcast),
                (linux::SOL_SOCKET, linux::SO_RCVBUF) => from_int(s.receive_buffer as i64),
                (linux::SOL_SOCKET, linux::SO_SNDBUF) => from_int(s.send_buffer as i64),
                (IPPROTO_IP, linux::IP_HDRINCL) => from_int(s.has_header),
                (IPPROTO_IP, linux::IP_TTL) => from_int(s.ttl),
                (IPPROTO_IP, linux::IP_TOS) => from_int(s.tos),
                (IPPROTO_IP, linux::IP_PKTINFO) => from_int(wanted.packet_info),
                (IPPROTO_IP, linux::IP_RECVTTL) => from_int(wanted.ttl),
                (IPPROTO_IP, linux::IP_RECVTOS) => from_int(wanted.tos),
                (SOL_RAW, ICMP_FILTER) if !self.is_ping => {
                    if self.protocol != wire::PROTOCOL_ICMP {
                        return Err(EOPNOTSUPP);
                    }
                    Vec::from(s.filter.to_ne_bytes())
                }
                (linux::SOL_SOCKET, _) => return inert.ok_or(ENOPROTOOPT),
                (IPPROTO_IP | SOL_RAW, _) => return Err(ENOPROTOOPT),
                _ => return Err(EOPNOTSUPP),
            })
        })
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        self.common.lock().timeout_ns(receive)
    }

    fn poll(&self) -> Events {
        self.with(|s| Ok(s.poll())).unwrap_or(Events::HUP)
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.shared.queue
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        match command {
            ioctl::FIONREAD => {
                let next = self.with(|s| Ok(s.queue.front().map_or(0, |packet| packet.bytes.len())))?;
                ioctl::put_int(argument, next)
            }
            ioctl::TIOCOUTQ => ioctl::put_int(argument, 0),
            _ => Err(ENOTTY),
        }
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.net.look(|s| s.raw.close(&mut s.ip, self.id));
        }
    }
}

impl Drop for RawSocket {
    fn drop(&mut self) {
        self.close();
    }
}
