// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listeners: the queue of half-open requests, SYN cookies when it is full (RFC 4987 3.6), the queue of connections
//! to accept, and what happens when that is full (as Linux: the handshake's last segment is ignored and comes again).

use super::connection::{Connection, Settings, State, WINDOW_SCALE};
use super::output::{Bare, send_bare};
use super::{Entry, Kind, Tcp, Timer};
use crate::hash::Tuple;
use crate::ip::Ip;
use crate::seq;
use crate::slab::Id;
use crate::stack::Shared;
use crate::wheel::{TICK_NS, Wheel};
use crate::wire::{Flags, Options, Tcp as Header};
use abi::{Errno, Events};
use alloc::collections::VecDeque;
use api_alloc::Reserve;
use api_netdev::Incoming;
use core::net::{Ipv4Addr, SocketAddrV4};

/// Half-open requests of all listeners (Linux: tcp_max_syn_backlog on a machine of this size); cookies beyond.
const MAX_REQUESTS: usize = 1024;
/// SYN-ACKs sent again before a request is forgotten (Linux: tcp_synack_retries).
const RETRIES: u8 = 5;
const SECOND: u64 = 1_000_000_000;
/// A cookie is good for two of these.
const COOKIE_PERIOD_NS: u64 = 64 * SECOND;
/// The MSS values a cookie can carry.
const COOKIE_MSS: [u16; 8] = [88, 536, 1024, 1300, 1440, 1460, 4312, 8960];

pub struct Listener {
    pub settings: Settings,
    /// Connections that may wait; one more is let in (Linux' sk_acceptq_is_full).
    pub backlog: usize,
    pub ready: VecDeque<Id>,
    requests: usize,
    pub events: Events,
    /// Of an attempt before it listened, which nobody asked for yet.
    pub error: Option<Errno>,
    /// shutdown(2) came before listen(2): what is accepted is shut as much (Linux).
    read_shut: bool,
    write_shut: bool,
    /// Connections of this machine whose SYN found the queue full: they try again as soon as there is room.
    refused: VecDeque<Id>,
}

/// Connections that are remembered as refused; others try again when their timer says so.
const MAX_REFUSED: usize = 1024;

impl Listener {
    /// What becomes of this connection, which there is none of.
    pub fn new(connection: &Connection, backlog: usize) -> Listener {
        Listener {
            settings: connection.settings,
            error: connection.error,
            read_shut: connection.read_shut,
            write_shut: connection.write_shut,
            backlog,
            ready: VecDeque::new(),
            requests: 0,
            events: Events::NONE,
            refused: VecDeque::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.ready.len() > self.backlog
    }

    /// A connection was accepted: how many of those that were refused may try again, which is who.
    pub(super) fn take_refused(&mut self) -> Option<Id> {
        if self.is_full() { None } else { self.refused.pop_front() }
    }
}

/// A SYN was received and answered.
#[derive(Clone, Copy)]
pub struct Request {
    listener: Id,
    irs: u32,
    iss: u32,
    options: Options,
    retries: u8,
    tick: u64,
    sent_at: u64,
    /// The handshake's last segment came, and the listener waits for data (TCP_DEFER_ACCEPT).
    acknowledged: bool,
}

impl Request {
    pub(super) fn listener(&self) -> Id {
        self.listener
    }
}

/// Linux' secs_to_retrans: how many SYN-ACKs pass before a listener that waits for data takes a connection without.
pub fn deferrals(seconds: u32) -> u8 {
    let (mut count, mut period, mut passed) = (0, 1, 0);
    while passed < seconds && count < u8::MAX {
        passed += period;
        period = (period * 2).min(120);
        count += 1;
    }
    count
}

impl Tcp {
    /// The listener for a segment: one bound to the address before one bound to all, and of those that share a port
    /// (SO_REUSEPORT) one chosen by hash. A published port without one has the listener that is bound to 127.0.0.1, because
    /// Debian's servers are configured to listen there alone.
    pub(super) fn find_listener(&self, tuple: &Tuple) -> Option<Id> {
        let inside = || {
            let loopback = SocketAddrV4::new(Ipv4Addr::LOCALHOST, tuple.local.port());
            let published = self.published.contains(&tuple.local.port());
            published.then(|| self.listener_of(&Tuple { local: loopback, ..*tuple }))?
        };
        self.listener_of(tuple).or_else(inside)
    }

