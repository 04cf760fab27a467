// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of one connection (RFC 9293 3.3.1) and what the socket layer asks of it.

use super::congestion::{Algorithm, RoundTrip, Scoreboard, Window};
use super::queue::{OutOfOrder, ReceiveQueue, SendQueue};
use super::urgent::Urgent;
use crate::hash::Tuple;
use crate::reuse::Reuse;
use crate::seq;
use crate::wire;
use abi::{Errno, Events};
use api_socket::settings::{self, TCP_RECEIVE_BUFFER, TCP_SEND_BUFFER, tcp_buffer};
use core::net::{Ipv4Addr, SocketAddrV4};

/// Receive buffer unless SO_RCVBUF was set: the window offered, not memory taken.
pub const RECEIVE_DEFAULT: usize = 512 * 1024;
/// Send buffer unless SO_SNDBUF was set.
pub const SEND_DEFAULT: usize = 512 * 1024;
/// The largest window scale we ask for: enough for the largest buffer.
pub const WINDOW_SCALE: u8 = 7;

/// States of RFC 9293; LISTEN and SYN-RECEIVED of a listener's children, and TIME-WAIT, are records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected yet, or over.
    Closed,
    SynSent,
    /// Simultaneous open only.
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
}

/// What is to be acknowledged and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    None,
    Delayed,
    Now,
}

/// Options of the socket that TCP itself reads.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub no_delay: bool,
    pub cork: bool,
    pub keep_alive: bool,
    /// Seconds: TCP_KEEPIDLE, TCP_KEEPINTVL.
    pub keep_idle: u32,
    pub keep_interval: u32,
    pub keep_count: u32,
    /// TCP_USER_TIMEOUT, milliseconds; 0: none.
    pub user_timeout: u32,
    /// TCP_SYNCNT.
    pub syn_retries: u32,
    /// SO_BROADCAST: kept, a stream has no use for it.
    pub broadcast: bool,
    /// SO_LINGER, and its seconds, which are kept where it is off.
    pub lingers: bool,
    pub linger_seconds: u32,
    pub receive_buffer: Option<usize>,
    pub send_buffer: Option<usize>,
    /// TCP_MAXSEG.
    pub max_segment: Option<u32>,
    /// TCP_LINGER2 in seconds; below 0: nobody waits for the peer's end.
    pub fin_timeout: i32,
    pub tos: u8,
    pub ttl: u8,
    /// IPV6_UNICAST_HOPS.
    pub hops: u8,
    /// SO_OOBINLINE.
    pub urgent_inline: bool,
    /// TCP_QUICKACK, if it was set.
    pub quick_ack: Option<bool>,
    /// TCP_DEFER_ACCEPT in seconds, of listeners.
    pub defer_accept: u32,
    /// TCP_CONGESTION.
    pub congestion: Algorithm,
}

impl Settings {
    /// What a program asked for, or a size between the system's.
    pub fn receive_buffer_size(&self) -> usize {
        self.receive_buffer.unwrap_or_else(|| tcp_buffer(&TCP_RECEIVE_BUFFER, RECEIVE_DEFAULT))
    }

    /// The MSS a SYN offers: what the way takes, and no more than TCP_MAXSEG says.
    pub fn offered_mss(&self, mtu: usize) -> u16 {
        let most = self.max_segment.map_or(usize::from(u16::MAX), |n| n as usize);
        (mtu - wire::IPV4 - wire::TCP).min(most).min(usize::from(u16::MAX)) as u16
    }

    /// The seconds of SO_LINGER, if it is on.
    pub fn linger(&self) -> Option<u32> {
        self.lingers.then_some(self.linger_seconds)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            no_delay: false,
            cork: false,
            keep_alive: false,
            keep_idle: settings::KEEPALIVE_TIME[0].get() as u32,
            keep_interval: settings::KEEPALIVE_INTERVAL[0].get() as u32,
            keep_count: settings::KEEPALIVE_PROBES[0].get() as u32,
            user_timeout: 0,
            syn_retries: settings::SYN_RETRIES[0].get() as u32,
            broadcast: false,
            lingers: false,
            linger_seconds: 0,
            receive_buffer: None,
            send_buffer: None,
            max_segment: None,
            fin_timeout: settings::FIN_TIMEOUT[0].get() as i32,
            tos: 0,
            ttl: crate::ip::TTL,
            hops: crate::ip::TTL,
            quick_ack: None,
            urgent_inline: false,
            defer_accept: 0,
            congestion: Algorithm::default(),
        }
    }
}

