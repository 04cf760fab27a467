// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_INET and AF_INET6, SOCK_DGRAM.

use super::domain::{Call, Domain, SocketDomain};
use super::ipv6::{self, IPPROTO_IPV6};
use super::kept::{IPPROTO_IP, Kept};
use super::membership::{self, Of};
use super::membership6;
use super::message;
use super::options::{int_or_byte, time_to_live};
use super::{IPPROTO_UDP, ioctl};
use crate::families::{Families, LOOPBACK6, is_v6};
use crate::multicast::LOOPBACK;
use crate::slab::Id;
use crate::stack::{Net, Shared};
use crate::udp::{Datagram, MAX_PAYLOAD, Socket as UdpSocket};
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Sink, Source, Timespec};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::options::{Common, buffer_size, from_int, int};
use api_socket::settings;
use api_socket::{Address, Caller, Control, LastStamp, PeekOffset, Received, SIOCGSTAMP, SIOCGSTAMPNS};
use api_socket::{Sending, Shutdown, Socket, Type, ZeroCopy};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};

// linux/udp.h.
const UDP_CORK: u32 = 1;
const UDP_NO_CHECK6_TX: u32 = 101;
const UDP_NO_CHECK6_RX: u32 = 102;
const UDP_SEGMENT: u32 = message::UDP_SEGMENT;
const UDP_GRO: u32 = 104;

/// Whom an error is from that nobody sent.
const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// What recvmsg(2) adds to each datagram.
#[derive(Clone, Copy, Default)]
struct Wanted {
    packet_info: bool,
    ttl: bool,
    tos: bool,
    destination: bool,
    cork: bool,
    /// UDP_GRO: kept, each datagram is handed over as it came.
    joins: bool,
}

pub struct DatagramSocket {
    net: Arc<Net>,
    id: Id,
    shared: Arc<Shared>,
    domain: SocketDomain,
    ipv6: SpinLock<ipv6::Options>,
    kept: SpinLock<Kept>,
    common: SpinLock<Common>,
    wanted: SpinLock<Wanted>,
    last_stamp: LastStamp,
    peek: PeekOffset,
    zero_copy: ZeroCopy,
    closed: AtomicBool,
}

