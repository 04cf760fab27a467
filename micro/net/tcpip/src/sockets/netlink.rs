// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_NETLINK. NETLINK_KOBJECT_UEVENT, where no device ever comes or goes; and NETLINK_ROUTE, as far as programs use it to list interfaces, addresses and routes (getifaddrs(3),
//! if_nameindex(3), and getaddrinfo(3) through them): dumps, one interface, the route to one address. Changes are refused with EPERM, anything else with
//! EOPNOTSUPP, both as netlink errors.

mod route;

use super::ioctl::{Interface, interfaces};
use crate::stack::Net;
use abi::linux::net as linux;
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_socket::filter::environment;
use api_socket::options::{Common, from_int, int};
use api_socket::{Address, Caller, Credentials, Family, Received, Sending, Socket, Type};
use classic_bpf::packet::Packet;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU32, Ordering};
use ordered::Set;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// Longest request taken.
const REQUEST_MOST: usize = 8192;
/// Bytes of answers that wait for a reader, Linux' usual receive buffer; whoever asks for more has `ENOBUFS`.
const MAX_WAITING: usize = 212_992;
/// What an answer costs beside its bytes.
const REPLY_OVERHEAD: usize = 64;
const NETLINK_ROUTE: u32 = 0;
const NETLINK_KOBJECT_UEVENT: u32 = 15;
const NETLINK_ADD_MEMBERSHIP: u32 = 1;
const NETLINK_DROP_MEMBERSHIP: u32 = 2;
/// Options that are kept as they were set (NETLINK_PKTINFO, BROADCAST_ERROR, NO_ENOBUFS, LISTEN_ALL_NSID, CAP_ACK, EXT_ACK and
/// GET_STRICT_CHK): they change how much an error says, and what of other senders is heard, of whom there are none.
const FLAGS: [u32; 7] = [3, 4, 5, 8, 10, 11, 12];
/// Groups that a program can hear; nobody speaks to any.
const GROUPS: u32 = 64;
/// Where Linux begins to look for a port when the process' own is taken, downwards.
const FIRST_PORT: u32 = (-4097i32) as u32;

/// Port ids in use.
#[derive(Default)]
struct Ports {
    /// With the protocol, the one of each socket.
    used: Set<(u32, u32)>,
    /// Where the search for the next port begins, below [`FIRST_PORT`]: it goes on where the last one ended.
    next: u32,
}

impl Ports {
    /// The port of a new socket.
    fn take(&mut self, protocol: u32, pid: u32) -> u32 {
        let mut port = pid;
        while !self.used.insert((protocol, port)) {
            port = FIRST_PORT - self.next % (FIRST_PORT / 2);
            self.next = self.next.wrapping_add(1);
        }
        port
    }
}

/// Answers in the order they are read.
#[derive(Default)]
struct Replies {
    waiting: VecDeque<Vec<u8>>,
    /// What they cost.
    bytes: usize,
}

impl Replies {
    fn has_room(&self) -> bool {
        self.bytes < MAX_WAITING && !api_alloc::is_low()
    }

    fn push(&mut self, reply: Vec<u8>) -> Result<()> {
        self.waiting.reserve_fallibly(1).map_err(|_| ENOBUFS)?;
        self.bytes += reply.len() + REPLY_OVERHEAD;
        self.waiting.push_back(reply);
        Ok(())
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let reply = self.waiting.pop_front()?;
        self.bytes -= reply.len() + REPLY_OVERHEAD;
        Some(reply)
    }

    /// Puts back what [`Replies::pop`] took.
    fn unread(&mut self, reply: Vec<u8>) {
        self.bytes += reply.len() + REPLY_OVERHEAD;
        self.waiting.push_front(reply);
    }
}

pub struct Netlink {
    net: Arc<Net>,
    ports: Arc<SpinLock<Ports>>,
}

impl Netlink {
    pub fn new(net: Arc<Net>) -> Netlink {
        Netlink { net, ports: Arc::default() }
    }
}

