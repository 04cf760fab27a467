// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_NETLINK. NETLINK_KOBJECT_UEVENT, where no device ever comes or goes; and NETLINK_ROUTE, as far as programs use it to list interfaces, addresses and routes (getifaddrs(3),
//! if_nameindex(3), and getaddrinfo(3) through them): dumps, one interface, the route to one address. Of changes the loopback takes addresses; others are
//! refused with EPERM, anything else with EOPNOTSUPP, both as netlink errors.

mod message;
mod route;

use super::ioctl::{IFF_UP, Interface, interfaces};
use crate::stack::{Net, Stack};
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
use api_socket::{Address, Caller, Control, Credentials, Family, Received, Sending, Socket, Type};
use classic_bpf::packet::Packet;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use message::{Attributes, Message, Reply, append};
use ordered::Set;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// Of an error: the request is not there wholly.
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
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
const NETLINK_LIST_MEMBERSHIPS: u32 = 9;
const NETLINK_CAP_ACK: u32 = 10;
/// Options that are kept as they were set (NETLINK_PKTINFO, BROADCAST_ERROR, NO_ENOBUFS, LISTEN_ALL_NSID, CAP_ACK, EXT_ACK and
/// GET_STRICT_CHK): they change how much an error says, and what of other senders is heard, of whom there are none.
const FLAGS: [u32; 7] = [3, 4, 5, 8, 10, 11, 12];
/// Groups that a program can hear; nobody speaks to any. Of NETLINK_ROUTE Linux 6.1 has 36.
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
            port: AtomicU32::new(port),
            is_bound: AtomicBool::new(false),
            groups: AtomicU64::new(0),
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
    /// Its own from the first bind(2) or message on.
    port: AtomicU32,
    is_bound: AtomicBool,
    /// A bit for each group that it is in, from 1 on.
    groups: AtomicU64,
    ports: Arc<SpinLock<Ports>>,
    replies: SpinLock<Replies>,
    common: SpinLock<Common>,
    /// A bit for each of [`FLAGS`] that was set.
    flags: AtomicU32,
    queue: WaitQueue,
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

/// RTM_NEWLINK of a network whose loopback interface is all it has: it may be brought up, and down again.
fn set_link(stack: &mut Stack, request: &[u8]) -> Result<()> {
    let Some([_, index, flags, change]) =
        request.get(16..32).and_then(|info| info.as_chunks::<4>().0.as_array())
    else {
        return Err(EINVAL);
    };
    let (flags, change) = (u32::from_ne_bytes(*flags), u32::from_ne_bytes(*change));
    if i32::from_ne_bytes(*index) != crate::multicast::LOOPBACK {
        return Err(ENODEV);
    }
    // Other flags, and attributes, would be another interface's.
    if change & !IFF_UP != 0 || request.len() > 32 {
        return Err(EOPNOTSUPP);
    }
    if change != 0 {
        stack.ip.lo.set_up(flags & IFF_UP != 0);
    }
    Ok(())
}

/// Whether RTM_GETLINK asks for the interface, by its number or its name.
fn is_asked_for(request: &[u8], interface: &Interface) -> bool {
    const IFLA_IFNAME: u16 = 3;
    const IFLA_ALT_IFNAME: u16 = 53;
    // struct ifinfomsg behind the header.
    let index = request.get(20..24).and_then(|b| b.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if index != 0 {
        return index == interface.index;
    }
    let name = attribute(request, 32, &[IFLA_IFNAME, IFLA_ALT_IFNAME]);
    name.is_some_and(|name| name.split(|byte| *byte == 0).next() == Some(interface.name.as_bytes()))
}

/// The first attribute with one of these numbers, behind the header that ends at `start`.
fn attribute<'a>(request: &'a [u8], start: usize, wanted: &[u16]) -> Option<&'a [u8]> {
    let mut sound = Attributes(request.get(start..)?).map_while(Result::ok);
    sound.find(|(kind, _)| wanted.contains(kind)).map(|(_, data)| data)
}

/// RTM_NEWADDR and RTM_DELADDR. The device's address is the host's to give; the loopback takes those of IPv4.
fn change_address(stack: &mut Stack, adds: bool, request: &[u8]) -> Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const AF_INET: u8 = 2;
    // struct ifaddrmsg behind the header: family, prefix, flags, scope, index.
    let &[family, prefix, _, _, ref index @ ..] = request.get(16..24).ok_or(EINVAL)? else {
        return Err(EINVAL);
    };
    let index = index.try_into().map_or(0, i32::from_ne_bytes);
    if !interfaces(stack).any(|interface| interface.index == index) {
        return Err(ENODEV);
    }
    if family != AF_INET || index != crate::multicast::LOOPBACK {
        return Err(EPERM);
    }
    let address = attribute(request, 24, &[IFA_LOCAL]).or_else(|| attribute(request, 24, &[IFA_ADDRESS]));
    let address: [u8; 4] = address.and_then(|bytes| bytes.get(..4)?.try_into().ok()).ok_or(EINVAL)?;
    // A network whose loopback is all it has begins without the address that it gets with going up.
    let is_usual = (Ipv4Addr::from(address), prefix) == (Ipv4Addr::LOCALHOST, 8);
    match adds {
        true if is_usual && !stack.ip.lo.has_address => {
            stack.ip.lo.has_address = true;
            Ok(())
        }
        true => stack.ip.local.add(address.into(), prefix),
        false => stack.ip.local.remove(address.into(), prefix),
    }
}