impl DatagramSocket {
    /// Made by this user.
    pub fn new(net: Arc<Net>, domain: Domain, user: u32) -> Result<Arc<DatagramSocket>> {
        let shared = Shared::new();
        let id = net.look(|s| {
            let id = s.udp.create(shared.clone())?;
            if let Some(socket) = s.udp.sockets.get_mut(id) {
                socket.families = domain.families();
                socket.reuse.user = Some(user);
            }
            Ok(id)
        })?;
        Ok(Arc::new(DatagramSocket {
            net,
            id,
            shared,
            domain: SocketDomain::new(domain),
            ipv6: SpinLock::default(),
            kept: SpinLock::default(),
            common: SpinLock::default(),
            wanted: SpinLock::default(),
            last_stamp: LastStamp::default(),
            peek: PeekOffset::default(),
            zero_copy: ZeroCopy::default(),
            closed: AtomicBool::new(false),
        }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut UdpSocket) -> Result<R>) -> Result<R> {
        self.net.look(|s| f(s.udp.sockets.get_mut(self.id).ok_or(EBADF)?))
    }

    /// Where an address leads that a call names.
    fn destination(&self, address: &Address, call: Call) -> Result<SocketAddrV4> {
        let (families, local) =
            self.with(|s| Ok((s.families, s.local.map_or(Ipv4Addr::UNSPECIFIED, |local| *local.ip()))))?;
        self.domain.get().destination(&self.net, address, families, local, call)
    }

    /// Where a datagram goes whose sender names nobody, as Linux' udpv6_sendmsg: `names_nobody` is an address of no family.
    fn peer(&self, names_nobody: bool) -> Result<()> {
        let remote = self.with(|s| s.remote.ok_or(EDESTADDRREQ))?;
        match self.domain.get() {
            // To IPv6 alone, whosever the peer's address is.
            Domain::V6 if names_nobody && !is_v6(*remote.ip()) => Err(ENETUNREACH),
            // The peer's address of IPv4 is like one that the call names.
            Domain::V6 if !is_v6(*remote.ip()) && remote.port() == 0 => Err(EINVAL),
            _ => Ok(()),
        }
    }

    fn show(&self, address: SocketAddrV4) -> Address {
        self.domain.get().show(&self.net, address, Families::V4)
    }

    fn set_ipv6(&self, name: u32, value: &[u8]) -> Result<()> {
        match name {
            ipv6::IPV6_V6ONLY => {
                let only = int(value)? != 0;
                self.with(|s| {
                    if s.local.is_some() {
                        return Err(EINVAL);
                    }
                    s.families = if only { Families::V6 } else { Families::BOTH };
                    Ok(())
                })
            }
            ipv6::IPV6_ADDRFORM => {
                let remote = self.with(|s| Ok(s.remote.map(|remote| *remote.ip())))?;
                self.domain.convert(value, self.with(|s| Ok(s.families))?, remote)?;
                self.with(|s| {
                    s.families = Families::V4;
                    Ok(())
                })
            }
            ipv6::IPV6_UNICAST_HOPS => self.with(|s| ipv6::hops(value).map(|n| s.hops = n)),
            ipv6::IPV6_TCLASS => self.with(|s| ipv6::traffic_class(value).map(|n| s.tos = n)),
            ipv6::IPV6_RECVERR => {
                self.with(|s| int(value).map(|n| s.receive_errors6 = n != 0))?;
                self.ipv6.lock().keep(name, value)
            }
            _ => match membership6::set(&self.net, Of::Udp(self.id), name, value) {
                // What is told to programs that ask.
                Err(ENOPROTOOPT) => self.ipv6.lock().keep(name, value),
                Ok(()) if ipv6::is_kept(name) => self.ipv6.lock().keep(name, value),
                done => done,
            },
        }
    }

    fn get_ipv6(&self, name: u32) -> Result<Vec<u8>> {
        match name {
            ipv6::IPV6_V6ONLY => self.with(|s| Ok(from_int(s.families == Families::V6))),
            ipv6::IPV6_ADDRFORM => self.domain.form(self.with(|s| Ok(s.remote.is_some()))?).map(from_int),
            ipv6::IPV6_UNICAST_HOPS => self.with(|s| Ok(from_int(s.hops))),
            ipv6::IPV6_TCLASS => self.with(|s| Ok(from_int(s.tos))),
            ipv6::IPV6_MTU => self.mtu(),
            _ => self.ipv6.lock().value(name),
        }
    }

    /// A message of the error queue (ip(7), IP_RECVERR): the datagram, and what became of it.
    fn receive_error(&self, to: &mut Sink<'_>) -> Result<Received> {
        let Some(failure) = self.with(|s| Ok(s.failures.pop_front()))? else {
            let place = message::error_place(self.domain.get());
            return self.zero_copy.receive(place, self.show(NOBODY).bytes().len());
        };
        let length = failure.data.len();
        let moved = to.put(&failure.data)?;
        let from = self.show(SocketAddrV4::new(failure.from, 0));
        Ok(Received {
            length: moved,
            from: Some(self.show(failure.to)),
            control: Vec::from([message::error(&failure, &from)]),
            flags: linux::MSG_ERRQUEUE | if moved < length { linux::MSG_TRUNC } else { 0 },
        })
    }

    fn control(&self, datagram: &Datagram) -> Vec<Control> {
        let wanted = *self.wanted.lock();
        let (to, ttl, tos) = (datagram.to, datagram.ttl, datagram.tos);
        let mut control = Vec::new();
        let mut add = |wanted: bool, level: u32, kind: u32, data: &dyn Fn() -> Vec<u8>| {
            if wanted {
                control.push(Control::Other { level: level as i32, kind: kind as i32, data: data() });
            }
        };
        let common = self.common.lock();
        let stamps = common.stamps;
        if stamps.are_wanted() {
            let at = datagram.stamp.unwrap_or_else(Timespec::now);
            stamps.messages(at).for_each(|(level, kind, data)| add(true, level, kind, &|| data.clone()));
        }
        let drops = common.is_kept_on(linux::SO_RXQ_OVFL) && datagram.drops > 0;
        drop(common);
        add(drops, linux::SOL_SOCKET, linux::SO_RXQ_OVFL, &|| Vec::from(datagram.drops.to_ne_bytes()));
        let by_loopback = to.is_loopback() || to == LOOPBACK6 || datagram.from.ip().is_loopback();
        let index = if by_loopback { LOOPBACK } else { self.net.look(|s| s.ip.interface_with(to)) };
        // What belongs to IPv4 is told of IPv4's datagrams, on sockets of both families.
        let (is_v4, is_v6) = (!is_v6(to), is_v6(to));
        // struct in_pktinfo: interface, local address, destination.
        add(wanted.packet_info && is_v4, IPPROTO_IP, linux::IP_PKTINFO, &|| {
            [index.to_ne_bytes(), self.own_address(to, by_loopback).octets(), to.octets()].concat()
        });
        add(wanted.ttl && is_v4, IPPROTO_IP, linux::IP_TTL, &|| from_int(ttl));
        add(wanted.tos && is_v4, IPPROTO_IP, linux::IP_TOS, &|| Vec::from([tos]));
        let port = || self.with(|s| Ok(s.local.map_or(0, |local| local.port()))).unwrap_or(0);
        let shown = |domain: Domain| domain.show(&self.net, SocketAddrV4::new(to, port()), Families::V4);
        add(wanted.destination && is_v4, IPPROTO_IP, linux::IP_ORIGDSTADDR, &|| {
            shown(Domain::V4).bytes().into()
        });
        if self.domain.get() == Domain::V4 {
            return control;
        }
        let ipv6 = self.ipv6.lock();
        let mut add = |wanted: u32, kind: u32, data: &dyn Fn() -> Vec<u8>| {
            let is_told = is_v6 || kind == ipv6::IPV6_PKTINFO;
            add(is_told && ipv6.wants(wanted), IPPROTO_IPV6, kind, data);
        };
        // struct in6_pktinfo: destination, interface.
        let information = || {
            let mut information = shown(Domain::V6).as_v6().map_or(Vec::new(), |v6| Vec::from(v6.address));
            information.extend_from_slice(&index.to_ne_bytes());
            information
        };
        add(ipv6::IPV6_RECVPKTINFO, ipv6::IPV6_PKTINFO, &information);
        add(ipv6::IPV6_RECVHOPLIMIT, ipv6::IPV6_HOPLIMIT, &|| from_int(ttl));
        add(ipv6::IPV6_RECVTCLASS, ipv6::IPV6_TCLASS, &|| from_int(tos));
        add(ipv6::IPV6_2292PKTINFO, ipv6::IPV6_2292PKTINFO, &information);
        add(ipv6::IPV6_2292HOPLIMIT, ipv6::IPV6_2292HOPLIMIT, &|| from_int(ttl));
        add(ipv6::IPV6_ORIGDSTADDR, ipv6::IPV6_ORIGDSTADDR, &|| shown(Domain::V6).bytes().into());
        control
    }

    /// The address of this machine that something to there came to.
    fn own_address(&self, to: Ipv4Addr, by_loopback: bool) -> Ipv4Addr {
        match () {
            () if by_loopback && !to.is_loopback() => Ipv4Addr::LOCALHOST,
            () => self.net.look(|s| match s.ip.configuration {
                Some(c) if !s.ip.is_own(to) => c.address,
                _ => to,
            }),
        }
    }

    /// IP_MTU, IPV6_MTU: of the way to the peer.
    fn mtu(&self) -> Result<Vec<u8>> {
        self.net.look(|s| {
            let socket = s.udp.sockets.get(self.id).ok_or(EBADF)?;
            let remote = socket.remote.ok_or(ENOTCONN)?;
            let route = s.ip.route(*remote.ip()).map_err(|_| ENOTCONN)?;
            // Of loopback Linux tells the interface's, up to the largest packet of IPv4.
            let mtu = match (is_v6(*remote.ip()), route.loopback) {
                (true, true) => s.ip.lo.mtu as usize,
                (true, false) => route.mtu + 20,
                (false, _) => route.mtu,
            };
            Ok(from_int(mtu as i64))
        })
    }
}

impl Socket for DatagramSocket {
    fn family(&self) -> u16 {
        self.domain.get().number()
    }

