// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP: all connections, listeners, half-open requests and TIME-WAIT records of the machine, found by hash and never
//! by search.
//!
//! - [`connection`], [`input`], [`output`], [`timers`]: one connection;
//! - [`congestion`], [`queue`], [`urgent`]: what it is made of;
//! - [`listen`]: listeners, SYN queue, SYN cookies;
//! - [`time_wait`]: small records of connections that are over;
//! - [`ports`]: bind(2)'s rules and ephemeral ports; `groups`: listeners that share one;
//! - [`calls`]: what the socket layer asks for.

pub mod calls;
pub mod congestion;
pub mod connection;
mod groups;
pub mod input;
pub mod listen;
pub mod output;
pub mod ports;
pub mod queue;
pub mod time_wait;
pub mod timers;
pub mod urgent;

use crate::counters::Ended;
use crate::families::Families;
use crate::hash::{Keyed, Secrets, Tuple};
use crate::ip::Ip;
use crate::reuse::Reuse;
use crate::slab::{Id, Slab};
use crate::stack::{Shared, Wakes};
use crate::table::Table;
use crate::wheel::Wheel;
use crate::wire::{self, Flags, Ipv4, Options, Sum, Tcp as Header};
use abi::{Errno, Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::{Reserve, try_box};
use api_netdev::Incoming;
use api_socket::filter::Filter;
use connection::{Connection, Settings, State};
use core::net::{Ipv4Addr, SocketAddrV4};
use input::After;
use listen::{Listener, Request};
use ordered::Map;
use output::{Bare, send_bare};
use segmented::SegmentedVec;
use time_wait::TimeWait;

/// What the wheel reminds us of.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    Connection(Id),
    Request(Tuple),
}

pub enum Kind {
    Connection(Box<Connection>),
    Listener(Box<Listener>),
}

/// One TCP socket.
pub struct Entry {
    pub shared: Arc<Shared>,
    pub kind: Kind,
    /// By bind(2) or listen(2): listed in the table of ports.
    pub bound: Option<SocketAddrV4>,
    /// What getsockname(2) tells: the address that its connection or attempt gave it until that is taken back, and the last port that it had.
    pub name: SocketAddrV4,
    /// What bind(2) was told stays when the connection is over, and what the kernel chose goes (Linux' SOCK_BINDADDR_LOCK and
    /// SOCK_BINDPORT_LOCK).
    pub keeps_address: bool,
    pub keeps_port: bool,
    /// What the any address means to it.
    pub families: Families,
    pub reuse: Reuse,
    /// SO_ATTACH_FILTER: what looks at segments first.
    pub filter: Option<Arc<Filter>>,
    /// SO_ATTACH_REUSEPORT_CBPF: what chooses among the listeners that share its port.
    pub selector: Option<Arc<Filter>>,
    /// It began to listen with SO_REUSEPORT.
    pub is_grouped: bool,
    /// A socket of the program refers to it, or a listener's queue.
    pub owned: bool,
    /// A client from outside reached a listener on 127.0.0.1 by a published port: to the program both ends are loopback's.
    pub inside: bool,
    /// In the list of those to look after.
    dirty: bool,
    /// The tick the wheel has for it.
    armed: u64,
}

impl Entry {
    /// An address of its connection as the program sees it.
    pub fn shown(&self, address: SocketAddrV4) -> SocketAddrV4 {
        if self.inside { SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port()) } else { address }
    }

    /// Where it is bound, as others see it who want the port: a connection narrows an address that was left open.
    fn place(&self) -> Option<SocketAddrV4> {
        self.bound.map(|bound| if self.name.ip().is_unspecified() { bound } else { self.name })
    }

    /// A connection gives it this address.
    pub(super) fn take_name(&mut self, local: SocketAddrV4) {
        self.name = local;
        // It is another one than bind(2) was told where that was one of many.
        if let Some(bound) = &mut self.bound
            && self.keeps_address
        {
            *bound = local;
        }
    }

    /// Its address goes with the peer, where bind(2) did not name one.
    pub(super) fn forget_address(&mut self) {
        if !self.keeps_address {
            self.name.set_ip(Ipv4Addr::UNSPECIFIED);
        }
    }

    /// What SO_ERROR would tell.
    pub fn error_mut(&mut self) -> &mut Option<Errno> {
        match &mut self.kind {
            Kind::Connection(connection) => &mut connection.error,
            Kind::Listener(listener) => &mut listener.error,
        }
    }

    pub fn connection(&self) -> Option<&Connection> {
        match &self.kind {
            Kind::Connection(connection) => Some(connection),
            Kind::Listener(_) => None,
        }
    }

    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.kind {
            Kind::Connection(connection) => Some(connection),
            Kind::Listener(_) => None,
        }
    }
}