    /// Whether a listener at a loopback address is reached by a published port ([`Tcp::find_listener`]).
    pub(crate) fn is_published_from_loopback(&self, address: SocketAddrV4) -> bool {
        *address.ip() == Ipv4Addr::LOCALHOST && self.published.contains(&address.port())
    }

    fn listener_of(&self, tuple: &Tuple) -> Option<Id> {
        let ids = self.ports.get(&tuple.local.port())?;
        let mut best: Option<(bool, Id)> = None;
        let mut equals = 0;
        for id in ids {
            let Some(entry) = self.sockets.get(*id) else { continue };
            let (Kind::Listener(_), Some(bound)) = (&entry.kind, entry.bound) else { continue };
            let exact = bound.ip() == tuple.local.ip();
            let taken_in = bound.ip().is_unspecified() && entry.families.has(*tuple.local.ip());
            if !exact && !taken_in {
                continue;
            }
            match best {
                Some((was_exact, _)) if was_exact && !exact => {}
                Some((was_exact, _)) if was_exact == exact => {
                    equals += 1;
                    if self.secrets.prf(3, tuple, 0).is_multiple_of(equals + 1) {
                        best = Some((exact, *id));
                    }
                }
                _ => {
                    equals = 0;
                    best = Some((exact, *id));
                }
            }
        }
        best.map(|(_, id)| id)
    }

    fn listener(&mut self, id: Id) -> Option<&mut Listener> {
        match &mut self.sockets.get_mut(id)?.kind {
            Kind::Listener(listener) => Some(listener),
            Kind::Connection(_) => None,
        }
    }

    #[allow(clippy::too_many_arguments)] // one segment's circumstances
    pub(super) fn input_listener(
        &mut self,
        ip: &mut Ip,
        now: u64,
        id: Id,
        tuple: &Tuple,
        tcp: &Header,
        packet: Incoming,
        length: usize,
    ) {
        let flags = tcp.flags;
        if flags.has(Flags::RST) {
            return ip.recycle_packet(packet);
        }
        if flags.has(Flags::ACK) {
            if !flags.has(Flags::SYN)
                && let Some(request) = self.check_cookie(now, id, tuple, tcp)
            {
                if api_alloc::is_low() {
                    return ip.recycle_packet(packet);
                }
                return self.complete(ip, now, tuple, request, tcp, packet, length);
            }
            ip.recycle_packet(packet);
            return super::refuse(ip, now, tuple, tcp, length);
        }
        ip.recycle_packet(packet);
        // A broadcast or our own address as sender opens nothing.
        let sound = ip.is_own(*tuple.local.ip())
            && !tuple.remote.ip().is_broadcast()
            && !crate::families::is_group(*tuple.remote.ip())
            && tuple.remote.port() != 0;
        if !flags.has(Flags::SYN) || flags.has(Flags::FIN) || !sound {
            return;
        }
        let crowded = self.requests.len() >= MAX_REQUESTS;
        let Some(listener) = self.listener(id) else { return };
        if listener.is_full() {
            let opposite = Tuple { local: tuple.remote, remote: tuple.local };
            return self.refuse_for_now(id, &opposite);
        }
        let cookies = crowded || listener.requests >= listener.backlog.max(8);
        let settings = listener.settings;
        let mut request = Request {
            listener: id,
            irs: tcp.seq,
            iss: 0,
            options: tcp.options,
            retries: 0,
            tick: 0,
            sent_at: now,
            acknowledged: false,
        };
        if cookies {
            request.iss = self.cookie(now, tuple, tcp);
            self.cookies_at = Some(now);
            self.answer_syn(ip, now, tuple, &request, &settings, true);
            return;
        }
        request.iss = self.initial_sequence(now, tuple);
        request.tick = self.wheel.set(Wheel::<Timer>::tick_of(now + SECOND), Timer::Request(*tuple));
        // Without memory for the request, or for its timer, the SYN is lost and comes again: a peer that is answered sends data,
        // and would be reset for it.
        if request.tick == 0 || self.requests.insert(*tuple, request).is_err() {
            return;
        }
        if let Some(listener) = self.listener(id) {
            listener.requests += 1;
        }
        self.answer_syn(ip, now, tuple, &request, &settings, false);
    }