    fn socket_type(&self) -> Type {
        Type::Datagram
    }

    fn protocol(&self) -> u32 {
        IPPROTO_UDP
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let (before, is_bound) = self.with(|s| Ok((s.families, s.local.is_some())))?;
        let anywhere = self.kept.lock().binds_anywhere() || self.ipv6.lock().binds_anywhere();
        let (address, families) =
            self.domain.get().bindable(&self.net, address, before, anywhere, is_bound)?;
        self.net.look(|s| {
            s.udp.sockets.get_mut(self.id).ok_or(EBADF)?.families = families;
            let bound = s.udp.bind(self.id, address);
            let socket = s.udp.sockets.get_mut(self.id).ok_or(EBADF)?;
            match bound {
                Ok(_) => socket.asked = Some(address),
                Err(_) => socket.families = before,
            }
            bound
        })?;
        let is_v6 = families.v6 && *address.ip() != LOOPBACK6 && self.net.look(|s| s.ip.has_v6());
        let reachable = is_v6 || families.v4 && !address.ip().is_loopback();
        if address.port() != 0 && reachable {
            self.net.host.listening(true, address.port());
        }
        Ok(())
    }

    fn connect(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let remote = match address.family() {
            None => return Err(EINVAL),
            Some(Address::UNSPEC) => None,
            Some(_) => {
                // It has a port from now on, whatever comes of the address.
                self.net.look(|s| s.udp.bind_if_unbound(self.id))?;
                self.domain.get().check_scope(address)?;
                Some(self.destination(address, Call::Connect)?)
            }
        };
        self.net.look(|s| s.udp.connect(&s.ip, self.id, remote))
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

    fn local_address(&self) -> Result<Address> {
        let (local, families) = self.with(|s| {
            Ok((s.local.or(s.asked).unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)), s.families))
        })?;
        Ok(self.domain.get().show(&self.net, local, families))
    }