/// How long what found no memory waits until it is tried again.
const RETRY_NS: u64 = 10_000_000;

pub struct Tcp {
    pub sockets: Slab<Entry>,
    /// Connections that were over before their time.
    pub ended: Ended,
    connections: Table<Tuple, Id>,
    requests: Table<Tuple, Request>,
    time_wait: Table<Tuple, TimeWait>,
    /// In the order they expire: each record once.
    time_wait_queue: Map<(u64, u64), Tuple>,
    time_wait_number: u64,
    ports: Table<u16, Vec<Id>>,
    /// What connections and records have of each local port.
    local_ports: Table<u16, Vec<ports::LocalUse>>,
    wheel: Wheel<Timer>,
    fired: SegmentedVec<(u64, Timer)>,
    dirty: SegmentedVec<Id>,
    /// A socket that is to be looked after is not in that list, for there was no memory: all are looked at instead.
    overlooked: bool,
    /// When all are looked at again: a timer found no place in the wheel, or what woke somebody no place among the wakes.
    retry_at: Option<u64>,
    secrets: Secrets,
    /// Advances ephemeral ports (RFC 6056).
    port_counters: [u32; 2],
    /// Ports whose connections reach listeners on 127.0.0.1 as well, because the host publishes them.
    pub published: Vec<u16>,
    /// SYN cookies were sent last.
    cookies_at: Option<u64>,
}

impl Tcp {
    pub fn new(secrets: Secrets, now: u64) -> Tcp {
        let key = Keyed::new(secrets.table);
        Tcp {
            sockets: Slab::default(),
            ended: Ended::default(),
            connections: Table::new(key),
            requests: Table::new(key),
            time_wait: Table::new(key),
            time_wait_queue: Map::new(),
            time_wait_number: 0,
            ports: Table::new(key),
            local_ports: Table::new(key),
            wheel: Wheel::new(now),
            fired: SegmentedVec::new(),
            dirty: SegmentedVec::new(),
            overlooked: false,
            retry_at: None,
            secrets,
            port_counters: [0; 2],
            published: Vec::new(),
            cookies_at: None,
        }
    }

    /// Records of connections that are over.
    pub fn time_wait_count(&self) -> usize {
        self.time_wait.len()
    }

    /// Places in the queue of records that expire: as many as there are records.
    pub fn time_wait_places(&self) -> usize {
        self.time_wait_queue.len()
    }

    /// Connections that listeners are about to have.
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// A socket that is neither bound nor connected.
    pub fn create(&mut self, shared: Arc<Shared>) -> Result<Id> {
        self.insert(shared, Connection::unconnected(Settings::default()))
    }

    fn insert(&mut self, shared: Arc<Shared>, connection: Connection) -> Result<Id> {
        self.sockets.insert(Entry {
            shared,
            name: connection.tuple.local,
            kind: Kind::Connection(try_box(connection).map_err(|_| ENOBUFS)?),
            bound: None,
            keeps_address: false,
            keeps_port: false,
            families: Families::V4,
            reuse: Reuse::default(),
            filter: None,
            selector: None,
            is_grouped: false,
            owned: true,
            inside: false,
            dirty: false,
            armed: 0,
        })
    }

