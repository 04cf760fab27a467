// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_NETLINK. NETLINK_KOBJECT_UEVENT, where no device ever comes or goes; NETLINK_SOCK_DIAG ([`diagnosis`]); NETLINK_GENERIC
//! ([`generic`]); and NETLINK_ROUTE, as far as programs use it to list interfaces, addresses and routes (getifaddrs(3),
//! if_nameindex(3), and getaddrinfo(3) through them): dumps, one interface, the route to one address. Of changes the loopback takes addresses; others are
//! refused with EPERM, anything else with EOPNOTSUPP, both as netlink errors.

mod answer;
#[cfg(feature = "interfaces")]
mod change;
mod diagnosis;
mod generic;
#[cfg(feature = "ipv6")]
mod ipv6;
#[cfg(not(feature = "interfaces"))]
mod limited;
mod message;
#[cfg(feature = "interfaces")]
mod neighbours;
#[cfg(feature = "interfaces")]
pub(crate) mod notice;
mod route;
#[cfg(feature = "interfaces")]
mod routes;
#[cfg(feature = "interfaces")]
mod rules;

#[cfg(feature = "interfaces")]
pub(super) use routes::set as routes_of;

use super::interface_flags::IFF_UP;
use super::ioctl::{Interface, interfaces};
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
#[cfg(feature = "interfaces")]
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use message::append;
use ordered::Set;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// Of an error: the request is not there wholly.
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
/// Of a deletion: of all that fit.
const NLM_F_BULK: u16 = 0x200;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
/// Linux 6.18 knows no number above this.
const RTM_MAX: u16 = 123;
/// Longest request taken.
const REQUEST_MAX: usize = 8192;
/// Bytes of answers that wait for a reader, Linux' usual receive buffer; whoever asks for more has `ENOBUFS`.
const MAX_WAITING: usize = 212_992;
/// What an answer costs beside its bytes.
const REPLY_OVERHEAD: usize = 64;
const NETLINK_ROUTE: u32 = 0;
const NETLINK_SOCK_DIAG: u32 = 4;
const NETLINK_KOBJECT_UEVENT: u32 = 15;
const NETLINK_GENERIC: u32 = 16;
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
        let is_there = match protocol {
            NETLINK_ROUTE | NETLINK_KOBJECT_UEVENT | NETLINK_GENERIC => true,
            NETLINK_SOCK_DIAG => api_socket::diagnosis().is_some(),
            _ => false,
        };
        if !is_there {
            return Err(EPROTONOSUPPORT);
        }
        // A process' first socket has its number for a port (netlink(7)).
        let port = self.ports.lock().take(protocol, creator.pid);
        Ok(Arc::new_cyclic(|_own| NetlinkSocket {
            #[cfg(feature = "interfaces")]
            own: _own.clone(),
            #[cfg(feature = "interfaces")]
            hears: AtomicBool::new(false),
            #[cfg(feature = "interfaces")]
            has_lost: AtomicBool::new(false),
            net: self.net.clone(),
            kind,
            protocol,
            port: AtomicU32::new(port),
            is_bound: AtomicBool::new(false),
            groups: AtomicU64::new(0),
            ports: self.ports.clone(),
            replies: SpinLock::default(),
            dump: SpinLock::new(None),
            common: SpinLock::default(),
            flags: AtomicU32::new(0),
            queue: WaitQueue::new(),
        }))
    }
}

struct NetlinkSocket {
    #[cfg(feature = "interfaces")]
    own: alloc::sync::Weak<NetlinkSocket>,
    /// It is among those that are told of changes.
    #[cfg(feature = "interfaces")]
    hears: AtomicBool,
    /// It was not told of some, for want of room (ENOBUFS).
    #[cfg(feature = "interfaces")]
    has_lost: AtomicBool,
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
    /// Of NETLINK_SOCK_DIAG, what is not made yet.
    dump: SpinLock<Option<diagnosis::Dump>>,
    common: SpinLock<Common>,
    /// A bit for each of [`FLAGS`] that was set.
    flags: AtomicU32,
    queue: WaitQueue,
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
                let groups = self.groups.load(Ordering::Relaxed) | 1 << (n - 1);
                self.join(groups)
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

    /// The socket is in these groups from now on, and hears of changes.
    fn join(&self, groups: u64) -> Result<()> {
        #[cfg(feature = "interfaces")]
        if self.protocol == NETLINK_ROUTE && groups != 0 && !self.hears.swap(true, Ordering::Relaxed) {
            self.net.listeners.add(self.own.clone())?;
        }
        self.groups.store(groups, Ordering::Relaxed);
        Ok(())
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

#[cfg(feature = "interfaces")]
impl crate::interfaces::notices::Listener for NetlinkSocket {
    fn hear(&self, group: u32, message: &[u8]) {
        if self.groups.load(Ordering::Relaxed) & 1 << (group - 1) == 0 {
            return;
        }
        let mut copy = Vec::new();
        let is_told =
            self.replies.lock().has_room() && append(&mut copy, message).is_ok() && self.push(copy).is_ok();
        if !is_told {
            // Linux' netlink_overrun.
            self.has_lost.store(true, Ordering::Relaxed);
        }
        self.queue.wake(Events::READABLE);
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
        self.join(self.groups.load(Ordering::Relaxed) >> 32 << 32 | u64::from(groups))
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
        if from.remaining() > REQUEST_MAX {
            return Err(EMSGSIZE);
        }
        match message.to.as_ref().map(read_address).transpose()? {
            None | Some((0, 0)) => {}
            // Other programs are out of reach.
            Some(_) => return Err(if by_administrator { ECONNREFUSED } else { EPERM }),
        }
        self.is_bound.store(true, Ordering::Relaxed);
        if self.protocol == NETLINK_KOBJECT_UEVENT {
            // Nobody listens in the kernel.
            return Err(ECONNREFUSED);
        }
        if !self.replies.lock().has_room() {
            return Err(ENOBUFS);
        }
        let bytes = from.take_vec(REQUEST_MAX)?;
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
            match self.protocol {
                NETLINK_SOCK_DIAG => self.diagnose(&rest[..length])?,
                NETLINK_GENERIC => self.answer_generic(&rest[..length])?,
                _ => self.answer(&rest[..length], caller)?,
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        self.queue.wake(Events::READABLE);
        Ok(bytes.len())
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        #[cfg(feature = "interfaces")]
        if self.has_lost.swap(false, Ordering::Relaxed) {
            return Err(ENOBUFS);
        }
        let mut reply = self.replies.lock().pop();
        if reply.is_none() && self.protocol == NETLINK_SOCK_DIAG {
            self.make_part(to.remaining())?;
            reply = self.replies.lock().pop();
            // Another reader may have found nothing meanwhile.
            self.queue.wake(Events::READABLE);
        }
        let reply = reply.ok_or(EAGAIN)?;
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
        let some = !self.replies.lock().waiting.is_empty() || self.dump.lock().is_some();
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
