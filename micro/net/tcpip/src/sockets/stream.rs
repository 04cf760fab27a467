// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_INET and AF_INET6, SOCK_STREAM.

use super::domain::{Call, Domain, SocketDomain};
use super::fast_open::{Keys, TCP_FASTOPEN_KEY};
use super::ipv6::{self, IPPROTO_IPV6};
use super::kept::{IPPROTO_IP, Kept};
use super::{IPPROTO_TCP, ioctl, message, options};
use crate::families::{Families, LOOPBACK6};
use crate::slab::Id;
use crate::stack::{Net, Shared};
use crate::tcp::Kind;
use crate::tcp::calls::{Bytes, Push};
use crate::tcp::connection::{Connection, Settings, State};
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::options::Common;
use api_socket::{Address, Caller, Control, Received, Sending, Shutdown, Socket, Type, ZeroCopy};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Writes up to here go through a buffer on the stack.
const SMALL: usize = 2048;
/// Larger ones are taken in pieces of this size, a device's largest segmented packet or so.
const LARGE: usize = 64 * 1024;

pub struct StreamSocket {
    net: Arc<Net>,
    id: Id,
    shared: Arc<Shared>,
    domain: SocketDomain,
    common: SpinLock<Common>,
    ipv6: SpinLock<ipv6::Options>,
    kept: SpinLock<Kept>,
    /// SO_RCVLOWAT, where poll finds it.
    low_water: AtomicU32,
    /// TCP_INQ: a message says how much is left to read.
    tells_queue: AtomicBool,
    zero_copy: ZeroCopy,
    /// TCP_FASTOPEN_KEY.
    fast_open: SpinLock<Option<Box<Keys>>>,
    closed: AtomicBool,
}

impl StreamSocket {
    /// It neither listens nor has a connection, or an attempt at one.
    fn is_closed(&self) -> bool {
        let is_closed = |connection: &Connection| connection.state == State::Closed;
        self.net.look(|s| s.tcp.sockets.get(self.id)?.connection().map(is_closed)).unwrap_or(false)
    }

    /// Made by this user.
    pub fn new(net: Arc<Net>, domain: Domain, user: u32) -> Result<Arc<StreamSocket>> {
        let shared = Shared::new();
        let id = net.look(|s| {
            let id = s.tcp.create(shared.clone())?;
            if let Some(entry) = s.tcp.sockets.get_mut(id) {
                entry.families = domain.families();
                entry.reuse.user = Some(user);
            }
            Ok(id)
        })?;
        Ok(Self::of(net, id, shared, domain))
    }

    fn of(net: Arc<Net>, id: Id, shared: Arc<Shared>, domain: Domain) -> Arc<StreamSocket> {
        Arc::new(StreamSocket {
            net,
            id,
            shared,
            domain: SocketDomain::new(domain),
            common: SpinLock::default(),
            ipv6: SpinLock::default(),
            kept: SpinLock::default(),
            low_water: AtomicU32::new(1),
            tells_queue: AtomicBool::new(false),
            zero_copy: ZeroCopy::default(),
            fast_open: SpinLock::default(),
            closed: AtomicBool::new(false),
        })
    }

    fn local(&self) -> SocketAddrV4 {
        self.net.look(|s| {
            let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            s.tcp.sockets.get(self.id).map_or(nowhere, |entry| entry.shown(entry.name))
        })
    }

    /// What the any address means to it.
    fn families(&self) -> Families {
        self.net.look(|s| s.tcp.sockets.get(self.id).map_or(Families::V4, |e| e.families))
    }

    /// The other side of an established connection, as this side's address of IPv4 or the number of one of IPv6.
    fn mapped_peer(&self) -> Option<Ipv4Addr> {
        self.net.look(|s| {
            let entry = s.tcp.sockets.get(self.id)?;
            let connection = entry.connection().filter(|c| c.state == State::Established)?;
            Some(*entry.shown(connection.remote()).ip())
        })
    }