    /// A TCP segment came in, addressed to us; `packet` begins with the TCP header.
    pub fn input(&mut self, ip: &mut Ip, now: u64, header: &Ipv4, mut packet: Incoming) {
        ip.counters.tcp.in_segments += 1;
        let length = packet.first.len() + packet.more.iter().map(|b| b.len()).sum::<usize>();
        if !packet.checksum_valid {
            let mut sum = Sum::pseudo(header.source, header.destination, wire::PROTOCOL_TCP, length);
            sum.add(packet.first.bytes());
            packet.more.iter().for_each(|b| {
                sum.add(b.bytes());
            });
            if !matches!(sum.finish(), 0 | 0xffff) {
                ip.statistics.bad_packets += 1;
                ip.counters.tcp.in_errors += 1;
                return ip.recycle_packet(packet);
            }
        }
        let Some((tcp, header_length)) = Header::parse(packet.first.bytes()) else {
            ip.statistics.bad_packets += 1;
            ip.counters.tcp.in_errors += 1;
            return ip.recycle_packet(packet);
        };
        packet.first.trim_front(header_length);
        let length = length - header_length;
        let tuple = Tuple {
            local: SocketAddrV4::new(header.destination, tcp.destination),
            remote: SocketAddrV4::new(header.source, tcp.source),
        };
        if let Some(&id) = self.connections.get(&tuple) {
            self.input_connection(ip, now, id, &tcp, packet, length, Some((header, header_length)));
            return;
        }
        if self.time_wait.contains_key(&tuple) && !self.input_time_wait(ip, now, &tuple, &tcp, length) {
            return ip.recycle_packet(packet);
        }
        if let Some(listener) = self.requests.get(&tuple).map(Request::listener) {
            return match self.filter(ip, listener, header, header_length, &mut packet) {
                Some(length) => self.input_request(ip, now, &tuple, &tcp, packet, length),
                None => ip.recycle_packet(packet),
            };
        }
        if let Some(listener) = self.find_listener(&tuple) {
            let listener = self.select(ip, listener, header, header_length, &mut packet);
            return match self.filter(ip, listener, header, header_length, &mut packet) {
                Some(length) => self.input_listener(ip, now, listener, &tuple, &tcp, packet, length),
                None => ip.recycle_packet(packet),
            };
        }
        ip.recycle_packet(packet);
        refuse(ip, now, &tuple, &tcp, length);
    }

    /// `unseen` of a segment that no filter has seen: its IP header, and how long its own header is.
    #[expect(clippy::too_many_arguments, reason = "a segment and all that is known of it")]
    fn input_connection(
        &mut self,
        ip: &mut Ip,
        now: u64,
        id: Id,
        tcp: &Header,
        mut packet: Incoming,
        mut length: usize,
        unseen: Option<(&Ipv4, usize)>,
    ) {
        let Some(entry) = self.sockets.get_mut(id) else { return ip.recycle_packet(packet) };
        if let (Some(filter), Some((header, header_length))) = (&entry.filter, unseen) {
            match filtered(filter, ip, header, header_length, &mut packet) {
                Some(kept) => length = kept,
                None => return ip.recycle_packet(packet),
            }
        }
        let Some(connection) = entry.connection_mut() else { return ip.recycle_packet(packet) };
        let after = connection.input(ip, now, tcp, packet, length);
        self.mark(id);
        self.after(ip, now, id, after);
    }

    /// Bytes of a segment's data that a listener's filter leaves of it; all without one.
    fn filter(
        &self,
        ip: &Ip,
        id: Id,
        header: &Ipv4,
        header_length: usize,
        packet: &mut Incoming,
    ) -> Option<usize> {
        match self.sockets.get(id).and_then(|entry| entry.filter.as_ref()) {
            Some(filter) => filtered(filter, ip, header, header_length, packet),
            None => Some(packet.first.len() + packet.more.iter().map(|b| b.len()).sum::<usize>()),
        }
    }