    /// The queue is full: a remote peer's SYN is lost, as on Linux; a connection of this machine is remembered.
    fn refuse_for_now(&mut self, id: Id, connection: &Tuple) {
        let Some(&local) = self.connections.get(connection) else { return };
        if let Some(listener) = self.listener(id)
            && listener.refused.len() < MAX_REFUSED
            && !listener.refused.contains(&local)
            && listener.refused.reserve_fallibly(1).is_ok()
        {
            listener.refused.push_back(local);
        }
    }

    /// Connections of this machine that were refused send their SYN again: after accept(2).
    pub(super) fn invite_refused(&mut self, id: Id) -> bool {
        let mut invited = false;
        let mut room = self.listener(id).map_or(0, |l| (l.backlog + 1).saturating_sub(l.ready.len()));
        while room > 0 {
            let Some(local) = self.listener(id).and_then(Listener::take_refused) else { return invited };
            let Ok(connection) = self.connection(local) else { continue };
            if connection.state == State::SynSent {
                connection.next = connection.iss;
                self.mark(local);
                invited = true;
                room -= 1;
            }
        }
        invited
    }

    fn answer_syn(
        &mut self,
        ip: &mut Ip,
        now: u64,
        tuple: &Tuple,
        request: &Request,
        settings: &Settings,
        cookie: bool,
    ) {
        let theirs = &request.options;
        let mtu = ip.route(*tuple.remote.ip()).map_or(576, |r| r.mtu);
        let mut timestamp = ((now / 1_000_000) as u32).wrapping_add(self.timestamp_offset(tuple));
        if cookie {
            // The options travel in the low bits, which the peer echoes.
            timestamp = timestamp & !63
                | u32::from(theirs.window_scale.unwrap_or(15))
                | u32::from(theirs.sack_permitted) << 4;
        }
        // Without timestamps a cookie has no room for window scaling and SACK.
        let full = !cookie || theirs.timestamps.is_some();
        let options = Options {
            mss: Some(settings.offered_mss(mtu)),
            window_scale: theirs.window_scale.filter(|_| full).map(|_| WINDOW_SCALE),
            sack_permitted: theirs.sack_permitted && full,
            timestamps: theirs.timestamps.map(|(value, _)| (timestamp, value)),
            ..Options::default()
        };
        let window = settings.receive_buffer_size().clamp(2048, 65_535);
        let bare = Bare {
            tuple,
            seq: request.iss,
            ack: request.irs.wrapping_add(1),
            flags: Flags::SYN.with(Flags::ACK),
            window: window as u16,
            options,
            tos: 0,
            ttl: crate::ip::TTL,
        };
        send_bare(ip, now, &bare);
    }

    pub(super) fn request_timer(&mut self, ip: &mut Ip, now: u64, tuple: &Tuple, tick: u64) {
        let Some(request) = self.requests.get(tuple).filter(|request| request.tick == tick) else { return };
        let (retries, waits, id) = (request.retries, request.acknowledged, request.listener);
        let Some(listener) = self.listener(id) else { return };
        let settings = listener.settings;
        let limit = deferrals(settings.defer_accept);
        if retries >= RETRIES && (!waits || retries >= limit) {
            self.forget_request(tuple);
            return;
        }
        let next = Wheel::<Timer>::tick_of(now + (SECOND << (retries + 1).min(7)));
        let tick = self.wheel.set(next, Timer::Request(*tuple));
        if tick == 0 {
            self.forget_request(tuple);
            return;
        }
        let Some(request) = self.requests.get_mut(tuple) else { return };
        (request.retries, request.tick) = (retries + 1, tick);
        // While data is waited for nothing is sent; the last time gives the peer's answer a chance (Linux).
        if !waits || retries + 1 >= limit {
            request.sent_at = now;
            let request = *request;
            ip.counters.tcp.retransmitted += 1;
            self.answer_syn(ip, now, tuple, &request, &settings, false);
        }
    }

    fn forget_request(&mut self, tuple: &Tuple) -> Option<Request> {
        let request = self.requests.remove(tuple)?;
        if let Some(listener) = self.listener(request.listener) {
            listener.requests -= 1;
        }
        Some(request)
    }