    fn set_ipv6(&self, name: u32, value: &[u8]) -> Result<()> {
        match name {
            ipv6::IPV6_V6ONLY => {
                let only = api_socket::options::int(value)? != 0;
                self.net.look(|s| {
                    if s.tcp.is_bound(self.id) {
                        return Err(EINVAL);
                    }
                    let entry = s.tcp.sockets.get_mut(self.id).ok_or(EBADF)?;
                    entry.families = if only { Families::V6 } else { Families::BOTH };
                    Ok(())
                })
            }
            ipv6::IPV6_ADDRFORM => {
                let remote = self.mapped_peer();
                self.domain.convert(value, self.families(), remote)?;
                self.net.look(|s| {
                    s.tcp.sockets.get_mut(self.id).ok_or(EBADF)?.families = Families::V4;
                    Ok(())
                })
            }
            ipv6::IPV6_UNICAST_HOPS => self.with_settings(|s| ipv6::hops(value).map(|n| s.hops = n)),
            ipv6::IPV6_TCLASS => self.with_settings(|s| {
                s.tos = options::stream_class(s.tos, ipv6::traffic_class(value)?);
                Ok(())
            }),
            ipv6::IPV6_MULTICAST_IF | ipv6::IPV6_MULTICAST_HOPS => Err(ENOPROTOOPT),
            _ => self.ipv6.lock().keep(name, value),
        }
    }

    fn get_ipv6(&self, name: u32) -> Result<Vec<u8>> {
        use api_socket::options::from_int;
        match name {
            ipv6::IPV6_V6ONLY => Ok(from_int(self.families() == Families::V6)),
            ipv6::IPV6_ADDRFORM => self.domain.form(self.mapped_peer().is_some()).map(from_int),
            ipv6::IPV6_UNICAST_HOPS => self.with_settings(|s| Ok(from_int(s.hops))),
            ipv6::IPV6_TCLASS => self.with_settings(|s| Ok(from_int(s.tos))),
            _ => self.ipv6.lock().value(name),
        }
    }

    fn with_settings<T>(&self, f: impl FnOnce(&mut Settings) -> Result<T>) -> Result<T> {
        self.net.look(|s| match &mut s.tcp.sockets.get_mut(self.id).ok_or(EBADF)?.kind {
            Kind::Connection(connection) => f(&mut connection.settings),
            Kind::Listener(listener) => f(&mut listener.settings),
        })
    }

    fn send_some(&self, from: &mut Source<'_>, room: usize, flags: u32) -> Result<usize> {
        let push = |rest: usize| match flags {
            _ if rest > 0 => Push::More,
            _ if flags & linux::MSG_OOB != 0 => Push::Urgent,
            _ if flags & linux::MSG_MORE != 0 => Push::Held,
            _ => Push::Now,
        };
        let n = from.remaining().min(room);
        if n <= SMALL {
            let mut small = [0; SMALL];
            let n = from.take(&mut small[..n])?;
            let push = push(from.remaining());
            self.net.act(|s, now| s.tcp.send(&mut s.ip, now, self.id, Bytes::Few(&small[..n]), push))?;
            return Ok(n);
        }
        let bytes = from.take_vec(n.min(LARGE))?;
        let n = bytes.len();
        let push = push(from.remaining());
        self.net.act(|s, now| s.tcp.send(&mut s.ip, now, self.id, Bytes::Many(bytes), push))?;
        Ok(n)
    }