    /// Puts a socket on the list of those to look after when the burst is over.
    pub fn mark(&mut self, id: Id) {
        if let Some(entry) = self.sockets.get_mut(id)
            && !entry.dirty
        {
            entry.dirty = true;
            self.overlooked |= self.dirty.push(id).is_err();
        }
    }

    /// Draws the conclusion from what a segment or a timer did.
    fn after(&mut self, ip: &mut Ip, now: u64, id: Id, after: After) {
        let Some(connection) = self.sockets.get_mut(id).and_then(Entry::connection_mut) else { return };
        // An orphan waits for the peer's FIN as a small record.
        let half_closed = connection.orphan && connection.state == State::FinWait2;
        match after {
            After::Stays if half_closed => {}
            After::Stays => return,
            After::TimeWait | After::Closed => {}
        }
        if after != After::Closed {
            if after == After::TimeWait {
                connection.send_ack(ip, now);
            }
            let mut record = TimeWait::of(connection, now, half_closed && after == After::Stays);
            let tuple = connection.tuple;
            connection.finish(None);
            record.reuse = self.sockets.get(id).map(|entry| entry.reuse.of_time_wait()).unwrap_or_default();
            self.insert_time_wait(tuple, record);
        }
        self.mark(id);
        self.release(id);
    }

    /// A connection is over: its addresses are free, and the entry goes when no socket refers to it.
    fn release(&mut self, id: Id) {
        let Some(entry) = self.sockets.get(id) else { return };
        let owned = entry.owned;
        if let Some(state) =
            self.sockets.get_mut(id).and_then(Entry::connection_mut).and_then(|c| c.ended.take())
        {
            self.ended.count(state);
        }
        let Some(entry) = self.sockets.get(id) else { return };
        if let Some(connection) = entry.connection()
            && self.connections.get(&connection.tuple) == Some(&id)
        {
            let tuple = connection.tuple;
            self.disconnect_tuple(&tuple);
        }
        self.unbind_chosen(id);
        if !owned {
            self.remove(id);
        }
    }

    /// Enters a connection into the tables.
    fn connect_tuple(&mut self, tuple: Tuple, id: Id) -> Result<()> {
        self.connections.insert(tuple, id)?;
        // A socket that is bound has its place among the bound.
        let reuse = self.sockets.get(id).filter(|e| e.bound.is_none()).map(|e| e.reuse);
        if let Some(reuse) = reuse {
            if let Err(e) = self.count_port(tuple.local.port(), *tuple.local.ip(), reuse) {
                self.connections.remove(&tuple);
                return Err(e);
            }
            if let Some(connection) = self.sockets.get_mut(id).and_then(Entry::connection_mut) {
                connection.counted = Some(reuse);
            }
        }
        Ok(())
    }

    fn disconnect_tuple(&mut self, tuple: &Tuple) {
        let Some(id) = self.connections.remove(tuple) else { return };
        let connection = self.sockets.get_mut(id).and_then(Entry::connection_mut);
        if let Some(reuse) = connection.and_then(|c| c.counted.take()) {
            self.discount_port(tuple.local.port(), *tuple.local.ip(), reuse);
        }
    }

    fn remove(&mut self, id: Id) {
        if let Some(entry) = self.sockets.remove(id)
            && let Some(bound) = entry.bound
        {
            self.unlist(bound.port(), id);
        }
    }

    /// Something was touched and is to be looked after.
    pub fn has_work(&self) -> bool {
        self.overlooked || !self.dirty.is_empty()
    }

    /// Whatever was touched sends what it has to, sets its timer, and its owner hears of it.
    pub fn settle(&mut self, ip: &mut Ip, now: u64, wakes: &mut Wakes) {
        // Sending may mark nothing, but be sure to see the end of it.
        while let Some(id) = self.dirty.pop() {
            self.look_after(ip, now, wakes, id);
        }
        if core::mem::take(&mut self.overlooked) {
            self.look_after_all(ip, now, wakes);
        }
    }

