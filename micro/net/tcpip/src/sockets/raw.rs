// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_INET: SOCK_RAW, and SOCK_DGRAM with IPPROTO_ICMP.

use super::domain::Domain;
use super::ioctl;
use super::kept::{IPPROTO_IP, Kept};
use super::options::{buffer_size, int_or_byte, time_to_live};
use crate::families::Families;
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
use api_socket::options::{Common, from_int, int};
use api_socket::settings;
use api_socket::{Address, Caller, Control, Received, Sending, Shutdown, Socket, Type};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};

/// SOL_RAW and its one option (raw(7)).
const SOL_RAW: u32 = 255;
const ICMP_FILTER: u32 = 1;
/// Largest message, header included.
const LARGEST: usize = 65_535;

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
    common: SpinLock<Common>,
    kept: SpinLock<Kept>,
    wanted: SpinLock<Wanted>,
    closed: AtomicBool,
}

impl RawSocket {
    pub fn new(net: Arc<Net>, protocol: u8, is_ping: bool) -> Result<Arc<RawSocket>> {
        let shared = Shared::new();
        let id = net.look(|s| s.raw.create(shared.clone(), protocol, is_ping))?;
        Ok(Arc::new(RawSocket {
            net,
            id,
            shared,
            protocol,
            is_ping,
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
        Domain::V4.show(SocketAddrV4::new(address, port), Families::V4)
    }

    fn destination(&self, address: &Address) -> Result<Ipv4Addr> {
        Ok(*Domain::V4.destination(address, Families::V4, true)?.ip())
    }

    fn control(&self, packet: &crate::raw::Packet) -> Vec<Control> {
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
        Address::INET
    }

    fn socket_type(&self) -> Type {
        if self.is_ping { Type::Datagram } else { Type::Raw }
    }

    fn protocol(&self) -> u32 {
        self.protocol.into()
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let anywhere = self.kept.lock().binds_anywhere();
        let (address, _) = Domain::V4.bindable(&self.net, address, Families::V4, anywhere, false)?;
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
            Some(Address::UNSPEC) => None,
            _ => Some(self.destination(address)?),
        };
        self.net.look(|s| {
            let route = remote.map(|remote| s.ip.route(remote).ok_or(ENETUNREACH)).transpose()?;
            let socket = s.raw.sockets.get_mut(self.id).ok_or(EBADF)?;
            if let Some(route) = route.filter(|_| socket.local.is_unspecified()) {
                socket.local = route.source;
            }
            socket.remote = remote;
            Ok(())
        })
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.with(|s| {
            if s.remote.is_none() {
                return Err(ENOTCONN);
            }
            s.read_shut |= how.reads();
            s.write_shut |= how.writes();
            Ok(())
        })?;
        self.shared.queue.wake_all(Events::IN | Events::OUT | Events::RDHUP | Events::HUP);
        Ok(())
    }

    /// The port is the protocol's number, or the identifier.
    fn local_address(&self) -> Result<Address> {
        self.with(|s| Ok(self.show(s.local, s.ping.unwrap_or(self.protocol.into()))))
    }

    fn peer_address(&self) -> Result<Address> {
        self.with(|s| s.remote.map(|remote| self.show(remote, 0)).ok_or(ENOTCONN))
    }

    fn send(&self, _caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let length = from.remaining();
        if length > LARGEST {
            return Err(EMSGSIZE);
        }
        if message.flags & linux::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        let to = message.to.as_ref().map(|to| self.destination(to)).transpose()?;
        let bytes = from.take_vec(length)?;
        if bytes.len() < length {
            return Err(EFAULT);
        }
        self.net.act(|s, now| s.raw.send(&mut s.ip, now, self.id, to, &bytes))?;
        Ok(length)
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & linux::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if flags & linux::MSG_ERRQUEUE != 0 {
            return Err(EAGAIN);
        }
        let packet = self.with(|s| match s.pop() {
            Some(packet) => Ok(Some(packet)),
            None if s.read_shut => Ok(None),
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
                s.unpop(packet);
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
        if let Some(result) = self.kept.lock().set(false, level, name, value) {
            return result;
        }
        let on = || int_or_byte(value).map(|n| n != 0);
        match (level as u32, name as u32) {
            (linux::SOL_SOCKET, linux::SO_BROADCAST) => self.with(|s| on().map(|v| s.broadcast = v)),
            (linux::SOL_SOCKET, linux::SO_RCVBUF | linux::SO_RCVBUFFORCE) => self.with(|s| {
                buffer_size(value, 1152, &settings::MAX_RECEIVE_BUFFER[0]).map(|n| s.receive_buffer = n)
            }),
            (linux::SOL_SOCKET, linux::SO_SNDBUF | linux::SO_SNDBUFFORCE) => self
                .with(|s| buffer_size(value, 2304, &settings::MAX_SEND_BUFFER[0]).map(|n| s.send_buffer = n)),
            (linux::SOL_SOCKET, linux::SO_BINDTODEVICE) => {
                self.common.lock().bind_to(ioctl::device(&self.net, value)?)
            }
            (IPPROTO_IP, linux::IP_HDRINCL) if self.is_ping => Err(ENOPROTOOPT),
            (IPPROTO_IP, linux::IP_HDRINCL) => self.with(|s| on().map(|v| s.has_header = v)),
            (IPPROTO_IP, linux::IP_PKTINFO) => on().map(|v| self.wanted.lock().packet_info = v),
            (IPPROTO_IP, linux::IP_RECVTTL) => on().map(|v| self.wanted.lock().ttl = v),
            (IPPROTO_IP, linux::IP_RECVTOS) => on().map(|v| self.wanted.lock().tos = v),
            (IPPROTO_IP, linux::IP_RECVERR | linux::IP_MULTICAST_LOOP | linux::IP_MULTICAST_IF) => Ok(()),
            (IPPROTO_IP, linux::IP_TTL) => self.with(|s| time_to_live(value).map(|n| s.ttl = n)),
            (IPPROTO_IP, linux::IP_TOS) => self.with(|s| int_or_byte(value).map(|n| s.tos = n as u8)),
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
        if let Some(value) = self.kept.lock().value(false, level, name) {
            return Ok(value);
        }
        let wanted = *self.wanted.lock();
        let inert = self.common.lock().inert(name as u32);
        self.with(|s| {
            Ok(match (level as u32, name as u32) {
                (linux::SOL_SOCKET, linux::SO_ERROR | linux::SO_ACCEPTCONN) => from_int(0),
                (linux::SOL_SOCKET, linux::SO_TYPE) => from_int(self.socket_type() as u32),
                (linux::SOL_SOCKET, linux::SO_DOMAIN) => from_int(Address::INET),
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
            self.net.look(|s| drop(s.raw.sockets.remove(self.id)));
        }
    }
}

impl Drop for RawSocket {
    fn drop(&mut self) {
        self.close();
    }
}