impl Family for Netlink {
    fn number(&self) -> u16 {
        Address::NETLINK
    }

    fn create(&self, creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>> {
        if !matches!(kind, Type::Raw | Type::Datagram) {
            return Err(ESOCKTNOSUPPORT);
        }
        if !matches!(protocol, NETLINK_ROUTE | NETLINK_KOBJECT_UEVENT) {
            return Err(EPROTONOSUPPORT);
        }
        // A process' first socket has its number for a port (netlink(7)).
        let port = self.ports.lock().take(protocol, creator.pid);
        Ok(Arc::new(NetlinkSocket {
            net: self.net.clone(),
            kind,
            protocol,
            port,
            ports: self.ports.clone(),
            replies: SpinLock::default(),
            common: SpinLock::default(),
            flags: AtomicU32::new(0),
            queue: WaitQueue::new(),
        }))
    }
}

struct NetlinkSocket {
    net: Arc<Net>,
    kind: Type,
    protocol: u32,
    port: u32,
    ports: Arc<SpinLock<Ports>>,
    replies: SpinLock<Replies>,
    common: SpinLock<Common>,
    /// A bit for each of [`FLAGS`] that was set.
    flags: AtomicU32,
    queue: WaitQueue,
}

/// A message under construction, or that there is no memory for it.
struct Message(Result<Vec<u8>>);

impl Message {
    fn new(kind: u16, flags: u16, seq: u32, port: u32) -> Message {
        Message(Ok(Vec::new()))
            .put(&[0; 4])
            .put(&kind.to_ne_bytes())
            .put(&flags.to_ne_bytes())
            .put(&seq.to_ne_bytes())
            .put(&port.to_ne_bytes())
    }

    fn put(mut self, bytes: &[u8]) -> Message {
        if let Ok(so_far) = &mut self.0
            && let Err(error) = append(so_far, bytes)
        {
            self.0 = Err(error);
        }
        self
    }

    /// A route attribute, padded to 4 bytes.
    fn attribute(self, kind: u16, data: &[u8]) -> Message {
        let padding = data.len().next_multiple_of(4) - data.len();
        self.put(&(4 + data.len() as u16).to_ne_bytes())
            .put(&kind.to_ne_bytes())
            .put(data)
            .put(&[0; 3][..padding])
    }

    /// The name of an interface, ended by a zero.
    fn name(self, kind: u16, interface: &Interface) -> Message {
        let mut name = [0; 16];
        let length = interface.name.len().min(name.len() - 1);
        name[..length].copy_from_slice(&interface.name.as_bytes()[..length]);
        self.attribute(kind, &name[..=length])
    }