    /// Memory was refused: time is no longer what matters.
    #[cold]
    fn look_after_all(&mut self, ip: &mut Ip, now: u64, wakes: &mut Wakes) {
        for index in 0..self.sockets.places() {
            if let Some(id) =
                self.sockets.id_at(index).filter(|id| self.sockets.get(*id).is_some_and(|e| e.dirty))
            {
                self.look_after(ip, now, wakes, id);
            }
        }
    }

    fn look_after(&mut self, ip: &mut Ip, now: u64, wakes: &mut Wakes, id: Id) {
        let Some(entry) = self.sockets.get_mut(id) else { return };
        entry.dirty = false;
        let events = match &mut entry.kind {
            Kind::Connection(connection) => {
                connection.output(ip, now);
                if let Some(deadline) = connection.deadlines.first() {
                    let tick = Wheel::<Timer>::tick_of(deadline);
                    if entry.armed == 0 || tick < entry.armed {
                        // The wheel still has the later one where it has no place for this one; that one is ignored then.
                        entry.armed = self.wheel.set(tick, Timer::Connection(id));
                        if entry.armed == 0 {
                            self.retry_at = Some(now + RETRY_NS);
                        }
                    }
                }
                &mut connection.events
            }
            Kind::Listener(listener) => &mut listener.events,
        };
        if !events.is_empty() && entry.owned && wakes.reserve_fallibly(1).is_err() {
            entry.dirty = true;
            self.retry_at = Some(now + RETRY_NS);
            return;
        }
        let events = core::mem::replace(events, Events::NONE);
        if !events.is_empty() && entry.owned {
            wakes.push((entry.shared.clone(), events));
        }
    }

    /// What found no memory is tried again.
    #[cold]
    fn retry(&mut self) {
        self.retry_at = None;
        self.overlooked = true;
        for entry in self.sockets.values_mut() {
            entry.dirty |= entry.armed == 0;
        }
    }

    /// Does what is due.
    pub fn timers(&mut self, ip: &mut Ip, now: u64) {
        let mut fired = core::mem::take(&mut self.fired);
        self.wheel.expire(now, &mut fired);
        while let Some((tick, timer)) = fired.pop() {
            match timer {
                Timer::Connection(id) => {
                    let Some(entry) = self.sockets.get_mut(id) else { continue };
                    if entry.armed != tick {
                        continue;
                    }
                    entry.armed = 0;
                    let Some(connection) = entry.connection_mut() else { continue };
                    let after = connection.timers(ip, now);
                    self.mark(id);
                    self.after(ip, now, id, after);
                }
                Timer::Request(tuple) => self.request_timer(ip, now, &tuple, tick),
            }
        }
        self.fired = fired;
        self.expire_time_wait(now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry();
        }
    }

    /// When [`Tcp::timers`] is to be called next.
    pub fn next_deadline(&self) -> Option<u64> {
        let time_wait = self.time_wait_queue.first_key_value().map(|((at, _), _)| *at);
        [self.wheel.next_ns(), time_wait, self.retry_at].into_iter().flatten().min()
    }

    /// Numbers that nobody outside can guess, the same one each time.
    pub fn secret(&self, number: u64) -> u64 {
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        self.secrets.prf(9, &Tuple { local: nobody, remote: nobody }, number)
    }

    /// The way to some destinations takes less: `mtu` says how much, or `None` where nothing changed.
    pub fn narrow(&mut self, mtu: impl Fn(Ipv4Addr) -> Option<usize>) {
        for connection in self.sockets.values_mut().filter_map(Entry::connection_mut) {
            if connection.is_synchronised()
                && let Some(mtu) = mtu(*connection.tuple.remote.ip())
            {
                connection.reduce_mss(mtu);
            }
        }
    }