    /// A segment for a half-open connection (RFC 9293 3.10.7.4, SYN-RECEIVED).
    pub(super) fn input_request(
        &mut self,
        ip: &mut Ip,
        now: u64,
        tuple: &Tuple,
        tcp: &Header,
        packet: Incoming,
        length: usize,
    ) {
        let Some(request) = self.requests.get_mut(tuple) else { return ip.recycle_packet(packet) };
        let expected = request.irs.wrapping_add(1);
        let (iss, id) = (request.iss, request.listener);
        let flags = tcp.flags;
        if flags.has(Flags::RST) {
            if tcp.seq == expected {
                self.forget_request(tuple);
            }
            return ip.recycle_packet(packet);
        }
        if flags.has(Flags::SYN) {
            ip.recycle_packet(packet);
            // The SYN came again: so does the answer, but not faster than ten times a second.
            if tcp.seq == request.irs && now >= request.sent_at + 100 * TICK_NS {
                request.sent_at = now;
                let request = *request;
                let settings = self.listener(id).map(|l| l.settings).unwrap_or_default();
                self.answer_syn(ip, now, tuple, &request, &settings, false);
            }
            return;
        }
        if !flags.has(Flags::ACK) {
            return ip.recycle_packet(packet);
        }
        if tcp.ack != iss.wrapping_add(1) {
            ip.recycle_packet(packet);
            return super::refuse(ip, now, tuple, tcp, length);
        }
        let old = matches!((request.options.timestamps, tcp.options.timestamps),
            (Some((first, _)), Some((value, _))) if seq::lt(value, first));
        if old || seq::lt(tcp.seq, expected) || seq::lt(expected.wrapping_add(65_535), tcp.seq) {
            return ip.recycle_packet(packet);
        }
        let Some(listener) = self.listener(id) else { return ip.recycle_packet(packet) };
        // The request stays, and its timer asks the peer again.
        if listener.is_full() || api_alloc::is_low() {
            return ip.recycle_packet(packet);
        }
        let limit = deferrals(listener.settings.defer_accept);
        if length == 0
            && !flags.has(Flags::FIN)
            && let Some(request) = self.requests.get_mut(tuple)
            && request.retries < limit
        {
            // TCP_DEFER_ACCEPT: the listener wants data first, for as long as it said. Then the SYN-ACK goes once more, and
            // the answer is taken as it is.
            request.acknowledged = true;
            return ip.recycle_packet(packet);
        }
        match self.requests.get(tuple).copied() {
            Some(request) => self.complete(ip, now, tuple, request, tcp, packet, length),
            None => ip.recycle_packet(packet),
        }
    }

    /// The handshake is complete: a connection waits to be accepted. Where there is no memory for one the request stays, and its
    /// timer asks the peer again.
    #[allow(clippy::too_many_arguments)] // one segment's circumstances
    fn complete(
        &mut self,
        ip: &mut Ip,
        now: u64,
        tuple: &Tuple,
        request: Request,
        tcp: &Header,
        packet: Incoming,
        length: usize,
    ) {
        let ts_offset = self.timestamp_offset(tuple);
        let Some(listener) = self.listener(request.listener) else { return ip.recycle_packet(packet) };
        if listener.is_full() {
            return ip.recycle_packet(packet);
        }
        let mut connection = Connection::new(*tuple, listener.settings);
        let mtu = ip.route(*tuple.remote.ip()).map_or(576, |r| r.mtu);
        connection.start_sending(request.iss, now);
        connection.start_receiving(request.irs);
        connection.agree(&request.options, mtu, now);
        connection.ts_offset = ts_offset;
        connection.state = State::Established;
        connection.una = request.iss.wrapping_add(1);
        connection.next = connection.una;
        connection.max = connection.una;
        connection.small_end = connection.una;
        connection.edge = connection.received.wrapping_add(connection.receive_limit().min(65_535) as u32);
        connection.window = u32::from(tcp.window) << connection.send_scale;
        connection.largest_window = connection.window;
        connection.window_seq = tcp.seq;
        connection.window_ack = tcp.ack;
        if request.retries == 0 && request.sent_at < now {
            connection.rtt.measured(now - request.sent_at);
        }
        connection.start_keep_alive(now);
        // The listener owns it until somebody accepts it.
        let Ok(id) = self.insert(Shared::new(), connection) else { return ip.recycle_packet(packet) };
        let room = |l: &mut Listener| l.ready.reserve_fallibly(1).is_ok();
        let shut = self.listener(request.listener).map(|l| (l.read_shut, l.write_shut));
        let of_listener = |l: &Entry| (l.reuse, l.families, l.filter.clone(), l.keeps_address);
        let inherited = self.sockets.get(request.listener).map(of_listener);
        let loopback = |entry: &Entry| entry.bound.is_some_and(|bound| bound.ip().is_loopback());
        let inside =
            !tuple.local.ip().is_loopback() && self.sockets.get(request.listener).is_some_and(loopback);
        if let (Some(entry), Some(inherited)) = (self.sockets.get_mut(id), inherited) {
            (entry.reuse, entry.families, entry.filter, entry.keeps_address) = inherited;
            entry.inside = inside;
            if let (Some(shut), Some(connection)) = (shut, entry.connection_mut()) {
                (connection.read_shut, connection.write_shut) = shut;
            }
        }
        if self.connect_tuple(*tuple, id).is_err() || !self.listener(request.listener).is_some_and(room) {
            self.disconnect_tuple(tuple);
            self.sockets.remove(id);
            return ip.recycle_packet(packet);
        }
        self.forget_request(tuple);
        ip.counters.tcp.passive_opens += 1;
        if let Some(listener) = self.listener(request.listener) {
            listener.ready.push_back(id);
            listener.events = listener.events | Events::READABLE;
        }
        self.mark(request.listener);
        // Whatever the segment carries besides belongs to the connection.
        self.input_connection(ip, now, id, tcp, packet, length, None);
    }