    fn finish(self) -> Result<Vec<u8>> {
        let mut bytes = self.0?;
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        Ok(bytes)
    }
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    to.reserve_fallibly(bytes.len()).map_err(|_| ENOBUFS)?;
    to.extend_from_slice(bytes);
    Ok(())
}

/// `struct rtnl_link_stats64`: packets, bytes, errors, drops of both ways, and counters that no device here has.
fn traffic(interface: &Interface) -> [u8; 200] {
    let seen = &interface.traffic;
    let mut out = [0; 200];
    let counted = [
        seen.received_packets,
        seen.sent_packets,
        seen.received_bytes,
        seen.sent_bytes,
        0,
        0,
        0,
        seen.sent_dropped,
    ];
    for (to, number) in out.chunks_exact_mut(8).zip(counted) {
        to.copy_from_slice(&number.to_ne_bytes());
    }
    out
}

/// Whether RTM_NEWLINK asks an interface to be as it is: `ip link set lo up`, which scripts say to be sure.
fn changes_nothing(request: &[u8], all: &[Interface]) -> bool {
    // struct ifinfomsg behind the header, and no attributes.
    let Some([_, index, flags, change]) =
        request.get(16..32).and_then(|info| info.as_chunks::<4>().0.as_array())
    else {
        return false;
    };
    let (flags, change) = (u32::from_ne_bytes(*flags), u32::from_ne_bytes(*change));
    let is_one = |interface: &&Interface| interface.index.to_ne_bytes() == *index;
    let is_so = |interface: &Interface| (interface.flags ^ flags) & change == 0;
    request.len() == 32 && all.iter().find(is_one).is_some_and(is_so)
}

fn link(interface: &Interface, seq: u32, port: u32) -> Result<Vec<u8>> {
    let kind: u16 = if interface.is_loopback() { 772 } else { 1 };
    let broadcast = if interface.is_loopback() { [0; 6] } else { [0xff; 6] };
    Message::new(RTM_NEWLINK, NLM_F_MULTI, seq, port)
        .put(&[0, 0])
        .put(&kind.to_ne_bytes())
        .put(&interface.index.to_ne_bytes())
        .put(&interface.flags.to_ne_bytes())
        .put(&[0; 4])
        .name(3, interface)
        .attribute(13, &1000u32.to_ne_bytes())
        .attribute(16, &[if interface.is_loopback() { 0 } else { 6 }])
        .attribute(4, &(interface.mtu as u32).to_ne_bytes())
        .attribute(1, &interface.mac)
        .attribute(2, &broadcast)
        .attribute(23, &traffic(interface))
        .finish()
}

fn address(interface: &Interface, address: Ipv4Addr, seq: u32, port: u32) -> Result<Vec<u8>> {
    // Scope: 254 host, 0 universe; IFA_F_PERMANENT.
    let scope = if interface.is_loopback() { 254 } else { 0 };
    let message = Message::new(RTM_NEWADDR, NLM_F_MULTI, seq, port)
        .put(&[2, interface.prefix, 0x80, scope])
        .put(&interface.index.to_ne_bytes())
        .attribute(1, &address.octets())
        .attribute(2, &address.octets());
    let message =
        if interface.is_loopback() { message } else { message.attribute(4, &interface.broadcast().octets()) };
    message.name(3, interface).attribute(8, &0x80u32.to_ne_bytes()).finish()
}

/// `::1`, the only address of AF_INET6.
fn loopback6(interface: &Interface, seq: u32, port: u32) -> Result<Vec<u8>> {
    Message::new(RTM_NEWADDR, NLM_F_MULTI, seq, port)
        .put(&[10, 128, 0x80, 254])
        .put(&interface.index.to_ne_bytes())
        .attribute(1, &Ipv6Addr::LOCALHOST.octets())
        .attribute(8, &0x80u32.to_ne_bytes())
        .finish()
}

impl NetlinkSocket {
    fn set_netlink(&self, name: u32, value: &[u8]) -> Result<()> {
        let n = int(value)?;
        match name {
            NETLINK_ADD_MEMBERSHIP | NETLINK_DROP_MEMBERSHIP if (1..=GROUPS).contains(&(n as u32)) => Ok(()),
            NETLINK_ADD_MEMBERSHIP | NETLINK_DROP_MEMBERSHIP => Err(EINVAL),
            _ if FLAGS.contains(&name) => {
                let bit = 1 << name;
                if n == 0 {
                    self.flags.fetch_and(!bit, Ordering::Relaxed);
                } else {
                    self.flags.fetch_or(bit, Ordering::Relaxed);
                }
                Ok(())
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    fn answer(&self, request: &[u8], by_administrator: bool) -> Result<()> {
        let word =
            |at: usize| request.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let (kind, flags) = (word(4) as u16, (word(4) >> 16) as u16);
        let seq = word(8);
        let family = request.get(16).copied().unwrap_or(0);
        let mut all: Vec<Interface> = Vec::new();
        self.net.look(|s| {
            for interface in interfaces(s) {
                all.reserve_fallibly(1).map_err(|_| ENOBUFS)?;
                all.push(interface);
            }
            Ok(())
        })?;
        let mut reply = Vec::new();
        let dump = flags & NLM_F_DUMP != 0;
        match kind {
            RTM_GETLINK if dump => {
                for interface in &all {
                    append(&mut reply, &link(interface, seq, self.port)?)?;
                }
            }
            RTM_GETLINK => {
                let index = word(20) as i32;
                return self.push(match all.iter().find(|i| i.index == index) {
                    Some(interface) => link(interface, seq, self.port)?,
                    None => self.error(ENODEV, request)?,
                });
            }
            RTM_GETADDR if matches!(family, 0 | 2 | 10) => {
                for interface in &all {
                    if let Some(a) = interface.address.filter(|_| family != 10) {
                        append(&mut reply, &address(interface, a, seq, self.port)?)?;
                    }
                }
                for interface in all.iter().filter(|i| i.is_loopback() && family != 2) {
                    append(&mut reply, &loopback6(interface, seq, self.port)?)?;
                }
            }
            RTM_GETROUTE if !dump => {
                let found = self.net.look(|s| route::look_up(s, request, seq, self.port))?;
                return self.push(found.or_else(|errno| self.error(errno, request))?);
            }
            RTM_GETROUTE if family == 0 || family == 2 => {
                let configuration = self.net.look(|s| s.ip.configuration);
                if let Some(c) = configuration {
                    if c.gateway.is_some() {
                        append(&mut reply, &route::entry(None, c.address, c.gateway, seq, self.port)?)?;
                    }
                    let network = Ipv4Addr::from_bits(c.address.to_bits() & c.netmask().to_bits());
                    append(
                        &mut reply,
                        &route::entry(Some((network, c.prefix)), c.address, None, seq, self.port)?,
                    )?;
                }
            }
            RTM_GETADDR | RTM_GETROUTE => {}
            RTM_NEWLINK if by_administrator && changes_nothing(request, &all) => {
                if flags & NLM_F_ACK != 0 {
                    self.push(self.error(Errno(0), request)?)?;
                }
                return Ok(());
            }
            // New, delete, set.
            16.. if kind % 4 != 2 => return self.push(self.error(EPERM, request)?),
            _ if kind < 16 => {
                if flags & NLM_F_ACK != 0 {
                    self.push(self.error(Errno(0), request)?)?;
                }
                return Ok(());
            }
            _ => return self.push(self.error(EOPNOTSUPP, request)?),
        }
        if !reply.is_empty() {
            self.push(reply)?;
        }
        self.push(Message::new(NLMSG_DONE, NLM_F_MULTI, seq, self.port).put(&[0; 4]).finish()?)
    }

    fn error(&self, errno: Errno, request: &[u8]) -> Result<Vec<u8>> {
        let seq = request.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        Message::new(NLMSG_ERROR, 0, seq, self.port)
            .put(&(-i32::from(errno.0)).to_ne_bytes())
            .put(&request[..request.len().min(16)])
            .finish()
    }

    fn push(&self, mut reply: Vec<u8>) -> Result<()> {
        if let Some(filter) = self.common.lock().filter() {
            match filter.keeps(&Packet::plain(&reply, environment())) {
                Some(kept) => reply.truncate(kept),
                None => return Ok(()),
            }
        }
        self.replies.lock().push(reply)
    }

    fn address(&self, port: u32) -> Address {
        let mut rest = [0; 10];
        rest[2..6].copy_from_slice(&port.to_ne_bytes());
        Address::new(Address::NETLINK, &rest)
    }
}

impl Drop for NetlinkSocket {
    fn drop(&mut self) {
        self.ports.lock().used.remove(&(self.protocol, self.port));
    }
}

impl Socket for NetlinkSocket {
    fn family(&self) -> u16 {
        Address::NETLINK
    }

    fn socket_type(&self) -> Type {
        self.kind
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        match (address.family(), address.bytes().len()) {
            (Some(Address::NETLINK), 12..) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    fn connect(&self, _caller: &Caller<'_>, _address: &Address) -> Result<()> {
        Ok(())
    }

    fn local_address(&self) -> Result<Address> {
        Ok(self.address(self.port))
    }

    fn peer_address(&self) -> Result<Address> {
        Ok(self.address(0))
    }

    fn send(&self, caller: Option<&Caller<'_>>, _message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let by_administrator = caller.is_some_and(|caller| caller.names.may_administer());
        if from.remaining() > REQUEST_MOST {
            return Err(EMSGSIZE);
        }
        if self.protocol != NETLINK_ROUTE {
            // Nobody listens in the kernel.
            return Err(ECONNREFUSED);
        }
        if !self.replies.lock().has_room() {
            return Err(ENOBUFS);
        }
        let bytes = from.take_vec(REQUEST_MOST)?;
        let mut rest = &bytes[..];
        while rest.len() >= 16 {
            let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            if length < 16 || length > rest.len() {
                break;
            }
            // One message may hold many requests.
            if !self.replies.lock().has_room() {
                return Err(ENOBUFS);
            }
            self.answer(&rest[..length], by_administrator)?;
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        self.queue.wake(Events::READABLE);
        Ok(bytes.len())
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        let reply = self.replies.lock().pop().ok_or(EAGAIN)?;
        let moved = to.put(&reply);
        let length = reply.len();
        if flags & linux::MSG_PEEK != 0 || moved.is_err() {
            self.replies.lock().unread(reply);
        }
        let moved = moved?;
        Ok(Received {
            length: if flags & linux::MSG_TRUNC != 0 { length } else { moved },
            from: Some(self.address(0)),
            control: Vec::new(),
            flags: if moved < length { linux::MSG_TRUNC } else { 0 },
        })
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        match level as u32 {
            linux::SOL_SOCKET => match name as u32 {
                linux::SO_SNDBUF | linux::SO_RCVBUF | linux::SO_RCVBUFFORCE | linux::SO_SNDBUFFORCE => Ok(()),
                name => {
                    let mut common = self.common.lock();
                    let done = common.set(name, value).or_else(|| common.set_inert(name, value));
                    done.unwrap_or(Err(ENOPROTOOPT))
                }
            },
            linux::SOL_NETLINK => self.set_netlink(name as u32, value),
            _ => Err(ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, name: i32, _asked: &[u8]) -> Result<Vec<u8>> {
        if level as u32 == linux::SOL_NETLINK {
            let known = FLAGS.contains(&(name as u32)).then_some(1 << name);
            let bit = known.ok_or(ENOPROTOOPT)?;
            return Ok(from_int(self.flags.load(Ordering::Relaxed) & bit != 0));
        }
        if level as u32 != linux::SOL_SOCKET {
            return Err(ENOPROTOOPT);
        }
        Ok(match name as u32 {
            linux::SO_TYPE => from_int(self.kind as u32),
            linux::SO_DOMAIN => from_int(Address::NETLINK),
            linux::SO_PROTOCOL => from_int(self.protocol),
            linux::SO_ERROR | linux::SO_ACCEPTCONN => from_int(0),
            linux::SO_SNDBUF | linux::SO_RCVBUF => from_int(212_992),
            name => {
                let mut common = self.common.lock();
                return common.get(name).or_else(|| common.inert(name)).ok_or(ENOPROTOOPT);
            }
        })
    }

    fn poll(&self) -> Events {
        let some = !self.replies.lock().waiting.is_empty();
        Events::SENDABLE.with(Events::READABLE, some)
    }

    fn post(&self, message: &[u8]) -> Result<()> {
        if !message.is_empty() {
            let mut replies = self.replies.lock();
            if !replies.has_room() {
                return Err(ENOBUFS);
            }
            let mut reply = Vec::new();
            append(&mut reply, message)?;
            replies.push(reply)?;
            drop(replies);
            self.queue.wake(Events::READABLE);
        }
        Ok(())
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }

    fn close(&self) {}
}