    fn send_all(&self, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        // A destination is ignored on a connected stream (Linux), and is no way to connect (no TCP Fast Open).
        let mut done = 0;
        loop {
            let moved = match self.net.look(|s| s.tcp.send_room(self.id)) {
                Ok(_) if from.remaining() == 0 => return Ok(done),
                Ok(room) => self.send_some(from, room, message.flags),
                Err(e) => Err(e),
            };
            match moved {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
            if from.remaining() == 0 {
                return Ok(done);
            }
        }
    }

    fn receive_some(&self, to: &mut Sink<'_>, done: usize, limit: usize, discard: bool) -> Result<usize> {
        let received = self.net.look(|s| s.tcp.receive(self.id, done > 0))?;
        let Some((mut buffer, most)) = received else { return Ok(0) };
        let wanted = buffer.len().min(limit - done).min(most);
        let moved = if discard { Ok(wanted) } else { to.put(&buffer.bytes()[..wanted]) };
        let read = *moved.as_ref().unwrap_or(&0);
        buffer.trim_front(read);
        let update = self.net.look(|s| s.tcp.read_done(&mut s.ip, self.id, Some(buffer), read));
        if update {
            self.net.act(|_, _| ());
        }
        moved
    }

    /// The control message of TCP_INQ (tcp(7)): the bytes left to read, of which the end of data is one.
    fn control(&self) -> Vec<Control> {
        if !self.tells_queue.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let left = self.net.look(|s| {
            let connection = s.tcp.sockets.get(self.id).and_then(|e| e.connection());
            connection.map_or(0, |c| c.readable_bytes() + usize::from(c.peer_done))
        });
        let data = api_socket::options::from_int(left as i64);
        let (level, kind) = (IPPROTO_TCP as i32, linux::TCP_INQ as i32);
        Vec::from([Control::Other { level, kind, data }])
    }

    fn receive_urgent(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        let peek = flags & linux::MSG_PEEK != 0;
        let Some(byte) = self.net.look(|s| s.tcp.receive_urgent(self.id, peek))? else {
            return Ok(Received::default());
        };
        if to.remaining() == 0 {
            let flags = linux::MSG_OOB | linux::MSG_TRUNC;
            return Ok(Received { flags, ..Received::default() });
        }
        if flags & linux::MSG_TRUNC == 0 {
            to.put(&[byte])?;
        }
        Ok(Received { length: 1, flags: linux::MSG_OOB, ..Received::default() })
    }
}

impl Socket for StreamSocket {
    fn family(&self) -> u16 {
        self.domain.get().number()
    }

    fn socket_type(&self) -> Type {
        Type::Stream
    }

    fn protocol(&self) -> u32 {
        IPPROTO_TCP
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let before = self.families();
        let is_bound = self.net.look(|s| s.tcp.is_bound(self.id));
        let anywhere = self.kept.lock().binds_anywhere() || self.ipv6.lock().binds_anywhere();
        let (address, families) =
            self.domain.get().bindable(&self.net, address, before, anywhere, is_bound)?;
        self.net.look(|s| {
            s.tcp.sockets.get_mut(self.id).ok_or(EBADF)?.families = families;
            let bound = s.tcp.bind(self.id, address);
            if bound.is_err() {
                s.tcp.sockets.get_mut(self.id).ok_or(EBADF)?.families = before;
            }
            bound
        })
    }

    fn listen(&self, _caller: &Caller<'_>, backlog: i32) -> Result<()> {
        let (again, address, published) = self.net.look(|s| {
            let again = s.tcp.is_listener(self.id);
            let address = s.tcp.listen(self.id, backlog)?;
            Ok((again, address, s.tcp.is_published_from_loopback(address)))
        })?;
        let families = Families::of(*address.ip(), self.families());
        let is_v6 = families.v6 && *address.ip() != LOOPBACK6 && self.net.look(|s| s.ip.has_v6());
        let reachable = is_v6 || families.v4 && (published || !address.ip().is_loopback());
        if !again && reachable {
            self.net.host.listening(false, address.port());
        }
        Ok(())
    }

    fn accept(&self) -> Result<(Arc<dyn Socket>, Address)> {
        // Before a connection is taken out of the queue, which would be lost where there is no memory.
        let common = self.common.lock().inherited()?;
        // Connections of this machine that found the queue full try again: the stack acts on it.
        let (id, shared, remote) = self.net.look(|s| s.tcp.accept(self.id))?;
        if self.net.look(|s| s.tcp.has_work()) {
            self.net.act(|_, _| ());
        }
        let socket = StreamSocket::of(self.net.clone(), id, shared, self.domain.get());
        *socket.common.lock() = common;
        socket.zero_copy.inherit(&self.zero_copy);
        Ok((socket, self.domain.get().show(&self.net, remote, Families::V4)))
    }

    fn connect(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        match address.family() {
            None => return Err(EINVAL),
            Some(Address::UNSPEC) => return self.net.act(|s, now| s.tcp.disconnect(&mut s.ip, now, self.id)),
            // Linux looks at the rest of the address when the socket may connect.
            Some(_) if !self.net.look(|s| s.tcp.may_connect(self.id))? => return Ok(()),
            Some(_) => {}
        }
        let bound = self.net.look(|s| s.tcp.sockets.get(self.id).and_then(|e| e.bound));
        let bound = bound.map_or(Ipv4Addr::UNSPECIFIED, |b| *b.ip());
        let remote =
            self.domain.get().destination(&self.net, address, self.families(), bound, Call::ConnectStream)?;
        self.net.act(|s, now| s.tcp.connect(&mut s.ip, now, self.id, remote))
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.net.act(|s, now| {
            if s.tcp.is_listener(self.id) {
                if how.reads() {
                    s.tcp.stop_listening(&mut s.ip, now, self.id);
                }
                return Ok(());
            }
            s.tcp.shutdown(self.id, how.reads(), how.writes())
        })
    }