    /// A listener goes: so do its requests and whatever nobody accepted.
    pub(super) fn abandon(&mut self, ip: &mut Ip, now: u64, id: Id) {
        let Some(listener) = self.listener(id) else { return };
        let ready = core::mem::take(&mut listener.ready);
        self.requests.retain(|_, request| request.listener != id);
        for child in ready {
            if let Some(connection) = self.sockets.get_mut(child).and_then(super::Entry::connection_mut) {
                if connection.state != State::Closed {
                    connection.send_reset(ip, now);
                }
                connection.finish(None);
            }
            if let Some(entry) = self.sockets.get_mut(child) {
                entry.owned = false;
            }
            self.release(child);
        }
    }

    fn cookie_mac(&self, tuple: &Tuple, irs: u32, period: u64) -> u32 {
        self.secrets.prf(4, tuple, u64::from(irs) << 32 | period & 0xffff_ffff) as u32 & 0xff_ffff
    }

    /// Period (5 bits), MSS (3 bits) and 24 bits of authentication.
    fn cookie(&self, now: u64, tuple: &Tuple, tcp: &Header) -> u32 {
        let period = now / COOKIE_PERIOD_NS;
        let mss = tcp.options.mss.unwrap_or(536);
        let index = COOKIE_MSS.iter().rposition(|m| *m <= mss).unwrap_or(0) as u32;
        ((period & 31) as u32) << 27
            | index << 24
            | self.cookie_mac(tuple, tcp.seq, period << 3 | u64::from(index))
    }

    /// The request a cookie stands for, when it is one of ours and fresh.
    fn check_cookie(&self, now: u64, listener: Id, tuple: &Tuple, tcp: &Header) -> Option<Request> {
        let recent = self.cookies_at.is_some_and(|at| now < at + 2 * COOKIE_PERIOD_NS);
        if !recent {
            return None;
        }
        let (iss, irs) = (tcp.ack.wrapping_sub(1), tcp.seq.wrapping_sub(1));
        let index = iss >> 24 & 7;
        let present = now / COOKIE_PERIOD_NS;
        let period = [present, present.wrapping_sub(1)].into_iter().find(|p| (p & 31) as u32 == iss >> 27)?;
        if self.cookie_mac(tuple, irs, period << 3 | u64::from(index)) != iss & 0xff_ffff {
            return None;
        }
        let mut options = Options { mss: Some(COOKIE_MSS[index as usize]), ..Options::default() };
        if let Some((value, echo)) = tcp.options.timestamps {
            let bits = echo & 63;
            options.timestamps = Some((value, 0));
            options.window_scale = (bits & 15 != 15).then_some((bits & 15) as u8);
            options.sack_permitted = bits & 16 != 0;
        }
        Some(Request { listener, irs, iss, options, retries: 1, tick: 0, sent_at: now, acknowledged: true })
    }
}