/// When something is due, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    pub retransmit: Option<u64>,
    pub delayed_ack: Option<u64>,
    pub persist: Option<u64>,
    pub keep_alive: Option<u64>,
    /// Corked data goes out after 200 ms (tcp(7), TCP_CORK).
    pub cork: Option<u64>,
}

impl Deadlines {
    pub fn first(&self) -> Option<u64> {
        [self.retransmit, self.delayed_ack, self.persist, self.keep_alive, self.cork]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Loss recovery in progress: it ends when `end` is acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    pub end: u32,
    /// Everything below was sent again (RFC 6675 HighRxt).
    pub resent: u32,
}

pub struct Connection {
    pub state: State,
    pub tuple: Tuple,
    pub settings: Settings,
    pub error: Option<Errno>,
    // Send sequence space.
    pub iss: u32,
    pub una: u32,
    pub next: u32,
    /// The highest sent: `next` falls behind it after a time-out.
    pub max: u32,
    pub window: u32,
    pub window_seq: u32,
    pub window_ack: u32,
    pub largest_window: u32,
    pub send_scale: u8,
    pub queue: SendQueue,
    /// Our FIN is to follow the last byte.
    pub fin: bool,
    /// The end of the last segment sent that was not full (Minshall's Nagle).
    pub small_end: u32,
    /// Largest payload of a segment, options taken off.
    pub mss: u32,

    // Receive sequence space.
    pub irs: u32,
    pub received: u32,
    /// Right edge of the window the peer was told.
    pub edge: u32,
    pub receive_scale: u8,
    pub input: ReceiveQueue,
    pub gaps: OutOfOrder,
    /// The peer's FIN was received in order.
    pub peer_done: bool,
    /// Where the peer's FIN lies when it came before what precedes it.
    pub peer_fin: Option<u32>,
    /// shutdown(SHUT_RD).
    pub read_shut: bool,
    /// Its FIN was taken, of which a read tells before it tells of an error (Linux' SOCK_DONE).
    pub saw_end: bool,
    /// shutdown(2) said so before there was a connection: nothing may be sent on the one that was made since, which has no end for that.
    pub write_shut: bool,
    pub urgent: Urgent,

    // Options agreed on.
    pub timestamps: bool,
    pub sack: bool,
    pub ts_offset: u32,
    pub ts_recent: u32,
    pub ts_recent_at: u64,
    pub last_ack_sent: u32,

    // Acknowledging.
    pub ack: Ack,
    /// The program answers requests: acknowledgements travel with the answers.
    pub interactive: bool,
    pub challenged_at: u64,

    // Congestion and retransmission.
    pub rtt: RoundTrip,
    pub cwnd: Window,
    pub board: Scoreboard,
    pub recovery: Option<Recovery>,
    pub duplicates: u32,
    /// The last bytes that were queued wait for more (MSG_MORE).
    pub is_held: bool,
    /// Bytes recovery may send again whatever it believes to be in the network.
    pub repair_credit: u32,
    /// Time-outs in a row without progress.
    pub retries: u32,
    /// When the data now at `una` was first sent or progress was made last.
    pub progress_at: u64,
    pub probes: u32,
    /// A segment being timed when there are no timestamps: its end and when it was sent.
    pub timed: Option<(u32, u64)>,
    pub sent_at: u64,
    /// Our timestamp on the last retransmission.
    pub resent_ts: u32,
    pub heard_at: u64,
    /// When data in order came last.
    pub data_at: u64,
    pub deadlines: Deadlines,

    /// No socket any more.
    pub orphan: bool,
    /// The state in which it ended, until that is counted.
    pub ended: Option<State>,
    /// connect(2) was called and has not said yet that it succeeded.
    pub connecting: bool,
    /// shutdown(2) came after an attempt that failed and before connect(2) said so (Linux' SS_DISCONNECTING).
    pub is_given_up: bool,
    /// Counted among those that have its local port, with what was said then.
    pub counted: Option<Reuse>,
    /// What the window lets through goes although it is little: it was waited for long enough.
    pub overdue: bool,
    /// What became possible since the socket layer was told.
    pub events: Events,
    pub retransmitted: u32,
}

impl Connection {
    /// That of a socket that is not connected.
    pub fn unconnected(settings: Settings) -> Connection {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Connection::new(Tuple { local: nowhere, remote: nowhere }, settings)
    }