    fn local_address(&self) -> Result<Address> {
        Ok(self.domain.get().show(&self.net, self.local(), self.families()))
    }

    fn peer_address(&self) -> Result<Address> {
        let remote = self.net.look(|s| {
            let entry = s.tcp.sockets.get(self.id).ok_or(ENOTCONN)?;
            let connection = entry.connection().filter(|c| c.is_synchronised()).ok_or(ENOTCONN)?;
            Ok(entry.shown(connection.remote()))
        })?;
        Ok(self.domain.get().show(&self.net, remote, Families::V4))
    }

    fn send(&self, _caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let done = self.send_all(message, from)?;
        if done > 0 && self.zero_copy.sent(message.flags) {
            self.shared.queue.wake(Events::ERR);
        }
        Ok(done)
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_ERRQUEUE != 0 {
            let domain = self.domain.get();
            let nobody = domain.show(&self.net, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Families::V4);
            return self.zero_copy.receive(message::error_place(domain), nobody.bytes().len());
        }
        if flags & linux::MSG_OOB != 0 {
            return self.receive_urgent(to, flags);
        }
        let discard = flags & linux::MSG_TRUNC != 0;
        let limit = to.remaining();
        if flags & linux::MSG_PEEK != 0 {
            let bytes = self.net.look(|s| s.tcp.peek(self.id, limit))?.unwrap_or_default();
            let length = if discard { bytes.len() } else { to.put(&bytes)? };
            return Ok(Received { length, control: self.control(), ..Received::default() });
        }
        if limit == 0 && self.net.look(|s| s.tcp.is_unconnected(self.id) || s.tcp.is_listener(self.id)) {
            return Err(ENOTCONN);
        }
        let mut done = 0;
        while done < limit {
            match self.receive_some(to, done, limit, discard) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(Received { length: done, control: self.control(), ..Received::default() })
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_ZEROCOPY) {
            return self.zero_copy.set(value);
        }
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_OOBINLINE) {
            let on = api_socket::options::int(value)? != 0;
            return self.with_settings(|s| {
                s.urgent_inline = on;
                Ok(())
            });
        }
        if level as u32 == linux::SOL_SOCKET {
            let mut common = self.common.lock();
            if let Some(result) = common.set(name as u32, value) {
                self.low_water.store(common.receive_low_water.max(1), Ordering::Relaxed);
                let filter = common.filter();
                drop(common);
                self.net.look(|s| s.tcp.sockets.get_mut(self.id).ok_or(EBADF).map(|e| e.filter = filter))?;
                return result;
            }
            let program = match name as u32 {
                linux::SO_ATTACH_REUSEPORT_CBPF => Some(Some(common.new_filter(value)?)),
                linux::SO_DETACH_REUSEPORT_BPF => Some(None),
                _ => None,
            };
            drop(common);
            if let Some(program) = program {
                return self.net.look(|s| s.tcp.set_selector(self.id, program));
            }
        }
        if level as u32 == IPPROTO_IPV6 && self.domain.get() == Domain::V6 {
            return self.set_ipv6(name as u32, value);
        }
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_BINDTODEVICE) {
            return self.common.lock().bind_to(ioctl::device(&self.net, value)?);
        }
        match (level as u32, name as u32) {
            (IPPROTO_TCP, TCP_FASTOPEN_KEY) => {
                let keys = Keys::from_bytes(value)?;
                let new = api_alloc::try_box(keys).map_err(|_| ENOMEM)?;
                *self.fast_open.lock() = Some(new);
                return Ok(());
            }
            // Listeners need a key from now on.
            (IPPROTO_TCP, linux::TCP_FASTOPEN) => self.net.look(|s| s.need_fast_open_keys()),
            _ => {}
        }
        let removes_clamp = (level as u32, name as u32) == (IPPROTO_TCP, linux::TCP_WINDOW_CLAMP)
            && api_socket::options::int(value) == Ok(0);
        if removes_clamp && !self.is_closed() {
            return Err(EINVAL);
        }
        if let Some(result) = self.kept.lock().set(true, level, name, value) {
            if result.is_ok() && (level as u32, name as u32) == (IPPROTO_TCP, linux::TCP_INQ) {
                self.tells_queue.store(api_socket::options::int(value)? != 0, Ordering::Relaxed);
            }
            return result;
        }
        options::set_stream(&self.net, self.id, level, name, value)
    }

    fn get_option(&self, level: i32, name: i32, asked: &[u8]) -> Result<Vec<u8>> {
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_ZEROCOPY) {
            return Ok(self.zero_copy.value());
        }
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_OOBINLINE) {
            return self.with_settings(|s| Ok(api_socket::options::from_int(s.urgent_inline)));
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
        if (level as u32, name as u32) == (IPPROTO_TCP, TCP_FASTOPEN_KEY) {
            // Those of the network are not told.
            let own = self.fast_open.lock().as_deref().copied();
            return Ok(own.map_or_else(Vec::new, Keys::to_bytes));
        }
        if let Some(value) = self.kept.lock().value(true, level, name) {
            return Ok(value);
        }
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_DOMAIN) {
            return Ok(api_socket::options::from_int(self.domain.get().number()));
        }
        if self.domain.get() == Domain::V4
            && ![linux::SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP].contains(&(level as u32))
        {
            return Err(EOPNOTSUPP);
        }
        options::get_stream(&self.net, self.id, level, name, asked)
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        self.common.lock().timeout_ns(receive)
    }

    fn receive_low_water(&self) -> usize {
        self.low_water.load(Ordering::Relaxed) as usize
    }

    fn linger_ns(&self) -> Option<u64> {
        self.net.look(|s| {
            let connection = s.tcp.sockets.get(self.id)?.connection()?;
            // Unread data is lost, and the peer is told at once.
            let waits = connection.is_synchronised() && connection.input.is_empty();
            let seconds = connection.settings.linger().filter(|seconds| waits && *seconds > 0)?;
            Some(u64::from(seconds) * 1_000_000_000)
        })
    }

    fn finish(&self) -> Result<()> {
        self.net.act(|s, _| {
            let Some(connection) = s.tcp.sockets.get(self.id).and_then(|e| e.connection()) else {
                return Ok(());
            };
            if !connection.fin {
                s.tcp.shutdown(self.id, false, true)?;
                return Err(EAGAIN);
            }
            if connection.fin_pending() { Err(EAGAIN) } else { Ok(()) }
        })
    }

    fn poll(&self) -> Events {
        let events = self.net.look(|s| match s.tcp.sockets.get(self.id).map(|e| &e.kind) {
            Some(Kind::Connection(connection)) => connection.poll(self.receive_low_water()),
            Some(Kind::Listener(listener)) => Events::NONE.with(Events::READABLE, !listener.ready.is_empty()),
            None => Events::HUP,
        });
        if self.zero_copy.is_pending() { events | Events::ERR } else { events }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.shared.queue
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let counts = || {
            self.net.look(|s| {
                let connection = s.tcp.sockets.get(self.id).and_then(|e| e.connection());
                connection.map(|c| {
                    let unsent = crate::seq::ahead(c.next, c.data_end()) as usize;
                    (c.readable_bytes(), c.queue.len(), unsent)
                })
            })
        };
        match command {
            ioctl::FIONREAD => ioctl::put_int(argument, counts().ok_or(EINVAL)?.0),
            ioctl::TIOCOUTQ => ioctl::put_int(argument, counts().ok_or(EINVAL)?.1),
            ioctl::SIOCOUTQNSD => ioctl::put_int(argument, counts().ok_or(EINVAL)?.2),
            linux_ioctl::SIOCATMARK => {
                let at_mark = self.net.look(|s| {
                    let connection = s.tcp.sockets.get(self.id).and_then(|e| e.connection());
                    connection.is_some_and(|c| c.urgent.is_at_mark())
                });
                ioctl::put_int(argument, at_mark.into())
            }
            _ => Err(ENOTTY),
        }
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.net.act(|s, now| s.tcp.close(&mut s.ip, now, self.id));
        }
    }
}

use abi::linux::ioctl as linux_ioctl;

impl Drop for StreamSocket {
    fn drop(&mut self) {
        self.close();
    }
}