/// Port and groups of a `struct sockaddr_nl`.
fn read_address(address: &Address) -> Result<(u32, u32)> {
    let word = |at: usize| {
        let bytes = address.bytes().get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or(EINVAL)
    };
    match address.family() {
        Some(Address::NETLINK) => Ok((word(4)?, word(8)?)),
        _ => Err(EINVAL),
    }
}

impl NetlinkSocket {
    fn set_netlink(&self, name: u32, value: &[u8]) -> Result<()> {
        let n = int(value)?;
        match name {
            NETLINK_ADD_MEMBERSHIP if (1..=GROUPS).contains(&(n as u32)) => {
                self.groups.fetch_or(1 << (n - 1), Ordering::Relaxed);
                Ok(())
            }
            NETLINK_DROP_MEMBERSHIP if (1..=GROUPS).contains(&(n as u32)) => {
                self.groups.fetch_and(!(1 << (n - 1)), Ordering::Relaxed);
                Ok(())
            }
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
        let dump = flags & NLM_F_DUMP != 0;
        let reply = Reply { seq, port: self.port(), is_part: dump };
        let mut parts = Vec::new();
        match kind {
            RTM_GETLINK if dump => {
                for interface in &all {
                    append(&mut parts, &message::link(interface, reply)?)?;
                }
            }
            RTM_GETLINK => {
                let named = all.iter().find(|interface| is_asked_for(request, interface));
                let answer = named.ok_or(ENODEV).map(|interface| message::link(interface, reply));
                return self.answer_one(answer, request);
            }
            RTM_GETADDR if matches!(family, 0 | 2 | 10) => {
                for interface in &all {
                    if let Some(a) = interface.address.filter(|_| family != 10) {
                        append(&mut parts, &message::address(interface, a, reply)?)?;
                    }
                }
                for interface in all.iter().filter(|i| i.is_loopback() && family != 10) {
                    self.net.look(|s| {
                        s.ip.local.iter().try_for_each(|(address, prefix)| {
                            let other = Interface { prefix, ..*interface };
                            append(&mut parts, &message::address(&other, address, reply)?)
                        })
                    })?;
                }
                for interface in
                    all.iter().filter(|i| i.is_loopback() && i.flags & IFF_UP != 0 && family != 2)
                {
                    append(&mut parts, &message::loopback6(interface, reply)?)?;
                }
            }
            RTM_GETROUTE if !dump => {
                let found = self.net.look(|s| route::look_up(s, request, reply))?;
                return self.answer_one(found.map(Ok), request);
            }
            RTM_GETROUTE if matches!(family, 0 | 2 | 10) => {
                let configuration = self.net.look(|s| s.ip.configuration);
                route::table(configuration.as_ref(), family, reply, &mut |entry| append(&mut parts, &entry))?;
            }
            RTM_GETRULE if dump && matches!(family, 0 | 2 | 10) => {
                // Of IPv6 there is no default table.
                let all = [(2, 0, 255), (2, 32_766, 254), (2, 32_767, 253), (10, 0, 255), (10, 32_766, 254)];
                for (of, priority, table) in all.into_iter().filter(|(of, ..)| family == 0 || family == *of) {
                    append(&mut parts, &message::rule(of, priority, table, reply)?)?;
                }
            }
            RTM_GETADDR | RTM_GETROUTE => {}
            RTM_NEWLINK if by_administrator && changes_nothing(request, &all) => {
                return self.acknowledge(flags, request);
            }
            // No interface comes or goes.
            RTM_DELLINK if by_administrator => {
                let is_there = all.iter().any(|interface| is_asked_for(request, interface));
                let errno = if is_there { EOPNOTSUPP } else { ENODEV };
                return self.push(self.error(errno, request)?);
            }
            RTM_NEWLINK if by_administrator && self.net.look(|s| s.ip.lo.can_change) => {
                return match self.net.look(|s| set_link(s, request)) {
                    Ok(()) => self.acknowledge(flags, request),
                    Err(errno) => self.push(self.error(errno, request)?),
                };
            }
            RTM_NEWADDR | RTM_DELADDR if by_administrator => {
                let replaces = flags & (NLM_F_REPLACE | NLM_F_EXCL) == NLM_F_REPLACE;
                let changed = self.net.look(|s| change_address(s, kind == RTM_NEWADDR, request));
                return match changed {
                    Err(EEXIST) if replaces => self.acknowledge(flags, request),
                    Ok(()) => self.acknowledge(flags, request),
                    Err(errno) => self.push(self.error(errno, request)?),
                };
            }
            // New, delete, set.
            16.. if kind % 4 != 2 => return self.push(self.error(EPERM, request)?),
            _ if kind < 16 => return self.acknowledge(flags, request),
            _ => return self.push(self.error(EOPNOTSUPP, request)?),
        }
        if !parts.is_empty() {
            self.push(parts)?;
        }
        self.push(reply.message(NLMSG_DONE).put(&[0; 4]).finish()?)
    }

    /// What one message is answered, and that it was, if that is asked for; or the error.
    fn answer_one(&self, answer: core::result::Result<Result<Vec<u8>>, Errno>, request: &[u8]) -> Result<()> {
        match answer {
            Ok(answer) => {
                self.push(answer?)?;
                let flags = request.get(6..8).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]));
                self.acknowledge(flags, request)
            }
            Err(errno) => self.push(self.error(errno, request)?),
        }
    }

    fn acknowledge(&self, flags: u16, request: &[u8]) -> Result<()> {
        if flags & NLM_F_ACK != 0 { self.push(self.error(Errno(0), request)?) } else { Ok(()) }
    }

    fn error(&self, errno: Errno, request: &[u8]) -> Result<Vec<u8>> {
        let seq = request.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        // An error tells which request it is about, wholly where nobody has asked for less.
        let is_short = errno.0 == 0 || self.flags.load(Ordering::Relaxed) & 1 << NETLINK_CAP_ACK != 0;
        let shown = if is_short { 16 } else { request.len() };
        let flags = if is_short { NLM_F_CAPPED } else { 0 };
        Message::new(NLMSG_ERROR, flags, seq, self.port())
            .put(&(-i32::from(errno.0)).to_ne_bytes())
            .put(&request[..request.len().min(shown)])
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

    fn port(&self) -> u32 {
        self.port.load(Ordering::Relaxed)
    }

    /// `struct sockaddr_nl`: the groups are the first 32.
    fn address(&self, port: u32, groups: u64) -> Address {
        let mut rest = [0; 10];
        rest[2..6].copy_from_slice(&port.to_ne_bytes());
        rest[6..].copy_from_slice(&(groups as u32).to_ne_bytes());
        Address::new(Address::NETLINK, &rest)
    }
}