    pub fn new(tuple: Tuple, settings: Settings) -> Connection {
        let mss = 536;
        Connection {
            state: State::Closed,
            tuple,
            settings,
            error: None,
            iss: 0,
            una: 0,
            next: 0,
            max: 0,
            window: 0,
            window_seq: 0,
            window_ack: 0,
            largest_window: 0,
            send_scale: 0,
            queue: SendQueue::default(),
            fin: false,
            small_end: 0,
            mss,
            irs: 0,
            received: 0,
            edge: 0,
            receive_scale: 0,
            input: ReceiveQueue::default(),
            gaps: OutOfOrder::default(),
            peer_done: false,
            peer_fin: None,
            read_shut: false,
            saw_end: false,
            write_shut: false,
            urgent: Urgent::default(),
            timestamps: false,
            sack: false,
            ts_offset: 0,
            ts_recent: 0,
            ts_recent_at: 0,
            last_ack_sent: 0,
            ack: Ack::None,
            interactive: false,
            challenged_at: 0,
            rtt: RoundTrip::default(),
            cwnd: Window::new(mss, settings.congestion),
            board: Scoreboard::default(),
            recovery: None,
            duplicates: 0,
            is_held: false,
            repair_credit: 0,
            retries: 0,
            progress_at: 0,
            probes: 0,
            timed: None,
            sent_at: 0,
            resent_ts: 0,
            heard_at: 0,
            data_at: 0,
            deadlines: Deadlines::default(),
            orphan: false,
            ended: None,
            connecting: false,
            is_given_up: false,
            counted: None,
            overdue: false,
            events: Events::NONE,
            retransmitted: 0,
        }
    }

    /// Sets the send sequence space to begin at `iss`.
    pub fn start_sending(&mut self, iss: u32, now: u64) {
        self.iss = iss;
        self.una = iss;
        self.next = iss;
        self.max = iss;
        self.small_end = iss;
        self.progress_at = now;
        self.sent_at = now;
        self.heard_at = now;
    }

    /// Sets the receive sequence space behind the peer's SYN.
    pub fn start_receiving(&mut self, irs: u32) {
        self.irs = irs;
        self.received = irs.wrapping_add(1);
        self.edge = self.received;
        self.last_ack_sent = self.received;
    }

    /// Agrees on the options of the peer's SYN, `ours` saying what we offered (a SYN of ours offers everything).
    pub fn agree(&mut self, options: &wire::Options, mtu: usize, now: u64) {
        self.sack = options.sack_permitted;
        self.timestamps = options.timestamps.is_some();
        match options.window_scale {
            Some(scale) => (self.send_scale, self.receive_scale) = (scale, WINDOW_SCALE),
            None => (self.send_scale, self.receive_scale) = (0, 0),
        }
        if let Some((value, _)) = options.timestamps {
            self.ts_recent = value;
            self.ts_recent_at = now;
        }
        // RFC 6691: the MSS counts no options; 536 where none was given (RFC 9293 3.7.1).
        let theirs = options.mss.map_or(536, u32::from).max(88);
        let ours = (mtu - wire::IPV4 - wire::TCP) as u32;
        self.mss = theirs.min(ours).min(self.settings.max_segment.unwrap_or(u32::MAX).max(88));
        if self.timestamps {
            self.mss -= 12;
        }
        self.cwnd = Window::new(self.mss, self.settings.congestion);
    }

    /// A packet met a smaller MTU on the way (RFC 1191).
    pub fn reduce_mss(&mut self, mtu: usize) {
        let options = if self.timestamps { 12 } else { 0 };
        let mss = (mtu.max(576) - wire::IPV4 - wire::TCP - options) as u32;
        if mss < self.mss {
            self.mss = mss;
            // Send what was too large again, at once.
            self.next = self.una;
            self.recovery = None;
        }
    }

    pub fn receive_limit(&self) -> usize {
        self.settings.receive_buffer_size().max(2048)
    }

    pub fn send_limit(&self) -> usize {
        let usual = || tcp_buffer(&TCP_SEND_BUFFER, SEND_DEFAULT);
        self.settings.send_buffer.unwrap_or_else(usual).max(4608)
    }

    /// Sequence number behind the last byte to send, FIN not counted.
    pub fn data_end(&self) -> u32 {
        // Before the SYN is acknowledged it takes a number of its own.
        let syn = u32::from(matches!(self.state, State::SynSent | State::SynReceived));
        self.una.wrapping_add(syn).wrapping_add(self.queue.len() as u32)
    }