    /// An ICMP error about a segment of ours: `seq` is the sequence number it quotes.
    pub fn icmp_error(&mut self, now: u64, tuple: &Tuple, seq: u32, error: crate::icmp::Error) {
        let _ = now;
        let Some(&id) = self.connections.get(tuple) else { return };
        let Some(connection) = self.sockets.get_mut(id).and_then(Entry::connection_mut) else { return };
        // RFC 5927 4.1: only what is in flight can have caused an error.
        if crate::seq::lt(seq, connection.una) || crate::seq::lt(connection.max, seq) {
            return;
        }
        match error {
            crate::icmp::Error::TooBig { mtu } => connection.reduce_mss(mtu),
            crate::icmp::Error::Unreachable(errno) => {
                // RFC 5927 6: established connections live on; an opening one fails.
                if connection.state == State::SynSent {
                    connection.finish(Some(errno));
                    self.release(id);
                }
            }
        }
        self.mark(id);
    }

    /// Whether a segment that begins so is on its way.
    #[cfg(feature = "ipv6")]
    pub(crate) fn is_in_flight(&self, tuple: &Tuple, seq: u32) -> bool {
        let connection = self.connections.get(tuple).and_then(|id| self.sockets.get(*id)?.connection());
        connection.is_some_and(|c| !crate::seq::lt(seq, c.una) && !crate::seq::lt(c.max, seq))
    }

    /// Addresses that connections name.
    #[cfg(feature = "ipv6")]
    pub(crate) fn each_address(&self, look: &mut dyn FnMut(core::net::Ipv4Addr)) {
        let tuples =
            self.requests.iter().map(|(tuple, _)| tuple).chain(self.time_wait.iter().map(|(tuple, _)| tuple));
        let connections = self.sockets.iter().filter_map(|(_, entry)| entry.connection()).map(|c| &c.tuple);
        for tuple in tuples.chain(connections) {
            look(*tuple.local.ip());
            look(*tuple.remote.ip());
        }
        for (_, entry) in self.sockets.iter() {
            entry.bound.iter().for_each(|bound| look(*bound.ip()));
            look(*entry.name.ip());
        }
    }

    /// Connections and records, for /proc/net/sockstat and tests.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.connections.len(), self.requests.len(), self.time_wait.len())
    }

    /// RFC 6528: a clock of 4 us plus a secret function of the addresses.
    fn initial_sequence(&self, now: u64, tuple: &Tuple) -> u32 {
        ((now / 4_000) as u32).wrapping_add(self.secrets.prf(1, tuple, 0) as u32)
    }

    fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.secrets.prf(2, tuple, 0) as u32
    }
}

/// What the filter leaves of a segment's data, of which the rest is cut off as if it had not been sent: how many bytes. `None`: the
/// segment is lost.
fn filtered(
    filter: &Filter,
    ip: &Ip,
    header: &Ipv4,
    header_length: usize,
    packet: &mut Incoming,
) -> Option<usize> {
    let kept = with_header(packet, header_length, |packet| {
        crate::filter::keeps(filter, ip, header, &[], packet, header_length)
    })?;
    let length = kept.checked_sub(header_length)?;
    crate::stack::cut(packet, length);
    Some(length)
}

/// Looks at a segment with its header, which was taken off.
fn with_header<R>(packet: &mut Incoming, length: usize, look: impl FnOnce(&Incoming) -> R) -> R {
    let is_whole = packet.first.prepend(length).is_some();
    let result = look(packet);
    packet.first.trim_front(if is_whole { length } else { 0 });
    result
}

/// Answers a segment that belongs to nothing (RFC 9293 3.10.7.1).
pub fn refuse(ip: &mut Ip, now: u64, tuple: &Tuple, tcp: &Header, length: usize) {
    if tcp.flags.has(Flags::RST) || !ip.is_own(*tuple.local.ip()) {
        return;
    }
    let (seq, ack, flags) = if tcp.flags.has(Flags::ACK) {
        (tcp.ack, 0, Flags::RST)
    } else {
        let taken =
            length as u32 + u32::from(tcp.flags.has(Flags::SYN)) + u32::from(tcp.flags.has(Flags::FIN));
        (0, tcp.seq.wrapping_add(taken), Flags::RST.with(Flags::ACK))
    };
    let bare =
        Bare { tuple, seq, ack, flags, window: 0, options: Options::default(), tos: 0, ttl: crate::ip::TTL };
    send_bare(ip, now, &bare);
}