impl Drop for NetlinkSocket {
    fn drop(&mut self) {
        self.ports.lock().used.remove(&(self.protocol, self.port()));
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
        let (port, groups) = read_address(address)?;
        if port != 0 && port != self.port() {
            if self.is_bound.load(Ordering::Relaxed) {
                return Err(EINVAL);
            }
            let mut ports = self.ports.lock();
            if !ports.used.insert((self.protocol, port)) {
                return Err(EADDRINUSE);
            }
            ports.used.remove(&(self.protocol, self.port.swap(port, Ordering::Relaxed)));
        }
        self.is_bound.store(true, Ordering::Relaxed);
        let keep = |all: u64| Some(all >> 32 << 32 | u64::from(groups));
        let _ = self.groups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, keep);
        Ok(())
    }

    fn connect(&self, caller: &Caller<'_>, address: &Address) -> Result<()> {
        if address.family() == Some(Address::UNSPEC) {
            return Ok(());
        }
        match read_address(address)? {
            (0, 0) => {
                self.is_bound.store(true, Ordering::Relaxed);
                Ok(())
            }
            // Other programs are out of reach.
            _ if caller.names.may_administer() => Err(ECONNREFUSED),
            _ => Err(EPERM),
        }
    }

    fn local_address(&self) -> Result<Address> {
        let port = if self.is_bound.load(Ordering::Relaxed) { self.port() } else { 0 };
        Ok(self.address(port, self.groups.load(Ordering::Relaxed)))
    }

    fn peer_address(&self) -> Result<Address> {
        Ok(self.address(0, 0))
    }

    fn send(&self, caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        let by_administrator = caller.is_some_and(|caller| caller.names.may_administer());
        if from.remaining() > REQUEST_MOST {
            return Err(EMSGSIZE);
        }
        match message.to.as_ref().map(read_address).transpose()? {
            None | Some((0, 0)) => {}
            // Other programs are out of reach.
            Some(_) => return Err(if by_administrator { ECONNREFUSED } else { EPERM }),
        }
        self.is_bound.store(true, Ordering::Relaxed);
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
            from: Some(self.address(0, 0)),
            control: if self.common.lock().pass_credentials {
                Vec::from([Control::Credentials(Credentials { pid: 0, uid: 0, gid: 0 })])
            } else {
                Vec::new()
            },
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
        if (level as u32, name as u32) == (linux::SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS) {
            return Ok(Vec::from(self.groups.load(Ordering::Relaxed).to_ne_bytes()));
        }
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