    fn peer_address(&self) -> Result<Address> {
        // A peer without a port is none (Linux' inet_getname).
        let remote = self.with(|s| s.remote.filter(|remote| remote.port() != 0).ok_or(ENOTCONN))?;
        Ok(self.show(remote))
    }

    fn send(&self, _caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        self.net.look(|s| s.udp.bind_if_unbound(self.id))?;
        if from.remaining() > MAX_PAYLOAD {
            return Err(EMSGSIZE);
        }
        if message.flags & linux::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        let is_nobody = |to: &&Address| to.family() == Some(Address::UNSPEC);
        let named = message.to.as_ref().filter(|to| self.domain.get() == Domain::V4 || !is_nobody(to));
        let to = match named {
            Some(named) => Some(self.destination(named, Call::Send)?),
            None => {
                self.peer(message.to.is_some())?;
                None
            }
        };
        if to.is_some_and(|to| to.port() == 0) {
            return Err(EINVAL);
        }
        let bound = self.common.lock().interface();
        let number_of = |to, scope| self.net.number_of(to, scope);
        let choice = message::choice(&number_of, &message.control, self.domain.get(), bound)?;
        let length = from.remaining();
        let mut small = [0; 1500];
        let mut large = Vec::new();
        let bytes = if length <= small.len() {
            let n = from.take(&mut small[..length])?;
            &small[..n]
        } else {
            large = from.take_vec(length)?;
            &large[..]
        };
        if bytes.len() < length {
            return Err(EFAULT);
        }
        if self.wanted.lock().cork || message.flags & linux::MSG_MORE != 0 {
            return self.with(|s| {
                if s.gathered.len() + bytes.len() > MAX_PAYLOAD
                    || s.gathered.reserve_fallibly(bytes.len()).is_err()
                {
                    return Err(EMSGSIZE);
                }
                if s.gathered.is_empty() {
                    s.may_send()?;
                }
                s.gathered.extend_from_slice(bytes);
                Ok(length)
            });
        }
        self.net.act(|s, now| {
            let gathered = s.udp.sockets.get_mut(self.id).map(|s| core::mem::take(&mut s.gathered));
            match gathered {
                Some(mut all) if !all.is_empty() => {
                    if all.len() + bytes.len() > MAX_PAYLOAD {
                        return Err(EMSGSIZE);
                    }
                    all.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
                    all.extend_from_slice(bytes);
                    s.udp.send(&mut s.ip, now, self.id, to, &choice, &all)
                }
                _ => s.udp.send(&mut s.ip, now, self.id, to, &choice, bytes),
            }
        })?;
        drop(large);
        if length > 0 && self.zero_copy.sent(message.flags) {
            self.shared.queue.wake(Events::ERR);
        }
        Ok(length)
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_ERRQUEUE != 0 {
            return self.receive_error(to);
        }
        let peek = flags & linux::MSG_PEEK != 0;
        let start = self.peek.start().filter(|_| peek);
        let mut skipped = start.unwrap_or(0);
        let datagram = self.with(|s| {
            if let Some(error) = s.error.take() {
                return Err(error);
            }
            let first = if start.is_some() { s.copy_at(&mut skipped)? } else { s.pop() };
            match first {
                Some(datagram) => Ok(Some(datagram)),
                // Only those who would wait are told of the end (Linux' __skb_wait_for_more_packets).
                None if s.read_shut && flags & linux::MSG_DONTWAIT == 0 => Ok(None),
                None => Err(EAGAIN),
            }
        })?;
        let Some(datagram) = datagram else { return Ok(Received::default()) };
        let length = datagram.length();
        let room = to.remaining();
        let mut moved = Ok(0);
        for buffer in core::iter::once(&datagram.data.first).chain(&datagram.data.more) {
            let passed = skipped.min(buffer.len());
            skipped -= passed;
            if let (Ok(done), true) = (moved, to.remaining() > 0) {
                moved = to.put(&buffer.bytes()[passed..]).map(|n| done + n);
            }
        }
        let received = Received {
            length: if flags & linux::MSG_TRUNC != 0 { length } else { *moved.as_ref().unwrap_or(&0) },
            from: Some(self.show(datagram.from)),
            control: {
                self.last_stamp.received(self.common.lock().stamps.are_wanted(), datagram.stamp);
                self.control(&datagram)
            },
            // Behind an offset, a buffer that ends where the datagram does counts as too small (Linux' udp_recvmsg).
            flags: if moved.is_ok_and(|n| n < length && n == room) { linux::MSG_TRUNC } else { 0 },
        };
        match moved {
            Ok(_) if peek => self.peek.looked(received.length),
            Ok(_) => self.peek.read(received.length),
            Err(_) => {}
        }
        self.net.look(|s| match s.udp.sockets.get_mut(self.id) {
            Some(socket) if peek && start.is_none() => socket.push_front(datagram),
            _ => s.ip.recycle_packet(datagram.data),
        });
        moved.map(|_| received)
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level as u32 == linux::SOL_SOCKET {
            match name as u32 {
                linux::SO_PEEK_OFF => return self.peek.set(value),
                linux::SO_ZEROCOPY => return self.zero_copy.set(value),
                _ => {}
            }
            let (result, stamps, filter) = {
                let mut common = self.common.lock();
                (common.set(name as u32, value), common.stamps.are_wanted(), common.filter())
            };
            if let Some(result) = result {
                return self.with(|s| {
                    s.stamps = stamps || self.last_stamp.is_enabled();
                    s.filter = filter;
                    result
                });
            }
        }
        if level as u32 == IPPROTO_IPV6 && self.domain.get() == Domain::V6 {
            return self.set_ipv6(name as u32, value);
        }
        if level as u32 == linux::SOL_UDP && value.len() < size_of::<i32>() {
            return Err(EINVAL);
        }
        if let Some(result) = self.kept.lock().set(false, level, name, value) {
            return result;
        }
        let on = || int_or_byte(value).map(|n| n != 0);
        match (level as u32, name as u32) {
            (linux::SOL_SOCKET, linux::SO_REUSEADDR) => self.with(|s| on().map(|v| s.reuse.address = v)),
            (linux::SOL_SOCKET, linux::SO_REUSEPORT) => self.with(|s| on().map(|v| s.reuse.port = v)),
            (linux::SOL_SOCKET, linux::SO_ATTACH_REUSEPORT_CBPF) => {
                let program = self.common.lock().new_filter(value)?;
                self.net.look(|s| s.udp.set_selector(self.id, Some(program)))
            }
            (linux::SOL_SOCKET, linux::SO_DETACH_REUSEPORT_BPF) => {
                self.net.look(|s| s.udp.set_selector(self.id, None))
            }
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
            (linux::SOL_UDP, UDP_SEGMENT) => self.with(|s| match int(value)? {
                n @ 0..=0xffff => {
                    s.segment = n as usize;
                    Ok(())
                }
                _ => Err(EINVAL),
            }),
            (linux::SOL_UDP, UDP_GRO) => int(value).map(|n| self.wanted.lock().joins = n != 0),
            // Checksums are always made, and one that is missing is always taken.
            (linux::SOL_UDP, UDP_NO_CHECK6_TX | UDP_NO_CHECK6_RX) => int(value).map(|_| ()),
            (linux::SOL_UDP, UDP_CORK) => {
                let cork = on()?;
                self.wanted.lock().cork = cork;
                if !cork && self.with(|s| Ok(!s.gathered.is_empty()))? {
                    self.send(None, &Sending::default(), &mut Source::kernel(&[]))?;
                }
                Ok(())
            }
            (IPPROTO_IP, linux::IP_PKTINFO) => on().map(|v| self.wanted.lock().packet_info = v),
            (IPPROTO_IP, linux::IP_RECVTTL) => on().map(|v| self.wanted.lock().ttl = v),
            (IPPROTO_IP, linux::IP_RECVTOS) => on().map(|v| self.wanted.lock().tos = v),
            (IPPROTO_IP, linux::IP_RECVORIGDSTADDR) => on().map(|v| self.wanted.lock().destination = v),
            (IPPROTO_IP, linux::IP_RECVERR) => self.with(|s| on().map(|v| s.receive_errors = v)),
            (IPPROTO_IP, linux::IP_TTL) => self.with(|s| time_to_live(value).map(|n| s.ttl = n)),
            (IPPROTO_IP, linux::IP_TOS) => self.with(|s| int_or_byte(value).map(|n| s.tos = n as u8)),
            (IPPROTO_IP, name) => self.net.look(|s| membership::set(s, Of::Udp(self.id), name, value)),
            (linux::SOL_SOCKET, name) => {
                self.common.lock().set_inert(name, value).unwrap_or(Err(ENOPROTOOPT))
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, name: i32, _asked: &[u8]) -> Result<Vec<u8>> {
        match (level as u32, name as u32) {
            (linux::SOL_SOCKET, linux::SO_PEEK_OFF) => return Ok(self.peek.value()),
            (linux::SOL_SOCKET, linux::SO_ZEROCOPY) => return Ok(self.zero_copy.value()),
            _ => {}
        }
        if level as u32 == linux::SOL_SOCKET
            && let Some(value) = self.common.lock().get(name as u32)
        {
            return Ok(value);
        }
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_BINDTODEVICE) {
            return ioctl::device_name(&self.net, self.common.lock().interface());
        }
        if level as u32 == IPPROTO_IPV6 && self.domain.get() == Domain::V6 {
            return self.get_ipv6(name as u32);
        }
        if let Some(value) = self.kept.lock().value(false, level, name) {
            return Ok(value);
        }
        if self.domain.get() == Domain::V4
            && ![linux::SOL_SOCKET, IPPROTO_IP, linux::SOL_UDP].contains(&(level as u32))
        {
            return Err(EOPNOTSUPP);
        }
        let wanted = *self.wanted.lock();
        let inert = self.common.lock().inert(name as u32);
        if level as u32 == IPPROTO_IP {
            if name as u32 == linux::IP_MTU {
                return self.mtu();
            }
            match self.net.look(|s| membership::get(s, Of::Udp(self.id), name as u32)) {
                Err(ENOPROTOOPT) => {}
                answer => return answer,
            }
        }
        self.with(|s| {
            Ok(match (level as u32, name as u32) {
                (linux::SOL_SOCKET, linux::SO_ERROR) => {
                    from_int(s.error.take().map_or(0, |e| i64::from(e.0)))
                }
                (linux::SOL_SOCKET, linux::SO_TYPE) => from_int(2),
                (linux::SOL_SOCKET, linux::SO_DOMAIN) => from_int(self.domain.get().number()),
                (linux::SOL_SOCKET, linux::SO_PROTOCOL) => from_int(IPPROTO_UDP),
                (linux::SOL_SOCKET, linux::SO_ACCEPTCONN) => from_int(0),
                (linux::SOL_SOCKET, linux::SO_REUSEADDR) => from_int(s.reuse.address),
                (linux::SOL_SOCKET, linux::SO_REUSEPORT) => from_int(s.reuse.port),
                (linux::SOL_SOCKET, linux::SO_BROADCAST) => from_int(s.broadcast),
                (linux::SOL_SOCKET, linux::SO_RCVBUF) => from_int(s.receive_buffer as i64),
                (linux::SOL_SOCKET, linux::SO_SNDBUF) => from_int(s.send_buffer as i64),
                (IPPROTO_IP, linux::IP_HDRINCL | linux::IP_NODEFRAG) => from_int(0),
                (IPPROTO_IP, linux::IP_TTL) => from_int(s.ttl),
                (IPPROTO_IP, linux::IP_TOS) => from_int(s.tos),
                (IPPROTO_IP, linux::IP_PKTINFO) => from_int(wanted.packet_info),
                (IPPROTO_IP, linux::IP_RECVTTL) => from_int(wanted.ttl),
                (IPPROTO_IP, linux::IP_RECVTOS) => from_int(wanted.tos),
                (IPPROTO_IP, linux::IP_RECVERR) => from_int(s.receive_errors),
                (IPPROTO_IP, linux::IP_RECVORIGDSTADDR) => from_int(wanted.destination),
                (linux::SOL_UDP, UDP_CORK) => from_int(wanted.cork),
                (linux::SOL_UDP, UDP_SEGMENT) => from_int(s.segment as i64),
                (linux::SOL_UDP, UDP_GRO) => from_int(wanted.joins),
                (linux::SOL_UDP, UDP_NO_CHECK6_TX | UDP_NO_CHECK6_RX) => from_int(0),
                (IPPROTO_IP, linux::IP_OPTIONS) => Vec::new(),
                (linux::SOL_SOCKET, _) => return inert.ok_or(ENOPROTOOPT),
                _ => return Err(ENOPROTOOPT),
            })
        })
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        self.common.lock().timeout_ns(receive)
    }

    fn poll(&self) -> Events {
        let events = self.with(|s| Ok(s.poll())).unwrap_or(Events::HUP);
        if self.zero_copy.is_pending() { events | Events::ERR } else { events }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.shared.queue
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        match command {
            ioctl::FIONREAD => {
                let next = self.with(|s| Ok(s.queue.front().map_or(0, |d| d.length())))?;
                ioctl::put_int(argument, next)
            }
            ioctl::TIOCOUTQ => ioctl::put_int(argument, 0),
            SIOCGSTAMP | SIOCGSTAMPNS => {
                self.with(|s| {
                    s.stamps = true;
                    Ok(())
                })?;
                self.last_stamp.write(argument, command == SIOCGSTAMPNS)
            }
            _ => Err(ENOTTY),
        }
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.net.look(|s| s.udp.close(&mut s.ip, self.id));
        }
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        self.close();
    }
}