    /// True while our FIN is not acknowledged (sent or not).
    pub fn fin_pending(&self) -> bool {
        self.fin && !matches!(self.state, State::FinWait2 | State::Closed)
    }

    /// True when all that was sent is acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.una == self.max
    }

    pub fn can_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.fin && !self.write_shut
    }

    /// Connected, or was: not fresh and not half-way.
    pub fn is_synchronised(&self) -> bool {
        !matches!(self.state, State::Closed | State::SynSent | State::SynReceived)
    }

    /// Room in the send buffer.
    pub fn send_room(&self) -> usize {
        self.send_limit().saturating_sub(self.queue.len())
    }

    /// Linux' sk_stream_is_writeable: a third of the buffer is free.
    pub fn is_writable(&self) -> bool {
        self.send_room() >= self.queue.len() / 2 && self.send_room() > 0
    }

    /// What poll(2) says of a connection (Linux' tcp_poll).
    pub fn poll(&self, low_water: usize) -> Events {
        let no_more = self.fin || self.write_shut;
        let mut events = Events::NONE;
        if no_more && (self.read_shut || self.peer_done) || self.state == State::Closed {
            events = events | Events::HUP;
        }
        if self.read_shut || self.peer_done {
            events = events | Events::READABLE | Events::RDHUP;
        }
        if !matches!(self.state, State::SynSent | State::SynReceived) {
            let readable = self.input.len() >= low_water.max(1) + usize::from(self.hides_first());
            events = events.with(Events::READABLE, readable);
            let writable = no_more || self.is_writable();
            events = events.with(Events::WRITABLE, writable);
            events = events.with(Events::PRI, self.urgent.is_readable());
        }
        events.with(Events::ERR, self.error.is_some())
    }

    /// Something became possible; the owner is told after the burst.
    pub fn happened(&mut self, events: Events) {
        self.events = self.events | events;
    }

    /// The connection is over, by an error or by its end.
    pub fn finish(&mut self, error: Option<Errno>) {
        if self.state != State::Closed {
            self.ended = Some(self.state);
            self.state = State::Closed;
            self.error = self.error.or(error);
            self.deadlines = Deadlines::default();
            self.queue = SendQueue::default();
            self.gaps.clear();
            self.ack = Ack::None;
            self.fin = true;
            self.peer_done = true;
            self.una = self.max;
            self.next = self.max;
            self.recovery = None;
            self.board.clear();
            let mut events = Events::READABLE | Events::WRITABLE;
            events = events | Events::HUP | Events::RDHUP;
            self.happened(events.with(Events::ERR, self.error.is_some()));
        }
    }

    /// shutdown(SHUT_WR), close.
    pub fn shut_write(&mut self) {
        if self.fin {
            return;
        }
        match self.state {
            State::Established | State::SynReceived => {
                self.fin = true;
                if self.state == State::Established {
                    self.state = State::FinWait1;
                }
            }
            State::CloseWait => {
                self.fin = true;
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// The receive window in bytes to tell the peer, by moving the right edge where it pays: never back, and not by
    /// crumbs (RFC 9293 3.8.6.2.2).
    pub fn open_window(&mut self) -> u32 {
        let limit = self.receive_limit();
        let free = limit.saturating_sub(self.input.len()) as u32;
        let edge = self.received.wrapping_add(free);
        let gain = seq::ahead(self.edge, edge);
        if gain >= self.mss.min(limit as u32 / 2) {
            self.edge = edge;
        }
        seq::ahead(self.received, self.edge)
    }

    /// True when the program has read so much that the peer should hear of it.
    pub fn window_update_due(&self) -> bool {
        if !self.is_synchronised() || self.peer_done || self.state == State::Closed {
            return false;
        }
        let limit = self.receive_limit() as u32;
        let free = limit.saturating_sub(self.input.len() as u32);
        let told = seq::ahead(self.received, self.edge);
        let gain = free.saturating_sub(told);
        // Linux' rule is twice the window the peer still has.
        gain >= self.mss.min(limit / 2) && free >= told.saturating_mul(2)
    }

    /// Our timestamp clock, milliseconds (RFC 7323 5.4).
    pub fn timestamp(&self, now: u64) -> u32 {
        ((now / 1_000_000) as u32).wrapping_add(self.ts_offset)
    }

    pub fn remote(&self) -> SocketAddrV4 {
        self.tuple.remote
    }
}
